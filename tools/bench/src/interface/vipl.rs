// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows through VIA's descriptors on a connected VI, with reliable delivery.
#![allow(unsafe_code, reason = "functions of a C library, which take pointers")]

use super::{CONTROL_LEN_MAX, ControlBuffers, Member};
use crate::logp::Endpoint;
use crate::spec::{Role, window};
use anyhow::{Result, ensure};
use std::ffi::c_void;
use std::ptr;
use vipl::code::{
    VIP_FALSE, VIP_INFINITE, VIP_NO_MATCH, VIP_NOT_DONE, VIP_RETURN, VIP_SERVICE_RELIABLE_DELIVERY,
    VIP_SUCCESS,
};
use vipl::connect::{VipConnectAccept, VipConnectRequest, VipConnectWait, VipDisconnect};
use vipl::memory::{VipCreatePtag, VipRegisterMem};
use vipl::nic::{VipCloseNic, VipOpenNic, VipQueryNic};
use vipl::types::{
    VIP_DATA_SEGMENT, VIP_DESCRIPTOR, VIP_MEM_ATTRIBUTES, VIP_MEM_HANDLE, VIP_NET_ADDRESS,
    VIP_NIC_ATTRIBUTES, VIP_NIC_HANDLE, VIP_PROTECTION_HANDLE, VIP_PVOID64, VIP_VI_ATTRIBUTES,
    VIP_VI_HANDLE,
};
use vipl::vi::VipCreateVi;
use vipl::work::{VipPostRecv, VipPostSend, VipRecvDone, VipSendDone};

/// Maximum number of sends in flight: more than a single message needs, and fewer than a queue
/// holds.
const IN_FLIGHT_MAX: usize = 32;

/// Receives posted beyond a window: for control messages, and for the message before a burst.
const SPARE: u64 = 4;

/// Bytes of a host's address (`VipQueryNic`). The last byte is the number of the process.
const HOST_LEN: usize = 6;

/// Discriminator of the VIs of a row.
const DISCRIMINATOR: u8 = b'p';

/// An address in the layout of the library.
#[repr(C, align(4))]
struct Address {
    host_len: u16,
    discriminator_len: u16,
    bytes: [u8; HOST_LEN + 1],
}

impl Address {
    fn of(host: [u8; HOST_LEN]) -> Address {
        let mut bytes = [DISCRIMINATOR; HOST_LEN + 1];
        bytes[..HOST_LEN].copy_from_slice(&host);
        Address {
            host_len: 6,
            discriminator_len: 1,
            bytes,
        }
    }

    fn as_ptr(&self) -> *const VIP_NET_ADDRESS {
        ptr::from_ref(self).cast()
    }
}

/// A descriptor at a multiple of 64 bytes, as the library requires.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Place(VIP_DESCRIPTOR);

/// Memory registered with the library.
struct Registered {
    at: *const u8,
    len: usize,
    handle: VIP_MEM_HANDLE,
}

/// This process's end of a connection.
pub(super) struct Vipl {
    nic: VIP_NIC_HANDLE,
    ptag: VIP_PROTECTION_HANDLE,
    vi: VIP_VI_HANDLE,
    number: u8,
    /// Bytes of the row's own messages.
    size: usize,
    control: ControlBuffers,
    registered: Vec<Registered>,
    /// Send descriptors, used in turn. The library owns each while its send is in flight.
    sends: Box<[Place]>,
    receives: Box<[Place]>,
    places: Box<[u8]>,
    next: usize,
    in_flight: usize,
}

impl Vipl {
    /// Connects for messages of `size` bytes.
    pub(super) fn connect(size: usize) -> Result<Vipl> {
        let (mut nic, mut ptag, mut vi) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: a C string, and local variables for the results.
        unsafe {
            must(VipOpenNic(c"VINIC".as_ptr(), &raw mut nic), "VipOpenNic")?;
            must(VipCreatePtag(nic, &raw mut ptag), "VipCreatePtag")?;
        }
        let place_len = size.max(CONTROL_LEN_MAX);
        let attributes = VIP_VI_ATTRIBUTES {
            ReliabilityLevel: u16::try_from(VIP_SERVICE_RELIABLE_DELIVERY)?,
            MaxTransferSize: place_len as u64,
            QoS: ptr::null_mut(),
            Ptag: ptag,
            EnableRdmaWrite: VIP_FALSE,
            EnableRdmaRead: VIP_FALSE,
        };
        // SAFETY: as above.
        let made = unsafe {
            let none = ptr::null_mut();
            VipCreateVi(nic, &raw const attributes, none, none, &raw mut vi)
        };
        must(made, "VipCreateVi")?;
        let receives = usize::try_from(window(size) + SPARE)?;
        // SAFETY: the struct contains only numbers and pointers, for which zero is valid.
        let empty = Place(unsafe { std::mem::zeroed() });
        let mut vipl = Vipl {
            nic,
            ptag,
            vi,
            number: 0,
            size,
            control: ControlBuffers::default(),
            registered: Vec::new(),
            sends: vec![empty; IN_FLIGHT_MAX].into(),
            receives: vec![empty; receives].into(),
            places: vec![0; receives * place_len].into(),
            next: 0,
            in_flight: 0,
        };
        vipl.post_receives(place_len)?;
        vipl.connect_peer()?;
        Ok(vipl)
    }

    fn post_receives(&mut self, place_len: usize) -> Result<()> {
        let (at, len) = (self.receives.as_ptr().cast(), size_of_val(&*self.receives));
        let of_descriptors = self.register(at, len)?;
        let (at, len) = (self.sends.as_ptr().cast(), size_of_val(&*self.sends));
        self.register(at, len)?;
        let of_places = self.register(self.places.as_ptr(), self.places.len())?;
        let places = self.places.chunks_exact_mut(place_len);
        for (Place(descriptor), place) in self.receives.iter_mut().zip(places) {
            fill(descriptor, place.as_mut_ptr(), place.len(), of_places)?;
            // SAFETY: the descriptor and its memory stay in place until the VI is closed.
            let posted = unsafe { VipPostRecv(self.vi, descriptor, of_descriptors) };
            must(posted, "VipPostRecv")?;
        }
        Ok(())
    }

    /// Returns the handle of memory, and registers the memory on first use.
    #[inline]
    fn register(&mut self, at: *const u8, len: usize) -> Result<VIP_MEM_HANDLE> {
        let known = |one: &&Registered| one.at == at && one.len >= len;
        if let Some(one) = self.registered.iter().find(known) {
            return Ok(one.handle);
        }
        let attributes = VIP_MEM_ATTRIBUTES {
            Ptag: self.ptag,
            EnableRdmaWrite: VIP_FALSE,
            EnableRdmaRead: VIP_FALSE,
        };
        let mut handle = 0;
        // SAFETY: the memory is allocated, and only posted descriptors use it.
        let done = unsafe {
            let at = at.cast_mut().cast::<c_void>();
            let (attributes, handle) = (&raw const attributes, &raw mut handle);
            VipRegisterMem(self.nic, at, len as u64, attributes, handle)
        };
        must(done, "VipRegisterMem")?;
        self.registered.push(Registered { at, len, handle });
        Ok(handle)
    }

    /// Connects the two processes. The first waits and the second sends the request.
    fn connect_peer(&mut self) -> Result<()> {
        // SAFETY: the struct contains only numbers and pointers, for which zero is valid.
        let mut about: VIP_NIC_ATTRIBUTES = unsafe { std::mem::zeroed() };
        // SAFETY: a local variable for the result; `NicAddressLen` is the length of the address.
        let host = unsafe {
            must(VipQueryNic(self.nic, &raw mut about), "VipQueryNic")?;
            std::slice::from_raw_parts(about.LocalNicAddress, usize::from(about.NicAddressLen))
        };
        let own: [u8; HOST_LEN] = host.try_into()?;
        self.number = own[HOST_LEN - 1];
        let mut other = own;
        other[HOST_LEN - 1] = 1 - self.number;
        let (own, other) = (Address::of(own), Address::of(other));
        let forever = VIP_INFINITE.into();
        let none = ptr::null_mut::<c_void>();
        if self.number == 0 {
            let mut conn = ptr::null_mut();
            // SAFETY: addresses with their own lengths, and a local variable for the result.
            let status = unsafe {
                let conn = &raw mut conn;
                VipConnectWait(
                    self.nic,
                    own.as_ptr(),
                    forever,
                    none.cast(),
                    none.cast(),
                    conn,
                )
            };
            must(status, "VipConnectWait")?;
            return must(VipConnectAccept(conn, self.vi), "VipConnectAccept");
        }
        loop {
            // SAFETY: as above.
            let status = unsafe {
                VipConnectRequest(self.vi, own.as_ptr(), other.as_ptr(), forever, none.cast())
            };
            if status != VIP_NO_MATCH {
                return must(status, "VipConnectRequest");
            }
        }
    }

    /// Waits until at most `most` sends are in flight.
    #[inline]
    fn complete_sends(&mut self, most: usize) -> Result<()> {
        while self.in_flight > most {
            let mut done = ptr::null_mut();
            // SAFETY: a local variable for the result.
            let status = unsafe { VipSendDone(self.vi, &raw mut done) };
            if status != VIP_NOT_DONE {
                must(status, "a send")?;
                self.in_flight -= 1;
            }
        }
        Ok(())
    }
}

/// Prepares `descriptor` for `len` bytes.
#[inline]
fn fill(
    descriptor: &mut VIP_DESCRIPTOR,
    at: *mut u8,
    len: usize,
    handle: VIP_MEM_HANDLE,
) -> Result<()> {
    let len = u32::try_from(len)?;
    descriptor.CS.SegCount = 1;
    descriptor.CS.Control = 0;
    descriptor.CS.Status = 0;
    descriptor.CS.Length = len;
    descriptor.DS[0].Local = VIP_DATA_SEGMENT {
        Data: VIP_PVOID64 { Address: at.cast() },
        Handle: handle,
        Length: len,
    };
    Ok(())
}

fn must(status: VIP_RETURN, what: &str) -> Result<()> {
    ensure!(status == VIP_SUCCESS, "{what}: status {status}");
    Ok(())
}

impl Endpoint for Vipl {
    fn release(&mut self) -> Result<()> {
        self.complete()
    }

    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.complete_sends(IN_FLIGHT_MAX - 1)?;
        let (at, len) = match message.len() == self.size {
            true => (message.as_ptr(), message.len()),
            false => (self.control.copy(message).as_ptr(), message.len()),
        };
        let handle = self.register(at, len)?;
        let of_descriptors = self.registered[1].handle;
        let Place(descriptor) = &mut self.sends[self.next];
        fill(descriptor, at.cast_mut(), len, handle)?;
        // SAFETY: the bytes do not change before the peer has answered and so has received them
        // all. The loop keeps the buffer of its messages until `release`, and `control` holds
        // copies of control messages. The library only reads them. Descriptors complete in order,
        // so this one is free.
        let posted = unsafe { VipPostSend(self.vi, descriptor, of_descriptors) };
        must(posted, "VipPostSend")?;
        self.next = (self.next + 1) % IN_FLIGHT_MAX;
        self.in_flight += 1;
        Ok(())
    }

    #[inline]
    fn receive(&mut self, message: &mut [u8]) -> Result<()> {
        let mut done = ptr::null_mut();
        loop {
            // SAFETY: a local variable for the result.
            match unsafe { VipRecvDone(self.vi, &raw mut done) } {
                VIP_NOT_DONE => {}
                status => break must(status, "a message")?,
            }
        }
        // SAFETY: a completed descriptor, which the program owns again together with its buffer.
        unsafe {
            let len = (*done).CS.Length as usize;
            let want = message.len();
            ensure!(len == want, "a message of {len} bytes instead of {want}");
            let place = (*done).DS[0].Local;
            let bytes = std::slice::from_raw_parts(place.Data.Address.cast::<u8>(), len);
            message.copy_from_slice(bytes);
            (*done).CS.Status = 0;
            must(
                VipPostRecv(self.vi, done, self.registered[0].handle),
                "VipPostRecv",
            )
        }
    }
}

impl Member for Vipl {
    fn role(&self) -> Role {
        match self.number {
            0 => Role::Driver,
            _ => Role::Answerer,
        }
    }

    fn complete(&mut self) -> Result<()> {
        self.complete_sends(0)
    }

    fn end(&mut self) -> Result<()> {
        self.complete()?;
        // The peer may have disconnected first.
        VipDisconnect(self.vi);
        Ok(())
    }
}

impl Drop for Vipl {
    /// Closes the NIC. The library then no longer writes to the descriptors.
    fn drop(&mut self) {
        VipCloseNic(self.nic);
    }
}

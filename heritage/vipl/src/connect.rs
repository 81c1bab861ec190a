// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connecting VIs, as client and server or as peers, and disconnecting them.

use crate::body::{Address, Traits};
use crate::code::*;
use crate::error::{Failure, invalid, wrong_state};
use crate::handshake::compare;
use crate::machine::{Machine, call, lock, release};
use crate::nic::{ADDRESS_LEN, DISCRIMINATOR_MAX, address_of, rank_of};
use crate::types::*;
use crate::vi::put;
use crate::wait::{Deadline, wait_for};
use crate::world::World;

/// Reads an address from the program's memory, and checks its discriminator. `what` names it in
/// errors.
///
/// # Safety
/// `at` is null, or an address with as many bytes as it states.
unsafe fn address(at: *const VIP_NET_ADDRESS, what: &str) -> Result<Address, Failure> {
    // SAFETY: guaranteed by the caller.
    let address = unsafe { Address::read(at) }.ok_or_else(|| Failure::null(what))?;
    if address.discriminator.len() > DISCRIMINATOR_MAX.into() {
        let len = address.discriminator.len();
        return Err(invalid(format!(
            "the discriminator of {what} has {len} bytes; at most {DISCRIMINATOR_MAX} are allowed"
        )));
    }
    Ok(address)
}

impl World {
    /// Checks that an address belongs to this process, and adds the host if it is missing.
    fn check_own(&self, address: &mut Address) -> Result<(), Failure> {
        let own = address_of(self.rank);
        if address.host.is_empty() {
            address.host = own.to_vec();
        }
        match address.host == own {
            true => Ok(()),
            false => Err(invalid(
                "the local address is not that of this NIC; see VipQueryNic()",
            )),
        }
    }

    /// Returns the rank of the process at an address.
    fn rank_at(&self, address: &Address) -> Result<u32, Failure> {
        if address.host.len() != ADDRESS_LEN {
            let len = address.host.len();
            return Err(invalid(format!(
                "the host part of the remote address has {len} bytes instead of {ADDRESS_LEN}"
            )));
        }
        let rank = rank_of(&address.host).filter(|rank| *rank < self.size);
        rank.ok_or_else(|| {
            Failure::new(
                VIP_NOT_REACHABLE,
                "no process of this job has the remote address",
            )
        })
    }

    /// Checks that a VI may request a connection.
    fn check_idle(&mut self, index: u32) -> Result<(), Failure> {
        match self.vi_at(index)?.state {
            VIP_STATE_IDLE => Ok(()),
            VIP_STATE_ERROR => Err(wrong_state(
                "the VI is in the error state; call VipDisconnect() first",
            )),
            _ => Err(wrong_state("the VI is connected or connecting")),
        }
    }
}

impl Machine {
    /// Determines the path to the other side of a new connection.
    fn update_path(&mut self, index: u32) -> Result<(), Failure> {
        let peer = self.world().vis.get(index).map(|vi| vi.peer_rank);
        let Some(rank) = peer else {
            return Ok(());
        };
        let node = self.node()?;
        let is_lossless = node.rank() == rank || node.shares_memory(rank);
        if let Some(vi) = self.world().vis.get_mut(index) {
            vi.is_lossless = is_lossless;
        }
        Ok(())
    }

    /// Returns the result of a VI's request, if it is complete.
    fn outcome(&mut self, index: u32) -> Result<Option<(VIP_RETURN, Option<Traits>)>, Failure> {
        let outcome = {
            let mut world = self.world();
            let vi = world.vi_at(index)?;
            let Some(pending) = &vi.pending else {
                return Err(wrong_state("the request was withdrawn by VipDisconnect()"));
            };
            pending.outcome
        };
        if outcome.is_some() {
            self.update_path(index)?;
        }
        Ok(outcome)
    }
}

/// Reports the result of a request to the program.
///
/// # Safety
/// `at` is null, or may be written.
unsafe fn report_outcome(
    (result, traits): (VIP_RETURN, Option<Traits>),
    at: *mut VIP_VI_ATTRIBUTES,
) -> Result<VIP_RETURN, Failure> {
    if let Some(traits) = traits {
        // SAFETY: guaranteed by the caller.
        unsafe { put(at, traits.attributes()) };
    }
    let text = match result {
        VIP_SUCCESS => return Ok(VIP_SUCCESS),
        VIP_REJECT => "the peer has rejected the connection",
        VIP_NO_MATCH => "no process waits at the remote address",
        VIP_NOT_REACHABLE => "the process at the remote address has ended",
        VIP_TIMEOUT => "the peer has not replied before the timeout",
        _ => "the two VIs differ in reliability level, maximum transfer size or quality of service",
    };
    Err(Failure::new(result, text))
}

/// Waits for a connection request to `LocalAddr`, for `Timeout` milliseconds or VIP_INFINITE.
/// Address and attributes of the requester are stored in `RemoteAddr` and `RemoteViAttributes`, and
/// the request in `ConnHandle`. `RemoteAddr` must have room for the longest address. Answer the
/// request with VipConnectAccept() or VipConnectReject().
///
/// Errors: VIP_TIMEOUT, VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipConnectWait(
    NicHandle: VIP_NIC_HANDLE,
    LocalAddr: *const VIP_NET_ADDRESS,
    Timeout: VIP_ULONG,
    RemoteAddr: *mut VIP_NET_ADDRESS,
    RemoteViAttributes: *mut VIP_VI_ATTRIBUTES,
    ConnHandle: *mut VIP_CONN_HANDLE,
) -> VIP_RETURN {
    portolan_ffi::guard(|| {
        let deadline = Deadline::of(Timeout);
        if ConnHandle.is_null() {
            return Err(Failure::null("ConnHandle"));
        }
        let id = {
            let machine = lock()?;
            let mut world = machine.world();
            let nic = world.nic(NicHandle)?;
            // SAFETY: guaranteed by the program.
            let mut local = unsafe { address(LocalAddr, "LocalAddr") }?;
            world.check_own(&mut local)?;
            world.add_waiter(nic, local.discriminator)
        };
        let found = wait_for(deadline, |machine| {
            let mut world = machine.world();
            match world.found_request(id) {
                None if !world.has_waiter(id) => Err(invalid("the NIC was closed")),
                found => Ok(found),
            }
        });
        let machine = lock()?;
        let mut world = machine.world();
        // Another thread may have received a request since the last poll.
        let found = found?.or_else(|| world.found_request(id));
        world.remove_waiter(id);
        let Some(conn) = found else {
            return Ok(VIP_TIMEOUT);
        };
        let handle = world.conns.handle(conn);
        let Some(offer) = world.conns.get(conn) else {
            return Err(invalid("the NIC was closed"));
        };
        if !RemoteAddr.is_null() {
            // SAFETY: guaranteed by the program.
            unsafe { offer.body.from.write(RemoteAddr) };
        }
        // SAFETY: guaranteed by the program.
        unsafe {
            put(RemoteViAttributes, offer.body.traits.attributes());
            ConnHandle.write(handle);
        }
        Ok(VIP_SUCCESS)
    })
}

/// Accepts a connection request for an idle VI. The VI must have the reliability level, maximum
/// transfer size and quality of service of the requester's VI. If they differ, the request stays
/// open: accept it with another VI, or reject it.
///
/// Errors: VIP_INVALID_PARAMETER, VIP_INVALID_STATE, VIP_INVALID_RELIABILITY_LEVEL,
/// VIP_INVALID_MTU, VIP_INVALID_QOS, VIP_TIMEOUT when the requester has stopped waiting.
#[unsafe(no_mangle)]
pub extern "C" fn VipConnectAccept(
    ConnHandle: VIP_CONN_HANDLE,
    ViHandle: VIP_VI_HANDLE,
) -> VIP_RETURN {
    call(|machine| {
        machine.progress()?;
        let index = {
            let mut world = machine.world();
            let conn = world.conns.index_of(ConnHandle);
            let conn = conn.ok_or_else(no_request)?;
            let index = world.vi(ViHandle)?;
            world.check_idle(index)?;
            let Some(offer) = world.conns.get(conn).cloned() else {
                return Err(no_request());
            };
            if world.vi_at(index)?.nic != offer.nic {
                return Err(invalid("the VI belongs to another NIC"));
            }
            if offer.is_withdrawn {
                world.conns.remove(conn);
                return Err(Failure::new(
                    VIP_TIMEOUT,
                    "the requester has stopped waiting",
                ));
            }
            let result = compare(&world.vi_at(index)?.traits(), &offer.body.traits);
            if result != VIP_SUCCESS {
                return Err(Failure::new(
                    result,
                    "the two VIs differ in reliability level, maximum transfer size or quality of service",
                ));
            }
            world.conns.remove(conn);
            world.new_token(index);
            world.vi_at(index)?.connect(offer.rank, offer.body.token);
            world.reply(offer.rank, offer.body.id, VIP_SUCCESS, Some(index));
            index
        };
        machine.work()?;
        machine.update_path(index)?;
        Ok(VIP_SUCCESS)
    })
}

#[cold]
fn no_request() -> Failure {
    invalid(
        "the connection request does not exist or was answered already; VipConnectWait() returns requests",
    )
}

/// Rejects a connection request.
///
/// Errors: VIP_INVALID_PARAMETER.
#[unsafe(no_mangle)]
pub extern "C" fn VipConnectReject(ConnHandle: VIP_CONN_HANDLE) -> VIP_RETURN {
    call(|machine| {
        {
            let mut world = machine.world();
            let conn = world.conns.index_of(ConnHandle);
            let conn = conn.ok_or_else(no_request)?;
            if let Some(offer) = world.conns.remove(conn) {
                world.reply(offer.rank, offer.body.id, VIP_REJECT, None);
            }
        }
        machine.work()?;
        Ok(VIP_SUCCESS)
    })
}

/// Requests a connection with the process that waits at `RemoteAddr`, for `Timeout` milliseconds or
/// VIP_INFINITE. `RemoteViAttributes` receives the attributes of the other VI; it may be null.
///
/// Errors: VIP_REJECT, VIP_NO_MATCH when no process waits there, VIP_TIMEOUT, VIP_NOT_REACHABLE,
/// VIP_INVALID_STATE, VIP_INVALID_PARAMETER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipConnectRequest(
    ViHandle: VIP_VI_HANDLE,
    LocalAddr: *const VIP_NET_ADDRESS,
    RemoteAddr: *const VIP_NET_ADDRESS,
    Timeout: VIP_ULONG,
    RemoteViAttributes: *mut VIP_VI_ATTRIBUTES,
) -> VIP_RETURN {
    portolan_ffi::guard(|| {
        let deadline = Deadline::of(Timeout);
        // SAFETY: guaranteed by the program.
        let index = unsafe { send_request(ViHandle, (LocalAddr, RemoteAddr), Timeout, false) }?;
        let outcome = wait_for(deadline, |machine| machine.outcome(index))?;
        let mut machine = lock()?;
        // Another thread may have received the reply since the last poll.
        let outcome = match outcome {
            None => machine.outcome(index)?,
            found => found,
        };
        if outcome.is_none() {
            machine.world().withdraw(index);
            machine.work()?;
        } else if let Some(vi) = machine.world().vis.get_mut(index) {
            vi.pending = None;
        }
        release(machine);
        // SAFETY: guaranteed by the program.
        unsafe { report_outcome(outcome.unwrap_or((VIP_TIMEOUT, None)), RemoteViAttributes) }
    })
}

/// Sends a request. Returns the index of the VI.
///
/// # Safety
/// The addresses are null, or have as many bytes as they state.
unsafe fn send_request(
    handle: VIP_VI_HANDLE,
    (local, remote): (*const VIP_NET_ADDRESS, *const VIP_NET_ADDRESS),
    timeout: VIP_ULONG,
    is_peer: bool,
) -> Result<u32, Failure> {
    let mut machine = lock()?;
    let index = {
        let mut world = machine.world();
        let index = world.vi(handle)?;
        // SAFETY: guaranteed by the caller.
        let (mut local, remote) =
            unsafe { (address(local, "LocalAddr")?, address(remote, "RemoteAddr")?) };
        if timeout == 0 {
            return Err(invalid(
                "the timeout is 0; pass milliseconds or VIP_INFINITE",
            ));
        }
        world.check_own(&mut local)?;
        world.check_idle(index)?;
        let rank = world.rank_at(&remote)?;
        if world.peer(rank).has_failed {
            let text = "the process at the remote address has ended";
            return Err(Failure::new(VIP_NOT_REACHABLE, text));
        }
        world.request(index, rank, is_peer, (local, remote), Deadline::of(timeout));
        index
    };
    machine.work()?;
    release(machine);
    Ok(index)
}

/// Requests a connection with a VI whose program requests one with this VI. The local address of
/// each must be the remote address of the other. Returns at once; VipConnectPeerDone() and
/// VipConnectPeerWait() report the result, after `Timeout` milliseconds at the latest.
///
/// Errors: VIP_NOT_REACHABLE, VIP_INVALID_STATE, VIP_INVALID_PARAMETER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipConnectPeerRequest(
    ViHandle: VIP_VI_HANDLE,
    LocalAddr: *const VIP_NET_ADDRESS,
    RemoteAddr: *const VIP_NET_ADDRESS,
    Timeout: VIP_ULONG,
) -> VIP_RETURN {
    portolan_ffi::guard(|| {
        // SAFETY: guaranteed by the program.
        unsafe { send_request(ViHandle, (LocalAddr, RemoteAddr), Timeout, true) }?;
        Ok(VIP_SUCCESS)
    })
}

impl Machine {
    /// Returns the result of a peer's request, if it is complete. A failure is reported only once.
    fn peer_outcome(
        &mut self,
        handle: VIP_VI_HANDLE,
    ) -> Result<Option<(VIP_RETURN, Option<Traits>)>, Failure> {
        let index = self.world().vi(handle)?;
        {
            let mut world = self.world();
            let pending = world.vi_at(index)?.pending.as_ref();
            let Some(pending) = pending.filter(|pending| pending.is_peer) else {
                return Err(wrong_state(
                    "the VI has no pending request to a peer; call VipConnectPeerRequest() first",
                ));
            };
            if pending.outcome.is_none() && pending.deadline.is_over() {
                world.withdraw(index);
                drop(world);
                self.work()?;
                return Ok(Some((VIP_TIMEOUT, None)));
            }
        }
        let outcome = self.outcome(index)?;
        if outcome.is_some_and(|(result, _)| result != VIP_SUCCESS) {
            self.world().vi_at(index)?.pending = None;
        }
        Ok(outcome)
    }
}

/// Returns VIP_SUCCESS if a connection with a peer is established, and VIP_NOT_DONE while it is
/// pending.
///
/// Errors: VIP_TIMEOUT, VIP_NOT_REACHABLE, VIP_INVALID_RELIABILITY_LEVEL, VIP_INVALID_MTU,
/// VIP_INVALID_QOS, VIP_INVALID_STATE, VIP_INVALID_PARAMETER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipConnectPeerDone(
    ViHandle: VIP_VI_HANDLE,
    RemoteViAttributes: *mut VIP_VI_ATTRIBUTES,
) -> VIP_RETURN {
    call(|machine| {
        machine.progress()?;
        match machine.peer_outcome(ViHandle)? {
            None => Ok(VIP_NOT_DONE),
            // SAFETY: guaranteed by the program.
            Some(outcome) => unsafe { report_outcome(outcome, RemoteViAttributes) },
        }
    })
}

/// Waits until a connection with a peer is established, for the timeout of its request.
///
/// Errors: those of VipConnectPeerDone().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipConnectPeerWait(
    ViHandle: VIP_VI_HANDLE,
    RemoteViAttributes: *mut VIP_VI_ATTRIBUTES,
) -> VIP_RETURN {
    portolan_ffi::guard(|| {
        // The request has a timeout of its own.
        let forever = Deadline::of(VIP_INFINITE.into());
        let outcome = wait_for(forever, |machine| machine.peer_outcome(ViHandle))?;
        // SAFETY: guaranteed by the program.
        unsafe { report_outcome(outcome.unwrap_or((VIP_TIMEOUT, None)), RemoteViAttributes) }
    })
}

/// Ends a connection, a connection request, or the error state, and makes the VI idle. Pending
/// descriptors complete with VIP_STATUS_DESC_FLUSHED_ERROR.
///
/// Errors: VIP_INVALID_PARAMETER.
#[unsafe(no_mangle)]
pub extern "C" fn VipDisconnect(ViHandle: VIP_VI_HANDLE) -> VIP_RETURN {
    call(|machine| {
        let index = machine.world().vi(ViHandle)?;
        machine.progress()?;
        machine.world().disconnect(index);
        machine.work()?;
        Ok(VIP_SUCCESS)
    })
}

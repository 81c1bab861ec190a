// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test fixture: a world without a node, with descriptors and one connected VI.

use crate::code::*;
use crate::descriptor::Descriptor;
use crate::queue::{Entry, Op, Queue};
use crate::types::*;
use crate::vi::{Level, Vi};
use crate::wire::{Header, LEN_MAX};
use crate::world::World;
use std::ptr;

pub(crate) const RANK: u32 = 3;
pub(crate) const TOKEN: u32 = 7 << 16;
pub(crate) const PTAG: u32 = 0;

/// Descriptors, and the memory that they refer to.
#[repr(C, align(64))]
pub(crate) struct UserMemory {
    pub(crate) descriptors: [VIP_DESCRIPTOR; 4],
    pub(crate) data: [u8; 64],
}

pub(crate) struct Bench {
    pub(crate) world: World,
    pub(crate) own: Box<UserMemory>,
    pub(crate) handle: u32,
}

pub(crate) fn attributes(level: u32) -> VIP_VI_ATTRIBUTES {
    VIP_VI_ATTRIBUTES {
        ReliabilityLevel: u16::try_from(level).unwrap(),
        MaxTransferSize: 4096,
        QoS: ptr::null_mut(),
        Ptag: ptr::null_mut(),
        EnableRdmaWrite: VIP_TRUE,
        EnableRdmaRead: VIP_TRUE,
    }
}

impl Bench {
    /// Creates a VI that is connected to a VI of another process.
    pub(crate) fn new(level: u32) -> Bench {
        // SAFETY: integers only, for which all bit patterns are valid.
        let own: Box<UserMemory> = Box::new(unsafe { std::mem::zeroed() });
        let mut world = World::new();
        let at = ptr::from_ref(&*own).expose_provenance();
        let handle = world.regions.open(at, size_of::<UserMemory>(), PTAG);
        let traits = (Level::of(u16::try_from(level).unwrap()).unwrap(), PTAG);
        let queues = (Queue::default(), Queue::default());
        let mut vi = Vi::new(0, attributes(level), traits, queues);
        vi.token = TOKEN;
        vi.connect(RANK, 99);
        assert_eq!(world.vis.insert(vi), Some(0));
        Bench { world, own, handle }
    }

    pub(crate) fn vi(&mut self) -> &mut Vi {
        self.world.vis.get_mut(0).unwrap()
    }

    /// Creates an entry for descriptor `index`, with 16 bytes of memory.
    pub(crate) fn entry(&mut self, index: usize, op: Op) -> Entry {
        let handle = self.handle;
        let at = ptr::from_mut(&mut self.own.data[16 * index]);
        let descriptor = &mut self.own.descriptors[index];
        descriptor.CS.SegCount = 1;
        descriptor.DS[0].Local = VIP_DATA_SEGMENT {
            Data: VIP_PVOID64 { Address: at.cast() },
            Handle: handle,
            Length: 16,
        };
        Entry {
            total: 16,
            ..Entry::new(Descriptor(ptr::from_mut(descriptor)), op)
        }
    }

    pub(crate) fn post_recv(&mut self, index: usize) {
        let entry = self.entry(index, Op::Recv);
        self.vi().recv.push(entry);
    }

    /// Adds a send that has left completely; its last unit was `mark`.
    pub(crate) fn note_sent(&mut self, index: usize, op: Op, mark: u32) {
        let mut entry = self.entry(index, op);
        entry.mark = mark;
        let vi = self.vi();
        vi.send.next = vi.send.push(entry) + 1;
        vi.units_sent += 1;
    }

    pub(crate) fn status(&self, index: usize) -> u32 {
        self.own.descriptors[index].CS.Status
    }

    pub(crate) fn come(&mut self, header: &Header, bytes: &[u8]) {
        let mut head = [0; LEN_MAX];
        let len = header.write(&mut head);
        let message = [&head[..len], bytes].concat();
        self.world.on_message(RANK, &message);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of peers without traffic. The only test of its program, because the allocator counts.
#![allow(unsafe_code, reason = "an allocator that counts")]
#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

use portolan::EndpointConfig;
use portolan::binding::{Endpoint, EndpointAddress};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `GlobalAlloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn descriptor_count() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn idle_peer_costs_less_than_a_kilobyte_and_no_descriptor() {
    const COUNT: usize = 10_000;
    let mut end = Endpoint::open(&EndpointConfig::default()).unwrap();
    let mut address = *end.address().as_bytes();
    let (bytes, descriptors) = (IN_USE.load(Ordering::Relaxed), descriptor_count());
    for index in 0..COUNT {
        // Another token stands for another process.
        address[8..16].copy_from_slice(&(index as u64).to_le_bytes());
        let address = EndpointAddress::from_bytes(&address).unwrap();
        assert_eq!(end.insert(&address).unwrap().0 as usize, index);
    }
    end.poll(&mut |done| panic!("{done:?}"));
    let each = (IN_USE.load(Ordering::Relaxed) - bytes) / COUNT;
    assert!(each < 1024, "{each} bytes a peer");
    assert_eq!(descriptor_count(), descriptors);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entry point that libfabric calls after it has loaded the library.

#![allow(
    unsafe_code,
    reason = "an exported symbol, and a lookup among the loaded libraries"
)]

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::OnceLock;

use crate::abi::{self, Provider};
use crate::{fabric, getinfo, provider_info};

/// Version of the provider, in libfabric's format.
const VERSION: u32 = abi::version(0, 1);
/// Newest interface version that was tested. It is reported if the library has no `fi_version`.
const FALLBACK: u32 = abi::version(1, 17);

/// The provider's description. It is stored in a static and written once.
#[repr(transparent)]
pub(crate) struct Registered(Provider);

// SAFETY: libfabric's core owns `context` and serialises its own use of it. The other fields are
// never written after construction.
unsafe impl Sync for Registered {}
// SAFETY: as above; no field is bound to a thread.
unsafe impl Send for Registered {}

/// Returns the provider to the libfabric library that loaded this one.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut c_void {
    static PROVIDER: OnceLock<Box<Registered>> = OnceLock::new();
    let provider = PROVIDER.get_or_init(|| {
        Box::new(Registered(Provider {
            version: VERSION,
            // The core skips a provider that is older than the version the program requests, and
            // MPICH requests the version of the library it runs with.
            fi_version: running_version(),
            context: [null_mut(); 4],
            name: provider_info::NAME.as_ptr(),
            getinfo: getinfo::getinfo,
            fabric: fabric::open,
            cleanup,
        }))
    });
    std::ptr::from_ref(provider.as_ref()).cast_mut().cast()
}

/// Returns the version of the loaded libfabric.
fn running_version() -> u32 {
    // SAFETY: the name is a C string; the lookup has no other precondition.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"fi_version".as_ptr()) };
    if found.is_null() {
        return FALLBACK;
    }
    // SAFETY: every libfabric exports this symbol as a function of this type.
    let fi_version: extern "C" fn() -> u32 = unsafe { std::mem::transmute(found) };
    fi_version()
}

extern "C" fn cleanup() {}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asking the kernel what membarrier(2) offers.

use std::io;

/// The commands that this kernel's membarrier knows, as a bit set (MEMBARRIER_CMD_QUERY).
///
/// # Errors
/// `ENOSYS` where the kernel has none.
#[allow(unsafe_code, reason = "std has no membarrier")]
pub fn query() -> io::Result<u32> {
    /// MEMBARRIER_CMD_QUERY of include/uapi/linux/membarrier.h.
    const QUERY: libc::c_int = 0;
    // SAFETY: the query takes numbers only and touches no memory.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, QUERY, 0, 0) };
    u32::try_from(result).map_err(|_| io::Error::last_os_error())
}

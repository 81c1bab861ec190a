// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory files: shared memory without a name, freed with its last process.
//!
//! Invariant: a file that passed [`check`] can no longer shrink. No access to its mapping can
//! fault, whatever the process at the other end does.

use rustix::fs::{self, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Creates a memory file of `len` zero bytes with a fixed size and fixed seals.
///
/// # Errors
/// Returns the error of `memfd_create`, `ftruncate` or `fcntl(F_ADD_SEALS)`; EFBIG beyond the limit
/// of file sizes.
pub fn create_sealed(label: &str, len: u64) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 lack NOEXEC_SEAL.
    let fd = match fs::memfd_create(label, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => fs::memfd_create(label, flags)?,
        other => other?,
    };
    // Exceeding the limit raises SIGXFSZ, which would end the process (inode_newsize_ok of
    // fs/attr.c).
    if getrlimit(Resource::Fsize)
        .current
        .is_some_and(|most| len > most)
    {
        return Err(Errno::FBIG.into());
    }
    fs::ftruncate(&fd, len)?;
    fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

/// Reason why a memory file from another process was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemfdRefused {
    /// Not a memory file, or its size may still change.
    #[error("memory file is not sealed against resizing")]
    NotSealed,
    /// The size differs from the announced one.
    #[error("memory file does not have the announced size")]
    WrongLen,
}

/// Checks that `fd` is a memory file of exactly `len` bytes that can never be resized.
///
/// # Errors
/// [`MemfdRefused`], also if the descriptor cannot be queried.
pub fn check(fd: impl AsFd, len: u64) -> Result<(), MemfdRefused> {
    // Check the seals first, because only a sealed size is final.
    let seals = fs::fcntl_get_seals(fd.as_fd()).map_err(|_| MemfdRefused::NotSealed)?;
    if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
        return Err(MemfdRefused::NotSealed);
    }
    let stat = fs::fstat(fd.as_fd()).map_err(|_| MemfdRefused::WrongLen)?;
    if u64::try_from(stat.st_size) != Ok(len) {
        return Err(MemfdRefused::WrongLen);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_file_passes_and_cannot_be_resized() {
        let fd = create_sealed("portolan-test", 8192).unwrap();
        assert_eq!(check(&fd, 8192), Ok(()));
        assert!(fs::ftruncate(&fd, 4096).is_err());
        assert!(fs::ftruncate(&fd, 16384).is_err());
    }

    #[test]
    fn other_length_is_refused() {
        let fd = create_sealed("portolan-test", 8192).unwrap();
        assert_eq!(check(&fd, 4096), Err(MemfdRefused::WrongLen));
    }

    #[test]
    fn file_that_may_shrink_is_refused() {
        let fd = fs::memfd_create("portolan-test", MemfdFlags::ALLOW_SEALING).unwrap();
        fs::ftruncate(&fd, 8192).unwrap();
        assert_eq!(check(&fd, 8192), Err(MemfdRefused::NotSealed));
    }

    #[test]
    fn ordinary_file_is_refused() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(check(&file, 1), Err(MemfdRefused::NotSealed));
    }
}

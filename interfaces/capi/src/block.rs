// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collective operations that move blocks of data.

use crate::collective::{begin, complete, lens_of, root_lens, total};
use crate::failure::Failure;
use crate::group::portolan_group_t;
use crate::handle::portolan_node_t;
use crate::memory;
use crate::types::portolan_request_t;
use portolan::{Group, Node, Request};
use std::ffi::{c_int, c_void};

/// Returns the length of memory that only member `root` passes.
fn at_root(group: &Group, root: u32, len: usize) -> usize {
    if group.rank() == root { len } else { 0 }
}

/// Collects the `len` bytes at `mine` of all members of the group, or with null of the job, in `all`
/// of every member, in the order of the group. All pass the same length.
///
/// Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_allgather(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    mine: *const c_void,
    len: usize,
    all: *mut c_void,
) -> c_int {
    // SAFETY: guaranteed by the program.
    unsafe {
        complete(node, group, |node, group| {
            begin_allgather(node, group, mine, len, all)
        })
    }
}

/// Begins portolan_allgather(), and returns at once; see portolan_ibarrier(). Until it has ended, the
/// memory for the result must not be used, and the other memory must not change.
///
/// Errors: those of portolan_allgather().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_iallgather(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    mine: *const c_void,
    len: usize,
    all: *mut c_void,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |node: &mut Node, group: &Group| {
        // SAFETY: guaranteed by the program.
        unsafe { begin_allgather(node, group, mine, len, all) }
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
}

/// # Safety
/// The program guarantees that the memory stays valid until the operation has ended.
unsafe fn begin_allgather(
    node: &mut Node,
    group: &Group,
    mine: *const c_void,
    len: usize,
    all: *mut c_void,
) -> Result<Request, Failure> {
    let total = len.saturating_mul(group.size() as usize);
    // SAFETY: guaranteed by the caller.
    let (mine, all) = unsafe {
        (
            memory::send_buffer(mine, len)?,
            memory::receive_buffer(all, total)?,
        )
    };
    Ok(group.iallgather(node, mine, all)?)
}

/// Collects blocks like portolan_allgather(). `lens` has the length of each member's block in bytes.
///
/// Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_allgatherv(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    mine: *const c_void,
    all: *mut c_void,
    lens: *const usize,
) -> c_int {
    // SAFETY: guaranteed by the program.
    unsafe {
        complete(node, group, |node, group| {
            begin_allgatherv(node, group, mine, all, lens)
        })
    }
}

/// Begins portolan_allgatherv(), and returns at once; see portolan_ibarrier(). Until it has ended, the
/// memory for the result must not be used, and the other memory must not change.
///
/// Errors: those of portolan_allgatherv().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_iallgatherv(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    mine: *const c_void,
    all: *mut c_void,
    lens: *const usize,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |node: &mut Node, group: &Group| {
        // SAFETY: guaranteed by the program.
        unsafe { begin_allgatherv(node, group, mine, all, lens) }
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
}

/// # Safety
/// The program guarantees that the memory stays valid until the operation has ended.
unsafe fn begin_allgatherv(
    node: &mut Node,
    group: &Group,
    mine: *const c_void,
    all: *mut c_void,
    lens: *const usize,
) -> Result<Request, Failure> {
    // SAFETY: guaranteed by the caller.
    let (mine, all, lens) = unsafe {
        let lens = lens_of("lens", lens, group)?;
        let own_len = lens[group.rank() as usize];
        let mine = memory::send_buffer(mine, own_len)?;
        (mine, memory::receive_buffer(all, total(lens))?, lens)
    };
    Ok(group.iallgatherv(node, mine, all, lens)?)
}

/// Collects the `len` bytes at `mine` of all members in `all` of member `root`; the others may pass
/// null. All pass the same length.
///
/// Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_gather(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    root: u32,
    mine: *const c_void,
    len: usize,
    all: *mut c_void,
) -> c_int {
    // SAFETY: guaranteed by the program.
    unsafe {
        complete(node, group, |node, group| {
            begin_gather(node, group, root, mine, len, all)
        })
    }
}

/// Begins portolan_gather(), and returns at once; see portolan_ibarrier(). Until it has ended, the
/// memory for the result must not be used, and the other memory must not change.
///
/// Errors: those of portolan_gather().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_igather(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    root: u32,
    mine: *const c_void,
    len: usize,
    all: *mut c_void,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |node: &mut Node, group: &Group| {
        // SAFETY: guaranteed by the program.
        unsafe { begin_gather(node, group, root, mine, len, all) }
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
}

/// # Safety
/// The program guarantees that the memory stays valid until the operation has ended.
unsafe fn begin_gather(
    node: &mut Node,
    group: &Group,
    root: u32,
    mine: *const c_void,
    len: usize,
    all: *mut c_void,
) -> Result<Request, Failure> {
    let total = len.saturating_mul(group.size() as usize);
    // SAFETY: guaranteed by the caller.
    let (mine, all) = unsafe {
        (
            memory::send_buffer(mine, len)?,
            memory::receive_buffer(all, at_root(group, root, total))?,
        )
    };
    Ok(group.igather(node, root, mine, all)?)
}

/// Collects blocks like portolan_gather(). Member `root` alone passes `all` and `lens`, the length of
/// each member's block in bytes.
///
/// Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_gatherv(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    root: u32,
    mine: *const c_void,
    len: usize,
    all: *mut c_void,
    lens: *const usize,
) -> c_int {
    // SAFETY: guaranteed by the program.
    unsafe {
        complete(node, group, |node, group| {
            begin_gatherv(node, group, root, mine, len, all, lens)
        })
    }
}

/// Begins portolan_gatherv(), and returns at once; see portolan_ibarrier(). Until it has ended, the
/// memory for the result must not be used, and the other memory must not change.
///
/// Errors: those of portolan_gatherv().
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "an interface of C")]
pub unsafe extern "C" fn portolan_igatherv(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    root: u32,
    mine: *const c_void,
    len: usize,
    all: *mut c_void,
    lens: *const usize,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |node: &mut Node, group: &Group| {
        // SAFETY: guaranteed by the program.
        unsafe { begin_gatherv(node, group, root, mine, len, all, lens) }
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
}

/// # Safety
/// The program guarantees that the memory stays valid until the operation has ended.
unsafe fn begin_gatherv(
    node: &mut Node,
    group: &Group,
    root: u32,
    mine: *const c_void,
    len: usize,
    all: *mut c_void,
    lens: *const usize,
) -> Result<Request, Failure> {
    // SAFETY: guaranteed by the caller.
    let (mine, all, lens) = unsafe {
        let lens = root_lens(group, root, lens)?;
        let mine = memory::send_buffer(mine, len)?;
        (mine, memory::receive_buffer(all, total(lens))?, lens)
    };
    Ok(group.igatherv(node, root, mine, all, lens)?)
}

/// Distributes the blocks at `all` of member `root`, of `len` bytes each, to `mine` of the members;
/// the others may pass null as `all`. All pass the same length.
///
/// Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_scatter(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    root: u32,
    all: *const c_void,
    mine: *mut c_void,
    len: usize,
) -> c_int {
    // SAFETY: guaranteed by the program.
    unsafe {
        complete(node, group, |node, group| {
            begin_scatter(node, group, root, all, mine, len)
        })
    }
}

/// Begins portolan_scatter(), and returns at once; see portolan_ibarrier(). Until it has ended, the
/// memory for the result must not be used, and the other memory must not change.
///
/// Errors: those of portolan_scatter().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_iscatter(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    root: u32,
    all: *const c_void,
    mine: *mut c_void,
    len: usize,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |node: &mut Node, group: &Group| {
        // SAFETY: guaranteed by the program.
        unsafe { begin_scatter(node, group, root, all, mine, len) }
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
}

/// # Safety
/// The program guarantees that the memory stays valid until the operation has ended.
unsafe fn begin_scatter(
    node: &mut Node,
    group: &Group,
    root: u32,
    all: *const c_void,
    mine: *mut c_void,
    len: usize,
) -> Result<Request, Failure> {
    let total = len.saturating_mul(group.size() as usize);
    // SAFETY: guaranteed by the caller.
    let (all, mine) = unsafe {
        (
            memory::send_buffer(all, at_root(group, root, total))?,
            memory::receive_buffer(mine, len)?,
        )
    };
    Ok(group.iscatter(node, root, all, mine)?)
}

/// Distributes blocks like portolan_scatter(). Member `root` alone passes `all` and `lens`, the length
/// of each member's block in bytes; every member passes its own as `len`.
///
/// Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_scatterv(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    root: u32,
    all: *const c_void,
    lens: *const usize,
    mine: *mut c_void,
    len: usize,
) -> c_int {
    // SAFETY: guaranteed by the program.
    unsafe {
        complete(node, group, |node, group| {
            begin_scatterv(node, group, root, all, lens, mine, len)
        })
    }
}

/// Begins portolan_scatterv(), and returns at once; see portolan_ibarrier(). Until it has ended, the
/// memory for the result must not be used, and the other memory must not change.
///
/// Errors: those of portolan_scatterv().
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "an interface of C")]
pub unsafe extern "C" fn portolan_iscatterv(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    root: u32,
    all: *const c_void,
    lens: *const usize,
    mine: *mut c_void,
    len: usize,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |node: &mut Node, group: &Group| {
        // SAFETY: guaranteed by the program.
        unsafe { begin_scatterv(node, group, root, all, lens, mine, len) }
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
}

/// # Safety
/// The program guarantees that the memory stays valid until the operation has ended.
unsafe fn begin_scatterv(
    node: &mut Node,
    group: &Group,
    root: u32,
    all: *const c_void,
    lens: *const usize,
    mine: *mut c_void,
    len: usize,
) -> Result<Request, Failure> {
    // SAFETY: guaranteed by the caller.
    let (all, lens, mine) = unsafe {
        let lens = root_lens(group, root, lens)?;
        let all = memory::send_buffer(all, total(lens))?;
        (all, lens, memory::receive_buffer(mine, len)?)
    };
    Ok(group.iscatterv(node, root, all, lens, mine)?)
}

/// Sends each member its block of `len` bytes at `mine`, and receives the blocks of all members for
/// this one at `theirs`. All pass the same length.
///
/// Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_alltoall(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    mine: *const c_void,
    theirs: *mut c_void,
    len: usize,
) -> c_int {
    // SAFETY: guaranteed by the program.
    unsafe {
        complete(node, group, |node, group| {
            begin_alltoall(node, group, mine, theirs, len)
        })
    }
}

/// Begins portolan_alltoall(), and returns at once; see portolan_ibarrier(). Until it has ended, the
/// memory for the result must not be used, and the other memory must not change.
///
/// Errors: those of portolan_alltoall().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_ialltoall(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    mine: *const c_void,
    theirs: *mut c_void,
    len: usize,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |node: &mut Node, group: &Group| {
        // SAFETY: guaranteed by the program.
        unsafe { begin_alltoall(node, group, mine, theirs, len) }
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
}

/// # Safety
/// The program guarantees that the memory stays valid until the operation has ended.
unsafe fn begin_alltoall(
    node: &mut Node,
    group: &Group,
    mine: *const c_void,
    theirs: *mut c_void,
    len: usize,
) -> Result<Request, Failure> {
    let total = len.saturating_mul(group.size() as usize);
    // SAFETY: guaranteed by the caller.
    let (mine, theirs) = unsafe {
        (
            memory::send_buffer(mine, total)?,
            memory::receive_buffer(theirs, total)?,
        )
    };
    Ok(group.ialltoall(node, mine, theirs)?)
}

/// Exchanges blocks like portolan_alltoall(). `lens` has the length in bytes of the block for each
/// member, and `their_lens` that of the block from each member.
///
/// Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_alltoallv(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    mine: *const c_void,
    lens: *const usize,
    theirs: *mut c_void,
    their_lens: *const usize,
) -> c_int {
    // SAFETY: guaranteed by the program.
    unsafe {
        complete(node, group, |node, group| {
            begin_alltoallv(node, group, mine, lens, theirs, their_lens)
        })
    }
}

/// Begins portolan_alltoallv(), and returns at once; see portolan_ibarrier(). Until it has ended, the
/// memory for the result must not be used, and the other memory must not change.
///
/// Errors: those of portolan_alltoallv().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_ialltoallv(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    mine: *const c_void,
    lens: *const usize,
    theirs: *mut c_void,
    their_lens: *const usize,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |node: &mut Node, group: &Group| {
        // SAFETY: guaranteed by the program.
        unsafe { begin_alltoallv(node, group, mine, lens, theirs, their_lens) }
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
}

/// # Safety
/// The program guarantees that the memory stays valid until the operation has ended.
unsafe fn begin_alltoallv(
    node: &mut Node,
    group: &Group,
    mine: *const c_void,
    lens: *const usize,
    theirs: *mut c_void,
    their_lens: *const usize,
) -> Result<Request, Failure> {
    // SAFETY: guaranteed by the caller.
    let (lens, their_lens) = unsafe {
        (
            lens_of("lens", lens, group)?,
            lens_of("their_lens", their_lens, group)?,
        )
    };
    // SAFETY: as above.
    let (mine, theirs) = unsafe {
        (
            memory::send_buffer(mine, total(lens))?,
            memory::receive_buffer(theirs, total(their_lens))?,
        )
    };
    Ok(group.ialltoallv(node, mine, lens, theirs, their_lens)?)
}

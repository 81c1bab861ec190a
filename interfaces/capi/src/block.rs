// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collective operations that move blocks of data.

use crate::collective::{begin, complete, lens_of, root_lens, total};
use crate::group::portolan_group_t;
use crate::handle::portolan_node_t;
use crate::memory;
use crate::types::portolan_request_t;
use portolan::{Group, Node};
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
    let begin = |request| unsafe { portolan_iallgather(node, group, mine, len, all, request) };
    // SAFETY: as above.
    unsafe { complete(node, begin) }
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
        let total = len.saturating_mul(group.size() as usize);
        // SAFETY: guaranteed by the program.
        let (mine, all) = unsafe {
            (
                memory::send_buffer(mine, len)?,
                memory::receive_buffer(all, total)?,
            )
        };
        Ok(group.iallgather(node, mine, all)?)
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
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
    let begin = |request| unsafe { portolan_iallgatherv(node, group, mine, all, lens, request) };
    // SAFETY: as above.
    unsafe { complete(node, begin) }
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
        let (mine, all, lens) = unsafe {
            let lens = lens_of("lens", lens, group)?;
            let own_len = lens[group.rank() as usize];
            let mine = memory::send_buffer(mine, own_len)?;
            (mine, memory::receive_buffer(all, total(lens))?, lens)
        };
        Ok(group.iallgatherv(node, mine, all, lens)?)
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
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
    let begin = |request| unsafe { portolan_igather(node, group, root, mine, len, all, request) };
    // SAFETY: as above.
    unsafe { complete(node, begin) }
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
        let total = len.saturating_mul(group.size() as usize);
        // SAFETY: guaranteed by the program.
        let (mine, all) = unsafe {
            (
                memory::send_buffer(mine, len)?,
                memory::receive_buffer(all, at_root(group, root, total))?,
            )
        };
        Ok(group.igather(node, root, mine, all)?)
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
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
    let begin =
        |request| unsafe { portolan_igatherv(node, group, root, mine, len, all, lens, request) };
    // SAFETY: as above.
    unsafe { complete(node, begin) }
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
        let (mine, all, lens) = unsafe {
            let lens = root_lens(group, root, lens)?;
            let mine = memory::send_buffer(mine, len)?;
            (mine, memory::receive_buffer(all, total(lens))?, lens)
        };
        Ok(group.igatherv(node, root, mine, all, lens)?)
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
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
    let begin = |request| unsafe { portolan_iscatter(node, group, root, all, mine, len, request) };
    // SAFETY: as above.
    unsafe { complete(node, begin) }
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
        let total = len.saturating_mul(group.size() as usize);
        // SAFETY: guaranteed by the program.
        let (all, mine) = unsafe {
            (
                memory::send_buffer(all, at_root(group, root, total))?,
                memory::receive_buffer(mine, len)?,
            )
        };
        Ok(group.iscatter(node, root, all, mine)?)
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
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
    let begin =
        |request| unsafe { portolan_iscatterv(node, group, root, all, lens, mine, len, request) };
    // SAFETY: as above.
    unsafe { complete(node, begin) }
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
        let (all, lens, mine) = unsafe {
            let lens = root_lens(group, root, lens)?;
            let all = memory::send_buffer(all, total(lens))?;
            (all, lens, memory::receive_buffer(mine, len)?)
        };
        Ok(group.iscatterv(node, root, all, lens, mine)?)
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
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
    let begin = |request| unsafe { portolan_ialltoall(node, group, mine, theirs, len, request) };
    // SAFETY: as above.
    unsafe { complete(node, begin) }
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
        let total = len.saturating_mul(group.size() as usize);
        // SAFETY: guaranteed by the program.
        let (mine, theirs) = unsafe {
            (
                memory::send_buffer(mine, total)?,
                memory::receive_buffer(theirs, total)?,
            )
        };
        Ok(group.ialltoall(node, mine, theirs)?)
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
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
    let begin = |request| unsafe {
        portolan_ialltoallv(node, group, mine, lens, theirs, their_lens, request)
    };
    // SAFETY: as above.
    unsafe { complete(node, begin) }
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
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reductions that leave each member another result, and those by functions of the program.

use crate::collective::{begin, complete, lens_of, total};
use crate::failure::Failure;
use crate::group::{element_len_of, operator_of, portolan_group_t};
use crate::handle::portolan_node_t;
use crate::memory;
use crate::types::portolan_request_t;
use portolan::{Group, Node, Operator};
use std::ffi::{c_int, c_void};

/// Combines `count` elements of lower members with those of upper members, which it replaces by the
/// results. `user` is the argument that was passed with the function.
pub type portolan_combine_t = Option<
    unsafe extern "C" fn(lower: *const c_void, upper: *mut c_void, count: usize, user: *mut c_void),
>;

/// The program's argument of a function.
struct Argument(*mut c_void);

// SAFETY: the program guarantees that its function may use the argument in the calls that run it.
unsafe impl Send for Argument {}

impl Argument {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

/// Returns the operator of a program's function.
fn function_of(
    function: portolan_combine_t,
    user: *mut c_void,
    element_len: usize,
) -> Result<Operator, Failure> {
    let function = function.ok_or_else(|| Failure::null("function"))?;
    let argument = Argument(user);
    let element_len = element_len.max(1);
    Ok(Operator::of_bytes(element_len, move |lower, upper| {
        let count = upper.len() / element_len;
        let (lower, upper) = (lower.as_ptr().cast(), upper.as_mut_ptr().cast());
        // SAFETY: the program guarantees that its function accepts `count` elements.
        unsafe { function(lower, upper, count, argument.get()) };
    }))
}

/// Combines the values of all members like portolan_allreduce(), and stores an equal part of the
/// result, `count` values, in `own` of each member. The values at `values` are not changed.
///
/// Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_reduce_scatter(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    operation: c_int,
    r#type: c_int,
    values: *const c_void,
    own: *mut c_void,
    count: usize,
) -> c_int {
    // SAFETY: guaranteed by the program.
    let begin = |request| unsafe {
        portolan_ireduce_scatter(node, group, operation, r#type, values, own, count, request)
    };
    // SAFETY: as above.
    unsafe { complete(node, begin) }
}

/// Begins portolan_reduce_scatter(), and returns at once; see portolan_ibarrier(). Until it has ended, the
/// memory for the result must not be used, and the other memory must not change.
///
/// Errors: those of portolan_reduce_scatter().
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "an interface of C")]
pub unsafe extern "C" fn portolan_ireduce_scatter(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    operation: c_int,
    r#type: c_int,
    values: *const c_void,
    own: *mut c_void,
    count: usize,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |node: &mut Node, group: &Group| {
        let operator = operator_of(operation, r#type)?;
        let len = count.saturating_mul(element_len_of(r#type)?);
        let total = len.saturating_mul(group.size() as usize);
        // SAFETY: guaranteed by the program.
        let (values, own) = unsafe {
            (
                memory::send_buffer(values, total)?,
                memory::receive_buffer(own, len)?,
            )
        };
        Ok(group.ireduce_scatter(node, operator, values, own)?)
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
}

/// Combines values like portolan_reduce_scatter(), and gives each member as many as `counts` has for
/// it. All pass the same counts.
///
/// Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_reduce_scatterv(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    operation: c_int,
    r#type: c_int,
    values: *const c_void,
    own: *mut c_void,
    counts: *const usize,
) -> c_int {
    // SAFETY: guaranteed by the program.
    let begin = |request| unsafe {
        portolan_ireduce_scatterv(node, group, operation, r#type, values, own, counts, request)
    };
    // SAFETY: as above.
    unsafe { complete(node, begin) }
}

/// Begins portolan_reduce_scatterv(), and returns at once; see portolan_ibarrier(). Until it has ended, the
/// memory for the result must not be used, and the other memory must not change.
///
/// Errors: those of portolan_reduce_scatterv().
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "an interface of C")]
pub unsafe extern "C" fn portolan_ireduce_scatterv(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    operation: c_int,
    r#type: c_int,
    values: *const c_void,
    own: *mut c_void,
    counts: *const usize,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |node: &mut Node, group: &Group| {
        let operator = operator_of(operation, r#type)?;
        let element_len = element_len_of(r#type)?;
        // SAFETY: guaranteed by the program.
        let counts = unsafe { lens_of("counts", counts, group)? };
        let bytes = |count: &usize| count.saturating_mul(element_len);
        let lens: Vec<usize> = counts.iter().map(bytes).collect();
        let own_len = lens[group.rank() as usize];
        // SAFETY: guaranteed by the program.
        let (values, own) = unsafe {
            (
                memory::send_buffer(values, total(&lens))?,
                memory::receive_buffer(own, own_len)?,
            )
        };
        Ok(group.ireduce_scatterv(node, operator, values, own, &lens)?)
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
}

/// Combines `count` values of this member and of all before it, element by element, in place.
///
/// Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_scan(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    operation: c_int,
    r#type: c_int,
    values: *mut c_void,
    count: usize,
) -> c_int {
    // SAFETY: guaranteed by the program.
    let begin =
        |request| unsafe { portolan_iscan(node, group, operation, r#type, values, count, request) };
    // SAFETY: as above.
    unsafe { complete(node, begin) }
}

/// Begins portolan_scan(), and returns at once; see portolan_ibarrier(). Until it has ended, the
/// memory for the result must not be used, and the other memory must not change.
///
/// Errors: those of portolan_scan().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_iscan(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    operation: c_int,
    r#type: c_int,
    values: *mut c_void,
    count: usize,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |node: &mut Node, group: &Group| {
        let operator = operator_of(operation, r#type)?;
        let len = count.saturating_mul(element_len_of(r#type)?);
        // SAFETY: guaranteed by the program.
        let values = unsafe { memory::receive_buffer(values, len)? };
        Ok(group.iscan(node, operator, values)?)
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
}

/// Combines `count` values of all members before this one, element by element, in place. Member 0 keeps
/// its values.
///
/// Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_exscan(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    operation: c_int,
    r#type: c_int,
    values: *mut c_void,
    count: usize,
) -> c_int {
    let begin = |request| {
        // SAFETY: guaranteed by the program.
        unsafe { portolan_iexscan(node, group, operation, r#type, values, count, request) }
    };
    // SAFETY: as above.
    unsafe { complete(node, begin) }
}

/// Begins portolan_exscan(), and returns at once; see portolan_ibarrier(). Until it has ended, the
/// memory for the result must not be used, and the other memory must not change.
///
/// Errors: those of portolan_exscan().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_iexscan(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    operation: c_int,
    r#type: c_int,
    values: *mut c_void,
    count: usize,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |node: &mut Node, group: &Group| {
        let operator = operator_of(operation, r#type)?;
        let len = count.saturating_mul(element_len_of(r#type)?);
        // SAFETY: guaranteed by the program.
        let values = unsafe { memory::receive_buffer(values, len)? };
        Ok(group.iexscan(node, operator, values)?)
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
}

/// Combines `count` elements of `element_len` bytes of all members like portolan_allreduce(), by a
/// function of the program, in the order of the members. The function must be associative.
///
/// Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_allreduce_by(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    function: portolan_combine_t,
    user: *mut c_void,
    element_len: usize,
    values: *mut c_void,
    count: usize,
) -> c_int {
    // SAFETY: guaranteed by the program.
    let begin = |request| unsafe {
        portolan_iallreduce_by(
            node,
            group,
            function,
            user,
            element_len,
            values,
            count,
            request,
        )
    };
    // SAFETY: as above.
    unsafe { complete(node, begin) }
}

/// Begins portolan_allreduce_by(), and returns at once; see portolan_ibarrier(). Until it has ended, the
/// memory for the result must not be used, and the other memory must not change.
///
/// Errors: those of portolan_allreduce_by().
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "an interface of C")]
pub unsafe extern "C" fn portolan_iallreduce_by(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    function: portolan_combine_t,
    user: *mut c_void,
    element_len: usize,
    values: *mut c_void,
    count: usize,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |node: &mut Node, group: &Group| {
        let operator = function_of(function, user, element_len)?;
        let len = count.saturating_mul(element_len);
        // SAFETY: guaranteed by the program.
        let values = unsafe { memory::receive_buffer(values, len)? };
        Ok(group.iallreduce_by(node, operator, values)?)
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
}

/// Combines elements like portolan_allreduce_by(), for member `root` only.
///
/// Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "an interface of C")]
pub unsafe extern "C" fn portolan_reduce_by(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    root: u32,
    function: portolan_combine_t,
    user: *mut c_void,
    element_len: usize,
    values: *mut c_void,
    count: usize,
) -> c_int {
    // SAFETY: guaranteed by the program.
    let begin = |request| unsafe {
        portolan_ireduce_by(
            node,
            group,
            root,
            function,
            user,
            element_len,
            values,
            count,
            request,
        )
    };
    // SAFETY: as above.
    unsafe { complete(node, begin) }
}

/// Begins portolan_reduce_by(), and returns at once; see portolan_ibarrier(). Until it has ended, the
/// memory for the result must not be used, and the other memory must not change.
///
/// Errors: those of portolan_reduce_by().
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "an interface of C")]
pub unsafe extern "C" fn portolan_ireduce_by(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    root: u32,
    function: portolan_combine_t,
    user: *mut c_void,
    element_len: usize,
    values: *mut c_void,
    count: usize,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |node: &mut Node, group: &Group| {
        let operator = function_of(function, user, element_len)?;
        let len = count.saturating_mul(element_len);
        // SAFETY: guaranteed by the program.
        let values = unsafe { memory::receive_buffer(values, len)? };
        Ok(group.ireduce_by(node, root, operator, values)?)
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
}

/// Combines elements like portolan_allreduce_by(), and stores an equal part of the result, `count`
/// elements, in `own` of each member. Those at `values` are not changed.
///
/// Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "an interface of C")]
pub unsafe extern "C" fn portolan_reduce_scatter_by(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    function: portolan_combine_t,
    user: *mut c_void,
    element_len: usize,
    values: *const c_void,
    own: *mut c_void,
    count: usize,
) -> c_int {
    // SAFETY: guaranteed by the program.
    let begin = |request| unsafe {
        portolan_ireduce_scatter_by(
            node,
            group,
            function,
            user,
            element_len,
            values,
            own,
            count,
            request,
        )
    };
    // SAFETY: as above.
    unsafe { complete(node, begin) }
}

/// Begins portolan_reduce_scatter_by(), and returns at once; see portolan_ibarrier(). Until it has ended, the
/// memory for the result must not be used, and the other memory must not change.
///
/// Errors: those of portolan_reduce_scatter_by().
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "an interface of C")]
pub unsafe extern "C" fn portolan_ireduce_scatter_by(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    function: portolan_combine_t,
    user: *mut c_void,
    element_len: usize,
    values: *const c_void,
    own: *mut c_void,
    count: usize,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |node: &mut Node, group: &Group| {
        let operator = function_of(function, user, element_len)?;
        let len = count.saturating_mul(element_len);
        let total = len.saturating_mul(group.size() as usize);
        // SAFETY: guaranteed by the program.
        let (values, own) = unsafe {
            (
                memory::send_buffer(values, total)?,
                memory::receive_buffer(own, len)?,
            )
        };
        Ok(group.ireduce_scatter(node, operator, values, own)?)
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
}

/// Combines elements of this member and of all before it, by a function like
/// portolan_allreduce_by(), in place.
///
/// Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_scan_by(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    function: portolan_combine_t,
    user: *mut c_void,
    element_len: usize,
    values: *mut c_void,
    count: usize,
) -> c_int {
    // SAFETY: guaranteed by the program.
    let begin = |request| unsafe {
        portolan_iscan_by(
            node,
            group,
            function,
            user,
            element_len,
            values,
            count,
            request,
        )
    };
    // SAFETY: as above.
    unsafe { complete(node, begin) }
}

/// Begins portolan_scan_by(), and returns at once; see portolan_ibarrier(). Until it has ended, the
/// memory for the result must not be used, and the other memory must not change.
///
/// Errors: those of portolan_scan_by().
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "an interface of C")]
pub unsafe extern "C" fn portolan_iscan_by(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    function: portolan_combine_t,
    user: *mut c_void,
    element_len: usize,
    values: *mut c_void,
    count: usize,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |node: &mut Node, group: &Group| {
        let operator = function_of(function, user, element_len)?;
        let len = count.saturating_mul(element_len);
        // SAFETY: guaranteed by the program.
        let values = unsafe { memory::receive_buffer(values, len)? };
        Ok(group.iscan(node, operator, values)?)
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
}

/// Combines elements of all members before this one, by a function like portolan_allreduce_by(), in
/// place. Member 0 keeps its elements.
///
/// Errors: those of portolan_barrier(), PORTOLAN_ERR_SETTING when lengths do not fit each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_exscan_by(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    function: portolan_combine_t,
    user: *mut c_void,
    element_len: usize,
    values: *mut c_void,
    count: usize,
) -> c_int {
    let begin = |request| {
        // SAFETY: guaranteed by the program.
        unsafe {
            portolan_iexscan_by(
                node,
                group,
                function,
                user,
                element_len,
                values,
                count,
                request,
            )
        }
    };
    // SAFETY: as above.
    unsafe { complete(node, begin) }
}

/// Begins portolan_exscan_by(), and returns at once; see portolan_ibarrier(). Until it has ended, the
/// memory for the result must not be used, and the other memory must not change.
///
/// Errors: those of portolan_exscan_by().
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "an interface of C")]
pub unsafe extern "C" fn portolan_iexscan_by(
    node: *mut portolan_node_t,
    group: *const portolan_group_t,
    function: portolan_combine_t,
    user: *mut c_void,
    element_len: usize,
    values: *mut c_void,
    count: usize,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |node: &mut Node, group: &Group| {
        let operator = function_of(function, user, element_len)?;
        let len = count.saturating_mul(element_len);
        // SAFETY: guaranteed by the program.
        let values = unsafe { memory::receive_buffer(values, len)? };
        Ok(group.iexscan(node, operator, values)?)
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, group, request, operation) }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of operations.

use super::*;

#[test]
fn finished_request_is_stale() {
    let mut ops = Ops::default();
    let kind = OpKind::Send(PeerId(1));
    let id = ops.owned(kind, Buffer::from(vec![1, 2]));
    assert!(ops.finish(id).is_none());
    ops.complete_ok(id, Received { len: 2, source: 1 }, None);
    assert!(ops.is_done(id));
    let done = ops.finish(id).unwrap().unwrap();
    assert_eq!(done.buffer.unwrap().into_vec(), [1, 2]);
    let again = ops.owned(kind, Buffer::from(vec![]));
    assert_ne!(id, again);
    assert!(!ops.exists(id));
    assert_eq!(ops.bytes(id), &[] as &[u8]);
}

#[test]
fn failed_operation_is_done() {
    let mut ops = Ops::default();
    let id = ops.owned(OpKind::Send(PeerId(1)), Buffer::from(vec![]));
    assert!(!ops.is_done(id));
    ops.fail(id, Error::Cancelled);
    assert!(ops.is_done(id));
    let failed = ops.finish(id).unwrap().unwrap_err();
    let (error, completion) = failed.into_parts();
    assert!(matches!(error, Error::Cancelled));
    assert_eq!((completion.source, completion.len), (1, 0));
    assert_eq!(completion.buffer.unwrap().into_vec(), Vec::<u8>::new());
}

#[test]
fn detached_memory_is_not_accessed() {
    let mut ops = Ops::default();
    let mut bytes = [7; 4];
    let kind = OpKind::Recv {
        port: PortId::user(1),
        source: None,
    };
    // SAFETY: detached before `bytes` is used again.
    let id = unsafe { ops.borrowed_mut(kind, &mut bytes) };
    ops.bytes_mut(id)[0] = 8;
    ops.detach(id);
    ops.bytes_mut(id)[1] = 9;
    assert_eq!(bytes, [8, 7, 7, 7]);
}

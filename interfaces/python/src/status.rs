// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of operations.

use portolan::{Completion, Envelope, Received};
use pyo3::prelude::*;

/// Length and sender of a message, or the result of another operation.
#[pyclass(frozen, get_all, module = "portolan")]
#[derive(Clone, Debug)]
pub(crate) struct Status {
    /// Bytes of the message.
    len: usize,
    /// Rank of the sender; for a send, rank of the receiver.
    source: u32,
    /// Tag of a tagged message; otherwise 0.
    tag: u64,
    /// Immediate data of the message. For a call, the status of its reply.
    imm: Option<u64>,
    /// Bytes of the reply to a call.
    data: Option<Vec<u8>>,
}

#[pymethods]
impl Status {
    fn __repr__(&self) -> String {
        let Status {
            len, source, tag, ..
        } = self;
        format!("Status(len={len}, source={source}, tag={tag})")
    }
}

impl Status {
    /// Takes the bytes of the reply from the completion of a call.
    pub(crate) fn of_call(done: Completion) -> Status {
        let mut status = Status::from(&done);
        status.data = done.buffer.map(portolan::Buffer::into_vec);
        status
    }
}

impl From<&Completion> for Status {
    fn from(done: &Completion) -> Status {
        Status {
            len: done.len,
            source: done.source,
            tag: done.tag,
            imm: done.imm,
            data: None,
        }
    }
}

impl From<Received> for Status {
    fn from(received: Received) -> Status {
        Status {
            len: received.len,
            source: received.source,
            tag: 0,
            imm: None,
            data: None,
        }
    }
}

impl From<Envelope> for Status {
    fn from(envelope: Envelope) -> Status {
        Status {
            len: envelope.len,
            source: envelope.source,
            tag: envelope.tag,
            imm: envelope.imm,
            data: None,
        }
    }
}

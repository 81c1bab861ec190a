// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages and completions of one turn of the endpoint, until the component's hooks receive them.
//!
//! The messages lie in one buffer, which is reused, so the steady state does not allocate.

use portolan::binding::{ActiveMessage, RawCompletion};

/// Alignment of each message: that of the widest field of a header.
const ALIGN: usize = 16;

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Mailbox {
    bytes: Vec<u8>,
    messages: Vec<MessageRange>,
    done: Vec<RawCompletion>,
}

/// Position of a message in the buffer.
struct MessageRange {
    tag: u8,
    off: usize,
    len: usize,
}

// SAFETY: the pointers in completions are null or belong to the component; this crate never dereferences them.
#[allow(unsafe_code, reason = "completions carry pointers")]
unsafe impl Send for Mailbox {}

impl Mailbox {
    /// Stores a copy of `message`.
    #[inline]
    pub(crate) fn push_message(&mut self, message: ActiveMessage<'_>) {
        let off = self.bytes.len().next_multiple_of(ALIGN);
        self.bytes.resize(off, 0);
        self.bytes.extend_from_slice(message.bytes);
        self.messages.push(MessageRange {
            tag: message.tag,
            off,
            len: message.bytes.len(),
        });
    }

    /// Stores a completion.
    #[inline]
    pub(crate) fn push_completion(&mut self, done: RawCompletion) {
        self.done.push(done);
    }

    /// Returns true if there is neither a message nor a completion.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.done.is_empty()
    }

    /// Calls the hooks with all messages and completions. Returns their count.
    pub(crate) fn drain(
        &mut self,
        mut on_message: impl FnMut(u8, &[u8]),
        mut on_done: impl FnMut(&RawCompletion),
    ) -> usize {
        let count = self.messages.len() + self.done.len();
        for range in self.messages.drain(..) {
            on_message(range.tag, &self.bytes[range.off..range.off + range.len]);
        }
        self.bytes.clear();
        for done in self.done.drain(..) {
            on_done(&done);
        }
        count
    }
}

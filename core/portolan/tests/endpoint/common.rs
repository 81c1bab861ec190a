// SPDX-License-Identifier: MIT OR Apache-2.0
//! Endpoints of one process, which are polled in turn.

use portolan::binding::{
    Cookie, Endpoint, PeerIndex, RawCompletion, RawPiece, RawRecv, RawSend, RawSpace, Sent,
};
use portolan::{EndpointConfig, PathChoice};
use std::time::{Duration, Instant};

/// Longer than anything here takes on a loaded machine; reached only by a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Opens an endpoint that uses UDP on loopback.
pub(crate) fn udp() -> Endpoint {
    let mut config = EndpointConfig::default();
    config.path = PathChoice::Udp;
    config.interface = Some("lo".to_owned());
    Endpoint::open(&config).unwrap()
}

/// Opens an endpoint that shares memory with other endpoints of this host.
pub(crate) fn shm() -> Endpoint {
    let mut config = EndpointConfig::default();
    config.interface = Some("lo".to_owned());
    Endpoint::open(&config).unwrap()
}

pub(crate) const PLAIN: RawSend = RawSend {
    space: RawSpace::Plain,
    imm: None,
    delivered: false,
};

pub(crate) const ANY: RawRecv = RawRecv {
    space: RawSpace::Plain,
    ignore: 0,
    source: None,
};

pub(crate) fn from(peer: PeerIndex) -> RawRecv {
    RawRecv {
        source: Some(peer),
        ..ANY
    }
}

/// An endpoint and its completions.
pub(crate) struct Side {
    pub(crate) end: Endpoint,
    pub(crate) done: Vec<RawCompletion>,
    /// Sends that were complete when the call returned.
    pub(crate) sent: Vec<u64>,
}

impl Side {
    pub(crate) fn new(end: Endpoint) -> Side {
        let (done, sent) = (Vec::new(), Vec::new());
        Side { end, done, sent }
    }

    pub(crate) fn poll(&mut self) {
        let Side { end, done, .. } = self;
        end.poll(&mut |completion| done.push(completion));
    }

    /// Sends `bytes`, which must stay valid until the send completes.
    pub(crate) fn send(&mut self, to: PeerIndex, spec: &RawSend, bytes: &[u8], context: u64) {
        let piece = RawPiece {
            ptr: bytes.as_ptr().cast_mut(),
            len: bytes.len(),
        };
        // SAFETY: tests keep their buffers until the completion.
        let sent = unsafe { self.end.send(to, spec, &[piece], Cookie::new(context)) }.unwrap();
        if sent == Sent::Done {
            self.sent.push(context);
        }
    }

    pub(crate) fn recv(&mut self, spec: &RawRecv, bytes: &mut [u8], context: u64) {
        // SAFETY: tests keep their buffers until the completion.
        unsafe { self.end.recv(spec, &[piece(bytes)], Cookie::new(context)) }.unwrap();
    }

    /// Returns `Some` once when the send of `context` has completed without an error.
    pub(crate) fn take_sent(&mut self, context: u64) -> Option<()> {
        if let Some(index) = self.sent.iter().position(|&sent| sent == context) {
            self.sent.remove(index);
            return Some(());
        }
        let done = self.take(context)?;
        assert_eq!(done.error, None);
        Some(())
    }

    /// Takes the completion of `context`, if it has arrived.
    pub(crate) fn take(&mut self, context: u64) -> Option<RawCompletion> {
        let index = self
            .done
            .iter()
            .position(|done| done.cookie.context == context)?;
        Some(self.done.remove(index))
    }
}

pub(crate) fn piece(bytes: &mut [u8]) -> RawPiece {
    RawPiece {
        ptr: bytes.as_mut_ptr(),
        len: bytes.len(),
    }
}

/// Polls all sides in turn until `done` returns a value.
pub(crate) fn pump<T>(
    sides: &mut [&mut Side],
    mut done: impl FnMut(&mut [&mut Side]) -> Option<T>,
) -> T {
    let begin = Instant::now();
    loop {
        for side in sides.iter_mut() {
            side.poll();
        }
        if let Some(found) = done(sides) {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "it does not end");
    }
}

pub(crate) fn bytes(len: usize, seed: u8) -> Vec<u8> {
    let byte = |index: usize| (index as u8).wrapping_mul(31).wrapping_add(seed);
    (0..len).map(byte).collect()
}

pub(crate) fn to_tag(tag: u64) -> RawSend {
    RawSend {
        space: RawSpace::Tagged(tag),
        ..PLAIN
    }
}

pub(crate) fn tagged(tag: u64) -> RawRecv {
    RawRecv {
        space: RawSpace::Tagged(tag),
        ..ANY
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> [u8; 64] {
    let mut bytes = [0; 64];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[index * 2..][..2], 16).unwrap();
    }
    bytes
}

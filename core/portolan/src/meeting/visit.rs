// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of one connection between two standalone processes, without its socket (`P18`).
//!
//! Bytes go in by [`Visit::on_bytes`]; bytes to send are taken by [`Visit::take_output`]. The one
//! invariant: the directory changes only after the other side has proved the secret.

use super::keys::{Keys, Offer};
use super::record::{
    Body, HELLO_LEN, Kind, RECORD_LEN, Record, Refusal, SEALED_LEN, hello, parse_hello,
};
use crate::directory::{Directory, EndpointAddress};
use portolan_proto::PeerId;
use std::sync::Arc;

/// Secret of a program, the same in all processes that connect to each other.
pub(super) type Secret = Arc<[u8]>;

/// Facts about this process for its connections.
pub(super) struct Host<'a> {
    pub(super) directory: &'a Directory,
    /// Code of the setting `auth`.
    pub(super) auth: u8,
    /// Addresses to which this process has begun a relation that is not welcome yet.
    pub(super) beginning: &'a [EndpointAddress],
    /// Number for a relation that begins now.
    pub(super) relation: u64,
}

/// Result of bytes that arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing to do; the exchange continues.
    More,
    /// The two processes are peers now. The relation with `replaced` has ended.
    Joined {
        peer: PeerId,
        replaced: Option<PeerId>,
    },
    /// The two processes were peers already, or are one process. The connection is superfluous.
    Known(PeerId),
    /// The other side has ended the relation in order.
    Left,
    /// The exchange has failed.
    Refused(Refusal),
}

enum Stage {
    /// The other side's hello is awaited.
    Hello(Box<Offer>),
    Introduce(Box<Keys>),
    /// Keys, address, and the number of the relation that was sent to the client.
    Begin(Box<Keys>, EndpointAddress, u64),
    Welcome(Box<Keys>, EndpointAddress, PeerId),
    Joined(Box<Farewells>),
    Over,
}

/// Last records of both directions.
struct Farewells {
    own: [u8; SEALED_LEN],
    theirs: [u8; SEALED_LEN],
}

/// See the module documentation.
pub(super) struct Visit {
    is_client: bool,
    secret: Secret,
    own_hello: [u8; HELLO_LEN],
    stage: Stage,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Visit {
    /// Creates the state of a connection; `None` if the system has no randomness.
    pub(super) fn new(is_client: bool, secret: Secret) -> Option<Visit> {
        let offer = Offer::new()?;
        let own_hello = hello(offer.public());
        Some(Visit {
            is_client,
            secret,
            own_hello,
            stage: Stage::Hello(Box::new(offer)),
            input: Vec::new(),
            output: if is_client {
                own_hello.to_vec()
            } else {
                Vec::new()
            },
        })
    }

    /// Returns the address to which this process has begun a relation that is not welcome yet.
    pub(super) fn beginning(&self) -> Option<EndpointAddress> {
        match &self.stage {
            Stage::Welcome(_, address, _) => Some(*address),
            _ => None,
        }
    }

    /// Returns the peer to which this process has begun a relation that is not welcome yet.
    pub(super) fn expected(&self) -> Option<PeerId> {
        match &self.stage {
            Stage::Welcome(_, _, peer) => Some(*peer),
            _ => None,
        }
    }

    /// Returns the bytes to send.
    pub(super) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Writes the farewell of a relation.
    pub(super) fn bid_farewell(&mut self) {
        if let Stage::Joined(farewells) = std::mem::replace(&mut self.stage, Stage::Over) {
            self.output
                .extend_from_slice(&Record::sealed(&farewells.own));
        }
    }

    /// Handles `bytes` up to the first result other than [`Step::More`].
    pub(super) fn on_bytes(&mut self, bytes: &[u8], host: &Host<'_>) -> Step {
        self.input.extend_from_slice(bytes);
        loop {
            let step = match self.stage {
                Stage::Hello(_) => match take(&mut self.input) {
                    Some(hello) => self.on_hello(&hello, host),
                    None => return Step::More,
                },
                Stage::Over => Ok(Step::Refused(Refusal::Malformed)),
                _ => match take(&mut self.input) {
                    Some(record) => self.on_record(&record, host),
                    None => return Step::More,
                },
            };
            match step {
                Ok(Step::More) => {}
                Ok(step) => return step,
                Err(refusal) => return self.refuse(refusal),
            }
        }
    }

    fn refuse(&mut self, refusal: Refusal) -> Step {
        // The caller gives up an expected peer.
        if self.expected().is_none() {
            self.stage = Stage::Over;
        }
        // Another program is not answered.
        if !self.is_client && refusal != Refusal::Malformed {
            self.output.extend_from_slice(&Record::refusal(refusal));
        }
        Step::Refused(refusal)
    }

    fn on_hello(&mut self, theirs: &[u8; HELLO_LEN], host: &Host<'_>) -> Result<Step, Refusal> {
        let public = parse_hello(theirs);
        if !self.is_client && public != Err(Refusal::Malformed) {
            // A client of another version reads the version of this process in it.
            self.output.extend_from_slice(&self.own_hello);
        }
        let Stage::Hello(offer) = std::mem::replace(&mut self.stage, Stage::Over) else {
            return Err(Refusal::Malformed);
        };
        let hellos = match self.is_client {
            true => [&self.own_hello, theirs],
            false => [theirs, &self.own_hello],
        };
        let keys = offer.agree(self.is_client, &public?, &self.secret, hellos);
        let mut keys = Box::new(keys.ok_or(Refusal::Malformed)?);
        if self.is_client {
            self.introduce(&mut keys, host, 0);
        }
        self.stage = Stage::Introduce(keys);
        Ok(Step::More)
    }

    fn introduce(&mut self, keys: &mut Keys, host: &Host<'_>, relation: u64) {
        let body = Body {
            auth: host.auth,
            relation,
            address: *host.directory.own().as_bytes(),
            ..Body::plain(Kind::Introduce)
        };
        self.write(keys, &body);
    }

    fn write(&mut self, keys: &mut Keys, body: &Body) {
        if let Some(sealed) = keys.seal(&body.encode()) {
            self.output.extend_from_slice(&Record::sealed(&sealed));
        }
    }

    fn on_record(&mut self, bytes: &[u8; RECORD_LEN], host: &Host<'_>) -> Result<Step, Refusal> {
        let sealed = match Record::parse(bytes)? {
            Record::Sealed(sealed) => sealed,
            Record::Refused(refusal) if self.is_client => return Err(refusal),
            Record::Refused(_) => return Err(Refusal::Malformed),
        };
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Introduce(mut keys) => {
                let body = open(&mut keys, &sealed, Kind::Introduce)?;
                self.on_introduction(keys, &body, host)
            }
            Stage::Begin(mut keys, address, told) => {
                let body = open(&mut keys, &sealed, Kind::Begin)?;
                let now = host.directory.relation_with(&address);
                if now.map_or(0, |(_, relation)| relation) != told {
                    // The client has decided by what is no longer true.
                    return Err(Refusal::Busy);
                }
                self.on_begin(keys, &address, body.relation, host)
            }
            Stage::Welcome(mut keys, address, peer) => {
                if let Err(refusal) = open(&mut keys, &sealed, Kind::Welcome) {
                    self.stage = Stage::Welcome(keys, address, peer);
                    return Err(refusal);
                }
                // The relation that the server has replaced or no longer has.
                let replaced = host.directory.relation_with(&address).map(|(old, _)| old);
                self.join(keys, peer, replaced, host)
            }
            Stage::Joined(farewells) => match is_equal(&farewells.theirs, &sealed) {
                true => Ok(Step::Left),
                false => Err(Refusal::Malformed),
            },
            Stage::Hello(_) | Stage::Over => Err(Refusal::Malformed),
        }
    }

    /// Handles the address of the other side, which has thereby proved the secret.
    fn on_introduction(
        &mut self,
        mut keys: Box<Keys>,
        body: &Body,
        host: &Host<'_>,
    ) -> Result<Step, Refusal> {
        let address = EndpointAddress::from_bytes(&body.address);
        let address = address.map_err(|_| Refusal::OtherVersion)?;
        if body.auth != host.auth {
            return Err(Refusal::OtherAuth);
        }
        let known = host.directory.relation_with(&address);
        if !self.is_client {
            let relation = known.map_or(0, |(_, relation)| relation);
            self.introduce(&mut keys, host, relation);
            self.stage = Stage::Begin(keys, address, relation);
            return Ok(Step::More);
        }
        if address == host.directory.own() {
            return Ok(Step::Known(PeerId(0)));
        }
        if let Some((peer, relation)) = known {
            // Otherwise one side does not know yet that a relation has begun or ended.
            return match relation == body.relation {
                true => Ok(Step::Known(peer)),
                false => Err(Refusal::Busy),
            };
        }
        let begin = Body {
            relation: host.relation,
            ..Body::plain(Kind::Begin)
        };
        // From now on the server may send.
        let expected = (host.directory).expect(&address, host.relation, keys.pair());
        let peer = expected.ok_or(Refusal::Full)?;
        self.write(&mut keys, &begin);
        self.stage = Stage::Welcome(keys, address, peer);
        Ok(Step::More)
    }

    /// Handles the wish of a client to begin a relation. If both sides have it at once, that of the
    /// process with the lower address is refused, and finds the other relation when it tries again.
    fn on_begin(
        &mut self,
        mut keys: Box<Keys>,
        address: &EndpointAddress,
        relation: u64,
        host: &Host<'_>,
    ) -> Result<Step, Refusal> {
        let own = host.directory.own();
        if relation == 0 || *address == own {
            return Err(Refusal::Malformed);
        }
        if host.beginning.contains(address) && *address < own {
            return Err(Refusal::Busy);
        }
        let replaced = host.directory.relation_with(address).map(|(old, _)| old);
        let expected = host.directory.expect(address, relation, keys.pair());
        let peer = expected.ok_or(Refusal::Full)?;
        self.write(&mut keys, &Body::plain(Kind::Welcome));
        self.join(keys, peer, replaced, host)
    }

    fn join(
        &mut self,
        keys: Box<Keys>,
        peer: PeerId,
        replaced: Option<PeerId>,
        host: &Host<'_>,
    ) -> Result<Step, Refusal> {
        if let Some(old) = replaced {
            host.directory.close(old);
        }
        host.directory.meet(peer);
        let farewells = keys.last(&Body::plain(Kind::Bye).encode());
        let [own, theirs] = farewells.ok_or(Refusal::Malformed)?;
        self.stage = Stage::Joined(Box::new(Farewells { own, theirs }));
        // An idle relation keeps only the memory it needs.
        self.input.shrink_to_fit();
        Ok(Step::Joined { peer, replaced })
    }
}

/// Compares in constant time.
fn is_equal(a: &[u8; SEALED_LEN], b: &[u8; SEALED_LEN]) -> bool {
    blake3::hash(a) == blake3::hash(b)
}

fn open(keys: &mut Keys, sealed: &[u8; SEALED_LEN], expected: Kind) -> Result<Body, Refusal> {
    let bytes = keys.open(sealed).ok_or(Refusal::WrongSecret)?;
    let body = Body::parse(&bytes)?;
    match body.kind == expected {
        true => Ok(body),
        false => Err(Refusal::Malformed),
    }
}

/// Takes the first `LEN` bytes of `input`, if it has them.
fn take<const LEN: usize>(input: &mut Vec<u8>) -> Option<[u8; LEN]> {
    let bytes = *input.first_chunk()?;
    input.drain(..LEN);
    Some(bytes)
}

#[cfg(test)]
mod tests;

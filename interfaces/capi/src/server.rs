// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers and clients without a launcher.

use crate::code::*;
use crate::failure::{Failure, guard, timeout};
use crate::handle::{enter, portolan_node_t};
use crate::memory::{self, Out};
use crate::node::text;
use crate::types::portolan_peer_t;
use portolan::{Node, Peer};
use std::ffi::{c_char, c_int, c_void};
use std::ptr;

/// Creates a process without a launcher, which finds its peers with portolan_listen() and
/// portolan_connect(). It is rank 0 of a job of its own, and each peer gets another rank. The node
/// belongs to the calling thread. On failure, `*node` becomes null.
///
/// Errors: PORTOLAN_ERR_LINK, PORTOLAN_ERR_SETTING, PORTOLAN_ERR_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_standalone(node: *mut *mut portolan_node_t) -> c_int {
    guard(|| {
        if node.is_null() {
            return Err(Failure::null("node"));
        }
        // SAFETY: not null; the program guarantees that it points to a pointer.
        unsafe { node.write(ptr::null_mut()) };
        let made = portolan_node_t::make(Node::standalone()?);
        // SAFETY: as above.
        unsafe { node.write(ptr::from_ref(made).cast_mut()) };
        Ok(PORTOLAN_OK)
    })
}

/// Listens for peers at `address`, "HOST:PORT", from now on. Returns the port, which the system
/// chooses if PORT is 0. Peers can connect while the program computes. They must have the same
/// secret, `secret_len` bytes that never leave this process and should be random. The function may
/// be called several times.
///
/// Errors: PORTOLAN_ERR_ADDRESS; PORTOLAN_ERR_SETTING without a secret; PORTOLAN_ERR_ARGUMENT in a
/// job.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_listen(
    node: *mut portolan_node_t,
    address: *const c_char,
    secret: *const c_void,
    secret_len: usize,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, address) = unsafe { (enter(node)?, text("address", address)?) };
        // SAFETY: guaranteed by the program.
        let secret = unsafe { memory::bytes("secret", secret, secret_len)? };
        let bound = entered.node()?.listen(&address, secret)?;
        Ok(c_int::from(bound.port()))
    })
}

/// Connects to the process that listens at `address`, "HOST:PORT", with the same secret. Waits at
/// most `timeout_ns` nanoseconds until there is one, so either side may start first. Describes the
/// peer in `*peer`; `peer->rank` is its rank for all other functions. If the processes are
/// connected already, that is the present peer.
///
/// Errors: PORTOLAN_ERR_NO_SERVER after the timeout; PORTOLAN_ERR_SERVER_REFUSED at once if the
/// secrets or settings differ; PORTOLAN_ERR_ADDRESS; PORTOLAN_ERR_SETTING without a secret;
/// PORTOLAN_ERR_ARGUMENT in a job.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_connect(
    node: *mut portolan_node_t,
    address: *const c_char,
    secret: *const c_void,
    secret_len: usize,
    timeout_ns: u64,
    peer: *mut portolan_peer_t,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, address) = unsafe { (enter(node)?, text("address", address)?) };
        // SAFETY: guaranteed by the program.
        let (secret, peer) = unsafe {
            (
                memory::bytes("secret", secret, secret_len)?,
                Out::new("peer", peer)?,
            )
        };
        let node = entered.node()?;
        let found = node.connect(&address, secret, timeout(timeout_ns))?;
        peer.fill(&portolan_peer_t {
            size: 0,
            rank: found.rank(),
            generation: found.generation(),
        });
        Ok(PORTOLAN_OK)
    })
}

/// Disconnects from the peer with this rank and generation, after everything that was sent to it
/// has arrived. Has no effect if it has ended.
///
/// Errors: PORTOLAN_ERR_ARGUMENT in a job.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_disconnect(
    node: *mut portolan_node_t,
    rank: u32,
    generation: u32,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let mut entered = unsafe { enter(node)? };
        entered.node()?.disconnect(Peer::new(rank, generation))?;
        Ok(PORTOLAN_OK)
    })
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real endpoint that receives hostile datagrams and hostile addresses.

use crate::input::Input;
use portolan::binding::{Endpoint, EndpointAddress, RawSend, RawSpace};
use portolan::{EndpointConfig, PathChoice};
use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

/// Maximum number of addresses inserted by one input; peer numbers are not reused.
const INSERTS_MAX: usize = 4;

/// Number of inputs for one endpoint. With the removed peers of so many inputs it is still small,
/// and the cost of opening another is negligible.
const INPUTS_MAX: u32 = 1000;

struct Site {
    endpoint: Endpoint,
    hostile: UdpSocket,
    /// Address of the endpoint's socket, from the endpoint's address.
    at: Option<SocketAddr>,
    inputs: u32,
}

thread_local! {
    // Opening sockets for each input would take nearly all of the time.
    static SITE: RefCell<Option<Site>> = const { RefCell::new(None) };
}

/// Makes the endpoint of this thread receive, insert and send what `data` encodes.
///
/// # Panics
/// Panics if there is no UDP here, or a message has no known sender.
pub fn endpoint(data: &[u8]) {
    SITE.with_borrow_mut(|site| {
        site.take_if(|site| site.inputs == INPUTS_MAX);
        let site = site.get_or_insert_with(open);
        site.inputs += 1;
        act(site, &mut Input::new(data));
    });
}

fn open() -> Site {
    let mut config = EndpointConfig::default();
    config.path = PathChoice::Udp;
    let endpoint = Endpoint::open(&config).expect("an endpoint");
    let shown = endpoint.address().to_string();
    Site {
        at: shown.rsplit('/').next().and_then(|text| text.parse().ok()),
        endpoint,
        hostile: UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a socket"),
        inputs: 0,
    }
}

fn act(site: &mut Site, input: &mut Input<'_>) {
    let mut inserted = Vec::new();
    while !input.is_empty() {
        match input.byte() % 4 {
            0 | 1 => {
                let len = usize::from(input.short()) % 1500;
                if let Some(at) = site.at {
                    let _ = site.hostile.send_to(input.take(len), at);
                }
            }
            2 if inserted.len() < INSERTS_MAX => {
                // Mostly the endpoint's own address, which is valid, overwritten in part with bytes
                // of the input.
                let mut bytes = *site.endpoint.address().as_bytes();
                let at = input.below(bytes.len());
                for (to, from) in bytes[at..].iter_mut().zip(input.take(8)) {
                    *to ^= from;
                }
                if let Ok(address) = EndpointAddress::from_bytes(&bytes) {
                    inserted.extend(site.endpoint.insert(&address));
                }
            }
            _ => {
                let spec = RawSend {
                    space: RawSpace::Tagged(input.u64()),
                    imm: None,
                    delivered: false,
                };
                if let Some(peer) = inserted.last() {
                    let _ = site.endpoint.inject(*peer, &spec, input.take(100));
                }
            }
        }
        // Nothing was posted, so only completions of injected sends can arrive.
        site.endpoint.poll(&mut |_| ());
    }
    for peer in inserted {
        site.endpoint.remove(peer);
    }
    site.endpoint.poll(&mut |_| ());
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Egress rules of a macvlan in the kernel's packet filter (nf_tables, family `netdev`, hook
//! `egress`, Linux 5.16).
//!
//! In the syntax of `nft`, for the address 02:00:00:00:00:01:
//!
//! ```text
//! table netdev portolan {
//!   set endpoints { typeof @ll,128,16 . meta mark; flags constant; elements = { 1 . 0x506f0001, … } }
//!   chain egress {
//!     type filter hook egress device "portolan0" priority 0; policy drop;
//!     @ll,0,8 & 1 == 0 @ll,48,64 0x02000000000188b5 @ll,128,16 . meta mark @endpoints accept
//!   }
//! }
//! ```
//! The installed expressions are shorter than those that `nft` generates. Each call between
//! expressions costs every frame as much as a dozen comparisons. The header is loaded once, then
//! compared as a whole.
//!
//! Source address and EtherType are compared in the frame itself, not in the data supplied by the
//! socket's owner. A frame without a header offset recorded by the kernel, for example one that
//! bypasses traffic control, matches nothing and is dropped.

use crate::netlink;
use netlink_bindings::nftables::{
    Chained, CmpOps, MetaKeys, Nfgenmsg, PayloadBase, PushExprListAttrs, Registers, SetFlags,
    VerdictCode,
};
use netlink_bindings::traits::{NetlinkChained, Pusher};
use portolan_link::packet::ETHER_TYPE;
use portolan_sys::net::MacAddr;
use std::ffi::CStr;
use std::io;

/// Mark of the sockets that the broker opened ("Po"), with the endpoint in the low half.
const MARK: u32 = 0x506F_0000;

const TABLE: &CStr = c"portolan";
const CHAIN: &CStr = c"egress";
const SET: &CStr = c"endpoints";

/// Egress hook of a device, and the verdict if no rule decides (linux/netfilter.h).
const NF_NETDEV_EGRESS: u32 = 1;
const NF_DROP: u32 = 0;

/// Maximum elements per message. Their list is an attribute with a 16-bit length.
const ELEMENTS_MAX: usize = 1000;

/// Bytes of an element: an endpoint padded to a register, and a mark.
const ELEMENT_LEN: u32 = 8;

/// Subsystem of batches (NFNL_SUBSYS_NFTABLES of linux/netfilter/nfnetlink.h).
const SUBSYSTEM: u16 = 10;

/// Returns the mark of the socket for `endpoint`.
pub(crate) fn mark_of(endpoint: u16) -> u32 {
    MARK | u32::from(endpoint)
}

/// Installs the rules on the interface `name` of this namespace, for endpoints 1 to `endpoints`.
/// Either all rules are installed or none.
pub(crate) fn install(name: &CStr, mac: MacAddr, endpoints: u16) -> io::Result<()> {
    let mut batch = Chained::new(0);
    let header = header();
    let mut edge = Nfgenmsg::new();
    edge.set_res_id(SUBSYSTEM);
    batch.request().op_batch_begin_do(&edge);
    let request = batch.request().set_create();
    request
        .op_newtable_do(&header)
        .into_encoder()
        .push_name(TABLE);
    add_chain(&mut batch, name);
    add_set(&mut batch, endpoints);
    add_rule(&mut batch, mac);
    batch.request().op_batch_end_do(&edge);
    let batch = batch.finalize();
    // Requests are numbered from 0. The first and last message of a batch also request an
    // acknowledgement, but kernels before 6.10 send none for them.
    let last = u32::try_from(batch.chain_len() - 1).map_err(|_| io::ErrorKind::InvalidInput)?;
    netlink::send(&netlink::filter_socket()?, batch.payload(), 1..last)
}

/// Returns the header of all requests: the family of packet filters on one device (NFPROTO_NETDEV
/// of linux/netfilter.h), version 0, and no resource.
fn header() -> Nfgenmsg {
    Nfgenmsg::new_from_array([5, 0, 0, 0])
}

fn add_chain(batch: &mut Chained<'_>, name: &CStr) {
    let request = batch.request().set_create();
    request
        .op_newchain_do(&header())
        .into_encoder()
        .push_table(TABLE)
        .push_name(CHAIN)
        .nested_hook()
        .push_num(NF_NETDEV_EGRESS)
        .push_priority(0)
        .push_dev(name)
        .end_nested()
        .push_policy(NF_DROP)
        .push_type(c"filter");
}

/// Adds the set of pairs of an endpoint and the mark of its frames.
fn add_set(batch: &mut Chained<'_>, endpoints: u16) {
    let request = batch.request().set_create();
    request
        .op_newset_do(&header())
        .into_encoder()
        .push_table(TABLE)
        .push_name(SET)
        .push_flags(SetFlags::Constant as u32)
        .push_key_type(0)
        .push_key_len(ELEMENT_LEN)
        .push_id(1)
        .nested_desc()
        .push_size(endpoints.into())
        .end_nested();
    let endpoints: Vec<u16> = (1..=endpoints).collect();
    for endpoints in endpoints.chunks(ELEMENTS_MAX) {
        let request = batch.request().set_create();
        let mut list = request
            .op_newsetelem_do(&header())
            .into_encoder()
            .push_table(TABLE)
            .push_set(SET)
            .push_set_id(1)
            .nested_elements();
        for endpoint in endpoints {
            list = list
                .nested_elem()
                .nested_key()
                .push_value(&element(*endpoint))
                .end_nested()
                .end_nested();
        }
    }
}

/// Returns an element in register format: the endpoint in network byte order, the mark in host byte
/// order.
fn element(endpoint: u16) -> [u8; ELEMENT_LEN as usize] {
    let [high, low] = endpoint.to_be_bytes();
    let [a, b, c, d] = mark_of(endpoint).to_ne_bytes();
    [high, low, 0, 0, a, b, c, d]
}

/// Adds the rule. Destination, source, EtherType, destination endpoint and source endpoint fill the
/// first registers with four bytes each. Only the group bit of the destination is compared.
fn add_rule(batch: &mut Chained<'_>, mac: MacAddr) {
    let request = batch.request().set_create().set_append();
    let list = request
        .op_newrule_do(&header())
        .into_encoder()
        .push_table(TABLE)
        .push_chain(CHAIN)
        .nested_expressions();
    let mut expected = [0; 14];
    expected[6..12].copy_from_slice(&mac.0);
    expected[12..].copy_from_slice(&ETHER_TYPE.to_be_bytes());
    let list = list
        .nested_elem()
        .nested_data_payload()
        .push_dreg(Registers::Reg3200 as u32)
        .push_base(PayloadBase::LinkLayerHeader as u32)
        .push_offset(0)
        .push_len(18)
        .end_nested()
        .end_nested();
    let list = mask(list, Registers::Reg3200, [1, 0, 0, 0]);
    let list = mask(list, Registers::Reg3201, [0, 0, 0xff, 0xff]);
    let list = list
        .nested_elem()
        .nested_data_cmp()
        .push_sreg(Registers::Reg3200 as u32)
        .push_op(CmpOps::Eq as u32)
        .nested_data()
        .push_value(&expected)
        .end_nested()
        .end_nested()
        .end_nested()
        .nested_elem()
        .nested_data_meta()
        .push_dreg(Registers::Reg3205 as u32)
        .push_key(MetaKeys::Mark as u32)
        .end_nested()
        .end_nested();
    let mut lookup = list.nested_elem().nested_data_lookup().push_set(SET);
    push_number(&mut lookup, NFTA_LOOKUP_SREG, Registers::Reg3204 as u32);
    let list = lookup.end_nested().end_nested();
    list.nested_elem()
        .nested_data_immediate()
        .push_dreg(Registers::RegVerdict as u32)
        .nested_data()
        .nested_verdict()
        .push_code(VerdictCode::Accept as u32)
        .end_nested()
        .end_nested();
}

/// Attribute of the register to look up (linux/netfilter/nf_tables.h). The bindings use a wrong
/// number, which comes from the kernel's published specification.
const NFTA_LOOKUP_SREG: u16 = 2;

/// Appends an attribute with a number.
fn push_number(to: &mut impl Pusher, kind: u16, value: u32) {
    let bytes = to.as_vec_mut();
    // Attributes start at multiples of four bytes (NLA_ALIGN).
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.extend(8_u16.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value.to_be_bytes());
}

/// Clears all bits of a register except those of `bits`.
fn mask<P: Pusher>(
    list: PushExprListAttrs<P>,
    register: Registers,
    bits: [u8; 4],
) -> PushExprListAttrs<P> {
    list.nested_elem()
        .nested_data_bitwise()
        .push_sreg(register as u32)
        .push_dreg(register as u32)
        .push_len(4)
        .nested_mask()
        .push_value(&bits)
        .end_nested()
        .nested_xor()
        .push_value(&[0; 4])
        .end_nested()
        .end_nested()
        .end_nested()
}

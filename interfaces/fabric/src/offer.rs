// SPDX-License-Identifier: MIT OR Apache-2.0
//! The provider's capabilities, and their comparison with an application's request.
//!
//! Without a request, everything is offered. With one, the result is an offer that satisfies it, or
//! the first attribute that cannot be satisfied.

use std::ffi::c_int;
use std::ptr::null_mut;

use crate::abi::*;

/// Address format: this provider's own format of 64 bytes.
pub(crate) const ADDR_FORMAT: u32 = PROV_SPECIFIC | 0x504f;
/// Number of the wire protocol, in libfabric's range for external providers.
const PROTOCOL: u32 = PROV_SPECIFIC | 0x504f;

const PRIMARY: u64 = MSG | TAGGED | RMA | ATOMIC;
const TX_MODIFIERS: u64 = SEND | READ | WRITE;
const RX_MODIFIERS: u64 = RECV | REMOTE_READ | REMOTE_WRITE;
const SECONDARY: u64 = MULTI_RECV | SOURCE | DIRECTED_RECV | LOCAL_COMM | REMOTE_COMM;
const CAPS: u64 = PRIMARY | TX_MODIFIERS | RX_MODIFIERS | SECONDARY;
const TX_CAPS: u64 = PRIMARY | TX_MODIFIERS;
const RX_CAPS: u64 = PRIMARY | RX_MODIFIERS | MULTI_RECV | SOURCE | DIRECTED_RECV;
/// Capabilities without effect if there is only one peer.
const MANY_PEERS: u64 = SOURCE | DIRECTED_RECV;
const DOMAIN_CAPS: u64 = LOCAL_COMM | REMOTE_COMM;

/// All operations of a pair are one ordered stream, and the target performs them in that order
/// (P12.9). Long ones are transfers, whose bytes arrive in any order: see [`ORDERED_LEN_MAX`].
const ORDER: u64 = ORDER_SAS
    | ORDER_SAW
    | ORDER_RAW
    | ORDER_WAR
    | ORDER_WAW
    | ORDER_RMA_RAW
    | ORDER_RMA_WAR
    | ORDER_RMA_WAW
    | ORDER_ATOMIC_RAR
    | ORDER_ATOMIC_RAW
    | ORDER_ATOMIC_WAR
    | ORDER_ATOMIC_WAW;
const TX_FLAGS: u64 =
    COMPLETION | INJECT | INJECT_COMPLETE | TRANSMIT_COMPLETE | DELIVERY_COMPLETE | MATCH_COMPLETE;
const RX_FLAGS: u64 = COMPLETION | MULTI_RECV;

/// Longest injected message: it fits one system call with room to spare.
pub(crate) const INJECT_LEN_MAX: usize = 4096;
/// Longest access that is ordered with others to the same bytes. It never becomes a transfer.
const ORDERED_LEN_MAX: usize = INJECT_LEN_MAX;
/// Longest message, limited by the protocol's length fields.
pub(crate) const MESSAGE_LEN_MAX: usize = 1 << 40;
/// Maximum number of memory pieces in a message.
pub(crate) const PIECES_MAX: usize = 8;
/// Maximum number of operations in flight on an endpoint. No memory is allocated for them in
/// advance.
const QUEUE_LEN: usize = 16 * 1024;
/// Maximum number of objects of one type in a domain. No memory is allocated for them in advance.
const OBJECTS_MAX: usize = 1 << 16;
/// libfabric's tag format for 64 bits without structure, all of them the application's.
const TAG_FORMAT: u64 = 0xaaaa_aaaa_aaaa_aaaa;
/// Maximum bytes of the error text of a failed completion.
pub(crate) const ERROR_TEXT_MAX: usize = 256;
/// Registration mode if the application states no preference: by virtual address, with random keys.
const MR_MODERN: c_int = MR_VIRT_ADDR | MR_ALLOCATED | MR_PROV_KEY;
/// First version in which `mr_mode` is a bit set.
const MR_BITS_SINCE: u32 = version(1, 5);

/// Kind of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// `FI_EP_RDM`: connectionless, with any number of peers.
    Unconnected,
    /// `FI_EP_MSG`: connected to one peer.
    Connected,
}

impl Kind {
    /// Both kinds, in the order of the results. Programs that request neither usually take the
    /// first.
    pub(crate) const ALL: [Kind; 2] = [Kind::Unconnected, Kind::Connected];

    fn ep_type(self) -> c_int {
        match self {
            Kind::Unconnected => EP_RDM,
            Kind::Connected => EP_MSG,
        }
    }

    fn caps(self) -> u64 {
        match self {
            Kind::Unconnected => CAPS,
            Kind::Connected => CAPS & !MANY_PEERS,
        }
    }

    fn takes_format(self, format: u32) -> bool {
        match self {
            Kind::Unconnected => matches!(format, FORMAT_UNSPEC | ADDR_FORMAT),
            Kind::Connected => {
                matches!(
                    format,
                    FORMAT_UNSPEC | SOCKADDR | SOCKADDR_IN | SOCKADDR_IN6
                )
            }
        }
    }
}

/// An application's request. Missing parts are `None`.
pub(crate) struct Hints<'a> {
    pub(crate) api: u32,
    pub(crate) info: &'a Info,
    pub(crate) tx: Option<&'a TxAttr>,
    pub(crate) rx: Option<&'a RxAttr>,
    pub(crate) ep: Option<&'a EpAttr>,
    pub(crate) domain: Option<&'a DomainAttr>,
}

/// The provider's offer. Names, addresses and fabric attributes are added in `getinfo.rs`.
#[derive(Clone, Copy)]
pub(crate) struct Offer {
    pub(crate) caps: u64,
    pub(crate) tx: TxAttr,
    pub(crate) rx: RxAttr,
    pub(crate) ep: EpAttr,
    pub(crate) domain: LongDomainAttr,
}

/// The first requested attribute that cannot be satisfied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mismatch(pub(crate) &'static str);

type Verdict = Result<(), Mismatch>;

/// Offers all capabilities.
pub(crate) fn everything(kind: Kind) -> Offer {
    let mut offer = Offer {
        caps: kind.caps(),
        tx: tx(),
        rx: rx(),
        ep: ep(),
        domain: domain(),
    };
    offer.rx.caps &= kind.caps();
    offer.ep.ep_type = kind.ep_type();
    offer
}

/// Offers the requested attributes.
///
/// # Errors
/// The first attribute that cannot be satisfied.
pub(crate) fn matching(kind: Kind, hints: &Hints<'_>) -> Result<Offer, Mismatch> {
    let mut offer = everything(kind);
    fit_info(&mut offer, kind, hints.info)?;
    hints.ep.map_or(Ok(()), |ep| fit_ep(&mut offer, ep))?;
    hints.tx.map_or(Ok(()), |tx| fit_tx(&mut offer, tx))?;
    hints.rx.map_or(Ok(()), |rx| fit_rx(&mut offer, rx))?;
    hints
        .domain
        .map_or(Ok(()), |domain| fit_domain(&mut offer, domain, hints.api))?;
    Ok(offer)
}

fn fit_info(offer: &mut Offer, kind: Kind, info: &Info) -> Verdict {
    within(info.caps, kind.caps(), "a capability")?;
    need(kind.takes_format(info.addr_format), "an address format")?;
    need(
        kind == Kind::Connected || info.handle.is_null(),
        "a connectionless endpoint from a connection request",
    )?;
    if info.caps != 0 {
        offer.caps = with_implied(info.caps);
        offer.tx.caps &= offer.caps;
        offer.rx.caps &= offer.caps;
    }
    Ok(())
}

/// Adds implied capabilities: both directions if none was requested, and capabilities without cost.
fn with_implied(caps: u64) -> u64 {
    let mut all = caps | LOCAL_COMM | REMOTE_COMM;
    if caps & (MSG | TAGGED) != 0 && caps & (SEND | RECV) == 0 {
        all |= SEND | RECV;
    }
    let remote = READ | WRITE | REMOTE_READ | REMOTE_WRITE;
    if caps & (RMA | ATOMIC) != 0 && caps & remote == 0 {
        all |= remote;
    }
    all
}

fn fit_ep(offer: &mut Offer, hints: &EpAttr) -> Verdict {
    need(
        hints.ep_type == EP_UNSPEC || hints.ep_type == offer.ep.ep_type,
        "an endpoint type other than FI_EP_RDM and FI_EP_MSG",
    )?;
    need(matches!(hints.protocol, 0 | PROTOCOL), "another protocol")?;
    need(hints.max_msg_size <= MESSAGE_LEN_MAX, "longer messages")?;
    need(
        hints.tx_ctx_cnt <= 1 && hints.rx_ctx_cnt <= 1,
        "several or shared contexts",
    )?;
    need(hints.auth_key_size == 0, "an authorization key")?;
    need(
        hints.max_order_raw_size <= offer.ep.max_order_raw_size,
        "order of longer messages",
    )?;
    need(
        hints.max_order_war_size <= offer.ep.max_order_war_size,
        "order of longer messages",
    )?;
    need(
        hints.max_order_waw_size <= offer.ep.max_order_waw_size,
        "order of longer messages",
    )
}

fn fit_tx(offer: &mut Offer, hints: &TxAttr) -> Verdict {
    within(hints.caps, CAPS, "a capability to send")?;
    within(hints.op_flags, TX_FLAGS, "a default flag of sends")?;
    within(hints.msg_order, ORDER, "an order of sends")?;
    need(hints.comp_order == 0, "ordered completions of sends")?;
    need(
        hints.inject_size <= INJECT_LEN_MAX,
        "injecting longer messages",
    )?;
    need(hints.size <= QUEUE_LEN, "more sends in flight")?;
    need(hints.iov_limit <= PIECES_MAX, "more pieces of a message")?;
    need(hints.rma_iov_limit <= 1, "several remote pieces")?;
    if hints.caps != 0 {
        offer.tx.caps = hints.caps & TX_CAPS;
    }
    offer.tx.op_flags = hints.op_flags;
    Ok(())
}

fn fit_rx(offer: &mut Offer, hints: &RxAttr) -> Verdict {
    within(hints.caps, CAPS, "a capability to receive")?;
    within(hints.op_flags, RX_FLAGS, "a default flag of receives")?;
    within(hints.msg_order, ORDER, "an order of receives")?;
    need(hints.comp_order == 0, "ordered completions of receives")?;
    need(hints.size <= QUEUE_LEN, "more receives posted")?;
    need(hints.iov_limit <= PIECES_MAX, "more pieces of a buffer")?;
    if hints.caps != 0 {
        offer.rx.caps = hints.caps & RX_CAPS;
    }
    offer.rx.op_flags = hints.op_flags;
    Ok(())
}

fn fit_domain(offer: &mut Offer, hints: &DomainAttr, api: u32) -> Verdict {
    let own = &mut offer.domain.head;
    need(
        matches!(
            hints.data_progress,
            PROGRESS_UNSPEC | PROGRESS_AUTO | PROGRESS_MANUAL | PROGRESS_CONTROL_UNIFIED
        ),
        "another kind of progress",
    )?;
    if hints.data_progress == PROGRESS_AUTO {
        own.data_progress = PROGRESS_AUTO;
    }
    need(hints.mr_key_size <= own.mr_key_size, "longer memory keys")?;
    need(
        hints.cq_data_size <= own.cq_data_size,
        "more immediate data",
    )?;
    need(
        hints.cq_cnt <= OBJECTS_MAX && hints.ep_cnt <= OBJECTS_MAX,
        "more objects",
    )?;
    need(hints.cntr_cnt <= OBJECTS_MAX, "more counters")?;
    need(hints.tx_ctx_cnt <= own.tx_ctx_cnt, "more contexts")?;
    need(hints.rx_ctx_cnt <= own.rx_ctx_cnt, "more contexts")?;
    need(
        hints.max_ep_tx_ctx <= 1 && hints.max_ep_rx_ctx <= 1,
        "several contexts per endpoint",
    )?;
    need(
        hints.max_ep_stx_ctx == 0 && hints.max_ep_srx_ctx == 0,
        "shared contexts",
    )?;
    need(hints.mr_iov_limit <= 1, "regions of several pieces")?;
    need(hints.auth_key_size == 0, "an authorization key")?;
    within(hints.caps, DOMAIN_CAPS, "a capability of the domain")?;
    if hints.threading != THREAD_UNSPEC {
        // All levels are supported. Those below `FI_THREAD_SAFE` restrict the application more, and
        // require less of the provider.
        own.threading = hints.threading;
    }
    if hints.av_type != AV_UNSPEC {
        own.av_type = hints.av_type;
    }
    // Control calls complete immediately in either mode.
    if matches!(hints.control_progress, PROGRESS_AUTO | PROGRESS_MANUAL) {
        own.control_progress = hints.control_progress;
    }
    own.mr_mode = mr_mode(hints.mr_mode, api)?;
    Ok(())
}

/// Selects the registration mode that both the provider and the application support.
fn mr_mode(hints: c_int, api: u32) -> Result<c_int, Mismatch> {
    if api < MR_BITS_SINCE {
        return match hints {
            0 | MR_BASIC => Ok(MR_BASIC),
            MR_SCALABLE => Ok(MR_SCALABLE),
            _ => Err(Mismatch(
                "a memory registration mode that its libfabric version does not have",
            )),
        };
    }
    match hints & (MR_BASIC | MR_SCALABLE) {
        0 => Ok(hints & MR_MODERN),
        MR_SCALABLE if hints == MR_SCALABLE => Ok(MR_SCALABLE),
        _ => Ok(MR_BASIC),
    }
}

fn need(condition: bool, what: &'static str) -> Verdict {
    if condition {
        Ok(())
    } else {
        Err(Mismatch(what))
    }
}

fn within(hints: u64, offered: u64, what: &'static str) -> Verdict {
    need(hints & !offered == 0, what)
}

fn tx() -> TxAttr {
    TxAttr {
        caps: TX_CAPS,
        mode: 0,
        op_flags: 0,
        msg_order: ORDER,
        comp_order: 0,
        inject_size: INJECT_LEN_MAX,
        size: QUEUE_LEN,
        iov_limit: PIECES_MAX,
        rma_iov_limit: 1,
        tclass: 0,
    }
}

fn rx() -> RxAttr {
    RxAttr {
        caps: RX_CAPS,
        mode: 0,
        op_flags: 0,
        msg_order: ORDER,
        comp_order: 0,
        total_buffered_recv: 0,
        size: QUEUE_LEN,
        iov_limit: PIECES_MAX,
    }
}

fn ep() -> EpAttr {
    EpAttr {
        ep_type: EP_RDM,
        protocol: PROTOCOL,
        protocol_version: 1,
        max_msg_size: MESSAGE_LEN_MAX,
        msg_prefix_size: 0,
        max_order_raw_size: MESSAGE_LEN_MAX,
        max_order_war_size: ORDERED_LEN_MAX,
        max_order_waw_size: ORDERED_LEN_MAX,
        mem_tag_format: TAG_FORMAT,
        tx_ctx_cnt: 1,
        rx_ctx_cnt: 1,
        auth_key_size: 0,
        auth_key: null_mut(),
    }
}

fn domain() -> LongDomainAttr {
    let head = DomainAttr {
        domain: null_mut(),
        name: null_mut(),
        threading: THREAD_SAFE,
        control_progress: PROGRESS_MANUAL,
        data_progress: PROGRESS_MANUAL,
        resource_mgmt: RM_ENABLED,
        av_type: AV_TABLE,
        mr_mode: MR_MODERN,
        mr_key_size: size_of::<u64>(),
        cq_data_size: size_of::<u64>(),
        cq_cnt: OBJECTS_MAX,
        ep_cnt: OBJECTS_MAX,
        tx_ctx_cnt: OBJECTS_MAX,
        rx_ctx_cnt: OBJECTS_MAX,
        max_ep_tx_ctx: 1,
        max_ep_rx_ctx: 1,
        max_ep_stx_ctx: 0,
        max_ep_srx_ctx: 0,
        cntr_cnt: OBJECTS_MAX,
        mr_iov_limit: 1,
        caps: DOMAIN_CAPS,
        mode: 0,
        auth_key: null_mut(),
        auth_key_size: 0,
        max_err_data: ERROR_TEXT_MAX,
        mr_cnt: OBJECTS_MAX,
        tclass: 0,
    };
    LongDomainAttr {
        head,
        max_ep_auth_key: 0,
        max_group_id: 0,
        max_cntr_value: u64::MAX,
        max_err_cntr_value: u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RDM: Kind = Kind::Unconnected;

    fn info(caps: u64) -> Info {
        Info {
            next: null_mut(),
            caps,
            mode: 0,
            addr_format: 0,
            src_addrlen: 0,
            dest_addrlen: 0,
            src_addr: null_mut(),
            dest_addr: null_mut(),
            handle: null_mut(),
            tx_attr: null_mut(),
            rx_attr: null_mut(),
            ep_attr: null_mut(),
            domain_attr: null_mut(),
            fabric_attr: null_mut(),
            nic: null_mut(),
        }
    }

    fn hints(info: &Info) -> Hints<'_> {
        Hints {
            api: version(1, 17),
            info,
            tx: None,
            rx: None,
            ep: None,
            domain: None,
        }
    }

    #[test]
    fn hints_of_open_mpi_are_satisfied() {
        let info = info(MSG | TAGGED | LOCAL_COMM | REMOTE_COMM | DIRECTED_RECV);
        let domain = DomainAttr {
            threading: THREAD_DOMAIN,
            data_progress: PROGRESS_UNSPEC,
            cq_data_size: 4,
            ..everything(RDM).domain.head
        };
        let hints = Hints {
            domain: Some(&domain),
            ..hints(&info)
        };
        let offer = matching(RDM, &hints).unwrap();
        assert_eq!(offer.caps, info.caps | SEND | RECV);
        assert_eq!(offer.domain.head.threading, THREAD_DOMAIN);
        assert_eq!(offer.tx.caps, MSG | TAGGED | SEND);
    }

    #[test]
    fn everything_offered_may_be_requested() {
        for kind in Kind::ALL {
            let all = everything(kind);
            let info = info(all.caps);
            let hints = Hints {
                tx: Some(&all.tx),
                rx: Some(&all.rx),
                ep: Some(&all.ep),
                domain: Some(&all.domain.head),
                ..hints(&info)
            };
            assert_eq!(matching(kind, &hints).unwrap().caps, all.caps);
        }
    }

    #[test]
    fn connected_endpoints_have_socket_addresses_and_one_source() {
        let with = |addr_format, caps| Info {
            addr_format,
            ..info(caps)
        };
        for format in [FORMAT_UNSPEC, SOCKADDR, SOCKADDR_IN, SOCKADDR_IN6] {
            let info = with(format, MSG | RMA);
            let offer = matching(Kind::Connected, &hints(&info)).unwrap();
            assert_eq!((offer.ep.ep_type, offer.caps & MANY_PEERS), (EP_MSG, 0));
        }
        for info in [with(ADDR_FORMAT, MSG), with(SOCKADDR, MSG | SOURCE)] {
            assert!(matching(Kind::Connected, &hints(&info)).is_err());
        }
        assert!(matching(RDM, &hints(&with(SOCKADDR_IN, MSG))).is_err());
    }

    #[test]
    fn offer_matches_endpoint_type() {
        const DGRAM: c_int = 2;
        let offered = |kind: Kind, ep_type| {
            let ep = EpAttr {
                ep_type,
                ..everything(kind).ep
            };
            let info = info(MSG);
            let hints = Hints {
                ep: Some(&ep),
                ..hints(&info)
            };
            matching(kind, &hints).map(|offer| offer.ep.ep_type)
        };
        for kind in Kind::ALL {
            assert_eq!(offered(kind, EP_UNSPEC), Ok(kind.ep_type()));
            assert_eq!(offered(kind, kind.ep_type()), Ok(kind.ep_type()));
            assert!(offered(kind, DGRAM).unwrap_err().0.contains("FI_EP_MSG"));
        }
        assert!(offered(RDM, EP_MSG).is_err());
        assert!(offered(Kind::Connected, EP_RDM).is_err());
    }

    #[test]
    fn unknown_capability_is_refused() {
        const COLLECTIVE: u64 = 1 << 6;
        assert!(matching(RDM, &hints(&info(MSG | COLLECTIVE))).is_err());
    }

    #[test]
    fn registration_mode_matches_hints() {
        let modern = version(1, 9);
        assert_eq!(mr_mode(0, modern), Ok(0));
        assert_eq!(mr_mode(MR_PROV_KEY | 1 << 9, modern), Ok(MR_PROV_KEY));
        assert_eq!(mr_mode(MR_BASIC, modern), Ok(MR_BASIC));
        assert_eq!(mr_mode(!(MR_BASIC | MR_SCALABLE), modern), Ok(MR_MODERN));
        assert_eq!(mr_mode(MR_SCALABLE, version(1, 4)), Ok(MR_SCALABLE));
        assert!(mr_mode(MR_PROV_KEY, version(1, 4)).is_err());
    }
}

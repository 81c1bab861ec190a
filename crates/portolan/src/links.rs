// SPDX-License-Identifier: MIT OR Apache-2.0
//! The links of this process: which are opened, and the table of peers that each has been told of.

use crate::checksum::{self, Choice, Sums};
use crate::error::Error;
use crate::launch::{Job, PathChoice};
use crate::settings;
use crate::streams::{self, Streams};
use portolan_link::die::{Die, DieSpec};
use portolan_link::fault::{Fault, FaultSpec};
use portolan_link::packet::{InterfaceRef, Packet, PacketConfig, lease};
use portolan_link::pcap::Pcap;
use portolan_link::shm::{Shm, ShmConfig};
use portolan_link::udp::{Udp, UdpConfig};
use portolan_link::xdp::{Xdp, XdpConfig, XdpMode};
use portolan_link::{
    Interface, InterfaceKind, Link, LinkAddr, LinkError, LinkKind, Notice, Receiver, RxFrame,
    TxError, TxFrame, WakeSet,
};
use portolan_proto::{LinkId, LinkParams, PeerId, StreamUse};
use portolan_sys::effort;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Turns between looks at a link that nobody is reached by: a system call in 5 µs of turns.
const DORMANT_INTERVAL: u32 = 256;

/// Turns in which all links are looked at after a sleep: a burst on two links.
const ROUSED_TURNS: u32 = 16;

/// A link; shared memory by its own type, so that its few instructions are not lost among those of
/// calls by pointer.
pub(crate) enum AnyLink {
    Shm(Box<Shm>),
    Other(Box<dyn Link + Send>),
}

impl AnyLink {
    #[inline(always)]
    fn transmit(&mut self, peer: u32, frame: &TxFrame<'_>) -> Result<(), TxError> {
        match self {
            AnyLink::Shm(shm) => shm.transmit_now(peer, frame),
            AnyLink::Other(link) => link.transmit(peer, frame),
        }
    }

    #[inline]
    pub(crate) fn receive(&mut self, budget: usize, mut sink: impl FnMut(RxFrame<'_>)) -> usize {
        match self {
            AnyLink::Shm(shm) => shm.receive_with(budget, &mut sink),
            AnyLink::Other(link) => link.receive(budget, &mut sink),
        }
    }

    #[inline]
    pub(crate) fn receive_placed(&mut self, budget: usize, receiver: &mut dyn Receiver) -> usize {
        self.as_dyn_mut().receive_placed(budget, receiver)
    }

    fn as_dyn(&self) -> &dyn Link {
        match self {
            AnyLink::Shm(shm) => &**shm,
            AnyLink::Other(link) => link,
        }
    }

    fn as_dyn_mut(&mut self) -> &mut dyn Link {
        match self {
            AnyLink::Shm(shm) => &mut **shm,
            AnyLink::Other(link) => link,
        }
    }
}

/// Turns for which a link that moved a frame is looked at every time. A system call on a silent
/// link costs as much as ten looks at shared memory.
pub(crate) const HOT_TURNS: u32 = 4096;

/// An open link.
pub(crate) struct OpenLink {
    id: LinkId,
    lossless: bool,
    link: AnyLink,
    /// This side wants checksums here.
    checksum: bool,
    sums: Sums,
    /// A look costs no system call.
    looks_at_memory: bool,
    /// Turn until which it is looked at every time.
    hot_until: u32,
    /// Nobody is reached by it so far; frames of unsolicited peers may come.
    dormant: bool,
    connected: Vec<bool>,
}

impl OpenLink {
    #[inline]
    pub(crate) fn id(&self) -> LinkId {
        self.id
    }

    #[inline]
    pub(crate) fn is_lossless(&self) -> bool {
        self.lossless
    }

    #[inline]
    pub(crate) fn link_mut(&mut self) -> &mut AnyLink {
        &mut self.link
    }

    #[inline]
    fn is_hot(&self, turn: u32) -> bool {
        self.hot_until.wrapping_sub(turn) < 1 << 31
    }

    /// Whether it is looked at in a turn. `others_matter` are looked at every time; a link that is not
    /// expected to bring anything, and whose look is a system call, is then looked at when `cold_due`.
    #[inline]
    pub(crate) fn is_due(&self, turn: u32, others_matter: bool, cold_due: bool) -> bool {
        if self.is_hot(turn) {
            return true;
        }
        match self.dormant {
            true => turn.is_multiple_of(DORMANT_INTERVAL),
            false => self.looks_at_memory || !others_matter || cold_due,
        }
    }

    #[inline]
    pub(crate) fn heat(&mut self, turn: u32, turns: u32) {
        self.hot_until = turn.wrapping_add(turns);
    }
}

/// See the module documentation.
pub(crate) struct Links {
    open: Vec<OpenLink>,
    /// Places in `open`, by the protocol's number of the link.
    places: [Option<usize>; LinkId::COUNT],
    has_lossy: bool,
    /// No link of frames: parts of transfers go by it.
    streams: Option<Box<Streams>>,
    /// Raw Ethernet frames, if they go otherwise than by a packet socket of this process's own.
    raw_by: Option<RawBy>,
}

/// By what raw Ethernet frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RawBy {
    /// A socket that the broker has lent.
    Broker,
    /// AF_XDP.
    Xdp(XdpMode),
}

/// Which link for raw Ethernet frames is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Raw {
    Packet { is_required: bool },
    Xdp(XdpMode),
}

/// What is to be opened, from the job's settings and the machine.
#[derive(Debug)]
pub(crate) struct Plan {
    shm: bool,
    network: Option<Network>,
    raw: Option<Raw>,
    /// Who is asked for a raw Ethernet socket.
    broker: Option<String>,
    fault: Option<FaultSpec>,
    checksum: Choice,
    /// The frame at which this process dies, and how many are left.
    die: Option<(DieSpec, Arc<AtomicU64>)>,
    pcap: Option<PathBuf>,
    frame_len_max: Option<usize>,
    /// File of the model, or `off`.
    model: Option<String>,
    stream: StreamUse,
}

/// The interface that a job's network traffic takes.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    /// If it is an Ethernet.
    pub(crate) interface: Option<Interface>,
    /// What the traffic passes; `None` for the loopback of a host without a network.
    over: Option<Interface>,
    pub(crate) addr: IpAddr,
    pub(crate) prefix_len: u8,
}

/// What the settings say of links, whatever the machine has.
#[derive(Debug)]
pub(crate) struct Asked {
    fault: Option<FaultSpec>,
    checksum: Choice,
    die: Option<DieSpec>,
    frame_len_max: Option<usize>,
    xdp: XdpMode,
}

impl Asked {
    pub(crate) fn of(job: &Job) -> Result<Asked, Error> {
        let die = parsed::<DieSpec>("die", settings::DIE.of(job))?;
        // Endpoints are in no job and have no ranks.
        let last = job.size.saturating_sub(1);
        if let Some(die) = die.filter(|die| job.size > 0 && die.rank > last) {
            return Err(Error::Setting {
                name: "die",
                value: die.to_string(),
                why: format!("the job has ranks from 0 to {last}: name one of them"),
            });
        }
        let frame_len_max = settings::FRAME_LEN_MAX.of(job);
        Ok(Asked {
            fault: parsed("fault", settings::FAULT.of(job))?,
            checksum: Choice::of(job)?,
            die,
            frame_len_max: frame_len_max.map(parse_frame_len).transpose()?,
            xdp: parsed("xdp", settings::XDP.of(job))?.unwrap_or_default(),
        })
    }
}

/// The value of a setting, if it is set.
fn parsed<T: FromStr<Err: Display>>(
    name: &'static str,
    value: Option<String>,
) -> Result<Option<T>, Error> {
    let parsed = value.map(|text| {
        text.parse().map_err(|error: T::Err| Error::Setting {
            name,
            value: text,
            why: error.to_string(),
        })
    });
    parsed.transpose()
}

impl Plan {
    /// Decides by the job's path setting and what `interfaces` there are.
    pub(crate) fn new(job: &Job) -> Result<Plan, Error> {
        let interfaces = portolan_link::interfaces().map_err(|errno| Error::System {
            what: "listing network interfaces",
            errno,
        })?;
        let wants_network = match job.path {
            PathChoice::Shm => false,
            PathChoice::Auto => job.host_count > 1,
            _ => true,
        };
        let named = settings::INTERFACE.of(job);
        // A name that is none is told also where no network is wanted.
        let named = named.map(|name| named_network(&interfaces, name));
        let network = match named.transpose()? {
            named if wants_network => named.or_else(|| Some(best_network(&interfaces))),
            _ => None,
        };
        let asked = Asked::of(job)?;
        let die = asked.die.filter(|spec| spec.rank == job.rank);
        Ok(Plan {
            shm: matches!(job.path, PathChoice::Auto | PathChoice::Shm),
            raw: raw(job.path, asked.xdp).filter(|_| wants_network),
            broker: broker(job)?,
            network,
            fault: asked.fault,
            checksum: asked.checksum,
            die: die.map(|spec| (spec, spec.countdown())),
            pcap: recording(job)?,
            frame_len_max: asked.frame_len_max,
            model: settings::MODEL.of(job),
            stream: streams::usage(job)?,
        })
    }

    /// Whether transfers may go by streams, as far as `links` have any.
    pub(crate) fn stream_use(&self, links: &Links) -> StreamUse {
        match links.streams {
            Some(_) => self.stream,
            None => StreamUse::Off,
        }
    }

    pub(crate) fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// The setting that says which model is used.
    pub(crate) fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// AF_XDP is only for who asks for it: attaching its program may cost others their offloads.
fn raw(path: PathChoice, mode: XdpMode) -> Option<Raw> {
    match path {
        PathChoice::Xdp => Some(Raw::Xdp(mode)),
        PathChoice::Packet => Some(Raw::Packet { is_required: true }),
        PathChoice::Auto => Some(Raw::Packet { is_required: false }),
        PathChoice::Shm | PathChoice::Udp => None,
    }
}

/// The broker that the settings name; `off` is none.
fn broker(job: &Job) -> Result<Option<String>, Error> {
    let Some(name) = lease::asked(settings::BROKER.of(job)) else {
        return Ok(None);
    };
    if !name.starts_with(['/', '@']) {
        return Err(Error::Setting {
            name: "broker",
            value: name,
            why: "a whole path, @NAME, or off".to_owned(),
        });
    }
    Ok(Some(name))
}

impl Links {
    /// Whether frames may be lost on one.
    #[inline]
    pub(crate) fn has_lossy(&self) -> bool {
        self.has_lossy
    }

    #[inline]
    pub(crate) fn has_streams(&self) -> bool {
        self.streams.is_some()
    }

    #[inline]
    pub(crate) fn streams(&mut self) -> Option<&mut Streams> {
        self.streams.as_deref_mut()
    }

    /// Bytes that a stream buffers, if there are streams.
    pub(crate) fn stream_buffer_len(&self) -> Option<usize> {
        self.streams.as_ref().map(|streams| streams.buffer_len())
    }

    /// By what raw Ethernet frames go, if otherwise than by a packet socket of this process's own.
    pub(crate) fn raw_by(&self) -> Option<RawBy> {
        self.raw_by
    }

    /// Opens what `plan` says. A link that is merely nice to have may fail quietly.
    pub(crate) fn open(plan: &Plan, job: &Job, shm: ShmConfig) -> Result<Links, Error> {
        let mut links = Links::none();
        if plan.shm {
            let shm = Shm::open(shm)?;
            let shm = match &plan.die {
                Some((spec, left)) => AnyLink::Other(Box::new(Die::new(shm, spec, left.clone()))),
                None => AnyLink::Shm(Box::new(shm)),
            };
            links.add(LinkId::SHM, false, shm);
        }
        let Some(network) = &plan.network else {
            return Ok(links);
        };
        let mut config = UdpConfig::new(network.addr);
        config.frame_len_max = plan.frame_len_max;
        let mut udp = Udp::open(&config)?;
        if plan.stream != StreamUse::Off {
            let over_wire = network.over.as_ref().is_some_and(|over| !over.loopback);
            let sums = plan.checksum.wants(LinkKind::Udp, network.over.as_ref());
            links.streams = Streams::open(&mut udp, &config, over_wire, sums)?;
        }
        let LinkAddr::Udp { socket } = udp.local_addr() else {
            return Ok(links);
        };
        let checksum = |kind| plan.checksum.wants(kind, network.over.as_ref());
        let link = AnyLink::Other(wrap(udp, plan, job)?);
        links.add(LinkId::UDP, checksum(LinkKind::Udp), link);
        if let (Some(raw), Some(interface)) = (plan.raw, &network.interface)
            && let Some(link) = links.open_raw(raw, interface.index, socket.port(), plan, job)?
        {
            let checksum = checksum(link.caps().kind);
            links.add(LinkId::PACKET, checksum, AnyLink::Other(link));
        }
        Ok(links)
    }

    /// The link for raw Ethernet frames; none if it is merely nice to have, and cannot be opened.
    fn open_raw(
        &mut self,
        raw: Raw,
        interface: u32,
        endpoint: u16,
        plan: &Plan,
        job: &Job,
    ) -> Result<Option<Box<dyn Link + Send>>, Error> {
        let reference = InterfaceRef::Index(interface);
        let is_required = match raw {
            Raw::Xdp(mode) => {
                let mut config = XdpConfig::new(reference, endpoint);
                config.mode = mode;
                let xdp = Xdp::open(&config)?;
                self.raw_by = Some(RawBy::Xdp(mode));
                return wrap(xdp, plan, job).map(Some);
            }
            Raw::Packet { is_required } => is_required,
        };
        let mut config = PacketConfig::new(reference, endpoint);
        config.broker.clone_from(&plan.broker);
        match Packet::open(&config) {
            Ok(packet) => {
                self.raw_by = packet.is_leased().then_some(RawBy::Broker);
                wrap(packet, plan, job).map(Some)
            }
            Err(error) if is_required => Err(error.into()),
            Err(error) => {
                log::info!("without raw Ethernet frames: {error}");
                Ok(None)
            }
        }
    }

    /// No links, by which nobody is reached.
    pub(crate) fn none() -> Links {
        Links {
            open: Vec::new(),
            places: [None; LinkId::COUNT],
            has_lossy: false,
            streams: None,
            raw_by: None,
        }
    }

    fn add(&mut self, id: LinkId, checksum: bool, link: AnyLink) {
        let caps = link.as_dyn().caps();
        let (lossless, looks_at_memory) = (caps.lossless, caps.looks_at_memory);
        self.has_lossy |= !lossless;
        self.places[id.index()] = Some(self.open.len());
        self.open.push(OpenLink {
            id,
            lossless,
            checksum,
            sums: Sums::default(),
            link,
            looks_at_memory,
            hot_until: 0,
            dormant: false,
            connected: Vec::new(),
        });
    }

    /// What the core must know of each link.
    pub(crate) fn params(&self) -> impl Iterator<Item = (LinkId, LinkParams)> + '_ {
        self.open.iter().map(|open| {
            let caps = open.link.as_dyn().caps();
            let params = LinkParams {
                frame_len_max: caps.frame_len_max,
                segments_max: caps.segments_max,
                lossless: caps.lossless,
                pull: caps.pull,
                checksum: open.checksum,
                sum: Some(checksum::sum_of_frame),
                rx_buffer_len: caps.rx_buffer_len,
            };
            (open.id, params)
        })
    }

    pub(crate) fn addrs(&self) -> Vec<LinkAddr> {
        self.open
            .iter()
            .map(|open| open.link.as_dyn().local_addr())
            .collect()
    }

    /// Until somebody is reached by a network, it is seldom looked at, and time is not needed for it.
    pub(crate) fn rest_networks(&mut self) {
        for open in self.open.iter_mut().filter(|open| !open.lossless) {
            open.dormant = true;
        }
        self.has_lossy = false;
    }

    /// Looks at all links in the next turns: one of them may have rung.
    pub(crate) fn rouse(&mut self, turn: u32) {
        for open in self.open.iter_mut().filter(|open| !open.is_hot(turn)) {
            open.heat(turn, ROUSED_TURNS);
        }
    }

    /// Looks at all links in the next turn.
    pub(crate) fn heat(&mut self, turn: u32) {
        for open in &mut self.open {
            open.heat(turn, 1);
        }
    }

    /// Whether a link holds what would be lost if this process ended now, although it was
    /// transmitted.
    pub(crate) fn has_unsaid(&self) -> bool {
        let unsaid = |open: &OpenLink| matches!(&open.link, AnyLink::Shm(shm) if shm.has_unsaid());
        self.open.iter().any(unsaid)
    }

    #[inline]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut OpenLink> {
        self.open.iter_mut()
    }

    /// Whether a turn should not be held up by looks in vain: something is expected on a link, or
    /// would be seen at once on one.
    #[inline]
    pub(crate) fn are_hurried(&self, turn: u32) -> bool {
        let hurried = |open: &OpenLink| open.is_hot(turn) || open.looks_at_memory && !open.dormant;
        self.open.iter().any(hurried)
    }

    /// How many peers are reached by `link`.
    pub(crate) fn connected_count(&self, link: LinkId) -> usize {
        let place = self.places[link.index()];
        place.map_or(0, |place| {
            let connected = self.open[place].connected.iter();
            connected.filter(|is| **is).count()
        })
    }

    pub(crate) fn is_connected(&self, peer: PeerId, link: LinkId) -> bool {
        let place = self.places[link.index()];
        place.is_some_and(|place| {
            self.open[place]
                .connected
                .get(peer.0 as usize)
                .copied()
                .unwrap_or(false)
        })
    }

    pub(crate) fn connect(
        &mut self,
        peer: PeerId,
        link: LinkId,
        addr: &LinkAddr,
    ) -> Result<(), LinkError> {
        let Some(place) = self.places[link.index()] else {
            return Ok(());
        };
        let open = &mut self.open[place];
        open.link.as_dyn_mut().connect(peer.0, addr)?;
        let index = peer.0 as usize;
        if index >= open.connected.len() {
            open.connected.resize(index + 1, false);
        }
        open.connected[index] = true;
        open.dormant = false;
        self.has_lossy |= !open.lossless;
        Ok(())
    }

    pub(crate) fn disconnect(&mut self, peer: PeerId, link: LinkId) {
        let Some(place) = self.places[link.index()] else {
            return;
        };
        let open = &mut self.open[place];
        if let Some(connected) = open.connected.get_mut(peer.0 as usize) {
            *connected = false;
        }
        open.link.as_dyn_mut().disconnect(peer.0);
    }

    /// Always inlined: most of what a short message costs would else be the calls between the layers.
    #[inline(always)]
    pub(crate) fn send(
        &mut self,
        turn: u32,
        peer: PeerId,
        link: LinkId,
        frame: &TxFrame<'_>,
    ) -> Result<(), TxError> {
        let Some(place) = self.places[link.index()] else {
            return Err(TxError::NotConnected(peer.0));
        };
        let open = &mut self.open[place];
        let result = match open.lossless {
            true => {
                // Into the ring.
                effort::copies();
                open.link.transmit(peer.0, frame)
            }
            false => {
                let send = |frame: &TxFrame<'_>| open.link.transmit(peer.0, frame);
                open.sums.transmit(frame, send)
            }
        };
        if result.is_ok() {
            // An answer is likely to come by the same link.
            open.heat(turn, HOT_TURNS);
        }
        result
    }

    pub(crate) fn pull(&mut self, peer: PeerId, remote_addr: u64, dst: &mut [u8]) -> bool {
        let Some(place) = self.places[LinkId::SHM.index()] else {
            return false;
        };
        match self.open[place]
            .link
            .as_dyn_mut()
            .pull(peer.0, remote_addr, dst)
        {
            Ok(()) => true,
            Err(error) => {
                log::debug!("pull from {peer}: {error}");
                false
            }
        }
    }

    pub(crate) fn poll_notice(&mut self) -> Option<(LinkId, Notice)> {
        self.open
            .iter_mut()
            .find_map(|open| Some((open.id, open.link.as_dyn_mut().poll_notice()?)))
    }

    /// Prepares all links for sleep; `false` if one has frames waiting.
    pub(crate) fn arm(&mut self, wake: &mut WakeSet) -> bool {
        let mut quiet = true;
        for open in &mut self.open {
            quiet &= open.link.as_dyn_mut().arm(wake);
        }
        if let Some(streams) = &mut self.streams {
            quiet &= streams.arm(wake);
        }
        quiet
    }

    pub(crate) fn disarm(&mut self) {
        for open in &mut self.open {
            open.link.as_dyn_mut().disarm();
        }
    }
}

/// Shortest and longest frames of the UDP link: what every IPv4 path carries, and a datagram's most.
const FRAME_LENS: std::ops::RangeInclusive<usize> = 512..=65_507;

/// Where this process records frames, but for the link's name. A directory that is none is told
/// also where no network is used.
fn recording(job: &Job) -> Result<Option<PathBuf>, Error> {
    let Some(dir) = settings::PCAP.of(job) else {
        return Ok(None);
    };
    if !Path::new(&dir).is_dir() {
        return Err(Error::Setting {
            name: "pcap",
            value: dir,
            why: "this is no directory here; name one that this process may write to".to_owned(),
        });
    }
    Ok(Some(Path::new(&dir).join(format!("{}.pcap", job.rank))))
}

fn parse_frame_len(text: String) -> Result<usize, Error> {
    match text.parse() {
        Ok(len) if FRAME_LENS.contains(&len) => Ok(len),
        _ => Err(Error::Setting {
            name: "frame_len_max",
            value: text,
            why: "write a number of bytes from 512 to 65507".to_owned(),
        }),
    }
}

/// Puts the wrappers around a network link that the settings ask for.
fn wrap<L: Link + Send + 'static>(
    link: L,
    plan: &Plan,
    job: &Job,
) -> Result<Box<dyn Link + Send>, Error> {
    let kind = link.caps().kind;
    let mut boxed: Box<dyn Link + Send> = Box::new(link);
    if let Some(path) = &plan.pcap {
        let path = path.with_extension(format!("{kind}.pcap"));
        let pcap = Pcap::create(boxed, &path).map_err(|source| Error::Setting {
            name: "pcap",
            value: path.display().to_string(),
            why: format!("{source}; name a directory that this process may write to"),
        })?;
        boxed = Box::new(pcap);
    }
    if let Some((spec, left)) = &plan.die {
        boxed = Box::new(Die::new(boxed, spec, left.clone()));
    }
    if let Some(fault) = &plan.fault {
        // Different dice for each process and link, all from one seed.
        let mut spec = *fault;
        spec.seed = spec
            .seed
            .wrapping_add(u64::from(job.rank) << 8)
            .wrapping_add(kind as u64);
        boxed = Box::new(Fault::new(boxed, spec).spoiling(checksum::spoil));
    }
    Ok(boxed)
}

fn named_network(interfaces: &[Interface], name: String) -> Result<Network, Error> {
    let found = interfaces.iter().find(|interface| interface.name == name);
    let setting = |why: &str| Error::Setting {
        name: "interface",
        value: name.clone(),
        why: why.to_owned(),
    };
    let Some(interface) = found else {
        return Err(setting(
            "no such interface here; `portolan doctor` lists them",
        ));
    };
    to_network(interface).ok_or_else(|| setting("it has no address; give it one or name another"))
}

/// The interface that most likely joins the hosts of a cluster: hardware or the end of a cable to
/// it, before anything that software has built. Bridges for containers and virtual machines never
/// lead to another host.
fn best_network(interfaces: &[Interface]) -> Network {
    let rank = |interface: &Interface| match interface.kind {
        InterfaceKind::Device | InterfaceKind::Bond => Some(0),
        InterfaceKind::Veth => Some(1),
        InterfaceKind::Vlan | InterfaceKind::Bridge => Some(2),
        InterfaceKind::Tunnel | InterfaceKind::Other => Some(3),
        _ => None,
    };
    interfaces
        .iter()
        .filter(|interface| interface.up && interface.running)
        .filter_map(|interface| Some((rank(interface)?, to_network(interface)?)))
        .min_by_key(|(rank, _)| *rank)
        .map(|(_, network)| network)
        .unwrap_or_else(|| Network {
            interface: None,
            over: None,
            addr: IpAddr::V4(Ipv4Addr::LOCALHOST),
            prefix_len: 8,
        })
}

fn to_network(interface: &Interface) -> Option<Network> {
    let v4 = interface
        .networks
        .iter()
        .find(|network| network.addr.is_ipv4());
    let global_v6 = || {
        interface.networks.iter().find(
            |network| matches!(network.addr, IpAddr::V6(addr) if !addr.is_unicast_link_local()),
        )
    };
    let network = v4.or_else(global_v6)?;
    let is_ethernet = interface.mac.is_some() && !interface.loopback;
    Some(Network {
        interface: is_ethernet.then(|| interface.clone()),
        over: Some(interface.clone()),
        addr: network.addr,
        prefix_len: network.prefix_len,
    })
}

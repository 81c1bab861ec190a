// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens the links of a plan, with the wrappers that the settings request.

use super::{Plan, Raw};
use crate::checksum;
use crate::error::Error;
use crate::launch::Job;
use crate::links::{AnyLink, Links, RawBy};
use crate::streams::Streams;
use portolan_link::die::Die;
use portolan_link::fault::Fault;
use portolan_link::packet::{InterfaceRef, Packet, PacketConfig};
use portolan_link::pcap::Pcap;
use portolan_link::shm::{Shm, ShmConfig};
use portolan_link::udp::{Udp, UdpConfig};
use portolan_link::xdp::{Xdp, XdpConfig};
use portolan_link::{Link, LinkAddr, LinkKind};
use portolan_proto::{LinkId, StreamUse};
use portolan_wire::CheckedFrame;

impl Plan {
    /// Returns whether the settings request wrappers of network links.
    fn has_wrappers(&self) -> bool {
        self.pcap.is_some() || self.die.is_some() || self.fault.is_some()
    }
}

impl Links {
    /// Opens the links of `plan`. An optional link may fail without an error.
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
        let (Some(network), Some(usable)) = (&plan.network, &plan.usable) else {
            return Ok(links);
        };
        let mut config = UdpConfig::new(usable.bind);
        (config.also, config.mtu) = (usable.also, usable.mtu);
        config.frame_len_max = plan.frame_len_max;
        config.ports = plan.ports;
        config.datagram_len = Some(CheckedFrame::datagram_len);
        let mut udp = Udp::open(&config)?;
        if plan.stream != StreamUse::Off {
            let lends = plan.checksum.may_lend(&usable.over);
            let sums = plan.checksum.is_on_for(LinkKind::Udp);
            links.streams = Streams::open(&mut udp, &config, lends, sums)?;
        }
        let LinkAddr::Udp { socket } = udp.local_addr() else {
            return Ok(links);
        };
        let checksum = |kind| plan.checksum.is_on_for(kind);
        let second = plan.has_second.then(|| Udp::open(&config));
        let second = second.and_then(|opened| {
            let unopened = |error: &_| log::info!("without a second network: {error}");
            opened.inspect_err(unopened).ok()
        });
        for (id, udp) in [(LinkId::UDP, Some(udp)), (LinkId::UDP2, second)] {
            let Some(udp) = udp else { continue };
            let link = match plan.has_wrappers() {
                true => AnyLink::Other(wrap(id, udp, plan, job)?),
                false => AnyLink::Udp(Box::new(udp)),
            };
            links.add(id, checksum(LinkKind::Udp), link);
        }
        if let (Some(raw), Some(interface)) = (plan.raw, &network.interface)
            && let Some(link) = links.open_raw(raw, interface.index, socket.port(), plan, job)?
        {
            let checksum = checksum(link.as_dyn().caps().kind);
            links.add(LinkId::PACKET, checksum, link);
        }
        Ok(links)
    }

    /// Opens the link for raw Ethernet frames. Returns none if it is optional and cannot be opened.
    fn open_raw(
        &mut self,
        raw: Raw,
        interface: u32,
        endpoint: u16,
        plan: &Plan,
        job: &Job,
    ) -> Result<Option<AnyLink>, Error> {
        let reference = InterfaceRef::Index(interface);
        let is_required = match raw {
            Raw::Xdp(mode) => {
                let mut config = XdpConfig::new(reference, endpoint);
                config.mode = mode;
                let xdp = Xdp::open(&config)?;
                self.raw_by = Some(RawBy::Xdp(mode));
                return Ok(Some(AnyLink::Other(wrap(LinkId::PACKET, xdp, plan, job)?)));
            }
            Raw::Packet { is_required } => is_required,
        };
        let mut config = PacketConfig::new(reference, endpoint);
        config.broker.clone_from(&plan.broker);
        match Packet::open(&config) {
            Ok(packet) => {
                self.raw_by = packet.is_leased().then_some(RawBy::Broker);
                Ok(Some(match plan.has_wrappers() {
                    true => AnyLink::Other(wrap(LinkId::PACKET, packet, plan, job)?),
                    false => AnyLink::Packet(Box::new(packet)),
                }))
            }
            Err(error) if is_required => Err(error.into()),
            Err(error) => {
                log::info!("without raw Ethernet frames: {error}");
                Ok(None)
            }
        }
    }
}

/// Adds the wrappers that the settings request to a network link.
fn wrap<L: Link + Send + 'static>(
    id: LinkId,
    link: L,
    plan: &Plan,
    job: &Job,
) -> Result<Box<dyn Link + Send>, Error> {
    let kind = link.caps().kind;
    let name = match id {
        LinkId::UDP2 => id.to_string(),
        _ => kind.to_string(),
    };
    let mut boxed: Box<dyn Link + Send> = Box::new(link);
    if let Some(path) = &plan.pcap {
        let path = path.with_extension(format!("{name}.pcap"));
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
        // Each process and link has other random faults, all from one seed.
        let mut spec = *fault;
        spec.seed = spec
            .seed
            .wrapping_add(u64::from(job.rank) << 8)
            .wrapping_add(u64::from(id == LinkId::UDP2) << 4)
            .wrapping_add(kind as u64);
        boxed = Box::new(Fault::new(boxed, spec).spoiling(checksum::corrupt));
    }
    Ok(boxed)
}

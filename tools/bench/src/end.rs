// SPDX-License-Identifier: MIT OR Apache-2.0
//! One end of a bare row.

use crate::control::{Offer, Wire};
use crate::cpu::Meter;
use crate::extra::Account;
use crate::measure::{Pass, Sample, drive};
use crate::place::{Place, pin};
use crate::rows;
use crate::spec::{Program, Role, Spec};
use crate::spin_wait::SpinWait;
use crate::sys::SharedMap;
use anyhow::{Context, Result, bail};
use std::fs::File;

/// State of an end during its work.
pub(crate) struct End {
    /// Work of this end.
    pub(crate) spec: Spec,
    /// Processor time of a receiver; empty if the row does not measure it.
    pub(crate) meter: Meter,
    wire: Wire,
}

impl End {
    /// Moves to the end's host and core, does its work and reports over `wire`.
    ///
    /// # Errors
    /// The command that waits for the report has exited.
    pub(crate) fn work(spec: Spec, wire: Wire) -> Result<()> {
        let mut end = End {
            spec,
            meter: Meter::default(),
            wire,
        };
        let outcome = end.run();
        let account = Account {
            cpu_s_per_gb: end.meter.s_per_gb(),
            ..Account::default()
        };
        end.wire.report(outcome, account)
    }

    fn run(&mut self) -> Result<Option<Sample>> {
        let here = self.here();
        here.enter()
            .with_context(|| format!("cannot enter {here:?}"))?;
        if let Some(cores) = self.spec.cores {
            let cpu = cores[self.spec.role.index()];
            pin(cpu).with_context(|| format!("cannot pin to core {cpu}"))?;
        }
        match self.spec.program {
            Program::ShmPingpong(lines) => rows::shm_pingpong::run(self, lines),
            Program::ShmStream(copying) => rows::shm_stream::run(self, copying),
            Program::ShmRate(publish) => rows::shm_rate::run(self, publish),
            Program::PacketPingpong(intake) => rows::pingpong::packet(self, intake),
            Program::XdpPingpong(hook) => rows::pingpong::xdp(self, hook),
            Program::XdpLinkPingpong(hook) => rows::xdp_link::pingpong(self, hook),
            Program::UdpPingpong(aim) => rows::pingpong::udp(self, aim),
            Program::TcpPingpong => rows::pingpong::tcp(self),
            Program::PacketFlow(payload) => rows::flow::packet(self, payload),
            Program::UdpFlow(payload) => rows::flow::udp(self, payload),
            Program::UdpStream(gather, scatter) => rows::udp_stream::run(self, gather, scatter),
            Program::TcpStream(wait) => rows::tcp::stream(self, wait),
            Program::TcpZeroCopy => rows::tcp_zero_copy::run(self),
            Program::TcpGoodput(_) => rows::tcp_goodput::run(self),
            Program::TcpLoaded(chunk) => rows::tcp_loaded::run(self, chunk),
            Program::TcpRate(writes) => rows::tcp::rate(self, writes),
            Program::TcpBidir(chunk) => rows::tcp_bidir::run(self, chunk),
            Program::TcpLogp => rows::logp::tcp(self),
            Program::UdpLogp => rows::logp::udp(self),
            Program::PacketLogp => rows::logp::packet(self),
            Program::Competitor(competitor, metric, path) => {
                rows::competitor::run(self, competitor, (metric, path))
            }
            Program::Portolan(..) | Program::Interface(..) | Program::Mpi(..) => {
                bail!("this row is run by the launcher")
            }
        }
    }

    /// Returns true if this end measures.
    pub(crate) fn drives(&self) -> bool {
        self.spec.role == Role::Driver
    }

    /// Returns this end's host.
    pub(crate) fn here(&self) -> Place {
        self.spec.hosts[self.spec.role.index()].clone()
    }

    /// Returns the other end's host.
    pub(crate) fn there(&self) -> Place {
        self.spec.hosts[self.spec.role.peer().index()].clone()
    }

    /// Creates a new [`SpinWait`]. It yields if the ends do not have a core each.
    pub(crate) fn spin_wait(&self) -> SpinWait {
        SpinWait::new(self.spec.cores.is_none())
    }

    /// Sends `offer` to the other end and returns that end's offer.
    pub(crate) fn exchange(&mut self, offer: &Offer) -> Result<Offer> {
        self.wire.exchange(offer)
    }

    /// Maps the memory that both ends share, then synchronizes their start.
    ///
    /// # Errors
    /// The memory was not created or cannot be mapped.
    pub(crate) fn shared(&mut self) -> Result<SharedMap> {
        let path = self
            .spec
            .shared
            .as_ref()
            .context("no shared memory was created for this row")?;
        let file = File::options().read(true).write(true).open(path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        SharedMap::new(&file).context("cannot map the shared memory")
    }

    /// Measures `pass` for the requested time or count.
    pub(crate) fn measure(
        &self,
        shape: Pass,
        pass: impl FnMut(bool) -> Result<()>,
    ) -> Result<Option<Sample>> {
        drive(self.spec.pace, shape, pass).map(Some)
    }
}

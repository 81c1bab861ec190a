// SPDX-License-Identifier: MIT OR Apache-2.0
//! Validation of a client's requests. The server accepts the work, duration and size of a row
//! within bounds. The client never chooses the host, program or files.

use super::host;
use crate::args::{Metric, Path, SIZE_MAX};
use crate::conditions::Conditions;
use crate::measure::Pace;
use crate::place::{Place, pick_cores};
use crate::spec::{Program, Role, Spec};
use std::net::IpAddr;

/// Maximum seconds of a row, the limit of `--seconds`.
const SECONDS_MAX: f64 = 3600.0;

/// Valid MTUs of IP.
const MTUS: std::ops::RangeInclusive<usize> = 576..=65_535;

/// Process of a row's end at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A separate process.
    Bare,
    /// A rank of a job.
    Rank,
}

/// Returns the answering end of the row `requested` at `here`, for a client at `client`.
///
/// # Errors
/// A sentence with the reason for the refusal.
pub(crate) fn admit(
    requested: &Spec,
    kind: Kind,
    client: IpAddr,
    here: &Place,
) -> Result<Spec, &'static str> {
    if kind_of(requested.program)? != kind {
        return Err(
            "a Portolan row runs a rank at the server, any other row a process: use the same version \
             on both hosts",
        );
    }
    let Conditions {
        broker,
        loss_ppm,
        interfere,
        ..
    } = requested.conditions;
    if loss_ppm > 0 {
        return Err("a server cannot drop frames: measure --loss in a lab, without --client");
    }
    if interfere > 0 {
        return Err(
            "a server cannot send foreign datagrams: measure --interfere in a lab, without --client",
        );
    }
    if broker {
        return Err("a server cannot start a broker: measure --broker in a lab, without --client");
    }
    let lasts = match requested.pace {
        Pace::Seconds(seconds) => seconds > 0.0 && seconds <= SECONDS_MAX,
        // The end itself limits this time.
        Pace::Iterations(count) => count > 0,
    };
    if !lasts {
        return Err(
            "a row lasts more than 0 and at most 3600 seconds: choose --seconds or --iterations accordingly",
        );
    }
    if requested.size > SIZE_MAX {
        return Err("a message has at most 1 GiB: choose a smaller --size");
    }
    if !MTUS.contains(&requested.mtu) {
        return Err(
            "the smaller MTU of the two hosts is outside 576 to 65535: change the MTU of their interfaces",
        );
    }
    Ok(Spec {
        role: Role::Answerer,
        cores: pick_cores(),
        hosts: [host::elsewhere(client, ""), here.clone()],
        senders: 0,
        program_file: None,
        shared: None,
        result: None,
        ..requested.clone()
    })
}

fn kind_of(program: Program) -> Result<Kind, &'static str> {
    match program {
        Program::Portolan(Metric::Incast, _) => {
            Err("an incast has more than two hosts: measure it in a lab, without --client")
        }
        Program::Portolan(_, path) | Program::Interface(_, _, path) if path != Path::Shm => {
            Ok(Kind::Rank)
        }
        Program::Portolan(..)
        | Program::Interface(..)
        | Program::ShmPingpong(_)
        | Program::ShmStream(_)
        | Program::ShmRate(_)
        | Program::Competitor(_, _, Path::Shm) => {
            Err("rows over shared memory need a single host: measure --path shm without --client")
        }
        Program::Mpi(..) => Err("rows of MPI programs need a lab: measure --mpi without --client"),
        Program::Competitor(..)
        | Program::PacketPingpong(_)
        | Program::XdpPingpong(_)
        | Program::XdpLinkPingpong(_)
        | Program::PacketFlow(_)
        | Program::UdpPingpong(_)
        | Program::UdpStream(..)
        | Program::UdpFlow(_)
        | Program::TcpPingpong
        | Program::TcpStream(_)
        | Program::TcpZeroCopy
        | Program::TcpGoodput(_)
        | Program::TcpRate(_)
        | Program::TcpLoaded(_)
        | Program::TcpBidir(_)
        | Program::TcpLogp
        | Program::UdpLogp
        | Program::PacketLogp => Ok(Kind::Bare),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Lines;
    use crate::tests::spec;
    use std::path::PathBuf;

    fn admitted(requested: &Spec, kind: Kind) -> Result<Spec, &'static str> {
        let client = IpAddr::from([10, 0, 0, 2]);
        admit(requested, kind, client, &Place::loopback())
    }

    #[test]
    fn client_cannot_choose_files_namespaces_or_roles() {
        let mut requested = spec(Program::TcpPingpong, 64);
        requested.shared = Some(PathBuf::from("/etc/passwd"));
        requested.program_file = Some(PathBuf::from("/bin/sh"));
        requested.result = Some(PathBuf::from("/etc/passwd"));
        requested.hosts[1].netns = Some("another-netns".into());
        requested.hosts[1].addr = IpAddr::from([1, 2, 3, 4]);
        let spec = admitted(&requested, Kind::Bare).expect("a row");
        assert_eq!(
            (spec.shared, spec.result, spec.program_file),
            (None, None, None)
        );
        assert_eq!((spec.role, spec.size), (Role::Answerer, 64));
        assert_eq!(spec.hosts[1], Place::loopback());
        assert_eq!(spec.hosts[0].addr, IpAddr::from([10, 0, 0, 2]));
    }

    #[test]
    fn local_rows_are_rejected() {
        for program in [
            Program::ShmPingpong(Lines::One),
            Program::Portolan(Metric::Pingpong, Path::Shm),
            Program::Portolan(Metric::Incast, Path::Udp),
        ] {
            for kind in [Kind::Bare, Kind::Rank] {
                assert!(admitted(&spec(program, 64), kind).is_err(), "{program:?}");
            }
        }
        let portolan = spec(Program::Portolan(Metric::Pingpong, Path::Udp), 64);
        assert!(admitted(&portolan, Kind::Rank).is_ok());
        assert!(admitted(&portolan, Kind::Bare).is_err());
    }

    #[test]
    fn out_of_bounds_requests_are_rejected() {
        let good = spec(Program::TcpPingpong, 64);
        let long = Spec {
            pace: Pace::Seconds(1e9),
            ..good.clone()
        };
        let never = Spec {
            pace: Pace::Seconds(f64::NAN),
            ..good.clone()
        };
        let large = Spec {
            size: SIZE_MAX + 1,
            ..good.clone()
        };
        let mut lossy = good.clone();
        lossy.conditions.loss_ppm = 1;
        let narrow = Spec {
            mtu: 68,
            ..good.clone()
        };
        for (bad, cause) in [
            (long, "3600 seconds"),
            (never, "3600 seconds"),
            (large, "1 GiB"),
            (narrow, "MTU"),
            (lossy, "loss"),
        ] {
            let why = admitted(&bad, Kind::Bare).expect_err("it is out of bounds");
            assert!(why.contains(cause), "{why}");
        }
        assert!(admitted(&good, Kind::Bare).is_ok());
    }
}

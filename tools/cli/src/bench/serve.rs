// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan bench --server`: the part that needs agents.
//!
//! An agent obeys every order and starts any program. The server therefore does not forward a
//! client's start order, but builds a new one from [`ServedRank`]. Only the job's numbers, secret
//! and size come from the client.

use crate::error::UserError;
use crate::launch_io::{self, LineSource};
use crate::launcher;
use crate::output::outln;
use crate::run::Workload;
use crate::run::wire::{OWN_PROGRAM, Order, Start};
use anyhow::{Context, Result, bail};
use nix::poll::PollFlags;
use portolan_bench::{BenchArgs, Hosting, ServedRank};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// Rank of the server's end of the job, which has two ranks.
const RANK: u32 = 1;
const SIZE: u32 = 2;

/// Interval between checks for the end of the agent; the client usually detects it earlier.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Time for an agent to end its rank after its input was closed.
const END_DELAY: Duration = Duration::from_secs(2);

/// Interval between checks for the end of the agent during [`END_DELAY`].
const END_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Serves clients until a signal ends this process.
///
/// # Errors
/// The server cannot listen.
pub(super) fn run(args: &BenchArgs) -> Result<()> {
    portolan_bench::serve(args, &Agents)
        .map_err(|error| UserError::new(format!("{error:#}")).into())
}

struct Agents;

impl Hosting for Agents {
    fn log(&self, line: &str) {
        // The log is optional: a closed output does not stop the server.
        let _ = outln!("portolan bench: {line}");
    }

    fn serve_rank(&self, rank: &ServedRank, connection: TcpStream) -> Result<()> {
        let mut agent = Agent::start(&connection)?;
        let served = agent.serve(rank, &connection);
        agent.end();
        // The agent has closed its own descriptor of the connection, so that the client sees the
        // end.
        let _ = connection.shutdown(Shutdown::Both);
        served
    }
}

struct Agent {
    child: Child,
    orders: Option<ChildStdin>,
}

impl Agent {
    /// Starts an agent that writes its reports to `connection`.
    fn start(connection: &TcpStream) -> Result<Agent> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("agent")
            .stdin(Stdio::piped())
            .stdout(Stdio::from(OwnedFd::from(connection.try_clone()?)))
            .process_group(0);
        portolan_sys::inherit::die_with_parent(&mut command, libc::SIGTERM);
        let mut child = command.spawn().context("cannot start an agent")?;
        let orders = child.stdin.take();
        Ok(Agent { child, orders })
    }

    /// Forwards orders until the connection closes, the agent ends or the time limit passes.
    fn serve(&mut self, rank: &ServedRank, connection: &TcpStream) -> Result<()> {
        let mut source = LineSource::new(OwnedFd::from(connection.try_clone()?))?;
        let deadline = Instant::now() + rank.limit;
        let mut has_started = false;
        while self.child.try_wait()?.is_none() && Instant::now() < deadline {
            let Some(fd) = source.fd() else { break };
            launch_io::wait(
                &[((), fd, PollFlags::POLLIN)],
                Some(Instant::now() + POLL_INTERVAL),
            )?;
            source.fill();
            while let Some(line) = source.next_line() {
                let order = serde_json::from_slice(line).context("reading a client's order")?;
                let order = check_order(order, rank, has_started)?;
                has_started = true;
                self.order(&order)?;
            }
        }
        Ok(())
    }

    /// Writes an order to the agent. It never blocks: an order is far shorter than a pipe
    /// (pipe(7)).
    fn order(&mut self, order: &Order) -> Result<()> {
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        let orders = self
            .orders
            .as_mut()
            .context("the agent's input is closed")?;
        orders.write_all(&line).context("the agent has ended")
    }

    /// Closes the agent's input, which ends the agent and its rank, and waits for the end.
    fn end(&mut self) {
        self.orders = None;
        let deadline = Instant::now() + END_DELAY;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                // This fails only if the agent has ended.
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
            std::thread::sleep(END_POLL_INTERVAL);
        }
    }
}

/// Returns the order to give to the agent for the client's `order`.
fn check_order(order: Order, rank: &ServedRank, has_started: bool) -> Result<Order> {
    match order {
        Order::Start(start) if !has_started => {
            Ok(Order::Start(Box::new(rebuild_start(&start, rank)?)))
        }
        Order::Start(_) => bail!("a client sent a second start order"),
        _ if !has_started => bail!("a client sent an order before the start order"),
        order => Ok(order),
    }
}

fn rebuild_start(start: &Start, rank: &ServedRank) -> Result<Start> {
    if start.size != SIZE || start.ranks != [RANK] {
        bail!("a client ordered ranks other than rank 1 of 2");
    }
    Ok(Start {
        version: start.version,
        job_id: start.job_id,
        secret: start.secret,
        size: SIZE,
        host_count: SIZE,
        // Used only in messages of the process on this host.
        host: "the server".into(),
        ranks: vec![RANK],
        rivals: 1,
        workload: Workload {
            path: launcher::path_choice(rank.path),
            options: rank.options.clone(),
            environment: BTreeMap::new(),
            directory: "/".into(),
            program: OWN_PROGRAM.into(),
            args: rank.args.clone(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan::binding::launch::PathChoice;
    use portolan_bench::Path;

    fn rank() -> ServedRank {
        ServedRank {
            args: vec!["bench-worker".into()],
            path: Path::Udp,
            options: BTreeMap::new(),
            limit: Duration::from_secs(1),
        }
    }

    fn client_start(ranks: &[u32]) -> Order {
        let workload = Workload {
            path: PathChoice::Auto,
            options: BTreeMap::from([("pcap".into(), "/etc".into())]),
            environment: BTreeMap::from([("LD_PRELOAD".into(), "/tmp/evil.so".into())]),
            directory: "/root".into(),
            program: "/bin/sh".into(),
            args: vec!["-c".into(), "reboot".into()],
        };
        Order::Start(Box::new(Start {
            version: 7,
            job_id: [1; 16],
            secret: [2; 32],
            size: 2,
            host_count: 1,
            host: "x".into(),
            ranks: ranks.to_vec(),
            rivals: 9,
            workload,
        }))
    }

    #[test]
    fn client_program_and_settings_are_ignored() {
        let Order::Start(start) = check_order(client_start(&[1]), &rank(), false).unwrap() else {
            panic!("a start order remains one");
        };
        assert_eq!((start.secret, start.version), ([2; 32], 7));
        let work = start.workload;
        assert_eq!(
            (work.program.as_str(), &work.args),
            (OWN_PROGRAM, &rank().args)
        );
        assert!(work.environment.is_empty() && work.options.is_empty());
        assert_eq!(work.directory, "/");
    }

    #[test]
    fn invalid_client_orders_are_errors() {
        assert!(check_order(client_start(&[]), &rank(), false).is_err());
        assert!(check_order(client_start(&[0, 1]), &rank(), false).is_err());
        assert!(check_order(client_start(&[1]), &rank(), true).is_err());
        let early = Order::Signal { signal: 9 };
        assert!(check_order(early, &rank(), false).is_err());
    }
}

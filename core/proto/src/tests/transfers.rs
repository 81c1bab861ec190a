// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bulk data continues to its end, however little the receiver can buffer.

use super::pair::*;
use crate::*;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

const PORT: PortId = PortId::user(5);
const LOW: SendSpec = SendSpec {
    to: Address::Port(PORT),
    lane: LaneId::Low,
    best_effort: false,
};

#[test]
fn partial_fragment_grant_does_not_hold_budget() {
    let mut pair = Pair::new(&[LinkId::UDP], 1);
    pair.run(Duration::from_millis(50));
    // Minimum budget: one quantum.
    pair.ends[1]
        .core
        .shared_mut()
        .transfers
        .set_budget(LinkId::UDP, 0);
    for _ in 0..2 {
        pair.ends[1].post(PORT, 300_000, None);
        pair.ends[0].send(B, &LOW, &vec![7; 300_000]).unwrap();
    }
    pair.run(Duration::from_millis(50));
    assert_eq!(pair.ends[1].got.len(), 2);
    pair.assert_clean();
}

/// Returns the first byte and the length of each message that the second end has received.
fn got(pair: &Pair) -> Vec<(u8, usize)> {
    let got = pair.ends[1].got.iter();
    got.map(|message| (message.bytes[0], message.bytes.len()))
        .collect()
}

// P4.7, P5.2
#[test]
fn requests_that_waited_are_granted_together_and_delivered_in_order() {
    let mut pair = Pair::new(&[LinkId::UDP], 7);
    pair.run(Duration::from_millis(50));
    let lens = [300_000, 40, 200_000, 150_000, 50, 60];
    for (number, len) in (0_u8..).zip(lens) {
        pair.ends[0].send(B, &LOW, &vec![number; len]).unwrap();
    }
    pair.run(Duration::from_millis(50));
    for _ in 0..lens.len() {
        pair.ends[1].post(PORT, 300_000, None);
    }
    // Only the first request: the next ones are behind a complete message, which is delivered first.
    assert_eq!(pair.ends[1].core.transfer_count(), 1);
    pair.faults.drop = 0.2;
    pair.run(Duration::from_millis(500));
    pair.faults.drop = 0.0;
    pair.run(Duration::from_millis(50));
    assert_eq!(got(&pair), (0..).zip(lens).collect::<Vec<_>>());
    pair.assert_clean();
}

// P4.7
#[test]
fn later_transfer_that_completes_first_is_delivered_in_its_turn() {
    let mut waited = 0;
    for seed in 0..20 {
        let mut pair = Pair::new(&[LinkId::UDP], seed);
        pair.run(Duration::from_millis(50));
        let lens = [900_000, 70_000, 80_000, 600_000, 90_000];
        for (number, len) in (0_u8..).zip(lens) {
            pair.ends[0].send(B, &LOW, &vec![number; len]).unwrap();
        }
        pair.run(Duration::from_millis(50));
        for _ in 0..lens.len() {
            pair.ends[1].post(PORT, 900_000, None);
        }
        assert_eq!(pair.ends[1].core.transfer_count(), lens.len());
        // The transfers with the fewest bytes left are granted first.
        pair.faults.drop = 0.1;
        while pair.ends[1].core.transfer_count() == lens.len() {
            let until = pair.now + Duration::from_micros(20);
            pair.run(Duration::from_micros(20));
            // Nothing may happen until then.
            pair.now = pair.now.max(until);
        }
        waited += usize::from(pair.ends[1].got.is_empty());
        pair.faults.drop = 0.0;
        pair.run(Duration::from_millis(500));
        assert_eq!(got(&pair), (0..).zip(lens).collect::<Vec<_>>());
        pair.assert_clean();
    }
    assert!(waited > 0, "the first transfer always completed first");
}

// P9.7
#[test]
fn message_behind_an_incomplete_one_fails_with_its_sender() {
    let mut pair = Pair::new(&[LinkId::UDP], 3);
    pair.run(Duration::from_millis(50));
    for len in [900_000, 70_000] {
        pair.ends[0].send(B, &LOW, &vec![1; len]).unwrap();
    }
    pair.run(Duration::from_millis(50));
    for _ in 0..2 {
        pair.ends[1].post(PORT, 900_000, None);
    }
    while pair.ends[1].core.transfer_count() == 2 {
        pair.run(Duration::from_micros(20));
    }
    pair.ends[1].core.fail_peer(A, Cause::ProcessExited);
    pair.ends[1].drain(&[]);
    assert!(pair.ends[1].got.is_empty());
    let is_receive = |event: &&Event| matches!(event, Event::RecvFailed { .. });
    assert_eq!(pair.ends[1].failed.iter().filter(is_receive).count(), 2);
}

// P5.11
#[test]
fn lost_grant_is_repeated_with_an_acknowledgement() {
    let mut pair = Pair::new(&[LinkId::UDP], 4);
    pair.run(Duration::from_millis(50));
    let len: usize = 700_001;
    pair.ends[1].post(PORT, len, None);
    pair.ends[0].send(B, &LOW, &vec![7; len]).unwrap();
    // The request contains the length as well: it is in flight before frames with it are lost.
    pair.run(Duration::from_micros(1));
    pair.swallow = Some((len as u64).to_le_bytes().to_vec());
    pair.run(Duration::from_millis(50));
    assert_eq!(pair.ends[1].got.len(), 1);
    pair.swallow = None;
    pair.run(Duration::from_millis(50));
    pair.assert_clean();
}

// P5.10
#[test]
fn overtaken_transfer_frees_its_budget() {
    let mut pair = Pair::new(&[LinkId::UDP], 5);
    pair.run(Duration::from_millis(50));
    pair.ends[1]
        .core
        .shared_mut()
        .transfers
        .set_budget(LinkId::UDP, 0);
    pair.ends[1].post(PORT, 300_000, None);
    pair.ends[0].send(B, &LOW, &vec![7; 300_000]).unwrap();
    // The request and its grant arrive; then every second fragment is lost.
    pair.run(pair.latency + Duration::from_micros(1));
    pair.faults.drop = 0.5;
    pair.run(pair.latency * 6);
    pair.faults.drop = 0.0;
    let (granted, frontier, received) = pair.ends[1].core.shared_mut().transfers.first_rx();
    assert!(frontier > received, "nothing was overtaken");
    let missing = granted - received;
    assert!(missing > 65_536, "{missing} bytes granted and not here");
    pair.run(Duration::from_millis(50));
    assert_eq!(pair.ends[1].got.len(), 1);
    pair.assert_clean();
}

#[test]
fn credit_waits_for_room_in_the_window() {
    let mut pair = Pair::new(&[LinkId::UDP], 2);
    pair.run(Duration::from_millis(50));
    path(&mut pair, 0, 1).set_windows(2);
    path(&mut pair, 1, 0).set_windows(2);
    pair.ends[0].core.open_port(PORT, PortMode::InPlace);
    // Two lost frames fill the window until the loss is detected.
    pair.dead = Some(LinkId::UDP);
    pair.ends[0].send(B, &LOW, &[1; 5000]).unwrap();
    pair.run(Duration::from_micros(1));
    pair.dead = None;
    // A quarter of the credit, which is returned meanwhile.
    for _ in 0..64 {
        pair.ends[1].send(A, &LOW, &[1; 1000]).unwrap();
    }
    pair.run(Duration::from_millis(50));
    assert_eq!(pair.ends[0].got.len(), 64);
    assert_eq!(
        pair.ends[1].core.counters().drops(DropReason::BeyondWindow),
        0
    );
}

// P3.3
#[test]
fn lost_frame_does_not_block_later_ones() {
    let mut pair = Pair::new(&[LinkId::UDP], 2);
    pair.run(Duration::from_millis(50));
    path(&mut pair, 0, 1).set_windows(16);
    path(&mut pair, 1, 0).set_windows(16);
    pair.ends[1].post(PORT, 300_000, None);
    pair.faults.drop = 0.05;
    pair.ends[0].send(B, &LOW, &vec![7; 300_000]).unwrap();
    let mut span = 0;
    for _ in 0..2000 {
        let until = pair.now + Duration::from_micros(50);
        pair.run(Duration::from_micros(50));
        // Nothing may happen until then.
        pair.now = pair.now.max(until);
        let path = path(&mut pair, 0, 1);
        let (in_flight, unacked) = path.frame_counts();
        assert!(in_flight <= 16, "{in_flight} frames in flight");
        span = span.max(unacked);
    }
    assert!((17..=64).contains(&span), "{span} numbers in use");
    assert_eq!(pair.ends[1].got.len(), 1);
    let dropped = pair.ends[1].core.counters().drops(DropReason::BeyondWindow);
    assert_eq!(dropped, 0);
    pair.assert_clean();
}

fn path(pair: &mut Pair, rank: usize, peer: usize) -> &mut crate::path::Path {
    let peer = pair.ends[rank]
        .core
        .peer_mut(PeerId(u32::try_from(peer).unwrap()));
    peer.paths_mut().get_mut(LinkId::UDP).unwrap()
}

#[test]
fn transfer_stays_on_the_path_of_its_fragment_length() {
    let mut pair = Pair::new(&[LinkId::UDP, LinkId::PACKET], 3);
    pair.dead = Some(LinkId::UDP);
    pair.run(Duration::from_millis(100));
    pair.ends[0].send(B, &LOW, &vec![7; 300_000]).unwrap();
    pair.run(Duration::from_micros(100));
    pair.dead = None;
    pair.run(Duration::from_millis(100));
    // Bulk data would now use the other path, which has shorter frames.
    assert!(pair.ends[0].core.path_status(B, LinkId::UDP).unwrap().bulk);
    pair.ends[1].post(PORT, 300_000, None);
    pair.run(Duration::from_millis(50));
    assert_eq!(pair.ends[1].got.len(), 1);
    pair.assert_clean();
}

/// Three processes on one wire without delay; payload is not checked.
struct Trio {
    cores: Vec<Core>,
    sends_done: Vec<usize>,
    got: Vec<usize>,
    /// Process that no longer sends or receives.
    dead: Option<usize>,
}

impl Trio {
    fn new() -> Trio {
        Trio::of(3, Limits::default())
    }

    /// Returns any number of processes.
    fn of(size: u32, limits: Limits) -> Trio {
        let cores = (0..size).map(|rank| {
            let config = Config {
                size,
                limits: limits.clone(),
                seed: [u8::try_from(rank).unwrap() + 1; 32],
                ..config(0, 100)
            };
            let config = Config { rank, ..config };
            let mut core = Core::new(config);
            core.add_link(LinkId::UDP, params(false));
            (0..size).for_each(|peer| core.allow(PeerId(peer), &[LinkId::UDP]));
            core
        });
        Trio {
            cores: cores.collect(),
            sends_done: vec![0; size as usize],
            got: vec![0; size as usize],
            dead: None,
        }
    }

    fn run(&mut self, now: Instant) {
        let dead = self.dead;
        loop {
            let mut frames = Vec::new();
            for from in (0..self.cores.len()).filter(|rank| dead != Some(*rank)) {
                self.drain(from);
                while let Some(transmit) = self.cores[from].poll_transmit(now) {
                    frames.extend(frames_of(&transmit));
                }
            }
            if frames.is_empty() {
                return;
            }
            for (to, frame) in frames.into_iter().filter(|(to, _)| dead != Some(*to)) {
                self.cores[to].handle_frame(now, LinkId::UDP, &frame);
                self.drain(to);
            }
        }
    }

    fn drain(&mut self, rank: usize) {
        while let Some(event) = self.cores[rank].poll_event() {
            match event {
                Event::SendDone { result: Ok(()), .. } => self.sends_done[rank] += 1,
                Event::Deliver { data, .. } => {
                    self.got[rank] += 1;
                    if let Data::Held(id) = data {
                        self.cores[rank].release(id);
                    }
                }
                _ => {}
            }
        }
    }

    fn pass(&mut self, now: &mut Instant, turns: usize) {
        for _ in 0..turns {
            *now = *now + Duration::from_micros(500);
            for core in &mut self.cores {
                core.handle_timeout(*now);
            }
            self.run(*now);
        }
    }
}

fn frames_of(transmit: &Transmit<'_>) -> Vec<(usize, Vec<u8>)> {
    match transmit {
        Transmit::Frame { peer, bytes, .. } => vec![(peer.index(), bytes.to_vec())],
        Transmit::Run {
            peer,
            bytes,
            more,
            segment_len,
            ..
        } => {
            let frames = bytes.chunks(*segment_len).chain(more.chunks(*segment_len));
            frames.map(|frame| (peer.index(), frame.to_vec())).collect()
        }
        Transmit::Message { .. } => panic!("no stream is open"),
        Transmit::Bulk {
            peer,
            payload,
            headers,
            header_len,
            fragment_len,
            ..
        } => {
            let payload = vec![0; payload.iter().map(|part| part.len).sum()];
            let parts = headers
                .chunks(*header_len)
                .zip(payload.chunks(*fragment_len));
            parts
                .map(|(header, part)| (peer.index(), [header, part].concat()))
                .collect()
        }
    }
}

#[test]
fn grants_of_a_failed_sender_are_reassigned() {
    let mut trio = Trio::new();
    let mut now = Instant::from_nanos(1);
    for peer in 0..2 {
        trio.cores[2].connect(now, PeerId(peer));
        trio.cores[2].post_recv(PORT, OpId(u64::from(peer)), 300_000, None);
    }
    trio.run(now);
    trio.cores[2]
        .shared_mut()
        .transfers
        .set_budget(LinkId::UDP, 0);
    let to = PeerId(2);
    trio.cores[0]
        .rendezvous(Instant::default(), to, &LOW, OpId(1), 300_000, 0)
        .unwrap();
    // The request arrives and is granted the whole budget; then the sender falls silent.
    let mut frames = Vec::new();
    while let Some(transmit) = trio.cores[0].poll_transmit(now) {
        frames.extend(frames_of(&transmit));
    }
    trio.dead = Some(0);
    for (to, frame) in frames {
        trio.cores[to].handle_frame(now, LinkId::UDP, &frame);
    }
    trio.cores[1]
        .rendezvous(Instant::default(), to, &LOW, OpId(1), 300_000, 0)
        .unwrap();
    for _ in 0..100 {
        now = now + Duration::from_micros(100);
        trio.cores
            .iter_mut()
            .for_each(|core| core.handle_timeout(now));
        trio.run(now);
    }
    assert_eq!(trio.sends_done, [0, 0, 0]);
    trio.cores[2].fail_peer(A, Cause::ProcessExited);
    for _ in 0..100 {
        now = now + Duration::from_micros(100);
        trio.cores
            .iter_mut()
            .for_each(|core| core.handle_timeout(now));
        trio.run(now);
    }
    assert_eq!(trio.sends_done, [0, 1, 0]);
}

// P4.4, P4.8
#[test]
fn open_transfers_hold_their_credit() {
    let mut pair = Pair::new(&[LinkId::UDP], 21);
    // Less than the cost of a window full of requests.
    pair.ends[1].core.shared_mut().ctx.limits_mut().credit_len = 264 * 1024;
    pair.run(Duration::from_millis(50));
    pair.ends[1].post(PORT, 100_000, None);
    for _ in 0..10_000 {
        pair.ends[1].post(PORT, 1, None);
    }
    // The first transfer is held up for less time than it takes to suspect the path. Those after it
    // are matched, and complete for their sender.
    pair.narrow = Some((LinkId::UDP, 1471));
    pair.ends[0].send(B, &LOW, &[1; 100_000]).unwrap();
    let mut accepted = 0;
    for _ in 0..400 {
        while accepted < 10_000 && pair.ends[0].send_rendezvous(B, &LOW, &[2]).is_ok() {
            accepted += 1;
        }
        pair.run(Duration::from_micros(100));
    }
    // 264 KiB of credit at 32 bytes each.
    assert_eq!(accepted, 8447);
    assert_eq!(pair.ends[1].got.len(), 0);
    pair.narrow = None;
    pair.run(Duration::from_secs(1));
    assert_eq!(pair.ends[1].got.len(), 8448);
    assert_eq!(
        pair.ends[1].core.counters().drops(DropReason::BeyondCredit),
        0
    );
    assert!(pair.ends[0].send_rendezvous(B, &LOW, &[2]).is_ok());
}

// P3.10
#[test]
fn unread_messages_of_many_peers_do_not_block_an_awaited_one() {
    const PEERS: u32 = 200;
    let limits = Limits {
        held_len_max: 1 << 20,
        ..Limits::default()
    };
    let mut trio = Trio::of(PEERS + 2, limits);
    let mut now = Instant::from_nanos(1);
    for rank in 1..PEERS + 2 {
        trio.cores[rank as usize].connect(now, A);
    }
    trio.pass(&mut now, 4);
    let mut accepted = 0;
    for _ in 0..8 {
        for rank in 1..=PEERS as usize {
            for _ in 0..200 {
                let staged = trio.cores[rank].eager(A, &LOW, 1);
                accepted += usize::from(staged.map(|mut staging| staging.push(b"x")).is_ok());
            }
        }
        trio.pass(&mut now, 2);
    }
    // Memory is full, and exceeds its limit by the reserves of the peers.
    let refused = trio.cores[0].counters().drops(DropReason::NoMemory);
    let held_len = trio.cores[0].usage().1;
    assert!(refused > 0);
    assert!((1 << 20..(1 << 20) + PEERS as usize * 128 * 1024).contains(&held_len));
    // One peer has sent nothing yet, to a port where the program waits. Another is one of the many,
    // and its next message in order finds a buffer.
    let awaited = SendSpec {
        to: Address::Port(PortId::user(6)),
        ..LOW
    };
    let last = PEERS as usize + 1;
    trio.cores[0].post_recv(PortId::user(6), OpId(1), 1, Some(PeerId(PEERS + 1)));
    let _ = trio.cores[last]
        .eager(A, &awaited, 1)
        .map(|mut staging| staging.push(b"y"));
    trio.pass(&mut now, 2);
    assert_eq!(trio.got[0], 1);
    // As the program reads, all of it arrives.
    trio.cores[0].open_port(PORT, PortMode::InPlace);
    for _ in 0..50 {
        if trio.got[0] == 1 + accepted {
            break;
        }
        trio.pass(&mut now, 10);
    }
    assert_eq!(trio.got[0], 1 + accepted);
    assert_eq!(trio.cores[0].usage().1, 0);
}

// P3.10
#[test]
fn full_memory_accepts_messages_with_a_buffer() {
    let limits = Limits {
        held_len_max: 1000,
        ..Limits::default()
    };
    let mut trio = Trio::of(3, limits);
    let mut now = Instant::from_nanos(1);
    trio.cores[1].connect(now, A);
    trio.pass(&mut now, 4);
    let spec = |port, lane| SendSpec {
        to: Address::Port(PortId::user(port)),
        lane,
        best_effort: false,
    };
    // Unread, and more than the reserve of a peer.
    let unread = spec(7, LaneId::Low);
    let staged = trio.cores[1].eager(A, &unread, 20_000);
    staged.unwrap().push(&[1; 20_000]);
    trio.run(now);
    assert_eq!(trio.cores[0].counters().drops(DropReason::NoMemory), 0);
    trio.cores[0].post_recv(PortId::user(8), OpId(1), 10, None);
    for port in [8, 7] {
        let staged = trio.cores[1].eager(A, &spec(port, LaneId::Low), 10);
        staged.unwrap().push(&[2; 10]);
        trio.run(now);
    }
    assert_eq!(trio.got[0], 1);
    assert_eq!(trio.cores[0].counters().drops(DropReason::NoMemory), 1);
    trio.cores[0].open_port(PortId::user(7), PortMode::InPlace);
    trio.pass(&mut now, 20);
    assert_eq!(trio.got[0], 3);
}

/// Sends one message of each length at once and returns the number of transmits.
fn transmits(choice: Choice, lens: &[usize]) -> u64 {
    let mut pair = Pair::new(&[LinkId::UDP], 3);
    pair.run(Duration::from_millis(50));
    pair.ends[0].core.choose(choice);
    pair.ends[1].core.open_port(PORT, PortMode::Posted);
    for &len in lens {
        pair.ends[1].post(PORT, len, None);
    }
    let before = pair.ends[0].core.counters().frames_sent;
    for &len in lens {
        pair.ends[0].send(B, &LOW, &vec![7; len]).unwrap();
    }
    pair.run(Duration::from_millis(50));
    assert_eq!(pair.ends[1].got.len(), lens.len());
    pair.assert_clean();
    pair.ends[0].core.counters().frames_sent - before
}

fn pieces(call_len: usize) -> Choice {
    let mut choice = Choice::default();
    choice.single[0] = SingleStep {
        message_len_max: u64::MAX,
        call_len,
    };
    choice
}

#[test]
fn single_message_is_sent_in_the_chosen_pieces() {
    for len in [30_000, 60_000] {
        let in_one_piece = transmits(Choice::default(), &[len]);
        let cut = transmits(pieces(8_000), &[len]);
        assert!(
            cut >= in_one_piece + 2,
            "{len} bytes: {in_one_piece} and {cut} calls"
        );
    }
}

#[test]
fn messages_with_successors_are_sent_in_one_piece() {
    // The first may be cut: nothing waits behind it yet.
    for len in [30_000, 60_000] {
        let in_one_piece = transmits(Choice::default(), &[len; 4]);
        let cut = transmits(pieces(8_000), &[len; 4]);
        let single = transmits(pieces(8_000), &[len]) - transmits(Choice::default(), &[len]);
        assert!(
            cut <= in_one_piece + single,
            "{len} bytes: {in_one_piece} and {cut} calls"
        );
    }
}

#[test]
fn choice_can_only_lower_the_eager_limit() {
    let mut pair = Pair::new(&[LinkId::UDP], 4);
    pair.run(Duration::from_millis(50));
    let core = &mut pair.ends[0].core;
    core.choose(Choice {
        eager_len_max: 4000,
        ..Choice::default()
    });
    assert_eq!(core.eager(B, &LOW, 5000).unwrap_err(), Refused::TooLong);
    core.choose(Choice::default());
    assert!(core.eager(B, &LOW, 5000).is_ok());
    assert_eq!(core.eager(B, &LOW, 65 << 10).unwrap_err(), Refused::TooLong);
}

#[test]
fn run_uses_the_small_message_path_up_to_the_chosen_length() {
    for (small_run_len_max, by_packet) in [(0, false), (4000, true)] {
        let mut pair = Pair::new(&[LinkId::UDP, LinkId::PACKET], 5);
        pair.ends[0].core.prefer(LinkId::PACKET);
        pair.run(Duration::from_millis(50));
        let core = &mut pair.ends[0].core;
        let status = |core: &Core, link| core.path_status(B, link).unwrap();
        let (small, bulk) = match status(core, LinkId::PACKET).small {
            true => (LinkId::PACKET, LinkId::UDP),
            false => (LinkId::UDP, LinkId::PACKET),
        };
        assert!(status(core, bulk).bulk && !status(core, small).bulk);
        core.choose(Choice {
            small_run_len_max,
            ..Choice::default()
        });
        let payload = vec![7; 4000];
        core.eager(B, &LOW, payload.len()).unwrap().push(&payload);
        let transmit = core.poll_transmit(Instant::default()).unwrap();
        let link = match transmit {
            Transmit::Frame { link, .. }
            | Transmit::Run { link, .. }
            | Transmit::Bulk { link, .. } => link,
            Transmit::Message { .. } => LinkId::STREAM,
        };
        assert_eq!(link == small, by_packet);
    }
}

/// Returns the next transmit's peer, and the length of its payload. Lets other peers go first after
/// a part, as the engine does.
fn next_in_turn(core: &mut Core, now: Instant) -> Option<(PeerId, usize)> {
    let transmit = core.poll_transmit(now)?;
    let (peer, len) = (
        transmit.destination().0,
        transmit.payload().iter().map(|part| part.len).sum(),
    );
    if len > 0 {
        core.yield_peer();
    }
    Some((peer, len))
}

// P15.4
#[test]
fn parts_are_short_and_alternate_beside_short_messages() {
    for is_latency_sensitive in [false, true] {
        let mut trio = Trio::new();
        let mut now = Instant::from_nanos(1);
        for peer in [1, 2] {
            trio.cores[peer].post_recv(PORT, OpId(7), 300_000, None);
            trio.cores[0].connect(now, PeerId(u32::try_from(peer).unwrap()));
        }
        trio.pass(&mut now, 4);
        for peer in [1, 2] {
            let op = OpId(u64::from(peer));
            trio.cores[0]
                .rendezvous(Instant::default(), PeerId(peer), &LOW, op, 300_000, 0)
                .unwrap();
        }
        // Requests are sent, and grants return.
        for from in [0, 1, 2] {
            let mut frames = Vec::new();
            while let Some(transmit) = trio.cores[from].poll_transmit(now) {
                frames.extend(frames_of(&transmit));
            }
            for (to, frame) in frames {
                trio.cores[to].handle_frame(now, LinkId::UDP, &frame);
                trio.drain(to);
            }
        }
        trio.cores[0].set_latency_sensitive(is_latency_sensitive);
        let sender = &mut trio.cores[0];
        let sent: Vec<_> = core::iter::from_fn(|| next_in_turn(sender, now)).collect();
        let parts: Vec<_> = sent.iter().filter(|(_, len)| *len > 0).collect();
        assert!(parts.len() >= 4, "{parts:?}");
        assert!(
            parts[..4].windows(2).all(|pair| pair[0].0 != pair[1].0),
            "{parts:?}"
        );
        let is_short = parts
            .iter()
            .all(|(_, len)| *len <= PART_LEN_MAX_LATENCY_SENSITIVE);
        assert_eq!(is_short, is_latency_sensitive, "{parts:?}");
    }
}

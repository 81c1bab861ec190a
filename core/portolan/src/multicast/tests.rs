// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a root and its members in virtual time, over a wire that loses, repeats and reorders
//! datagrams. Words are messages: they arrive late, but in order.

use super::control::Control;
use super::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const ID: Id = Id { group: 3, seq: 9 };
const ROOT: u32 = 0;
const PIECE_LEN: usize = 1400;

/// Faults of the wire.
#[derive(Clone, Copy, Debug, Default)]
struct Wire {
    loss: f64,
    repeat: f64,
    /// Maximum delay of a datagram. The minimum is 0, so datagrams overtake one another.
    delay: Duration,
    /// Set if the root's sends sometimes would block.
    is_narrow: bool,
}

struct Member {
    own: Multicasts,
    wire: Wire,
    /// Datagrams in flight, by arrival time and sending order.
    coming: BTreeMap<(Instant, u64), Vec<u8>>,
    /// Time at which the member joins.
    begins: Instant,
    has_begun: bool,
    is_dead: bool,
}

struct Net {
    random: ChaCha8Rng,
    now: Instant,
    root: Multicasts,
    members: BTreeMap<u32, Member>,
    announcement: Announcement,
    windows: BTreeMap<u32, u32>,
    message: Vec<u8>,
    wire: Wire,
    /// Sender, receiver and arrival time of each control message in flight.
    controls: Vec<(u32, u32, Instant, Vec<u8>)>,
    datagrams: usize,
    /// Number of datagrams sent, counted per member and repetition.
    order: u64,
    /// Number of `Sent` messages: one for each silence and member.
    silences: usize,
}

fn call(members: &Members, me: u32) -> Call<'_> {
    Call {
        id: ID,
        members,
        me,
        root: ROOT,
        own: Ipv4Addr::LOCALHOST,
    }
}

fn multicasts() -> Multicasts {
    Multicasts::new(&Job::alone([1; 16], [7; 32])).unwrap()
}

impl Net {
    /// Creates members with these windows. All begin at once, and the root has none of the windows
    /// yet.
    fn new(seed: u64, len: usize, windows: &[u32], wire: Wire) -> Net {
        println!("SEED={seed} {len} bytes, windows {windows:?}, {wire:?}");
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut message = vec![0; len];
        random.fill(&mut message[..]);
        let now = Instant::from_nanos(1_000_000_000);
        let ranks: Vec<u32> = (0..).take(windows.len() + 1).collect();
        let group = Members::new(ID.group, ranks.into());
        let mut root = multicasts();
        let announcement = Announcement {
            piece_len: u16::try_from(PIECE_LEN).unwrap(),
            window: u32::MAX,
            salt: [5; 16],
        };
        root.groups.entry(ID.group).or_default();
        let others = 1..=u32::try_from(windows.len()).unwrap();
        let codec = root.codec(&call(&group, ROOT), announcement.salt).unwrap();
        let unready = others.clone().collect();
        let buffer = Buffer::from(message.clone());
        let own = Root::new((codec, &announcement), buffer, others.clone(), unready, now);
        root.roots.insert(ID, own);
        let members = others.clone().map(|rank| {
            let member = Member {
                own: multicasts(),
                wire,
                coming: BTreeMap::new(),
                begins: now,
                has_begun: false,
                is_dead: false,
            };
            (rank, member)
        });
        Net {
            random,
            now,
            root,
            members: members.collect(),
            announcement,
            windows: others.zip(windows.iter().copied()).collect(),
            message,
            wire,
            controls: Vec::new(),
            datagrams: 0,
            order: 0,
            silences: 0,
        }
    }

    /// Lets a member receive the announcement and join.
    fn join(&mut self, rank: u32) {
        let ranks: Vec<u32> = (0..=u32::try_from(self.windows.len()).unwrap()).collect();
        let group = Members::new(ID.group, ranks.into());
        let member = self.members.get_mut(&rank).unwrap();
        let codec = member
            .own
            .codec(&call(&group, rank), self.announcement.salt);
        let window = self.windows[&rank];
        member
            .own
            .queue_control(ROOT, ID, &Control::Ready { window });
        let terms = Terms {
            piece_len: PIECE_LEN,
            window: u64::from(window.min(self.announcement.window)),
            serial: 0,
        };
        let buffer = Buffer::from(vec![0xa5; self.message.len()]);
        let receiver = Receiver::new(ROOT, codec.unwrap(), terms, buffer);
        member.own.receivers.insert(ID, receiver);
        member.has_begun = true;
    }

    fn delay(random: &mut ChaCha8Rng, most: Duration) -> Duration {
        let most = u64::try_from(most.as_nanos()).unwrap();
        Duration::from_nanos(random.random_range(0..=most))
    }

    /// Sends what is ready, like a turn of the root.
    fn cast(&mut self) -> usize {
        let Net {
            root,
            members,
            random,
            wire,
            now,
            datagrams,
            order,
            ..
        } = self;
        root.cast_by(ID, *now, |run| {
            if wire.is_narrow && random.random_bool(0.2) {
                return Ok(false);
            }
            run.drain(|datagram| {
                *datagrams += 1;
                for member in members.values_mut().filter(|member| member.has_begun) {
                    let count = match () {
                        () if random.random_bool(member.wire.loss) => 0,
                        () if random.random_bool(member.wire.repeat) => 2,
                        () => 1,
                    };
                    for _ in 0..count {
                        let at = *now + Net::delay(random, member.wire.delay);
                        *order += 1;
                        member.coming.insert((at, *order), datagram.to_vec());
                    }
                }
            });
            Ok(true)
        })
    }

    /// Delivers arrived datagrams to a member and returns the number of runs.
    fn receive(&mut self, rank: u32) -> usize {
        let now = self.now;
        let member = self.members.get_mut(&rank).unwrap();
        if member.is_dead
            || member
                .own
                .receivers
                .get(&ID)
                .is_none_or(Receiver::is_settled)
        {
            member.coming.clear();
            return 0;
        }
        let coming = &mut member.coming;
        member.own.receive_runs(ID.group, |sink| {
            let next = coming.first_entry().filter(|next| next.key().0 <= now);
            let Some(next) = next else { return Ok(false) };
            sink(&mut next.remove());
            Ok(true)
        })
    }

    /// Sends control messages, each after the earlier ones between the same two processes.
    fn carry(&mut self) -> usize {
        let all = [(ROOT, &mut self.root)].into_iter();
        let others = self
            .members
            .iter_mut()
            .map(|(rank, member)| (*rank, &mut member.own));
        let mut count = 0;
        for (from, own) in all.chain(others) {
            for (to, bytes) in own.take_controls() {
                count += 1;
                let is_sent = matches!(Control::parse(&bytes), Some((_, Control::Sent(_))));
                self.silences += usize::from(is_sent);
                let before = self.controls.iter().rev();
                let before = before
                    .filter(|(a, b, ..)| (*a, *b) == (from, to))
                    .map(|control| control.2)
                    .next();
                let at = self.now + Net::delay(&mut self.random, 2 * self.wire.delay);
                let at = before.map_or(at, |before| before.max(at));
                self.controls.push((from, to, at, bytes));
            }
        }
        count
    }

    fn deliver(&mut self) -> usize {
        let now = self.now;
        let mut due: Vec<_> = self
            .controls
            .extract_if(.., |control| control.2 <= now)
            .collect();
        due.sort_by_key(|control| control.2);
        for (from, to, _, bytes) in &due {
            let own = match *to {
                ROOT => &mut self.root,
                rank => {
                    let member = self.members.get_mut(&rank).unwrap();
                    if member.is_dead {
                        continue;
                    }
                    &mut member.own
                }
            };
            assert!(own.on_control(*from, bytes, now), "it is no control");
        }
        due.len()
    }

    /// Runs one turn of all processes; returns `false` when nothing is left to do.
    fn turn(&mut self) -> bool {
        let ranks: Vec<u32> = self.members.keys().copied().collect();
        let mut moved = 0;
        for rank in &ranks {
            let member = &self.members[rank];
            if !member.has_begun && self.now >= member.begins {
                self.join(*rank);
                moved += 1;
            }
        }
        moved += self.deliver() + self.cast();
        moved += ranks.iter().map(|rank| self.receive(*rank)).sum::<usize>();
        moved += self.carry();
        if moved > 0 || self.root.is_blocked() {
            self.now = self.now + Duration::from_micros(1);
            return true;
        }
        // Advance to the next event.
        let coming = self
            .members
            .values()
            .flat_map(|member| member.coming.keys());
        let coming = coming.map(|(at, _)| *at);
        let words = self.controls.iter().map(|control| control.2);
        let begins = self.members.values().filter(|member| !member.has_begun);
        let begins = begins.map(|member| member.begins);
        let next = coming.chain(words).chain(begins).chain(self.root.timeout());
        let Some(next) = next.min() else { return false };
        self.now = self.now.max(next) + Duration::from_nanos(1);
        true
    }

    /// Runs to the end, and checks that all members have the data or need it in a message. Returns
    /// the ranks that need it in a message.
    fn run(&mut self) -> Vec<u32> {
        let least = self.message.len().div_ceil(PIECE_LEN);
        while self.turn() {
            assert!(self.datagrams < 100 * least + 1000, "it does not end");
        }
        assert!(self.root.is_settled(ID), "the root waits for ever");
        let ended = self.root.end(ID).unwrap();
        assert!(ended.buffer[..] == self.message[..]);
        for (rank, member) in self.members.iter_mut().filter(|(_, it)| !it.is_dead) {
            assert!(member.own.is_settled(ID), "rank {rank} waits for ever");
            let got = member.own.end(ID).unwrap();
            assert_eq!(got.is_direct, ended.direct.contains(rank), "rank {rank}");
            assert!(
                got.is_direct || got.buffer[..] == self.message[..],
                "{rank}"
            );
        }
        ended.direct
    }

    fn piece_count(&self) -> usize {
        let blocks = self.message.chunks(BLOCK_LEN);
        blocks.map(|block| block.len().div_ceil(PIECE_LEN)).sum()
    }
}

fn drawn_wire(random: &mut ChaCha8Rng) -> Wire {
    Wire {
        loss: random.random_range(0.0..0.3),
        repeat: random.random_range(0.0..0.2),
        delay: Duration::from_micros(random.random_range(0..2000)),
        is_narrow: random.random_bool(0.3),
    }
}

#[test]
fn all_members_get_all_bytes_despite_faults() {
    for seed in 0..30 {
        let mut random = ChaCha8Rng::seed_from_u64(100 + seed);
        let windows: Vec<u32> = (0..random.random_range(2..7))
            .map(|_| random.random_range(4..200))
            .collect();
        let len = random.random_range(ANNOUNCED_LEN_MIN..BLOCK_LEN * 3 / 2);
        let wire = drawn_wire(&mut random);
        let mut net = Net::new(seed, len, &windows, wire);
        for member in net.members.values_mut() {
            member.wire = drawn_wire(&mut random);
            member.begins = net.now + Duration::from_micros(random.random_range(0..5000));
        }
        assert_eq!(net.run(), [0; 0]);
    }
}

#[test]
fn lossless_network_carries_each_piece_once() {
    let mut net = Net::new(1, 3 * BLOCK_LEN + 77, &[64; 5], Wire::default());
    assert_eq!(net.run(), [0; 0]);
    assert_eq!(net.datagrams, net.piece_count());
}

/// No member withholds a report that the root awaits, although the root uses the narrowest window.
// P17.4
#[test]
fn unequal_buffers_cause_no_silence() {
    let mut net = Net::new(2, 2 * BLOCK_LEN, &[16, 2000, 900, 2000], Wire::default());
    assert_eq!(net.run(), [0; 0]);
    assert_eq!((net.datagrams, net.silences), (net.piece_count(), 0));
}

#[test]
fn deaf_member_gets_data_by_message() {
    for seed in 0..10 {
        let wire = Wire {
            loss: 0.05,
            delay: Duration::from_micros(300),
            ..Wire::default()
        };
        let mut net = Net::new(seed, BLOCK_LEN + 5, &[30, 60, 90], wire);
        net.members.get_mut(&2).unwrap().wire.loss = 1.0;
        assert_eq!(net.run(), [2]);
    }
}

#[test]
fn failed_member_ends_the_wait_of_the_root() {
    for seed in 0..10 {
        let mut net = Net::new(seed, BLOCK_LEN, &[30, 60, 90], Wire::default());
        let moment = net.random.random_range(1..60);
        for _ in 0..moment {
            net.turn();
        }
        let was_settled = net.root.is_settled(ID);
        net.members.get_mut(&1).unwrap().is_dead = true;
        // Until a process reports the failure, the dead member only delays the rest.
        for _ in 0..200 {
            net.turn();
        }
        net.root.on_failed(1);
        assert!(net.root.is_settled(ID));
        let has_got_all = net.root.failed(ID).is_none();
        assert!(has_got_all || !was_settled, "it had ended");
        assert!(has_got_all || net.root.failed(ID) == Some(1));
    }
}

#[test]
fn send_error_delivers_data_by_messages() {
    let mut net = Net::new(4, BLOCK_LEN, &[30, 60], Wire::default());
    for _ in 0..3 {
        net.turn();
    }
    let now = net.now;
    net.root
        .cast_by(ID, now, |_| Err(io::ErrorKind::NetworkUnreachable.into()));
    let mut direct = net.run();
    direct.sort_unstable();
    assert_eq!(direct, [1, 2]);
    assert!(
        net.root.groups[&ID.group].is_off,
        "the next goes by the tree"
    );
}

/// A program creates groups one after another and drops each.
#[test]
fn unused_groups_close_after_linger_or_when_capacity_is_needed() {
    let mut own = multicasts();
    let group_of = |id| Members::new(id, vec![0, 1, 2].into());
    let live: Vec<Members> = (0..4).map(group_of).collect();
    let has = |state: &GroupState| state.reach.is_some();
    let enter = |own: &mut Multicasts, members: &Members| {
        let id = Id {
            group: members.id(),
            seq: 1,
        };
        let call = Call {
            id,
            ..call(members, 0)
        };
        let state = own.group_state(&call, has)?;
        state.reach = Some((0, true));
        Ok::<_, String>(())
    };
    live.iter()
        .for_each(|group| enter(&mut own, group).unwrap());
    for id in 4..100 {
        enter(&mut own, &group_of(id)).unwrap();
        assert!(own.groups.len() <= GROUPS_MAX);
    }
    let begin = Instant::from_nanos(1);
    own.close_unused(begin);
    let before = own.groups.len();
    assert!(before > live.len() && !own.is_close_due(begin));
    own.close_unused(begin + LINGER / 2);
    assert_eq!(own.groups.len(), before, "they may come again");
    // The group with a new handle remains.
    let again = group_of(99);
    enter(&mut own, &again).unwrap();
    own.close_unused(begin + 2 * LINGER);
    let left: Vec<u16> = own.groups.keys().copied().collect();
    assert_eq!(left, [0, 1, 2, 3, 99]);
    // All groups are in use, so only the free places can be taken.
    let more: Vec<Members> = (200..).map(group_of).take(GROUPS_MAX).collect();
    let entered = more.iter().filter(|group| enter(&mut own, group).is_ok());
    assert_eq!(entered.count(), GROUPS_MAX - left.len());
}

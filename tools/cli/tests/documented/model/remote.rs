// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remote memory, and the ranks that know of each access.

use super::*;

impl Machine<'_> {
    pub(super) fn register(
        &mut self,
        rank: u32,
        region: u32,
        of: (usize, bool, bool),
    ) -> Verdict<()> {
        let (len, read, write) = of;
        let new = Region {
            owner: rank,
            read,
            write,
            bytes: vec![0; len],
            touches: Vec::new(),
            looks: Vec::new(),
            deregistered: None,
        };
        match self.regions.insert(region, new) {
            Some(_) => unsound("a region is registered twice"),
            None => Ok(()),
        }
    }

    pub(super) fn access(&mut self, rank: u32, step: &Step) -> Verdict<Option<Expected>> {
        let (slot, to, region, offset, what, high) = match *step {
            Step::Access {
                rank,
                region,
                offset,
                what,
                high,
            } => (None, rank, region, offset, what, high),
            Step::StartAccess {
                slot,
                rank,
                region,
                offset,
                what,
                high,
            } => (Some(slot), rank, region, offset, what, high),
            _ => return unsound("no access"),
        };
        let here = self.pc(rank);
        let steps = &self.program.processes[rank as usize];
        let took =
            |step: &Step| matches!(step, Step::TakeKey { region: own, .. } if *own == region);
        if !steps[..here].iter().any(took) {
            return unsound("an access without a key");
        }
        if let Some(refused) = self.check_rank(to) {
            if let Some(slot) = slot {
                self.fill(rank, slot, Slot::Refused)?;
            }
            return Ok(Some(refused));
        }
        self.needs.push((rank, here, to));
        self.check_touch(rank, region, what, high)?;
        let result = self.touch(rank, to, region, offset, what);
        let touch = Touch {
            user: rank,
            issued: here,
            done: slot.is_none().then_some(here),
            high,
            len: what.len(),
            result: result.clone(),
        };
        self.touches.push(touch);
        let index = self.touches.len() - 1;
        if let Some(region) = self.regions.get_mut(&region) {
            region.touches.push(index);
        }
        let Some(slot) = slot else {
            return Ok(Some(Expected::Is(result)));
        };
        self.fill(rank, slot, Slot::Access(index))?;
        let waits = steps[here..].iter().position(|step| step.waits_for(slot));
        match waits {
            Some(at) => self.needs.push((rank, here + at, to)),
            None => return unsound("an access that is never waited for"),
        }
        Ok(Some(Expected::Is(Outcome::Done)))
    }

    /// Rejects an access that races with another access.
    pub(super) fn check_touch(
        &self,
        rank: u32,
        region: u32,
        what: Remote,
        high: bool,
    ) -> Verdict<()> {
        /// Longest ordered access; longer ones may use transfers, which are not ordered among
        /// themselves.
        const ORDERED_MAX: usize = 16 << 10;
        let Some(region) = self.regions.get(&region) else {
            return unsound("no such region");
        };
        let owner = region.owner;
        for &index in &region.touches {
            let touch = &self.touches[index];
            if touch.user != rank
                && !(adds(what) && matches!(touch.result, Outcome::Done) && touch.len == 8)
            {
                return unsound("two use one region");
            }
            let behind = touch.high == high && touch.len.max(what.len()) <= ORDERED_MAX;
            if touch.user == rank && touch.done.is_none() && !behind {
                return unsound("two accesses at once");
            }
        }
        for &look in region.looks.iter().chain(&region.deregistered) {
            if !self.knows(rank, owner, look) {
                return unsound("an access beside a look");
            }
        }
        Ok(())
    }

    pub(super) fn touch(
        &mut self,
        rank: u32,
        to: u32,
        region: u32,
        offset: u64,
        what: Remote,
    ) -> Outcome {
        let Some(region) = self.regions.get_mut(&region) else {
            return Outcome::NoRequest;
        };
        let (reads, writes) = match what {
            Remote::Put(_) | Remote::Add(_) => (false, true),
            Remote::Get(_) => (true, false),
            Remote::FetchAdd(_) => (true, true),
        };
        let _ = rank;
        if region.owner != to || region.deregistered.is_some() {
            return Outcome::Fault(refused(to, "NoSuchKey"));
        }
        if reads && !region.read || writes && !region.write {
            return Outcome::Fault(refused(to, "NotAllowed"));
        }
        let len = what.len();
        let place = usize::try_from(offset).ok().and_then(|from| {
            let to = from.checked_add(len)?;
            region.bytes.get_mut(from..to)
        });
        let Some(place) = place else {
            return Outcome::Fault(refused(to, "OutOfBounds"));
        };
        match what {
            Remote::Put(message) => {
                place.copy_from_slice(&message.bytes());
                Outcome::Done
            }
            Remote::Get(_) => Outcome::Bytes(sum(place)),
            Remote::Add(number) | Remote::FetchAdd(number) => {
                let mut before = [0; 8];
                before.copy_from_slice(place);
                let after = u64::from_le_bytes(before).wrapping_add(number);
                place.copy_from_slice(&after.to_le_bytes());
                match what {
                    Remote::Add(_) => Outcome::Done,
                    _ => Outcome::Bytes(sum(&before)),
                }
            }
        }
    }

    /// Lets the owner read its region, when every access is known to be over.
    pub(super) fn look(&mut self, rank: u32, region: u32, closes: bool) -> Verdict<Expected> {
        let here = self.pc(rank);
        let Some(held) = self.regions.get(&region) else {
            return unsound("no such region");
        };
        if held.owner != rank || held.deregistered.is_some() {
            return unsound("not the owner's region");
        }
        for &index in &held.touches {
            let touch = &self.touches[index];
            let known = touch
                .done
                .is_some_and(|done| self.knows(rank, touch.user, done));
            let lane = (rank, touch.user, touch.high);
            let behind = self
                .lane_seen
                .get(&lane)
                .is_some_and(|&seen| seen > touch.issued);
            // A read needs the access to be in place; closing also needs the answer to have left.
            if !(known || behind && !closes) {
                return unsound("a look beside an access");
            }
        }
        let held = self.regions.get_mut(&region).expect("looked up above");
        match closes {
            true => held.deregistered = Some(here),
            false => held.looks.push(here),
        }
        Ok(Expected::Is(Outcome::Bytes(sum(&held.bytes))))
    }
}

fn adds(what: Remote) -> bool {
    matches!(what, Remote::Add(_))
}

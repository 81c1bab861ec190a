// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of a drawn plan that are left out, to find out whether a violation needs them.

use crate::Plan;
use crate::faults::FaultKind;
use portolan_proto::StreamUse;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Part that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Flows of messages, by their index in the drawn plan.
    Flows(RangeInclusive<usize>),
    /// Faults.
    Faults(RangeInclusive<usize>),
    /// All collective operations, since each depends on the one before.
    Groups,
    /// Requests for remote memory.
    Remote,
    /// One-shot regions.
    OneShots,
    /// Random loss of frames.
    Loss,
    /// Duplication of frames.
    Duplicates,
    /// Delay of frames.
    Reordering,
    /// Corruption of frames.
    Corruption,
    /// The switches between racks.
    Racks,
    /// Path with a lower MTU than the interfaces.
    NarrowPath,
    /// Shared memory.
    Shm,
    /// Raw Ethernet frames.
    Packet,
    /// Streams.
    Streams,
    /// Reception of bulk data at predicted places.
    Prediction,
    /// Shortcuts past queues and events.
    Shortcuts,
    /// Drift of clocks.
    Drift,
    /// Half of each flow's messages, as often as it is listed.
    Half,
}

/// Cuts without parameters, with their names.
const PLAIN: [(&str, Cut); 16] = [
    ("groups", Cut::Groups),
    ("remote", Cut::Remote),
    ("one-shots", Cut::OneShots),
    ("loss", Cut::Loss),
    ("duplicates", Cut::Duplicates),
    ("reordering", Cut::Reordering),
    ("corruption", Cut::Corruption),
    ("racks", Cut::Racks),
    ("narrow-way", Cut::NarrowPath),
    ("shm", Cut::Shm),
    ("packet", Cut::Packet),
    ("streams", Cut::Streams),
    ("prediction", Cut::Prediction),
    ("short-way", Cut::Shortcuts),
    ("drift", Cut::Drift),
    ("half", Cut::Half),
];

/// Set of parts to leave out of a plan. As text: names separated by commas, `loss,flows:3-7,half`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cuts(pub Vec<Cut>);

impl Cuts {
    /// Returns these cuts and one more.
    #[must_use]
    pub fn with(&self, cut: Cut) -> Cuts {
        let mut cuts = self.0.clone();
        cuts.push(cut);
        Cuts(cuts)
    }

    /// Returns every cut that removes a whole kind of trouble from a plan.
    pub(crate) fn kinds() -> impl Iterator<Item = Cut> {
        let all = PLAIN.into_iter().map(|(_, cut)| cut);
        all.filter(|cut| *cut != Cut::Half)
    }

    fn has(&self, index: usize, range: impl Fn(&Cut) -> Option<&RangeInclusive<usize>>) -> bool {
        self.0
            .iter()
            .filter_map(range)
            .any(|range| range.contains(&index))
    }

    fn has_flow(&self, index: usize) -> bool {
        self.has(index, |cut| match cut {
            Cut::Flows(range) => Some(range),
            _ => None,
        })
    }

    fn has_fault(&self, index: usize) -> bool {
        self.has(index, |cut| match cut {
            Cut::Faults(range) => Some(range),
            _ => None,
        })
    }

    /// Leaves these parts out of `plan`.
    pub(crate) fn apply(&self, plan: &mut Plan) {
        retain_indexed(&mut plan.flows, |index| !self.has_flow(index));
        retain_indexed(&mut plan.faults, |index| !self.has_fault(index));
        for cut in &self.0 {
            apply_plain(cut, plan);
        }
    }
}

fn retain_indexed<T>(items: &mut Vec<T>, keep: impl Fn(usize) -> bool) {
    let mut index = 0;
    items.retain(|_| {
        index += 1;
        keep(index - 1)
    });
}

fn apply_plain(cut: &Cut, plan: &mut Plan) {
    let net = &mut plan.net;
    match cut {
        Cut::Groups => plan.groups.clear(),
        Cut::Remote => plan.remote.clear(),
        Cut::OneShots => plan.one_shots.clear(),
        Cut::Loss => net.loss = 0.0,
        Cut::Duplicates => net.duplicate = 0.0,
        Cut::Reordering => net.reorder = 0.0,
        Cut::Corruption => net.corrupt = 0.0,
        Cut::Racks => net.rack_hosts = usize::MAX,
        Cut::NarrowPath => net.path_mtu = net.mtu,
        Cut::Shm => plan.shm = None,
        Cut::Packet => {
            plan.packet = None;
            // Only one of two links may fail; a single link may not.
            plan.faults
                .retain(|fault| !matches!(fault.kind, FaultKind::LinkDown { .. }));
        }
        Cut::Streams => {
            plan.streams = None;
            plan.limits.stream = StreamUse::Off;
        }
        Cut::Prediction => plan.predicts = false,
        Cut::Shortcuts => plan.shortcuts = false,
        Cut::Drift => plan.clocks.iter_mut().for_each(|clock| clock.drift_ppm = 0),
        Cut::Half => {
            for flow in &mut plan.flows {
                flow.count = flow.count.div_ceil(2);
            }
            for flow in &mut plan.remote {
                flow.count = flow.count.div_ceil(2);
            }
            for flow in &mut plan.one_shots {
                flow.count = flow.count.div_ceil(2);
            }
        }
        Cut::Flows(_) | Cut::Faults(_) => {}
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cut::Flows(range) => write!(f, "flows:{}-{}", range.start(), range.end()),
            Cut::Faults(range) => write!(f, "faults:{}-{}", range.start(), range.end()),
            plain => {
                let name = PLAIN.iter().find(|(_, cut)| cut == plain);
                f.write_str(name.map_or("", |(name, _)| name))
            }
        }
    }
}

impl fmt::Display for Cuts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, cut) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{cut}")?;
        }
        Ok(())
    }
}

impl FromStr for Cut {
    type Err = String;

    fn from_str(text: &str) -> Result<Cut, String> {
        if let Some((_, cut)) = PLAIN.iter().find(|(name, _)| *name == text) {
            return Ok(cut.clone());
        }
        let range = |numbers: &str| {
            let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
            Some(first.parse().ok()?..=last.parse().ok()?)
        };
        let parts = text.split_once(':');
        let parts = parts.and_then(|(name, numbers)| Some((name, range(numbers)?)));
        match parts {
            Some(("flows", range)) => Ok(Cut::Flows(range)),
            Some(("faults", range)) => Ok(Cut::Faults(range)),
            _ => {
                let names: Vec<_> = PLAIN.iter().map(|(name, _)| *name).collect();
                let names = names.join(", ");
                Err(format!(
                    "{text:?} is no part of a plan; there are flows:N-M, faults:N-M, {names}"
                ))
            }
        }
    }
}

impl FromStr for Cuts {
    type Err = String;

    fn from_str(text: &str) -> Result<Cuts, String> {
        let parts = text.split(',').filter(|part| !part.is_empty());
        parts.map(str::parse).collect::<Result<_, _>>().map(Cuts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_round_trip() {
        let text = "loss,flows:3-7,faults:0-0,half,half";
        let cuts: Cuts = text.parse().unwrap();
        assert_eq!(cuts.to_string(), text);
        assert_eq!("flows:5".parse(), Ok(Cut::Flows(5..=5)));
        assert!("flaws:5".parse::<Cuts>().unwrap_err().contains("flaws:5"));
        assert_eq!("".parse(), Ok(Cuts::default()));
    }

    #[test]
    fn cut_places_refer_to_the_drawn_plan() {
        let drawn = Plan::draw(5, Some(12), None, false);
        let mut plan = drawn.clone();
        let cuts: Cuts = "flows:0,flows:2-3,half".parse().unwrap();
        cuts.apply(&mut plan);
        assert_eq!(plan.flows.len(), drawn.flows.len() - 3);
        assert_eq!(plan.flows[0].src, drawn.flows[1].src);
        assert_eq!(plan.flows[1].src, drawn.flows[4].src);
        assert_eq!(plan.flows[0].count, drawn.flows[1].count.div_ceil(2));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Placement of line names: none over another, and if possible none over a line.

use super::canvas::Point;

/// Moves `positions` apart by at least `gap`. It keeps their order, moves them as little
/// as possible, and stays within `from` and `to` if they fit.
pub(super) fn spread(positions: &[f64], gap: f64, (from, to): (f64, f64)) -> Vec<f64> {
    let mut order: Vec<usize> = (0..positions.len()).collect();
    order.sort_by(|a, b| positions[*a].total_cmp(&positions[*b]));
    // Runs of touching names, each centred on the mean of its requested positions.
    let mut runs: Vec<(f64, Vec<usize>)> = Vec::new();
    for index in order {
        runs.push((positions[index].clamp(from, to), vec![index]));
        while let [.., above, below] = &mut runs[..] {
            if below.0 - half(below.1.len(), gap) >= above.0 + half(above.1.len(), gap) {
                break;
            }
            let (middle, members) = (mean(above, below), below.1.split_off(0));
            above.1.extend(members);
            let half = half(above.1.len(), gap) - gap / 2.0;
            above.0 = middle.min(to - half).max(from + half);
            runs.pop();
        }
    }
    let mut heights = vec![0.0; positions.len()];
    for (middle, members) in runs {
        let mut at = middle - half(members.len(), gap) + gap / 2.0;
        for index in members {
            heights[index] = at;
            at += gap;
        }
    }
    heights
}

#[allow(clippy::cast_precision_loss, reason = "a handful of names")]
fn half(count: usize, gap: f64) -> f64 {
    count as f64 * gap / 2.0
}

#[allow(clippy::cast_precision_loss, reason = "a handful of names")]
fn mean(above: &(f64, Vec<usize>), below: &(f64, Vec<usize>)) -> f64 {
    let (many, few) = (above.1.len() as f64, below.1.len() as f64);
    (above.0 * many + below.0 * few) / (many + few)
}

/// A box: left, top, right, bottom.
pub(super) type Box4 = (f64, f64, f64, f64);

/// Returns true if two boxes overlap.
pub(super) fn overlap(one: Box4, other: Box4) -> bool {
    one.0 < other.2 && other.0 < one.2 && one.1 < other.3 && other.1 < one.3
}

/// Returns true if a line through `points` enters `area`.
pub(super) fn crosses(points: &[Point], area: Box4) -> bool {
    const SAMPLES: u32 = 24;
    points.windows(2).any(|pair| {
        (0..=SAMPLES).any(|step| {
            let share = f64::from(step) / f64::from(SAMPLES);
            let x = pair[0].0 + share * (pair[1].0 - pair[0].0);
            let y = pair[0].1 + share * (pair[1].1 - pair[0].1);
            x > area.0 && x < area.2 && y > area.1 && y < area.3
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_do_not_overlap_and_keep_their_order() {
        let positions = [100.0, 102.0, 101.0, 300.0, 395.0, 399.0];
        let heights = spread(&positions, 15.0, (10.0, 400.0));
        let mut sorted = heights.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(
            sorted.windows(2).all(|pair| pair[1] - pair[0] >= 14.999),
            "{heights:?}"
        );
        assert!(heights[0] < heights[2] && heights[2] < heights[1]);
        assert_eq!(heights[3], 300.0);
        assert!(
            heights.iter().all(|at| (10.0..=400.0).contains(at)),
            "{heights:?}"
        );
    }

    #[test]
    fn line_through_a_box_is_detected() {
        let area = (10.0, 10.0, 20.0, 20.0);
        assert!(crosses(&[(0.0, 0.0), (30.0, 30.0)], area));
        assert!(!crosses(&[(0.0, 0.0), (30.0, 0.0)], area));
        assert!(overlap(area, (15.0, 15.0, 40.0, 40.0)) && !overlap(area, (21.0, 0.0, 40.0, 40.0)));
    }
}

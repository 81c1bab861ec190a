// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access to the figures of a run.

use portolan_bench::{Metric, Path, Report, Row, compare};

const NETWORK: [Path; 3] = [Path::Packet, Path::Udp, Path::Auto];

/// Undisturbed figures of a run.
#[derive(Clone, Copy)]
pub(crate) struct Data<'a> {
    pub(crate) report: &'a Report,
}

/// Portolan compared with TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Better,
    Alike,
    Worse,
}

/// Portolan's best row and TCP's row of one size.
#[derive(Clone, Copy)]
pub(crate) struct Pair<'a> {
    pub(crate) size: usize,
    pub(crate) portolan: &'a Row,
    pub(crate) tcp: &'a Row,
}

impl<'a> Data<'a> {
    /// Returns the rows of `metric` with Portolan's default settings on an undisturbed network.
    pub(crate) fn rows(&self, metric: Metric) -> impl Iterator<Item = &'a Row> + use<'a> {
        let plain = move |row: &&Row| row.metric == metric && row.conditions.describe().is_empty();
        self.report.results.iter().filter(plain)
    }

    /// Returns the sizes of `metric` in ascending order.
    pub(crate) fn sizes(&self, metric: Metric) -> Vec<usize> {
        let mut sizes: Vec<usize> = self.rows(metric).map(|row| row.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    pub(crate) fn row(
        &self,
        metric: Metric,
        (system, path): (&str, Path),
        size: usize,
    ) -> Option<&'a Row> {
        let same = |row: &&Row| row.system == system && row.path == path && row.size == size;
        self.rows(metric).find(same)
    }

    /// Returns the row of `size` bytes, or of the next longer measured size.
    pub(crate) fn at_least(
        &self,
        metric: Metric,
        of: (&str, Path),
        size: usize,
    ) -> Option<&'a Row> {
        let sizes = self.sizes(metric);
        let longer = sizes.into_iter().filter(|measured| *measured >= size);
        longer.filter_map(|size| self.row(metric, of, size)).next()
    }

    /// Returns TCP's row between hosts or within one.
    pub(crate) fn tcp(&self, metric: Metric, within: bool, size: usize) -> Option<&'a Row> {
        let mut paths = paths(within).iter();
        paths.find_map(|path| self.row(metric, ("tcp", *path), size))
    }

    /// Returns Portolan's best row between hosts or within one.
    pub(crate) fn portolan(&self, metric: Metric, within: bool, size: usize) -> Option<&'a Row> {
        let rows = paths(within)
            .iter()
            .filter_map(|path| self.row(metric, ("portolan", *path), size));
        rows.reduce(|best, row| if row.beats(best) { row } else { best })
    }

    /// Returns the pairs of all sizes that both systems have.
    pub(crate) fn pairs(&self, metric: Metric, within: bool) -> Vec<Pair<'a>> {
        let pair = |size| {
            Some(Pair {
                size,
                portolan: self.portolan(metric, within, size)?,
                tcp: self.tcp(metric, within, size)?,
            })
        };
        self.sizes(metric).into_iter().filter_map(pair).collect()
    }
}

fn paths(within: bool) -> &'static [Path] {
    if within { &[Path::Shm] } else { &NETWORK }
}

impl Pair<'_> {
    /// Returns how many times better Portolan is.
    pub(crate) fn advantage(&self) -> f64 {
        let ratio = self.portolan.headline() / self.tcp.headline();
        if self.portolan.metric.is_time() {
            1.0 / ratio
        } else {
            ratio
        }
    }

    pub(crate) fn comparison(&self) -> Comparison {
        let versus = compare(self.portolan, self.tcp);
        match versus.and_then(|versus| versus.distinguishable) {
            Some(false) => Comparison::Alike,
            _ if self.advantage() >= 1.0 => Comparison::Better,
            _ => Comparison::Worse,
        }
    }
}

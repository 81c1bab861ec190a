// SPDX-License-Identifier: MIT OR Apache-2.0
//! Curves of the papers, with the corresponding charts of the page. The text of the papers does not
//! give the points.

use crate::figures::Figure;

/// A curve of a paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Curve {
    /// Paper and figure.
    pub(crate) source: &'static str,
    /// Result in the paper.
    pub(crate) then: &'static str,
    /// Name of the current chart.
    pub(crate) chart: &'static str,
    /// Title of the current chart.
    pub(crate) label: &'static str,
}

const CURVES: [Curve; 17] = [
    Curve {
        source: "GAMMA, Figures 1 and 2",
        then: "end-to-end throughput up to 97 MB/s on the GNIC-II, 103 MB/s on the GA620 with long frames and \
               71 with standard ones; TCP 42 and 87",
        chart: "end-to-end",
        label: "end-to-end throughput",
    },
    Curve {
        source: "GAMMA, Figures 3 and 4",
        then: "the same peaks in streams of 10 MB, reached with shorter messages",
        chart: "throughput",
        label: "streams by message size",
    },
    Curve {
        source: "GAMMA, Figure 5",
        then: "fragments shorter than a frame need be: 64 % more end-to-end throughput at 1388 B, on the GNIC-II",
        chart: "fragments-end-to-end",
        label: "shorter frames: end-to-end throughput",
    },
    Curve {
        source: "GAMMA, Figure 6",
        then: "the same fragments cost throughput in streams of 10 MB",
        chart: "fragments-stream",
        label: "shorter frames: streams",
    },
    Curve {
        source: "GM and BIP, Figure 4",
        then: "bytes into the adapter's memory: up to 256 B faster if the processor writes them, beyond if \
               the adapter fetches them, which costs more to begin with",
        chart: "moving",
        label: "two methods to move a message within a host",
    },
    Curve {
        source: "GM and BIP, Figure 5",
        then: "BIP and GM+ ahead up to 256 B, GM and GM+ from 4 KB on",
        chart: "throughput",
        label: "streams by message size",
    },
    Curve {
        source: "GM and BIP, Figure 6",
        then: "BIP ahead of GM and GM+, which acknowledge",
        chart: "end-to-end",
        label: "end-to-end throughput, alternating directions",
    },
    Curve {
        source: "GM and BIP, Figure 7",
        then: "acknowledgements cost GM its lead",
        chart: "bidir",
        label: "both directions at once",
    },
    Curve {
        source: "GM and BIP, Figure 8",
        then: "BIP about 6 µs for short messages, GM+ 2 µs less than GM",
        chart: "latency",
        label: "half round trips",
    },
    Curve {
        source: "GM and BIP, Figure 5",
        then: "the same",
        chart: "interfaces-shm-stream",
        label: "the interfaces: streams within a host",
    },
    Curve {
        source: "GM and BIP, Figure 6",
        then: "the same",
        chart: "interfaces-shm-end-to-end",
        label: "the interfaces: alternating directions within a host",
    },
    Curve {
        source: "GM and BIP, Figure 7",
        then: "the same",
        chart: "interfaces-shm-bidir",
        label: "the interfaces: both directions at once within a host",
    },
    Curve {
        source: "GM and BIP, Figure 8",
        then: "the same",
        chart: "interfaces-shm-latency",
        label: "the interfaces: half round trips within a host",
    },
    Curve {
        source: "VIA under the NAS benchmarks, Figure 1",
        then: "latency of Giganet below that of Myrinet up to 28 B, both a tenth of Fast Ethernet's",
        chart: "latency",
        label: "half round trips",
    },
    Curve {
        source: "VIA under the NAS benchmarks, Figure 1",
        then: "bandwidth up to 10.5 MB/s by TCP, 11.2 by M-VIA, 98 on Giganet, 108 on Myrinet",
        chart: "end-to-end",
        label: "end-to-end throughput",
    },
    Curve {
        source: "Speculative defragmentation, Figures 1 and 5",
        then: "TCP 42 MB/s, 45 by speculation alone, 75 without any copy",
        chart: "stream",
        label: "streams by setting",
    },
    Curve {
        source: "Speculative defragmentation, Table 1",
        then: "75 MB/s undisturbed, 63 with one foreign packet in ten",
        chart: "interference",
        label: "streams under interference",
    },
];

/// Returns the curves with a chart among `figures`.
pub(crate) fn curves(figures: &[Figure]) -> Vec<Curve> {
    let is_there = |curve: &Curve| figures.iter().any(|figure| figure.name == curve.chart);
    CURVES.into_iter().filter(is_there).collect()
}

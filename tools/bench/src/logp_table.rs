// SPDX-License-Identifier: MIT OR Apache-2.0
//! Table of LogP parameters.

use crate::logp::LongGap;
use crate::schema::Row;
use crate::table::size;
use std::fmt::Write;

/// Difference between o_s + L + o_r and the half round trip that the table marks, as a share of the
/// half round trip.
const CONSISTENT: f64 = 0.1;

/// Returns the table, one line per row.
pub(crate) fn section(rows: &[Row]) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{:7} {:12} {:>8} {:>10} {:>9} {:>9} {:>9} {:>9} {:>10} {:>10}  o_s+L+o_r",
        "path",
        "system",
        "size",
        "RTT/2 us",
        "o_s us",
        "o_r us",
        "L us",
        "g us",
        "1/g M/s",
        "sum us"
    );
    for row in rows {
        let Some(logp) = row.extra.logp else { continue };
        let off = logp.sum_us() / row.p50_us - 1.0;
        let verdict = if off.abs() <= CONSISTENT {
            "agrees with RTT/2"
        } else {
            "differs from RTT/2"
        };
        let _ = writeln!(
            text,
            "{:7} {:12} {:>8} {:>10.3} {:>9.3} {:>9.3} {:>9.3} {:>9.3} {:>10.3} {:>10.3}  {verdict} \
             ({:+.0} %)",
            row.path,
            row.system,
            size(row.size),
            row.p50_us,
            logp.os_us,
            logp.or_us,
            logp.l_us,
            logp.g_us,
            1.0 / logp.g_us,
            logp.sum_us(),
            off * 100.0
        );
    }
    if rows
        .iter()
        .any(|row| row.extra.logp.is_some_and(|logp| logp.l_us < 0.0))
    {
        text.push_str("L below 0: the message arrives before the sender's call returns\n");
    }
    text
}

/// Returns the table of LogGP's G.
pub(crate) fn gaps(gaps: &[LongGap]) -> String {
    let mut text = String::from("\nLogGP's G: time per byte of long messages\n");
    let _ = writeln!(
        text,
        "{:7} {:12} {:>10} {:>10}",
        "path", "system", "ns/byte", "1/G MB/s"
    );
    for gap in gaps {
        let _ = writeln!(
            text,
            "{:7} {:12} {:>10.4} {:>10.0}",
            gap.path,
            gap.system,
            gap.ns_per_byte,
            1e3 / gap.ns_per_byte
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Metric;
    use crate::extra::Extra;
    use crate::logp::LogP;
    use crate::schema::tests::report;

    #[test]
    fn inconsistent_sum_is_reported() {
        let row = |l_us| Row {
            metric: Metric::Logp,
            p50_us: 10.0,
            extra: Extra {
                logp: Some(LogP {
                    l_us,
                    os_us: 3.0,
                    or_us: 2.0,
                    g_us: 4.0,
                }),
                ..Extra::default()
            },
            ..report().results[0].clone()
        };
        let text = section(&[row(5.5)]);
        assert!(
            text.contains("agrees with RTT/2 (+5 %)") && text.contains("0.250"),
            "{text}"
        );
        let text = section(&[row(-1.0)]);
        assert!(
            text.contains("differs from RTT/2 (-60 %)") && text.contains("L below 0"),
            "{text}"
        );
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of `doctor --between` as text.

use super::report::{By, Failure};
use super::verdict::{Between, Finding, Pair, Reach, label};
use std::fmt::Write;

/// Returns the report as text.
pub(super) fn text(between: &Between<'_>, reach: Reach, findings: &[Finding]) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_all(&mut text, between, reach, findings);
    text
}

fn write_all(
    out: &mut String,
    between: &Between<'_>,
    reach: Reach,
    findings: &[Finding],
) -> std::fmt::Result {
    for from in 0..2 {
        writeln!(
            out,
            "from {} to {}",
            between.name(from),
            between.name(1 - from)
        )?;
        let pairs = between.plausible();
        if pairs.is_empty() {
            writeln!(out, "  no addresses of the same family")?;
        }
        for pair in pairs {
            write_pair(out, between, pair, from)?;
        }
    }
    writeln!(out, "\n{}", conclusion(between, reach))?;
    if findings.is_empty() {
        return writeln!(out, "nothing to change");
    }
    for finding in findings {
        writeln!(out, "\n  {}\n    {}", finding.what, finding.remedy)?;
    }
    Ok(())
}

fn conclusion(between: &Between<'_>, reach: Reach) -> String {
    let names = format!("{} and {}", between.name(0), between.name(1));
    match reach {
        Reach::Udp => format!("jobs run between {names}"),
        Reach::Raw => format!("jobs run between {names} by raw Ethernet only"),
        Reach::Nothing => format!("no job runs between {names}"),
    }
}

fn write_pair(
    out: &mut String,
    between: &Between<'_>,
    pair: Pair,
    from: usize,
) -> std::fmt::Result {
    let (end, there) = (between.end(pair, from), between.end(pair, 1 - from));
    write!(out, "  {} -> {}:", label(end), label(there))?;
    write!(out, " UDP {}", state(between, By::Udp, pair, from, true))?;
    if !end.is_ambiguous {
        write!(out, ", TCP {}", state(between, By::Tcp, pair, from, false))?;
    }
    if end.raw.is_some() && there.raw.is_some() {
        write!(
            out,
            ", EtherType 0x88b5 {}",
            state(between, By::Raw, pair, from, true)
        )?;
    }
    writeln!(out)
}

fn state(between: &Between<'_>, by: By, pair: Pair, from: usize, has_len: bool) -> String {
    if let Some(len) = between.passed(by, pair, from) {
        return match has_len {
            true => format!("passes up to {len} bytes"),
            false => "passes".to_owned(),
        };
    }
    match between.failure(by, pair, from) {
        Some(Failure { errno, .. }) => {
            format!("fails ({})", std::io::Error::from_raw_os_error(errno))
        }
        None => "gets no answer".to_owned(),
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reuse of results from an earlier run.

use crate::args::Metric;
use crate::plan::PlannedRow;
use crate::remote::ServerHost;
use crate::schema::{Machine, Report, Row};

/// Reason why a run cannot be resumed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the earlier run had another {what} ({before}, now {now}): their figures are not comparable; \
     measure again without --resume"
)]
pub struct ResumeError {
    what: &'static str,
    before: String,
    now: String,
}

/// Refuses figures from another machine or another configuration.
///
/// # Errors
/// [`ResumeError`] names the first difference.
pub(crate) fn check(before: &Machine, now: &Machine) -> Result<(), ResumeError> {
    let other = |server: &ServerHost| format!("{} with Linux {}", server.name, server.kernel);
    let facts = |machine: &Machine| {
        [
            ("processor", machine.cpu.clone()),
            ("kernel", machine.kernel.clone()),
            ("version of Portolan", machine.portolan.clone()),
            ("MTU", machine.mtu.to_string()),
            (
                "wire",
                machine.link.clone().unwrap_or_else(|| "veth".into()),
            ),
            ("place", format!("{:?}", machine.site).to_lowercase()),
            (
                "other host",
                machine.server.as_ref().map_or_else(|| "none".into(), other),
            ),
            ("number of rounds", machine.rounds.to_string()),
        ]
    };
    for ((what, before), (_, now)) in facts(before).into_iter().zip(facts(now)) {
        if before != now {
            return Err(ResumeError { what, before, now });
        }
    }
    Ok(())
}

/// Returns the rows of `report` for `planned`, with their slower variants, if all of them have all
/// rounds.
pub(crate) fn rows(
    report: &Report,
    (metric, size): (Metric, usize),
    planned: &[PlannedRow],
) -> Option<(Vec<Row>, Vec<Row>)> {
    let rounds = report.machine.rounds as usize;
    let of_size = |row: &&Row| (row.metric, row.size) == (metric, size);
    let found = planned.iter().map(|planned| {
        let conditions = planned.candidates.first()?.conditions;
        let same = |row: &&Row| {
            (row.system.as_str(), row.path, row.conditions)
                == (planned.system, planned.path, conditions)
        };
        let row = report.results.iter().filter(of_size).find(same)?;
        (row.per_round.len() == rounds).then(|| row.clone())
    });
    let rows: Vec<Row> = found.collect::<Option<_>>()?;
    let slower = report.slower_variants.iter().filter(of_size).cloned();
    Some((rows, slower.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Path;
    use crate::conditions::Conditions;
    use crate::plan::Measurement;
    use crate::schema::tests::report;
    use crate::spec::{Intake, Program};

    fn planned(system: &'static str) -> PlannedRow {
        PlannedRow {
            system,
            path: Path::Packet,
            candidates: vec![Measurement {
                program: Program::PacketPingpong(Intake::Ring),
                between_hosts: true,
                conditions: Conditions::default(),
                congestion: None,
            }],
        }
    }

    #[test]
    fn size_is_reused_if_every_row_is_complete() {
        let of = |report: &Report, size, rows_wanted: &[PlannedRow]| {
            rows(report, (Metric::Pingpong, size), rows_wanted).map(|(rows, _)| rows.len())
        };
        let mut earlier = report();
        assert_eq!(of(&earlier, 64, &[planned("limit")]), Some(1));
        assert_eq!(of(&earlier, 65, &[planned("limit")]), None);
        assert_eq!(of(&earlier, 64, &[planned("limit"), planned("tcp")]), None);
        earlier.results[0].per_round.pop();
        assert_eq!(of(&earlier, 64, &[planned("limit")]), None);
    }

    #[test]
    fn results_of_another_machine_are_rejected() {
        let earlier = report().machine;
        assert_eq!(check(&earlier, &earlier), Ok(()));
        let other = Machine {
            kernel: "7.0".into(),
            ..earlier.clone()
        };
        let error = check(&earlier, &other)
            .expect_err("another kernel")
            .to_string();
        assert!(
            error.contains("kernel") && error.contains("7.0") && error.contains("without --resume"),
            "{error}"
        );
    }
}

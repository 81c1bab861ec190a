// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the whole job on threads.

use super::*;
use crate::picture::write_pgm;
use crate::{fake, sample};
use tempfile::TempDir;

fn options(dir: &TempDir, width: usize, height: usize) -> Options {
    let input = dir.path().join("in.pgm");
    write_pgm(&input, &sample::field(width, height).unwrap()).unwrap();
    let output = Some(dir.path().join("out.png"));
    Options {
        input,
        steps: 17,
        alpha: 0.23,
        check: true,
        output,
        palette: Palette::Grey,
    }
}

/// Runs the job and returns rank 0's report.
fn report(ranks: usize, options: &Options) -> Report {
    let outcomes = fake::run(ranks, |comm| run(comm, options));
    let mut reports = outcomes.into_iter().filter_map(|outcome| match outcome {
        Outcome::Finished(report) => Some(report),
        Outcome::Done => None,
        Outcome::CalledOff => panic!("the job was called off"),
    });
    let report = reports.next().expect("rank 0 reports");
    assert!(reports.next().is_none(), "only rank 0 reports");
    report
}

#[test]
fn any_number_of_processes_finds_the_sequential_solution() {
    let shapes = [(3, 3), (4, 7), (16, 16), (31, 9), (8, 53), (40, 33)];
    for (width, height) in shapes {
        let dir = tempfile::tempdir().unwrap();
        let options = options(&dir, width, height);
        for ranks in [1, 2, 3, 4, 5, 6, 7, 8, 9, 12] {
            if Layout::new(width, height, ranks).is_err() {
                continue;
            }
            let report = report(ranks, &options);
            assert!(report.checked.is_some());
            assert_eq!(report.communicating.len(), ranks);
        }
    }
}

#[test]
fn blocks_of_one_cell_find_the_sequential_solution() {
    let dir = tempfile::tempdir().unwrap();
    let report = report(35, &options(&dir, 5, 7));
    assert_eq!((report.layout.columns, report.layout.rows), (5, 7));
}

#[test]
fn no_steps_leave_the_field_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(&dir, 12, 10);
    options.steps = 0;
    let report = report(4, &options);
    let picture = image::open(report.output.unwrap()).unwrap();
    let input = image::open(&options.input).unwrap();
    assert_eq!(picture.into_luma8(), input.into_luma8());
}

#[test]
fn a_wrong_cell_fails_the_check_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(&dir, 12, 10);
    let initial = sample::field(12, 10).unwrap();
    let mut result = initial.diffused(options.alpha, options.steps);
    assert!(check(&initial, &result, &options).is_ok());
    result.cells_mut()[3 * 12 + 5] += 1e-9;
    let error = check(&initial, &result, &options).unwrap_err().to_string();
    assert!(
        error.contains("1 cells differ") && error.contains("column 5, row 3"),
        "{error}"
    );
}

#[test]
fn input_refused_by_rank_0_fails_on_all_ranks() {
    let dir = tempfile::tempdir().unwrap();
    let good = options(&dir, 5, 5);
    let missing = Options {
        input: dir.path().join("none.pgm"),
        ..good.clone()
    };
    let unstable = Options {
        alpha: 0.3,
        ..good.clone()
    };
    let nowhere = Options {
        output: Some(dir.path().join("no/out.png")),
        ..good.clone()
    };
    for (options, ranks) in [(missing, 3), (unstable, 2), (nowhere, 4), (good, 7)] {
        let outcomes = fake::run(ranks, |comm| Ok(run(comm, &options)));
        let error = outcomes[0].as_ref().expect_err("rank 0 refuses");
        assert!(error.is::<HeatError>(), "{error}");
        for outcome in &outcomes[1..] {
            assert!(matches!(outcome, Ok(Outcome::CalledOff)), "{outcome:?}");
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Report that rank 0 prints at the end.

use crate::decompose::Layout;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Figures of a finished job.
#[derive(Clone, Debug)]
pub struct Report {
    /// Layout of the field.
    pub layout: Layout,
    /// Number of steps.
    pub steps: u64,
    /// Diffusion number.
    pub alpha: f64,
    /// Time of all steps, from barrier to barrier.
    pub elapsed: Duration,
    /// Share of its time that each rank spent in calls of the network.
    pub communicating: Vec<f64>,
    /// Time of the sequential solution, if it was requested; its result was equal.
    pub checked: Option<Duration>,
    /// File of the written picture.
    pub output: Option<PathBuf>,
}

impl Report {
    /// Returns the cells computed per second, by all processes together.
    #[must_use]
    pub fn updates_per_sec(&self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a figure of three digits")]
        let updates =
            ((self.layout.width - 2) * (self.layout.height - 2)) as f64 * self.steps as f64;
        ratio(updates, self.elapsed.as_secs_f64())
    }

    /// Returns the mean share of time spent communicating, and the largest share with its rank.
    #[must_use]
    pub fn communication_shares(&self) -> (f64, f64, usize) {
        let total: f64 = self.communicating.iter().sum();
        let shares = self.communicating.iter().copied().enumerate();
        let most = shares.max_by(|(_, a), (_, b)| a.total_cmp(b));
        let (rank, most) = most.unwrap_or_default();
        #[allow(clippy::cast_precision_loss, reason = "ranks are far below 2^52")]
        let ranks = self.communicating.len() as f64;
        (ratio(total, ranks), most, rank)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Layout {
            width,
            height,
            columns,
            rows,
        } = self.layout;
        let ranks = self.layout.ranks();
        writeln!(
            f,
            "field          {width} x {height} cells, alpha {}",
            self.alpha
        )?;
        writeln!(
            f,
            "processes      {ranks}, blocks {columns} across and {rows} down"
        )?;
        let seconds = self.elapsed.as_secs_f64();
        writeln!(f, "time           {seconds:.3} s for {} steps", self.steps)?;
        writeln!(f, "cell updates   {:.3e} /s", self.updates_per_sec())?;
        let (mean, most, rank) = self.communication_shares();
        let (mean, most) = (100.0 * mean, 100.0 * most);
        write!(
            f,
            "communicating  {mean:.1} % of the time (rank {rank}: {most:.1} %)"
        )?;
        if let Some(sequential) = self.checked {
            let (cells, seconds) = (width * height, sequential.as_secs_f64());
            write!(
                f,
                "\ncheck          passed: all {cells} cells equal the sequential "
            )?;
            write!(f, "solution bit for bit ({seconds:.3} s on rank 0 alone)")?;
        }
        if let Some(path) = &self.output {
            write!(f, "\npicture        {}", path.display())?;
        }
        Ok(())
    }
}

/// Returns the ratio, or 0 for a job without steps.
pub(crate) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_rates_follow_from_the_times() {
        let report = Report {
            layout: Layout {
                width: 102,
                height: 12,
                columns: 2,
                rows: 1,
            },
            steps: 500,
            alpha: 0.2,
            elapsed: Duration::from_secs(2),
            communicating: vec![0.25, 0.5],
            checked: Some(Duration::from_secs(1)),
            output: None,
        };
        assert_eq!(report.updates_per_sec(), 250_000.0);
        assert_eq!(report.communication_shares(), (0.375, 0.5, 1));
        let text = report.to_string();
        assert!(
            text.contains("37.5 % of the time (rank 1: 50.0 %)"),
            "{text}"
        );
        assert!(
            text.contains("all 1224 cells equal the sequential solution"),
            "{text}"
        );
    }
}

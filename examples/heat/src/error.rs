// SPDX-License-Identifier: MIT OR Apache-2.0
//! User mistakes, and their remedies.

use std::path::PathBuf;
use thiserror::Error;

/// An error that the user can correct.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HeatError {
    /// The file is missing or may not be read.
    #[error(
        "cannot read {path}: {cause}; give an existing PGM file, or make one with --make-input"
    )]
    Unreadable {
        /// File concerned.
        path: PathBuf,
        /// Error of the system.
        cause: std::io::Error,
    },
    /// The file is not a readable grey map.
    #[error("{path} is not a usable PGM image: {why}; a P2 or P5 grey map is needed")]
    BadImage {
        /// File concerned.
        path: PathBuf,
        /// Problem with the file.
        why: String,
    },
    /// The image has no interior, or is too large for memory.
    #[error(
        "a field of {width} x {height} cells is too {how}: each side must have {least} to {most} cells"
    )]
    BadSize {
        /// Cells across.
        width: usize,
        /// Cells down.
        height: usize,
        /// "small" or "large".
        how: &'static str,
        /// Smallest side.
        least: usize,
        /// Largest side.
        most: usize,
    },
    /// The scheme would be unstable, or would not describe diffusion.
    #[error(
        "alpha {alpha} makes the explicit scheme unstable or meaningless: it must be above 0 and \
         at most {most}; give a smaller alpha and more steps"
    )]
    Unstable {
        /// Requested value.
        alpha: f64,
        /// The stability limit.
        most: f64,
    },
    /// The field cannot be cut into a block of at least one cell for each process.
    #[error(
        "{ranks} processes are too many for a field of {width} x {height} cells: it cannot be cut \
         into {ranks} equal rows and columns of blocks; start fewer processes or take a larger image"
    )]
    TooManyRanks {
        /// Number of processes of the job.
        ranks: usize,
        /// Cells across.
        width: usize,
        /// Cells down.
        height: usize,
    },
    /// The result cannot be stored.
    #[error("cannot write {path}: {why}; choose another file")]
    Unwritable {
        /// File concerned.
        path: PathBuf,
        /// Problem with the file.
        why: String,
    },
}

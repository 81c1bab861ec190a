// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a person can get wrong, and how to put it right.

use std::path::PathBuf;
use thiserror::Error;

/// An error whose remedy is in the hands of the person who started the program.
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
        /// What the system said.
        cause: std::io::Error,
    },
    /// The file is a grey map in name only.
    #[error("{path} is not a usable PGM image: {why}; a P2 or P5 grey map is needed")]
    BadImage {
        /// File concerned.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The image has no interior, or no memory would hold it.
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
    /// The scheme would blow up, or would not be diffusion at all.
    #[error(
        "alpha {alpha} makes the explicit scheme unstable or meaningless: it must be above 0 and \
         at most {most}; give a smaller alpha and more steps"
    )]
    Unstable {
        /// What was asked for.
        alpha: f64,
        /// The stability limit.
        most: f64,
    },
    /// There are no blocks of at least one cell for everybody.
    #[error(
        "{ranks} processes are too many for a field of {width} x {height} cells: it cannot be cut \
         into {ranks} equal rows and columns of blocks; start fewer processes or take a larger image"
    )]
    TooManyRanks {
        /// Processes of the job.
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
        /// What is wrong with it.
        why: String,
    },
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line.

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use heat::job::Options;
use heat::picture::Palette;
use std::path::PathBuf;

/// Solves the two-dimensional heat equation on the field of a grey image.
///
/// Start it with `portolan run -n N -- heat …` for N processes; alone, it is one process. The
/// cells on the rim of the image keep their temperature.
#[derive(Parser, Debug)]
#[command(version)]
pub(crate) struct Args {
    /// Initial field: a PGM image (P2 or P5, 8 or 16 bits); black is 0, white is 1
    #[arg(required_unless_present = "make_input")]
    input: Option<PathBuf>,

    /// Number of time steps
    #[arg(long, default_value_t = 500)]
    steps: u64,

    /// Diffusivity x time step / cell size squared; stable up to 0.25
    #[arg(long, default_value_t = 0.2, allow_negative_numbers = true)]
    alpha: f64,

    /// Compare the result with the sequential solution, bit for bit
    #[arg(long)]
    check: bool,

    /// Write the result as a PNG image
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Write grey levels instead of colours
    #[arg(long, requires = "output")]
    grey: bool,

    /// Print the paths by which each process reached other processes
    #[arg(long)]
    paths: bool,

    /// Write a sample image of W x H cells to FILE (PGM, 16 bits) and do nothing else
    #[arg(long, num_args = 3, value_names = ["W", "H", "FILE"], conflicts_with = "input")]
    make_input: Option<Vec<String>>,
}

/// Task of the program.
#[derive(Debug)]
pub(crate) enum Task {
    /// Make a sample image.
    MakeInput {
        /// Cells across.
        width: usize,
        /// Cells down.
        height: usize,
        /// File to write.
        path: PathBuf,
    },
    /// Solve the equation.
    Solve {
        /// The job.
        options: Options,
        /// Print the paths afterwards.
        paths: bool,
    },
}

impl Args {
    /// Converts the arguments to a task; exits with an error if they are invalid.
    pub(crate) fn task(self) -> Task {
        match (self.make_input.as_deref(), self.input) {
            (Some([width, height, path]), _) => Task::MakeInput {
                width: side("W", width),
                height: side("H", height),
                path: path.into(),
            },
            (_, Some(input)) => Task::Solve {
                options: Options {
                    input,
                    steps: self.steps,
                    alpha: self.alpha,
                    check: self.check,
                    output: self.output,
                    palette: if self.grey {
                        Palette::Grey
                    } else {
                        Palette::Glow
                    },
                },
                paths: self.paths,
            },
            (_, None) => usage("no PGM image given"),
        }
    }
}

fn side(name: &str, text: &str) -> usize {
    text.parse().unwrap_or_else(|_| {
        usage(&format!(
            "--make-input: {name} is '{text}', but must be a number of cells"
        ))
    })
}

fn usage(message: &str) -> ! {
    Args::command()
        .error(ErrorKind::ValueValidation, message)
        .exit()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(words: &[&str]) -> Result<Task, clap::Error> {
        Args::try_parse_from([&["heat"], words].concat()).map(Args::task)
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn image_suffices_as_only_output() {
        let Task::Solve { options, paths } = task(&["in.pgm"]).unwrap() else {
            panic!("a job")
        };
        assert_eq!(options.input, PathBuf::from("in.pgm"));
        assert!(!options.check && options.output.is_none() && !paths);
        assert!(heat::field::check_alpha(options.alpha).is_ok());
    }

    #[test]
    fn paths_option_is_accepted() {
        let asked = task(&["in.pgm", "--paths"]).unwrap();
        assert!(matches!(asked, Task::Solve { paths: true, .. }));
    }

    #[test]
    fn a_sample_needs_its_size_and_no_image() {
        let made = task(&["--make-input", "40", "30", "x.pgm"]).unwrap();
        assert!(
            matches!(
                made,
                Task::MakeInput {
                    width: 40,
                    height: 30,
                    ..
                }
            ),
            "{made:?}"
        );
        assert!(task(&["--make-input", "40", "30"]).is_err());
        assert!(task(&["in.pgm", "--make-input", "40", "30", "x.pgm"]).is_err());
        assert!(task(&[]).is_err());
    }

    #[test]
    fn a_negative_alpha_is_left_to_the_stability_check() {
        let Task::Solve { options, .. } = task(&["in.pgm", "--alpha", "-1"]).unwrap() else {
            panic!("a job")
        };
        assert_eq!(options.alpha, -1.0);
    }
}

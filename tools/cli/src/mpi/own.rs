// SPDX-License-Identifier: MIT OR Apache-2.0
//! Separates Portolan's own options from those of an MPI's launcher. They may be given anywhere
//! before the program.

use super::Args;
use super::component::Via;
use crate::error::{UserError, user_error};
use crate::program;
use anyhow::Result;

/// Options of launchers that name a file with programs.
const PROGRAM_FILES: [&str; 4] = ["--app", "-app", "-configfile", "--configfile"];

/// Options of Portolan that take a value.
const VALUED: [&str; 4] = ["--mpi", "--provider-dir", "--hosts", "--via"];

impl Args {
    /// Takes Portolan's options out of the arguments, which are otherwise the launcher's.
    ///
    /// The program is the first word that is not an option and can be run. The value of an option,
    /// such as a number, rarely can. Later words belong to the program. Without such a word nothing
    /// is taken, unless the programs are in a file.
    ///
    /// # Errors
    /// An option has no value or an invalid one.
    pub(super) fn take_own(mut self) -> Result<Args> {
        let Some(end) = program_at(&self.args) else {
            return Ok(self);
        };
        let program = self.args.split_off(end);
        let mut words = std::mem::take(&mut self.args).into_iter();
        while let Some(word) = words.next() {
            if !self.take(&word, &mut words)? {
                self.args.push(word);
            }
        }
        self.args.extend(program);
        Ok(self)
    }

    /// Takes `word` if it is an option of Portolan; its value may be the next of `words`.
    fn take(&mut self, word: &str, words: &mut impl Iterator<Item = String>) -> Result<bool> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word, None),
        };
        match name {
            "--encrypt" if value.is_none() => self.choice.encrypt = true,
            "--plain" if value.is_none() => self.choice.plain = true,
            "--dry-run" if value.is_none() => self.choice.dry_run = true,
            _ if VALUED.contains(&name) => {
                let value = value.or_else(|| words.next());
                self.set(name, value.unwrap_or_default())?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set(&mut self, name: &str, value: String) -> Result<()> {
        match name {
            _ if value.is_empty() || value.starts_with('-') => {
                user_error!("{name} needs a value: see `portolan mpirun --help`")
            }
            "--mpi" => {
                let wanted = value.parse();
                let explain = |why| UserError::new(format!("--mpi {value}: {why}"));
                self.choice.mpi = Some(wanted.map_err(explain)?);
            }
            "--provider-dir" => self.choice.provider_dir = Some(value.into()),
            "--via" => {
                let explain = |_| UserError::new(format!("--via {value}: write btl or ofi"));
                let via = <Via as clap::ValueEnum>::from_str(&value, false);
                self.choice.via = Some(via.map_err(explain)?);
            }
            _ => self.hosts = Some(value.into()),
        }
        Ok(())
    }
}

/// Returns the index of the program, or the end of `args` if the programs are in a file.
fn program_at(args: &[String]) -> Option<usize> {
    let mut has_file = false;
    let mut is_value = false;
    for (index, word) in args.iter().enumerate() {
        if is_value {
            is_value = false;
            continue;
        }
        is_value = VALUED.contains(&word.as_str());
        has_file |= PROGRAM_FILES.contains(&word.as_str());
        if !word.starts_with('-') && program::find(word).is_ok() {
            return Some(index);
        }
    }
    has_file.then_some(args.len())
}

#[cfg(test)]
mod tests {
    use super::super::find::{Kind, Wanted};
    use super::*;
    use std::path::Path;

    fn args(line: &str) -> Args {
        Args {
            args: line.split(' ').map(str::to_owned).collect(),
            ..Args::default()
        }
    }

    fn taken(line: &str) -> (Args, String) {
        let args = args(line).take_own().unwrap();
        let rest = args.args.join(" ");
        (args, rest)
    }

    #[test]
    fn own_options_are_accepted_anywhere_before_the_program() {
        let line = "-n 2 --mpi mpich --hosts=list --oversubscribe --dry-run sh --mpi x --plain";
        let (Args { choice, hosts, .. }, rest) = taken(line);
        assert_eq!(rest, "-n 2 --oversubscribe sh --mpi x --plain");
        assert_eq!(choice.mpi, Some(Wanted::Kind(Kind::Mpich)));
        assert_eq!(hosts.as_deref(), Some(Path::new("list")));
        assert!(choice.dry_run && !choice.plain);
    }

    #[test]
    fn programs_may_be_in_a_file() {
        let (Args { choice, .. }, rest) = taken("--app list --mpi /bin/sh");
        assert_eq!(rest, "--app list");
        assert_eq!(choice.mpi, Some(Wanted::Launcher("/bin/sh".into())));
    }

    #[test]
    fn words_of_an_unknown_program_are_left_alone() {
        let (Args { choice, .. }, rest) = taken("-n 2 ./no-such-program --mpi x");
        assert_eq!(rest, "-n 2 ./no-such-program --mpi x");
        assert_eq!(choice.mpi, None);
    }

    #[test]
    fn a_missing_or_wrong_value_is_refused() {
        for line in ["--mpi -n 2 sh", "--mpi nonsense sh", "--hosts= sh"] {
            assert!(args(line).take_own().is_err(), "{line}");
        }
    }
}

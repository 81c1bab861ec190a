// SPDX-License-Identifier: MIT OR Apache-2.0
//! Manual pages, and completions for shells, from the definitions of the arguments.

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The directory `share` of an installation.
    directory: PathBuf,
}

/// Directory of each shell's completions below `share`.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/site-functions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];

/// Writes a page for `command` and for each subcommand that is not hidden, and the completions.
pub(crate) fn main(command: Command, args: &Args) -> Result<ExitCode> {
    let pages = made(&args.directory.join("man/man1"))?;
    let name = command.get_name().to_owned();
    let completed = without_hidden(&command);
    clap_mangen::generate_to(command, &pages)
        .with_context(|| format!("writing manual pages to {}", pages.display()))?;
    for (shell, beside) in COMPLETIONS {
        let directory = made(&args.directory.join(beside))?;
        let mut command = completed.clone();
        let written = clap_complete::generate_to(shell, &mut command, &name, &directory);
        let written = written.with_context(|| format!("writing to {}", directory.display()))?;
        if shell == Shell::Bash {
            // The loader of bash-completion expects the name of the command.
            fs::rename(&written, directory.join(&name)).context("renaming the completions")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn made(directory: &Path) -> Result<PathBuf> {
    fs::create_dir_all(directory)
        .with_context(|| format!("making the directory {}", directory.display()))?;
    Ok(directory.to_owned())
}

/// Returns what completions use of a command, without the subcommands for internal use.
fn without_hidden(command: &Command) -> Command {
    let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
    let about = command.get_about().cloned().unwrap_or_default();
    // Names are static, and this process ends soon.
    let name: &'static str = command.get_name().to_owned().leak();
    Command::new(name)
        .about(about)
        .args(command.get_arguments().cloned().collect::<Vec<_>>())
        .subcommands(shown.map(without_hidden).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::CommandFactory;

    #[test]
    fn subcommands_have_pages_and_internal_ones_have_none() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().to_owned();
        main(Cli::command(), &Args { directory }).unwrap();
        let read = |file: &str| fs::read_to_string(dir.path().join(file)).unwrap();
        for command in Cli::command().get_subcommands() {
            let page = format!("man/man1/portolan-{}.1", command.get_name());
            let is_there = dir.path().join(&page).exists();
            assert_eq!(is_there, !command.is_hide_set(), "{page}");
        }
        assert!(read("man/man1/portolan.1").contains("portolan\\-lab(1)"));
        assert!(read("man/man1/portolan-lab-capture.1").contains("\\-\\-output"));
        let completions = [
            "bash-completion/completions/portolan",
            "zsh/site-functions/_portolan",
            "fish/vendor_completions.d/portolan.fish",
        ];
        for file in completions {
            let text = read(file);
            assert!(
                text.contains("doctor") && text.contains("capture"),
                "{file}"
            );
            assert!(
                !text.contains("tune-worker") && !text.contains("rsh"),
                "{file}"
            );
        }
    }
}

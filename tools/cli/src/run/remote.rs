// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands that ssh and srun run on another host to start an agent there.
//!
//! A shell on that host prints [`READY_LINE`], then becomes the agent. Text before that line is
//! output of the shell's start-up files. Text after it is output of the agent.

use super::ssh;
use std::ffi::OsString;
use std::path::PathBuf;

/// Line that the host's shell prints right before it becomes the agent. No start-up file prints it.
pub(super) const READY_LINE: &str = "portolan-agent-follows";

/// Location of the command `portolan` on other hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RemoteProgram {
    /// The command that the user named.
    Named(String),
    /// This path if it exists on the host, as after the same installation; else the first in
    /// `PATH`. A shell that ssh starts often has a shorter `PATH` than the user's own.
    Found(PathBuf),
}

impl RemoteProgram {
    /// Returns `named`, or the path of this program, which other hosts may have as well.
    ///
    /// # Errors
    /// The path of this program is unknown.
    pub(crate) fn new(named: Option<&String>) -> std::io::Result<RemoteProgram> {
        Ok(match named {
            Some(named) => RemoteProgram::Named(named.clone()),
            None => RemoteProgram::Found(std::env::current_exe()?),
        })
    }

    /// Returns the words of the command for srun, which passes them on unchanged.
    pub(super) fn words(&self) -> Vec<OsString> {
        let program = match self {
            RemoteProgram::Named(named) => named.into(),
            RemoteProgram::Found(path) => path.clone().into_os_string(),
        };
        ["sh".into(), "-c".into(), self.script().into(), program].into()
    }

    /// Returns the command for ssh, which the login shell of that host reads. That shell expands a
    /// name that the user gave, such as `~/bin/portolan`.
    pub(super) fn command_line(&self) -> OsString {
        match self {
            RemoteProgram::Named(named) => format!("sh -c '{}' {named}", self.script()).into(),
            RemoteProgram::Found(path) => ssh::script(&self.script(), path),
        }
    }

    /// Returns the places that were searched for the agent, for an error message.
    pub(super) fn places(&self) -> String {
        match self {
            RemoteProgram::Named(named) => named.clone(),
            RemoteProgram::Found(path) => format!("{} and PATH there", path.display()),
        }
    }

    /// Returns a command that a user can try on the host.
    pub(super) fn example(&self) -> String {
        match self {
            RemoteProgram::Named(named) => named.clone(),
            RemoteProgram::Found(path) => path.display().to_string(),
        }
    }

    /// Returns a script for `sh -c`, without single quotes; its `$0` is the program.
    fn script(&self) -> String {
        let start = match self {
            // More words may follow the program, because the name may contain spaces.
            RemoteProgram::Named(_) => r#"exec "$0" "$@" agent"#,
            RemoteProgram::Found(_) => r#"test -x "$0" && exec "$0" agent; exec portolan agent"#,
        };
        format!("echo {READY_LINE}; {start}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Command;

    /// Runs the command as ssh would, with only this program in `PATH`.
    fn run(program: &RemoteProgram, path: &Path) -> (String, Option<i32>) {
        let output = Command::new("/bin/sh")
            .arg("-c")
            .arg(program.command_line())
            .env("PATH", format!("{}:/bin:/usr/bin", path.display()))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let text = text.strip_prefix(&format!("{READY_LINE}\n"));
        (text.unwrap().trim().to_owned(), output.status.code())
    }

    fn script(path: &Path, text: &str) {
        // Let another process write the file: a child forked here meanwhile would keep it open.
        let write = r#"mkdir -p "${0%/*}" && printf '#!/bin/sh\necho "%s $*"\n' "$1" >"$0" && chmod +x "$0""#;
        let made = Command::new("sh")
            .args(["-c", write])
            .arg(path)
            .arg(text)
            .status();
        assert!(made.unwrap().success());
    }

    #[test]
    fn same_path_precedes_search_path() {
        let directory = tempfile::tempdir().unwrap();
        let (own, search) = (
            directory.path().join("it's here/portolan"),
            directory.path().join("bin"),
        );
        let found = RemoteProgram::Found(own.clone());
        assert_eq!(run(&found, &search).1, Some(127), "neither is there");
        script(&search.join("portolan"), "in PATH");
        assert_eq!(run(&found, &search), ("in PATH agent".into(), Some(0)));
        script(&own, "own");
        assert_eq!(run(&found, &search), ("own agent".into(), Some(0)));
    }

    #[test]
    fn named_program_is_expanded_by_the_shell() {
        let directory = tempfile::tempdir().unwrap();
        script(&directory.path().join("other"), "other");
        let named = RemoteProgram::Named("env X=1 other".into());
        assert_eq!(
            run(&named, directory.path()),
            ("other agent".into(), Some(0))
        );
    }
}

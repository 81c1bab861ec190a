// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds a program as a shell would, and explains failures to start it.

use std::env;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Returns the file of `program`, or a part of an error sentence.
pub(crate) fn find(program: &str) -> Result<PathBuf, String> {
    if program.contains('/') {
        let path = PathBuf::from(program);
        return check(&path).map(|()| path);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let candidates = env::split_paths(&path).map(|directory| directory.join(program));
    candidates
        .into_iter()
        .find(|path| check(path).is_ok())
        .ok_or_else(|| {
            format!("program {program} not found: give its path, or add its directory to PATH")
        })
}

/// Explains why a program found by [`find`] did not start.
pub(crate) fn explain(program: &str, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT) => format!(
            "program {program} does not start: its interpreter or loader is missing; check its \
             first line (#!) or build it for this machine"
        ),
        Some(libc::EAGAIN) => format!(
            "program {program} does not start: the limit of processes is reached; raise `ulimit -u` or \
             start fewer"
        ),
        Some(libc::EMFILE | libc::ENFILE) => format!(
            "program {program} does not start: {error}; raise `ulimit -n` or start fewer per host"
        ),
        _ => format!("program {program} does not start: {error}"),
    }
}

fn check(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(format!(
                "program {shown} not found: check the path, or build it first"
            ));
        }
        Err(error) => return Err(format!("program {shown} cannot be read: {error}")),
    };
    if metadata.is_dir() {
        return Err(format!("program {shown} is a directory: name a file in it"));
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err(format!(
            "program {shown} is not executable: if it is a program, run `chmod +x {shown}`"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_searches_path_and_explains_failures() {
        assert!(find("sh").unwrap().is_absolute());
        assert_eq!(find("/bin/sh").unwrap(), Path::new("/bin/sh"));
        for (program, word) in [
            ("no-such-program", "not found"),
            ("./no-such-program", "not found"),
            ("/tmp/", "is a directory"),
            ("/etc/passwd", "not executable"),
        ] {
            let error = find(program).unwrap_err();
            assert!(error.contains(word) && error.contains(program), "{error}");
        }
    }
}

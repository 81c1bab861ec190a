// SPDX-License-Identifier: MIT OR Apache-2.0
//! Environment variables for the processes of Open MPI on other hosts.
//!
//! Open MPI has two methods: `-x NAME` before each program of a job, and one list for all programs,
//! the parameter `mca_base_env_list`. Open MPI 4 refuses a job that uses both. So the list is used
//! unless the user has written `-x`. A file of `--app` may hold several programs and `-x` as well.

use super::plan::Word;

/// The list as an environment variable.
pub(super) const LIST: &str = "OMPI_MCA_mca_base_env_list";

/// The list as a parameter on the command line.
const LIST_PARAMETER: &str = "mca_base_env_list";

/// Default separator of two entries of the list, and the variable by which users set another.
const DELIMITER: &str = ";";
const DELIMITER_VARIABLE: &str = "OMPI_MCA_mca_base_env_list_delimiter";

/// Method that a job uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The list in the environment, with the previous value `own`.
    Variable {
        own: Option<String>,
        delimiter: String,
    },
    /// The list in this word of the command line.
    Parameter { index: usize, delimiter: String },
    /// `-x` before each program, and before each of the file of `--app`.
    Each { app: Option<App> },
}

/// Contents of the file of `--app`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct App {
    /// Index of the argument that names the file.
    index: usize,
    text: String,
}

impl Way {
    /// Chooses by the launcher's arguments, with the variables that `variable` returns and the
    /// files that `read` reads. A file that cannot be read is left for the launcher to report.
    pub(super) fn choose(
        args: &[Word],
        variable: impl Fn(&str) -> Option<String>,
        read: impl Fn(&str) -> Option<String>,
    ) -> Way {
        let delimiter = variable(DELIMITER_VARIABLE).unwrap_or_else(|| DELIMITER.to_owned());
        let own = variable(LIST);
        if own.is_none() {
            let app = value_of(args, |word| matches!(word, "--app" | "-app"));
            let app = app.and_then(|index| {
                let text = read(args[index].text()?)?;
                Some(App { index, text })
            });
            let in_app = app.iter().flat_map(|app| app.text.split_whitespace());
            let words = args.iter().filter_map(Word::text);
            if words.chain(in_app).any(|word| matches!(word, "-x" | "--x")) {
                return Way::Each { app };
            }
        }
        match value_of(args, |word| word == LIST_PARAMETER) {
            Some(index) => Way::Parameter { index, delimiter },
            None => Way::Variable { own, delimiter },
        }
    }

    /// Adds `entry`, a variable's name or `NAME=VALUE`, to `args`, to the launcher's `options`
    /// before these, or to the list that is returned, the new value of [`LIST`].
    pub(super) fn export(
        &mut self,
        entry: &str,
        options: &mut Vec<Word>,
        args: &mut Vec<Word>,
    ) -> Option<String> {
        match self {
            Way::Variable { own, delimiter } => {
                *own = Some(joined(own.as_deref(), entry, delimiter));
                own.clone()
            }
            Way::Parameter { index, delimiter } => {
                args[*index] = Word::Text(joined(args[*index].text(), entry, delimiter));
                None
            }
            Way::Each { app } => {
                let words = ["-x", entry].map(|word| Word::Text(word.to_owned()));
                *args = behind_each_colon(args, &words, app);
                options.extend(words);
                None
            }
        }
    }
}

/// Returns the index of the word after the first one that `is_option` accepts.
fn value_of(args: &[Word], is_option: impl Fn(&str) -> bool) -> Option<usize> {
    let at = args
        .iter()
        .position(|word| word.text().is_some_and(&is_option))?;
    (at + 1 < args.len()).then_some(at + 1)
}

fn joined(list: Option<&str>, entry: &str, delimiter: &str) -> String {
    match list.filter(|list| !list.is_empty()) {
        Some(list) => format!("{list}{delimiter}{entry}"),
        None => entry.to_owned(),
    }
}

/// Returns `args` with `words` after each `:`, which begins another program of the job, and before
/// each program of the file of `--app`.
fn behind_each_colon(args: &[Word], words: &[Word], app: &mut Option<App>) -> Vec<Word> {
    let mut all = Vec::new();
    for (index, arg) in args.iter().enumerate() {
        match app {
            Some(app) if app.index == index => {
                app.text = before_each_line(&app.text, words);
                app.index = all.len();
                all.push(Word::File(app.text.clone()));
            }
            _ => all.push(arg.clone()),
        }
        if arg.text() == Some(":") {
            all.extend_from_slice(words);
        }
    }
    all
}

/// Returns the lines of a file of `--app` with `words` in front of those that name a program.
fn before_each_line(text: &str, words: &[Word]) -> String {
    let words: Vec<&str> = words.iter().filter_map(Word::text).collect();
    let words = words.join(" ");
    let lines = text.lines().map(|line| {
        let is_program = !line.trim().is_empty() && !line.trim_start().starts_with('#');
        match is_program {
            true => format!("{words} {line}\n"),
            false => format!("{line}\n"),
        }
    });
    lines.collect()
}

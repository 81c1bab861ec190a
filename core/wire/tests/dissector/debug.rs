// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the output of `Debug`, to list the fields of any structure with their values.

/// Returns the innermost fields of a structure as names and values. `Some`, and other tuples with
/// one member, count as the member; a field with `None` is left out.
pub(crate) fn fields(value: &impl std::fmt::Debug) -> Vec<(String, String)> {
    let mut found = Vec::new();
    collect("", &format!("{value:?}"), &mut found);
    found
}

fn collect(name: &str, text: &str, found: &mut Vec<(String, String)>) {
    let text = text.trim();
    let is_ident = |c: char| c.is_alphanumeric() || c == '_';
    let rest = text.trim_start_matches(is_ident);
    if rest.starts_with('[') || text == "None" {
        if text != "None" {
            found.push((name.to_owned(), text.to_owned()));
        }
    } else if let Some(members) = inside(rest.trim_start(), '{', '}') {
        for member in split(members) {
            let (name, value) = member.split_once(':').expect("a field");
            collect(name.trim(), value, found);
        }
    } else if let Some(member) = inside(rest, '(', ')') {
        collect(name, member, found);
    } else {
        found.push((name.to_owned(), text.to_owned()));
    }
}

fn inside(text: &str, open: char, close: char) -> Option<&str> {
    text.strip_prefix(open)?.strip_suffix(close)
}

/// Splits at the commas that are in no brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

#[test]
fn nested_fields_are_listed() {
    #[derive(Debug)]
    #[allow(dead_code)]
    struct Outer {
        head: Inner,
        absent: Option<u8>,
        present: Option<u8>,
        list: [u8; 2],
    }
    #[derive(Debug)]
    #[allow(dead_code)]
    struct Inner {
        lane: &'static str,
    }
    let outer = Outer {
        head: Inner { lane: "x" },
        absent: None,
        present: Some(3),
        list: [1, 2],
    };
    let pairs = [("lane", "\"x\""), ("present", "3"), ("list", "[1, 2]")];
    let expected = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(fields(&Some(outer)), expected);
}

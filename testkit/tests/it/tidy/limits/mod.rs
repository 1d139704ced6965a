//! Limits are named constants in `core/src/limits` and `expr/src/limits.rs`. Each documents what it bounds, and the reference lists them all.

mod elsewhere;
mod page;
mod value;

use super::finding::{Finding, assert_none};
use super::tree;
use std::collections::BTreeMap;

/// The files of limits with their titles, in the order of the reference.
const FILES: &[(&str, &str)] = &[
    ("ledger", "Ledger"),
    ("access", "Access"),
    ("flow", "Workflows and runs"),
    ("expr", "Expressions"),
    ("act", "Requests, goals and risk"),
    ("intent", "Intents"),
    ("tool", "Tools"),
    ("http", "HTTP"),
    ("store", "Stores"),
    ("process", "Process and command line"),
];

/// A public constant in one of these files.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Limit {
    file: String,
    line: usize,
    /// The title of its section, from a `//` comment.
    section: String,
    name: String,
    kind: String,
    value: String,
    /// The first sentence of its doc comment.
    bounds: String,
    /// The other sentences.
    beyond: String,
}

fn path(name: &str) -> String {
    match name {
        // The expression language is a separate crate with its own limits.
        "expr" => "expr/src/limits.rs".to_owned(),
        name => format!("core/src/limits/{name}.rs"),
    }
}

/// Parses every public constant of a file, with its section and doc comment.
fn read(file: &str, source: &str) -> Vec<Limit> {
    let (mut limits, mut doc, mut section) = (Vec::new(), Vec::new(), String::new());
    for (at, line) in source.lines().enumerate() {
        if let Some(text) = line.strip_prefix("///") {
            doc.push(text.trim());
            continue;
        }
        if let Some(title) = line.strip_prefix("// ") {
            section = title.to_owned();
        } else if let Some((name, rest)) = line.strip_prefix("pub const ").and_then(|rest| rest.split_once(": ")) {
            let (kind, value) = rest.trim_end_matches(';').split_once(" = ").unwrap_or((rest, ""));
            let doc = doc.join(" ");
            let (bounds, beyond) = doc.split_once(". ").unwrap_or((&doc, ""));
            limits.push(Limit {
                file: file.to_owned(),
                line: at + 1,
                section: section.clone(),
                name: name.to_owned(),
                kind: kind.to_owned(),
                value: value.to_owned(),
                bounds: bounds.trim_end_matches('.').to_owned(),
                beyond: beyond.trim_end_matches('.').to_owned(),
            });
        }
        doc.clear();
    }
    limits
}

/// Every limit of the system.
fn all() -> Vec<Limit> {
    FILES.iter().flat_map(|(name, _)| read(&path(name), tree::text(&path(name)))).collect()
}

/// Words in backticks that look like error codes.
fn codes(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|word| word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')).collect()
}

/// Limits without documentation of both sides, with an unknown error code, with a value that cannot be shown, or with a
/// duplicate name.
fn check(limits: &[Limit], is_code: impl Fn(&str) -> bool) -> Vec<Finding> {
    let (mut found, mut names) = (Vec::new(), BTreeMap::new());
    for limit in limits {
        let mut say = |what: String| found.push(Finding::new(&limit.file, limit.line, what));
        if limit.bounds.is_empty() || limit.beyond.is_empty() {
            say(format!(
                "{}: document what it bounds in one sentence, and what happens beyond it in the next",
                limit.name
            ));
        }
        for code in codes(&limit.beyond).into_iter().filter(|code| !is_code(code)) {
            say(format!("{}: unknown error code {code}", limit.name));
        }
        if value::shown(limit, limits).is_none() {
            say(format!("{}: cannot evaluate `{}` for the reference", limit.name, limit.value));
        }
        if let Some(other) = names.insert(&limit.name, &limit.file) {
            say(format!("{} is also defined in {other}: rename one", limit.name));
        }
    }
    found
}

#[test]
fn every_limit_says_what_it_bounds_and_what_happens_beyond_it() {
    let limits = all();
    assert!(limits.len() > 200, "{} limits", limits.len());
    let is_code = |code: &str| tree::files().iter().any(|file| file.path == format!("docs/errors/{code}.md"));
    assert_none(&check(&limits, is_code));
}

#[test]
fn every_file_of_limits_is_read() {
    let listed = |file: &str| FILES.iter().any(|(name, _)| path(name) == file);
    let files = tree::files().iter().filter(|file| file.path.starts_with("core/src/limits/"));
    let found = files.filter(|file| !listed(&file.path)).map(|file| Finding::new(&file.path, 1, "add it to FILES"));
    assert_none(&found.collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "//! Head.\n\n// Bodies\n\n/// Bytes of a body\n/// of mail. More is refused with `TOO_BIG`.\n\
                          pub const BODY_BYTES: usize = 2 * 1_024;\nconst HIDDEN: u8 = 1;\n/// Time to wait.\n\
                          pub const WAIT: Duration = Duration::from_hours(1);\n";

    #[test]
    fn constants_are_read_with_the_words_around_them() {
        let [body, wait] = &read("a.rs", SOURCE)[..] else { panic!("two limits") };
        assert_eq!((body.line, body.section.as_str(), body.name.as_str()), (7, "Bodies", "BODY_BYTES"));
        assert_eq!((body.kind.as_str(), body.value.as_str()), ("usize", "2 * 1_024"));
        assert_eq!(
            (body.bounds.as_str(), body.beyond.as_str()),
            ("Bytes of a body of mail", "More is refused with `TOO_BIG`")
        );
        assert_eq!((wait.bounds.as_str(), wait.beyond.as_str()), ("Time to wait", ""));
    }

    #[test]
    fn a_limit_that_says_too_little_is_found() {
        let mut limits = read("a.rs", SOURCE);
        limits.push(limits[0].clone());
        let found = check(&limits, |code| code == "TOO_LARGE");
        let found: Vec<&str> = found.iter().map(|found| found.what.as_str()).collect();
        assert_eq!(
            found,
            [
                "BODY_BYTES: unknown error code TOO_BIG",
                "WAIT: document what it bounds in one sentence, and what happens beyond it in the next",
                "WAIT: cannot evaluate `Duration::from_hours(1)` for the reference",
                "BODY_BYTES: unknown error code TOO_BIG",
                "BODY_BYTES is also defined in a.rs: rename one",
            ]
        );
        assert_eq!(check(&limits[..1], |_| true), []);
    }
}

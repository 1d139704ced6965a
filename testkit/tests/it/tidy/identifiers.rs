//! Names and paths of code that documents and comments quote in backticks exist.
//!
//! A quoted name counts if it is spelled like a constant, a type, or a function of several words. It exists if it is a
//! word of the code, of a string, or of any file that is not a document.

use super::finding::{Finding, assert_none};
use super::rust_file::RustFile;
use super::tree::{self, TextFile};
use std::collections::BTreeSet;

/// Quoted names that are not in the code, and why.
const FOREIGN: &[(&str, &str)] = &[
    ("HttpServerImpl", "an example"),
    ("delete_at", "an example"),
    ("Location", "an HTTP header"),
    ("RateLimit", "an HTTP header"),
];

/// Environment variables are made of this prefix and the name of a setting or secret.
const VARIABLES: &str = "CHIMERA_";

/// The names in this file's lists and tests don't exist by being there.
const THIS: &str = "testkit/tests/it/tidy/identifiers.rs";

/// A history names what is gone.
const HISTORY: &str = "CHANGELOG.md";

/// The words of a text that could be names.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|next: char| !next.is_ascii_alphanumeric() && next != '_').filter(|word| !word.is_empty())
}

/// Whether a word looks like a name in code.
fn is_name(word: &str) -> bool {
    let all = |allowed: fn(&char) -> bool| word.chars().all(|next| allowed(&next));
    let parts = || word.trim_start_matches('_').split('_');
    let joined = parts().count() > 1 && parts().all(|part| !part.is_empty());
    let digits = word.starts_with(|first: char| first.is_ascii_digit());
    let screaming = joined && all(|next| next.is_ascii_uppercase() || next.is_ascii_digit() || *next == '_');
    let snake = joined && all(|next| next.is_ascii_lowercase() || next.is_ascii_digit() || *next == '_');
    let mut chars = word.chars();
    let capital = chars.next().is_some_and(|first| first.is_ascii_uppercase());
    let camel = capital && !word.contains('_') && chars.next().is_some_and(|second| second.is_ascii_lowercase());
    !digits && (screaming || snake || camel)
}

/// Line and text of every piece of inline code, outside fenced blocks.
fn quoted<'a>(lines: &[(usize, &'a str)]) -> Vec<(usize, &'a str)> {
    let mut fenced = false;
    let mut found = Vec::new();
    for (line, text) in lines {
        if text.trim_start_matches(['/', '!', ' ']).starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            found.extend(text.split('`').skip(1).step_by(2).map(|code| (*line, code)));
        }
    }
    found
}

/// Whether a piece of code consists of these characters.
fn is_made_of(code: &str, marks: &str) -> bool {
    !code.is_empty() && code.chars().all(|next| next.is_ascii_alphanumeric() || marks.contains(next))
}

fn check(path: &str, lines: &[(usize, &str)], known: &BTreeSet<&str>) -> Vec<Finding> {
    let plain = quoted(lines).into_iter().filter(|(_, code)| is_made_of(code, "_:().!&<>"));
    let names = plain.flat_map(|(line, code)| words(code).map(move |word| (line, word)));
    let listed = |word: &str| FOREIGN.iter().any(|(name, _)| *name == word) || word.starts_with(VARIABLES);
    let gone = names.filter(|(_, word)| is_name(word) && !known.contains(word) && !listed(word));
    let what = |word: &str| format!("{word} does not exist: use its current name, or add it to FOREIGN with a reason");
    gone.map(|(line, word)| Finding::new(path, line, what(word))).collect()
}

/// Paths of source files and folders that don't exist.
fn check_paths(path: &str, lines: &[(usize, &str)], exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let is_source = |code: &str| is_made_of(code, "_-./") && (code.contains("/src/") || code.contains("/tests/"));
    let gone = quoted(lines).into_iter().filter(|(_, code)| is_source(code) && !exists(code));
    gone.map(|(line, code)| Finding::new(path, line, format!("{code} does not exist"))).collect()
}

/// Every word of the code and of its strings, and of files that are neither code nor documents.
fn known<'a>(sources: &'a [RustFile], others: &'a [TextFile]) -> BTreeSet<&'a str> {
    let sources = sources.iter().filter(|file| file.path != THIS);
    let tokens = sources.clone().flat_map(|file| file.tokens.iter().map(|token| token.word.as_str()));
    let strings = sources.flat_map(|file| file.strings().into_iter().flat_map(|(_, text)| words(text)));
    let others = others.iter().filter(|file| !file.path.ends_with(".rs") && !file.path.ends_with(".md"));
    tokens.chain(strings).chain(others.flat_map(|file| words(&file.text))).collect()
}

/// Every comment and every document but the history, as numbered lines.
fn texts() -> Vec<(&'static str, Vec<(usize, &'static str)>)> {
    let comments = tree::rust().iter().map(|file| (file.path.as_str(), file.comments()));
    let documents = tree::files().iter().filter(|file| file.path.ends_with(".md") && file.path != HISTORY);
    let documents = documents.map(|file| {
        (file.path.as_str(), file.text.lines().enumerate().map(|(at, line)| (at + 1, line)).collect::<Vec<_>>())
    });
    comments.chain(documents).collect()
}

#[test]
fn every_name_that_a_text_quotes_exists() {
    let known = known(tree::rust(), tree::files());
    let unneeded = FOREIGN.iter().filter(|(name, _)| known.contains(name));
    let what = |name: &str| format!("{name} exists: remove it from FOREIGN");
    assert_none(&unneeded.map(|(name, _)| Finding::new(THIS, 1, what(name))).collect::<Vec<_>>());
    assert_none(&texts().iter().flat_map(|(path, lines)| check(path, lines, &known)).collect::<Vec<_>>());
}

#[test]
fn every_source_path_that_a_text_quotes_exists() {
    let root = tree::root();
    let exists = |path: &str| root.join(path).exists();
    assert_none(&texts().iter().flat_map(|(path, lines)| check_paths(path, lines, &exists)).collect::<Vec<_>>());
    let lines = [(1, "`core/src/a.rs`, `core/src/<room>/`"), (2, "`core/src/gone.rs`")];
    assert_eq!(check_paths("a.md", &lines, &|path| path == "core/src/a.rs").len(), 1);
}

#[test]
fn a_quoted_name_that_is_gone_is_found() {
    let known = BTreeSet::from(["KEPT_MS", "kept_row", "Kept", "Run"]);
    let lines = [
        (1, "see `KEPT_MS`, `GONE_MS` and `kept_row`"),
        (2, "`Run::gone_row` and `Run::kept_row(&self)`, GONE_MS, `{gone_row: 1}`, `id`, `v2_`, `CHIMERA_GONE`"),
        (3, "`Passing` is `Kept`"),
        (4, "```"),
        (5, "`GONE_MS`"),
    ];
    let found: Vec<(usize, String)> =
        check("a.md", &lines, &known).into_iter().map(|found| (found.line, found.what)).collect();
    let names: Vec<(usize, &str)> =
        found.iter().map(|(line, what)| (*line, what.split(' ').next().unwrap_or_default())).collect();
    assert_eq!(names, [(1, "GONE_MS"), (2, "gone_row"), (3, "Passing")]);
}

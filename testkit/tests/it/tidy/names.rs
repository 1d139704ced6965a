//! Names are specific: no filler words, no version suffixes. The name of a test is a sentence.

use super::finding::{Finding, assert_none};
use super::rust_file::{RustFile, is_name};
use super::tree;
use std::collections::BTreeMap;

const EMPTY_WORDS: &[&str] = &["Manager", "Helper", "Helpers", "Util", "Utils", "Common", "Impl", "Misc", "V2"];
const EMPTY_FILES: &[&str] = &["util", "utils", "helper", "helpers", "common", "misc", "manager", "impl"];

/// The words of a camel-case name: `HttpServerImpl` is Http, Server, Impl.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for c in name.chars() {
        match words.last_mut() {
            Some(word) if !c.is_uppercase() => word.push(c),
            _ => words.push(c.to_string()),
        }
    }
    words
}

fn types(file: &RustFile) -> Vec<Finding> {
    let declares = |word: &str| ["struct", "enum", "trait", "type", "union"].contains(&word);
    let declared = file.tokens.windows(2).filter(|pair| declares(&pair[0].word) && is_name(&pair[1].word));
    declared
        .filter_map(|pair| {
            let words = words(&pair[1].word);
            let empty = words.iter().find(|word| EMPTY_WORDS.contains(&word.as_str()))?;
            let what = format!("{} contains the filler word {empty}: name it after what it is", pair[1].word);
            Some(Finding::new(&file.path, pair[1].line, what))
        })
        .collect()
}

fn functions(file: &RustFile) -> Vec<Finding> {
    let named = file.tokens.windows(2).filter(|pair| ["fn", "mod", "const", "static"].contains(&pair[0].word.as_str()));
    let old = named.filter(|pair| pair[1].word.to_lowercase().ends_with("_v2"));
    old.map(|pair| {
        Finding::new(&file.path, pair[1].line, format!("{} has a version suffix: replace the old one", pair[1].word))
    })
    .collect()
}

fn path(path: &str) -> Option<Finding> {
    let parts = path.split('/').map(|part| part.strip_suffix(".rs").unwrap_or(part));
    let empty = parts.into_iter().find(|part| EMPTY_FILES.contains(part) || part.ends_with("_v2"))?;
    Some(Finding::new(path, 1, format!("{empty} is too vague: put each item into a file named after it")))
}

/// Types of one crate's library that have the same name as another one, or as a type that the library imports from
/// another of our crates, outside of tests. Types inside functions and impl blocks are indented and don't count.
fn namesakes(files: &[&RustFile]) -> Vec<Finding> {
    let mut known: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    let mut found = Vec::new();
    for file in files {
        let lines: Vec<&str> = file.text.lines().collect();
        let declares = |word: &str| ["struct", "enum", "trait", "type", "union"].contains(&word);
        for pair in file.tokens.windows(2).filter(|pair| declares(&pair[0].word) && is_name(&pair[1].word)) {
            let (name, line) = (&pair[1], pair[1].line);
            let indented = lines.get(line - 1).is_some_and(|text| text.starts_with(' '));
            if indented || file.is_test(line) || !name.word.starts_with(char::is_uppercase) {
                continue;
            }
            if let Some(other) = known.insert((file.layer(), &name.word), &file.path) {
                let what = format!("{} is also defined in {other}: one name has one meaning in a crate", name.word);
                found.push(Finding::new(&file.path, line, what));
            }
        }
    }
    for file in files {
        for (line, name) in imported_types(file) {
            if let Some(own) = known.get(&(file.layer(), name)) {
                let what = format!("{name} is also defined in {own}: one name has one meaning in a crate");
                found.push(Finding::new(&file.path, line, what));
            }
        }
    }
    found
}

/// Line and name of every type that a file imports from one of our crates, under its own name or another.
fn imported_types(file: &RustFile) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for at in file.find("use") {
        let path = &file.tokens[at + 1..];
        let end = path.iter().position(|token| token.word == ";").unwrap_or(path.len());
        if !path.first().is_some_and(|token| token.word.starts_with("chimera_")) || file.is_test(file.tokens[at].line) {
            continue;
        }
        for (at, token) in path[..end].iter().enumerate() {
            let is_type = token.word.starts_with(char::is_uppercase) && token.word.contains(char::is_lowercase);
            let is_alias = at > 0 && path[at - 1].word == "as";
            let is_parent = path.get(at + 1).is_some_and(|next| next.word == ":");
            if is_type && !is_alias && !is_parent {
                found.push((token.line, token.word.as_str()));
            }
        }
    }
    found
}

#[test]
fn a_type_name_has_one_meaning_in_a_crate() {
    let libraries: Vec<&RustFile> =
        tree::rust().iter().filter(|file| file.path.contains("/src/") && file.layer() != "testkit").collect();
    assert_none(&namesakes(&libraries));
    let file = |path: &str| RustFile::new(path, "pub struct Kind;\nimpl Iterator for Kind {\n    type Item = u8;\n}\n");
    let (one, other, elsewhere) = (file("core/src/a.rs"), file("core/src/b.rs"), file("engine/src/a.rs"));
    assert_eq!(namesakes(&[&one, &elsewhere]).len(), 0);
    assert_eq!(namesakes(&[&one, &other]).len(), 1);
    let imports =
        "use chimera_core::a::{KIND, Kind as CoreKind, Other};\nuse chimera_core::b::Kind::First;\nuse std::Kind;\n";
    let user = RustFile::new("engine/src/b.rs", imports);
    assert_eq!(namesakes(&[&elsewhere, &user]).iter().map(|found| found.line).collect::<Vec<_>>(), [1]);
    assert_eq!(namesakes(&[&user]).len(), 0);
}

/// Tests whose names are not sentences: fewer than three words, or a `test_` prefix.
fn unclear_tests(file: &RustFile) -> Vec<Finding> {
    let marks = ["#[test]", "#[tokio::test"].iter().flat_map(|mark| file.find(mark));
    let named = marks.filter_map(|at| {
        let name = file.tokens[at..].windows(2).find(|pair| pair[0].word == "fn")?;
        Some(&name[1])
    });
    let mumbled = named.filter(|name| name.word.split('_').count() < 3 || name.word.starts_with("test_"));
    let what = |name: &str| format!("{name} is not a sentence: state what holds, like `a_stale_epoch_can_not_write`");
    mumbled.map(|name| Finding::new(&file.path, name.line, what(&name.word))).collect()
}

#[test]
fn tests_are_named_by_sentences() {
    assert_none(&tree::rust().iter().flat_map(unclear_tests).collect::<Vec<_>>());
}

#[test]
fn types_and_functions_are_named_after_what_they_are() {
    let found = tree::rust().iter().flat_map(|file| [types(file), functions(file)].concat());
    assert_none(&found.collect::<Vec<_>>());
}

#[test]
fn files_are_named_after_what_they_hold() {
    assert_none(&tree::files().iter().filter_map(|file| path(&file.path)).collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_word_in_a_type_is_found() {
        let text = "struct LeaseManager;\nenum StoreImpl {}\ntrait Managed {}\ntype Utility = u8;\nstruct ImplicitV2;\nimpl X {}";
        let found = types(&RustFile::new("core/src/x.rs", text));
        assert_eq!(found.iter().map(|found| found.line).collect::<Vec<_>>(), [1, 2, 5]);
    }

    #[test]
    fn a_test_without_a_sentence_is_found() {
        let text = "#[test]\nfn works() {}\n#[tokio::test(start_paused = true)]\nasync fn test_it_all_works() {}\n#[test]\nfn a_row_is_kept() {}\nfn plain() {}";
        let mut lines: Vec<usize> =
            unclear_tests(&RustFile::new("core/tests/it/x.rs", text)).iter().map(|found| found.line).collect();
        lines.sort_unstable();
        assert_eq!(lines, [2, 4]);
    }

    #[test]
    fn history_in_a_name_is_found() {
        assert_eq!(functions(&RustFile::new("core/src/x.rs", "fn commit_v2() {}\nfn uuid_v7() {}")).len(), 1);
        assert!(path("core/src/flow/run_v2.rs").is_some());
    }

    #[test]
    fn a_file_that_could_hold_anything_is_found() {
        assert!(path("engine/src/common/mod.rs").is_some() && path("api/tests/it/helpers.rs").is_some());
        assert!(path("engine/src/commit/mod.rs").is_none());
    }
}

//! Every type of ledger entry that the code writes is in the list of `core`, and the page of reference shows that list.
//!
//! `UPDATE_DOCS=1 ./test tidy::entry_types` rewrites the page.

use super::finding::{Finding, assert_none};
use super::rust_file::RustFile;
use super::tree;
use chimera_core::ledger::{ENTRY_TYPES, EntryType};
use std::collections::BTreeSet;
use std::fmt::Write;

const LIST: &str = "core/src/ledger/entry_type.rs";
const PAGE: &str = "docs/reference/ledger.md";
const SETTINGS: &str = "docs/reference/config.md";

/// Where entries are written.
const WRITERS: &[&str] = &["core/src/flow/", "engine/src/", "chimera/src/compose"];

/// Texts that look like a type of entry, and what they are.
const OTHERS: &[(&str, &str)] = &[
    ("access.changed", "a topic of the bus"),
    ("actor.disabled", "a rule of the access policy"),
    ("actor.tenant", "a rule of the access policy"),
    ("intent.tenant", "the id of a policy"),
    ("work.claim", "a scope"),
];

const HEAD: &str = "# Ledger entries

Every entry of the audit ledger has a type, `event_type`. `chimera audit list --event-type TYPE` and `GET /audit?event_type=TYPE` \
                    list the entries of one type, and `GET /runs/{id}/events` sends those of one run. An entry never changes, so one that an earlier \
                    version wrote keeps its former name. A list by either name finds both.

`data_json` of an entry has digests, ids, names, error codes, and reasons and notes of people, in which credentials are masked. It never has inputs or outputs, only \
                    their digests.
";

/// The subjects of all types, in the order of the list.
fn subjects() -> Vec<&'static str> {
    let mut subjects = Vec::new();
    for subject in ENTRY_TYPES.iter().filter_map(|known| Some(known.name.split_once('.')?.0)) {
        if !subjects.contains(&subject) {
            subjects.push(subject);
        }
    }
    subjects
}

/// Whether a text has the form of a type: a subject of the list, and what happened.
fn is_like_type(text: &str, subjects: &[&str]) -> bool {
    let plain = |what: &str| {
        what.contains(|c: char| c.is_ascii_lowercase()) && what.chars().all(|c| c.is_ascii_lowercase() || c == '_')
    };
    text.split_once('.').is_some_and(|(subject, what)| subjects.contains(&subject) && plain(what))
}

/// Texts in the code that look like types of entries and are in no list. Settings have the same form.
fn unlisted(file: &RustFile, subjects: &[&str], settings: &str) -> Vec<Finding> {
    let is_known = |text: &str| {
        let listed = ENTRY_TYPES.iter().any(|known| known.name == text);
        listed || OTHERS.iter().any(|(other, _)| *other == text) || settings.contains(&format!("`{text}`"))
    };
    let found = file
        .strings()
        .into_iter()
        .filter(|(line, text)| !file.is_test(*line) && is_like_type(text, subjects) && !is_known(text));
    let what =
        |text: &str| format!("{text} is no type of ledger entry: add it to {LIST}, or to OTHERS with what it is");
    found.map(|(line, text)| Finding::new(&file.path, line, what(text))).collect()
}

fn page(types: &[EntryType], subjects: &[&str]) -> String {
    let mut page = HEAD.to_owned();
    for subject in subjects {
        let _ = write!(page, "\n## {subject}\n\n| type | when | former names |\n|---|---|---|\n");
        for known in types.iter().filter(|known| known.name.split_once('.').is_some_and(|(own, _)| own == *subject)) {
            let former: Vec<String> = known.former.iter().map(|name| format!("`{name}`")).collect();
            let _ = writeln!(page, "| `{}` | {} | {} |", known.name, known.when, former.join(", "));
        }
    }
    page
}

#[test]
fn every_type_of_entry_that_is_written_is_listed() {
    let (subjects, is_writer) = (subjects(), |file: &&RustFile| WRITERS.iter().any(|path| file.path.starts_with(path)));
    let settings = tree::text(SETTINGS);
    let writers: Vec<&RustFile> = tree::rust().iter().filter(is_writer).collect();
    assert_none(&writers.iter().flat_map(|file| unlisted(file, &subjects, settings)).collect::<Vec<_>>());
    let written: BTreeSet<&str> = writers.iter().flat_map(|file| file.strings()).map(|(_, text)| text).collect();
    let names = ENTRY_TYPES.iter().map(|known| known.name).chain(OTHERS.iter().map(|(other, _)| *other));
    let unused = names.filter(|name| !written.contains(name));
    assert_none(
        &unused.map(|name| Finding::new(LIST, 1, format!("nothing writes {name}: remove it"))).collect::<Vec<_>>(),
    );
}

#[test]
fn the_reference_lists_every_type_of_entry() {
    let wanted = page(ENTRY_TYPES, &subjects());
    let path = tree::root().join(PAGE);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &wanted).expect("the page can be written");
    }
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(page == wanted, "{PAGE} differs from {LIST}: run `UPDATE_DOCS=1 ./test tidy::entry_types`");
}

#[test]
fn a_type_that_is_in_no_list_is_found() {
    let text = "fn a() { note(\"run.started\"); note(\"run.told\"); set(\"run.limit\"); open(\"house.sold\"); }";
    let found = unlisted(&RustFile::new("core/src/flow/x.rs", text), &["run"], "| `run.limit` |");
    assert_eq!(found.len(), 1);
    assert!(found[0].what.starts_with("run.told is no type"), "{}", found[0].what);
}

//! Columns are named through the catalogue, and rows are read by their decoders.
//!
//! `core/src/<room>/tables.rs` declares each table with its columns, its row struct and its decoder. Other code uses
//! the struct, or the name of the column (`runs::status`); a string literal would compile whatever it says. `storage`
//! is exempt, since it owns the SQL, and so are the memory store of `testkit` and `core/src/record`, which know no table.
//! The contract suites, the simulator and the crash matrix follow the rule; the tests of the crates need not.

use super::finding::{Finding, assert_none};
use super::rust_file::RustFile;
use super::scan::{self, SpanKind};
use super::tree;
use std::collections::BTreeSet;

/// Methods of a row that take a column.
const READS: &[&str] = &["get", "text", "int", "uuid"];

/// Methods of a query that take a column.
const QUERIES: &[&str] = &["with", "filter"];

/// What the value of a column is asked for. JSON documents have other accessors.
const VALUES: &[&str] = &["as_int", "as_text", "as_uuid", "as_time", "as_bytes", "as_json"];

fn columns() -> BTreeSet<&'static str> {
    chimera_core::catalog().into_iter().flat_map(|table| table.columns).map(|column| column.name).collect()
}

fn is_exempt(file: &RustFile) -> bool {
    let path = file.path.as_str();
    let is_catalogue = path.starts_with("core/src/record/") || path.ends_with("/tables.rs");
    let is_testkit = path.starts_with("testkit/src/") && !path.starts_with("testkit/src/memory/");
    let is_checked = !file.is_test_file() || is_testkit;
    is_catalogue || file.layer() == "storage" || !is_checked || !file.text.contains("record::")
}

fn check(file: &RustFile) -> Vec<Finding> {
    if is_exempt(file) {
        return Vec::new();
    }
    let (columns, tokens) = (columns(), &file.tokens);
    let word = |at: usize| tokens.get(at).map_or("", |token| token.word.as_str());
    let spans = scan::spans(&file.text).into_iter().filter(|span| span.kind == SpanKind::Literal);
    let mut found = Vec::new();
    for span in spans {
        let name = scan::content(&file.text[span.start..span.end]);
        let Some(at) = tokens.iter().position(|token| token.start == span.start) else { continue };
        let line = tokens[at].line;
        let is_tested = !file.is_test_file() && file.is_test(line);
        if columns.contains(name) && !is_tested && names_column(&word, at) {
            found.push(Finding::new(&file.path, line, format!("name the column {name} through the catalogue")));
        }
    }
    found
}

/// Whether the literal at `at` stands where a column is named.
fn names_column<'a>(word: &impl Fn(usize) -> &'a str, at: usize) -> bool {
    let before = |steps: usize| at.checked_sub(steps).map_or("", word);
    let (is_first, is_call) = (before(1) == "(", before(3) == ".");
    let is_read = is_first && is_call && READS.contains(&before(2)) && word(at + 1) == ")";
    let is_row_read = before(2) != "get" || (word(at + 2) == "." && VALUES.contains(&word(at + 3)));
    let is_query = is_first && is_call && QUERIES.contains(&before(2)) && statement(word, at).contains("elect");
    let is_helper = is_first && !is_call && ["is", "equals"].contains(&before(2)) && word(at + 1) == ",";
    let is_cell = is_first && word(at + 1) == "," && ["(", "[", ","].contains(&before(2)) && is_change(word, at);
    let is_condition = before(1) == ":" && before(2) == "column";
    let is_list = before(1) == "[" && before(2) == "&" && before(4) == "by";
    (is_read && is_row_read) || is_query || is_helper || is_cell || is_condition || is_list
}

/// The statement in front of a token.
fn statement<'a>(word: &impl Fn(usize) -> &'a str, at: usize) -> String {
    let mut words: Vec<&str> = (0..at).rev().map(word).take_while(|word| !["{", "}", ";"].contains(word)).collect();
    words.reverse();
    words.join(" ")
}

/// Whether a pair in front of a token belongs to an insert or an update: its value becomes a cell.
fn is_change<'a>(word: &impl Fn(usize) -> &'a str, at: usize) -> bool {
    let value: Vec<&str> = (at..at + 60).map(word).take_while(|word| !["[", ";"].contains(word)).collect();
    let value = value.join(" ");
    value.contains(". into ( )") || value.contains("Value ::") || value.contains("Cell ::")
}

#[test]
fn columns_are_named_through_the_catalogue() {
    assert_none(&tree::rust().iter().flat_map(check).collect::<Vec<_>>());
}

#[test]
fn a_column_that_is_named_by_a_literal_is_found() {
    let text = r#"
use chimera_core::record::Row;
fn a(row: &Row) { row.text("status") }
fn b(row: &Row) { row.get("created_at").as_time() }
fn c() { Select::from(&RUNS, Scope::System).with("id", run).take(1) }
fn d() { let set = vec![("status", word.into())]; }
fn e() { Condition { column: "id", compare, value } }
fn f() { select.by(&["position"], Default::default()) }
"#;
    let found = check(&RustFile::new("engine/src/flow/signals.rs", text));
    assert_eq!(found.iter().map(|found| found.line).collect::<Vec<_>>(), [3, 4, 5, 6, 7, 8]);
    assert!(check(&RustFile::new("storage/src/records/sql.rs", text)).is_empty());
}

#[test]
fn the_same_words_elsewhere_are_not_columns() {
    let text = r#"
use chimera_core::record::Row;
fn a() { body.with("status", word) }
fn b() { shown.get("status").and_then(Value::as_str) }
fn c() { json!({"status": word}) }
fn d() { row.status }
fn e() { select.with(runs::status, word) }
"#;
    assert!(check(&RustFile::new("engine/src/flow/signals.rs", text)).is_empty());
}

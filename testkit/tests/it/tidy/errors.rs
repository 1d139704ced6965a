//! Error enums are small, and their messages start in lower case, so that they can follow a colon.

use super::finding::{Exception, Finding, apply_exceptions, assert_none};
use super::rust_file::{RustFile, body_start, closing_brace, is_name};
use super::scan::LITERAL;
use super::tree;

const VARIANTS_MAX: usize = 8;

/// Names that always start with a capital.
const PROPER_NAMES: &[&str] = &["PostgreSQL", "SQLite", "Redis", "Chimera", "Merkle"];

const EXCEPTIONS: &[Exception] = &[];

/// The number of variants in the braces that open at `open`.
fn variants(file: &RustFile, open: usize) -> usize {
    let (mut depth, mut count, mut fresh) = (0_usize, 0, true);
    for token in &file.tokens[open + 1..closing_brace(&file.tokens, open)] {
        match token.word.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth = depth.saturating_sub(1),
            "," if depth == 0 => fresh = true,
            word if depth == 0 && fresh && is_name(word) => (count, fresh) = (count + 1, false),
            _ => {}
        }
    }
    count
}

fn too_many(file: &RustFile) -> Vec<Finding> {
    let derives = file.find("Error)]").into_iter().filter_map(|at| {
        let item =
            file.tokens.iter().enumerate().skip(at).find(|(_, token)| ["enum", "struct"].contains(&&*token.word));
        item.filter(|(_, token)| token.word == "enum").map(|(at, _)| at)
    });
    derives
        .filter_map(|at| {
            let count = variants(file, body_start(&file.tokens, at)?);
            let what = format!(
                "{} has {count} variants, more than {VARIANTS_MAX}: merge those that callers treat alike",
                file.tokens[at + 1].word
            );
            (count > VARIANTS_MAX).then(|| Finding::new(&file.path, file.tokens[at].line, what))
        })
        .collect()
}

fn capitals(file: &RustFile) -> Vec<Finding> {
    let strings = file.strings();
    let literals: Vec<usize> = (0..file.tokens.len()).filter(|at| file.tokens[*at].word == LITERAL).collect();
    let messages = file.find("#[error(\"\"").into_iter().filter_map(|at| {
        let literal = literals.iter().position(|literal| *literal == at + 4)?;
        strings.get(literal)
    });
    let shouts = messages.filter(|(_, message)| {
        let word = message.split(' ').next().unwrap_or_default();
        let mut letters = word.chars();
        let capital = letters.next().is_some_and(char::is_uppercase) && letters.next().is_some_and(char::is_lowercase);
        capital && !PROPER_NAMES.contains(&word)
    });
    shouts.map(|(line, _)| Finding::new(&file.path, *line, "start the error message in lower case")).collect()
}

#[test]
fn error_enums_have_at_most_eight_variants() {
    assert_none(&apply_exceptions(tree::rust().iter().flat_map(too_many).collect(), EXCEPTIONS));
}

#[test]
fn error_messages_begin_in_lower_case() {
    assert_none(&tree::rust().iter().flat_map(capitals).collect::<Vec<_>>());
}

/// The one file that prints an `ErrorKind`, for errors without an OS error number.
const WORDS: &str = "core/src/error/os.rs";

/// An `ErrorKind` may be compared, but messages use `io_reason`.
fn printed_kinds(file: &RustFile) -> Vec<Finding> {
    let compares = ["==", "!=", "match ", "matches!("];
    let prints = |line: &usize| {
        let text = file.text.lines().nth(line - 1).unwrap_or_default();
        file.path != WORDS && !compares.iter().any(|word| text.contains(word))
    };
    let lines = ["error.kind()", "reason.kind()"].into_iter().flat_map(|call| file.lines_outside_tests(call));
    let what = "many OS errors have no ErrorKind: print chimera_core::error::io_reason(&error)";
    lines.filter(prints).map(|line| Finding::new(&file.path, line, what)).collect()
}

#[test]
fn what_the_system_said_is_told_in_its_words_and_not_as_a_kind() {
    assert_none(&tree::rust().iter().flat_map(printed_kinds).collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_is_printed_is_found() {
        let text = "fn f() {\n    warn!(reason = %error.kind());\n    if error.kind() == K {}\n}\n";
        let found = printed_kinds(&RustFile::new("core/src/x.rs", text));
        assert_eq!(found.iter().map(|found| found.line).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn an_error_with_nine_variants_is_found() {
        let nine = "#[derive(Debug, thiserror::Error)]\npub enum Many { A, B(u8, u8), C { x: u8, y: u8 }, #[error(\"d, e\")] D, E, F, G, H, I }";
        assert_eq!(too_many(&RustFile::new("core/src/x.rs", nine)).len(), 1);
        assert_eq!(too_many(&RustFile::new("core/src/x.rs", &nine.replace(", I ", ","))), []);
        assert_eq!(too_many(&RustFile::new("core/src/x.rs", &nine.replace("thiserror::Error", "Clone"))), []);
    }

    #[test]
    fn a_message_with_a_capital_is_found() {
        let text = "#[error(\"Row is gone\")]\nA,\n#[error(\"row is gone\")]\nB,\n#[error(\"PostgreSQL is gone\")]\nC,\n#[error(\"JSON is bad\")]\nD";
        let found = capitals(&RustFile::new("core/src/x.rs", text));
        assert_eq!(found.iter().map(|found| found.line).collect::<Vec<_>>(), [1]);
    }
}

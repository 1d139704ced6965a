//! No limit is defined outside `core/src/limits` and `expr/src/limits.rs`, neither as a constant nor as a bare number.
//!
//! A constant looks like a limit if it is a duration, or a number with a telling name. A constant computed from limits
//! (the same limit in another unit) is not one. [`NOT_LIMITS`] lists false positives, with reasons.

use super::all;
use crate::tidy::finding::{Finding, assert_none};
use crate::tidy::rust_file::{RustFile, is_name};
use crate::tidy::scan::Token;
use crate::tidy::tree;
use std::collections::BTreeSet;

/// Words in a name that mark a number as a limit.
const WORDS: &str = "ATTEMPTS BACKLOG BUDGET BYTES CAPACITY CHARS COLUMNS CONCURRENCY COUNT DEFAULT DELAY DEPTH EVERY GRACE \
    INTERVAL ITEMS KIB LEASE LIMIT LINES MAX MICROS MILLIS MIN MINUTES MS PAGE PAGES PATIENCE PAUSE QUEUE QUOTA \
    RETRIES ROWS SECONDS SHOWN SIZE TIMEOUT TRIES TTL WAIT WINDOW";

/// Types of numbers.
const NUMBERS: &[&str] =
    &["u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f64"];

/// Calls that bound something, and the smallest bare number that counts as a limit there.
const CALLS: &[(&str, u64)] = &[
    ("Duration::from_secs(", 0),
    ("Duration::from_millis(", 0),
    ("Duration::from_micros(", 0),
    ("Duration::from_secs_f64(", 0),
    (".take(", 32),
    ("channel(", 1),
    ("Semaphore::new(", 1),
    ("Semaphore::const_new(", 1),
];

const CALL: &str = "bare number as a limit: define it in core/src/limits, and document what happens beyond it";

/// A file, its constants that look like limits, and why they are not.
type NotLimits = (&'static str, &'static str, &'static str);

const NOT_LIMITS: &[NotLimits] = &[
    ("connect/src/act/planner/choose.rs", "DESCRIBED_MAX", "a weight of the planner"),
    ("connect/src/act/planner/clause.rs", "FILLERS_MAX", "grammar of a goal"),
    ("connect/src/act/planner/token.rs", "SENTENCE_TOKENS_MAX", "grammar of a goal"),
    ("core/src/act/risk/bank.rs", "IBAN_CHARS_MAX", "what an IBAN looks like"),
    ("core/src/act/risk/decode.rs", "RUN_BYTES_MIN LINE_BYTES_MIN", "what base64 and hex look like"),
    ("core/src/act/risk/destructive.rs", "GAP_BYTES_MAX", "what a command that deletes looks like"),
    (
        "core/src/act/risk/personal.rs",
        "LOCAL_BYTES_MAX DOMAIN_BYTES_MAX URL_BYTES_MAX DIGITS_MAX GROUPS_MAX",
        "what addresses and numbers of people look like",
    ),
    (
        "core/src/act/risk/input_scanner.rs",
        "PLAIN_BYTES NAME_DIGITS_MAX",
        "how much a value weighs, and what a name looks like",
    ),
    ("core/src/access/seal.rs", "NONCE_BYTES", "a format"),
    ("core/src/access/destination.rs", "PHONE_DIGITS_MIN", "what a phone number looks like"),
    ("expr/src/canonical.rs", "EXACT_MAX TIE_DIGITS_MIN", "what a double can hold"),
    ("core/src/json/strict.rs", "DOUBLE_DIGITS_MAX", "what a double can hold"),
    ("core/src/ledger/mark.rs", "MARK_BYTES CHECKSUM_BYTES", "a format"),
    (
        "core/src/redact/encoded_word.rs",
        "WORD_CHARS_MAX ONE_CASE_CHARS_MAX TEXT_BYTES_MIN PADDING_MAX",
        "what encoded bytes look like",
    ),
    (
        "core/src/redact/decode.rs",
        "BLANKS_MAX TAG_BYTES_MAX ENTITY_BYTES_MAX LINE_BYTES_MIN JOINED_BYTES_MIN JOINED_PARTS_MIN",
        "what a text that hides another looks like",
    ),
    (
        "core/src/redact/document.rs",
        "PIECE_BYTES_MAX NUMBER_BYTES_MAX PIECES_MIN PIECES_BYTES_MIN",
        "what pieces of a secret look like",
    ),
    (
        "core/src/redact/numbers.rs",
        "BETWEEN_BYTES_MAX BETWEEN_MARKS_MAX NUMBER_CHARS_MAX GROUP_DIGITS_MAX",
        "what bytes written as numbers look like",
    ),
    (
        "core/src/redact/pattern.rs",
        "AFTER_BEARER_BYTES_MIN ACRONYM_BYTES_MAX NAME_BYTES_MAX OPAQUE_BYTES_MIN PART_BYTES_MIN",
        "what an unknown secret looks like",
    ),
    ("core/src/redact/spelling.rs", "BROKEN_BYTES_MIN", "what a secret across lines looks like"),
    ("core/src/time.rs", "MICROS_PER_SECOND SECONDS_PER_DAY", "a unit of time"),
    ("engine/src/flow/keeper.rs", "SECOND_MICROS", "a unit of time"),
    ("engine/src/flow/link_token.rs", "SECRET_BYTES CHECK_BYTES", "a format"),
    ("storage/src/blob/content.rs", "PIECE_BYTES_MAX", "a buffer: content of any size passes through it"),
    ("storage/src/blob/folder.rs", "READ_BYTES", "a buffer: content of any size passes through it"),
    ("storage/src/records/postgres/connect.rs", "VERSION_MIN", "a version of PostgreSQL"),
    ("storage/src/records/postgres/damage_check.rs", "ROOM_ROW_BYTES", "the width of a row that a probe writes"),
    (
        "storage/src/records/sqlite/log_pairing.rs",
        "LOG_HEADER_BYTES FRAME_HEADER_BYTES PAGE_BYTES_MAX",
        "the file format of SQLite",
    ),
    ("storage/src/records/failed_commits.rs", "ROW_BYTES NUMBER_BYTES", "an estimate of what a row takes"),
    ("connect/src/flow/declared/load.rs", "DEFINITION_CHARS", "a format"),
    ("connect/src/flow/local/summarize/score.rs", "WORDS_MIN", "a weight of the summary"),
    ("chimera/src/ambient.rs", "FETCH_BYTES", "a buffer of random bytes"),
    ("chimera/src/backup/files.rs", "READ_BYTES", "a buffer: files of any size pass through it"),
    ("chimera/src/backup/keys.rs", "SALT_BYTES", "a format"),
    ("chimera/src/command/bench_flow.rs", "FILL_CONCURRENCY PAGE_BYTES", "a benchmark, and a page of memory of Linux"),
    ("chimera/src/flow/render.rs", "LONG_MICROS", "how a time is written"),
];

/// A constant as it is declared: `const NAME: TYPE = VALUE;`.
struct Constant<'a> {
    name: &'a Token,
    kind: String,
    value: &'a [Token],
}

/// Every constant and static of a file, including those inside functions, traits and impls.
fn constants(file: &RustFile) -> Vec<Constant<'_>> {
    let tokens = &file.tokens;
    let declared = tokens.windows(3).enumerate().filter(|(_, three)| {
        ["const", "static"].contains(&three[0].word.as_str()) && is_name(&three[1].word) && three[2].word == ":"
    });
    declared
        .map(|(at, three)| {
            let until = |from: usize, mark: &str| {
                let length = tokens[from..].iter().position(|token| token.word == mark || token.word == ";");
                length.map_or(tokens.len(), |length| from + length)
            };
            let equals = until(at + 3, "=");
            let kind = tokens[at + 3..equals].iter().map(|token| token.word.as_str()).collect();
            Constant { name: &three[1], kind, value: &tokens[equals..until(equals, ";")] }
        })
        .collect()
}

/// Whether type and name are those of a limit.
fn looks_like_limit(constant: &Constant<'_>) -> bool {
    let kind = constant.kind.rsplit(':').next().unwrap_or_default();
    let says_so = || constant.name.word.split('_').any(|word| WORDS.split(' ').any(|known| known == word));
    kind == "Duration" || ((NUMBERS.contains(&kind) || kind.starts_with("NonZero")) && says_so())
}

/// Constants of a file that look like limits. `known` holds the names in `core/src/limits`.
fn constants_elsewhere(file: &RustFile, known: &BTreeSet<String>, except: &[NotLimits]) -> Vec<Finding> {
    let names: Vec<&str> =
        except.iter().filter(|(path, ..)| *path == file.path).flat_map(|(_, names, _)| names.split(' ')).collect();
    let found = constants(file).into_iter().filter(|constant| {
        let converts = constant.value.iter().any(|token| known.contains(&token.word));
        looks_like_limit(constant) && !converts && !names.contains(&constant.name.word.as_str())
    });
    let found = found.filter(|constant| !file.is_test(constant.name.line));
    found
        .map(|constant| {
            let what = format!(
                "{} looks like a limit: move it to core/src/limits, and document what happens beyond it",
                constant.name.word
            );
            Finding::new(&file.path, constant.name.line, what)
        })
        .collect()
}

/// Bare numbers in [`CALLS`].
fn bare_numbers(file: &RustFile) -> Vec<Finding> {
    let number = |token: &Token| token.word.replace('_', "").parse::<u64>().ok();
    let mut lines = BTreeSet::new();
    for (call, from) in CALLS {
        let length = crate::tidy::scan::tokens(call).len();
        for at in file.find(call) {
            let bare = file.tokens.get(at + length).and_then(number).is_some_and(|number| number >= *from);
            let line = file.tokens[at].line;
            if bare && !file.is_test(line) {
                lines.insert(line);
            }
        }
    }
    // Constants are reported by `constants_elsewhere`.
    let declared: BTreeSet<usize> = constants(file).iter().map(|constant| constant.name.line).collect();
    lines.difference(&declared).map(|line| Finding::new(&file.path, *line, CALL)).collect()
}

/// Unused exceptions.
fn needless(files: &[RustFile], except: &[NotLimits]) -> Vec<Finding> {
    let is_there = |file: &str, name: &str| {
        let mut files = files.iter().filter(|found| found.path == file);
        files.any(|file| constants(file).iter().any(|found| found.name.word == name && looks_like_limit(found)))
    };
    let named = except.iter().flat_map(|(file, names, why)| names.split(' ').map(move |name| (file, name, why)));
    let needless = named.filter(|(file, name, _)| !is_there(file, name));
    let what = |name: &str, why: &str| format!("{name} ({why}) is an unused exception: remove it from the list");
    needless.map(|(file, name, why)| Finding::new(*file, 1, what(name, why))).collect()
}

/// Whether a file may not define limits.
fn is_elsewhere(file: &RustFile) -> bool {
    !file.is_test_file()
        && file.path != "core/src/limits.rs"
        && !file.path.starts_with("core/src/limits/")
        && file.path != "expr/src/limits.rs"
}

#[test]
fn every_limit_stands_with_the_others() {
    let known: BTreeSet<String> = all().into_iter().map(|limit| limit.name).collect();
    let files = tree::rust().iter().filter(|file| is_elsewhere(file));
    let mut found: Vec<Finding> =
        files.flat_map(|file| [constants_elsewhere(file, &known, NOT_LIMITS), bare_numbers(file)].concat()).collect();
    found.extend(needless(tree::rust(), NOT_LIMITS));
    assert_none(&found);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let (file, known) = (RustFile::new("engine/src/flow/x.rs", text), BTreeSet::from(["LEASE_SECONDS".to_owned()]));
        let found = [constants_elsewhere(&file, &known, &[]), bare_numbers(&file)].concat();
        found.iter().map(|found| found.line).collect()
    }

    #[test]
    fn a_limit_is_found_wherever_it_is_declared() {
        let text = "const BODY_BYTES_MAX: usize = 2;\n\
                    pub(crate) static TRIES: u32 = 3;\n\
                    impl Look {\n    pub const PAGE_ROWS: i64 = 4;\n}\n\
                    fn f() {\n    const SHOWN: u8 = 5;\n}\n\
                    const PAUSE: std::time::Duration = Duration::from_secs(6);\n\
                    const NAMELESS: Duration = SECOND;\n";
        assert_eq!(lines(text), [1, 2, 4, 7, 9, 10]);
    }

    #[test]
    fn what_is_no_limit_is_left_alone() {
        let text = "const FORMAT: u32 = 1;\n\
                    const MAX_NAME: &str = \"max\";\n\
                    const SILENT_MICROS: i64 = limits::LEASE_SECONDS * 1_000_000;\n\
                    const fn bytes_max() -> usize { 3 }\n\
                    fn f<const N: usize>(a: [u8; N]) {}\n\
                    #[cfg(test)]\nmod tests {\n    const WAIT: Duration = Duration::from_secs(1);\n}\n";
        assert_eq!(lines(text), [0_usize; 0]);
    }

    #[test]
    fn a_bare_number_that_bounds_something_is_found() {
        let text = "fn f() {\n    sleep(Duration::from_millis(5_000));\n    rows.take(100);\n    rows.take(8);\n    \
                    let (a, b) = mpsc::channel(64);\n    sleep(Duration::from_secs(seconds));\n    \
                    let c = Semaphore::new(4);\n}\n";
        assert_eq!(lines(text), [2, 3, 5, 7]);
    }

    #[test]
    fn an_exception_covers_its_names_and_is_found_when_it_is_not_needed() {
        let file = RustFile::new("core/src/x.rs", "const KEY_BYTES: usize = 32;\nconst BODY_BYTES: usize = 64;\n");
        let except = [("core/src/x.rs", "KEY_BYTES OLD_BYTES", "a format")];
        let found = constants_elsewhere(&file, &BTreeSet::new(), &except);
        assert_eq!(found.iter().map(|found| found.line).collect::<Vec<_>>(), [2]);
        let needless = needless(&[file], &except);
        assert_eq!(needless.len(), 1);
        assert!(needless[0].what.starts_with("OLD_BYTES (a format) is an unused exception"));
    }

    #[test]
    fn every_exception_has_a_reason() {
        assert!(NOT_LIMITS.iter().all(|(_, names, why)| !names.is_empty() && !why.is_empty()));
    }
}

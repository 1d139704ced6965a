//! The simulator needs deterministic code: `core` does no I/O, and neither `core` nor `engine` depends on hash
//! order or on a random choice between ready branches.

use super::finding::{Exception, Finding, apply_exceptions, assert_none};
use super::rust_file::RustFile;
use super::tree;

const CORE: &[(&str, &str)] = &[
    ("async", "core is synchronous: async code belongs in engine"),
    ("tokio::", "core is synchronous: async code belongs in engine"),
    ("std::fs", "core does no I/O: pass the content"),
    ("std::net", "core does no I/O: add a port to engine"),
    ("std::env", "core reads no environment: pass the setting"),
    ("std::process", "core starts no processes: add a port to engine"),
    ("std::thread", "core has no threads: loops belong in engine"),
    ("SystemTime", "core reads no clock: pass the time"),
    ("Instant", "core reads no clock: pass the time"),
    ("getrandom", "core generates no randomness: pass the random bytes"),
];

const ENGINE: &[(&str, &str)] = &[
    ("std::fs", "engine does no I/O of its own: use a port"),
    ("tokio::fs", "engine does no I/O of its own: use a port"),
    ("std::net", "engine does no I/O of its own: use a port"),
    ("tokio::net", "engine does no I/O of its own: use a port"),
    ("tokio::process", "engine starts no processes: use a port"),
    ("std::env", "engine reads no environment: pass the setting"),
    ("SystemTime", "engine reads no clock: use port::Clock"),
    ("getrandom", "engine generates no randomness: use port::Random"),
];

const BOTH: &[(&str, &str)] = &[
    ("HashMap", "hash order differs from run to run: use BTreeMap"),
    ("HashSet", "hash order differs from run to run: use BTreeSet"),
];

const EXCEPTIONS: &[Exception] = &[];

fn check(file: &RustFile) -> Vec<Finding> {
    let rules: &[&[(&str, &'static str)]] = match file.layer() {
        "expr" | "core" => &[CORE, BOTH],
        "engine" => &[ENGINE, BOTH],
        _ => return Vec::new(),
    };
    let each = |(pattern, what): &(&str, &'static str)| {
        let lines = file.lines_outside_tests(pattern).into_iter();
        lines.map(|line| Finding::new(&file.path, line, *what)).collect::<Vec<_>>()
    };
    rules.iter().flat_map(|rules| rules.iter()).flat_map(each).collect()
}

/// A `select!` without `biased;` picks a ready branch at random.
fn unbiased_selects(file: &RustFile) -> Vec<Finding> {
    if file.layer() != "engine" {
        return Vec::new();
    }
    let selects = file.find("select! {").into_iter().filter(|at| {
        let first = file.tokens.get(at + 3).map(|token| token.word.as_str());
        first != Some("biased")
    });
    let what = "select! picks a ready branch at random: start it with `biased;`";
    selects.map(|at| Finding::new(&file.path, file.tokens[at].line, what)).collect()
}

#[test]
fn core_and_engine_are_repeatable() {
    assert_none(&apply_exceptions(tree::rust().iter().flat_map(check).collect(), EXCEPTIONS));
}

#[test]
fn the_engine_never_tosses_a_coin() {
    assert_none(&tree::rust().iter().flat_map(unbiased_selects).collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_repeatable_is_found() {
        let text = "use std::fs;\nasync fn f() {}\nuse std::collections::HashMap;\n/// HashMap\nfn g() {}";
        let lines = |path| {
            let mut lines: Vec<usize> = check(&RustFile::new(path, text)).iter().map(|found| found.line).collect();
            lines.sort_unstable();
            lines
        };
        assert_eq!(lines("core/src/flow/run.rs"), [1, 2, 3]);
        assert_eq!(lines("engine/src/flow/run.rs"), [1, 3]);
        assert_eq!(lines("storage/src/flow.rs"), [0_usize; 0]);
    }

    #[test]
    fn a_select_without_an_order_is_found() {
        let text = "tokio::select! {\n    biased;\n    a = b => {}\n}\nselect! {\n    a = b => {}\n}";
        let found = unbiased_selects(&RustFile::new("engine/src/commit/loop.rs", text));
        assert_eq!(found.iter().map(|found| found.line).collect::<Vec<_>>(), [5]);
    }
}

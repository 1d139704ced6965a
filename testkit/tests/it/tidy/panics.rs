//! No code outside tests panics or exits the process.
//!
//! The clippy lints check the same, but can be allowed in place; this test cannot.

use super::finding::{Exception, Finding, apply_exceptions, assert_none};
use super::rust_file::RustFile;
use super::tree;

const FORBIDDEN: &[(&str, &str)] = &[
    (".unwrap()", "unwrap outside tests: return an error"),
    (".expect(", "expect outside tests: return an error"),
    (".unwrap_err()", "unwrap_err outside tests: match instead"),
    (".expect_err(", "expect_err outside tests: match instead"),
    ("panic!", "panic outside tests: return an error"),
    ("unreachable!", "unreachable outside tests: encode it in types, or return an error"),
    ("process::exit(", "exit skips flushing: return from main"),
];

const EXCEPTIONS: &[Exception] = &[];

fn check(file: &RustFile) -> Vec<Finding> {
    let each = |(pattern, what): &(&str, &'static str)| {
        let lines = file.lines_outside_tests(pattern).into_iter();
        lines.map(|line| Finding::new(&file.path, line, *what)).collect::<Vec<_>>()
    };
    FORBIDDEN.iter().flat_map(each).collect()
}

#[test]
fn nothing_outside_tests_brings_the_process_down() {
    assert_none(&apply_exceptions(tree::rust().iter().flat_map(check).collect(), EXCEPTIONS));
}

#[test]
fn a_way_to_bring_the_process_down_is_found() {
    let text = "fn a() { x.unwrap(); }\nfn b() { y.expect(\"z\"); }\nfn c() { panic!() }\nfn d() { x.unwrap_or(1); }\n/// x.unwrap()\n#[cfg(test)]\nmod tests { fn e() { x.unwrap(); } }";
    let lines = |path| check(&RustFile::new(path, text)).iter().map(|found| found.line).collect::<Vec<_>>();
    assert_eq!(lines("core/src/flow/run.rs"), [1, 2, 3]);
    assert_eq!(lines("core/tests/it/main.rs"), [0_usize; 0]);
}

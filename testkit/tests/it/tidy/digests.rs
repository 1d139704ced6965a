//! A digest that cannot be computed is an error. A default would give every such value the same digest, and an
//! approval of one would approve all.

use super::finding::{Finding, assert_none};
use super::rust_file::RustFile;
use super::tree;

/// Words that mark a line that computes or reads a digest.
const DIGESTS: &[&str] = &["digest", "hash", "canonical", "hex::encode"];

fn check(file: &RustFile) -> Vec<Finding> {
    let defaults = [".unwrap_or_default()", ".unwrap_or([0; 32])", ".unwrap_or(Digest32::ZERO)"];
    let lines = defaults.into_iter().flat_map(|default| file.lines_outside_tests(default));
    let text = |line: &usize| file.text.lines().nth(line - 1).unwrap_or_default().to_ascii_lowercase();
    let lines = lines.filter(|line| DIGESTS.iter().any(|word| text(line).contains(word)));
    lines.map(|line| Finding::new(&file.path, line, "a digest has no default: return an error")).collect()
}

#[test]
fn a_digest_that_fails_never_becomes_a_default() {
    assert_none(&tree::rust().iter().flat_map(check).collect::<Vec<_>>());
}

#[test]
fn a_default_for_a_digest_is_found() {
    let text = "fn a() { let digest = of(x).unwrap_or_default(); }\nfn b() { of(x).map(hex::encode).unwrap_or_default() }\nfn c() { text.unwrap_or_default() }\nfn d() { action_digest.unwrap_or([0; 32]) }";
    let found = check(&RustFile::new("core/src/flow/run.rs", text));
    assert_eq!(found.iter().map(|found| found.line).collect::<Vec<_>>(), [1, 2, 4]);
}

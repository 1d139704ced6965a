//! The result of a call made with a secret never contains the secret.
//!
//! One file of `connect` resolves secrets. Its users pass the result of each call through its mask, so no adapter has to
//! track which of its texts come from the other side.

use super::finding::{Finding, assert_none};
use super::rust_file::RustFile;
use super::tree;

const KEYRING: &str = "connect/src/http/keyring.rs";

fn check(file: &RustFile) -> Vec<Finding> {
    if !file.path.starts_with("connect/src/") || file.path == KEYRING {
        return Vec::new();
    }
    let lines = |how: &str| file.lines_outside_tests(how);
    let resolves = [lines("secrets.resolve("), lines("secrets.resolve_for(")].concat().into_iter();
    let mut found: Vec<Finding> = resolves
        .map(|line| Finding::new(&file.path, line, "resolves a secret: use a Keyring, which masks it in the result"))
        .collect();
    let made = [lines("Keyring::of_call("), lines("Keyring::of_process(")].concat();
    let cleaned = lines("keys.clean(");
    if let Some(line) = made.first().filter(|_| made.len() > cleaned.len()) {
        found.push(Finding::new(
            &file.path,
            *line,
            "creates a Keyring: pass the result of the call through its `clean`",
        ));
    }
    found
}

#[test]
fn whoever_uses_a_secret_masks_what_comes_back() {
    assert_none(&tree::rust().iter().flat_map(check).collect::<Vec<_>>());
}

#[test]
fn an_adapter_that_does_not_mask_is_found() {
    let lines =
        |path: &str, text: &str| check(&RustFile::new(path, text)).iter().map(|found| found.line).collect::<Vec<_>>();
    let own = "fn a() { self.secrets.resolve(name) }\nfn b() { let keys = Keyring::of_call(s, call); call(&keys) }";
    assert_eq!(lines("connect/src/flow/mail/mod.rs", own), [1, 2]);
    assert_eq!(lines("storage/src/secrets/file.rs", own), [0_usize; 0]);
    assert_eq!(
        lines("connect/src/a.rs", "fn b() { let keys = Keyring::of_call(s, call);\nkeys.clean(call(&keys)) }"),
        [0_usize; 0]
    );
}

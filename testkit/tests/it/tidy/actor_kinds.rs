//! The registry decides whether an actor is a person or a service. Only its own default may derive that from a
//! name; any other code that does gets some actors wrong.

use super::finding::{Finding, assert_none};
use super::rust_file::RustFile;
use super::tree;

/// The registry's default, and the decoder of rows from before kinds were stored.
const DEFAULT: &[&str] = &["core/src/access/kind.rs", "core/src/access/registry.rs", "core/src/access/actor.rs"];

/// Calls that derive a kind from a name.
const BY_NAME: &[&str] = &["access::kind_of", "kind::kind_of", "Kind::of("];

/// Prefixes of the names of people and services.
const PREFIXES: &[&str] = &["\"user_", "\"service_", "\"n8n_"];

fn check(file: &RustFile) -> Vec<Finding> {
    if DEFAULT.contains(&file.path.as_str()) {
        return Vec::new();
    }
    let text = |line: &usize| file.text.lines().nth(line - 1).unwrap_or_default();
    let compared = ["starts_with(", "strip_prefix("].into_iter().flat_map(|call| file.lines_outside_tests(call));
    let compared = compared.filter(|line| PREFIXES.iter().any(|prefix| text(line).contains(prefix)));
    let lines = BY_NAME.iter().flat_map(|call| file.lines_outside_tests(call)).chain(compared);
    lines
        .map(|line| Finding::new(&file.path, line, "do not derive an actor's kind from its name: ask the registry"))
        .collect()
}

#[test]
fn nobody_but_the_default_of_the_registry_takes_a_kind_from_a_name() {
    assert_none(&tree::rust().iter().flat_map(check).collect::<Vec<_>>());
}

#[test]
fn a_kind_that_is_taken_from_a_name_is_found() {
    let text = "use chimera_core::access::kind_of;\nfn a() { Kind::of(name) }\nfn b() { name.starts_with(\"user_\") }\nfn c() { entry.kind }";
    let found = check(&RustFile::new("engine/src/flow/signals.rs", text));
    assert_eq!(found.iter().map(|found| found.line).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(check(&RustFile::new("core/src/access/registry.rs", text)).is_empty());
}

//! Only the access room constructs a `Permit`. The header of `engine/src/access/permit.rs` lists how.
//!
//! Tests make one from an entry. Some functions of the access room make one without a credential; each may be called
//! by one file, named below with its reason.

use super::finding::{Finding, assert_none};
use super::rust_file::RustFile;
use super::tree;

const ACCESS: &str = "engine/src/access/";

/// Constructors that nobody outside the access room calls.
const CONSTRUCTORS: &[&str] = &["Permit::new(", "Permit::for_entry("];

/// Functions that check no credential, the one file that may call each, and why it may.
const CALLERS: &[(&str, &str, &str)] = &[
    ("local_operator(", "chimera/src/compose/flow.rs", "a user who can run commands on the data folder owns it"),
    ("link_holder(", "engine/src/flow/link.rs", "the row of the link was read and is valid"),
    (".current_permit(", "engine/src/act/recipients.rs", "messages of a run are sent in the name of its actor"),
];

fn check(file: &RustFile) -> Vec<Finding> {
    if file.path.starts_with(ACCESS) {
        return Vec::new();
    }
    let constructed = CONSTRUCTORS.iter().flat_map(|constructor| file.lines_outside_tests(constructor));
    let foreign = CALLERS.iter().filter(|(_, caller, _)| *caller != file.path);
    let called = foreign.flat_map(|(function, ..)| file.lines_outside_tests(function));
    let what = "creates a Permit: take one as an argument, or check a credential in engine/src/access";
    constructed.chain(called).map(|line| Finding::new(&file.path, line, what)).collect()
}

#[test]
fn only_the_access_room_makes_a_permit() {
    assert_none(&tree::rust().iter().flat_map(check).collect::<Vec<_>>());
}

#[test]
fn every_listed_function_still_exists() {
    let exists = |function: &str| {
        let name = function.trim_start_matches('.').trim_start_matches("Permit::");
        let declared = format!("fn {name}");
        tree::rust().iter().any(|file| file.path.starts_with(ACCESS) && !file.lines_outside_tests(&declared).is_empty())
    };
    let listed = CONSTRUCTORS.iter().copied().chain(CALLERS.iter().map(|(function, ..)| *function));
    let gone = listed.filter(|function| !exists(function));
    let what = |function: &str| format!("{function} does not exist in {ACCESS}: update the list");
    let found = gone.map(|function| Finding::new("testkit/tests/it/tidy/permits.rs", 1, what(function)));
    assert_none(&found.collect::<Vec<_>>());
}

#[test]
fn every_named_caller_still_calls() {
    let calls = |function: &str, caller: &str| {
        tree::rust().iter().any(|file| file.path == caller && !file.lines_outside_tests(function).is_empty())
    };
    let idle = CALLERS.iter().filter(|(function, caller, _)| !calls(function, caller));
    assert_none(
        &idle
            .map(|(_, caller, _)| Finding::new(*caller, 1, "no longer calls it: remove the entry from CALLERS"))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn a_permit_made_elsewhere_is_found() {
    let lines = |path: &str| {
        let text = "fn a() { Permit::for_entry(entry) }\nfn b() { link_holder(tenant, actor) }\nfn c() { local_operator(tenant) }";
        check(&RustFile::new(path, text)).iter().map(|found| found.line).collect::<Vec<_>>()
    };
    assert_eq!(lines("engine/src/flow/decide.rs"), [1, 3, 2]);
    assert_eq!(lines("engine/src/flow/link.rs"), [1, 3]);
    assert_eq!(lines("chimera/src/compose/flow.rs"), [1, 2]);
    assert_eq!(lines("engine/src/access/authenticator.rs"), [0_usize; 0]);
    assert_eq!(lines("engine/tests/it/flow_who.rs"), [0_usize; 0]);
}

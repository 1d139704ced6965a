//! A room uses only rooms before it, in every crate.
//!
//! Every path that starts with `crate`, `super` or one of our crates is resolved to its room. `--nocapture` prints the
//! matrix of all uses. An entry above the diagonal is a finding; there is no list of exceptions.

use super::finding::{Finding, assert_none};
use super::rooms::LAYERS;
use super::rust_file::RustFile;
use super::tree;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The rooms with their rank. Rooms of one rank don't use each other.
pub(super) const ROOMS: &[(&str, u8)] = &[
    ("ledger", 0),
    ("access", 1),
    ("flow", 2),
    ("act", 3),
    ("intent", 4),
    ("job", 4),
    ("swarm", 4),
    ("knowledge", 4),
    ("audit", 5),
];

/// Crates with rooms, as paths name them.
const CRATES: &[&str] =
    &["chimera_core", "chimera_engine", "chimera_storage", "chimera_connect", "chimera_sandbox", "chimera_api"];

fn rank(room: &str) -> Option<u8> {
    ROOMS.iter().find(|(name, _)| *name == room).map(|(_, rank)| *rank)
}

/// A room that a file uses, and the line.
struct RoomUse<'a> {
    room: &'a str,
    line: usize,
}

/// The layer and room of a file, if it is in a room.
fn room_of(path: &str) -> Option<(&str, &str)> {
    let (layer, rest) = path.split_once("/src/")?;
    let first = rest.split('/').next()?;
    let room = first.strip_suffix(".rs").unwrap_or(first);
    (LAYERS.contains(&layer) && rank(room).is_some()).then_some((layer, room))
}

/// The depth of a file's module below the root of its crate.
fn depth(path: &str) -> usize {
    let rest = path.split_once("/src/").map_or(path, |(_, rest)| rest);
    rest.split('/').count() - usize::from(rest.ends_with("/mod.rs"))
}

/// Every room that the paths of a file name, outside comments.
fn uses<'a>(path: &str, text: &'a str) -> Vec<RoomUse<'a>> {
    let mut found = Vec::new();
    let mut offset = 0;
    for (index, whole) in text.split_inclusive('\n').enumerate() {
        let code = whole.split("//").next().unwrap_or_default();
        for (at, root) in roots(code) {
            let rest = &text[offset + at + root.len()..];
            let Some(rest) = leaves_to_root(root, rest, path) else { continue };
            found.extend(first_names(rest).into_iter().map(|room| RoomUse { room, line: index + 1 }));
        }
        offset += whole.len();
    }
    found.retain(|found| rank(found.room).is_some());
    found
}

/// Positions where a line starts a path that may name a room.
fn roots(code: &str) -> Vec<(usize, &str)> {
    let begins = |at: usize| !code[..at].ends_with(|last: char| last.is_alphanumeric() || last == '_' || last == ':');
    let of = |root: &'static str| {
        let places = code.match_indices(root).filter(move |(at, _)| begins(*at));
        places.filter(move |(at, _)| code[at + root.len()..].starts_with("::")).collect::<Vec<_>>()
    };
    ["crate", "super"].into_iter().chain(CRATES.iter().copied()).flat_map(of).collect()
}

/// The rest of a path that starts at the root of a crate. `super` counts only if repeated as often as the file is deep.
fn leaves_to_root<'a>(root: &str, rest: &'a str, path: &str) -> Option<&'a str> {
    let mut rest = rest.strip_prefix("::")?;
    if root != "super" {
        return Some(rest);
    }
    let mut climbed = 1;
    while let Some(behind) = rest.strip_prefix("super::") {
        (rest, climbed) = (behind, climbed + 1);
    }
    (climbed >= depth(path)).then_some(rest)
}

/// The first names of a path, or of each path of a group.
fn first_names(rest: &str) -> Vec<&str> {
    let name = |text: &str| text.find(|next: char| !next.is_alphanumeric() && next != '_').unwrap_or(text.len());
    let Some(group) = rest.strip_prefix('{') else { return vec![&rest[..name(rest)]] };
    let (mut names, mut nested, mut begins) = (Vec::new(), 0_usize, true);
    for (at, next) in group.char_indices() {
        match next {
            '{' => nested += 1,
            '}' if nested == 0 => break,
            '}' => nested -= 1,
            ',' if nested == 0 => begins = true,
            next if begins && next.is_alphabetic() => {
                names.push(&group[at..at + name(&group[at..])]);
                begins = false;
            }
            _ => {}
        }
    }
    names
}

/// Whether a room may use another.
fn may_use(room: &str, other: &str) -> bool {
    room == other || rank(other) < rank(room)
}

fn check(path: &str, text: &str) -> Vec<Finding> {
    let Some((_, room)) = room_of(path) else { return Vec::new() };
    let forbidden = uses(path, text).into_iter().filter(|used| !may_use(room, used.room));
    let what = |used: &RoomUse<'_>| {
        format!("{room} uses {}, which is not before it: see docs/adr/0016-rooms-have-an-order.md", used.room)
    };
    forbidden.map(|used| Finding::new(path, used.line, what(&used))).collect()
}

/// Which rooms the shared modules of `core` and `engine` may name: layer, module, room, and why.
const SHARED_USES: &[(&str, &str, &str, &str)] = &[
    ("core", "record", "ledger", "a transaction carries its ledger entries"),
    ("engine", "commit", "ledger", "a batch chains the entries of its transactions"),
    ("engine", "error", "ledger", "an entry that cannot be written fails the use case"),
    ("engine", "error", "access", "refusals for a missing scope and a repeated nonce"),
    ("engine", "error", "flow", "a used idempotency key names its run"),
    ("engine", "offload", "access", "work is shared fairly by tenant and actor"),
    ("engine", "fair_slots", "access", "slots are shared fairly by tenant and actor"),
    ("engine", "port", "ledger", "randomness fills the salt of an entry"),
    ("engine", "port", "flow", "spans carry the trace id of a run"),
];

/// The layer and name of a shared module. `catalog` is exempt, because it lists the tables of every room.
fn shared_module(path: &str) -> Option<(&str, &str)> {
    let (layer, rest) = path.split_once("/src/")?;
    let first = rest.split('/').next()?;
    let module = first.strip_suffix(".rs").unwrap_or(first);
    let counts = matches!(layer, "core" | "engine") && rank(module).is_none();
    (counts && !matches!(module, "lib" | "catalog")).then_some((layer, module))
}

fn check_shared(file: &RustFile) -> Vec<Finding> {
    let Some((layer, module)) = shared_module(&file.path) else { return Vec::new() };
    let allowed =
        |room: &str| SHARED_USES.iter().any(|(at, name, used, _)| (*at, *name, *used) == (layer, module, room));
    let foreign =
        uses(&file.path, &file.text).into_iter().filter(|used| !file.is_test(used.line) && !allowed(used.room));
    let what = |used: &RoomUse<'_>| {
        format!("{module} is shared by all rooms of {layer} and names {}: move it into that room", used.room)
    };
    foreign.map(|used| Finding::new(&file.path, used.line, what(&used))).collect()
}

/// How often each room uses which other, a table per crate.
fn matrix() -> String {
    let mut counts: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    for file in tree::files().iter().filter(|file| file.path.ends_with(".rs")) {
        let Some((layer, room)) = room_of(&file.path) else { continue };
        for used in uses(&file.path, &file.text) {
            *counts.entry((layer, room, used.room)).or_default() += 1;
        }
    }
    let mut table = String::new();
    for layer in LAYERS {
        let _ = writeln!(
            table,
            "\n{layer:<10}{}",
            ROOMS.iter().fold(String::new(), |line, (room, _)| line + &format!("{room:>10}"))
        );
        for (room, _) in ROOMS {
            let cells = ROOMS.iter().map(|(other, _)| counts.get(&(*layer, *room, *other)).copied().unwrap_or(0));
            let line = cells.fold(String::new(), |line, count| line + &format!("{count:>10}"));
            let _ = writeln!(table, "{room:<10}{line}");
        }
    }
    table
}

#[test]
fn a_room_uses_only_rooms_before_it() {
    println!("{}", matrix());
    let sources = tree::files().iter().filter(|file| file.path.ends_with(".rs"));
    let found: Vec<Finding> = sources.flat_map(|file| check(&file.path, &file.text)).collect();
    assert_none(&found);
}

#[test]
fn shared_modules_name_only_the_rooms_in_the_list() {
    assert_none(&tree::rust().iter().flat_map(check_shared).collect::<Vec<_>>());
    let used = |(layer, module, room, _): &(&str, &str, &str, &str)| {
        let mut files = tree::rust().iter().filter(|file| shared_module(&file.path) == Some((*layer, *module)));
        files.any(|file| uses(&file.path, &file.text).iter().any(|used| used.room == *room))
    };
    let idle = SHARED_USES.iter().filter(|entry| !used(entry));
    assert_none(
        &idle
            .map(|entry| Finding::new(entry.0, 1, format!("{entry:?} is unused: remove it from the list")))
            .collect::<Vec<_>>(),
    );
    let stray = RustFile::new("core/src/json/strict.rs", "use crate::flow::Run;\n");
    assert_eq!(check_shared(&stray).len(), 1);
}

#[test]
fn a_use_of_a_later_room_is_found_however_it_is_spelled() {
    let late = [
        "use crate::flow::Run;",
        "use chimera_core::{id, flow::{run, air}, json};",
        "use chimera_core::{\n    access::{Actor, Level},\n    flow::run,\n};",
        "fn f() { crate::act::go() }",
        "use super::super::flow;",
        "pub(crate) use chimera_engine::audit::list;",
    ];
    for text in late {
        assert_eq!(check("engine/src/access/deep/mod.rs", text).len(), 1, "{text}");
    }
    let fine = [
        "use crate::ledger::Entry;",
        "// crate::flow::Run",
        "use super::flow;",
        "use crate::access::flow;",
        "use other_crate::flow::Run;",
        "use serde_json::{flow};",
    ];
    for text in fine {
        assert!(check("engine/src/access/deep/file.rs", text).is_empty(), "{text}");
    }
    assert!(check("engine/src/port/file.rs", "use crate::flow::Run;").is_empty(), "shared modules are in no room");
}

#[test]
fn rooms_of_one_rank_do_not_use_each_other() {
    assert!(!may_use("job", "swarm") && !may_use("swarm", "job"));
    assert!(may_use("audit", "swarm") && may_use("act", "ledger") && !may_use("ledger", "access"));
}

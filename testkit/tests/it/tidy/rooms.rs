//! A layer is divided into rooms, with the same names everywhere, and a list of shared modules.
//!
//! A new module at the top of a layer goes into a room, or into the list below with the reason why no room can
//! hold it. Also checks that each crate has one test binary, because every binary links everything.

use super::finding::{Finding, assert_none};
use super::matrix::ROOMS;
use super::tree;

/// Layer, shared module, and why it is shared.
const SHARED: &[(&str, &str, &str)] = &[
    ("core", "catalog", "the tables of every room, for the stores"),
    ("core", "error", "one table of stable codes"),
    ("core", "id", "ids of every room"),
    ("core", "json", "canonical documents and their digests"),
    ("core", "limits", "every limit on one page"),
    ("core", "record", "tables, transactions and reads as data"),
    ("core", "redact", "masks secrets in every text that leaves the process"),
    ("core", "secret", "the name of a secret, and a secret value that is never printed"),
    ("core", "text", "sanitises foreign text before it is stored"),
    ("core", "time", "the one format of a timestamp"),
    ("core", "tool", "the declaration of a tool"),
    ("core", "words", "enums stored as words in tables"),
    ("engine", "commit", "the one way to change state"),
    ("engine", "error", "why a use case failed, for every interface"),
    ("engine", "offload", "CPU-bound work of callers, off the request threads"),
    ("engine", "port", "what the engine needs from outside"),
    ("engine", "heartbeat", "liveness of the background loops of every room"),
    ("engine", "rows", "all rows of a query, page by page"),
    ("engine", "fair_slots", "a fair semaphore: slots shared by tenants in turn"),
    ("storage", "bench", "the baseline for benchmarks of the store"),
    ("storage", "blob", "content-addressed bytes: folder and S3"),
    ("storage", "bucket", "objects by bucket and key: folder and S3"),
    ("storage", "bus", "hints between nodes: in process and Redis"),
    ("storage", "counter", "claims and windows: in process and Redis"),
    ("storage", "folder", "creates data folders, readable by their owner only"),
    ("storage", "migrate", "embedded, forward-only migrations"),
    ("storage", "records", "the record stores: SQLite and PostgreSQL"),
    ("storage", "redis", "the connection that bus and counters share"),
    ("storage", "secret", "names resolved where they are used"),
    ("connect", "cpu_pool", "CPU-bound work of tools and on answers, off the threads that answer"),
    ("connect", "client", "a Chimera server, for the command line of another process"),
    ("connect", "http", "the HTTP client that every call goes through"),
    ("api", "caller", "the authenticated caller"),
    ("api", "edge", "the state of the handlers"),
    ("api", "examples", "the examples of the OpenAPI document"),
    ("api", "extract", "the one way to read a request body"),
    ("api", "gate", "the checks before every handler"),
    ("api", "json", "strict parsing of JSON bodies"),
    ("api", "ops", "health, readiness, metrics, documentation"),
    ("api", "page", "HTML pages with one layout"),
    ("api", "params", "parses path and query parameters"),
    ("api", "problem", "every error as problem+json"),
    ("api", "error_responses", "error responses that many endpoints share, for OpenAPI"),
    ("api", "request", "middleware of every request"),
    ("api", "route", "the security requirements of a route"),
    ("api", "routes", "the route table on a page"),
    ("api", "server", "connections and their limits"),
    ("api", "trace", "W3C trace context in and out"),
    ("api", "wire", "what JSON bodies are made of"),
    ("chimera", "ambient", "the real clock, randomness and environment"),
    ("chimera", "backend", "what commands work on: a server, or the store directly"),
    ("chimera", "backup", "the content of a backup"),
    ("chimera", "bench", "the benchmark of the record store"),
    ("chimera", "cli", "the command line on a page"),
    ("chimera", "command", "one file per command"),
    ("chimera", "compose", "the only module that names adapters"),
    ("chimera", "config", "layered settings on a page"),
    ("chimera", "doctor", "checks of everything that a server needs"),
    ("chimera", "failure", "how a command fails: code, message, hint, exit status"),
    ("chimera", "data_folder", "the data folder and who may use it"),
    ("chimera", "mask", "masks secrets in everything that is written"),
    ("chimera", "output", "data to stdout, messages to stderr"),
    ("chimera", "reference", "reference pages compared with the code"),
    ("chimera", "serve", "a running server, from taking the lock to shutdown"),
    ("chimera", "telemetry", "logs, traces, metrics"),
];

/// Layers that have rooms; `testkit` is arranged by what tests need.
pub(super) const LAYERS: &[&str] = &["core", "engine", "storage", "connect", "sandbox", "api", "chimera"];

fn check(path: &str) -> Option<Finding> {
    let (layer, rest) = path.split_once("/src/")?;
    LAYERS.contains(&layer).then_some(())?;
    let name = rest.split('/').next().unwrap_or_default();
    let name = name.strip_suffix(".rs").unwrap_or(name);
    let known = matches!(name, "lib" | "main")
        || ROOMS.iter().any(|(room, _)| *room == name)
        || SHARED.iter().any(|(place, shared, _)| *place == layer && *shared == name);
    let what = || {
        format!(
            "{name} is neither a room ({}) nor a shared module of {layer}: move it into a room, \
             or add it to SHARED in rooms.rs with a reason",
            ROOMS.iter().map(|(room, _)| *room).collect::<Vec<_>>().join(", ")
        )
    };
    (!known).then(|| Finding::new(path, 1, what()))
}

/// Lines of the crate table in ARCHITECTURE.md that list other rooms than the crate has.
fn wrong_rooms(page: &str, paths: &[&str]) -> Vec<Finding> {
    let has = |layer: &str, room: &str| {
        let (folder, file) = (format!("{layer}/src/{room}/"), format!("{layer}/src/{room}.rs"));
        paths.iter().any(|path| path.starts_with(&folder) || *path == file)
    };
    let mut found = Vec::new();
    for (at, line) in page.lines().enumerate() {
        let Some((layer, rest)) = line.strip_prefix("| [").and_then(|row| row.split_once("](")) else { continue };
        if !LAYERS.contains(&layer) {
            continue;
        }
        let cell = rest.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap_or_default();
        let listed: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        let own: Vec<&str> = ROOMS.iter().map(|(room, _)| *room).filter(|room| has(layer, room)).collect();
        if listed != own {
            found.push(Finding::new("ARCHITECTURE.md", at + 1, format!("{layer} has the rooms {own:?}")));
        }
    }
    found
}

fn one_test_binary(path: &str) -> Option<Finding> {
    let (_, rest) = path.split_once("/tests/")?;
    let stray = path.ends_with(".rs") && !rest.contains('/');
    stray.then(|| Finding::new(path, 1, "a crate has one test binary: make this a module of tests/it"))
}

#[test]
fn a_layer_has_only_rooms_and_shared_modules() {
    let found: Vec<Finding> = tree::files().iter().filter_map(|file| check(&file.path)).collect();
    assert_none(&found);
}

#[test]
fn the_table_of_crates_lists_their_rooms() {
    let paths: Vec<&str> = tree::files().iter().map(|file| file.path.as_str()).collect();
    assert_none(&wrong_rooms(tree::text("ARCHITECTURE.md"), &paths));
    let page = "| [core](core/src/lib.rs) | what | – | `flow` |\n| [api](api/src/lib.rs) | what | – | – |\n";
    assert_eq!(wrong_rooms(page, &["core/src/flow/run.rs"]), []);
    assert_eq!(wrong_rooms(page, &["core/src/flow.rs", "api/src/act.rs"]).len(), 1);
    assert_eq!(wrong_rooms(page, &["core/src/ledger.rs"]).len(), 1);
}

#[test]
fn every_crate_has_one_test_binary() {
    let found: Vec<Finding> = tree::files().iter().filter_map(|file| one_test_binary(&file.path)).collect();
    assert_none(&found);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_outside_the_rooms_is_found() {
        for path in ["core/src/helpers.rs", "engine/src/sqlite/mod.rs", "api/src/limits.rs", "connect/src/x.rs"] {
            assert!(check(path).is_some(), "{path}");
        }
        for path in ["core/src/flow/run.rs", "core/src/limits.rs", "storage/src/flow.rs", "testkit/src/anything.rs"] {
            assert!(check(path).is_none(), "{path}");
        }
    }

    #[test]
    fn a_second_test_binary_is_found() {
        assert!(one_test_binary("core/tests/more.rs").is_some());
        assert!(one_test_binary("core/tests/it/more.rs").is_none());
        assert!(one_test_binary("core/tests/data/x.json").is_none());
    }

    #[test]
    fn every_shared_name_has_a_reason_and_stands_once() {
        let mut names: Vec<(&str, &str)> = SHARED.iter().map(|(layer, name, _)| (*layer, *name)).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(SHARED.iter().all(|(_, _, why)| !why.is_empty()));
    }
}

//! Every layer has the same nine rooms, and a short list of what they share.
//!
//! A new name at the top of a layer is a decision: it goes into a room, or into the list below
//! with the reason why no room can hold it. It also keeps one test binary per crate, because
//! every binary links everything.

use super::finding::{Finding, assert_none};
use super::matrix::ROOMS;
use super::tree;

/// Layer, what its rooms share, and why.
const SHARED: &[(&str, &str, &str)] = &[
    ("core", "catalog", "the tables of every room, for the stores"),
    ("core", "error", "one table of stable codes"),
    ("core", "id", "ids of every room"),
    ("core", "json", "canonical documents and their digests"),
    ("core", "limits", "every limit on one page"),
    ("core", "record", "tables, transactions and reads as data"),
    ("core", "redact", "what must not be read, masked in every text that leaves"),
    ("core", "secret", "a name of a secret, and the secret that is never shown"),
    ("core", "text", "words of others, made fit to be stored"),
    ("core", "time", "the one spelling of an instant"),
    ("core", "tool", "what a tool says of itself"),
    ("core", "words", "enums whose values are words of a table"),
    ("engine", "commit", "the one way to change state"),
    ("engine", "error", "why a use case did not happen, as every surface tells it"),
    ("engine", "offload", "work that callers choose, off the threads that answer"),
    ("engine", "port", "what the engine needs from outside"),
    ("engine", "pulse", "whether the loops of every room still do their work"),
    ("engine", "rows", "all rows of a query, page by page"),
    ("engine", "turns", "a few places of the process, each tenant in its turn"),
    ("storage", "bench", "the ceiling that the store's own numbers are held against"),
    ("storage", "blob", "content-addressed bytes: folder and S3"),
    ("storage", "bucket", "objects by bucket and key: folder and S3"),
    ("storage", "bus", "hints between nodes: in process and Redis"),
    ("storage", "counter", "claims and windows: in process and Redis"),
    ("storage", "folder", "how folders of the data are made: for their owner alone"),
    ("storage", "migrate", "embedded, forward-only changes of the schema"),
    ("storage", "records", "the record stores: SQLite and PostgreSQL"),
    ("storage", "redis", "the connection that bus and counters share"),
    ("storage", "secret", "names resolved where they are used"),
    ("connect", "aside", "CPU-bound work of tools and on answers, off the threads that answer"),
    ("connect", "client", "a Chimera server, for the command line of another process"),
    ("connect", "http", "the HTTP client that every call goes through"),
    ("api", "caller", "somebody who was let in"),
    ("api", "edge", "what the handlers are given"),
    ("api", "extract", "the one way to read a request body"),
    ("api", "gate", "what every request passes before its handler"),
    ("api", "json", "strict JSON at the door"),
    ("api", "ops", "health, readiness, metrics, documentation"),
    ("api", "page", "pages for people, all with one look"),
    ("api", "place", "what an address or a parameter names"),
    ("api", "problem", "every error as problem+json"),
    ("api", "refusals", "the refusals that many endpoints share, for OpenAPI"),
    ("api", "request", "what surrounds every request"),
    ("api", "route", "what a route demands of whoever asks"),
    ("api", "routes", "the route table on a page"),
    ("api", "server", "connections and their limits"),
    ("api", "trace", "W3C trace context in and out"),
    ("chimera", "ambient", "the real clock, randomness and environment"),
    ("chimera", "backend", "where commands turn to: a server, or the store itself"),
    ("chimera", "backup", "what a backup is made of"),
    ("chimera", "bench", "the benchmark of the record store"),
    ("chimera", "cli", "the command line on a page"),
    ("chimera", "command", "one file per command"),
    ("chimera", "compose", "the only file that names adapters"),
    ("chimera", "config", "layered settings on a page"),
    ("chimera", "doctor", "what a server needs, looked at one by one"),
    ("chimera", "failure", "how a command fails: code, words, hint, exit status"),
    ("chimera", "home", "the data folder and who may use it"),
    ("chimera", "mask", "what must not be read, for all who write something down"),
    ("chimera", "output", "data to stdout, words to stderr"),
    ("chimera", "reference", "reference pages compared with the code"),
    ("chimera", "serve", "a running server from the lock to the last flushed line"),
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
            "{name} is neither a room ({}) nor shared by the rooms of {layer}: move it into its room, \
             or add it to SHARED in rooms.rs with the reason",
            ROOMS.iter().map(|(room, _)| *room).collect::<Vec<_>>().join(", ")
        )
    };
    (!known).then(|| Finding::new(path, 1, what()))
}

fn one_test_binary(path: &str) -> Option<Finding> {
    let (_, rest) = path.split_once("/tests/")?;
    let stray = path.ends_with(".rs") && !rest.contains('/');
    stray.then(|| Finding::new(path, 1, "a crate has one test binary: make this a module of tests/it"))
}

#[test]
fn every_layer_has_the_same_rooms() {
    let found: Vec<Finding> = tree::files().iter().filter_map(|file| check(&file.path)).collect();
    assert_none(&found);
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

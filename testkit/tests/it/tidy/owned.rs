//! Some dependencies belong to one layer. No other layer names them, in manifests or in source.
//!
//! The binary names concrete adapters only in `compose.rs` and the files below it.

use super::finding::{Exception, Finding, apply_exceptions, assert_none};
use super::layers::{Dependency, edges};
use super::rust_file::RustFile;
use super::tree;

/// An external crate, its owner, and whether tests of other layers may use it.
struct OwnedCrate {
    name: &'static str,
    owner: &'static str,
    in_tests: bool,
}

const fn owned(name: &'static str, owner: &'static str) -> OwnedCrate {
    OwnedCrate { name, owner, in_tests: false }
}

const fn client(name: &'static str) -> OwnedCrate {
    OwnedCrate { name, owner: "connect", in_tests: true }
}

const OWNED: &[OwnedCrate] = &[
    owned("rusqlite", "storage"),
    owned("tokio-postgres", "storage"),
    owned("tokio-postgres-rustls", "storage"),
    owned("postgres-protocol", "storage"),
    owned("deadpool-postgres", "storage"),
    owned("redis", "storage"),
    owned("object_store", "storage"),
    owned("axum", "api"),
    owned("utoipa", "api"),
    owned("clap", "chimera"),
    owned("anyhow", "chimera"),
    client("reqwest"),
    client("lettre"),
    client("rmcp"),
];

/// Adapter crates that only `compose.rs` of the binary names.
const ADAPTERS: &[&str] = &["chimera_storage", "chimera_connect", "chimera_sandbox"];

const EXCEPTIONS: &[Exception] = &[
    Exception { file: "chimera/Cargo.toml", why: "the binary passes an HTTP client to the OTLP exporter" },
    Exception { file: "storage/Cargo.toml", why: "chooses the TLS of the client inside object_store" },
];

const NAME_EXCEPTIONS: &[Exception] = &[
    Exception { file: "chimera/src/telemetry/otlp.rs", why: "passes an HTTP client to the OTLP exporter" },
    Exception { file: "storage/src/blob/s3.rs", why: "object_store's signer takes its Method" },
];

const ADAPTER_EXCEPTIONS: &[Exception] = &[];

fn declared(edges: &[Dependency<'_>]) -> Vec<Finding> {
    let breach = |edge: &Dependency<'_>| {
        let crate_ = OWNED.iter().find(|owned| owned.name == edge.to)?;
        let folder = edge.manifest.split('/').next().unwrap_or_default();
        let allowed = folder == crate_.owner || (edge.for_tests && crate_.in_tests);
        let what = || format!("{} belongs to {}: use a port of engine", edge.to, crate_.owner);
        (!allowed).then(|| Finding::new(&edge.manifest, edge.line, what()))
    };
    edges.iter().filter_map(breach).collect()
}

fn named(file: &RustFile) -> Vec<Finding> {
    let foreign = OWNED.iter().filter(|owned| owned.owner != file.layer());
    foreign
        .flat_map(|owned| {
            let path = format!("{}::", owned.name.replace('-', "_"));
            let what = move || format!("{} belongs to {}: use a port of engine", owned.name, owned.owner);
            // Modules of the test kit are named after the servers they start.
            let ours =
                |at: usize| file.tokens[..at].iter().rev().find(|token| !token.word.trim_matches(':').is_empty());
            let ours = move |at: usize| ours(at).is_some_and(|token| token.word == "chimera_testkit");
            let found = file.find(&path).into_iter().filter(move |at| !ours(*at));
            let lines = found.map(|at| file.tokens[at].line).filter(|line| !(owned.in_tests && file.is_test(*line)));
            lines.map(move |line| Finding::new(&file.path, line, what())).collect::<Vec<_>>()
        })
        .collect()
}

fn adapters(file: &RustFile) -> Vec<Finding> {
    let composes = file.path == "chimera/src/compose.rs" || file.path.starts_with("chimera/src/compose/");
    if file.layer() != "chimera" || composes {
        return Vec::new();
    }
    let lines = ADAPTERS.iter().flat_map(|name| file.lines_outside_tests(&format!("{name}::")));
    lines
        .map(|line| Finding::new(&file.path, line, "only compose.rs names adapters: take a port as an argument"))
        .collect()
}

#[test]
fn crates_that_belong_to_one_layer_are_declared_by_no_other() {
    assert_none(&apply_exceptions(declared(&edges(tree::metadata(), &tree::text)), EXCEPTIONS));
}

#[test]
fn crates_that_belong_to_one_layer_are_named_by_no_other() {
    assert_none(&apply_exceptions(tree::rust().iter().flat_map(named).collect(), NAME_EXCEPTIONS));
}

#[test]
fn only_compose_names_adapters() {
    let found = tree::rust().iter().flat_map(adapters).collect();
    assert_none(&apply_exceptions(found, ADAPTER_EXCEPTIONS));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(manifest: &str, to: &'static str, for_tests: bool) -> Dependency<'static> {
        Dependency { from: "a", to, manifest: manifest.to_owned(), line: 1, for_tests, ours: false }
    }

    #[test]
    fn a_crate_of_another_layer_is_found_in_a_manifest() {
        let edges = [
            edge("engine/Cargo.toml", "rusqlite", false),
            edge("api/Cargo.toml", "redis", true),
            edge("api/Cargo.toml", "reqwest", false),
            edge("storage/Cargo.toml", "rusqlite", false),
            edge("api/Cargo.toml", "reqwest", true),
            edge("api/Cargo.toml", "serde", false),
        ];
        assert_eq!(declared(&edges).len(), 3);
    }

    #[test]
    fn a_crate_of_another_layer_is_found_in_source() {
        let text = "use tokio_postgres::Client;\nfn f() { axum::serve(); }\n// redis::x\nlet object_store = 1;";
        let lines = |path| named(&RustFile::new(path, text)).iter().map(|found| found.line).collect::<Vec<_>>();
        assert_eq!(lines("engine/src/flow/run.rs"), [1, 2]);
        assert_eq!(lines("storage/src/lib.rs"), [2]);
        assert_eq!(named(&RustFile::new("chimera/tests/it/main.rs", "use chimera_testkit::redis::PrivateRedis;")), []);
        assert_eq!(named(&RustFile::new("api/tests/it/main.rs", "reqwest::get()")), []);
        assert_eq!(named(&RustFile::new("api/src/lib.rs", "reqwest::get()")).len(), 1);
    }

    #[test]
    fn an_adapter_is_named_in_compose_only() {
        let text = "use chimera_storage::sqlite;";
        assert_eq!(adapters(&RustFile::new("chimera/src/main.rs", text)).len(), 1);
        assert_eq!(adapters(&RustFile::new("chimera/src/compose.rs", text)), []);
        assert_eq!(adapters(&RustFile::new("chimera/tests/it/main.rs", text)), []);
    }
}

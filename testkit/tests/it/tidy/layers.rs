//! Dependencies between the crates of the workspace point one way only.
//!
//! The table below matches the one in ARCHITECTURE.md. Add a new crate to both, or put its code into an existing
//! crate.

use super::finding::{Finding, assert_none};
use super::manifests::line_of;
use super::tree;
use serde_json::Value;

/// A crate, the crates it may use, and those that its tests may use in addition.
struct Layer {
    name: &'static str,
    uses: &'static [&'static str],
    tests_use: &'static [&'static str],
}

const LAYERS: &[Layer] = &[
    Layer { name: "chimera-expr", uses: &[], tests_use: &[] },
    Layer { name: "chimera-core", uses: &["chimera-expr"], tests_use: &["chimera-testkit"] },
    Layer { name: "chimera-engine", uses: &["chimera-core"], tests_use: &["chimera-testkit"] },
    Layer { name: "chimera-storage", uses: &["chimera-core", "chimera-engine"], tests_use: &["chimera-testkit"] },
    Layer {
        name: "chimera-connect",
        uses: &["chimera-core", "chimera-engine"],
        tests_use: &["chimera-testkit", "chimera-storage"],
    },
    Layer { name: "chimera-sandbox", uses: &["chimera-core", "chimera-engine"], tests_use: &["chimera-testkit"] },
    Layer {
        name: "chimera-api",
        uses: &["chimera-core", "chimera-engine"],
        tests_use: &["chimera-testkit", "chimera-storage"],
    },
    Layer {
        name: "chimera",
        uses: &[
            "chimera-core",
            "chimera-engine",
            "chimera-storage",
            "chimera-connect",
            "chimera-sandbox",
            "chimera-api",
        ],
        tests_use: &["chimera-testkit"],
    },
    Layer { name: "chimera-testkit", uses: &["chimera-core", "chimera-engine"], tests_use: &["chimera-storage"] },
];

/// A dependency as a manifest declares it.
pub(super) struct Dependency<'a> {
    pub(super) from: &'a str,
    pub(super) to: &'a str,
    pub(super) manifest: String,
    pub(super) line: usize,
    pub(super) for_tests: bool,
    pub(super) ours: bool,
}

/// Every dependency declared by a crate of the workspace. `text` returns a manifest.
pub(super) fn edges<'a>(metadata: &'a Value, text: &'a dyn Fn(&str) -> &'a str) -> Vec<Dependency<'a>> {
    let members = metadata["workspace_members"].as_array().map(Vec::as_slice).unwrap_or_default();
    let root = metadata["workspace_root"].as_str().unwrap_or_default();
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ours = packages.iter().filter(|package| members.contains(&package["id"]));
    ours.flat_map(|package| {
        let path = package["manifest_path"].as_str().unwrap_or_default();
        let manifest = path.trim_start_matches(root).trim_start_matches('/').to_owned();
        let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
        dependencies.iter().map(move |dependency| {
            let to = dependency["name"].as_str().unwrap_or_default();
            Dependency {
                from: package["name"].as_str().unwrap_or_default(),
                to,
                manifest: manifest.clone(),
                line: line_of(text(&manifest), to),
                for_tests: dependency["kind"] == "dev",
                ours: !dependency["path"].is_null(),
            }
        })
    })
    .collect()
}

fn check(edges: &[Dependency<'_>]) -> Vec<Finding> {
    let ours = edges.iter().filter(|edge| edge.ours);
    ours.filter_map(|edge| {
        let Some(layer) = LAYERS.iter().find(|layer| layer.name == edge.from) else {
            let what =
                format!("{} is not a known layer: add it to the table in layers.rs and to ARCHITECTURE.md", edge.from);
            return Some(Finding::new(&edge.manifest, edge.line, what));
        };
        let allowed = layer.uses.contains(&edge.to) || (edge.for_tests && layer.tests_use.contains(&edge.to));
        let what = || format!("{} must not use {}: invert the dependency with a port in engine", edge.from, edge.to);
        (!allowed).then(|| Finding::new(&edge.manifest, edge.line, what()))
    })
    .collect()
}

#[test]
fn arrows_between_crates_point_one_way() {
    let edges = edges(tree::metadata(), &tree::text);
    assert!(edges.iter().any(|edge| edge.from == "chimera-engine" && edge.to == "chimera-core"));
    assert_none(&check(&edges));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(from: &str, to: &str, kind: Value) -> Vec<Finding> {
        let metadata = json!({
            "workspace_root": "/w", "workspace_members": ["a"],
            "packages": [
                {"id": "a", "name": from, "manifest_path": "/w/a/Cargo.toml",
                 "dependencies": [{"name": to, "kind": kind, "path": "/w/b"}, {"name": "serde", "kind": null}]},
                {"id": "serde", "name": "serde", "manifest_path": "/s/Cargo.toml",
                 "dependencies": [{"name": "chimera", "kind": null, "path": "/w/b"}]},
            ],
        });
        check(&edges(&metadata, &|_| "[dependencies]\nserde = \"1\"\nchimera-engine.workspace = true\n"))
    }

    #[test]
    fn an_arrow_against_the_layers_is_found() {
        let breach = &found("chimera-core", "chimera-engine", Value::Null)[0];
        assert_eq!((breach.file.as_str(), breach.line), ("a/Cargo.toml", 3));
        assert_eq!(found("chimera-api", "chimera-storage", Value::Null).len(), 1);
        assert_eq!(found("chimera-engine", "chimera-testkit", Value::Null).len(), 1);
        assert_eq!(found("chimera-core", "chimera-storage", json!("dev")).len(), 1);
        assert_eq!(found("chimera-common", "chimera-core", Value::Null).len(), 1);
    }

    #[test]
    fn an_arrow_along_the_layers_is_not() {
        assert_eq!(found("chimera-engine", "chimera-core", Value::Null), []);
        assert_eq!(found("chimera-api", "chimera-storage", json!("dev")), []);
        assert_eq!(found("chimera", "chimera-storage", Value::Null), []);
    }
}

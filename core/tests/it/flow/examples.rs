//! The shipped examples are valid.

use super::given::tools;
use chimera_core::flow::air::{Catalog, Graph, ProblemCode, SCHEMA, WorkflowInfo, compile, parse};
use chimera_core::json::schema::Schema;
use chimera_core::tool::Spec;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The tools, with the other examples as child workflows.
struct Shelf {
    tools: super::given::Tools,
    graphs: BTreeMap<String, Graph>,
}

impl Catalog for Shelf {
    fn tool(&self, name: &str) -> Option<Arc<Spec>> {
        self.tools.tool(name)
    }

    fn workflow(&self, id: &str, _: Option<i64>) -> WorkflowInfo {
        self.graphs.get(id).map_or(WorkflowInfo::Missing, Graph::info)
    }
}

fn texts() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/workflows");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut texts: Vec<_> = entries
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(&path).unwrap()))
        .collect();
    texts.sort();
    // Children come before their parents.
    texts.sort_by_key(|(_, text)| text.contains("\"type\": \"workflow\""));
    texts
}

#[test]
fn every_example_compiles_and_is_named_like_its_file() {
    let mut shelf = Shelf { tools: tools(), graphs: BTreeMap::new() };
    for (name, text) in texts() {
        let graph = compile(parse(&text).unwrap(), &shelf).unwrap_or_else(|problems| panic!("{name}: {problems:?}"));
        assert_eq!(graph.document.workflow_id, name);
        assert!(graph.document.description.is_some(), "{name}");
        shelf.graphs.insert(name, graph);
    }
    assert!(shelf.graphs.len() >= 6);
}

#[test]
fn the_reference_names_every_code() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/air.md")).unwrap();
    for code in ProblemCode::ALL {
        assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        assert!(page.contains(&format!("`{}`", code.as_str())), "{}", code.as_str());
    }
}

#[test]
fn every_example_keeps_the_published_schema() {
    let schema = Schema::compile(serde_json::from_str(SCHEMA).unwrap()).unwrap();
    for (name, text) in texts() {
        schema.check(&serde_json::from_str(&text).unwrap()).unwrap_or_else(|faults| panic!("{name}: {faults:?}"));
    }
}

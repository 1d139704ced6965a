//! Properties that hold for any bytes: nothing panics, nothing runs long, and what is accepted is sound.
//!
//! The fuzz targets call these functions; the tests of `core` call them with mutated seeds.

use chimera_core::flow::air::{
    Catalog, Document, DocumentProblem, Graph, SCHEMA, Source, WorkflowInfo, compile, parse,
};
use chimera_core::flow::expr::{Lookup, Preview, Scope, Template, WorkMeter};
use chimera_core::flow::patch::{Patch, apply, digest, inverse, revert};
use chimera_core::json::Digest32;
use chimera_core::json::schema::Schema;
use chimera_core::limits::TURN_WORK_MAX;
use chimera_core::tool::{EffectKind, Metadata, Rollback, Spec, ToolDeclaration};
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

struct Tools {
    open: Arc<Spec>,
    closed: Arc<Spec>,
}

impl Catalog for Tools {
    fn tool(&self, name: &str) -> Option<Arc<Spec>> {
        match name {
            "local.echo" => Some(Arc::clone(&self.open)),
            "" => None,
            // Every other name is a tool with a narrow schema, so that examples get far.
            _ => Some(Arc::clone(&self.closed)),
        }
    }

    fn workflow(&self, id: &str, _: Option<i64>) -> WorkflowInfo {
        if id.len().is_multiple_of(2) { WorkflowInfo::Exists } else { WorkflowInfo::Missing }
    }
}

static TOOLS: LazyLock<Tools> = LazyLock::new(|| {
    let tool = |name, input, output| {
        let declared = ToolDeclaration {
            name,
            version: "1",
            description: "",
            metadata: Metadata::default(),
            effect: EffectKind::Read,
            reads_when: None,
            checkable: false,
            rollback: Rollback::Unsupported,
            timeout_ms: 1,
            input,
            output,
        };
        Arc::new(declared.compile().expect("the schemas are good"))
    };
    let text = json!({"type": "string"});
    let narrow = json!({
        "type": "object",
        "properties": {"text": text, "to": text, "subject": text, "sentences": {"type": "integer", "maximum": 9}},
        "required": ["text"]
    });
    let given = json!({"type": "object", "properties": {"summary": text, "key": text}, "additionalProperties": false});
    Tools {
        open: tool("local.echo", json!({"type": "object"}), json!({"type": "object"})),
        closed: tool("narrow", narrow, given),
    }
});

static AIR: LazyLock<Schema> =
    LazyLock::new(|| Schema::compile(serde_json::from_str(SCHEMA).expect("it is JSON")).expect("it is a schema"));

/// Every problem has a position in the text, and they are sorted.
fn located(text: &str, problems: &[DocumentProblem]) {
    told(problems);
    let lines: Vec<usize> = text.split('\n').map(|line| line.chars().count()).collect();
    for problem in problems {
        let position = problem.position.expect("a position");
        assert!(position.column >= 1 && position.column <= lines[position.line - 1] + 1, "{problem:?}");
    }
    assert!(problems.is_sorted_by_key(|problem| problem.position));
}

fn told(problems: &[DocumentProblem]) {
    assert!(!problems.is_empty() && problems.len() <= 50);
    for problem in problems {
        assert!(problem.path.is_empty() || problem.path.starts_with('/'), "{problem:?}");
        assert!(!problem.reason.is_empty());
    }
}

fn sound(graph: &Graph) {
    assert_eq!(graph.nodes.len(), graph.document.nodes.len());
    assert!(graph.roots().next().is_some() && graph.sinks().next().is_some());
    for (at, edge) in graph.edges.iter().enumerate() {
        assert!(graph.nodes[edge.from].outgoing.contains(&at) && graph.nodes[edge.to].incoming.contains(&at));
    }
    for (at, node) in graph.nodes.iter().enumerate() {
        assert_eq!(graph.position(&node.node.id), Some(at));
    }
}

/// A workflow document.
pub(crate) fn air(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let checked = Source::read(text).compile(&*TOOLS);
    if let Err(problems) = &checked {
        located(text, problems);
    }
    let document = match parse(text) {
        Ok(document) => document,
        Err(problems) => {
            assert!(checked.is_err(), "{problems:?}");
            return told(&problems);
        }
    };
    let written = document.to_value();
    assert_eq!(Document::from_value(written.clone()).as_ref(), Ok(&document));
    assert!(AIR.check(&written).is_ok(), "the schema refuses what the reader takes: {written}");
    let compiled = compile(document, &*TOOLS);
    assert_eq!(compiled.is_ok(), checked.is_ok());
    match compiled {
        Ok(graph) => sound(&graph),
        Err(problems) => told(&problems),
    }
}

struct Values {
    inputs: Value,
    known: bool,
}

static METER: WorkMeter = WorkMeter::lenient(TURN_WORK_MAX);

impl Scope for Values {
    fn run_id(&self) -> &str {
        "run"
    }

    fn inputs(&self) -> &Value {
        &self.inputs
    }

    fn outputs(&self, node: &str) -> Lookup<'_> {
        match node {
            "a" => Lookup::Known(&self.inputs),
            "b" if !self.known => Lookup::Unknown,
            "b" => Lookup::Known(&self.inputs),
            _ => Lookup::Absent,
        }
    }

    fn item(&self) -> Option<(&Value, usize)> {
        Some((&self.inputs, 3))
    }

    fn meter(&self) -> &WorkMeter {
        &METER
    }
}

/// A template: a JSON value, or else a text.
pub(crate) fn template(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let value = chimera_core::json::parse(text).unwrap_or_else(|_| json!(text));
    let Ok(template) = Template::compile(&value) else { return };
    let inputs = json!({"n": 1, "f": 0.5, "t": "text", "l": [1, "a", null, [true]], "o": {"k": {"k": 2}}, "z": null});
    let mut values = Values { inputs, known: false };
    let rendered = template.render(&values);
    match template.preview(&values) {
        Ok(Preview::Exact(shown)) => assert_eq!(rendered, Ok(shown)),
        Ok(Preview::Deferred { from, .. }) => assert!(rendered.is_err() && from.iter().eq(["b"])),
        Err(_) => assert!(rendered.is_err()),
    }
    values.known = true;
    let once = template.render(&values);
    assert_eq!(once, template.render(&values));
    if template.is_constant() {
        assert!(once.is_ok() && template.references().is_empty());
    }
}

static RUNNING: LazyLock<Graph> = LazyLock::new(|| {
    let node = |id: &str| json!({"id": id, "type": "function", "fn": "local.echo", "inputs": {}});
    let document = json!({
        "air_version": "1.0", "workflow_id": "w",
        "nodes": [node("done"), node("now"), node("later")],
        "edges": [{"from": "done", "to": "now"}, {"from": "now", "to": "later"}]
    });
    compile(Document::from_value(document).expect("it is read"), &*TOOLS).expect("it compiles")
});

/// A patch of a running graph.
pub(crate) fn patch(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let patch = match Patch::parse(text) {
        Ok(patch) => patch,
        Err(problems) => return told(&problems),
    };
    assert_eq!(Patch::from_value(patch.to_value()).as_ref(), Ok(&patch));
    assert_eq!(digest(Digest32([0; 32]), &patch), digest(Digest32([0; 32]), &patch));
    let after = match apply(&RUNNING, &patch, &["now"], &["done"], &*TOOLS) {
        Ok(after) => after,
        Err(problems) => return told(&problems),
    };
    sound(&after);
    let old = RUNNING.nodes.len();
    assert!(after.document.nodes[..old] == RUNNING.document.nodes && after.nodes.len() == old + patch.add_nodes.len());
    let added: Vec<&str> = patch.add_nodes.iter().map(|node| node.id.as_str()).collect();
    let back = revert(&after, &inverse(&patch, &["now"]), &added).expect("all of it is pending");
    assert_eq!(back.digest, RUNNING.digest);
}

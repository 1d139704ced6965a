//! The calls of a run are laid out before it runs. What is unknown then counts as the worst case, however deeply
//! nested and whatever an expression makes of it.

use chimera_core::access::TenantSettings;
use chimera_core::access::destination::destinations;
use chimera_core::flow::Children;
use chimera_core::flow::air::{Catalog, Document, Graph, WorkflowInfo, compile};
use chimera_core::flow::expand;
use chimera_core::flow::plan::Plan;
use chimera_core::tool::{CallClass, EffectKind, Metadata, ReadOnlyInputs, Rollback, Spec, ToolDeclaration};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

struct Tools;

impl Catalog for Tools {
    fn tool(&self, name: &str) -> Option<Arc<Spec>> {
        let (name, capability) = match name {
            "http.request" => ("http.request", "external_api"),
            "mail.send" => ("mail.send", "mail.send"),
            _ => return None,
        };
        let reads_when = ReadOnlyInputs { member: "method", values: &["GET", "HEAD"], deletes: &["DELETE"] };
        let declared = ToolDeclaration {
            name,
            version: "1",
            description: "",
            metadata: Metadata { capabilities: vec![capability.to_owned()], ..Metadata::default() },
            effect: EffectKind::Write,
            reads_when: (name == "http.request").then_some(reads_when),
            checkable: false,
            rollback: Rollback::Unsupported,
            timeout_ms: 1_000,
            input: json!({"type": "object"}),
            output: json!({"type": "object"}),
        };
        Some(Arc::new(declared.compile().unwrap()))
    }

    fn workflow(&self, _: &str, _: Option<i64>) -> WorkflowInfo {
        WorkflowInfo::Exists
    }
}

fn graph(id: &str, nodes: Value, edges: Value) -> Arc<Graph> {
    let document = json!({"air_version": "1.0", "workflow_id": id, "nodes": nodes, "edges": edges});
    let document = Document::from_value(document).unwrap();
    Arc::new(compile(document, &Tools).map_err(|problems| format!("{problems:?}")).unwrap())
}

/// What must be detected: a value that must not run freely, one that may, and the call that uses it.
#[derive(Clone, Copy, Debug)]
struct Act {
    tool: &'static str,
    member: &'static str,
    bad: &'static str,
    good: &'static str,
}

const ACTS: [Act; 2] = [
    Act { tool: "http.request", member: "method", bad: "DELETE", good: "GET" },
    Act { tool: "mail.send", member: "to", bad: "bob@evil.test", good: "ann@acme.example" },
];

impl Act {
    /// Whether the plan has a call that must not run freely.
    fn is_found(self, plan: &Plan) -> bool {
        let tenant = TenantSettings { domains: vec!["acme.example".to_owned()], ..TenantSettings::default() };
        let spec = Tools.tool(self.tool).unwrap();
        let bad = |input: &Value| match destinations(&spec, input) {
            Some(named) => named.iter().any(|named| tenant.is_outside(named)),
            None => spec.call_class(input) == CallClass::Delete,
        };
        plan.steps.iter().any(|step| step.tool == self.tool && bad(&step.input))
    }
}

/// Expressions that yield the bad value exactly if `X` does.
const FORMS: [&str; 8] = [
    "${X}",
    "${X == 'BAD' ? 'BAD' : 'GOOD'}",
    "${X != 'GOOD' ? X : 'GOOD'}",
    "${[X, 'GOOD'][0]}",
    "${X in ['BAD'] ? 'BAD' : 'GOOD'}",
    "${['GOOD', X].exists(y, y == 'BAD') ? 'BAD' : 'GOOD'}",
    "${X == 'BAD' && true ? 'BAD' : 'GOOD'}",
    "${X + ''}",
];

/// How a workflow passes the value to its child, and how the child refers to it.
#[derive(Clone, Copy, Debug)]
enum Hand {
    Plain,
    Nested,
    InList,
    /// Once per item of a list.
    EachItem,
    /// As a list that the child iterates over.
    List,
}

const HANDS: [Hand; 5] = [Hand::Plain, Hand::Nested, Hand::InList, Hand::EachItem, Hand::List];

/// A level of nesting: the expression for the value, and how it is passed on.
type Floor = (usize, Hand);

impl Act {
    fn text(self, form: usize, read: &str) -> String {
        FORMS[form].replace('X', read).replace("BAD", self.bad).replace("GOOD", self.good)
    }

    /// The node of a level that reads the value as `read`, and how the level below reads it.
    fn node(self, (form, hand): Floor, read: &str, below: &str) -> (Value, &'static str) {
        let text = self.text(form, read);
        let child = |inputs: Value| json!({"id": "c", "type": "workflow", "workflow_id": below, "inputs": inputs});
        match hand {
            Hand::Plain => (child(json!({"m": text, "n": 1})), "inputs.m"),
            Hand::Nested => (child(json!({"o": {"m": text, "n": 1}})), "inputs.o.m"),
            Hand::InList => (child(json!({"l": [text, self.good]})), "inputs.l[0]"),
            Hand::EachItem => {
                let each = json!({"type": "workflow", "workflow_id": below, "inputs": {"m": "${item}"}});
                (json!({"id": "c", "type": "map", "over": [self.good, text], "do": each}), "inputs.m")
            }
            Hand::List => (child(json!({"l": [self.good, text]})), "item"),
        }
    }

    /// The innermost level: the call itself.
    fn call(self, form: usize, read: &str) -> Value {
        let inputs = json!({ self.member: self.text(form, read) });
        if read == "item" {
            let each = json!({"type": "function", "fn": self.tool, "inputs": inputs});
            return json!({"id": "c", "type": "map", "over": "${inputs.l}", "do": each});
        }
        json!({"id": "c", "type": "function", "fn": self.tool, "inputs": inputs})
    }

    /// Nested workflows that read the value as `read` at the top level.
    fn plan(self, floors: &[Floor], last: usize, read: &str, inputs: &Value) -> Plan {
        let mut children = Children::new();
        let (mut graphs, mut read) = (Vec::new(), read);
        for (at, floor) in floors.iter().enumerate() {
            // A list is iterated where the value is used, and passed on item by item before.
            let over = read == "item";
            let (mut node, next) = self.node(*floor, read, &format!("w{}", at + 1));
            if over {
                let each = json!({
                    "type": "workflow", "workflow_id": format!("w{}", at + 1), "inputs": {"m": self.text(floor.0, "item")},
                });
                node = json!({"id": "c", "type": "map", "over": "${inputs.l}", "do": each});
            }
            graphs.push(node);
            read = if over { "inputs.m" } else { next };
        }
        graphs.push(self.call(last, read));
        for (at, node) in graphs.iter().enumerate().skip(1) {
            children.insert((format!("w{at}"), None), graph(&format!("w{at}"), json!([node]), json!([])));
        }
        let source = json!({"id": "s", "type": "function", "fn": "http.request", "inputs": {"url": "https://a.test"}});
        let top = graph("w0", json!([source, graphs[0]]), json!([{"from": "s", "to": "c"}]));
        expand(&top, inputs, &children)
    }
}

proptest! {
    /// CORE-019
    #[test]
    fn whatever_a_run_may_turn_out_to_do_was_counted_before(
        act in prop::sample::select(&ACTS[..]),
        floors in prop::collection::vec((0..FORMS.len(), prop::sample::select(&HANDS[..])), 0..4),
        last in 0..FORMS.len(),
    ) {
        let unknown = act.plan(&floors, last, "nodes.s.outputs.m", &json!({}));
        for (word, bad) in [(act.bad, true), (act.good, false)] {
            let known = act.plan(&floors, last, "inputs.m", &json!({ "m": word }));
            prop_assert_eq!(act.is_found(&known), bad, "{:?}", known);
        }
        prop_assert!(act.is_found(&unknown), "{:?}", unknown);
    }
}

/// Known inputs of a child stay known next to unknown ones.
#[test]
fn only_what_depends_on_the_unknown_is_unknown() {
    let child = |inputs: Value| json!([{"id": "c", "type": "function", "fn": "http.request", "inputs": inputs}]);
    let handed = json!({
        "url": "${nodes.s.outputs.url}", "method": "GET", "all": {"method": "GET", "url": "${nodes.s.outputs.url}"},
        "list": ["GET", "${nodes.s.outputs.m}"],
    });
    let top = json!([
        {"id": "s", "type": "function", "fn": "http.request", "inputs": {"url": "https://a.test"}},
        {"id": "c", "type": "workflow", "workflow_id": "w", "inputs": handed},
    ]);
    let top = graph("top", top, json!([{"from": "s", "to": "c"}]));
    for (method, reads) in [
        ("${inputs.method}", true),
        ("${inputs.all.method == 'GET' ? 'GET' : 'DELETE'}", true),
        ("${has(inputs.verb) ? inputs.verb : 'GET'}", true),
        ("${inputs.list[0]}", true),
        ("${inputs.list[1]}", false),
        ("${has(inputs.url.x) ? 'DELETE' : 'GET'}", false),
        ("${inputs.url.x}", false),
        ("${run_id == '' ? 'GET' : 'DELETE'}", false),
        ("${inputs == {} ? 'GET' : 'DELETE'}", false),
    ] {
        let below = graph("w", child(json!({"method": method, "whole": "${inputs.all}"})), json!([]));
        let children = Children::from([(("w".to_owned(), None), below)]);
        let plan = expand(&top, &json!({}), &children);
        let input = &plan.steps[1].input;
        assert_eq!(ACTS[0].is_found(&plan), !reads, "{method}: {input}");
        assert_eq!(input["whole"]["method"], "GET", "{input}");
    }
}

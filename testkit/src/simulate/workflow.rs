//! Random workflows: chains, diamonds, conditions, joins, maps, children, delays, approvals, judges.

use crate::seeded::Seeded;
use serde_json::{Value, json};

const WORDS: [&str; 11] =
    ["pure", "read", "once", "again", "checked", "again", "pure", "fixed", "firm", "errand", "chore"];

/// The id of the child workflow.
pub(super) const LEAF: &str = "leaf";

/// A workflow without children.
#[must_use]
pub(super) fn leaf(dice: &Seeded) -> Value {
    document(LEAF, dice, 1 + dice.below(2), false)
}

/// A workflow of two to six nodes that may start children.
#[must_use]
pub(super) fn workflow(id: &str, dice: &Seeded) -> Value {
    document(id, dice, 2 + dice.below(5), true)
}

fn document(id: &str, dice: &Seeded, nodes: u64, nested: bool) -> Value {
    let names: Vec<String> = (0..nodes).map(|at| format!("n{at}")).collect();
    let mut edges = Vec::new();
    let mut bodies = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let mut node = node(name, dice, nested);
        let mut before: Vec<&String> = Vec::new();
        for _ in 0..=dice.below(2) {
            if at > 0 && (dice.below(8) > 0 || !before.is_empty()) {
                let from = dice.pick(&names[..at]);
                if !before.contains(&from) {
                    before.push(from);
                }
            }
        }
        let judged = before
            .iter()
            .find(|from| bodies.iter().any(|body: &Value| body["id"] == ***from && !body["judge"].is_null()));
        if let Some(from) = judged.filter(|_| node["type"] == "function") {
            let output = format!("nodes.{from}.outputs.echo");
            node["inputs"]["seen"] = json!(format!("${{has({output}) ? string({output}) : ''}}"));
        }
        for from in &before {
            let mut edge = json!({"from": from, "to": name});
            match dice.below(6) {
                0 => edge["condition"] = json!(format!("${{nodes.{from}.outputs.success == true}}")),
                1 => edge["condition"] = json!(format!("${{nodes.{from}.outputs.success == false}}")),
                2 => edge["condition"] = json!("${inputs.flag}"),
                _ => {}
            }
            edges.push(edge);
        }
        if before.len() > 1 && dice.below(2) == 0 {
            node["join"] = json!("any");
        }
        bodies.push(node);
    }
    let mut document = json!({
        "air_version": "1.0", "workflow_id": id, "nodes": bodies, "edges": edges,
        "inputs": {"type": "object", "properties": {"flag": {"type": "boolean"}, "list": {"type": "array"}}, "required": ["flag", "list"]},
    });
    if dice.below(6) == 0 {
        document["timeout_seconds"] = json!(5 + dice.below(60));
    }
    document
}

fn node(name: &str, dice: &Seeded, nested: bool) -> Value {
    let tool = *dice.pick(&WORDS);
    let mut node = match dice.below(if nested { 12 } else { 8 }) {
        1 if dice.below(2) == 0 => wait(name, dice),
        0 => json!({"id": name, "type": "hitl", "prompt": "go on?"}),
        8 | 9 => json!({
            "id": name, "type": "map", "over": "${inputs.list}", "max_parallel": 1 + dice.below(3),
            "do": {"type": "function", "fn": tool, "inputs": {"n": "${index}"}},
        }),
        10 => {
            json!({"id": name, "type": "workflow", "workflow_id": LEAF, "inputs": {"flag": "${inputs.flag}", "list": []}})
        }
        11 => json!({
            "id": name, "type": "map", "over": "${inputs.list}", "max_parallel": 2,
            "do": {"type": "workflow", "workflow_id": LEAF, "inputs": {"flag": true, "list": []}},
        }),
        _ => json!({"id": name, "type": "function", "fn": tool, "inputs": {"n": name}}),
    };
    let function = node["type"] == "function";
    if function && ["pure", "read"].contains(&tool) && dice.below(3) == 0 {
        node["cache"] = json!({"ttl_seconds": 30});
    }
    if dice.below(6) == 0 {
        node["delay_seconds"] = json!(*dice.pick(&[1, 3, 20]));
    }
    if function && dice.below(4) == 0 {
        node["retry"] = json!({"max": dice.below(3)});
    }
    if function && dice.below(4) == 0 {
        node["timeout_seconds"] = json!(2 + dice.below(30));
    }
    if function && dice.below(8) == 0 {
        node["requires_approval"] = json!({"expires_seconds": 5 + dice.below(60)});
    }
    if function && dice.below(3) == 0 {
        let (n, judge) = judge(["pure", "read"].contains(&tool), dice);
        node["judge"] = judge;
        if let Some(n) = n {
            node["inputs"]["n"] = json!(n);
        }
    }
    node
}

/// An input that no tool may get, because the judges of its nodes reject it.
pub(super) const FORBIDDEN: &str = "forbidden";

/// Outputs that no step may see, because the judges of their nodes reject them.
pub(super) const REJECTED: [&str; 3] = ["j0", "f0", "f1"];

/// A judge, and the input of its node if it needs one. A check that iterates over a list decides in a turn of its own.
fn judge(by_output: bool, dice: &Seeded) -> (Option<&'static str>, Value) {
    let is = |what: &str, value: &str| match dice.below(2) {
        0 => format!("${{{what} == '{value}'}}"),
        _ => format!("${{['{value}'].exists(x, x == {what})}}"),
    };
    if by_output {
        return match dice.below(3) {
            0 => (
                Some("${'j' + string(judge.rejections)}"),
                json!({"checks": [{"require": is("output.echo", "j1")}], "retries": 1}),
            ),
            1 => (
                Some("${'f' + string(judge.rejections)}"),
                json!({"checks": [{"require": is("output.echo", "never")}], "retries": dice.below(2)}),
            ),
            _ => (None, json!({"checks": [{"require": is("output.echo", "never")}], "on_exhausted": "escalate"})),
        };
    }
    match dice.below(3) {
        0 => (None, json!({"checks": [{"require": "${input.n != 'forbidden'}"}], "bytes_max": 1_000})),
        1 => (Some(FORBIDDEN), json!({"checks": [{"require": "${input.n != 'forbidden'}"}]})),
        _ => (None, json!({"checks": [{"require": is("input.n", "never"), "on_fail": "escalate"}]})),
    }
}

/// The name of every event.
pub(super) const EVENT: &str = "told";

/// The keys of events.
pub(super) const KEYS: [&str; 3] = ["k0", "k1", "k2"];

/// A wait for a time, or for one of a few events.
fn wait(name: &str, dice: &Seeded) -> Value {
    if dice.below(4) == 0 {
        return json!({"id": name, "type": "wait", "for_seconds": *dice.pick(&[1, 4, 20])});
    }
    let mut node = json!({"id": name, "type": "wait", "event": {"name": EVENT, "key": *dice.pick(&KEYS)}});
    if dice.below(2) == 0 {
        node["timeout_seconds"] = json!(1 + dice.below(40));
        node["on_timeout"] = json!(*dice.pick(&["fail", "continue"]));
    }
    node
}

/// A patch that adds a node after another.
#[must_use]
pub(super) fn patch(dice: &Seeded, number: u64) -> Value {
    let name = format!("p{number}");
    let from = *dice.pick(&["CURRENT_NODE", "n0", "n1"]);
    json!({
        "patch_version": "0.1", "justification": "one more",
        "add_nodes": [{"id": name, "type": "function", "fn": *dice.pick(&WORDS), "inputs": {"n": name}}],
        "add_edges": [{"from": from, "to": name}],
    })
}

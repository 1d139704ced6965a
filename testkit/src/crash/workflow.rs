//! The workflow of the crash matrix. It uses every feature.

use crate::flow::CallBehavior;
use chimera_engine::act::rules::{Rule, Rules};
use serde_json::{Value, json};

fn function(id: &str, tool: &str) -> Value {
    json!({"id": id, "type": "function", "fn": tool, "inputs": {"n": id}})
}

fn with(mut node: Value, name: &str, value: Value) -> Value {
    node[name] = value;
    node
}

/// A node with this input and judge. A judge whose checks iterate over a list decides in a turn of its own.
fn judged(node: Value, n: &str, judge: Value) -> Value {
    with(with(node, "inputs", json!({ "n": n })), "judge", judge)
}

/// The child workflow. It runs twice; the second time `look` is answered from the cache.
pub(super) fn child_workflow() -> Value {
    json!({
        "air_version": "1.0", "workflow_id": "part",
        "nodes": [with(function("look", "read"), "cache", json!({})), function("make", "again")],
        "edges": [{"from": "look", "to": "make"}],
    })
}

/// The parent workflow.
pub(super) fn parent_workflow() -> Value {
    let child = |id: &str| json!({"id": id, "type": "workflow", "workflow_id": "part", "inputs": {}});
    let edge = |from: &str, to: &str| json!({"from": from, "to": to});
    let on = |from: &str, to: &str, condition: &str| json!({"from": from, "to": to, "condition": condition});
    json!({
        "air_version": "1.0", "workflow_id": "whole", "log_executions": {},
        "inputs": {"type": "object", "properties": {"list": {"type": "array"}}, "required": ["list"]},
        "outputs": {"last": "${nodes.last.outputs.echo}", "items": "${nodes.each.outputs.items}"},
        "nodes": [
            function("begin", "pure"),
            with(function("look", "read"), "cache", json!({"ttl_seconds": 60})),
            with(function("make", "again"), "inputs", json!({"n": "${nodes.look.outputs.tool}"})),
            function("never", "again"),
            function("single", "once"),
            function("verified", "checked"),
            with(function("either", "pure"), "join", json!("any")),
            {"id": "each", "type": "map", "over": "${inputs.list}", "max_parallel": 2,
             "do": {"type": "function", "fn": "checked", "inputs": {"n": "${item}"}}},
            {"id": "person", "type": "hitl", "prompt": "shall it go on?"},
            with(function("guarded", "again"), "requires_approval", json!({})),
            child("part_one"),
            child("part_two"),
            function("stubborn", "again"),
            with(function("late", "again"), "delay_seconds", json!(1)),
            // Ends long before the person decides. The edges that it settled must not change afterwards.
            with(function("soonest", "pure"), "join", json!("any")),
            function("too_late", "again"),
            judged(function("draft", "read"), "${'j' + string(judge.rejections)}", json!({
                "checks": [{"require": "${['j1'].exists(x, x == output.echo.n)}", "message": "not yet"}], "retries": 1,
            })),
            judged(function("publish", "again"), "${nodes.draft.outputs.echo.n}", json!({
                "checks": [{"require": "${['j1'].exists(x, x == input.n)}"}],
            })),
            judged(function("odd", "read"), "odd", json!({
                "checks": [{"require": "${output.echo.n == 'even'}", "on_fail": "escalate"}],
            })),
            {"id": "nap", "type": "wait", "for_seconds": 2},
            {"id": "told_before", "type": "wait", "event": {"name": "told", "key": "before"}},
            {"id": "told_later", "type": "wait", "event": {"name": "told", "key": "later"}, "timeout_seconds": 86_400},
            function("last", "pure"),
        ],
        "edges": [
            edge("begin", "look"), edge("look", "make"),
            on("make", "never", "${nodes.make.outputs.success == false}"),
            on("make", "single", "${nodes.make.outputs.success == true}"),
            edge("make", "verified"), edge("single", "either"), edge("verified", "either"),
            edge("make", "stubborn"), edge("make", "late"),
            edge("make", "part_one"), edge("part_one", "part_two"),
            edge("make", "soonest"), edge("person", "soonest"),
            on("soonest", "too_late", "${has(nodes.person.outputs.success)}"),
            on("guarded", "too_late", "${nodes.guarded.outputs.success == false}"),
            edge("either", "each"), edge("each", "person"), edge("person", "guarded"),
            edge("begin", "draft"), edge("draft", "publish"), edge("publish", "last"),
            edge("make", "odd"), edge("odd", "last"),
            edge("guarded", "last"), edge("part_two", "last"), edge("stubborn", "last"), edge("late", "last"),
            edge("make", "nap"), edge("nap", "told_before"), edge("told_before", "told_later"), edge("told_later", "last"),
        ],
    })
}

/// Limits that allow exactly the calls that the workflow makes. A call that was counted twice would leave none for another.
pub(super) fn limits() -> Rules {
    let rule = |(tool, count): (&str, u32)| {
        let rule = json!({
            "name": format!("{tool} calls"), "tool": tool, "effect": "limit", "at_most": {"count": count, "per": "1d"},
        });
        serde_json::from_value::<Rule>(rule).expect("a rule")
    };
    Rules([("once", 1), ("checked", 4), ("again", 7)].map(rule).into())
}

/// `stubborn` fails on its first attempt; every other call succeeds.
pub(super) fn script(_tool: &str, key: &str, attempt: u32) -> CallBehavior {
    if key.ends_with(":stubborn") && attempt == 1 { CallBehavior::RefuseBefore } else { CallBehavior::Work }
}

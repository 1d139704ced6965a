//! Limits over time: a limited call is counted before it is made, once, and not beyond its limit.

use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::call::{Sent, ToolError};
use chimera_core::flow::reservation::RESERVATIONS;
use chimera_core::flow::run::{Replay, ReplayMode};
use chimera_core::tool::EffectKind;
use chimera_engine::act::rules::{Rule, Rules};
use chimera_engine::flow::{self, Decision, OutcomeReport, ReplayOptions, StartRun};
use chimera_testkit::flow::{EngineFixture, ScriptedTool, code_of, id_of, stage, workflow};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use uuid::Uuid;

const SILENT: Level = Level::ExecuteSilent;

fn rules(rule: Value) -> Rules {
    Rules(vec![serde_json::from_value::<Rule>(rule).unwrap()])
}

fn at_most(count: u32, by: Value) -> Rules {
    rules(json!({
        "name": "few", "tool": "*", "effect": "allow", "at_most": {"count": count, "per": "1h", "by": by},
    }))
}

/// A run of one call, with its input.
async fn call(stage: &EngineFixture, actor: &str, tool: &str, input: Value) -> Uuid {
    let air = workflow(tool).function("a", tool, json!({"value": "${inputs.value}", "to": "${inputs.to}"}));
    stage.apply(&air).await;
    let ask = StartRun { level: SILENT, ..StartRun::of(air.id(), input) };
    flow::start(&stage.flow, &stage.permit(actor), ask).await.unwrap().run_id
}

fn input(value: impl Into<Value>) -> Value {
    json!({"value": value.into(), "to": "ann"})
}

fn writes(stage: &EngineFixture) -> usize {
    stage.world.outside.sent().len()
}

#[tokio::test(start_paused = true)]
async fn the_call_beyond_the_limit_is_denied_and_says_which_rule_and_until_when() {
    let stage = stage(1).policy(at_most(2, json!("actor"))).open().await;
    for _ in 0..2 {
        let run = call(&stage, "user_ann", "once", input(1)).await;
        assert_eq!(stage.ended(run).await["status"], "completed");
    }
    let run = call(&stage, "user_ann", "once", input(1)).await;
    let ended = stage.ended(run).await;
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("POLICY_DENIED")));
    let message = ended["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("the rule few allows at most 2 calls per 1 h; try again after 20"), "{message}");
    assert_eq!(ended["error"]["details"]["rule"], "few");
    assert_eq!(ended["error"]["details"]["limit"]["used"], 2);
    assert_eq!(writes(&stage), 2);
    // Another actor has its own count.
    let run = call(&stage, "user_bob", "once", input(1)).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    // The window slides.
    tokio::time::advance(Duration::from_secs(3_600)).await;
    let run = call(&stage, "user_ann", "once", input(1)).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

/// The calls of a map are counted in one turn, each once.
#[tokio::test(start_paused = true)]
async fn the_items_of_a_map_are_counted_one_by_one() {
    let stage = stage(1).policy(at_most(3, json!("tenant"))).open().await;
    let air = workflow("w").node(json!({
        "id": "m", "type": "map", "over": "${inputs.list}", "max_parallel": 10,
        "do": {"type": "function", "fn": "once", "inputs": {"n": "${index}"}},
    }));
    let run = stage.run_with(&air, SILENT, json!({"list": [1, 2, 3, 4, 5]})).await;
    let ended = stage.ended(run).await;
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("POLICY_DENIED")));
    assert_eq!(writes(&stage), 3);
    assert_eq!(stage.rows(&RESERVATIONS).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_retry_counts_once() {
    let tries = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&tries);
    let flaky = ScriptedTool::new("flaky", EffectKind::Write).on_execute(move |_, _| {
        let tried = seen.fetch_add(1, Ordering::Relaxed);
        async move {
            match tried {
                0 | 1 => Err(ToolError::not_sent(Code::ExternalServiceUnavailable, "not now")),
                _ => Ok(json!({})),
            }
        }
    });
    let stage = stage(1).tool(flaky.build()).policy(at_most(1, json!("actor"))).open().await;
    let run = call(&stage, "user_ann", "flaky", input(1)).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(tries.load(Ordering::Relaxed), 3);
    let run = call(&stage, "user_ann", "flaky", input(1)).await;
    assert_eq!(stage.ended(run).await["error"]["code"], "POLICY_DENIED");
}

/// A write that failed took no effect. A read may have reached the service however it ended.
#[tokio::test(start_paused = true)]
async fn a_write_that_failed_gives_its_place_back_and_a_read_does_not() {
    for (effect, second) in [(EffectKind::Write, "completed"), (EffectKind::Read, "failed")] {
        let fails = Arc::new(AtomicUsize::new(1));
        let left = Arc::clone(&fails);
        let tool = ScriptedTool::new("tool", effect).on_execute(move |_, _| {
            let fails = left.swap(0, Ordering::Relaxed) > 0;
            async move {
                match fails {
                    true => Err(ToolError::not_sent(Code::ValidationFailed, "never")),
                    false => Ok(json!({})),
                }
            }
        });
        let stage = stage(1).tool(tool.build()).policy(at_most(1, json!("actor"))).open().await;
        let run = call(&stage, "user_ann", "tool", input(1)).await;
        assert_eq!(stage.ended(run).await["error"]["code"], "VALIDATION_FAILED");
        let run = call(&stage, "user_ann", "tool", input(1)).await;
        assert_eq!(stage.ended(run).await["status"], second, "{effect:?}");
    }
}

/// Repeating it is harmless, so the run fails and asks nobody. But the service may have done what it was asked for.
#[tokio::test(start_paused = true)]
async fn a_write_that_failed_perhaps_halfway_keeps_its_place() {
    let halfway = || ToolError { sent: Sent::Answered, ..ToolError::not_sent(Code::ExternalServiceError, "502") };
    let refused = || ToolError::not_sent(Code::ValidationFailed, "never");
    for (second, third) in [(halfway as fn() -> ToolError, false), (refused, false), (refused, true)] {
        let tool = ScriptedTool::new("tool", EffectKind::Write).on_execute(move |ctx, _| async move {
            match (ctx.attempt, third) {
                (1, false) => Err(halfway()),
                _ => Err(second()),
            }
        });
        let stage = stage(1)
            .tool(tool.with_declaration(|d| d.metadata.idempotent = true).build())
            .policy(at_most(1, json!("actor")))
            .open()
            .await;
        let run = call(&stage, "user_ann", "tool", input(1)).await;
        let ended = stage.ended(run).await;
        assert_eq!(ended["error"]["code"], second().body.code, "{ended:#}");
        let run = call(&stage, "user_ann", "tool", input(1)).await;
        let code = stage.ended(run).await["error"]["code"].clone();
        assert_eq!(code, if third { "VALIDATION_FAILED" } else { "POLICY_DENIED" });
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_counts_until_somebody_says_that_it_never_happened() {
    let tool = ScriptedTool::new("tool", EffectKind::Write).on_execute(|ctx, _| async move {
        match ctx.attempt {
            1 => Err(ToolError::maybe_sent(Code::ExternalServiceError, "lost")),
            _ => Ok(json!({})),
        }
    });
    let stage = stage(1).tool(tool.build()).policy(at_most(1, json!("tool"))).open().await;
    let first = call(&stage, "user_ann", "tool", input(1)).await;
    let step = stage.step(first, "a", "outcome_unknown").await;
    let second = call(&stage, "user_bob", "tool", input(1)).await;
    assert_eq!(stage.ended(second).await["error"]["code"], "POLICY_DENIED");
    let report = OutcomeReport::did_not_happen(id_of(&step["step_id"]));
    flow::report_outcome(&stage.flow, &stage.permit("user_ann"), first, report).await.unwrap();
    assert_eq!(stage.ended(first).await["status"], "completed", "it is sent again, in its own place");
    let third = call(&stage, "user_bob", "tool", input(1)).await;
    assert_eq!(stage.ended(third).await["error"]["code"], "POLICY_DENIED");
}

#[tokio::test(start_paused = true)]
async fn beyond_the_limit_a_person_may_let_the_call_pass() {
    let rules = rules(json!({
        "name": "few", "tool": "once", "effect": "allow", "beyond": "ask", "approvers": ["user_cat"],
        "at_most": {"count": 1, "per": "1h"},
    }));
    let stage = stage(1).policy(rules).open().await;
    let run = call(&stage, "user_ann", "once", input(1)).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    let run = call(&stage, "user_ann", "once", input(2)).await;
    let asked = stage.asks(run).await.remove(0);
    assert!(asked.to_string().contains("the rule few allows at most 1 call per 1 h"), "{asked:#}");
    assert_eq!(writes(&stage), 1);
    assert_eq!(code_of(stage.decide("user_bob", run, Decision::Approve, Some(&asked)).await), "RBAC_FORBIDDEN");
    assert_eq!(code_of(stage.decide("user_cat", run, Decision::Approve, Some(&asked)).await), "none");
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(writes(&stage), 2);
    let run = call(&stage, "user_ann", "once", input(3)).await;
    assert_eq!(stage.asks(run).await.len(), 1, "an approved call counts, and the limit stands");
}

#[tokio::test(start_paused = true)]
async fn a_sum_is_exact_and_what_is_no_amount_is_denied() {
    let rules = rules(json!({
        "name": "budget", "tool": "once", "effect": "limit",
        "sum_at_most": {"of": "/value", "limit": "0.3", "per": "24h", "by": ["actor", "/to"]},
    }));
    let stage = stage(1).policy(rules).open().await;
    for amount in [json!(0.1), json!("0.1"), json!(0.1)] {
        let run = call(&stage, "user_ann", "once", input(amount)).await;
        assert_eq!(stage.ended(run).await["status"], "completed", "three tenths are exactly the limit");
    }
    let run = call(&stage, "user_ann", "once", input(json!("0.000001"))).await;
    let error = stage.ended(run).await["error"].clone();
    assert_eq!((&error["code"], &error["details"]["limit"]["used"]), (&json!("POLICY_DENIED"), &json!("0.3")));
    // Another recipient has a sum of its own.
    let run = call(&stage, "user_ann", "once", json!({"value": 0.2, "to": "bob"})).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    for wrong in [json!(null), json!("much"), json!(-1), json!([1])] {
        let run = call(&stage, "user_ann", "once", json!({"value": wrong, "to": "cat"})).await;
        let error = stage.ended(run).await["error"].clone();
        assert_eq!(error["code"], "POLICY_DENIED", "{wrong}: {error}");
        assert!(error["message"].as_str().unwrap().contains("the value at /value of the input is"), "{error}");
    }
    assert_eq!(writes(&stage), 4);
}

/// Each node has runs that it starts at the same time as all others.
async fn race(nodes: &[EngineFixture], runs: usize, tool: &str) -> Vec<Value> {
    let air = workflow(tool).function("a", tool, json!({"value": 1}));
    nodes[0].apply(&air).await;
    let starts = (0..runs).map(|at| {
        let (flow, permit) = (nodes[at % nodes.len()].flow.clone(), nodes[0].permit("user_ann"));
        let ask = StartRun { level: SILENT, ..StartRun::of(tool, json!({})) };
        async move { flow::start(&flow, &permit, ask).await.unwrap().run_id }
    });
    let started = futures::future::join_all(starts).await;
    let mut ended = Vec::new();
    for (at, run) in started.into_iter().enumerate() {
        ended.push(nodes[at % nodes.len()].ended(run).await);
    }
    ended
}

fn completed(ended: &[Value]) -> usize {
    let denied = ended.iter().filter(|run| run["error"]["code"] == "POLICY_DENIED").count();
    let completed = ended.iter().filter(|run| run["status"] == "completed").count();
    assert_eq!(denied + completed, ended.len(), "{ended:#?}");
    completed
}

#[tokio::test(start_paused = true)]
async fn of_fifty_at_once_exactly_as_many_as_allowed_are_made() {
    let stage = stage(1).policy(at_most(3, json!("tool"))).open().await;
    let stages = [stage];
    assert_eq!(completed(&race(&stages, 50, "once").await), 3);
    assert_eq!(writes(&stages[0]), 3);
}

#[tokio::test(start_paused = true)]
async fn of_fifty_at_once_on_two_nodes_exactly_as_many_as_allowed_are_made_and_a_restart_changes_nothing() {
    let first = stage(1).shared().policy(at_most(3, json!("tool"))).open().await;
    let second = stage(1).shared().policy(at_most(3, json!("tool"))).world(first.world.clone());
    let second = second.open_on(Arc::new(first.records.second_node())).await;
    let renewed = [first.renew(), second.renew()];
    let nodes = [first, second];
    assert_eq!(completed(&race(&nodes, 50, "once").await), 3);
    assert_eq!(writes(&nodes[0]), 3);
    renewed.iter().for_each(tokio::task::JoinHandle::abort);
    nodes[1].flow.stop();
    let again = nodes[0].restart(stage(1).policy(at_most(3, json!("tool")))).await;
    let again = [again];
    assert_eq!(completed(&race(&again, 10, "once").await), 0);
    assert_eq!(writes(&again[0]), 3);
}

/// The store is gone while a call is to be counted: it is neither made nor counted before the store is back.
#[tokio::test(start_paused = true)]
async fn a_limited_call_waits_for_the_store_and_is_counted_once() {
    let stage = stage(1).policy(at_most(1, json!("tenant"))).open().await;
    let air = workflow("w").function("a", "once", json!({})).with_node_member("delay_seconds", json!(4));
    let run = stage.run(&air, SILENT).await;
    stage.pass(Duration::from_secs(2)).await;
    stage.records.refuse_reads();
    stage.pass(Duration::from_secs(10)).await;
    assert_eq!(writes(&stage), 0);
    stage.records.clear_faults();
    stage.records.refuse_writes();
    stage.pass(Duration::from_secs(10)).await;
    assert_eq!(writes(&stage), 0);
    stage.records.clear_faults();
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(writes(&stage), 1);
    let run = call(&stage, "user_ann", "once", input(1)).await;
    assert_eq!(stage.ended(run).await["error"]["code"], "POLICY_DENIED");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_limited_reads_nothing_more_and_what_simulates_counts_nothing() {
    let rules = rules(json!({
        "name": "few", "tool": "once", "effect": "allow", "at_most": {"count": 1, "per": "1h"},
    }));
    let stage = stage(1).policy(rules).unkept().open().await;
    stage.apply(&workflow("w").function("a", "again", json!({}))).await;
    stage.records.take_reads();
    let run = stage.start(StartRun { level: SILENT, ..StartRun::of("w", json!({})) }).await;
    stage.ended(run).await;
    assert!(stage.records.take_reads().iter().all(|read| read.table != &RESERVATIONS));
    let air = workflow("v").function("a", "once", json!({"n": 1}));
    stage.apply(&air).await;
    let dry = stage.start(StartRun { level: SILENT, dry_run: true, ..StartRun::of("v", json!({})) }).await;
    stage.ended(dry).await;
    let drafted = stage.start(StartRun { level: Level::Draft, ..StartRun::of("v", json!({})) }).await;
    stage.asks(drafted).await;
    assert!(stage.rows(&RESERVATIONS).is_empty(), "neither a dry run nor a draft counts");
    let run = stage.start(StartRun { level: SILENT, ..StartRun::of("v", json!({})) }).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    for mode in [ReplayMode::Freeze, ReplayMode::Shadow] {
        let replay = Replay { of: run, mode, from: None };
        let replayed =
            flow::replay(&stage.flow, &stage.permit("user_ann"), replay, ReplayOptions::default()).await.unwrap();
        assert_eq!(stage.ended(replayed.run_id).await["status"], "completed", "{mode:?}");
    }
    // An undo is never refused by a limit, and does not free the place of what it undoes.
    flow::rollback(&stage.flow, &stage.permit("user_ann"), run, None, None).await.unwrap();
    stage.status(run, "rolled_back").await;
    let run = stage.start(StartRun { level: SILENT, ..StartRun::of("v", json!({})) }).await;
    assert_eq!(stage.ended(run).await["error"]["code"], "POLICY_DENIED");
}

/// A shadow sends the reads of its run once more. They count like all others.
#[tokio::test(start_paused = true)]
async fn the_reads_that_a_shadow_sends_count_and_are_denied_beyond_the_limit() {
    let fetch = ScriptedTool::new("fetch", EffectKind::Read);
    let asked = fetch.asked();
    let stage = stage(1).tool(fetch.build()).policy(at_most(2, json!("tool"))).open().await;
    let run = call(&stage, "user_ann", "fetch", input(1)).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    let replay = async |mode: ReplayMode| {
        let replay = Replay { of: run, mode, from: None };
        let permit = stage.permit("user_ann");
        let replayed = flow::replay(&stage.flow, &permit, replay, ReplayOptions::default()).await.unwrap();
        stage.ended(replayed.run_id).await
    };
    assert_eq!(replay(ReplayMode::Shadow).await["status"], "completed");
    let beyond = replay(ReplayMode::Shadow).await;
    assert_eq!(beyond["error"]["code"], "POLICY_DENIED", "{beyond:#}");
    assert_eq!(asked.count("execute"), 2);
    assert_eq!(replay(ReplayMode::Freeze).await["status"], "completed", "it sends nothing");
}

/// A pure call reaches nothing outside, and counts all the same. A child run is judged by its own calls.
#[tokio::test(start_paused = true)]
async fn pure_calls_and_the_calls_of_child_runs_count() {
    let stage = stage(1).policy(at_most(2, json!("tenant"))).open().await;
    stage.apply(&workflow("inner").function("x", "pure", json!({}))).await;
    let air = workflow("w").function("a", "pure", json!({})).node(json!({
        "id": "b", "type": "workflow", "workflow_id": "inner", "inputs": {},
    }));
    let run = stage.run(&air, SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    let run = call(&stage, "user_ann", "pure", input(1)).await;
    assert_eq!(stage.ended(run).await["error"]["code"], "POLICY_DENIED");
}

/// Bob's limit holds for what he writes into Ann's run.
#[tokio::test(start_paused = true)]
async fn whoever_edits_a_call_is_counted_too() {
    let rules = rules(json!({
        "name": "bobs", "tool": "once", "actor": "user_bob", "effect": "limit",
        "at_most": {"count": 1, "per": "1h", "by": "actor"},
    }));
    let stage = stage(1).policy(rules).open().await;
    let run = call(&stage, "user_bob", "once", input(1)).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    let run = stage.run(&workflow("w").function("a", "once", json!({"n": 1})), Level::Ask).await;
    let asked = stage.asks(run).await.remove(0);
    let step = id_of(&asked["step_id"]);
    flow::edit_step(&stage.flow, &stage.permit("user_bob"), run, step, json!({"n": "bob"})).await.unwrap();
    let old = asked["digest"].clone();
    stage.until(run, |shown| shown["approvals"][0]["digest"].as_str().is_some_and(|new| new != old)).await;
    let asked = stage.asks(run).await.remove(0);
    assert_eq!(code_of(stage.decide("user_cat", run, Decision::Approve, Some(&asked)).await), "none");
    assert_eq!(stage.ended(run).await["error"]["details"]["rule"], "bobs");
    assert_eq!(writes(&stage), 1);
}

/// Rows in which nothing counts any more are deleted.
#[tokio::test(start_paused = true)]
async fn windows_without_calls_are_deleted() {
    let stage = stage(1).policy(at_most(5, json!("/to"))).open().await;
    for to in ["ann", "bob"] {
        let run = call(&stage, "user_ann", "once", json!({"value": 1, "to": to})).await;
        stage.ended(run).await;
    }
    assert_eq!(stage.rows(&RESERVATIONS).len(), 2);
    stage.pass(Duration::from_secs(3_500)).await;
    assert_eq!(stage.rows(&RESERVATIONS).len(), 2);
    stage.pass(Duration::from_secs(200)).await;
    assert_eq!(stage.rows(&RESERVATIONS).len(), 0);
}

/// The ledger says which limits let a call pass or refused it, and on what they decided.
#[tokio::test(start_paused = true)]
async fn the_ledger_names_the_rules_and_a_digest_of_what_they_had_counted() {
    let stage = stage(1).policy(at_most(1, json!("tenant"))).open().await;
    let allowed = call(&stage, "user_ann", "once", input(1)).await;
    stage.ended(allowed).await;
    let refused = call(&stage, "user_ann", "once", input(1)).await;
    stage.ended(refused).await;
    let entry = async |run: Uuid, kind: &str| {
        let events = flow::events(&stage.flow, &stage.permit("admin"), run, 0, 100).await.unwrap();
        events.into_iter().find(|event| event.event_type == kind).unwrap().data.unwrap().value().unwrap()
    };
    let dispatched = entry(allowed, "step.dispatched").await;
    assert_eq!(dispatched["limits"]["rules"], json!(["few"]));
    let refusal = entry(refused, "step.refused").await["details"].clone();
    assert_eq!((&refusal["rule"], &refusal["limit"]["used"]), (&json!("few"), &json!(1)));
    assert_ne!(dispatched["limits"]["facts_digest"], refusal["facts_digest"]);
    assert!(refusal["facts_digest"].is_string());
}

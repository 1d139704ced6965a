//! The registry decides who is a person, and that is recorded with every act. A name means nothing.

use crate::flow_ask::asks;
use chimera_core::access::tables::APPROVAL_LINKS;
use chimera_core::access::{Actor, ActorEntry, Kind, Level};
use chimera_core::error::Code;
use chimera_core::flow::run::{Signal, SignalKind};
use chimera_core::flow::tables::RUNS;
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::record::{Tx, Update};
use chimera_core::tool::EffectKind;
use chimera_engine::access::Permit;
use chimera_engine::flow::port::ToolError;
use chimera_engine::flow::{self, OutcomeReport, StartRun};
use chimera_engine::port::Records;
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{EngineFixture, ScriptedTool, TENANT, chain, code_of, id_of, stage, workflow};
use serde_json::json;
use std::time::Duration;
use uuid::Uuid;

const SILENT: Level = Level::ExecuteSilent;

/// An actor with its kind from the registry.
fn permit(actor: &str, kind: Kind) -> Permit {
    Permit::for_entry(ActorEntry { kind, scopes: vec!["*".to_owned()], ..ActorEntry::default_for(actor, TENANT) })
}

/// A person with a service's name, and a service with a person's.
fn ceo() -> Permit {
    permit("ceo", Kind::Human)
}

fn bot() -> Permit {
    permit("user_bot", Kind::Service)
}

/// The actors of the entries of a type, with their recorded kind.
fn causes(stage: &EngineFixture, run: Uuid, event: &str) -> Vec<(String, String)> {
    let entries = stage.rows_of(&AUDIT_LOG_ENTRIES, run);
    let of_type = entries.iter().filter(|entry| entry.text("event_type") == event);
    of_type.map(|entry| (entry.text("actor_id").to_owned(), entry.text("actor_type").to_owned())).collect()
}

fn cause(actor: &str, kind: &str) -> Vec<(String, String)> {
    vec![(actor.to_owned(), kind.to_owned())]
}

/// A run that waits for a person at its first node.
async fn waiting(stage: &EngineFixture) -> Uuid {
    let run = stage.run(&workflow("w").node(json!({"id": "ask", "type": "hitl"})), SILENT).await;
    stage.asks(run).await;
    run
}

#[tokio::test(start_paused = true)]
async fn the_pause_of_a_person_is_for_people_whatever_anybody_is_called() {
    let first = stage(1).open().await;
    let run = waiting(&first).await;
    flow::pause(&first.flow, &ceo(), run).await.unwrap();
    first.until(run, |shown| shown["paused"] == true).await;
    assert_eq!(code_of(flow::resume(&first.flow, &bot(), run).await), "RBAC_FORBIDDEN");
    assert_eq!(code_of(flow::pause(&first.flow, &bot(), run).await), "INVALID_TRANSITION");
    assert_eq!(causes(&first, run, "run.paused"), cause("ceo", "human"));

    let second = first.restart(stage(1)).await;
    assert_eq!(code_of(flow::resume(&second.flow, &bot(), run).await), "RBAC_FORBIDDEN", "after a restart too");
    flow::resume(&second.flow, &ceo(), run).await.unwrap();
    second.until(run, |shown| shown["paused"] == false).await;
    assert_eq!(causes(&second, run, "run.resumed"), cause("ceo", "human"));
}

/// A signal accepted before the person's pause is refused by the run itself.
#[tokio::test(start_paused = true)]
async fn a_resume_that_crosses_the_pause_of_a_person_is_refused() {
    let stage = stage(1).open().await;
    let run = waiting(&stage).await;
    let told = [
        SignalKind::Pause { by: ceo().by() },
        SignalKind::Resume { by: bot().by() },
        SignalKind::Pause { by: bot().by() },
    ];
    let signals = told.into_iter().enumerate().map(|(n, told)| Signal::new(Uuid::from_u128(n as u128 + 1), told));
    let rows = signals.map(|signal| signal.row(TENANT, run, stage.world.clock.now()).unwrap()).collect();
    stage.records.commit(Tx { inserts: rows, ..Tx::default() }).await.unwrap();
    stage.until(run, |shown| shown["paused"] == true).await;
    stage.pass(Duration::from_secs(60)).await;
    assert_eq!(causes(&stage, run, "run.resume_refused"), cause("user_bot", "external_node"));
    assert_eq!(causes(&stage, run, "run.pause_refused"), cause("user_bot", "external_node"));
    assert_eq!(
        code_of(flow::resume(&stage.flow, &bot(), run).await),
        "RBAC_FORBIDDEN",
        "the pause is still the person's"
    );
}

#[tokio::test(start_paused = true)]
async fn the_pause_of_a_service_ends_with_a_service() {
    let stage = stage(1).open().await;
    let run = waiting(&stage).await;
    flow::pause(&stage.flow, &bot(), run).await.unwrap();
    stage.until(run, |shown| shown["paused"] == true).await;
    flow::resume(&stage.flow, &permit("user_other_bot", Kind::Service), run).await.unwrap();
    stage.until(run, |shown| shown["paused"] == false).await;
    let row = stage.rows(&RUNS).into_iter().find(|row| row.uuid("id") == run).unwrap();
    assert!(row.get("paused_by").is_null() && row.get("paused_by_kind").is_null());
}

/// Rows from before the pauser was recorded don't name one.
#[tokio::test(start_paused = true)]
async fn a_pause_of_which_nobody_knows_whose_it_was_is_for_people() {
    let first = stage(1).open().await;
    let run = waiting(&first).await;
    first.flow.stop();
    let row = first.rows(&RUNS).into_iter().find(|row| row.uuid("id") == run).unwrap();
    let set = vec![("pause_requested", true.into())];
    let update = Update::versioned(&RUNS, vec![run.into()], row.int("state_version"), set).unwrap();
    first.records.commit(Tx { updates: vec![update], ..Tx::default() }).await.unwrap();
    let second = first.restart(stage(1)).await;
    assert_eq!(code_of(flow::resume(&second.flow, &bot(), run).await), "RBAC_FORBIDDEN");
    flow::resume(&second.flow, &ceo(), run).await.unwrap();
    second.until(run, |shown| shown["paused"] == false).await;
}

#[tokio::test(start_paused = true)]
async fn the_ledger_says_of_everybody_what_the_registry_said() {
    let stage = stage(1)
        .tool(ScriptedTool::new("gated", EffectKind::Write).on_rollback(|_, _| Ok(json!({}))).build())
        .open()
        .await;
    stage.apply(&chain("w", &[("a", "gated")])).await;
    let ask = StartRun { level: SILENT, ..StartRun::of("w", json!({})) };
    let run = flow::start(&stage.flow, &ceo(), ask).await.unwrap().run_id;
    stage.ended(run).await;
    assert_eq!(causes(&stage, run, "run.started"), cause("ceo", "human"));
    flow::rollback(&stage.flow, &bot(), run, None, None).await.unwrap();
    stage.status(run, "rolled_back").await;
    for event in ["run.rollback_started", "run.rolled_back"] {
        assert_eq!(causes(&stage, run, event), cause("user_bot", "external_node"), "{event}");
    }

    let run = waiting(&stage).await;
    flow::cancel(&stage.flow, &ceo(), run, None).await.unwrap();
    stage.ended(run).await;
    for event in ["run.cancel_requested", "run.cancelled"] {
        assert_eq!(causes(&stage, run, event), cause("ceo", "human"), "{event}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_nobody_decided_about_in_time_is_stopped_by_the_system() {
    let stage = stage(1).open().await;
    let hitl = json!({"id": "ask", "type": "hitl", "approval": {"expires_seconds": 60}});
    let run = stage.run(&workflow("w").node(hitl), SILENT).await;
    stage.asks(run).await;
    stage.pass(Duration::from_secs(120)).await;
    stage.ended(run).await;
    assert_eq!(causes(&stage, run, "run.cancel_requested"), cause("system", "system"));
}

/// Whose address it is only the registry says.
#[tokio::test(start_paused = true)]
async fn an_address_that_only_the_run_names_is_sent_no_link() {
    let stage = stage(1).tool(ScriptedTool::new("write", EffectKind::Write).build()).open().await;
    stage.apply(&chain("w", &[("a", "write")])).await;
    for who in [ceo(), bot()] {
        let notify = Some(json!({"email": "them@example.com"}));
        let ask = StartRun { level: Level::Ask, notify, ..StartRun::of("w", json!({})) };
        let run = flow::start(&stage.flow, &who, ask).await.unwrap().run_id;
        stage.asks(run).await;
        let (sent, mails) = (stage.rows_of(&APPROVAL_LINKS, run).len(), asks(&stage, run, "email"));
        assert_eq!((sent, mails.len()), (0, 1), "{}", who.actor());
        assert!(mails[0]["data"]["link"].is_null());
    }
}

/// Reporting that a call never happened causes it to be made: that takes the scopes of its tool.
#[tokio::test(start_paused = true)]
async fn a_call_is_sent_again_only_for_somebody_who_may_make_it() {
    let tool = ScriptedTool::new("lost", EffectKind::Write)
        .with_declaration(|tool| tool.metadata.capabilities = vec!["lost.things.write".to_owned()]);
    let tool = tool.answers(|ctx, _| match ctx.attempt {
        1 => Err(ToolError::maybe_sent(Code::RequestTimeout, "no answer")),
        _ => Ok(json!({})),
    });
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "lost")]), SILENT).await;
    let step = id_of(&stage.step(run, "a", "outcome_unknown").await["step_id"]);
    let scopes = vec!["runs.manage".to_owned()];
    let narrow =
        Permit::for_entry(ActorEntry { kind: Kind::Human, scopes, ..ActorEntry::default_for("user_ann", TENANT) });
    assert_eq!(
        code_of(flow::report_outcome(&stage.flow, &narrow, run, OutcomeReport::did_not_happen(step)).await),
        "RBAC_FORBIDDEN"
    );
    assert_eq!(asked.count("execute"), 1);
    flow::report_outcome(&stage.flow, &ceo(), run, OutcomeReport::did_not_happen(step)).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[test]
fn a_signal_of_an_earlier_version_is_read() {
    let told: SignalKind = serde_json::from_value(json!({"kind": "pause", "by": "user_ann"})).unwrap();
    assert_eq!(told, SignalKind::Pause { by: Actor::person("user_ann") });
}

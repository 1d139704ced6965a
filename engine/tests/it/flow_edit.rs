//! An edit is about one question. Told late, it leaves a newer question as it is.

use chimera_core::access::Level;
use chimera_core::flow::run::{Signal, Told};
use chimera_core::flow::tables::RUN_SIGNALS;
use chimera_core::record::Tx;
use chimera_engine::port::Records;
use chimera_testkit::flow::{Stage, TENANT, chain, id_of, stage};
use serde_json::{Value, json};
use uuid::Uuid;

/// Tells the run something in the way in which another node would, and waits until it has taken it in.
async fn tell(stage: &Stage, run: Uuid, told: Told) {
    let signal = Signal { id: Uuid::from_u128(7), told };
    let row = signal.row(TENANT, run, stage.world.clock.now()).unwrap();
    stage.records.commit(Tx { inserts: vec![row], ..Tx::default() }).await.unwrap();
    stage.until(run, |_| stage.rows(&RUN_SIGNALS).is_empty()).await;
}

/// The question that waits in the place of an older one.
async fn newer(stage: &Stage, run: Uuid, old: &Value) -> Value {
    let replaced = |shown: &Value| {
        let asked = &shown["approvals"][0]["digest"];
        !asked.is_null() && *asked != old["digest"]
    };
    stage.until(run, replaced).await["approvals"][0].clone()
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_an_older_question_does_not_change_the_one_that_waits_now() {
    let stage = stage(1).open().await;
    let run = stage.run(&chain("w", &[("a", "again")]), Level::Ask).await;
    let old = stage.asks(run).await.remove(0);
    let step = id_of(&old["step_id"]);
    stage.flow.edit(&stage.permit("user_ann"), run, step, json!({"n": "newer"})).await.unwrap();
    let new = newer(&stage, run, &old).await;
    let approval = Some(id_of(&old["approval_id"]));
    tell(&stage, run, Told::Edited { step, input: json!({"n": "stale"}), by: "user_bob".into(), approval }).await;
    assert_eq!(stage.asks(run).await, [new], "nobody has looked at anything else");
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(stage.world.outside.sent()[0].input, json!({"n": "newer"}));
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_an_older_plan_does_not_change_the_one_that_waits_now() {
    let stage = stage(1).open().await;
    let run = stage.run(&chain("w", &[("a", "again")]), Level::Draft).await;
    let old = stage.asks(run).await.remove(0);
    stage.flow.edit_planned(&stage.permit("user_ann"), run, "a", json!({"n": "newer"})).await.unwrap();
    let new = newer(&stage, run, &old).await;
    let (node, approval) = ("a".to_owned(), id_of(&old["approval_id"]));
    tell(&stage, run, Told::PlanEdited { node, input: json!({"n": "stale"}), by: "user_bob".into(), approval }).await;
    assert_eq!(stage.asks(run).await, [new], "nobody has looked at anything else");
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(stage.world.outside.sent()[0].input, json!({"n": "newer"}));
}

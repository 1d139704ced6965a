//! A store that fails at the wrong moment: responses from outside are kept, and no run is forgotten.

use chimera_core::access::Level;
use chimera_core::flow::tables::EFFECTS;
use chimera_core::tool::EffectKind;
use chimera_engine::commit::BatchOutcome;
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{ScriptedTool, chain, stage, until};
use chimera_testkit::memory::MemoryRecords;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const SILENT: Level = Level::ExecuteSilent;

#[tokio::test(start_paused = true)]
async fn an_answer_from_outside_is_kept_until_the_store_takes_it() {
    let records = Arc::new(MemoryRecords::new());
    let disk = Arc::clone(&records);
    // Neither idempotent nor checkable: a lost response would be in doubt forever.
    let tool = ScriptedTool::new("mail", EffectKind::Write).answers(move |_, _| {
        disk.refuse_writes();
        Ok(json!({"id": 7}))
    });
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open_on(records).await;
    let run = stage.run(&chain("w", &[("a", "mail")]), SILENT).await;
    until("the mail is sent", || asked.count("execute") == 1).await;
    stage.pass(Duration::from_secs(60)).await;
    stage.records.clear_faults();
    let shown = stage.ended(run).await;
    assert_eq!((&shown["status"], &shown["result"]["a"]["id"]), (&json!("completed"), &json!(7)));
    assert_eq!(stage.rows_of(&EFFECTS, run)[0].text("status"), "succeeded");
    assert_eq!(asked.count("execute"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_turn_the_store_refused_is_found_and_driven_again() {
    let tool = ScriptedTool::new("slow", EffectKind::Read).with_delay(|_| Duration::from_secs(5));
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "slow"), ("b", "again")]), SILENT).await;
    until("the call is sent", || asked.count("execute") == 1).await;
    let mut once = true;
    stage.records.inject_batch_fault(Box::new(move |batch| {
        let refuse = !batch.txs.is_empty() && std::mem::take(&mut once);
        refuse.then(|| BatchOutcome::Refused("a rule of the database".to_owned()))
    }));
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(stage.world.outside.sent().len(), 1);
}

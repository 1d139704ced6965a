//! Checks the final state of a simulation.

use super::node::SimulationContext;
use crate::memory::MemoryRecords;
use chimera_core::flow::run::RunStatus;
use chimera_core::flow::tables::{EFFECTS, RUN_PATCHES, RUN_SIGNALS, RUNS, SCOPED_APPROVALS, STEPS};
use chimera_core::record::Row;
use std::collections::BTreeMap;

/// Runs that have not ended, and signals that were not consumed.
pub(super) fn unfinished_work(disk: &MemoryRecords) -> Vec<String> {
    let open = |row: &Row| {
        let ended = RunStatus::parse(row.text("status")).is_some_and(RunStatus::is_final);
        !ended || !row.get("owner_lane").is_null() || !row.get("next_deadline").is_null()
    };
    let runs =
        disk.rows(&RUNS).into_iter().filter(open).map(|row| {
            format!("run {} of {} is stuck: {}", row.uuid("id"), row.text("workflow_id"), row.text("status"))
        });
    let signals = disk.rows(&RUN_SIGNALS);
    let signals =
        signals.iter().map(|row| format!("run {} never consumed signal {}", row.uuid("run_id"), row.text("kind")));
    runs.chain(signals).collect()
}

/// Number of runs by status.
pub(super) fn count_by_status(disk: &MemoryRecords) -> BTreeMap<String, usize> {
    let mut ends = BTreeMap::new();
    for row in disk.rows(&RUNS) {
        *ends.entry(row.text("status").to_owned()).or_default() += 1;
    }
    ends
}

/// Reports every inconsistency between steps, effects, patches, approvals, the outside and the ledger.
pub(super) async fn check(disk: &MemoryRecords, ground: &SimulationContext) {
    let fault = |what: String| ground.judge.report_violation(what);
    let runs: BTreeMap<_, _> = disk.rows(&RUNS).into_iter().map(|row| (row.uuid("id"), row)).collect();
    let steps: BTreeMap<_, _> = disk.rows(&STEPS).into_iter().map(|row| (row.uuid("id"), row)).collect();
    for step in steps.values() {
        let settled = ["completed", "failed", "skipped", "cancelled", "rolled_back"].contains(&step.text("status"));
        if !settled {
            fault(format!(
                "step {} of {} is {} at the end",
                step.text("node_id"),
                step.uuid("run_id"),
                step.text("status")
            ));
        }
    }
    for effect in disk.rows(&EFFECTS) {
        let (status, key) = (effect.text("status"), effect.text("idempotency_key"));
        if status == "dispatched" {
            fault(format!("effect {key} is dispatched at the end"));
        }
        if effect.text("kind") == "compensation" {
            continue;
        }
        let step = steps.get(&effect.uuid("step_id")).map_or("gone", |step| step.text("status"));
        if ["completed", "rolled_back"].contains(&step) && status != "succeeded" {
            fault(format!("effect {key} is {status}, but its step is {step}"));
        }
        let stands = ground.outside.find(effect.text("tool"), key).is_some();
        let run = runs.get(&effect.uuid("run_id")).map_or("gone", |run| run.text("status"));
        if stands && status == "failed" {
            fault(format!("effect {key} exists outside, but is {status}"));
        }
        if stands && run == "rolled_back" {
            fault(format!("effect {key} exists outside, but its run is {run} and its step is {step}"));
        }
    }
    for row in disk.rows(&RUN_PATCHES) {
        if row.text("status") == "proposed" {
            fault(format!("patch {} of {} is proposed at the end", row.int("number"), row.uuid("run_id")));
        }
    }
    for row in disk.rows(&SCOPED_APPROVALS) {
        if row.text("status") == "pending" {
            fault(format!("an approval of {} is pending at the end", row.uuid("run_id")));
        }
    }
    match chimera_engine::audit::verify(disk, &[]).await {
        Ok(report) if report.first_fault.is_none() => {}
        other => fault(format!("the ledger is broken: {other:?}")),
    }
}

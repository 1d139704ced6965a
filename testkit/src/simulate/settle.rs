//! Checks the final state of a simulation.

use super::node::SimulationContext;
use crate::memory::MemoryRecords;
use chimera_core::flow::run::{EffectStatus, RunStatus, StepStatus};
use chimera_core::flow::status::{EffectPurpose, PatchStatus, RequestStatus};
use chimera_core::flow::tables::EventWaitRow;
use chimera_core::flow::tables::{ApprovalRow, EffectRow, PatchRow, RunBrief, SignalBrief, StepBrief};
use std::collections::BTreeMap;

/// Runs that have not ended, and signals that were not consumed.
pub(super) fn unfinished_work(disk: &MemoryRecords) -> Vec<String> {
    let open = |row: &RunBrief| !row.status.is_final() || row.owner_lane.is_some() || row.next_deadline.is_some();
    let runs = disk.list::<RunBrief>().into_iter().filter(open).map(|row| {
        let workflow = row.workflow_id.unwrap_or_default();
        format!("run {} of {workflow} is stuck: {}", row.id, row.status.as_str())
    });
    let signals = disk.list::<SignalBrief>().into_iter();
    let signals = signals.map(|row| format!("run {} never consumed signal {}", row.run_id, row.kind));
    runs.chain(signals).collect()
}

/// Number of runs by status.
pub(super) fn count_by_status(disk: &MemoryRecords) -> BTreeMap<String, usize> {
    let mut ends = BTreeMap::new();
    for row in disk.list::<RunBrief>() {
        *ends.entry(row.status.as_str().to_owned()).or_default() += 1;
    }
    ends
}

/// Reports every inconsistency between steps, effects, patches, approvals, the outside and the ledger.
pub(super) async fn check(disk: &MemoryRecords, ground: &SimulationContext) {
    let fault = |what: String| ground.judge.report_violation(what);
    let runs: BTreeMap<_, _> = disk.list::<RunBrief>().into_iter().map(|row| (row.id, row)).collect();
    let steps: BTreeMap<_, _> = disk.list::<StepBrief>().into_iter().map(|row| (row.id, row)).collect();
    for step in steps.values() {
        if !is_settled(step.status) {
            fault(format!("step {} of {} is {} at the end", step.node_id, step.run_id, step.status.as_str()));
        }
    }
    for effect in disk.list::<EffectRow>() {
        let step = steps.get(&effect.step_id).map(|step| step.status);
        let run = runs.get(&effect.run_id).map(|run| run.status);
        check_effect(&effect, step, run, ground);
    }
    for row in disk.list::<PatchRow>() {
        if row.status == PatchStatus::Proposed {
            fault(format!("patch {} of {} is proposed at the end", row.number, row.run_id));
        }
    }
    for row in disk.list::<ApprovalRow>() {
        if row.status == RequestStatus::Pending {
            fault(format!("an approval of {:?} is pending at the end", row.run_id));
        }
    }
    for row in disk.list::<EventWaitRow>() {
        fault(format!("a step of {} waits for {} at the end", row.run_id, row.event_key));
    }
    match chimera_engine::audit::verify(disk, &[]).await {
        Ok(report) if report.first_fault.is_none() => {}
        other => fault(format!("the ledger is broken: {other:?}")),
    }
}

/// Compares an effect with the outside, its step and its run.
fn check_effect(effect: &EffectRow, step: Option<StepStatus>, run: Option<RunStatus>, ground: &SimulationContext) {
    let fault = |what: String| ground.judge.report_violation(what);
    let (status, key) = (effect.status, &effect.idempotency_key);
    if status == EffectStatus::Dispatched {
        fault(format!("effect {key} is dispatched at the end"));
    }
    if effect.kind == EffectPurpose::Compensation {
        return;
    }
    let step_name = step.map_or("gone", StepStatus::as_str);
    if matches!(step, Some(StepStatus::Completed | StepStatus::RolledBack)) && status != EffectStatus::Succeeded {
        fault(format!("effect {key} is {}, but its step is {step_name}", status.as_str()));
    }
    let stands = ground.outside.find(&effect.tool, key).is_some();
    if stands && status == EffectStatus::Failed {
        fault(format!("effect {key} exists outside, but is {}", status.as_str()));
    }
    if stands && run == Some(RunStatus::RolledBack) {
        fault(format!("effect {key} exists outside, but its run is rolled_back and its step is {step_name}"));
    }
}

/// Whether a step has ended, and can only be rolled back.
pub(super) const fn is_settled(status: StepStatus) -> bool {
    matches!(
        status,
        StepStatus::Completed
            | StepStatus::Failed
            | StepStatus::Skipped
            | StepStatus::Cancelled
            | StepStatus::RolledBack
    )
}

//! Commands from people and systems: random ones in the fault phase, then whatever is needed for every run to end.

use super::workflow;
use crate::flow::{ExternalSystem, full_permit};
use crate::memory::MemoryRecords;
use crate::seeded::Seeded;
use chimera_core::flow::run::{SignalKind, StepStatus};
use chimera_core::flow::status::RequestStatus;
use chimera_core::flow::tables::EventWaitRow;
use chimera_core::flow::tables::{ApprovalRow, RunRow, SignalRow, StepRow};
use chimera_engine::EngineError;
use chimera_engine::access::Permit;
use chimera_engine::flow::{self, Decide, Decision, Flow, OutcomeReport, PatchRequest, PublishEvent};
use serde_json::json;
use std::collections::BTreeSet;
use uuid::Uuid;

/// A permit for everything in tenant `acme`.
#[must_use]
pub fn actor(name: &str) -> Permit {
    full_permit("acme", name)
}

/// A command to a run.
#[derive(Clone, Debug)]
pub enum UserCommand {
    Decide(Decide),
    Cancel(Uuid),
    Pause(Uuid),
    Resume(Uuid),
    /// Report the outcome of an effect.
    Resolve(Uuid, OutcomeReport),
    Rollback(Uuid),
    Patch(Uuid, serde_json::Value),
    /// Revert the first patch of a run.
    Unpatch(Uuid),
    /// Edit the input of a step that awaits approval: run, step.
    Edit(Uuid, Uuid),
    /// Edit a step of a plan that awaits approval: run, node.
    EditPlan(Uuid, String),
    /// Publish an event: key, id.
    Publish(String, Option<String>),
}

impl UserCommand {
    /// Sends it to an engine.
    pub async fn send(self, flow: &Flow) -> Result<(), EngineError> {
        let ann = actor("user_ann");
        match self {
            Self::Decide(decide) => flow::decide(flow, &ann, decide).await.map(drop),
            Self::Cancel(run) => flow::cancel(flow, &ann, run, None).await,
            Self::Pause(run) => flow::pause(flow, &ann, run).await,
            Self::Resume(run) => flow::resume(flow, &ann, run).await,
            Self::Resolve(run, found) => flow::report_outcome(flow, &ann, run, found).await,
            Self::Rollback(run) => flow::rollback(flow, &ann, run, None, None).await,
            Self::Patch(run, patch) => flow::patch(flow, &ann, PatchRequest::new(run, patch)).await.map(drop),
            Self::Unpatch(run) => flow::withdraw_patch(flow, &ann, run, 1).await,
            Self::Edit(run, step) => flow::edit_step(flow, &ann, run, step, json!({"n": "edited"})).await,
            Self::EditPlan(run, node) => flow::edit_planned(flow, &ann, run, &node, json!({"n": "edited"})).await,
            Self::Publish(key, event_id) => {
                let (name, payload) = (workflow::EVENT.to_owned(), json!({"key": key}));
                let event = PublishEvent { name, key, payload, event_id, ttl_seconds: None };
                flow::publish_event(flow, &actor("agent_bell"), event).await.map(drop)
            }
        }
    }
}

/// A random command to an existing run.
#[must_use]
pub fn random_command(dice: &Seeded, disk: &MemoryRecords, outside: &ExternalSystem) -> Option<UserCommand> {
    let runs = disk.list::<RunRow>();
    let run = pick_row(dice, &runs)?.id;
    let number = dice.below(1_000);
    match dice.below(16) {
        0 => Some(UserCommand::Cancel(run)),
        1 => Some(UserCommand::Pause(run)),
        2 => Some(UserCommand::Resume(run)),
        3 => Some(UserCommand::Rollback(run)),
        4 => Some(UserCommand::Patch(run, workflow::patch(dice, number))),
        5 => Some(UserCommand::Unpatch(run)),
        6 => {
            let waiting = steps_with(disk, StepStatus::AwaitingApproval);
            let step = pick_row(dice, &waiting).map(|step| UserCommand::Edit(step.run_id, step.id));
            step.or_else(|| edit_plan(dice, disk))
        }
        7 | 8 => {
            let unknown = steps_with(disk, StepStatus::OutcomeUnknown);
            pick_row(dice, &unknown).map(|step| resolve(step, outside))
        }
        14 | 15 => {
            let key = *dice.pick(&workflow::KEYS);
            // The same id belongs to the same event.
            let id = (dice.below(2) == 0).then(|| format!("{key}-{}", dice.below(3)));
            Some(UserCommand::Publish(key.to_owned(), id))
        }
        9 => {
            let pending = pending_requests(disk);
            let says = *dice.pick(&[Decision::Reject, Decision::RequestChanges]);
            pick_row(dice, &pending).map(|row| decide(row, says))
        }
        _ => {
            let pending = pending_requests(disk);
            pick_row(dice, &pending).map(|row| decide(row, Decision::Approve))
        }
    }
}

/// An edit of a random pending plan.
fn edit_plan(dice: &Seeded, disk: &MemoryRecords) -> Option<UserCommand> {
    let mut plans = pending_requests(disk);
    plans.retain(|row| row.action_type == "plan");
    let row = pick_row(dice, &plans)?;
    let data = row.action_data.value().expect("a document");
    let lines = data["plan"]["steps"].as_array()?;
    let nodes: Vec<&str> =
        lines.iter().filter(|line| line["tool"].is_string()).filter_map(|l| l["node"].as_str()).collect();
    (!nodes.is_empty()).then(|| UserCommand::EditPlan(run_of(row), (*dice.pick(&nodes)).to_owned()))
}

/// Approves everything pending, reports every unknown outcome, sends what is waited for, and resumes every paused run.
#[must_use]
pub fn answers(disk: &MemoryRecords, outside: &ExternalSystem) -> Vec<UserCommand> {
    let pending = pending_requests(disk);
    let unknown = steps_with(disk, StepStatus::OutcomeUnknown);
    let paused = disk.list::<RunRow>().into_iter().filter(|row| row.pause_requested && row.completed_at.is_none());
    pending
        .iter()
        .map(|row| decide(row, Decision::Approve))
        .chain(unknown.iter().map(|step| resolve(step, outside)))
        .chain(awaited_keys(disk).into_iter().map(|key| UserCommand::Publish(key, None)))
        .chain(paused.map(|row| UserCommand::Resume(row.id)))
        .collect()
}

/// Everything that was done, undone.
#[must_use]
pub fn regrets(disk: &MemoryRecords) -> Vec<UserCommand> {
    let outer = disk.list::<RunRow>().into_iter().filter(|row| row.parent_run_id.is_none());
    outer.map(|row| UserCommand::Rollback(row.id)).collect()
}

/// A signal that is there already, told once more.
#[must_use]
pub fn duplicate_signal(dice: &Seeded, disk: &MemoryRecords) -> Option<(Uuid, SignalKind)> {
    // A patch signal is inserted together with its row, so it has no duplicate.
    let mut rows = disk.list::<SignalRow>();
    rows.retain(|row| row.kind != "patch");
    let row = pick_row(dice, &rows)?;
    Some((row.run_id, row.payload.decode().ok()?))
}

fn pick_row<'a, R>(dice: &Seeded, rows: &'a [R]) -> Option<&'a R> {
    (!rows.is_empty()).then(|| dice.pick(rows))
}

fn steps_with(disk: &MemoryRecords, status: StepStatus) -> Vec<StepRow> {
    disk.list::<StepRow>().into_iter().filter(|row| row.status == status).collect()
}

/// The keys of the events that steps wait for.
fn awaited_keys(disk: &MemoryRecords) -> BTreeSet<String> {
    disk.list::<EventWaitRow>().into_iter().map(|row| row.event_key).collect()
}

fn pending_requests(disk: &MemoryRecords) -> Vec<ApprovalRow> {
    disk.list::<ApprovalRow>().into_iter().filter(|row| row.status == RequestStatus::Pending).collect()
}

fn run_of(request: &ApprovalRow) -> Uuid {
    request.run_id.expect("the request of a run")
}

fn decide(row: &ApprovalRow, decision: Decision) -> UserCommand {
    let approval = Some(row.approval_request_id);
    UserCommand::Decide(Decide { run: run_of(row), decision, approval, step: None, digest: None, reason: None })
}

/// Reports whether the effect exists outside.
fn resolve(step: &StepRow, outside: &ExternalSystem) -> UserCommand {
    let run = step.run_id;
    let item = step.map_index.map(|item| format!("[{item}]")).unwrap_or_default();
    let key = format!("{}:{}{item}", run.simple(), step.node_id);
    let happened = outside.find(step.tool.as_deref().unwrap_or_default(), &key).is_some();
    let attempt = Some(step.attempt);
    let output = happened.then(|| json!({"found": true}));
    UserCommand::Resolve(run, OutcomeReport { step: step.id, attempt, happened, output, notes: None })
}

//! Commands from people and systems: random ones in the fault phase, then whatever is needed for every run to end.

use super::workflow;
use crate::flow::{ExternalSystem, full_permit};
use crate::memory::MemoryRecords;
use crate::seeded::Seeded;
use chimera_core::flow::run::SignalKind;
use chimera_core::flow::tables::{RUN_SIGNALS, RUNS, SCOPED_APPROVALS, STEPS};
use chimera_core::record::{Row, Value as Cell};
use chimera_engine::EngineError;
use chimera_engine::access::Permit;
use chimera_engine::flow::{Decide, Decision, Flow, OutcomeReport};
use serde_json::json;
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
}

impl UserCommand {
    /// Sends it to an engine.
    pub async fn send(self, flow: &Flow) -> Result<(), EngineError> {
        let ann = actor("user_ann");
        match self {
            Self::Decide(decide) => flow.decide(&ann, decide).await.map(drop),
            Self::Cancel(run) => flow.cancel(&ann, run, None).await,
            Self::Pause(run) => flow.pause(&ann, run).await,
            Self::Resume(run) => flow.resume(&ann, run).await,
            Self::Resolve(run, found) => flow.report_outcome(&ann, run, found).await,
            Self::Rollback(run) => flow.rollback(&ann, run, None, None).await,
            Self::Patch(run, patch) => flow.patch(&ann, run, patch, None, false).await.map(drop),
            Self::Unpatch(run) => flow.unpatch(&ann, run, 1).await,
            Self::Edit(run, step) => flow.edit(&ann, run, step, json!({"n": "edited"})).await,
            Self::EditPlan(run, node) => flow.edit_planned(&ann, run, &node, json!({"n": "edited"})).await,
        }
    }
}

/// A random command to an existing run.
#[must_use]
pub fn random_command(dice: &Seeded, disk: &MemoryRecords, outside: &ExternalSystem) -> Option<UserCommand> {
    let runs = disk.rows(&RUNS);
    let run = pick_row(dice, &runs)?.uuid("id");
    let number = dice.below(1_000);
    match dice.below(14) {
        0 => Some(UserCommand::Cancel(run)),
        1 => Some(UserCommand::Pause(run)),
        2 => Some(UserCommand::Resume(run)),
        3 => Some(UserCommand::Rollback(run)),
        4 => Some(UserCommand::Patch(run, workflow::patch(dice, number))),
        5 => Some(UserCommand::Unpatch(run)),
        6 => {
            let waiting: Vec<Row> = filter_rows(disk.rows(&STEPS), "status", "awaiting_approval");
            let step = pick_row(dice, &waiting).map(|step| UserCommand::Edit(step.uuid("run_id"), step.uuid("id")));
            step.or_else(|| edit_plan(dice, disk))
        }
        7 | 8 => {
            let unknown: Vec<Row> = filter_rows(disk.rows(&STEPS), "status", "outcome_unknown");
            pick_row(dice, &unknown).map(|step| resolve(step, outside))
        }
        9 => {
            let pending = filter_rows(disk.rows(&SCOPED_APPROVALS), "status", "pending");
            let says = *dice.pick(&[Decision::Reject, Decision::RequestChanges]);
            pick_row(dice, &pending).map(|row| decide(row, says))
        }
        _ => {
            let pending = filter_rows(disk.rows(&SCOPED_APPROVALS), "status", "pending");
            pick_row(dice, &pending).map(|row| decide(row, Decision::Approve))
        }
    }
}

/// An edit of a random pending plan.
fn edit_plan(dice: &Seeded, disk: &MemoryRecords) -> Option<UserCommand> {
    let plans = filter_rows(filter_rows(disk.rows(&SCOPED_APPROVALS), "status", "pending"), "action_type", "plan");
    let row = pick_row(dice, &plans)?;
    let data = row.get("action_data").as_json()?.to_value();
    let lines = data["plan"]["steps"].as_array()?;
    let nodes: Vec<&str> =
        lines.iter().filter(|line| line["tool"].is_string()).filter_map(|l| l["node"].as_str()).collect();
    (!nodes.is_empty()).then(|| UserCommand::EditPlan(row.uuid("run_id"), (*dice.pick(&nodes)).to_owned()))
}

/// Approves everything pending, reports every unknown outcome, and resumes every paused run.
#[must_use]
pub fn answers(disk: &MemoryRecords, outside: &ExternalSystem) -> Vec<UserCommand> {
    let pending = filter_rows(disk.rows(&SCOPED_APPROVALS), "status", "pending");
    let unknown = filter_rows(disk.rows(&STEPS), "status", "outcome_unknown");
    let paused = disk
        .rows(&RUNS)
        .into_iter()
        .filter(|row| row.get("pause_requested") == &Cell::Bool(true) && row.get("completed_at").is_null());
    pending
        .iter()
        .map(|row| decide(row, Decision::Approve))
        .chain(unknown.iter().map(|step| resolve(step, outside)))
        .chain(paused.map(|row| UserCommand::Resume(row.uuid("id"))))
        .collect()
}

/// Everything that was done, undone.
#[must_use]
pub fn regrets(disk: &MemoryRecords) -> Vec<UserCommand> {
    let outer = disk.rows(&RUNS).into_iter().filter(|row| row.get("parent_run_id").is_null());
    outer.map(|row| UserCommand::Rollback(row.uuid("id"))).collect()
}

/// A signal that is there already, told once more.
#[must_use]
pub fn duplicate_signal(dice: &Seeded, disk: &MemoryRecords) -> Option<(Uuid, SignalKind)> {
    // A patch signal is inserted together with its row, so it has no duplicate.
    let rows: Vec<Row> = disk.rows(&RUN_SIGNALS).into_iter().filter(|row| row.text("kind") != "patch").collect();
    let row = pick_row(dice, &rows)?;
    let told = serde_json::from_value(row.get("payload").as_json()?.to_value()).ok()?;
    Some((row.uuid("run_id"), told))
}

fn pick_row<'a>(dice: &Seeded, rows: &'a [Row]) -> Option<&'a Row> {
    (!rows.is_empty()).then(|| dice.pick(rows))
}

fn filter_rows(rows: Vec<Row>, column: &str, word: &str) -> Vec<Row> {
    rows.into_iter().filter(|row| row.text(column) == word).collect()
}

fn decide(row: &Row, decision: Decision) -> UserCommand {
    let approval = Some(row.uuid("approval_request_id"));
    UserCommand::Decide(Decide { run: row.uuid("run_id"), decision, approval, step: None, digest: None, reason: None })
}

/// Reports whether the effect exists outside.
fn resolve(step: &Row, outside: &ExternalSystem) -> UserCommand {
    let run = step.uuid("run_id");
    let item = step.get("map_index").as_int().map(|item| format!("[{item}]")).unwrap_or_default();
    let key = format!("{}:{}{item}", run.simple(), step.text("node_id"));
    let happened = outside.find(step.text("tool"), &key).is_some();
    let attempt = u32::try_from(step.int("attempt")).ok();
    let output = happened.then(|| json!({"found": true}));
    UserCommand::Resolve(run, OutcomeReport { step: step.uuid("id"), attempt, happened, output, notes: None })
}

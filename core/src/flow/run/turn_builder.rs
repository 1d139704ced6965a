//! Collects what a turn writes.
//!
//! State changes only mark places as dirty; their rows are written once, at the end of the turn. The
//! hot path of a pure step is one run update, one step, one tool call and one ledger entry.

use super::approval_rows::ApprovalRequested;
use super::env::Env;
use super::event::{Effect, GovernanceDecision, LedgerNote, Signal, SignalKind};
use super::merge::merge;
use super::task::{StoredEffect, Task};
use super::unknown_outcome::UnknownOutcome;
use super::{EffectStatus, RunHead, RunPlace, RunStatus};
use crate::access::Actor;
use crate::flow::call::{Sent, ToolError};
use crate::flow::tables::{CACHE_ENTRIES, EFFECTS, RUN_SIGNALS, RUNS, TOOL_CALLS};
use crate::id;
use crate::record::{Comparison, Condition, Insert, Json, RowCount, Step, Tx, Unstorable, Update, Value};
use crate::time::Timestamp;
use crate::tool::{EffectKind, Spec, is_dry_run};
use std::collections::BTreeSet;
use uuid::Uuid;

/// What one turn has collected so far.
#[derive(Default)]
pub(crate) struct TurnBuilder {
    pub(crate) dirty: BTreeSet<RunPlace>,
    /// Places whose undo was sent or has ended.
    pub(crate) undoing: BTreeSet<RunPlace>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) requested: Vec<ApprovalRequested>,
    /// Calls whose outcome became unknown in this turn.
    pub(crate) unknown_outcomes: Vec<UnknownOutcome>,
    /// Places whose outcome is known again.
    pub(crate) settled: BTreeSet<RunPlace>,
    pub(crate) more: bool,
    pub(crate) ended: bool,
    /// The run gets a new owner, even if nothing else changes.
    pub(crate) claim: bool,
    pub(crate) status: Option<RunStatus>,
    /// The duration of the call whose answer is being applied.
    pub(crate) took_ms: i64,
    notes: Vec<LedgerNote>,
    inserts: Vec<Insert>,
    updates: Vec<Update>,
    steps: Vec<Step>,
    run: Vec<(&'static str, Value)>,
    consumed: BTreeSet<Uuid>,
}

impl TurnBuilder {
    /// The number of rows so far.
    pub(crate) fn row_count(&self) -> usize {
        let places = self.dirty.len() + self.undoing.len();
        self.inserts.len() + self.updates.len() + self.steps.len() + places + self.notes.len()
    }

    /// Adds a ledger entry. Returns its number within this turn, from one.
    pub(crate) fn add_note(
        &mut self,
        event_type: &'static str,
        step: Option<Uuid>,
        by: Option<Actor>,
        data: serde_json::Value,
    ) -> i64 {
        self.notes.push(LedgerNote { event_type, step, by, run_seq: 0, data, verdict: None });
        i64::try_from(self.notes.len()).unwrap_or(i64::MAX)
    }

    /// Adds a ledger entry for a governance decision.
    pub(crate) fn add_decision(
        &mut self,
        event_type: &'static str,
        step: Option<Uuid>,
        by: Option<Actor>,
        data: serde_json::Value,
        verdict: GovernanceDecision,
    ) {
        self.notes.push(LedgerNote { event_type, step, by, run_seq: 0, data, verdict: Some(verdict) });
    }

    /// Sets a column of the run.
    pub(crate) fn set_run_column(&mut self, column: &'static str, value: impl Into<Value>) {
        let value = value.into();
        self.run.retain(|(name, _)| *name != column);
        self.run.push((column, value));
    }

    /// Whether anything durable changed.
    pub(crate) fn has_rows(&self) -> bool {
        self.row_count() > 0 || !self.run.is_empty() || self.status.is_some() || self.ended
    }

    /// Assigns the entries their sequence numbers. Returns the entries and the last number.
    pub(crate) fn number_notes(&mut self, after: i64) -> (Vec<LedgerNote>, i64) {
        let mut notes = std::mem::take(&mut self.notes);
        let mut number = after;
        for note in &mut notes {
            number += 1;
            note.run_seq = number;
        }
        (notes, number)
    }

    /// Takes the columns of the run that were set.
    pub(crate) fn take_run(&mut self) -> Vec<(&'static str, Value)> {
        std::mem::take(&mut self.run)
    }

    /// The transaction, without the ledger entries.
    pub(crate) fn tx(&mut self, affinity: u64) -> Tx {
        let mut inserts = std::mem::take(&mut self.inserts);
        let updates = merge(&mut inserts, std::mem::take(&mut self.updates));
        Tx { inserts, updates, steps: std::mem::take(&mut self.steps), affinity, ..Tx::default() }
    }

    pub(crate) fn insert(&mut self, insert: Insert) {
        self.inserts.push(insert);
    }

    pub(crate) fn update(&mut self, update: Update) {
        self.updates.push(update);
    }

    /// Deletes a signal's row. False if this turn has already done so.
    pub(crate) fn consume_signal(&mut self, run: Uuid, signal: Uuid) -> bool {
        let fresh = self.consumed.insert(signal);
        if fresh {
            let is = |column, value: Uuid| Condition { column, compare: Comparison::Is, value: value.into() };
            let conditions = vec![is("run_id", run), is("id", signal)];
            self.steps.push(Step::Delete { table: &RUN_SIGNALS, conditions, rows: RowCount::Exactly(1) });
        }
        fresh
    }

    /// Sends a signal to another run.
    pub(crate) fn send_signal(
        &mut self,
        tenant: &str,
        run: Uuid,
        told: &SignalKind,
        env: &mut Env<'_>,
    ) -> Result<(), Unstorable> {
        let signal = Signal::new((env.ids)(), told.clone());
        self.inserts.push(signal.row(tenant, run, env.now)?);
        Ok(())
    }

    /// Writes an effect before its call is made, or updates its row. Returns its id.
    #[expect(clippy::too_many_arguments, reason = "the columns of one row")]
    pub(crate) fn write_effect(
        &mut self,
        head: &RunHead,
        task: &mut Task,
        key: &str,
        tool: &str,
        status: EffectStatus,
        deadline: Timestamp,
        now: Timestamp,
    ) -> Result<Uuid, Unstorable> {
        // Resends don't count here. The step's row counts all attempts, so the difference survives a crash.
        let attempt = i64::from(task.attempt.saturating_sub(task.resends));
        if let Some(effect) = &mut task.effect {
            let set = vec![
                ("status", status.as_str().into()),
                ("attempt", attempt.into()),
                ("deadline", deadline.into()),
                ("dispatched_at", now.into()),
                ("settled_at", Value::Null),
            ];
            self.update(Update::versioned(&EFFECTS, vec![effect.id.into()], effect.version, set)?);
            effect.version += 1;
            (effect.status, effect.since_restore) = (status, true);
            return Ok(effect.id);
        }
        let id = id::effect(head.id, key);
        self.inserts.push(Insert::new(
            &EFFECTS,
            vec![
                ("id", id.into()),
                ("tenant_id", head.tenant.as_str().into()),
                ("run_id", head.id.into()),
                ("step_id", task.step.map(|step| step.id).into()),
                ("tool", tool.into()),
                ("status", status.as_str().into()),
                ("idempotency_key", key.into()),
                ("attempt", attempt.into()),
                ("deadline", deadline.into()),
                ("input_digest", Value::Bytes(task.input_digest().to_vec())),
                ("created_at", now.into()),
                ("dispatched_at", now.into()),
                ("state_version", 1.into()),
            ],
        )?);
        task.effect = Some(StoredEffect { id, version: 1, status, since_restore: true });
        Ok(id)
    }

    /// Settles an effect as succeeded, failed or unknown.
    pub(crate) fn settle_effect(
        &mut self,
        task: &mut Task,
        status: EffectStatus,
        now: Timestamp,
    ) -> Result<(), Unstorable> {
        let Some(effect) = &mut task.effect else { return Ok(()) };
        if effect.status == status && effect.since_restore {
            return Ok(());
        }
        let set = vec![("status", status.as_str().into()), ("settled_at", now.into())];
        self.update(Update::versioned(&EFFECTS, vec![effect.id.into()], effect.version, set)?);
        effect.version += 1;
        (effect.status, effect.since_restore) = (status, true);
        Ok(())
    }

    /// Records a call with external effects before it is made.
    #[expect(clippy::too_many_arguments, reason = "the columns of one row")]
    pub(crate) fn record_call_start(
        &mut self,
        head: &RunHead,
        call: Uuid,
        step: Uuid,
        effect: Uuid,
        key: &str,
        attempt: u32,
        spec: &Spec,
        input: &serde_json::Value,
        now: Timestamp,
    ) -> Result<(), Unstorable> {
        self.inserts.push(Insert::new(
            &TOOL_CALLS,
            vec![
                ("id", call.into()),
                ("step_id", step.into()),
                ("tool_name", spec.name.as_str().into()),
                ("tool_input", Json::encode(input)?.into()),
                ("dry_run", is_dry_run(input).into()),
                ("idempotency_key", key.into()),
                ("created_at", now.into()),
                ("actor", head.actor.as_str().into()),
                ("tenant_id", head.tenant.as_str().into()),
                ("run_id", head.id.into()),
                ("effect_id", effect.into()),
                ("attempt", i64::from(attempt).into()),
            ],
        )?);
        Ok(())
    }

    /// Records the end of a call: updates its row, or writes it if the call was pure.
    #[expect(clippy::too_many_arguments, reason = "the columns of one row")]
    pub(crate) fn record_call_end(
        &mut self,
        head: &RunHead,
        task: Option<&Task>,
        call: Uuid,
        step: Uuid,
        spec: &Spec,
        ended: Result<Json, &ToolError>,
        now: Timestamp,
    ) -> Result<(), Unstorable> {
        let outcome = match ended {
            Ok(_) => "succeeded",
            Err(error) if error.sent == Sent::Maybe => "unknown",
            Err(_) => "failed",
        };
        let mut cells =
            vec![("outcome", outcome.into()), ("duration_ms", self.took_ms.into()), ("completed_at", now.into())];
        match ended {
            Ok(output) => cells.push(("tool_output", output.into())),
            Err(error) => {
                cells.push(("error", error.body.message.as_str().into()));
                cells.push(("error_data", Json::encode(&*error.body)?.into()));
            }
        }
        if spec.effect != EffectKind::Pure {
            self.update(Update::new(&TOOL_CALLS, vec![call.into()], Vec::new(), cells)?);
            return Ok(());
        }
        let Some(input) = task.and_then(|task| task.input.as_deref()) else { return Ok(()) };
        cells.extend([
            ("id", call.into()),
            ("step_id", step.into()),
            ("tool_name", spec.name.as_str().into()),
            ("tool_input", Json::encode(input)?.into()),
            ("dry_run", is_dry_run(input).into()),
            ("created_at", now.into()),
            ("actor", head.actor.as_str().into()),
            ("tenant_id", head.tenant.as_str().into()),
            ("run_id", head.id.into()),
            ("attempt", i64::from(task.map_or(1, |task| task.attempt)).into()),
        ]);
        self.inserts.push(Insert::new(&TOOL_CALLS, cells)?);
        Ok(())
    }

    /// Records a call that was replaced by a recorded, cached, checked or resolved output.
    #[expect(clippy::too_many_arguments, reason = "the columns of one row")]
    pub(crate) fn record_replaced_call(
        &mut self,
        head: &RunHead,
        task: Option<&Task>,
        call: Uuid,
        step: Uuid,
        spec: &Spec,
        output: Json,
        how: &str,
        now: Timestamp,
    ) -> Result<(), Unstorable> {
        let input = task.and_then(|task| task.input.as_deref()).cloned().unwrap_or_default();
        self.inserts.push(Insert::new(
            &TOOL_CALLS,
            vec![
                ("id", call.into()),
                ("step_id", step.into()),
                ("tool_name", spec.name.as_str().into()),
                ("tool_input", Json::encode(&input)?.into()),
                ("tool_output", output.into()),
                ("dry_run", is_dry_run(&input).into()),
                ("created_at", now.into()),
                ("actor", head.actor.as_str().into()),
                ("tenant_id", head.tenant.as_str().into()),
                ("run_id", head.id.into()),
                ("attempt", i64::from(task.map_or(0, |task| task.attempt)).into()),
                ("outcome", how.into()),
                ("completed_at", now.into()),
            ],
        )?);
        Ok(())
    }

    /// Adds a child run. It has no owner, because it may belong to another lane than its parent. Its
    /// deadline is now, so that it is claimed at once.
    pub(crate) fn add_child_run(&mut self, head: &RunHead) -> Result<(), Unstorable> {
        let mut cells = head.cells()?;
        cells.extend([("status", RunStatus::Pending.as_str().into()), ("state_version", 1.into())]);
        cells.push(("next_deadline", head.created_at.into()));
        self.inserts.push(Insert::new(&RUNS, cells)?);
        Ok(())
    }

    /// Caches an output, replacing the previous one under this key.
    pub(crate) fn cache_output(
        &mut self,
        head: &RunHead,
        key: String,
        tool_version: &str,
        output: Json,
        expires_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(), Unstorable> {
        let is = |column, value: &str| Condition { column, compare: Comparison::Is, value: value.into() };
        let conditions =
            vec![is("tenant_id", &head.tenant), is("workflow_id", &head.workflow.id), is("cache_key", &key)];
        self.steps.push(Step::Delete { table: &CACHE_ENTRIES, conditions, rows: RowCount::AtMost(1) });
        self.steps.push(Step::Insert(Insert::new(
            &CACHE_ENTRIES,
            vec![
                ("tenant_id", head.tenant.as_str().into()),
                ("workflow_id", head.workflow.id.as_str().into()),
                ("cache_key", key.into()),
                ("tool_version", tool_version.into()),
                ("output", output.into()),
                ("run_id", head.id.into()),
                ("created_at", now.into()),
                ("expires_at", expires_at.into()),
            ],
        )?));
        Ok(())
    }
}

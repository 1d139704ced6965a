//! Collects what a turn writes.
//!
//! State changes only mark places as dirty; their rows are written once, at the end of the turn. The
//! hot path of a pure step is one run update, one step, one tool call and one ledger entry.

use super::approval_rows::ApprovalRequested;
use super::consult::TurnLimits;
use super::doubts::UnknownOutcome;
use super::env::Env;
use super::event::{Call, Effect, GovernanceDecision, LedgerNote, Signal, SignalKind};
use super::merge::merge;
use super::tasks::task::Task;
use super::{EffectStatus, RunHead, RunPlace, RunStatus};
use crate::access::Actor;
use crate::flow::approval::{ApprovalRequest, RequestStatus};
use crate::flow::call::{Sent, ToolError};
use crate::flow::event::rows::{EventChannel, NewWait, end_of_wait};
use crate::flow::tables::{
    APPROVAL_REQUESTS, CACHE_ENTRIES, EFFECTS, RUN_SIGNALS, RUNS, TOOL_CALLS, approval_requests, cache_entries,
    effects, run_signals, runs, tool_calls,
};
use crate::id;
use crate::record::{Comparison, Condition, Insert, Json, RowCount, Step, Tx, Unstorable, Update, Value};
use crate::time::Timestamp;
use crate::tool::{EffectKind, Spec, is_dry_run};
use std::collections::BTreeSet;
use uuid::Uuid;

/// The turn under construction: its environment, and what it has collected so far.
pub(crate) struct TurnContext<'e> {
    /// Time, ids, slots and the rules.
    pub(crate) env: Env<'e>,
    pub(crate) turn: TurnBuilder,
    pub(crate) limits: TurnLimits,
}

impl<'e> TurnContext<'e> {
    /// A turn that continues after the ledger entry with this sequence number.
    pub(crate) fn new(env: &'e mut Env<'_>, seq: i64) -> Self {
        let Env { now, ids, gate, policy, catalog, projection, jobs, windows, owner } = env;
        let (now, owner) = (*now, *owner);
        let (policy, catalog, projection, jobs, windows) = (*policy, *catalog, *projection, *jobs, *windows);
        let env = Env { now, ids: &mut **ids, gate: &mut **gate, policy, catalog, projection, jobs, windows, owner };
        Self { env, turn: TurnBuilder { seq, ..TurnBuilder::default() }, limits: TurnLimits::default() }
    }
}

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
    /// The sequence number of the run's last ledger entry before this turn.
    seq: i64,
    /// The duration of the call whose answer is being applied.
    pub(crate) took_ms: i64,
    notes: Vec<LedgerNote>,
    rows: TurnRows,
    /// Signals whose rows this turn deletes.
    consumed: BTreeSet<Uuid>,
}

/// The rows of a turn so far.
#[derive(Default)]
struct TurnRows {
    inserts: Vec<Insert>,
    updates: Vec<Update>,
    steps: Vec<Step>,
    /// The columns of the run's row.
    run: Vec<(&'static str, Value)>,
    /// Places whose error a projection has already recorded.
    logged: BTreeSet<RunPlace>,
    /// Places whose work this turn hands to somebody else.
    handed_over: BTreeSet<RunPlace>,
}

/// The row of an effect whose call is about to be made.
pub(crate) struct EffectRecord<'a> {
    pub(crate) key: &'a str,
    pub(crate) tool: &'a str,
    pub(crate) status: EffectStatus,
    pub(crate) deadline: Timestamp,
    pub(crate) at: Timestamp,
}

/// How a call ended.
pub(crate) struct EndedCall<'a> {
    pub(crate) call: Uuid,
    pub(crate) step: Uuid,
    pub(crate) spec: &'a Spec,
    pub(crate) ended: Result<Json, &'a ToolError>,
    pub(crate) at: Timestamp,
}

/// A call that was replaced by a recorded, cached, checked or resolved output.
pub(crate) struct ReplacedCall<'a> {
    pub(crate) call: Uuid,
    pub(crate) step: Uuid,
    pub(crate) tool: &'a str,
    pub(crate) output: Json,
    pub(crate) how: &'a str,
    pub(crate) at: Timestamp,
}

/// An output to keep for later runs of the workflow.
pub(crate) struct CacheEntry<'a> {
    pub(crate) key: String,
    pub(crate) tool_version: &'a str,
    pub(crate) output: Json,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) at: Timestamp,
}

impl TurnBuilder {
    /// The number of rows so far.
    pub(crate) fn row_count(&self) -> usize {
        let places = self.dirty.len() + self.undoing.len();
        self.rows.inserts.len() + self.rows.updates.len() + self.rows.steps.len() + places + self.notes.len()
    }

    /// Adds a ledger entry. Returns its sequence number within the run.
    pub(crate) fn add_note(
        &mut self,
        event_type: &'static str,
        step: Option<Uuid>,
        by: Option<Actor>,
        data: serde_json::Value,
    ) -> i64 {
        self.notes.push(LedgerNote { event_type, step, by, run_seq: 0, data, verdict: None });
        self.last_seq()
    }

    /// Adds a ledger entry for a governance decision.
    pub(crate) fn add_decision(
        &mut self,
        event_type: &'static str,
        step: Option<Uuid>,
        data: serde_json::Value,
        verdict: GovernanceDecision,
    ) {
        self.add_note(event_type, step, None, data);
        self.mark_decision(verdict);
    }

    /// The last ledger entry is a governance decision.
    pub(crate) fn mark_decision(&mut self, verdict: GovernanceDecision) {
        if let Some(note) = self.notes.last_mut() {
            note.verdict = Some(verdict);
        }
    }

    /// Sets a column of the run.
    pub(crate) fn set_run_column(&mut self, column: &'static str, value: impl Into<Value>) {
        let value = value.into();
        self.rows.run.retain(|(name, _)| *name != column);
        self.rows.run.push((column, value));
    }

    /// Whether anything durable changed.
    pub(crate) fn has_rows(&self) -> bool {
        self.row_count() > 0 || !self.rows.run.is_empty() || self.status.is_some() || self.ended
    }

    /// The sequence number of the last ledger entry.
    pub(crate) fn last_seq(&self) -> i64 {
        self.seq.saturating_add(i64::try_from(self.notes.len()).unwrap_or(i64::MAX))
    }

    /// Takes the entries, with their sequence numbers.
    pub(crate) fn number_notes(&mut self) -> Vec<LedgerNote> {
        let (mut notes, mut number) = (std::mem::take(&mut self.notes), self.seq);
        self.seq = number.saturating_add(i64::try_from(notes.len()).unwrap_or(i64::MAX));
        for note in &mut notes {
            number += 1;
            note.run_seq = number;
        }
        notes
    }

    /// Takes the columns of the run that were set.
    pub(crate) fn take_run(&mut self) -> Vec<(&'static str, Value)> {
        std::mem::take(&mut self.rows.run)
    }

    /// The transaction, without the ledger entries.
    pub(crate) fn tx(&mut self, affinity: u64) -> Tx {
        let mut inserts = std::mem::take(&mut self.rows.inserts);
        let updates = merge(&mut inserts, std::mem::take(&mut self.rows.updates));
        Tx { inserts, updates, steps: std::mem::take(&mut self.rows.steps), affinity, ..Tx::default() }
    }

    pub(crate) fn insert(&mut self, insert: Insert) {
        self.rows.inserts.push(insert);
    }

    /// Adds statements that run in order, after the inserts and updates.
    pub(crate) fn add_steps(&mut self, steps: Vec<Step>) {
        self.rows.steps.extend(steps);
    }

    pub(crate) fn update(&mut self, update: Update) {
        self.rows.updates.push(update);
    }

    /// A projection has recorded the error of a place.
    pub(crate) fn mark_logged(&mut self, at: RunPlace) {
        self.rows.logged.insert(at);
    }

    pub(crate) fn is_logged(&self, at: RunPlace) -> bool {
        self.rows.logged.contains(&at)
    }

    /// This turn asks somebody else to do the work of a place.
    pub(crate) fn mark_handed_over(&mut self, at: RunPlace) {
        self.rows.handed_over.insert(at);
    }

    pub(crate) fn is_handed_over(&self, at: RunPlace) -> bool {
        self.rows.handed_over.contains(&at)
    }

    /// Adds a statement that runs after the bulk part.
    pub(crate) fn add_ordered(&mut self, step: Step) {
        self.rows.steps.push(step);
    }

    /// Closes a pending request without a decision.
    pub(crate) fn close_approval_request(
        &mut self,
        asked: &ApprovalRequest,
        status: RequestStatus,
        now: Timestamp,
    ) -> Result<(), Unstorable> {
        if !asked.is_pending() {
            return Ok(());
        }
        let set =
            vec![(approval_requests::status, status.as_str().into()), (approval_requests::reviewed_at, now.into())];
        let expect = vec![(approval_requests::status, RequestStatus::Pending.as_str().into())];
        self.update(Update::new(&APPROVAL_REQUESTS, vec![asked.id.into()], expect, set)?);
        Ok(())
    }

    /// Deletes a signal's row. False if this turn has already done so.
    pub(crate) fn consume_signal(&mut self, run: Uuid, signal: Uuid) -> bool {
        let fresh = self.consumed.insert(signal);
        if fresh {
            let is = |column, value: Uuid| Condition { column, compare: Comparison::Is, value: value.into() };
            let conditions = vec![is(run_signals::run_id, run), is(run_signals::id, signal)];
            self.rows.steps.push(Step::Delete { table: &RUN_SIGNALS, conditions, rows: RowCount::Exactly(1) });
        }
        fresh
    }

    /// A step begins to wait for an event.
    pub(crate) fn begin_wait(&mut self, channel: EventChannel<'_>, wait: NewWait) -> Result<(), Unstorable> {
        self.rows.inserts.push(channel.wait_row(wait)?);
        self.rows.steps.extend(channel.mark(wait)?);
        Ok(())
    }

    /// A step no longer waits for an event.
    pub(crate) fn end_wait(&mut self, step: Uuid) {
        self.rows.steps.push(end_of_wait(step));
    }

    /// Sends a signal to another run.
    pub(crate) fn send_signal(
        &mut self,
        tenant: &str,
        run: Uuid,
        kind: &SignalKind,
        env: &mut Env<'_>,
    ) -> Result<(), Unstorable> {
        let signal = Signal::new((env.ids)(), kind.clone());
        self.rows.inserts.push(signal.row(tenant, run, env.now)?);
        Ok(())
    }

    /// Writes an effect before its call is made, or updates its row. Returns its id.
    pub(crate) fn write_effect(
        &mut self,
        head: &RunHead,
        task: &mut Task,
        effect: EffectRecord<'_>,
    ) -> Result<Uuid, Unstorable> {
        let EffectRecord { key, tool, status, deadline, at: now } = effect;
        // Resends don't count here. The step's row counts all attempts, so the difference survives a crash.
        let attempt = i64::from(task.tries());
        if let Some(effect) = task.effect() {
            let set = vec![
                (effects::status, status.as_str().into()),
                (effects::attempt, attempt.into()),
                (effects::deadline, deadline.into()),
                (effects::dispatched_at, now.into()),
                (effects::settled_at, Value::Null),
            ];
            self.update(Update::versioned(&EFFECTS, vec![effect.id.into()], effect.version, set)?);
            task.effect_written(effect.id, status);
            return Ok(effect.id);
        }
        let id = id::effect(head.id, key);
        self.rows.inserts.push(Insert::new(
            &EFFECTS,
            vec![
                (effects::id, id.into()),
                (effects::tenant_id, head.tenant.as_str().into()),
                (effects::run_id, head.id.into()),
                (effects::step_id, task.step().map(|step| step.id).into()),
                (effects::tool, tool.into()),
                (effects::status, status.as_str().into()),
                (effects::idempotency_key, key.into()),
                (effects::attempt, attempt.into()),
                (effects::deadline, deadline.into()),
                (effects::input_digest, Value::Bytes(task.input_digest().to_vec())),
                (effects::created_at, now.into()),
                (effects::dispatched_at, now.into()),
                (effects::state_version, 1.into()),
            ],
        )?);
        task.effect_written(id, status);
        Ok(id)
    }

    /// Settles an effect as succeeded, failed or unknown.
    pub(crate) fn settle_effect(
        &mut self,
        task: &mut Task,
        status: EffectStatus,
        now: Timestamp,
    ) -> Result<(), Unstorable> {
        let Some(effect) = task.effect() else { return Ok(()) };
        if effect.status == status && effect.since_restore {
            return Ok(());
        }
        let set = vec![(effects::status, status.as_str().into()), (effects::settled_at, now.into())];
        self.update(Update::versioned(&EFFECTS, vec![effect.id.into()], effect.version, set)?);
        task.effect_written(effect.id, status);
        Ok(())
    }

    /// Records a call with external effects before it is made.
    pub(crate) fn record_call_start(&mut self, head: &RunHead, call: &Call, now: Timestamp) -> Result<(), Unstorable> {
        self.rows.inserts.push(Insert::new(
            &TOOL_CALLS,
            vec![
                (tool_calls::id, call.id.into()),
                (tool_calls::step_id, call.step.into()),
                (tool_calls::tool_name, call.tool.name.as_str().into()),
                (tool_calls::tool_input, Json::encode(&*call.input)?.into()),
                (tool_calls::dry_run, is_dry_run(&call.input).into()),
                (tool_calls::idempotency_key, call.key.as_str().into()),
                (tool_calls::created_at, now.into()),
                (tool_calls::actor, head.actor.as_str().into()),
                (tool_calls::tenant_id, head.tenant.as_str().into()),
                (tool_calls::run_id, head.id.into()),
                (tool_calls::effect_id, call.effect.into()),
                (tool_calls::attempt, i64::from(call.attempt).into()),
            ],
        )?);
        Ok(())
    }

    /// Records the end of a call: updates its row, or writes it if the call was pure.
    pub(crate) fn record_call_end(
        &mut self,
        head: &RunHead,
        task: Option<&Task>,
        end: EndedCall<'_>,
    ) -> Result<(), Unstorable> {
        let EndedCall { call, step, spec, ended, at: now } = end;
        let outcome = match ended {
            Ok(_) => "succeeded",
            Err(error) if error.sent == Sent::Maybe => "unknown",
            Err(_) => "failed",
        };
        let mut cells = vec![
            (tool_calls::outcome, outcome.into()),
            // A call may take longer than the column holds: 24 days.
            (tool_calls::duration_ms, i32::try_from(self.took_ms.max(0)).unwrap_or(i32::MAX).into()),
            (tool_calls::completed_at, now.into()),
        ];
        match ended {
            Ok(output) => cells.push((tool_calls::tool_output, output.into())),
            Err(error) => {
                cells.push((tool_calls::error, error.body.message.as_str().into()));
                cells.push((tool_calls::error_data, Json::encode(&*error.body)?.into()));
            }
        }
        if spec.effect != EffectKind::Pure {
            self.update(Update::new(&TOOL_CALLS, vec![call.into()], Vec::new(), cells)?);
            return Ok(());
        }
        let Some(input) = task.and_then(Task::input) else { return Ok(()) };
        cells.extend([
            (tool_calls::id, call.into()),
            (tool_calls::step_id, step.into()),
            (tool_calls::tool_name, spec.name.as_str().into()),
            (tool_calls::tool_input, Json::encode(input)?.into()),
            (tool_calls::dry_run, is_dry_run(input).into()),
            (tool_calls::created_at, now.into()),
            (tool_calls::actor, head.actor.as_str().into()),
            (tool_calls::tenant_id, head.tenant.as_str().into()),
            (tool_calls::run_id, head.id.into()),
            (tool_calls::attempt, i64::from(task.map_or(1, Task::attempt)).into()),
        ]);
        self.rows.inserts.push(Insert::new(&TOOL_CALLS, cells)?);
        Ok(())
    }

    /// Records a call that was replaced by a recorded, cached, checked or resolved output.
    pub(crate) fn record_replaced_call(
        &mut self,
        head: &RunHead,
        task: Option<&Task>,
        replaced: ReplacedCall<'_>,
    ) -> Result<(), Unstorable> {
        let ReplacedCall { call, step, tool, output, how, at: now } = replaced;
        let input = task.and_then(Task::input).cloned().unwrap_or_default();
        self.rows.inserts.push(Insert::new(
            &TOOL_CALLS,
            vec![
                (tool_calls::id, call.into()),
                (tool_calls::step_id, step.into()),
                (tool_calls::tool_name, tool.into()),
                (tool_calls::tool_input, Json::encode(&input)?.into()),
                (tool_calls::tool_output, output.into()),
                (tool_calls::dry_run, is_dry_run(&input).into()),
                (tool_calls::created_at, now.into()),
                (tool_calls::actor, head.actor.as_str().into()),
                (tool_calls::tenant_id, head.tenant.as_str().into()),
                (tool_calls::run_id, head.id.into()),
                (tool_calls::attempt, i64::from(task.map_or(0, Task::attempt)).into()),
                (tool_calls::outcome, how.into()),
                (tool_calls::completed_at, now.into()),
            ],
        )?);
        Ok(())
    }

    /// Adds a child run. It has no owner, because it may belong to another lane than its parent. Its
    /// deadline is now, so that it is claimed at once.
    pub(crate) fn add_child_run(&mut self, head: &RunHead) -> Result<(), Unstorable> {
        let mut cells = head.cells()?;
        cells.extend([(runs::status, RunStatus::Pending.as_str().into()), (runs::state_version, 1.into())]);
        cells.push((runs::next_deadline, head.created_at.into()));
        self.rows.inserts.push(Insert::new(&RUNS, cells)?);
        Ok(())
    }

    /// Caches an output, replacing the previous one under this key.
    pub(crate) fn cache_output(&mut self, head: &RunHead, entry: CacheEntry<'_>) -> Result<(), Unstorable> {
        let CacheEntry { key, tool_version, output, expires_at, at: now } = entry;
        let is = |column, value: &str| Condition { column, compare: Comparison::Is, value: value.into() };
        let conditions = vec![
            is(cache_entries::tenant_id, &head.tenant),
            is(cache_entries::workflow_id, &head.workflow.id),
            is(cache_entries::cache_key, &key),
        ];
        self.rows.steps.push(Step::Delete { table: &CACHE_ENTRIES, conditions, rows: RowCount::AtMost(1) });
        self.rows.steps.push(Step::Insert(Insert::new(
            &CACHE_ENTRIES,
            vec![
                (cache_entries::tenant_id, head.tenant.as_str().into()),
                (cache_entries::workflow_id, head.workflow.id.as_str().into()),
                (cache_entries::cache_key, key.into()),
                (cache_entries::tool_version, tool_version.into()),
                (cache_entries::output, output.into()),
                (cache_entries::run_id, head.id.into()),
                (cache_entries::created_at, now.into()),
                (cache_entries::expires_at, expires_at.into()),
            ],
        )?));
        Ok(())
    }
}

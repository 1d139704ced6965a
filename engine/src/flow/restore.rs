//! Resuming after a restore: surveys what may have happened since the backup, and flags every affected run.
//!
//! A restored store knows nothing of what its runs did after the backup. Every run with work left is flagged with the
//! time of the restore. From then on it sends nothing that changes something before somebody has confirmed that it was
//! not sent already. The store accepts changes again with the last of these transactions, so an interrupted resume
//! starts over.

use super::{Flow, load};
use crate::access::Permit;
use crate::error::EngineError;
use crate::ledger::audit::{EventRecord, Writer};
use crate::offload::CostFlag;
use crate::port::{Hold, Records};
use crate::rows;
use chimera_core::access::tables::{TOKEN_FAMILIES, TokenFamilyRow, token_families};
use chimera_core::flow::run::{EffectStatus, Signal, UncertainStep};
use chimera_core::flow::status::{NotificationStatus, RequestStatus};
use chimera_core::flow::tables::{
    EffectRow, NotificationId, RUN_SIGNALS, RUNS, RequestBrief, RunBrief, SignalRow, StepBrief, WORK_ITEMS,
    WorkItemState, effects, notifications, run_signals, runs, scoped_approvals, steps, work_items,
};
use chimera_core::flow::work::WorkState;
use chimera_core::json::Digest32;
use chimera_core::ledger::tables::{LaneRow, STORE_STATE, StoreStateRow, store_state};
use chimera_core::limits;
use chimera_core::record::{
    Comparison, Condition, Row, RowCount, Scope, Step, StoredRow, Tx, Unstorable, Update, Value,
};
use chimera_core::time::Timestamp;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// The tenant of the store's own ledger entries.
const SYSTEM_TENANT: &str = "system";

/// A pending signal that no longer applies after a restore. Its sender could not know what happened after the backup,
/// so it is dropped and has to be sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedSignal {
    /// The kind of signal.
    pub kind: &'static str,
    pub by: String,
}

/// A run with work left, or with signals that no longer apply.
#[derive(Clone, Debug, PartialEq)]
pub struct RestoredRun {
    pub id: Uuid,
    pub tenant: String,
    pub workflow: String,
    /// The requester.
    pub actor: String,
    pub status: String,
    /// Steps with side effects and without a recorded outcome.
    pub unsure: Vec<UncertainStep>,
    /// Calls that were in flight.
    pub under_way: usize,
    /// Pending approval requests.
    pub approvals: usize,
    /// The next timer.
    pub due: Option<Timestamp>,
    pub rolling_back: bool,
    /// Signals that are dropped.
    pub lapsed: Vec<DroppedSignal>,
    /// Why it could not be inspected; it is flagged all the same.
    pub unreadable: Option<String>,
    version: i64,
    run_seq: i64,
    owned: bool,
    /// Workers have its calls, or may get them.
    has_open_work: bool,
    /// The latest time in its effects and steps.
    latest: Timestamp,
}

/// What may have happened since the backup.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RestoreSurvey {
    /// Runs with work left.
    pub runs: Vec<RestoredRun>,
    /// Queued messages.
    pub messages: usize,
    /// Valid sign-ins.
    pub sign_ins: usize,
}

/// How to resume.
#[derive(Clone, Debug, PartialEq)]
pub struct ResumeOptions<'a> {
    pub hold: &'a Hold,
    /// Revoke every sign-in: revocations after the backup are unknown.
    pub end_sign_ins: bool,
}

/// Collects everything that has work left.
pub async fn survey_restored(flow: &Flow) -> Result<RestoreSurvey, EngineError> {
    let records = &*flow.inner.parts.records;
    let mut found = runs_with_work_left(flow).await?;
    let mut lapsed = dropped_signals(records).await?;
    found.extend(lapsed.keys());
    let mut survey = RestoreSurvey::default();
    for run in found {
        // Nothing is driven while the store is held, so the row still exists.
        let Some(row) = load::run_row(records, run).await? else { continue };
        survey.runs.push(inspect_run(flow, row, lapsed.remove(&run).unwrap_or_default()).await?);
    }
    let pending = NotificationId::select(Scope::System).with(notifications::status, NotificationStatus::Pending);
    survey.messages = rows::count(records, pending).await?;
    let open = TokenFamilyRow::select(Scope::System).with(token_families::revoked_at, Value::Null);
    let open = open.filter(token_families::expires_at, Comparison::Above, flow.inner.parts.clock.now());
    survey.sign_ins = rows::count(records, open).await?;
    Ok(survey)
}

async fn runs_with_work_left(flow: &Flow) -> Result<BTreeSet<Uuid>, EngineError> {
    let mut found = BTreeSet::new();
    let all = || RunBrief::select(Scope::System);
    for select in [
        all().with(runs::completed_at, Value::Null),
        all().filter(runs::owner_lane, Comparison::AtLeast, 0),
        all().filter(runs::next_deadline, Comparison::AtLeast, Timestamp::from_micros(0)),
    ] {
        rows::each(&*flow.inner.parts.records, select, |row: RunBrief| {
            if !row.status.is_final() || load::is_rolling_back(&row)? {
                found.insert(row.id);
            }
            Ok(())
        })
        .await?;
    }
    Ok(found)
}

async fn inspect_run(flow: &Flow, row: Row, lapsed: Vec<DroppedSignal>) -> Result<RestoredRun, EngineError> {
    let records = &*flow.inner.parts.records;
    let brief = RunBrief::peek(&row)?;
    let id = brief.id;
    let effects = EffectRow::select(Scope::System).with(effects::run_id, id);
    let effects: Vec<EffectRow> = rows::list(records, effects, limits::RUN_ROWS_MAX).await?;
    let steps = StepBrief::select(Scope::System).with(steps::run_id, id);
    let steps: Vec<StepBrief> = rows::list(records, steps, limits::RUN_ROWS_MAX).await?;
    let pending = RequestBrief::select(Scope::System).with(scoped_approvals::run_id, id);
    let pending = pending.with(scoped_approvals::status, RequestStatus::Pending);
    let written = |row: &EffectRow| [Some(row.created_at), row.dispatched_at, row.settled_at].into_iter().max()?;
    let started = steps.iter().filter_map(|step| step.started_at);
    let latest = effects.iter().filter_map(written).chain(started).max();
    let rolling_back = load::is_rolling_back(&brief)?;
    let mut run = RestoredRun {
        id,
        tenant: brief.tenant_id,
        workflow: brief.workflow_id.unwrap_or_default(),
        actor: brief.actor,
        status: brief.status.as_str().to_owned(),
        unsure: Vec::new(),
        under_way: effects.iter().filter(|effect| effect.status == EffectStatus::Dispatched).count(),
        approvals: rows::count(records, pending).await?,
        due: brief.next_deadline,
        rolling_back,
        lapsed,
        unreadable: None,
        version: brief.state_version,
        run_seq: brief.run_seq,
        owned: brief.owner_lane.is_some(),
        has_open_work: has_open_work(records, id).await?,
        latest: latest.unwrap_or(Timestamp::from_micros(0)),
    };
    match load::load(records, &flow.inner.workflows, row, &CostFlag::default()).await {
        Ok(loaded) => {
            run.unsure = loaded.uncertain_steps();
            // A run that waits only briefly keeps its owner, and its row has no deadline.
            run.due = run.due.or_else(|| loaded.next_timer());
        }
        Err(EngineError::Read(error)) => return Err(error.into()),
        Err(error) => run.unreadable = Some(error.to_string()),
    }
    Ok(run)
}

/// Flags every run of `survey` as restored, and lets the store accept changes again. Returns the number of revoked
/// sign-ins.
pub async fn resume_store(
    flow: &Flow,
    permit: &Permit,
    survey: &RestoreSurvey,
    resume: &ResumeOptions<'_>,
) -> Result<usize, EngineError> {
    let records = &*flow.inner.parts.records;
    let now = flow.inner.parts.clock.now();
    for runs in survey.runs.chunks(limits::RESTORE_RUNS_PER_TX_MAX) {
        let mut tx = Tx::default();
        for run in runs {
            tx.updates.push(flag_restored(run, now).map_err(Unstorable::from)?);
            tx.steps.extend(delete_signals(run));
            tx.steps.extend(withdraw_work(run, now)?);
            let unsure = run.unsure.iter().map(|step| json!({"node": step.node, "tool": step.tool})).collect();
            let mut data = json!({
                "under_way": run.under_way, "rolling_back": run.rolling_back, "dropped": counted(&run.lapsed),
            });
            add_list(&mut data, "unsure", unsure);
            let event = permit.event(run.id, "run.restored", data).of_run(run.id);
            let (tenant_id, run_seq) = (run.tenant.clone(), Some(run.run_seq + 1));
            writer(flow).event(&mut tx, EventRecord { tenant_id, run_seq, ..event })?;
        }
        records.commit(tx).await?;
    }
    let mut tx = Tx::default();
    let ended = if resume.end_sign_ins { survey.sign_ins } else { 0 };
    if resume.end_sign_ins {
        tx.steps.push(end_sign_ins(now)?);
    }
    let generation = next_generation(records, now).await?;
    tx.steps.push(release_hold(generation)?);
    let mut data = json!({
        "reason": resume.hold.reason, "held_since": resume.hold.since.to_string(), "runs": survey.runs.len(),
        "sign_ins_ended": ended, "messages": survey.messages, "generation": generation,
    });
    add_list(&mut data, "lanes", lanes(records).await?);
    let event = permit.event("store", "store.resumed", data);
    writer(flow).event(&mut tx, EventRecord { tenant_id: SYSTEM_TENANT.to_owned(), ..event })?;
    records.commit(tx).await?;
    Ok(ended)
}

fn writer(flow: &Flow) -> Writer<'_> {
    Writer { random: &*flow.inner.parts.random, clock: &*flow.inner.parts.clock }
}

/// Adds a list to the bounded data of a ledger entry: truncated, with its length and digest.
fn add_list(data: &mut serde_json::Value, name: &str, all: Vec<serde_json::Value>) {
    data[format!("{name}_count")] = json!(all.len());
    if all.len() > limits::RESTORE_LISTED_MAX {
        data[format!("{name}_digest")] = json!(Digest32::of(&json!(all)).to_string());
    }
    data[name] = all.into_iter().take(limits::RESTORE_LISTED_MAX).collect();
}

/// Flags the run as restored and releases it. The flag is later than all its effects and steps, whatever clocks wrote
/// them.
fn flag_restored(run: &RestoredRun, now: Timestamp) -> Result<Update, chimera_core::record::InvalidTx> {
    let after = Timestamp::from_micros(run.latest.micros().saturating_add(1));
    let mut set = vec![(runs::restored_at, after.max(now).into()), (runs::run_seq, (run.run_seq + 1).into())];
    if run.owned || run.has_open_work {
        set.extend([
            (runs::owner_lane, Value::Null),
            (runs::owner_epoch, Value::Null),
            (runs::next_deadline, now.into()),
        ]);
    }
    Update::versioned(&RUNS, vec![run.id.into()], run.version, set)
}

/// The pending signals that no longer apply after a restore.
async fn dropped_signals(records: &dyn Records) -> Result<BTreeMap<Uuid, Vec<DroppedSignal>>, EngineError> {
    let mut lapsed: BTreeMap<Uuid, Vec<DroppedSignal>> = BTreeMap::new();
    rows::each(records, SignalRow::select(Scope::System), |row: SignalRow| {
        let (run, signal) = (row.run_id, Signal::of_row(row));
        if let Some(by) = signal.kind.sender_if_lapsed_by_restore() {
            let dropped = DroppedSignal { kind: signal.kind.name(), by: by.id.clone() };
            lapsed.entry(run).or_default().push(dropped);
        }
        Ok(())
    })
    .await?;
    Ok(lapsed)
}

/// Deletes the signals of a run that no longer apply.
fn delete_signals(run: &RestoredRun) -> Vec<Step> {
    let is = |column, value: Value| Condition { column, compare: Comparison::Is, value };
    let delete = |kind: &str| {
        let conditions = vec![is(run_signals::run_id, run.id.into()), is(run_signals::kind, kind.into())];
        Step::Delete { table: &RUN_SIGNALS, conditions, rows: RowCount::AtMost(u64::MAX) }
    };
    counted(&run.lapsed).into_keys().map(delete).collect()
}

/// Whether workers have calls of a run, or may get them.
async fn has_open_work(records: &dyn Records, run: Uuid) -> Result<bool, EngineError> {
    let mut open = false;
    let items = WorkItemState::select(Scope::System).with(work_items::run_id, run);
    rows::each(records, items, |item: WorkItemState| {
        open |= item.state.is_open();
        Ok(())
    })
    .await?;
    Ok(open)
}

/// Takes the calls of a run out of their queues: they may have been executed after the backup. The run settles them like
/// calls whose process is gone, and their workers are told that nobody waits for them.
fn withdraw_work(run: &RestoredRun, now: Timestamp) -> Result<Vec<Step>, Unstorable> {
    let is = |column, value: Value| Condition { column, compare: Comparison::Is, value };
    let withdraw = |state: WorkState| {
        let conditions = vec![is(work_items::run_id, run.id.into()), is(work_items::state, state.into())];
        let set = vec![
            (work_items::state, WorkState::Cancelled.into()),
            (work_items::settled_at, now.into()),
            (work_items::lease_until, Value::Null),
            (work_items::input, Value::Null),
        ];
        Ok(Step::update(&WORK_ITEMS, conditions, set, RowCount::AtMost(u64::MAX))?)
    };
    let states = [WorkState::Queued, WorkState::Claimed].into_iter().filter(|_| run.has_open_work);
    states.map(withdraw).collect()
}

/// The number of signals by kind.
fn counted(lapsed: &[DroppedSignal]) -> BTreeMap<&'static str, usize> {
    let mut kinds = BTreeMap::new();
    for DroppedSignal { kind, .. } in lapsed {
        *kinds.entry(*kind).or_default() += 1;
    }
    kinds
}

fn end_sign_ins(now: Timestamp) -> Result<Step, Unstorable> {
    let conditions =
        vec![Condition { column: token_families::revoked_at, compare: Comparison::Is, value: Value::Null }];
    let set = vec![(token_families::revoked_at, now.into()), (token_families::revoked_because, "restored".into())];
    Ok(Step::update(&TOKEN_FAMILIES, conditions, set, RowCount::AtMost(u64::MAX))?)
}

/// Releases the hold. Marks of earlier generations are ignored from now on.
fn release_hold(generation: i64) -> Result<Step, Unstorable> {
    let conditions = vec![Condition { column: store_state::id, compare: Comparison::Is, value: 1.into() }];
    let set = vec![
        (store_state::held_reason, Value::Null),
        (store_state::held_at, Value::Null),
        (store_state::generation, generation.into()),
    ];
    Ok(Step::update(&STORE_STATE, conditions, set, RowCount::Exactly(1))?)
}

/// Greater than every known generation, whatever clocks said. Normally the current time: unreachable nodes may know a
/// higher generation.
async fn next_generation(records: &dyn Records, now: Timestamp) -> Result<i64, EngineError> {
    let row: Option<StoreStateRow> = rows::find(records, StoreStateRow::select(Scope::System)).await?;
    let known = row.map_or(0, |row| row.generation);
    Ok(now.micros().max(known.saturating_add(1)))
}

async fn lanes(records: &dyn Records) -> Result<Vec<serde_json::Value>, EngineError> {
    let rows: Vec<LaneRow> = rows::list(records, LaneRow::select(Scope::System), limits::LANES_MAX).await?;
    let lane = |row: &LaneRow| json!({"lane": row.lane, "entries": row.head_seq, "hash": row.head_hash});
    Ok(rows.iter().map(lane).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimera_core::json;

    #[test]
    fn a_list_of_any_length_fits_into_an_entry() {
        for count in [0, limits::RESTORE_LISTED_MAX, limits::LANES_MAX, limits::RUN_STEPS_MAX] {
            let item = |lane: usize| json!({"lane": lane, "entries": i64::MAX, "hash": "f".repeat(64)});
            let all: Vec<_> = (0..count).map(item).collect();
            let mut data = json!({});
            add_list(&mut data, "lanes", all.clone());
            assert!(json::canonical(&data).len() < limits::ENTRY_DATA_BYTES_MAX, "{count}");
            assert_eq!((data["lanes_count"].as_u64(), &data["lanes"][0]), (Some(count as u64), &json!(all.first())));
            assert_eq!(data["lanes_digest"].is_string(), count > limits::RESTORE_LISTED_MAX, "{count}");
        }
    }
}

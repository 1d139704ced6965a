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
use chimera_core::access::tables::TOKEN_FAMILIES;
use chimera_core::flow::run::{RunStatus, Signal, UncertainStep};
use chimera_core::flow::tables::{EFFECTS, NOTIFICATIONS, RUN_SIGNALS, RUNS, SCOPED_APPROVALS, STEPS};
use chimera_core::json::Digest32;
use chimera_core::ledger::SubjectType;
use chimera_core::ledger::tables::{LEDGER_LANES, STORE_STATE};
use chimera_core::limits;
use chimera_core::record::{
    Comparison, Condition, Json, Row, RowCount, Scope, Select, Step, Tx, Unstorable, Update, Value,
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

impl Flow {
    /// Collects everything that has work left.
    pub async fn survey(&self) -> Result<RestoreSurvey, EngineError> {
        let records = &*self.inner.parts.records;
        let mut found = BTreeSet::new();
        let runs = || Select::from(&RUNS, Scope::System).without(load::RUN_DOCUMENTS);
        let epoch = Timestamp::from_micros(0);
        for select in [
            runs().with("completed_at", Value::Null),
            runs().filter("owner_lane", Comparison::AtLeast, 0),
            runs().filter("next_deadline", Comparison::AtLeast, epoch),
        ] {
            rows::for_each(records, select, |row| found.extend(has_work_left(&row).then(|| row.uuid("id")))).await?;
        }
        let mut lapsed = dropped_signals(records).await?;
        found.extend(lapsed.keys());
        let mut survey = RestoreSurvey::default();
        for run in found {
            // Nothing is driven while the store is held, so the row still exists.
            let Some(row) = load::run_row(records, run).await? else { continue };
            survey.runs.push(self.inspect_run(row, lapsed.remove(&run).unwrap_or_default()).await?);
        }
        let pending = Select::from(&NOTIFICATIONS, Scope::System).with("status", "pending");
        rows::for_each(records, pending.without(&["payload"]), |_| survey.messages += 1).await?;
        let open = Select::from(&TOKEN_FAMILIES, Scope::System).with("revoked_at", Value::Null).filter(
            "expires_at",
            Comparison::Above,
            self.inner.parts.clock.now(),
        );
        rows::for_each(records, open, |_| survey.sign_ins += 1).await?;
        Ok(survey)
    }

    async fn inspect_run(&self, row: Row, lapsed: Vec<DroppedSignal>) -> Result<RestoredRun, EngineError> {
        let records = &*self.inner.parts.records;
        let id = row.uuid("id");
        let of_run = |table| Select::from(table, Scope::System).with("run_id", id);
        let effects = rows::all(records, of_run(&EFFECTS), limits::RUN_ROWS_MAX).await?;
        let steps = of_run(&STEPS).without(load::STEP_DOCUMENTS);
        let steps = rows::all(records, steps, limits::RUN_ROWS_MAX).await?;
        let (mut asked, pending) = (0, of_run(&SCOPED_APPROVALS).with("status", "pending"));
        rows::for_each(records, pending, |_| asked += 1).await?;
        let written = |row: &Row| {
            ["created_at", "dispatched_at", "settled_at"].iter().filter_map(|column| row.get(column).as_time()).max()
        };
        let started = steps.iter().filter_map(|step| step.get("started_at").as_time());
        let latest = effects.iter().filter_map(written).chain(started).max();
        let mut run = RestoredRun {
            id,
            tenant: row.text("tenant_id").to_owned(),
            workflow: row.text("workflow_id").to_owned(),
            actor: row.text("actor").to_owned(),
            status: row.text("status").to_owned(),
            unsure: Vec::new(),
            under_way: effects.iter().filter(|effect| effect.text("status") == "dispatched").count(),
            approvals: asked,
            due: row.get("next_deadline").as_time(),
            rolling_back: is_rolling_back(&row),
            lapsed,
            unreadable: None,
            version: row.int("state_version"),
            run_seq: row.int("run_seq"),
            owned: !row.get("owner_lane").is_null(),
            latest: latest.unwrap_or(Timestamp::from_micros(0)),
        };
        match load::load(records, &self.inner.workflows, row, &CostFlag::default()).await {
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
        &self,
        permit: &Permit,
        survey: &RestoreSurvey,
        resume: &ResumeOptions<'_>,
    ) -> Result<usize, EngineError> {
        let records = &*self.inner.parts.records;
        let now = self.inner.parts.clock.now();
        for runs in survey.runs.chunks(limits::RESTORE_RUNS_PER_TX_MAX) {
            let mut tx = Tx::default();
            for run in runs {
                tx.updates.push(flag_restored(run, now).map_err(Unstorable::from)?);
                tx.steps.extend(delete_signals(run));
                let unsure = run.unsure.iter().map(|step| json!({"node": step.node, "tool": step.tool})).collect();
                let mut data = json!({
                    "under_way": run.under_way, "rolling_back": run.rolling_back, "dropped": counted(&run.lapsed),
                });
                add_list(&mut data, "unsure", unsure);
                let place = EntrySubject {
                    tenant: &run.tenant,
                    run: Some((run.id, run.run_seq + 1)),
                    subject: run.id.to_string(),
                };
                self.record_event(&mut tx, permit, place, "run.restored", data)?;
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
        let place = EntrySubject { tenant: SYSTEM_TENANT, run: None, subject: "store".to_owned() };
        self.record_event(&mut tx, permit, place, "store.resumed", data)?;
        records.commit(tx).await?;
        Ok(ended)
    }

    fn record_event(
        &self,
        tx: &mut Tx,
        permit: &Permit,
        place: EntrySubject<'_>,
        event_type: &str,
        data: serde_json::Value,
    ) -> Result<(), EngineError> {
        let event = EventRecord {
            tenant_id: place.tenant.to_owned(),
            subject_type: SubjectType::Other,
            subject_id: place.subject,
            event_type: event_type.to_owned(),
            actor_type: permit.kind(),
            actor_id: Some(permit.actor().to_owned()),
            data,
            run_id: place.run.map(|(run, _)| run),
            run_seq: place.run.map(|(_, number)| number),
            trace_id: place.run.map(|(run, _)| chimera_core::id::trace_id(run)),
        };
        let writer = Writer { random: &*self.inner.parts.random, clock: &*self.inner.parts.clock };
        writer.event(tx, event)?;
        Ok(())
    }
}

/// The subject of a ledger entry.
struct EntrySubject<'a> {
    tenant: &'a str,
    /// The run and the entry's sequence number in it.
    run: Option<(Uuid, i64)>,
    subject: String,
}

/// Adds a list to the bounded data of a ledger entry: truncated, with its length and digest.
fn add_list(data: &mut serde_json::Value, name: &str, all: Vec<serde_json::Value>) {
    data[format!("{name}_count")] = json!(all.len());
    if all.len() > limits::RESTORE_LISTED_MAX {
        data[format!("{name}_digest")] = json!(Digest32::of(&json!(all)).to_string());
    }
    data[name] = all.into_iter().take(limits::RESTORE_LISTED_MAX).collect();
}

fn is_rolling_back(row: &Row) -> bool {
    row.get("rollback").as_json().map(Json::to_value).is_some_and(|rollback| rollback["ended"] == false)
}

fn has_work_left(row: &Row) -> bool {
    RunStatus::parse(row.text("status")).is_none_or(|status| !status.is_final()) || is_rolling_back(row)
}

/// Flags the run as restored and releases it. The flag is later than all its effects and steps, whatever clocks wrote
/// them.
fn flag_restored(run: &RestoredRun, now: Timestamp) -> Result<Update, chimera_core::record::InvalidTx> {
    let after = Timestamp::from_micros(run.latest.micros().saturating_add(1));
    let mut set = vec![("restored_at", after.max(now).into()), ("run_seq", (run.run_seq + 1).into())];
    if run.owned {
        set.extend([("owner_lane", Value::Null), ("owner_epoch", Value::Null), ("next_deadline", now.into())]);
    }
    Update::versioned(&RUNS, vec![run.id.into()], run.version, set)
}

/// The pending signals that no longer apply after a restore.
async fn dropped_signals(records: &dyn Records) -> Result<BTreeMap<Uuid, Vec<DroppedSignal>>, EngineError> {
    let mut lapsed: BTreeMap<Uuid, Vec<DroppedSignal>> = BTreeMap::new();
    rows::for_each(records, Select::from(&RUN_SIGNALS, Scope::System), |row| {
        let signal = Signal::of_row(&row);
        let Some(by) = signal.told.sender_if_lapsed_by_restore() else { return };
        let told = DroppedSignal { kind: signal.told.kind(), by: by.id.clone() };
        lapsed.entry(row.uuid("run_id")).or_default().push(told);
    })
    .await?;
    Ok(lapsed)
}

/// Deletes the signals of a run that no longer apply.
fn delete_signals(run: &RestoredRun) -> Vec<Step> {
    let is = |column, value: Value| Condition { column, compare: Comparison::Is, value };
    let delete = |kind: &str| {
        let conditions = vec![is("run_id", run.id.into()), is("kind", kind.into())];
        Step::Delete { table: &RUN_SIGNALS, conditions, rows: RowCount::AtMost(u64::MAX) }
    };
    counted(&run.lapsed).into_keys().map(delete).collect()
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
    let conditions = vec![Condition { column: "revoked_at", compare: Comparison::Is, value: Value::Null }];
    let set = vec![("revoked_at", now.into()), ("revoked_because", "restored".into())];
    Ok(Step::update(&TOKEN_FAMILIES, conditions, set, RowCount::AtMost(u64::MAX))?)
}

/// Releases the hold. Marks of earlier generations are ignored from now on.
fn release_hold(generation: i64) -> Result<Step, Unstorable> {
    let conditions = vec![Condition { column: "id", compare: Comparison::Is, value: 1.into() }];
    let set = vec![("held_reason", Value::Null), ("held_at", Value::Null), ("generation", generation.into())];
    Ok(Step::update(&STORE_STATE, conditions, set, RowCount::Exactly(1))?)
}

/// Greater than every known generation, whatever clocks said. Normally the current time: unreachable nodes may know a
/// higher generation.
async fn next_generation(records: &dyn Records, now: Timestamp) -> Result<i64, EngineError> {
    let rows = rows::all(records, Select::from(&STORE_STATE, Scope::System), 1).await?;
    let known = rows.first().map_or(0, |row| row.int("generation"));
    Ok(now.micros().max(known.saturating_add(1)))
}

async fn lanes(records: &dyn Records) -> Result<Vec<serde_json::Value>, EngineError> {
    let rows = rows::all(records, Select::from(&LEDGER_LANES, Scope::System), limits::LANES_MAX).await?;
    let hash = |row: &Row| row.get("head_hash").as_bytes().map(hex::encode);
    let lane = |row: &Row| json!({"lane": row.int("lane"), "entries": row.int("head_seq"), "hash": hash(row)});
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

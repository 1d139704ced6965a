//! Going on after a restore: what may have happened since the state in the store was written, and
//! telling every run so.
//!
//! A store that was put back knows nothing of what its runs did afterwards. Every run that has
//! something left to do is told when its state was put back; from then on it sends nothing that
//! changes something before somebody has found out that it was not sent already. The store takes
//! changes again with the last of these transactions, so whoever is cut off half way begins anew.

use super::{Flow, load};
use crate::access::Permit;
use crate::error::EngineError;
use crate::ledger::audit::{Event, Writer};
use crate::offload::Costly;
use crate::port::{Hold, Records};
use crate::rows;
use chimera_core::access::tables::TOKEN_FAMILIES;
use chimera_core::flow::run::{RunStatus, Signal, UnsureStep};
use chimera_core::flow::tables::{EFFECTS, NOTIFICATIONS, RUN_SIGNALS, RUNS, SCOPED_APPROVALS, STEPS};
use chimera_core::json::Digest32;
use chimera_core::ledger::SubjectType;
use chimera_core::ledger::tables::{LEDGER_LANES, STORE_STATE};
use chimera_core::limits;
use chimera_core::record::{
    Compare, Condition, Json, Row, RowCount, Scope, Select, Step, Tx, Unstorable, Update, Value,
};
use chimera_core::time::Timestamp;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Whose the store's own ledger entries are.
const SYSTEM_TENANT: &str = "system";

/// What somebody told a run that had not taken it in. They could not know what came after the backup,
/// so it is dropped, and has to be told again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lapsed {
    /// What it was.
    pub kind: &'static str,
    /// Who told it.
    pub by: String,
}

/// A run with something left to do, or that was told something which does not count any more.
#[derive(Clone, Debug, PartialEq)]
pub struct RestoredRun {
    /// Which.
    pub id: Uuid,
    /// Whose.
    pub tenant: String,
    /// What it follows.
    pub workflow: String,
    /// Who asked for it.
    pub actor: String,
    /// Where it stands.
    pub status: String,
    /// Steps that change something and have no outcome here.
    pub unsure: Vec<UnsureStep>,
    /// Calls that were under way.
    pub under_way: usize,
    /// Decisions that people were asked for.
    pub approvals: usize,
    /// When its next timer is due.
    pub due: Option<Timestamp>,
    /// It was being rolled back.
    pub rolling_back: bool,
    /// What it was told and will not obey.
    pub lapsed: Vec<Lapsed>,
    /// Why it could not be looked into; it is told all the same.
    pub unreadable: Option<String>,
    version: i64,
    run_seq: i64,
    owned: bool,
    /// When the last of its effects was written down, or of its steps begun.
    latest: Timestamp,
}

/// What may have happened since the state in the store was written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Survey {
    /// Runs that have something left to do.
    pub runs: Vec<RestoredRun>,
    /// Messages that wait to be sent.
    pub messages: usize,
    /// Sign-ins that count.
    pub sign_ins: usize,
}

/// What going on is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Resume<'a> {
    /// Why the store was held.
    pub hold: &'a Hold,
    /// End every sign-in: what was revoked after the backup is not known.
    pub end_sign_ins: bool,
}

impl Flow {
    /// Looks at everything that has something left to do.
    pub async fn survey(&self) -> Result<Survey, EngineError> {
        let records = &*self.inner.parts.records;
        let mut found = BTreeSet::new();
        let runs = || Select::from(&RUNS, Scope::System).without(load::RUN_DOCUMENTS);
        let epoch = Timestamp::from_micros(0);
        for select in [
            runs().with("completed_at", Value::Null),
            runs().filter("owner_lane", Compare::AtLeast, 0),
            runs().filter("next_deadline", Compare::AtLeast, epoch),
        ] {
            rows::each(records, select, |row| found.extend(has_work_left(&row).then(|| row.uuid("id")))).await?;
        }
        let mut lapsed = lapsed(records).await?;
        found.extend(lapsed.keys());
        let mut survey = Survey::default();
        for run in found {
            // Nothing is driven while the store is held, so what was found is there still.
            let Some(row) = load::run_row(records, run).await? else { continue };
            survey.runs.push(self.look_into(row, lapsed.remove(&run).unwrap_or_default()).await?);
        }
        let pending = Select::from(&NOTIFICATIONS, Scope::System).with("status", "pending");
        rows::each(records, pending.without(&["payload"]), |_| survey.messages += 1).await?;
        let open = Select::from(&TOKEN_FAMILIES, Scope::System).with("revoked_at", Value::Null).filter(
            "expires_at",
            Compare::Above,
            self.inner.parts.clock.now(),
        );
        rows::each(records, open, |_| survey.sign_ins += 1).await?;
        Ok(survey)
    }

    async fn look_into(&self, row: Row, lapsed: Vec<Lapsed>) -> Result<RestoredRun, EngineError> {
        let records = &*self.inner.parts.records;
        let id = row.uuid("id");
        let of_run = |table| Select::from(table, Scope::System).with("run_id", id);
        let effects = rows::all(records, of_run(&EFFECTS), limits::RUN_ROWS_MAX).await?;
        let steps = of_run(&STEPS).without(load::STEP_DOCUMENTS);
        let steps = rows::all(records, steps, limits::RUN_ROWS_MAX).await?;
        let (mut asked, pending) = (0, of_run(&SCOPED_APPROVALS).with("status", "pending"));
        rows::each(records, pending, |_| asked += 1).await?;
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
        match load::load(records, &self.inner.workflows, row, &Costly::default()).await {
            Ok(loaded) => {
                run.unsure = loaded.unsure();
                // A run that waits only shortly stays with its owner, and its row says no time.
                run.due = run.due.or_else(|| loaded.next_timer());
            }
            Err(EngineError::Read(error)) => return Err(error.into()),
            Err(error) => run.unreadable = Some(error.to_string()),
        }
        Ok(run)
    }

    /// Tells every run of `survey` that its state was put back, and lets the store take changes again.
    /// Gives how many sign-ins were ended.
    pub async fn resume_store(
        &self,
        permit: &Permit,
        survey: &Survey,
        resume: &Resume<'_>,
    ) -> Result<usize, EngineError> {
        let records = &*self.inner.parts.records;
        let now = self.inner.parts.clock.now();
        for runs in survey.runs.chunks(limits::RESTORE_RUNS_PER_TX_MAX) {
            let mut tx = Tx::default();
            for run in runs {
                tx.updates.push(flagged(run, now).map_err(Unstorable::from)?);
                tx.steps.extend(dropped(run));
                let unsure = run.unsure.iter().map(|step| json!({"node": step.node, "tool": step.tool})).collect();
                let mut data = json!({
                    "under_way": run.under_way, "rolling_back": run.rolling_back, "dropped": counted(&run.lapsed),
                });
                list(&mut data, "unsure", unsure);
                let place =
                    Place { tenant: &run.tenant, run: Some((run.id, run.run_seq + 1)), subject: run.id.to_string() };
                self.note(&mut tx, permit, place, "run.restored", data)?;
            }
            records.commit(tx).await?;
        }
        let mut tx = Tx::default();
        let ended = if resume.end_sign_ins { survey.sign_ins } else { 0 };
        if resume.end_sign_ins {
            tx.steps.push(end_sign_ins(now)?);
        }
        let generation = next_generation(records, now).await?;
        tx.steps.push(let_go(generation)?);
        let mut data = json!({
            "reason": resume.hold.reason, "held_since": resume.hold.since.to_string(), "runs": survey.runs.len(),
            "sign_ins_ended": ended, "messages": survey.messages, "generation": generation,
        });
        list(&mut data, "lanes", lanes(records).await?);
        let place = Place { tenant: SYSTEM_TENANT, run: None, subject: "store".to_owned() };
        self.note(&mut tx, permit, place, "store.resumed", data)?;
        records.commit(tx).await?;
        Ok(ended)
    }

    fn note(
        &self,
        tx: &mut Tx,
        permit: &Permit,
        place: Place<'_>,
        event_type: &str,
        data: serde_json::Value,
    ) -> Result<(), EngineError> {
        let event = Event {
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

/// What a ledger entry is about.
struct Place<'a> {
    tenant: &'a str,
    /// A run and the number of the entry within it.
    run: Option<(Uuid, i64)>,
    subject: String,
}

/// Enters a list of any length into the data of a ledger entry, which has a bound.
fn list(data: &mut serde_json::Value, name: &str, all: Vec<serde_json::Value>) {
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

/// The run knows that it was restored, and nobody drives it. Its effects and steps so far are older than
/// that moment, whatever clocks wrote them.
fn flagged(run: &RestoredRun, now: Timestamp) -> Result<Update, chimera_core::record::InvalidTx> {
    let after = Timestamp::from_micros(run.latest.micros().saturating_add(1));
    let mut set = vec![("restored_at", after.max(now).into()), ("run_seq", (run.run_seq + 1).into())];
    if run.owned {
        set.extend([("owner_lane", Value::Null), ("owner_epoch", Value::Null), ("next_deadline", now.into())]);
    }
    Update::versioned(&RUNS, vec![run.id.into()], run.version, set)
}

/// What was told to runs and does not count in a state that was put back.
async fn lapsed(records: &dyn Records) -> Result<BTreeMap<Uuid, Vec<Lapsed>>, EngineError> {
    let mut lapsed: BTreeMap<Uuid, Vec<Lapsed>> = BTreeMap::new();
    rows::each(records, Select::from(&RUN_SIGNALS, Scope::System), |row| {
        let signal = Signal::of_row(&row);
        let Some(by) = signal.told.lapses_with_restore() else { return };
        let told = Lapsed { kind: signal.told.kind(), by: by.id.clone() };
        lapsed.entry(row.uuid("run_id")).or_default().push(told);
    })
    .await?;
    Ok(lapsed)
}

/// Takes away what a run was told and must not obey.
fn dropped(run: &RestoredRun) -> Vec<Step> {
    let is = |column, value: Value| Condition { column, compare: Compare::Is, value };
    let delete = |kind: &str| {
        let conditions = vec![is("run_id", run.id.into()), is("kind", kind.into())];
        Step::Delete { table: &RUN_SIGNALS, conditions, rows: RowCount::AtMost(u64::MAX) }
    };
    counted(&run.lapsed).into_keys().map(delete).collect()
}

/// How many there are of each kind.
fn counted(lapsed: &[Lapsed]) -> BTreeMap<&'static str, usize> {
    let mut kinds = BTreeMap::new();
    for Lapsed { kind, .. } in lapsed {
        *kinds.entry(*kind).or_default() += 1;
    }
    kinds
}

fn end_sign_ins(now: Timestamp) -> Result<Step, Unstorable> {
    let conditions = vec![Condition { column: "revoked_at", compare: Compare::Is, value: Value::Null }];
    let set = vec![("revoked_at", now.into()), ("revoked_because", "restored".into())];
    Ok(Step::update(&TOKEN_FAMILIES, conditions, set, RowCount::AtMost(u64::MAX))?)
}

/// The store is not held, and marks of earlier generations don't count.
fn let_go(generation: i64) -> Result<Step, Unstorable> {
    let conditions = vec![Condition { column: "id", compare: Compare::Is, value: 1.into() }];
    let set = vec![("held_reason", Value::Null), ("held_at", Value::Null), ("generation", generation.into())];
    Ok(Step::update(&STORE_STATE, conditions, set, RowCount::Exactly(1))?)
}

/// More than every generation that is known here, whatever clocks said. It is the time all the same, unless that
/// is less: nodes that nobody can ask now may know of more.
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
            list(&mut data, "lanes", all.clone());
            assert!(json::canonical(&data).len() < limits::ENTRY_DATA_BYTES_MAX, "{count}");
            assert_eq!((data["lanes_count"].as_u64(), &data["lanes"][0]), (Some(count as u64), &json!(all.first())));
            assert_eq!(data["lanes_digest"].is_string(), count > limits::RESTORE_LISTED_MAX, "{count}");
        }
    }
}

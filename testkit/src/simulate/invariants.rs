//! Checks invariants after every commit, and collects violations and a trace.
//!
//! | of     | invariant                                                                             |
//! |--------|---------------------------------------------------------------------------------------|
//! | run    | versions increase by one; entries are numbered without gaps; a final run stays final; |
//! |        | the entry of a cancelled run names the actor and reason of the cancellation           |
//! | step   | a settled step keeps its output and can only be rolled back; one that was rejected by |
//! |        | its judge does not complete                                                           |
//! | event  | a run receives an event once; a wait that times out had no event before its timeout   |
//! | effect | starts as `dispatched`; a succeeded effect stays succeeded                            |
//! | window | see `limits`                                                                          |

use super::limits::LimitChecker;
use super::settle::is_settled;
use crate::memory::{CommitObserver, RowChange};
use chimera_core::flow::run::{EffectStatus, RunStatus, StepStatus};
use chimera_core::flow::tables::EventRow;
use chimera_core::flow::tables::{EffectRow, RunRow, StepRow};
use chimera_core::ledger::{Entry, SealedEntry};
use chimera_core::record::{Row, StoredRow, Value};
use chimera_core::time::Timestamp;
use chimera_engine::port::Clock;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uuid::Uuid;

/// Trace lines that are kept.
const LINES_MAX: usize = 4_000;

#[derive(Default)]
struct CheckerState {
    story: Sha256,
    lines: Vec<String>,
    faults: Vec<String>,
    /// The last entry number of each run.
    entries: BTreeMap<Uuid, i64>,
    /// The last entry number according to the row of each run, compared once the batch is complete.
    rows: BTreeMap<Uuid, i64>,
    /// Actor and reason of each run's cancellation.
    cancels: BTreeMap<Uuid, (Option<String>, Json)>,
    /// Children that each run has asked to undo what they did, in its last rollback.
    undoing: BTreeMap<Uuid, BTreeSet<String>>,
    /// The committed events of each channel: when, and their ids.
    events: BTreeMap<(String, String), Vec<(Timestamp, String)>>,
    /// The ids of the events that each run has received.
    received: BTreeMap<Uuid, BTreeSet<String>>,
    limits: LimitChecker,
    commits: u64,
    sent: u64,
}

pub struct InvariantChecker {
    seen: Mutex<CheckerState>,
    clock: Arc<dyn Clock>,
    keeps_lines: bool,
}

impl InvariantChecker {
    /// `keeps_lines` keeps a trace, which takes time.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, keeps_lines: bool) -> Arc<Self> {
        Arc::new(Self { seen: Mutex::default(), clock, keeps_lines })
    }

    fn seen(&self) -> MutexGuard<'_, CheckerState> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a violation.
    pub fn report_violation(&self, what: String) {
        self.trace(|| format!("FAULT {what}"));
        self.seen().faults.push(what);
    }

    /// Adds a line to the trace.
    pub fn trace(&self, line: impl FnOnce() -> String) {
        if !self.keeps_lines {
            return;
        }
        let line = format!("{} {}", self.clock.steady(), line());
        let mut seen = self.seen();
        if seen.lines.len() < LINES_MAX {
            seen.lines.push(line);
        }
    }

    /// Records a call that reaches the outside.
    pub fn sent(&self, tool: &str, key: &str, what: &str) {
        self.trace(|| format!("send {tool} {what} {key}"));
        let now = self.clock.steady().micros();
        let mut seen = self.seen();
        seen.sent += 1;
        seen.story.update(now.to_be_bytes());
        seen.story.update(key.as_bytes());
        seen.story.update(what.as_bytes());
    }

    /// The violations and the trace.
    #[must_use]
    pub fn violations_and_trace(&self) -> (Vec<String>, Vec<String>) {
        let seen = self.seen();
        (seen.faults.clone(), seen.lines.clone())
    }

    /// Commits, outside calls, and a digest of everything that happened, with order and time.
    #[must_use]
    pub fn digest(&self) -> (u64, u64, [u8; 32]) {
        let seen = self.seen();
        (seen.commits, seen.sent, seen.story.clone().finalize().into())
    }
}

/// Lets the judge watch a store.
pub struct StoreObserver(pub Arc<InvariantChecker>);

impl CommitObserver for StoreObserver {
    fn changed(&mut self, changed: RowChange<'_>) {
        let wrong = match changed.table.name {
            "runs" => self.run(changed),
            "steps" => step(changed).or_else(|| self.timed_out(changed)),
            "external_events" => self.published(changed),
            "effects" => {
                self.0.seen().limits.effect(changed);
                effect(changed)
            }
            "reservations" => self.0.seen().limits.window(changed, self.0.clock.steady()),
            _ => None,
        };
        if let Some(wrong) = wrong {
            self.0.report_violation(wrong);
        }
        self.0.trace(|| line(changed));
        let mut seen = self.0.seen();
        seen.story.update(changed.table.name);
        for column in changed.table.key {
            if let Some(id) = changed.after.or(changed.before).and_then(|row| row.get(column).as_uuid()) {
                seen.story.update(id.as_bytes());
            }
        }
    }

    fn entered(&mut self, sealed: &SealedEntry) {
        let now = self.0.clock.steady().micros();
        let entry = &sealed.entry;
        for wrong in [self.cancelled(entry), self.asked_again(entry), self.received(entry)].into_iter().flatten() {
            self.0.report_violation(wrong);
        }
        let gap = {
            let mut seen = self.0.seen();
            seen.story.update(now.to_be_bytes());
            seen.story.update(sealed.content_digest.0);
            match (sealed.entry.run_id, sealed.entry.run_seq) {
                (Some(run), Some(number)) => {
                    let last = seen.entries.insert(run, number).unwrap_or(0);
                    (number != last + 1).then(|| format!("run {run}: entry {number} follows {last}"))
                }
                _ => None,
            }
        };
        if let Some(gap) = gap {
            self.0.report_violation(gap);
        }
        self.0.trace(|| format!("entry {:?} {} {}", sealed.entry.run_seq, sealed.entry.event_type, sealed.entry.data));
    }

    fn committed(&mut self) {
        let wrong: Vec<String> = {
            let mut seen = self.0.seen();
            seen.commits += 1;
            let rows = std::mem::take(&mut seen.rows);
            let differs = |(run, number): (&Uuid, &i64)| seen.entries.get(run).copied().unwrap_or(0) != *number;
            let mut wrong: Vec<String> = rows
                .iter()
                .filter(|row| differs(*row))
                .map(|(run, number)| format!("run {run}: its row has run_seq {number}, which is not its last entry"))
                .collect();
            wrong.extend(seen.limits.committed());
            wrong
        };
        wrong.into_iter().for_each(|wrong| self.0.report_violation(wrong));
    }
}

impl StoreObserver {
    /// The final entry names the actor and reason of the cancel request, even if the run was reloaded in between.
    fn cancelled(&self, entry: &Entry) -> Option<String> {
        let (run, told) = (entry.run_id?, (entry.actor_id.clone(), entry.data["reason"].clone()));
        match entry.event_type.as_str() {
            "run.cancel_requested" => {
                self.0.seen().cancels.insert(run, told);
                None
            }
            "run.cancelled" => {
                let asked = self.0.seen().cancels.get(&run).cloned();
                (asked.as_ref() != Some(&told))
                    .then(|| format!("run {run}: cancelled by {asked:?}, but the final entry names {told:?}"))
            }
            _ => None,
        }
    }

    /// A rollback asks each child once, whatever the child answers.
    fn asked_again(&self, entry: &Entry) -> Option<String> {
        let (run, mut seen) = (entry.run_id?, self.0.seen());
        match entry.event_type.as_str() {
            "run.rollback_started" => {
                seen.undoing.remove(&run);
                None
            }
            "step.rollback_started" => {
                let child = entry.data["child_run_id"].as_str()?.to_owned();
                let first = seen.undoing.entry(run).or_default().insert(child.clone());
                (!first).then(|| format!("run {run}: one rollback asks its child {child} twice"))
            }
            _ => None,
        }
    }

    /// Remembers when an event was committed.
    fn published(&self, changed: RowChange<'_>) -> Option<String> {
        let event = EventRow::peek(changed.after?).ok()?;
        let now = self.0.clock.steady();
        let mut seen = self.0.seen();
        seen.events.entry((event.event_name, event.event_key)).or_default().push((now, event.event_id));
        None
    }

    /// A run receives an event once.
    fn received(&self, entry: &Entry) -> Option<String> {
        let (run, event) = (entry.run_id?, entry.data["event_id"].as_str()?);
        if entry.event_type != "step.event_received" {
            return None;
        }
        let first = self.0.seen().received.entry(run).or_default().insert(event.to_owned());
        (!first).then(|| format!("run {run} received the event {event} twice"))
    }

    /// A wait that times out had no event that was accepted in time.
    fn timed_out(&self, changed: RowChange<'_>) -> Option<String> {
        let (before, after) = (StepRow::peek(changed.before?).ok()?, StepRow::peek(changed.after?).ok()?);
        let output = after.output.and_then(|output| output.value().ok()).unwrap_or_default();
        let late = after.status == StepStatus::Failed || output["timed_out"] == true;
        if before.status != StepStatus::Waiting || !late {
            return None;
        }
        let (input, until) = (before.input?.value().ok()?, before.retry_at?);
        let text = |member: &str| input["event"][member].as_str().map(str::to_owned);
        let seen = self.0.seen();
        let received = seen.received.get(&before.run_id);
        let in_time = |(at, id): &&(Timestamp, String)| *at <= until && received.is_none_or(|ids| !ids.contains(id));
        let (_, id) = seen.events.get(&(text("name")?, text("key")?))?.iter().find(in_time)?;
        Some(format!("step {} of {} timed out although the event {id} was there", before.node_id, before.run_id))
    }

    fn run(&self, changed: RowChange<'_>) -> Option<String> {
        let Some(after) = changed.after else { return Some("a run was deleted".to_owned()) };
        let after = match RunRow::peek(after) {
            Ok(after) => after,
            Err(error) => return Some(error.to_string()),
        };
        let (id, status) = (after.id, after.status);
        self.0.seen().rows.insert(id, after.run_seq);
        let undoing = after.rollback.is_some_and(|json| json.value().expect("a rollback")["ended"] == false);
        if status.is_final() && !undoing && after.owner_lane.is_some() {
            return Some(format!("run {id} is {} and has an owner", status.as_str()));
        }
        let over = status.is_final() && !undoing;
        if !over && after.owner_lane.is_none() && after.next_deadline.is_none() {
            return Some(format!("run {id} is {} without an owner or a deadline", status.as_str()));
        }
        let before = RunRow::peek(changed.before?).ok()?;
        if after.state_version != before.state_version + 1 {
            return Some(format!("run {id} skips a version"));
        }
        let was = before.status;
        let stays = was == status || (was.is_final() && status == RunStatus::RolledBack);
        let result = before.result == after.result;
        (was.is_final() && !(stays && result)).then(|| format!("run {id} was {} and has changed", was.as_str()))
    }
}

fn step(changed: RowChange<'_>) -> Option<String> {
    let Some(after) = changed.after else { return Some("a step was deleted".to_owned()) };
    let before = changed.before?;
    let (before, after) = match (StepRow::peek(before), StepRow::peek(after)) {
        (Ok(before), Ok(after)) => (before, after),
        (Err(error), _) | (_, Err(error)) => return Some(error.to_string()),
    };
    let (was, is) = (before.status, after.status);
    let verdict = after.judgement.as_ref().and_then(|made| made.value().ok());
    if is == StepStatus::Completed && verdict.is_some_and(|made| made["verdict"] == "rejected") {
        return Some(format!("step {} of {} is completed, but its judge rejected it", after.node_id, after.run_id));
    }
    let may_be_undone = matches!(was, StepStatus::Completed | StepStatus::Failed | StepStatus::Cancelled);
    let allowed = was == is || (may_be_undone && is == StepStatus::RolledBack);
    if is_settled(was) && (!allowed || before.output != after.output) {
        let (was, is) = (was.as_str(), is.as_str());
        return Some(format!("step {} of {} was {was} and is {is}", after.node_id, after.run_id));
    }
    None
}

fn effect(changed: RowChange<'_>) -> Option<String> {
    let Some(after) = changed.after else { return Some("an effect was deleted".to_owned()) };
    let (before, after) = match (changed.before.map(EffectRow::peek).transpose(), EffectRow::peek(after)) {
        (Ok(before), Ok(after)) => (before, after),
        (Err(error), _) | (_, Err(error)) => return Some(error.to_string()),
    };
    let (key, is) = (after.idempotency_key, after.status);
    let Some(was) = before.map(|before| before.status) else {
        return (is != EffectStatus::Dispatched).then(|| format!("effect {key} begins as {}", is.as_str()));
    };
    (was == EffectStatus::Succeeded && is != EffectStatus::Succeeded)
        .then(|| format!("effect {key} was {} and is {}", was.as_str(), is.as_str()))
}

fn line(changed: RowChange<'_>) -> String {
    let name = changed.table.name;
    match (changed.before, changed.after) {
        (None, Some(after)) => format!("  + {name} {}", cells(after, |_| true)),
        (Some(before), Some(after)) => {
            let key = changed.table.key.iter().map(|column| show(after.get(column))).collect::<Vec<_>>().join(" ");
            format!("  ~ {name} {key} {}", cells(after, |column| before.get(column) != after.get(column)))
        }
        _ => format!("  - {name}"),
    }
}

fn cells(row: &Row, wanted: impl Fn(&str) -> bool) -> String {
    let quiet = ["request_payload", "document", "trace_id", "content", "salt", "body"];
    let columns = row.table.columns.iter().filter(|column| !quiet.contains(&column.name));
    let shown = columns.filter(|column| !row.get(column.name).is_null() && wanted(column.name));
    shown.map(|column| format!("{}={}", column.name, show(row.get(column.name)))).collect::<Vec<_>>().join(" ")
}

fn show(value: &Value) -> String {
    let text = match value {
        Value::Uuid(id) => id.simple().to_string(),
        Value::Text(text) => text.clone(),
        Value::Int(number) => number.to_string(),
        Value::Time(at) => at.to_string(),
        Value::Json(json) => json.as_str().to_owned(),
        other => format!("{other:?}"),
    };
    text.chars().take(120).collect()
}

//! The final state of a case: rows in the store and effects outside. After a crash it must equal the state of an
//! undisturbed run.

use super::UNCERTAIN_TOOL;
use crate::flow::ExternalSystem;
use crate::simulate::port_switch::CrashPoint;
use chimera_core::flow::air::NodeKind;
use chimera_core::flow::status::RequestStatus;
use chimera_core::flow::tables::EventWaitRow;
use chimera_core::flow::tables::{ApprovalRow, EffectRow, RunRow, SignalRow, StepRow};
use chimera_core::job::tables::ScopedAgentExecutionRow;
use chimera_core::record::{Json, Scope, StoredRow};
use chimera_engine::port::Records;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Identifies a step across cases: name of the run, node, map index. Ids differ from case to case.
type StepKey = (String, String, Option<u32>);

/// What must be the same after a crash (private fields), and what may differ (public fields).
#[derive(Debug, Default)]
pub struct FinalState {
    /// By name of the run: status, result.
    runs: BTreeMap<String, (String, Value)>,
    /// Status, output.
    steps: BTreeMap<StepKey, (String, Value)>,
    effects: BTreeMap<StepKey, String>,
    /// Calls that reached the outside: tool, run and node, input.
    sent: BTreeSet<(String, String, String)>,
    /// Number of calls that reached the outside, repetitions included.
    calls: usize,
    /// Effects that exist outside and were not undone.
    standing: usize,
    /// Records of calls that have ended.
    executions_ended: usize,
    /// Records of calls that a crash interrupted: the store says nothing untrue about them.
    executions_open: usize,
    /// Unfinished work: owned runs, pending approvals, unconsumed signals.
    left: Vec<String>,
    /// Tools whose outcome was unknown at some time.
    pub doubts: BTreeSet<String>,
    /// Number of engine crashes.
    pub crashes: usize,
    /// Transactions that the last engine committed.
    pub commits: u64,
    /// Outside calls that the last engine made.
    pub sends: u64,
}

async fn all<R: StoredRow>(records: &dyn Records) -> Vec<R> {
    let page = records.read(R::select(Scope::System).take(1_000)).await.expect("a store that answers");
    page.rows.into_iter().map(|row| R::decode(row).expect("a row that can be read")).collect()
}

impl FinalState {
    pub(super) async fn read(records: &dyn Records, outside: &ExternalSystem) -> Self {
        let (runs, steps) = (all::<RunRow>(records).await, all::<StepRow>(records).await);
        let names = names(&runs, &steps);
        let json =
            |json: &Option<Json>| json.as_ref().map(|json| json.value().expect("a document")).unwrap_or_default();
        let name = |run: Uuid| names.get(&run).cloned().unwrap_or_default();
        let place = |row: &StepRow| (name(row.run_id), row.node_id.clone(), row.map_index);
        let by_id: BTreeMap<Uuid, StepKey> = steps.iter().map(|row| (row.id, place(row))).collect();
        let mut end = Self { standing: outside.effect_count(), ..Self::default() };
        for row in &runs {
            end.runs.insert(name(row.id), (row.status.as_str().to_owned(), json(&row.result)));
            if row.owner_lane.is_some() {
                end.left.push(format!("{} has an owner", name(row.id)));
            }
        }
        for row in &steps {
            let mut output = json(&row.output);
            // When a wait ended depends on when its engine crashed.
            if let Some(members) = output.as_object_mut().filter(|_| row.node_type == NodeKind::Wait) {
                members.retain(|name, _| name != "until" && name != "sent_at");
            }
            end.steps.insert(place(row), (row.status.as_str().to_owned(), output));
        }
        for row in all::<EffectRow>(records).await {
            let (run, node, item) = by_id.get(&row.step_id).cloned().unwrap_or_default();
            let key = (run, format!("{node} {}", row.kind.as_str()), item);
            end.effects.insert(key, row.status.as_str().to_owned());
        }
        let asked = all::<ApprovalRow>(records).await.into_iter();
        let pending = asked.filter(|row| row.status == RequestStatus::Pending);
        end.left.extend(pending.map(|row| format!("{} is pending approval", row.action_type)));
        let executions = all::<ScopedAgentExecutionRow>(records).await;
        end.executions_open = executions.iter().filter(|row| row.completed_at.is_none()).count();
        end.executions_ended = executions.len() - end.executions_open;
        let signals = all::<SignalRow>(records).await.into_iter();
        end.left.extend(signals.map(|row| format!("signal {} was not consumed", row.kind)));
        let waits = all::<EventWaitRow>(records).await.into_iter();
        end.left.extend(waits.map(|row| format!("{} is waited for", row.event_key)));
        for sent in outside.sent() {
            let (run, node) = sent.key.split_once(':').unwrap_or_default();
            let run = Uuid::parse_str(run).map(name).unwrap_or_default();
            end.sent.insert((sent.tool, format!("{run} {node}"), sent.input.to_string()));
            end.calls += 1;
        }
        end
    }

    /// Panics unless this equals the end of the undisturbed run.
    pub(super) fn assert_equals(&self, undisturbed: &Self, moment: CrashPoint) {
        assert_eq!(self.runs, undisturbed.runs, "{moment:?}");
        assert_eq!(self.steps, undisturbed.steps, "{moment:?}");
        assert_eq!(self.effects, undisturbed.effects, "{moment:?}");
        assert_eq!(self.sent, undisturbed.sent, "{moment:?}");
        assert_eq!(self.calls, undisturbed.calls, "{moment:?}: a call was repeated");
        assert_eq!(self.standing, undisturbed.standing, "{moment:?}");
        assert_eq!(self.left, undisturbed.left, "{moment:?}");
        let (records, least) = (self.executions_ended + self.executions_open, undisturbed.executions_ended);
        assert!(undisturbed.executions_open == 0 && least > 0, "every call of the undisturbed run has ended");
        assert!(records >= least, "{moment:?}: {records} execution records, at least {least}");
        let only: BTreeSet<String> = [UNCERTAIN_TOOL.to_owned()].into();
        assert!(self.doubts.is_subset(&only), "{moment:?}: {:?}", self.doubts);
    }
}

/// The name of each run: its workflow, prefixed with the node that started it if it is a child.
fn names(runs: &[RunRow], steps: &[StepRow]) -> BTreeMap<Uuid, String> {
    let node = |step: Uuid| steps.iter().find(|row| row.id == step).map_or("", |row| &row.node_id);
    let name = |row: &RunRow| {
        let workflow = row.workflow_id.clone().unwrap_or_default();
        row.parent_step_id.map_or_else(|| workflow.clone(), |step| format!("{} {workflow}", node(step)))
    };
    runs.iter().map(|row| (row.id, name(row))).collect()
}

//! The final state of a case: rows in the store and effects outside. After a crash it must equal the state of an
//! undisturbed run.

use super::UNCERTAIN_TOOL;
use crate::flow::ExternalSystem;
use crate::simulate::port_switch::CrashPoint;
use chimera_core::flow::tables::{EFFECTS, RUN_SIGNALS, RUNS, SCOPED_APPROVALS, STEPS};
use chimera_core::record::{Json, Row, Scope, Select, Table};
use chimera_engine::port::Records;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Identifies a step across cases: name of the run, node, map index. Ids differ from case to case.
type StepKey = (String, String, Option<i64>);

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

async fn all(records: &dyn Records, table: &'static Table) -> Vec<Row> {
    records.read(Select::from(table, Scope::System).take(1_000)).await.expect("a store that answers").rows
}

impl FinalState {
    pub(super) async fn read(records: &dyn Records, outside: &ExternalSystem) -> Self {
        let (runs, steps) = (all(records, &RUNS).await, all(records, &STEPS).await);
        let names = names(&runs, &steps);
        let json = |row: &Row, column| row.get(column).as_json().map(Json::to_value).unwrap_or_default();
        let name = |run: Uuid| names.get(&run).cloned().unwrap_or_default();
        let place =
            |row: &Row| (name(row.uuid("run_id")), row.text("node_id").to_owned(), row.get("map_index").as_int());
        let by_id: BTreeMap<Uuid, StepKey> = steps.iter().map(|row| (row.uuid("id"), place(row))).collect();
        let mut end = Self { standing: outside.effect_count(), ..Self::default() };
        for row in &runs {
            end.runs.insert(name(row.uuid("id")), (row.text("status").to_owned(), json(row, "result")));
            if !row.get("owner_lane").is_null() {
                end.left.push(format!("{} has an owner", name(row.uuid("id"))));
            }
        }
        for row in &steps {
            end.steps.insert(place(row), (row.text("status").to_owned(), json(row, "output")));
        }
        for row in all(records, &EFFECTS).await {
            let (run, node, item) = by_id.get(&row.uuid("step_id")).cloned().unwrap_or_default();
            end.effects.insert((run, format!("{node} {}", row.text("kind")), item), row.text("status").to_owned());
        }
        let pending = all(records, &SCOPED_APPROVALS).await.into_iter().filter(|row| row.text("status") == "pending");
        end.left.extend(pending.map(|row| format!("{} is pending approval", row.text("action_type"))));
        end.left.extend(
            all(records, &RUN_SIGNALS).await.iter().map(|row| format!("signal {} was not consumed", row.text("kind"))),
        );
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
        let only: BTreeSet<String> = [UNCERTAIN_TOOL.to_owned()].into();
        assert!(self.doubts.is_subset(&only), "{moment:?}: {:?}", self.doubts);
    }
}

/// The name of each run: its workflow, prefixed with the node that started it if it is a child.
fn names(runs: &[Row], steps: &[Row]) -> BTreeMap<Uuid, String> {
    let node = |step: Uuid| steps.iter().find(|row| row.uuid("id") == step).map_or("", |row| row.text("node_id"));
    let name = |row: &Row| match row.get("parent_step_id").as_uuid() {
        Some(step) => format!("{} {}", node(step), row.text("workflow_id")),
        None => row.text("workflow_id").to_owned(),
    };
    runs.iter().map(|row| (row.uuid("id"), name(row))).collect()
}

//! The expression scope of a run.

use super::tasks::task::Task;
use super::{Run, RunPlace};
use crate::flow::expr::{Lookup, Scope, Template, WorkMeter};
use crate::flow::judgement::{Judgement, no_feedback};
use crate::json::unstorable_reason;
use serde_json::Value;

/// A run, as the expressions of one node see it.
pub(crate) struct RunScope<'a> {
    run: &'a Run,
    id: String,
    item: Option<(&'a Value, usize)>,
    /// What earlier judgements of the place say, if its inputs read it.
    judge: Option<Value>,
    /// Nodes that settled after this ledger entry of the run are hidden.
    until: i64,
}

impl<'a> RunScope<'a> {
    /// The scope of a node or an edge.
    pub(crate) fn of(run: &'a Run) -> Self {
        Self { run, id: run.head.id.to_string(), item: None, judge: None, until: i64::MAX }
    }

    /// The scope as it was at the ledger entry with this number.
    pub(crate) fn as_of(run: &'a Run, seq: i64) -> Self {
        Self { until: seq, ..Self::of(run) }
    }

    /// The scope of a place, which may be an item.
    pub(crate) fn at(run: &'a Run, at: RunPlace) -> Self {
        let index = at.item.and_then(|item| usize::try_from(item).ok());
        let item = index.and_then(|index| Some((run.tasks.map_list(at.node)?.get(index)?, index)));
        let compiled = run.tasks.graph().nodes.get(at.node).filter(|node| node.judge.is_some());
        let reads = compiled.and_then(|node| node.inputs.as_ref()).is_some_and(Template::reads_judge);
        let judgement = run.tasks.task(at).and_then(Task::judgement);
        let judge = reads.then(|| judgement.map_or_else(|| no_feedback().clone(), Judgement::feedback));
        Self { item, judge, ..Self::of(run) }
    }
}

impl Scope for RunScope<'_> {
    fn run_id(&self) -> &str {
        &self.id
    }

    fn inputs(&self) -> &Value {
        &self.run.head.inputs
    }

    fn outputs(&self, node: &str) -> Lookup<'_> {
        let task = self.run.tasks.graph().position(node).and_then(|at| self.run.tasks.nodes().get(at));
        let seen = task.filter(|task| task.seq().is_none_or(|seq| seq <= self.until));
        match seen.and_then(|task| task.output()) {
            Some(output) => Lookup::Known(output),
            None => Lookup::Absent,
        }
    }

    fn item(&self) -> Option<(&Value, usize)> {
        self.item
    }

    fn judge(&self) -> Option<&Value> {
        self.judge.as_ref()
    }

    fn meter(&self) -> &WorkMeter {
        self.run.budget.meter()
    }

    fn refusal(&self, value: &Value) -> Option<String> {
        unstorable_reason(value)
    }
}

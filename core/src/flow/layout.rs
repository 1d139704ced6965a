//! What a run of a workflow would call, as far as that can be known before anything has run.
//!
//! Every item of a map is a call of its own, and so is every call of a workflow within: whatever decides
//! about the plan sees what will be sent, not the shape of the document. A list that an earlier step
//! gives is not known yet; it stands as one call with its template.

use crate::flow::air::{Child, CompiledNode, Graph, Node};
use crate::flow::expr::{Lookup, Preview, Scope, Template, WorkMeter, deferred_texts};
use crate::flow::plan::{Plan, PlanStep};
use crate::json::unstorable;
use crate::limits::{PLAN_CALLS_MAX, PLAN_INPUT_BYTES_MAX, PLAN_NODES_MAX, PLAN_WORK_MAX, RUN_DEPTH_MAX};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The workflows that a run may start, by name and version as they are asked for.
pub type Children = BTreeMap<(String, Option<i64>), Arc<Graph>>;

impl Plan {
    /// What a run of a workflow would call, each behind all that lead to it; inputs as far as they are
    /// known before anything has run.
    #[must_use]
    pub fn of_graph(graph: &Graph, inputs: &Value, children: &Children) -> Self {
        let mut layout = Layout { children, plan: Self::default(), bytes: 0, looked: 0 };
        layout.graph(graph, &Beforehand::of(inputs, &WorkMeter::strict(PLAN_WORK_MAX)), "", 0);
        layout.plan
    }

    /// What a run of a graph calls, as far as `scope` knows it by now. Workflows within are left to their
    /// own runs.
    #[must_use]
    pub(crate) fn of_scope(graph: &Graph, scope: &dyn Scope) -> Self {
        let children = Children::new();
        let mut layout = Layout { children: &children, plan: Self::default(), bytes: 0, looked: 0 };
        layout.graph(graph, scope, "", 0);
        layout.plan
    }

    /// How many calls there are. A plan that was not laid out to its end has more than any cap allows.
    #[must_use]
    pub fn calls(&self) -> usize {
        if self.more { self.steps.len().max(PLAN_CALLS_MAX) + 1 } else { self.steps.len() }
    }
}

/// A plan while it is laid out.
struct Layout<'a> {
    children: &'a Children,
    plan: Plan,
    /// Bytes of the inputs so far.
    bytes: usize,
    /// Nodes that were looked at, whether they call anything or not.
    looked: usize,
}

impl Layout<'_> {
    fn graph(&mut self, graph: &Graph, scope: &dyn Scope, within: &str, depth: u32) {
        for at in graph.in_order() {
            if self.plan.more {
                return;
            }
            let compiled = &graph.nodes[at];
            let id = format!("{within}{}", compiled.node.id);
            let Some(over) = &compiled.over else {
                self.call(compiled, scope, id, depth);
                continue;
            };
            match over.preview(scope) {
                Ok(Preview::Exact(Value::Array(items))) => {
                    for (index, item) in items.iter().enumerate() {
                        let view = OfItem { scope, item: (item, index) };
                        self.call(compiled, &view, format!("{id}[{index}]"), depth);
                        if self.plan.more {
                            return;
                        }
                    }
                }
                _ => self.call(compiled, scope, id, depth),
            }
        }
    }

    /// One call, or all those of a workflow within.
    fn call(&mut self, compiled: &CompiledNode, view: &dyn Scope, id: String, depth: u32) {
        self.looked += 1;
        self.plan.more |= self.looked > PLAN_NODES_MAX || view.meter().is_over();
        if self.plan.more {
            return;
        }
        let (input, deferred) = given(&compiled.node, compiled.inputs.as_ref(), view);
        if let Some(tool) = &compiled.tool {
            self.bytes = self.bytes.saturating_add(size(&input));
            if self.plan.steps.len() >= PLAN_CALLS_MAX || self.bytes > PLAN_INPUT_BYTES_MAX {
                self.plan.more = true;
                return;
            }
            self.plan.steps.push(PlanStep { id, tool: tool.name.clone(), input });
        } else if let Some(Child { workflow_id, version, .. }) = compiled.node.child() {
            match self.children.get(&(workflow_id.clone(), *version)) {
                Some(graph) if depth < RUN_DEPTH_MAX => {
                    self.graph(
                        graph,
                        &Beforehand { inputs: &input, deferred, meter: view.meter() },
                        &format!("{id}/"),
                        depth + 1,
                    );
                }
                // Runs stand no deeper inside each other, so nothing of it would run.
                _ => {}
            }
        }
    }
}

/// What a node is given, and whether a part of it can't be known yet: that is `{"$deferred": …}`.
fn given(node: &Node, template: Option<&Template>, view: &dyn Scope) -> (Value, bool) {
    match template.map(|template| template.preview(view)) {
        Some(Ok(Preview::Exact(input))) => (input, false),
        Some(Ok(Preview::Deferred { shown, .. })) => (shown, true),
        _ => {
            let written = node.function().map(|function| &function.inputs);
            let written = written.or(node.child().map(|child| &child.inputs)).cloned().unwrap_or_default();
            (deferred_texts(&written.into()), true)
        }
    }
}

/// About how many bytes a value takes.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum::<usize>() + items.len(),
        Value::Object(members) => members.iter().map(|(name, value)| name.len() + size(value)).sum(),
        _ => 8,
    }
}

/// A run before anything has run.
pub(crate) struct Beforehand<'a> {
    inputs: &'a Value,
    /// A part of the inputs is what a run around it does not know yet.
    deferred: bool,
    meter: &'a WorkMeter,
}

impl<'a> Beforehand<'a> {
    /// A run whose inputs are known.
    pub(crate) const fn of(inputs: &'a Value, meter: &'a WorkMeter) -> Self {
        Self { inputs, deferred: false, meter }
    }
}

impl Scope for Beforehand<'_> {
    fn run_id(&self) -> &str {
        ""
    }

    fn inputs(&self) -> &Value {
        self.inputs
    }

    fn outputs(&self, _: &str) -> Lookup<'_> {
        Lookup::Unknown
    }

    fn item(&self) -> Option<(&Value, usize)> {
        None
    }

    fn meter(&self) -> &WorkMeter {
        self.meter
    }

    fn refusal(&self, value: &Value) -> Option<String> {
        unstorable(value)
    }

    fn has_deferred_inputs(&self) -> bool {
        self.deferred
    }
}

/// What one item of a map sees.
pub(crate) struct OfItem<'a> {
    pub(crate) scope: &'a dyn Scope,
    pub(crate) item: (&'a Value, usize),
}

impl Scope for OfItem<'_> {
    fn run_id(&self) -> &str {
        self.scope.run_id()
    }

    fn inputs(&self) -> &Value {
        self.scope.inputs()
    }

    fn outputs(&self, node: &str) -> Lookup<'_> {
        self.scope.outputs(node)
    }

    fn item(&self) -> Option<(&Value, usize)> {
        Some(self.item)
    }

    fn meter(&self) -> &WorkMeter {
        self.scope.meter()
    }

    fn refusal(&self, value: &Value) -> Option<String> {
        unstorable(value)
    }

    fn has_deferred_inputs(&self) -> bool {
        self.scope.has_deferred_inputs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PLAN_STEPS_FREE_MAX;

    #[test]
    fn a_plan_that_was_not_laid_out_to_its_end_has_more_calls_than_may_run_without_a_person() {
        let plan = Plan { steps: Vec::new(), more: true };
        assert!(plan.calls() > PLAN_STEPS_FREE_MAX && Plan::default().calls() == 0);
    }
}

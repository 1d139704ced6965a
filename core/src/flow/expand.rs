//! Expands a workflow into the plan of its tool calls, as far as they are known before it runs.
//!
//! Every item of a map becomes a call, and so does every call of a child workflow: whoever decides
//! about the plan sees what will be sent, not the shape of the document. A map over a list that an
//! earlier step produces becomes one call with its template.

use crate::flow::air::{ChildWorkflow, CompiledNode, Graph, Node};
use crate::flow::expr::{Lookup, Preview, Scope, Template, WorkMeter, defer_expressions};
use crate::flow::judgement::no_feedback;
use crate::flow::plan::{Plan, PlanStep};
use crate::json::{self, unstorable_reason};
use crate::limits::{PLAN_CALLS_MAX, PLAN_MEMORY_BYTES_MAX, PLAN_NODES_MAX, PLAN_WORK_MAX, RUN_DEPTH_MAX};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The workflows that a run may start, by the name and version that the nodes give.
pub type Children = BTreeMap<(String, Option<i64>), Arc<Graph>>;

/// The calls of a run of this workflow and its children, in topological order, with inputs as far as
/// they are known before the run.
#[must_use]
pub fn expand(graph: &Graph, inputs: &Value, children: &Children) -> Plan {
    let mut layout = PlanBuilder { children, plan: Plan::default(), bytes: 0, visited: 0 };
    layout.graph(graph, &InitialScope::of(inputs, &WorkMeter::strict(PLAN_WORK_MAX)), "", 0);
    layout.plan
}

/// The calls of a graph, with inputs as far as `scope` knows them. Child workflows are not expanded:
/// their own runs do that.
#[must_use]
pub(crate) fn expand_in_scope(graph: &Graph, scope: &dyn Scope) -> Plan {
    let children = Children::new();
    let mut layout = PlanBuilder { children: &children, plan: Plan::default(), bytes: 0, visited: 0 };
    layout.graph(graph, scope, "", 0);
    layout.plan
}

/// A plan under construction.
struct PlanBuilder<'a> {
    children: &'a Children,
    plan: Plan,
    /// Estimated memory of the inputs so far.
    bytes: usize,
    /// Nodes visited, whether they call anything or not.
    visited: usize,
}

impl PlanBuilder<'_> {
    fn graph(&mut self, graph: &Graph, scope: &dyn Scope, within: &str, depth: u32) {
        for at in graph.topological_order() {
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
                        let view = ItemScope { scope, item: (item, index) };
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

    /// Adds one call, or all calls of a child workflow.
    fn call(&mut self, compiled: &CompiledNode, view: &dyn Scope, id: String, depth: u32) {
        self.visited += 1;
        self.plan.more |= self.visited > PLAN_NODES_MAX || view.meter().is_exhausted();
        if self.plan.more {
            return;
        }
        let (input, deferred) = preview_input(&compiled.node, compiled.inputs.as_ref(), view);
        if let Some(tool) = &compiled.tool {
            self.bytes = self.bytes.saturating_add(json::memory_size(&input));
            if self.plan.steps.len() >= PLAN_CALLS_MAX || self.bytes > PLAN_MEMORY_BYTES_MAX {
                self.plan.more = true;
                return;
            }
            self.plan.steps.push(PlanStep { id, tool: tool.name.clone(), input });
        } else if let Some(ChildWorkflow { workflow_id, version, .. }) = compiled.node.child() {
            match self.children.get(&(workflow_id.clone(), *version)) {
                Some(graph) if depth < RUN_DEPTH_MAX => {
                    self.graph(
                        graph,
                        &InitialScope { inputs: &input, deferred, meter: view.meter() },
                        &format!("{id}/"),
                        depth + 1,
                    );
                }
                // Runs are not nested any deeper, so this child would not run.
                _ => {}
            }
        }
    }
}

/// The input of a node, and whether a part of it is not known yet and marked `{"$deferred": …}`.
fn preview_input(node: &Node, template: Option<&Template>, view: &dyn Scope) -> (Value, bool) {
    match template.map(|template| template.preview(view)) {
        Some(Ok(Preview::Exact(input))) => (input, false),
        Some(Ok(Preview::Deferred { shown, .. })) => (shown, true),
        _ => {
            let written = node.function().map(|function| &function.inputs);
            let written = written.or(node.child().map(|child| &child.inputs)).cloned().unwrap_or_default();
            (defer_expressions(&written.into()), true)
        }
    }
}

/// The scope of a run before its first step.
pub(crate) struct InitialScope<'a> {
    inputs: &'a Value,
    /// Whether a part of the inputs is not known to the parent run yet.
    deferred: bool,
    meter: &'a WorkMeter,
}

impl<'a> InitialScope<'a> {
    pub(crate) const fn of(inputs: &'a Value, meter: &'a WorkMeter) -> Self {
        Self { inputs, deferred: false, meter }
    }
}

impl Scope for InitialScope<'_> {
    fn run_id(&self) -> &str {
        ""
    }

    fn judge(&self) -> Option<&Value> {
        Some(no_feedback())
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
        unstorable_reason(value)
    }

    fn has_deferred_inputs(&self) -> bool {
        self.deferred
    }
}

/// The scope of one item of a map.
pub(crate) struct ItemScope<'a> {
    pub(crate) scope: &'a dyn Scope,
    pub(crate) item: (&'a Value, usize),
}

impl Scope for ItemScope<'_> {
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

    fn judge(&self) -> Option<&Value> {
        self.scope.judge()
    }

    fn meter(&self) -> &WorkMeter {
        self.scope.meter()
    }

    fn refusal(&self, value: &Value) -> Option<String> {
        unstorable_reason(value)
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

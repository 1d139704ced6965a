//! Proposals: a goal, steps, a workflow and the graph of a run all become a plan with its tools and inputs.

use super::Actions;
use super::request::Objective;
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::{self, ChildWorkflows, FoundWorkflow, PLAN_PREFIX};
use chimera_core::access::{Level, TenantSettings};
use chimera_core::act::risk;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::air::Graph;
use chimera_core::flow::expand;
use chimera_core::flow::pins::Pins;
use chimera_core::flow::plan::{Plan, PlanStep};
use chimera_core::flow::policy::{Action, Because};
use chimera_core::flow::risk::Score;
use chimera_core::json::Digest32;
use chimera_core::limits::PLAN_STEPS_MAX;
use chimera_core::tool::{CallClass, Spec};
use serde_json::{Value, json};
use std::sync::Arc;

/// The member of a run's risk document with the digest of its child workflows.
pub(super) const WITHIN_DIGEST: &str = "within_digest";

/// A graph, and what its run would start with.
#[derive(Clone, Copy)]
pub(super) struct GraphToRun<'a> {
    /// The workflow's id.
    pub(super) id: &'a str,
    pub(super) graph: &'a Arc<Graph>,
    pub(super) inputs: &'a Value,
    /// The versions of the child workflows that are fixed already.
    pub(super) pins: &'a Pins,
}

/// A plan with everything needed to decide on it.
pub(super) struct Proposal {
    pub(super) plan: Plan,
    pub(super) tools: Vec<Arc<Spec>>,
    pub(super) workflow_id: String,
    /// `None`: a plan that is not stored yet, or the graph of an existing run.
    pub(super) stored: Option<FoundWorkflow>,
    pub(super) graph: Arc<Graph>,
    pub(super) inputs: Value,
    pub(super) inside: ChildWorkflows,
    /// Digests of the workflow and of its child workflows; `None` for a plan, whose name is its digest.
    pub(super) digests: Option<(Digest32, Option<Digest32>)>,
}

impl Proposal {
    /// Keeps only what a shadow replay really calls: reads, outside of child workflows.
    pub(super) fn retain_reads(&mut self) {
        let tools = &self.tools;
        let reads =
            |step: &PlanStep| tools.iter().any(|tool| tool.name == step.tool && tool.may_only_read(&step.input));
        self.plan.steps.retain(|step| !step.id.contains('/') && reads(step));
        let plan = &self.plan;
        self.tools.retain(|tool| plan.more || plan.steps.iter().any(|step| step.tool == tool.name));
    }

    /// The risk document that the run stores: score, reason for the level, number of calls.
    pub(super) fn risk_document(&self, score: &Score, because: Because) -> Arc<Value> {
        let mut document = serde_json::to_value(score).unwrap_or_default();
        document["level_because"] = because.as_str().into();
        document["calls"] = self.plan.calls().into();
        if let Some((_, Some(within))) = self.digests {
            document[WITHIN_DIGEST] = within.to_string().into();
        }
        Arc::new(document)
    }

    /// The digest of the workflow and its child workflows.
    pub(super) fn content_digest(&self) -> Digest32 {
        let (own, within) = self.digests.unwrap_or((self.graph.digest, None));
        Digest32::of(&json!([own.to_string(), within.map(|digest| digest.to_string())]))
    }

    /// Whether an actor wrote the workflow and, as far as the tenant's actors did, its child workflows.
    pub(super) fn is_written_by(&self, actor: &str) -> bool {
        let author = self.stored.as_ref().and_then(FoundWorkflow::author);
        author == Some(actor) && self.inside.authors().into_iter().all(|author| author == actor)
    }

    /// Whether a call deletes something. A tool without visible calls is assumed to do its worst.
    pub(super) fn deletes(&self) -> bool {
        let call = |tool: &Spec, input: &Value| tool.call_class(input) == CallClass::Delete;
        self.calls().any(|(tool, input)| call(tool, input))
            || self.tools_without_calls().any(|tool| call(tool, &Value::Null))
    }

    /// Whether a message goes to somebody outside the tenant's domains.
    pub(super) fn messages_outsiders(&self, tenant: &TenantSettings) -> bool {
        let outside = |tool: &Spec, input: &Value| tenant.messages_outsiders(tool, input);
        self.calls().any(|(tool, input)| outside(tool, input))
            || self.tools_without_calls().any(|tool| outside(tool, &Value::Null))
    }

    /// Every planned call of a known tool as the policy sees it, with its position in the plan.
    pub(super) fn actions<'a>(&'a self, permit: &'a Permit, level: Level) -> impl Iterator<Item = (usize, Action<'a>)> {
        let (tenant, actor) = (permit.tenant(), permit.actor());
        self.plan.steps.iter().enumerate().filter_map(move |(at, step)| {
            let tool = self.tools.iter().find(|tool| tool.name == step.tool)?;
            Some((at, Action { tenant, actor, level, node: &step.id, tool, input: &step.input }))
        })
    }

    fn calls(&self) -> impl Iterator<Item = (&Spec, &Value)> {
        let tool = |name: &str| self.tools.iter().find(|tool| tool.name == name);
        self.plan.steps.iter().filter_map(move |step| Some((&**tool(&step.tool)?, &step.input)))
    }

    /// Tools that may be called without the plan showing it.
    fn tools_without_calls(&self) -> impl Iterator<Item = &Spec> {
        let shown = |tool: &Arc<Spec>| self.plan.steps.iter().any(|step| step.tool == tool.name);
        self.tools.iter().filter(move |tool| self.plan.more || !shown(tool)).map(|tool| &**tool)
    }

    pub(super) fn score(&self) -> Score {
        risk::score(&self.plan, &|name: &str| self.tools.iter().find(|tool| tool.name == name).cloned())
    }
}

/// Turns any kind of request into a proposal.
pub(super) async fn propose(actions: &Actions, permit: &Permit, what: Objective) -> Result<Proposal, EngineError> {
    let plan = match what {
        Objective::Workflow { id, version, inputs } => {
            return propose_workflow(actions, permit, &id, version, &inputs).await;
        }
        Objective::Goal { goal, inputs } => {
            let tools = actions.flow.registry().specs_of(permit.tenant());
            actions.planner.plan(&goal, &inputs, &tools).await.map_err(|error| error.body())?
        }
        Objective::Steps(steps) => plan_of_steps(steps)?,
    };
    let mut tools = Vec::with_capacity(plan.steps.len());
    for (at, step) in plan.steps.iter().enumerate() {
        let tool = actions.flow.registry().tool_of(permit.tenant(), &step.tool).ok_or_else(|| {
            let body = ErrorBody::new(Code::ValidationFailed, flow::no_tool(&actions.flow, permit, &step.tool));
            body.with("pointer", format!("/steps/{at}/tool")).with("missing_tool", step.tool.as_str())
        })?;
        tools.push(Arc::clone(tool.spec()));
    }
    let compiled = plan.compile(PLAN_PREFIX);
    for (at, (step, tool)) in plan.steps.iter().zip(&tools).enumerate() {
        if compiled.inputs.get(&step.id).is_some() {
            tool.input.check(&step.input).map_err(|faults| {
                let message = format!("the input does not match the schema of {}", step.tool);
                ErrorBody::new(Code::ValidationFailed, message)
                    .with("pointer", format!("/steps/{at}/input"))
                    .with("faults", serde_json::to_value(faults).unwrap_or_default())
            })?;
        }
    }
    let (workflow_id, inputs) = (compiled.workflow_id, compiled.inputs);
    let (stored, graph) = actions.flow.workflows().plan(permit, &workflow_id, &compiled.document).await?;
    check_same_tools(&tools, &graph)?;
    Ok(Proposal { plan, tools, workflow_id, stored, graph, inputs, inside: ChildWorkflows::default(), digests: None })
}

pub(super) async fn propose_workflow(
    actions: &Actions,
    permit: &Permit,
    id: &str,
    version: Option<i64>,
    inputs: &Value,
) -> Result<Proposal, EngineError> {
    // A stored plan can't be run by name: its author would not count as a contributor.
    let found = match id.starts_with(PLAN_PREFIX) {
        true => None,
        false => flow::find_workflow(actions.flow.workflows(), permit.tenant(), id, version).await?,
    };
    let Some(found) = found else {
        return Err(flow::unknown_workflow(actions.flow.workflows(), permit, id, version).await);
    };
    let pins = Pins::default();
    let proposal = propose_graph(actions, permit, GraphToRun { id, graph: &found.graph, inputs, pins: &pins }).await?;
    Ok(Proposal { stored: Some(found), ..proposal })
}

/// The proposal for running a graph.
pub(super) async fn propose_graph(
    actions: &Actions,
    permit: &Permit,
    to_run: GraphToRun<'_>,
) -> Result<Proposal, EngineError> {
    let GraphToRun { id, graph, inputs, pins } = to_run;
    let inside = flow::children_of(actions.flow.workflows(), permit.tenant(), graph, pins).await?;
    let children = &inside.children;
    let may_take_long = graph.may_take_long || children.values().any(|child| child.may_take_long);
    let work_slot = actions.flow.acquire_work_slot(&permit.claimant(), may_take_long).await?;
    let plan = work_slot.run(|| expand(graph, inputs, children));
    let tools: Vec<Arc<Spec>> = tools_of(graph).chain(children.values().flat_map(|child| tools_of(child))).collect();
    let inputs = inputs.clone();
    let within: Vec<_> = children.iter().map(|(asked, child)| json!([asked, child.digest])).collect();
    let digests = Some((graph.digest, (!within.is_empty()).then(|| Digest32::of(&json!(within)))));
    let graph = Arc::clone(graph);
    Ok(Proposal { plan, tools, workflow_id: id.to_owned(), stored: None, graph, inputs, inside, digests })
}

/// Refuses a plan whose tools were changed between two looks at them: what is evaluated is what runs.
fn check_same_tools(tools: &[Arc<Spec>], graph: &Graph) -> Result<(), EngineError> {
    for tool in tools {
        let mut compiled = graph.nodes.iter().filter_map(|node| node.tool.as_ref());
        if compiled.any(|compiled| compiled.name == tool.name && compiled.version != tool.version) {
            let message = format!("{} changed while the request was being checked; try again", tool.name);
            return Err(EngineError::refused(Code::OccConflict, message));
        }
    }
    Ok(())
}

/// The plan for explicit steps.
fn plan_of_steps(steps: Vec<(String, Value)>) -> Result<Plan, EngineError> {
    if !(1..=PLAN_STEPS_MAX).contains(&steps.len()) {
        let message = format!("a plan must have 1 to {PLAN_STEPS_MAX} steps");
        return Err(ErrorBody::new(Code::ValidationFailed, message).with("pointer", "/steps").into());
    }
    let step = |(at, (tool, input))| PlanStep { id: format!("s{}", at + 1), tool, input };
    Ok(Plan { steps: steps.into_iter().enumerate().map(step).collect(), more: false })
}

fn tools_of(graph: &Graph) -> impl Iterator<Item = Arc<Spec>> {
    graph.nodes.iter().filter_map(|node| node.tool.clone())
}

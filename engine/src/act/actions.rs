//! Starting actions: an authenticated caller asks for something to be done.
//!
//! Checks run in a fixed order: actor, idempotency key, plan, scopes, risk and level, rules, notification targets, then the run with its
//! limits. A refusal
//! starts no run and leaves a ledger entry; the stored plan may stay.

use super::idempotency::{KeyState, RequestKey};
use crate::access::{AUTONOMY_OVERRIDE, Access, Permit, missing_scope_error};
use crate::act::port::Planner;
use crate::error::EngineError;
use crate::flow::view::RiskView;
use crate::flow::{
    ChildWorkflows, Flow, FoundWorkflow, PLAN_PREFIX, ResolvedWorkflow, RunHandle, RunKey, StartRun, check_inputs,
    named,
};
use chimera_core::access::{Level, TenantSettings};
use chimera_core::act::{AutonomyFacts, determine_autonomy_level, risk};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::air::Graph;
use chimera_core::flow::pins::Pins;
use chimera_core::flow::plan::{Plan, PlanStep};
use chimera_core::flow::policy::{Action, Because, LevelDecision, PolicyVerdict};
use chimera_core::flow::risk::Score;
use chimera_core::flow::run::{RunStatus, Source};
use chimera_core::flow::tables::{RunRisk, runs};
use chimera_core::flow::trace::SpanId;
use chimera_core::json::Digest32;
use chimera_core::limits::{FIRST_TIME_RUNS_MAX, PLAN_STEPS_MAX};
use chimera_core::record::{Direction, Json, JsonError, Scope, StoredRow, Tx, Value as Cell};
use chimera_core::tool::{CallClass, Spec};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// The member of a run's risk document with the digest of its child workflows.
const WITHIN_DIGEST: &str = "within_digest";

#[derive(Clone, Debug)]
pub enum Objective {
    /// A goal in natural language.
    Goal {
        goal: String,
        /// Values that the goal leaves open.
        inputs: Value,
    },
    Workflow {
        id: String,
        /// `None`: the newest.
        version: Option<i64>,
        inputs: Value,
    },
    /// Sequential tool calls: tool name and input.
    Steps(Vec<(String, Value)>),
}

/// A request to act.
#[derive(Clone, Debug)]
pub struct ActRequest {
    /// Must match the token if given.
    pub actor: Option<String>,
    pub what: Objective,
    /// The requested autonomy level.
    pub level: Option<Level>,
    /// Only simulate.
    pub dry_run: bool,
    pub key: Option<RequestKey>,
    pub notify: Option<Value>,
    /// 1 is the most urgent, 10 the least.
    pub priority: Option<i32>,
    /// The caller's own id.
    pub correlation_id: Option<String>,
    /// Also the trace id.
    pub run_id: Option<Uuid>,
    pub parent_span: Option<SpanId>,
    /// The request without what differs between retries, masked.
    pub request: Arc<Value>,
    /// Rows and ledger entries that commit with the run, or not at all.
    pub alongside: Tx,
}

impl ActRequest {
    /// A request with default options. `request` is the document that is stored with the run.
    #[must_use]
    pub fn of(what: Objective, request: Value) -> Self {
        Self {
            actor: None,
            what,
            level: None,
            dry_run: false,
            key: None,
            notify: None,
            priority: None,
            correlation_id: None,
            run_id: None,
            parent_span: None,
            request: Arc::new(request),
            alongside: Tx::default(),
        }
    }
}

/// The result of an action request.
pub enum ActOutcome {
    Started(Box<StartedAction>),
    /// The key was already used, and the caller wants the existing run.
    Duplicate {
        run: Uuid,
        /// The earlier request was different.
        differs: bool,
    },
}

pub struct StartedAction {
    pub started: RunHandle,
    pub plan: Plan,
    pub risk: RiskView,
    pub dry_run: bool,
}

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

/// What a request itself says about the level. The default says nothing.
#[derive(Clone, Copy, Default)]
pub(super) struct LevelRequest<'a> {
    level: Option<Level>,
    /// Whom it wants notified.
    notify: Option<&'a Value>,
}

impl<'a> LevelRequest<'a> {
    const fn of(ask: &'a ActRequest) -> Self {
        Self { level: ask.level, notify: ask.notify.as_ref() }
    }
}

/// A proposal that may start at this level.
struct AssessedProposal {
    proposal: Proposal,
    level: Level,
    /// The risk document that the run stores.
    risk: Arc<Value>,
}

/// Starts and changes runs for authenticated callers.
pub struct Actions {
    pub(super) access: Arc<Access>,
    pub(super) flow: Flow,
    planner: Arc<dyn Planner>,
    pub(super) keys: KeyState,
}

/// A plan with everything needed to decide on it.
pub(super) struct Proposal {
    pub(super) plan: Plan,
    pub(super) tools: Vec<Arc<Spec>>,
    workflow_id: String,
    /// `None`: a plan that is not stored yet, or the graph of an existing run.
    stored: Option<FoundWorkflow>,
    graph: Arc<Graph>,
    inputs: Value,
    pub(super) inside: ChildWorkflows,
    /// Digests of the workflow and of its child workflows; `None` for a plan, whose name is its digest.
    digests: Option<(Digest32, Option<Digest32>)>,
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
        let mut told = serde_json::to_value(score).unwrap_or_default();
        told["level_because"] = because.as_str().into();
        told["calls"] = self.plan.calls().into();
        if let Some((_, Some(within))) = self.digests {
            told[WITHIN_DIGEST] = within.to_string().into();
        }
        Arc::new(told)
    }

    /// Whether a call deletes something. A tool without visible calls is assumed to do its worst.
    fn deletes(&self) -> bool {
        let call = |tool: &Spec, input: &Value| tool.call_class(input) == CallClass::Delete;
        self.calls().any(|(tool, input)| call(tool, input))
            || self.tools_without_calls().any(|tool| call(tool, &Value::Null))
    }

    /// Whether a message goes to somebody outside the tenant's domains.
    fn messages_outsiders(&self, tenant: &TenantSettings) -> bool {
        let outside = |tool: &Spec, input: &Value| tenant.messages_outsiders(tool, input);
        self.calls().any(|(tool, input)| outside(tool, input))
            || self.tools_without_calls().any(|tool| outside(tool, &Value::Null))
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

impl Actions {
    #[must_use]
    pub fn new(access: Arc<Access>, flow: Flow, planner: Arc<dyn Planner>) -> Self {
        Self { access, flow, planner, keys: KeyState::default() }
    }

    #[must_use]
    pub const fn access(&self) -> &Arc<Access> {
        &self.access
    }

    /// Runs a piece of a request's work. CPU-heavy work does not block other requests.
    pub async fn work<T>(
        &self,
        permit: &Permit,
        may_take_long: bool,
        work: impl FnOnce() -> T,
    ) -> Result<T, EngineError> {
        Ok(self.flow.acquire_work_slot(&permit.claimant(), may_take_long).await?.run(work))
    }

    /// Executes a request.
    pub async fn act(&self, permit: &Permit, mut ask: ActRequest) -> Result<ActOutcome, EngineError> {
        if let Some(actor) = ask.actor.as_deref().filter(|actor| *actor != permit.actor()) {
            let message = format!("the token belongs to {}, not to {actor}", permit.actor());
            return Err(ErrorBody::new(Code::RbacForbidden, message).with("pointer", "/actor").into());
        }
        match ask.key.take() {
            Some(key) => self.handle_idempotency(permit, key, ask).await,
            None => self.attempt(permit, ask, None).await,
        }
    }

    /// Plans, checks and starts.
    pub(super) async fn attempt(
        &self,
        permit: &Permit,
        mut ask: ActRequest,
        key: Option<RunKey>,
    ) -> Result<ActOutcome, EngineError> {
        // The proposal has the inputs: large ones are not kept twice.
        let what = std::mem::replace(&mut ask.what, Objective::Steps(Vec::new()));
        let proposal = self.propose(permit, what).await?;
        self.check_scopes(permit, &proposal)?;
        let score = proposal.score();
        let LevelDecision { level, reason: because } =
            self.level(permit, &proposal, &score, LevelRequest::of(&ask)).await?;
        self.check_policy(permit, &proposal, level)?;
        self.flow.check_notify(permit, level, ask.notify.as_ref())?;
        let risk = proposal.risk_document(&score, because);
        self.execute_with_autonomy(permit, ask, key, AssessedProposal { proposal, level, risk }).await
    }

    /// Refuses a workflow that the caller could not start now with these inputs. Level and rules are decided when it is
    /// started.
    pub(super) async fn check_startable(
        &self,
        permit: &Permit,
        id: &str,
        version: Option<i64>,
        inputs: &Value,
    ) -> Result<(), EngineError> {
        let proposal = self.propose_workflow(permit, id, version, inputs).await?;
        self.check_scopes(permit, &proposal)?;
        check_inputs(&proposal.graph, inputs)
    }

    /// Turns any kind of request into a proposal.
    async fn propose(&self, permit: &Permit, what: Objective) -> Result<Proposal, EngineError> {
        let plan = match what {
            Objective::Workflow { id, version, inputs } => {
                return self.propose_workflow(permit, &id, version, &inputs).await;
            }
            Objective::Goal { goal, inputs } => {
                let tools = self.flow.registry().specs_of(permit.tenant());
                self.planner.plan(&goal, &inputs, &tools).await.map_err(|error| error.body())?
            }
            Objective::Steps(steps) => plan_of_steps(steps)?,
        };
        let mut tools = Vec::with_capacity(plan.steps.len());
        for (at, step) in plan.steps.iter().enumerate() {
            let tool = self.flow.registry().tool_of(permit.tenant(), &step.tool).ok_or_else(|| {
                let body = ErrorBody::new(Code::ValidationFailed, self.flow.no_tool(permit, &step.tool));
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
        let (stored, graph) = self.flow.workflows().plan(permit, &workflow_id, &compiled.document).await?;
        check_same_tools(&tools, &graph)?;
        Ok(Proposal {
            plan,
            tools,
            workflow_id,
            stored,
            graph,
            inputs,
            inside: ChildWorkflows::default(),
            digests: None,
        })
    }

    async fn propose_workflow(
        &self,
        permit: &Permit,
        id: &str,
        version: Option<i64>,
        inputs: &Value,
    ) -> Result<Proposal, EngineError> {
        // A stored plan can't be run by name: its author would not count as a contributor.
        let found = match id.starts_with(PLAN_PREFIX) {
            true => None,
            false => self.flow.workflows().find(permit.tenant(), id, version).await?,
        };
        let Some(found) = found else { return Err(self.flow.workflows().unknown(permit, id, version).await) };
        let pins = Pins::default();
        let proposal = self.propose_graph(permit, GraphToRun { id, graph: &found.graph, inputs, pins: &pins }).await?;
        Ok(Proposal { stored: Some(found), ..proposal })
    }

    /// The proposal for running a graph.
    pub(super) async fn propose_graph(&self, permit: &Permit, to_run: GraphToRun<'_>) -> Result<Proposal, EngineError> {
        let GraphToRun { id, graph, inputs, pins } = to_run;
        let inside = self.flow.workflows().children_of(permit.tenant(), graph, pins).await?;
        let children = &inside.children;
        let may_take_long = graph.may_take_long || children.values().any(|child| child.may_take_long);
        let work_slot = self.flow.acquire_work_slot(&permit.claimant(), may_take_long).await?;
        let plan = work_slot.run(|| Plan::from_graph(graph, inputs, children));
        let tools: Vec<Arc<Spec>> =
            tools_of(graph).chain(children.values().flat_map(|child| tools_of(child))).collect();
        let inputs = inputs.clone();
        let within: Vec<_> = children.iter().map(|(asked, child)| json!([asked, child.digest])).collect();
        let digests = Some((graph.digest, (!within.is_empty()).then(|| Digest32::of(&json!(within)))));
        let graph = Arc::clone(graph);
        Ok(Proposal { plan, tools, workflow_id: id.to_owned(), stored: None, graph, inputs, inside, digests })
    }

    pub(super) fn check_scopes(&self, permit: &Permit, proposal: &Proposal) -> Result<(), EngineError> {
        for tool in &proposal.tools {
            if let Some(missing) = permit.missing_scope(tool) {
                let at = proposal.plan.steps.iter().position(|step| step.tool == tool.name);
                let mut body = missing_scope_error(missing).with("tool", tool.name.as_str());
                if let Some(at) = at {
                    body = body.with("pointer", format!("/steps/{at}"));
                }
                return Err(body.into());
            }
        }
        Ok(())
    }

    pub(super) async fn level(
        &self,
        permit: &Permit,
        proposal: &Proposal,
        score: &Score,
        request: LevelRequest<'_>,
    ) -> Result<LevelDecision, EngineError> {
        let tools: Vec<&Spec> = proposal.tools.iter().map(|tool| &**tool).collect();
        let tenant = self.access.directory.tenant(permit.tenant());
        let told = request.notify.into_iter().flat_map(named);
        let mut strangers = told.filter(|(channel, target)| self.flow.is_unregistered(permit, channel, target));
        let cautious = self.access.directory.settings.cautious;
        let facts = AutonomyFacts {
            actor: permit.actor(),
            default: permit.level(),
            may_override: permit.may(AUTONOMY_OVERRIDE),
            requested: request.level,
            tools: &tools,
            deletes: proposal.deletes(),
            messages_outsiders: proposal.messages_outsiders(tenant)
                || strangers.any(|(_, target)| tenant.is_outside(target)),
            steps: proposal.plan.calls(),
            score,
            cautious,
            first_time: cautious && self.is_first_time(permit, proposal).await?,
        };
        Ok(determine_autonomy_level(&facts).map_err(|forbidden| {
            missing_scope_error(AUTONOMY_OVERRIDE)
                .with("asked", forbidden.asked.as_str())
                .with("granted", forbidden.granted.as_str())
                .with("pointer", "/autonomy_level")
        })?)
    }

    /// Whether the actor never completed exactly this: the same workflow with the same child workflows.
    async fn is_first_time(&self, permit: &Permit, proposal: &Proposal) -> Result<bool, EngineError> {
        let mut select = RunRisk::select(Scope::Tenant(permit.tenant().to_owned()))
            .by(&[], Direction::Descending)
            .with(runs::actor, permit.actor())
            .with(runs::workflow_id, proposal.workflow_id.as_str())
            .with(runs::status, RunStatus::Completed)
            .with(runs::dry_run, false)
            .with(runs::replay_of, Cell::Null);
        let mut within = None;
        if let Some((own, inside)) = proposal.digests {
            select = select.with(runs::workflow_digest, Cell::Bytes(own.to_vec()));
            within = inside;
        }
        let Some(within) = within.map(|digest| Value::from(digest.to_string())) else {
            return Ok(self.access.directory.parts.records.read(select.take(1)).await?.rows.is_empty());
        };
        let (done, _) = self.access.directory.parts.records.first(select, FIRST_TIME_RUNS_MAX).await?;
        for row in done {
            let risk = RunRisk::decode(row)?.risk.as_ref().map(Json::value).transpose()?;
            if risk.is_some_and(|risk| risk[WITHIN_DIGEST] == within) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Refuses what the rules deny, before anything is written.
    pub(super) fn check_policy(&self, permit: &Permit, proposal: &Proposal, level: Level) -> Result<(), EngineError> {
        for (at, step) in proposal.plan.steps.iter().enumerate() {
            let Some(tool) = proposal.tools.iter().find(|tool| tool.name == step.tool) else { continue };
            let action = Action {
                tenant: permit.tenant(),
                actor: permit.actor(),
                level,
                node: &step.id,
                tool,
                input: &step.input,
            };
            if let PolicyVerdict::Deny { rule, reason } = self.flow.judge(&action) {
                let body = ErrorBody::new(Code::PolicyDenied, reason).with("rule", rule);
                return Err(body.with("pointer", format!("/steps/{at}")).with("tool", step.tool.as_str()).into());
            }
        }
        Ok(())
    }

    /// Starts the run. At L0 and L1 it waits for approval, at L2 and L3 it proceeds.
    async fn execute_with_autonomy(
        &self,
        permit: &Permit,
        ask: ActRequest,
        key: Option<RunKey>,
        assessed: AssessedProposal,
    ) -> Result<ActOutcome, EngineError> {
        let AssessedProposal { proposal, level, risk } = assessed;
        let assessed = RiskView::deserialize(&*risk).map_err(JsonError::Serialise)?;
        let workflow = match proposal.stored {
            Some(stored) => stored,
            None => self.flow.workflows().store_plan(permit, proposal.graph).await?,
        };
        let run_id = ask
            .run_id
            .unwrap_or_else(|| self.access.directory.parts.random.row_id(self.access.directory.parts.clock.now()));
        let shared = self.access.directory.tenant(permit.tenant()).notify.as_ref();
        let own = permit.notify().or(shared).filter(|_| level != Level::ExecuteSilent).cloned();
        let start = StartRun {
            looked_up: Some(ResolvedWorkflow { workflow, inside: proposal.inside }),
            level,
            dry_run: ask.dry_run,
            source: Source::Act,
            request: Some(ask.request),
            risk: Some(risk),
            idempotency_key: key,
            correlation_id: ask.correlation_id,
            notify: ask.notify.or(own),
            run_id: Some(run_id),
            parent_span: ask.parent_span,
            priority: ask.priority.unwrap_or(chimera_core::limits::PRIORITY_DEFAULT),
            ..StartRun::of(proposal.workflow_id, proposal.inputs)
        };
        let started = self.start_claimed(permit, start, &ask.alongside).await?;
        let begun = StartedAction { started, plan: proposal.plan, risk: assessed, dry_run: ask.dry_run };
        Ok(ActOutcome::Started(Box::new(begun)))
    }
}

/// Refuses a plan whose tools were changed between two looks at them: what is judged is what runs.
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

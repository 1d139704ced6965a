//! Acting: somebody who was let in asks for something to be done.
//!
//! The checks come in one order: the actor, the key, the plan, its scopes, its risk and level, then the
//! run. Whatever is refused leaves an entry in the ledger and nothing else.

use super::idempotency::{Asked, Claimed, RecentKeys, check_key, duplicate};
use crate::access::{AUTONOMY_OVERRIDE, Access, Permit, lacking};
use crate::act::port::Planner;
use crate::error::EngineError;
use crate::flow::error::no_workflow;
use crate::flow::{Flow, Inside, LookedUp, PLAN_PREFIX, StartRun, Started, named};
use chimera_core::access::{Level, Tenant};
use chimera_core::act::{Facts, determine_autonomy_level, risk};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::air::Graph;
use chimera_core::flow::pins::Pins;
use chimera_core::flow::plan::{Plan, PlanStep};
use chimera_core::flow::policy::{Action, Because, Decided, PolicyVerdict};
use chimera_core::flow::risk::Score;
use chimera_core::flow::run::Source;
use chimera_core::flow::tables::RUNS;
use chimera_core::flow::trace::SpanId;
use chimera_core::json::Digest32;
use chimera_core::limits::{FIRST_TIME_RUNS_MAX, PLAN_STEPS_MAX};
use chimera_core::record::{Direction, Json, Row, Scope, Select, Value as Cell};
use chimera_core::tool::{Class, Spec};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// The member of a run's risk that says which workflows it had within.
const WITHIN_DIGEST: &str = "within_digest";

/// What is wanted.
#[derive(Clone, Debug)]
pub enum What {
    /// Something in words.
    Goal {
        /// The words.
        goal: String,
        /// Values that the words leave open.
        inputs: Value,
    },
    /// A workflow.
    Workflow {
        /// Its id.
        id: String,
        /// Its version; the newest when absent.
        version: Option<i64>,
        /// What it works on.
        inputs: Value,
    },
    /// Calls of tools, one after the other: the tool's name and its input.
    Steps(Vec<(String, Value)>),
}

/// What is answered when the key was used before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDuplicate {
    /// A conflict that names the run.
    #[default]
    Conflict,
    /// The run.
    Return,
}

/// A request to act.
#[derive(Clone, Debug)]
pub struct Act {
    /// Whom the request names.
    pub actor: Option<String>,
    /// What is wanted.
    pub what: What,
    /// The level that it asks for.
    pub level: Option<Level>,
    /// Only what it would do is wanted.
    pub dry_run: bool,
    /// The key under which it is asked for.
    pub idempotency_key: Option<String>,
    /// What is answered when the key was used before.
    pub on_duplicate: OnDuplicate,
    /// Who is told.
    pub notify: Option<Value>,
    /// One is most urgent, ten least.
    pub priority: Option<i32>,
    /// The caller's own id for it.
    pub correlation_id: Option<String>,
    /// The run's id, and so its trace.
    pub run_id: Option<Uuid>,
    /// The span of the request.
    pub parent_span: Option<SpanId>,
    /// The request as it came, without what is different each time, and masked.
    pub request: Arc<Value>,
    /// The digest of the same before it was masked, if that is known.
    pub unmasked: Option<Digest32>,
}

/// What became of a request to act.
pub enum Acted {
    /// A run was started.
    Started(Box<Begun>),
    /// The key was used before, and the caller wants the run.
    Duplicate {
        /// The run.
        run: Uuid,
        /// Something else was asked for then.
        differs: bool,
    },
}

/// A run that was started.
pub struct Begun {
    /// The run.
    pub started: Started,
    /// What it does.
    pub plan: Plan,
    /// How risky that looked.
    pub risk: Arc<Value>,
    /// Only what it would do was wanted.
    pub dry_run: bool,
}

/// Starts runs and changes them, for whoever was let in.
pub struct Actions {
    pub(super) access: Arc<Access>,
    pub(super) flow: Flow,
    planner: Arc<dyn Planner>,
    pub(super) recent_keys: RecentKeys,
}

/// A plan with all that a decision about it needs.
pub(super) struct Proposal {
    pub(super) plan: Plan,
    pub(super) tools: Vec<Arc<Spec>>,
    workflow_id: String,
    /// None: it is a plan that is not stored yet, or what became of a run.
    version: Option<i64>,
    graph: Arc<Graph>,
    inputs: Value,
    pub(super) inside: Inside,
    /// Digests of the workflow and of all within it; nothing of a plan, whose name says what it does.
    digests: Option<(Digest32, Option<Digest32>)>,
}

impl Proposal {
    /// Leaves what a replay without effects really calls: what reads, and not within workflows within.
    pub(super) fn retain_reads(&mut self) {
        let tools = &self.tools;
        let reads = |step: &PlanStep| tools.iter().any(|tool| tool.name == step.tool && tool.may_read(&step.input));
        self.plan.steps.retain(|step| !step.id.contains('/') && reads(step));
        let plan = &self.plan;
        self.tools.retain(|tool| plan.more || plan.steps.iter().any(|step| step.tool == tool.name));
    }

    /// Its score and what decided its level, as the run keeps them.
    pub(super) fn told(&self, score: &Score, because: Because) -> Arc<Value> {
        let mut told = serde_json::to_value(score).unwrap_or_default();
        told["level_because"] = because.as_str().into();
        told["calls"] = self.plan.calls().into();
        if let Some((_, Some(within))) = self.digests {
            told[WITHIN_DIGEST] = within.to_string().into();
        }
        Arc::new(told)
    }

    /// Whether a call of it deletes something. A tool none of whose calls is shown is taken for the worst.
    fn deletes(&self) -> bool {
        let call = |tool: &Spec, input: &Value| tool.class_of(input) == Class::Delete;
        self.calls().any(|(tool, input)| call(tool, input)) || self.unseen().any(|tool| call(tool, &Value::Null))
    }

    /// Whether somebody outside the tenant's domains gets a message.
    fn writes_outside(&self, tenant: &Tenant) -> bool {
        let outside = |tool: &Spec, input: &Value| tenant.is_written_outside(tool, input);
        self.calls().any(|(tool, input)| outside(tool, input)) || self.unseen().any(|tool| outside(tool, &Value::Null))
    }

    fn calls(&self) -> impl Iterator<Item = (&Spec, &Value)> {
        let tool = |name: &str| self.tools.iter().find(|tool| tool.name == name);
        self.plan.steps.iter().filter_map(move |step| Some((&**tool(&step.tool)?, &step.input)))
    }

    /// Tools of which there may be calls that the plan does not show.
    fn unseen(&self) -> impl Iterator<Item = &Spec> {
        let shown = |tool: &Arc<Spec>| self.plan.steps.iter().any(|step| step.tool == tool.name);
        self.tools.iter().filter(move |tool| self.plan.more || !shown(tool)).map(|tool| &**tool)
    }

    /// How risky it looks.
    pub(super) fn score(&self) -> Score {
        risk::score(&self.plan, &|name: &str| self.tools.iter().find(|tool| tool.name == name).cloned())
    }
}

impl Actions {
    /// Actions on a flow engine.
    #[must_use]
    pub fn new(access: Arc<Access>, flow: Flow, planner: Arc<dyn Planner>) -> Self {
        Self { access, flow, planner, recent_keys: RecentKeys::default() }
    }

    /// Who there is, and who is let in.
    #[must_use]
    pub const fn access(&self) -> &Arc<Access> {
        &self.access
    }

    /// Does work for a request; what may keep a processor busy holds up nobody else.
    pub async fn work<T>(
        &self,
        permit: &Permit,
        may_take_long: bool,
        work: impl FnOnce() -> T,
    ) -> Result<T, EngineError> {
        Ok(self.flow.place_to_work(&permit.claimant(), may_take_long).await?.run(work))
    }

    /// Does what somebody asks for, or says why not.
    pub async fn act(&self, permit: &Permit, ask: Act) -> Result<Acted, EngineError> {
        if let Some(actor) = ask.actor.as_deref().filter(|actor| *actor != permit.actor()) {
            let message = format!("the token is of {}, not of {actor}", permit.actor());
            return Err(ErrorBody::new(Code::RbacForbidden, message).with("pointer", "/actor").into());
        }
        let Some(key) = ask.idempotency_key.clone() else { return self.attempt(permit, ask).await };
        check_key(&key)?;
        let mut ask = ask;
        self.seal_request(permit, &mut ask);
        let asked = Asked { request: Arc::clone(&ask.request), on_duplicate: ask.on_duplicate };
        let costly = matches!(ask.what, What::Goal { .. });
        let turn = self.recent_keys.turn(permit, &key).await;
        if (turn.again || costly)
            && let (true, Some(row)) = self.handle_idempotency(permit, &key).await?
        {
            return duplicate(&row, &asked);
        }
        match self.attempt(permit, ask).await {
            // A used key comes before whatever else is wrong; and the store refuses a second run.
            Err(error) if error.is_refusal() => match self.handle_idempotency(permit, &key).await? {
                (true, Some(row)) => duplicate(&row, &asked),
                _ => Err(error),
            },
            acted => acted,
        }
    }

    /// Plans, decides and starts, as long as nothing speaks against it.
    async fn attempt(&self, permit: &Permit, ask: Act) -> Result<Acted, EngineError> {
        let proposal = self.propose(permit, &ask).await?;
        self.check_scopes(permit, &proposal)?;
        let score = proposal.score();
        let Decided { level, because } = self.level(permit, ask.level, &proposal, &score, ask.notify.as_ref()).await?;
        self.check_policy(permit, &proposal, level)?;
        self.flow.check_notify(permit, level, ask.notify.as_ref())?;
        let risk = proposal.told(&score, because);
        self.execute_with_autonomy(permit, ask, proposal, level, risk).await
    }

    /// The plan, whatever it was asked for as.
    async fn propose(&self, permit: &Permit, ask: &Act) -> Result<Proposal, EngineError> {
        let plan = match &ask.what {
            What::Workflow { id, version, inputs } => return self.of_workflow(permit, id, *version, inputs).await,
            What::Goal { goal, inputs } => {
                let tools: Vec<Arc<Spec>> = self.flow.registry().specs_of(permit.tenant()).cloned().collect();
                self.planner.plan(goal, inputs, &tools).await.map_err(|error| error.body())?
            }
            What::Steps(steps) => explicit(steps)?,
        };
        let mut tools = Vec::with_capacity(plan.steps.len());
        for (at, step) in plan.steps.iter().enumerate() {
            let tool = self.flow.registry().tool_of(permit.tenant(), &step.tool).ok_or_else(|| {
                let body = ErrorBody::new(Code::ValidationFailed, format!("there is no tool {}", step.tool));
                body.with("pointer", format!("/steps/{at}/tool")).with("missing_tool", step.tool.as_str())
            })?;
            tools.push(Arc::clone(tool.spec()));
        }
        let compiled = plan.compile(PLAN_PREFIX);
        for (at, (step, tool)) in plan.steps.iter().zip(&tools).enumerate() {
            if compiled.inputs.get(&step.id).is_some() {
                tool.input.check(&step.input).map_err(|faults| {
                    let message = format!("{} does not take this input", step.tool);
                    ErrorBody::new(Code::ValidationFailed, message)
                        .with("pointer", format!("/steps/{at}/input"))
                        .with("faults", serde_json::to_value(faults).unwrap_or_default())
                })?;
            }
        }
        let (workflow_id, inputs) = (compiled.workflow_id, compiled.inputs);
        let (version, graph) = self.flow.workflows().plan(permit, &workflow_id, &compiled.document).await?;
        Ok(Proposal { plan, tools, workflow_id, version, graph, inputs, inside: Inside::default(), digests: None })
    }

    async fn of_workflow(
        &self,
        permit: &Permit,
        id: &str,
        version: Option<i64>,
        inputs: &Value,
    ) -> Result<Proposal, EngineError> {
        // A plan is for whoever asks for it: run by name, its author would be nobody who had a part in it.
        let found = match id.starts_with(PLAN_PREFIX) {
            true => None,
            false => self.flow.workflows().find(permit.tenant(), id, version).await?,
        };
        let (version, graph) = found.ok_or_else(|| no_workflow(id, version))?;
        self.laid_out(permit, &graph, (id, Some(version)), inputs, &Pins::default()).await
    }

    /// What a run of a graph would do.
    pub(super) async fn laid_out(
        &self,
        permit: &Permit,
        graph: &Arc<Graph>,
        (id, version): (&str, Option<i64>),
        inputs: &Value,
        pins: &Pins,
    ) -> Result<Proposal, EngineError> {
        let inside = self.flow.workflows().inside(permit.tenant(), graph, pins).await?;
        let children = &inside.children;
        let may_take_long = graph.may_take_long || children.values().any(|child| child.may_take_long);
        let place = self.flow.place_to_work(&permit.claimant(), may_take_long).await?;
        let plan = place.run(|| Plan::of_graph(graph, inputs, children));
        let tools: Vec<Arc<Spec>> =
            tools_of(graph).chain(children.values().flat_map(|child| tools_of(child))).collect();
        let inputs = inputs.clone();
        let within: Vec<_> = children.iter().map(|(asked, child)| json!([asked, child.digest])).collect();
        let digests = Some((graph.digest, (!within.is_empty()).then(|| Digest32::of(&json!(within)))));
        let graph = Arc::clone(graph);
        Ok(Proposal { plan, tools, workflow_id: id.to_owned(), version, graph, inputs, inside, digests })
    }

    pub(super) fn check_scopes(&self, permit: &Permit, proposal: &Proposal) -> Result<(), EngineError> {
        for tool in &proposal.tools {
            if let Some(missing) = permit.missing(tool) {
                let at = proposal.plan.steps.iter().position(|step| step.tool == tool.name);
                let mut body = lacking(missing).with("tool", tool.name.as_str());
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
        requested: Option<Level>,
        proposal: &Proposal,
        score: &Score,
        notify: Option<&Value>,
    ) -> Result<Decided, EngineError> {
        let tools: Vec<&Spec> = proposal.tools.iter().map(|tool| &**tool).collect();
        let tenant = self.access.directory.tenant(permit.tenant());
        let told = notify.into_iter().flat_map(named);
        let mut strangers = told.filter(|(channel, target)| self.flow.is_stranger(permit, channel, target));
        let cautious = self.access.directory.settings.cautious;
        let facts = Facts {
            actor: permit.actor(),
            default: permit.level(),
            may_override: permit.may(AUTONOMY_OVERRIDE),
            requested,
            tools: &tools,
            deletes: proposal.deletes(),
            outsiders: proposal.writes_outside(tenant) || strangers.any(|(_, target)| tenant.is_outside(target)),
            steps: proposal.plan.calls(),
            score,
            cautious,
            first_time: cautious && self.is_first_time(permit, proposal).await?,
        };
        Ok(determine_autonomy_level(&facts).map_err(|forbidden| {
            lacking(AUTONOMY_OVERRIDE)
                .with("asked", forbidden.asked.as_str())
                .with("granted", forbidden.granted.as_str())
                .with("pointer", "/autonomy_level")
        })?)
    }

    /// Whether the actor never had exactly this done: the same document, with the same workflows within.
    async fn is_first_time(&self, permit: &Permit, proposal: &Proposal) -> Result<bool, EngineError> {
        let mut select = Select::from(&RUNS, Scope::Tenant(permit.tenant().to_owned()))
            .by(&[], Direction::Descending)
            .with("actor", permit.actor())
            .with("workflow_id", proposal.workflow_id.as_str())
            .with("status", "completed")
            .with("dry_run", false)
            .with("replay_of", Cell::Null);
        let mut within = None;
        if let Some((own, inside)) = proposal.digests {
            select = select.with("workflow_digest", Cell::Bytes(own.to_vec()));
            within = inside;
        }
        let Some(within) = within.map(|digest| Value::from(digest.to_string())) else {
            return Ok(self.access.directory.parts.records.read(select.take(1)).await?.rows.is_empty());
        };
        let select = select.without(&["request_payload", "inputs", "result", "plan"]);
        let (done, _) = self.access.directory.parts.records.first(select, FIRST_TIME_RUNS_MAX).await?;
        let risk = |row: &Row| row.get("risk").as_json().map(Json::to_value).unwrap_or_default();
        Ok(!done.iter().any(|row| risk(row)[WITHIN_DIGEST] == within))
    }

    /// What the rules forbid is refused before anything is written.
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

    /// Starts the run that does it: at L0 and L1 it waits for people, at L2 and L3 it goes on by itself.
    async fn execute_with_autonomy(
        &self,
        permit: &Permit,
        ask: Act,
        proposal: Proposal,
        level: Level,
        risk: Arc<Value>,
    ) -> Result<Acted, EngineError> {
        let version = match proposal.version {
            Some(version) => version,
            None => self.flow.workflows().keep_plan(permit, &proposal.workflow_id, &proposal.graph).await?,
        };
        let run_id = ask
            .run_id
            .unwrap_or_else(|| self.access.directory.parts.random.row_id(self.access.directory.parts.clock.now()));
        let shared = self.access.directory.tenant(permit.tenant()).notify.as_ref();
        let own = permit.notify().or(shared).filter(|_| level != Level::ExecuteSilent).cloned();
        let start = StartRun {
            version: Some(version),
            looked_up: Some(LookedUp { version, graph: proposal.graph, inside: proposal.inside }),
            level,
            dry_run: ask.dry_run,
            source: Source::Act,
            request: Some(ask.request),
            risk: Some(Arc::clone(&risk)),
            idempotency_key: ask.idempotency_key.as_deref().map(|key| self.run_key(permit, key)),
            correlation_id: ask.correlation_id,
            notify: ask.notify.or(own),
            run_id: Some(run_id),
            parent_span: ask.parent_span,
            priority: ask.priority.unwrap_or(chimera_core::limits::PRIORITY_DEFAULT),
            ..StartRun::of(proposal.workflow_id, proposal.inputs)
        };
        let claimed = match &ask.idempotency_key {
            None => None,
            Some(key) => match self.claim(permit, key, run_id).await? {
                Claimed::Ours(claim) => claim,
                Claimed::Run => return Err(EngineError::refused(Code::ConflictIdempotency, "somebody was faster")),
            },
        };
        match self.flow.start(permit, start).await {
            Ok(started) => {
                Ok(Acted::Started(Box::new(Begun { started, plan: proposal.plan, risk, dry_run: ask.dry_run })))
            }
            Err(error) => {
                if let Some(claim) = claimed {
                    self.give_up(claim).await;
                }
                Err(error)
            }
        }
    }
}

/// The plan of steps that were written out.
fn explicit(steps: &[(String, Value)]) -> Result<Plan, EngineError> {
    if !(1..=PLAN_STEPS_MAX).contains(&steps.len()) {
        let message = format!("a plan has 1 to {PLAN_STEPS_MAX} steps");
        return Err(ErrorBody::new(Code::ValidationFailed, message).with("pointer", "/steps").into());
    }
    let step = |(at, (tool, input)): (usize, &(String, Value))| PlanStep {
        id: format!("s{}", at + 1),
        tool: tool.clone(),
        input: input.clone(),
    };
    Ok(Plan { steps: steps.iter().enumerate().map(step).collect(), more: false })
}

fn tools_of(graph: &Graph) -> impl Iterator<Item = Arc<Spec>> {
    graph.nodes.iter().filter_map(|node| node.tool.clone())
}

/// What is answered at once about a run that was started.
#[derive(Serialize)]
pub struct Summary<'a> {
    run_id: Uuid,
    status: &'static str,
    autonomy_level: &'static str,
    trace_id: String,
    plan: &'a Plan,
    risk: &'a Value,
    dry_run: bool,
    dry_run_results: (),
    approve_url: (),
    approvals: [(); 0],
    result: Option<Value>,
    error: Option<ErrorBody>,
}

impl Begun {
    /// What is answered at once.
    #[must_use]
    pub fn summary(&self) -> Summary<'_> {
        let standing = self.started.standing.borrow();
        let run_id = self.started.run_id;
        Summary {
            run_id,
            status: standing.status.as_str(),
            autonomy_level: self.started.level.as_str(),
            trace_id: chimera_core::id::trace_id(run_id),
            plan: &self.plan,
            risk: &self.risk,
            dry_run: self.dry_run,
            dry_run_results: (),
            approve_url: (),
            approvals: [],
            result: standing.ended.as_ref().and_then(|ended| ended.result.clone()),
            error: standing.ended.as_ref().and_then(|ended| ended.error.clone()),
        }
    }
}

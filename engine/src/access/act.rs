//! Acting: somebody who was let in asks for something to be done.
//!
//! The checks come in one order: the actor, the key, the plan, its scopes, its risk and level, then the
//! run. Whatever is refused leaves an entry in the ledger and nothing else. With shared counters the
//! key is claimed there first, which settles the race between nodes; the unique key in the store is the
//! truth, whatever the counters say.

use super::directory::Directory;
use super::door::{Door, Presented};
use super::permit::{AUTONOMY_OVERRIDE, Permit, lacking};
use super::settings::WithoutCounters;
use super::{AccessError, refused};
use crate::flow::{Flow, FlowError, PLAN_PREFIX, StartRun, Started};
use crate::port::{Claim, CounterError, Counters, Planner, Records};
use chimera_core::access::{Decided, Facts, Level, Plan, PlanStep, determine_autonomy_level, risk, scope};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::air::Graph;
use chimera_core::flow::run::{Action, PolicyVerdict, Source};
use chimera_core::flow::tables::RUNS;
use chimera_core::flow::tool::Spec;
use chimera_core::flow::trace::SpanId;
use chimera_core::limits::{IDEMPOTENCY_KEY_CHARS_MAX, PLAN_STEPS_MAX};
use chimera_core::record::{Json, Row, Scope, Select};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// How often it is looked whether whoever claimed a key first has begun its run.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How often, before the claim counts as left behind by somebody who is gone.
const LOOKS_MAX: u32 = 250;

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
    /// The request as it came, without what is different each time.
    pub request: Value,
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
    pub risk: Value,
    /// Only what it would do was wanted.
    pub dry_run: bool,
}

/// The front door: who may come in, and what they may start.
pub struct Access {
    directory: Arc<Directory>,
    door: Door,
    flow: Flow,
    planner: Arc<dyn Planner>,
}

/// A plan with all that a decision about it needs.
struct Proposal {
    plan: Plan,
    tools: Vec<Arc<Spec>>,
    workflow_id: String,
    version: Option<i64>,
    inputs: Value,
    document: Option<Value>,
}

impl Access {
    /// A front door to a flow engine.
    #[must_use]
    pub fn new(directory: Arc<Directory>, door: Door, flow: Flow, planner: Arc<dyn Planner>) -> Self {
        Self { directory, door, flow, planner }
    }

    /// Who lets callers in.
    #[must_use]
    pub const fn door(&self) -> &Door {
        &self.door
    }

    /// Who there is.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Where everything is kept.
    #[must_use]
    pub fn records(&self) -> &dyn Records {
        &*self.directory.parts.records
    }

    /// The public keys of access tokens.
    #[must_use]
    pub fn public_keys(&self) -> Vec<Value> {
        self.directory.settings.token_keys.iter().filter_map(|key| key.jwk()).collect()
    }

    /// Enters in the ledger that a request was refused, and gives the refusal back.
    pub async fn refuse(&self, permit: &Permit, shown: &Presented<'_>, body: ErrorBody) -> ErrorBody {
        refused::enter(&self.directory, Some(permit), shown, body).await
    }

    /// Does what somebody asks for, or says why not.
    pub async fn act(&self, permit: &Permit, ask: Act) -> Result<Acted, AccessError> {
        if let Some(actor) = ask.actor.as_deref().filter(|actor| *actor != permit.actor()) {
            let message = format!("the token is of {}, not of {actor}", permit.actor());
            return Err(ErrorBody::new(Code::RbacForbidden, message).with("pointer", "/actor").into());
        }
        let Some(key) = ask.idempotency_key.clone() else { return self.attempt(permit, ask).await };
        check_key(&key)?;
        let asked = Asked { request: ask.request.clone(), on_duplicate: ask.on_duplicate };
        if let (true, Some(row)) = self.handle_idempotency(permit, &key).await? {
            return duplicate(&row, &asked);
        }
        match self.attempt(permit, ask).await {
            // Somebody was faster by a moment: the store has refused a second run.
            Err(error) if error.body().code == Code::ConflictIdempotency.as_str() => {
                match self.handle_idempotency(permit, &key).await? {
                    (true, Some(row)) => duplicate(&row, &asked),
                    _ => Err(error),
                }
            }
            acted => acted,
        }
    }

    /// Plans, decides and starts, as long as nothing speaks against it.
    async fn attempt(&self, permit: &Permit, ask: Act) -> Result<Acted, AccessError> {
        let proposal = self.propose(permit, &ask).await?;
        self.check_scopes(permit, &proposal)?;
        let resolve = |name: &str| proposal.tools.iter().find(|tool| tool.name == name).cloned();
        let score = risk::score(&proposal.plan, &resolve);
        let Decided { level, because } = self.level(permit, &ask, &proposal, &score).await?;
        self.check_policy(permit, &proposal, level)?;
        let mut told = serde_json::to_value(&score).unwrap_or_default();
        told["level_because"] = because.as_str().into();
        self.execute_with_autonomy(permit, ask, proposal, level, told).await
    }

    /// The plan, whatever it was asked for as.
    async fn propose(&self, permit: &Permit, ask: &Act) -> Result<Proposal, AccessError> {
        let plan = match &ask.what {
            What::Workflow { id, version, inputs } => return self.of_workflow(permit, id, *version, inputs).await,
            What::Goal { goal, inputs } => {
                let tools: Vec<Arc<Spec>> = self.flow.registry().specs().cloned().collect();
                self.planner.plan(goal, inputs, &tools).await.map_err(|error| error.body())?
            }
            What::Steps(steps) => explicit(steps)?,
        };
        let mut tools = Vec::with_capacity(plan.steps.len());
        for (at, step) in plan.steps.iter().enumerate() {
            let tool = self.flow.registry().get(&step.tool).ok_or_else(|| {
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
        self.flow.workflows().check_plan(permit, &compiled.workflow_id, &compiled.document).await?;
        let (workflow_id, inputs) = (compiled.workflow_id, compiled.inputs);
        Ok(Proposal { plan, tools, workflow_id, version: None, inputs, document: Some(compiled.document) })
    }

    async fn of_workflow(
        &self,
        permit: &Permit,
        id: &str,
        version: Option<i64>,
        inputs: &Value,
    ) -> Result<Proposal, AccessError> {
        let found = self.flow.workflows().find(permit.tenant(), id, version).await?;
        let (version, graph) = found.ok_or_else(|| FlowError::no_workflow(id, version))?;
        let plan = Plan::of_graph(&graph, inputs);
        let mut tools: Vec<Arc<Spec>> = tools_of(&graph);
        for child in self.flow.workflows().inside(permit.tenant(), &graph).await? {
            tools.extend(tools_of(&child));
        }
        let inputs = inputs.clone();
        Ok(Proposal { plan, tools, workflow_id: id.to_owned(), version: Some(version), inputs, document: None })
    }

    fn check_scopes(&self, permit: &Permit, proposal: &Proposal) -> Result<(), AccessError> {
        let strict = self.directory.settings.strict_scopes;
        for tool in &proposal.tools {
            if let Some(missing) = scope::missing(permit.scopes(), tool, strict) {
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

    async fn level(
        &self,
        permit: &Permit,
        ask: &Act,
        proposal: &Proposal,
        score: &risk::Score,
    ) -> Result<Decided, AccessError> {
        let tools: Vec<&Spec> = proposal.tools.iter().map(|tool| &**tool).collect();
        let cautious = self.directory.settings.cautious;
        let facts = Facts {
            actor: permit.actor(),
            default: permit.level(),
            may_override: permit.may(AUTONOMY_OVERRIDE),
            requested: ask.level,
            tools: &tools,
            steps: proposal.plan.steps.len(),
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

    /// Whether the actor never had these tools called in this order.
    async fn is_first_time(&self, permit: &Permit, proposal: &Proposal) -> Result<bool, AccessError> {
        let select = Select::from(&RUNS, Scope::Tenant(permit.tenant().to_owned()))
            .with("actor", permit.actor())
            .with("workflow_id", proposal.workflow_id.as_str())
            .with("status", "completed");
        Ok(self.directory.parts.records.read(select.take(1)).await?.rows.is_empty())
    }

    /// What the rules forbid is refused before anything is written.
    fn check_policy(&self, permit: &Permit, proposal: &Proposal, level: Level) -> Result<(), AccessError> {
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
        risk: Value,
    ) -> Result<Acted, AccessError> {
        if let Some(document) = &proposal.document {
            self.flow.workflows().keep_plan(permit, &proposal.workflow_id, document).await?;
        }
        let run_id = ask.run_id.unwrap_or_else(|| self.directory.parts.random.row_id(self.directory.parts.clock.now()));
        let own = permit.notify().filter(|_| level != Level::ExecuteSilent).cloned();
        let start = StartRun {
            version: proposal.version,
            level,
            dry_run: ask.dry_run,
            source: Source::Act,
            request: Some(ask.request),
            risk: Some(risk.clone()),
            idempotency_key: ask.idempotency_key.clone(),
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
                Claimed::Run => return Err(AccessError::refused(Code::ConflictIdempotency, "somebody was faster")),
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
                Err(error.into())
            }
        }
    }

    /// Whether the key was used before, and the run that it was used for. The claim that settles a race
    /// comes later, with the run; this only looks.
    async fn handle_idempotency(&self, permit: &Permit, key: &str) -> Result<(bool, Option<Row>), AccessError> {
        let row = self.flow.by_key(permit, key).await?;
        Ok((row.is_some(), row))
    }

    /// Claims a key for a run on all nodes; or finds the run of whoever was faster.
    async fn claim(&self, permit: &Permit, key: &str, run: Uuid) -> Result<Claimed, AccessError> {
        let Some(counters) = &self.door.claims else { return Ok(Claimed::Ours(None)) };
        let (settings, clock) = (&self.directory.settings, &self.directory.parts.clock);
        let name = format!("idempotency:{key}");
        let mut seen = String::new();
        let mut looks = 0;
        loop {
            let claimed = counters.claim(&name, &run.to_string(), settings.idempotency_ttl, clock.now()).await;
            let held = match claimed {
                Ok(Claim::Claimed) => {
                    return Ok(Claimed::Ours(Some(Held { counters: Arc::clone(counters), name, run })));
                }
                Ok(Claim::Held(held)) => held,
                Err(CounterError::Unavailable { .. }) if settings.without_counters == WithoutCounters::Database => {
                    return Ok(Claimed::Ours(None));
                }
                Err(_) => {
                    let body = ErrorBody::new(Code::StoreUnavailable, "keys can't be claimed now").retry_after(1);
                    return Err(body.into());
                }
            };
            if self.flow.by_key(permit, key).await?.is_some() {
                return Ok(Claimed::Run);
            }
            if self.is_run(&held).await? {
                // Somebody else's run has this key: ours is kept in another form, and the store decides.
                return Ok(Claimed::Ours(None));
            }
            if held != seen {
                (seen, looks) = (held, 0);
            } else if looks >= LOOKS_MAX {
                // Whoever claimed it is gone without a run.
                let _ = counters.release(&name, &seen, clock.now()).await;
            }
            looks += 1;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn is_run(&self, id: &str) -> Result<bool, AccessError> {
        let Ok(id) = Uuid::parse_str(id) else { return Ok(false) };
        let select = Select::from(&RUNS, Scope::System).with("id", id).take(1);
        Ok(!self.directory.parts.records.read(select).await?.rows.is_empty())
    }

    async fn give_up(&self, held: Held) {
        let now = self.directory.parts.clock.now();
        if let Err(error) = held.counters.release(&held.name, &held.run.to_string(), now).await {
            tracing::warn!(error = %error, "a key stays claimed until somebody finds it without a run");
        }
    }
}

/// What a duplicate is compared with.
struct Asked {
    request: Value,
    on_duplicate: OnDuplicate,
}

/// A key that was claimed.
enum Claimed {
    /// Nobody else has it; none: nothing was claimed, the store alone decides.
    Ours(Option<Held>),
    /// Somebody was faster, and has a run.
    Run,
}

struct Held {
    counters: Arc<dyn Counters>,
    name: String,
    run: Uuid,
}

fn check_key(key: &str) -> Result<(), AccessError> {
    if (1..=IDEMPOTENCY_KEY_CHARS_MAX).contains(&key.chars().count()) && !key.contains('\0') {
        return Ok(());
    }
    let message = format!("an idempotency key has 1 to {IDEMPOTENCY_KEY_CHARS_MAX} characters");
    Err(ErrorBody::new(Code::ValidationFailed, message).with("pointer", "/idempotency_key").into())
}

/// The plan of steps that were written out.
fn explicit(steps: &[(String, Value)]) -> Result<Plan, AccessError> {
    if !(1..=PLAN_STEPS_MAX).contains(&steps.len()) {
        let message = format!("a plan has 1 to {PLAN_STEPS_MAX} steps");
        return Err(ErrorBody::new(Code::ValidationFailed, message).with("pointer", "/steps").into());
    }
    let step = |(at, (tool, input)): (usize, &(String, Value))| PlanStep {
        id: format!("s{}", at + 1),
        tool: tool.clone(),
        input: input.clone(),
    };
    Ok(Plan { steps: steps.iter().enumerate().map(step).collect() })
}

fn tools_of(graph: &Graph) -> Vec<Arc<Spec>> {
    graph.nodes.iter().filter_map(|node| node.tool.clone()).collect()
}

/// The answer to a request whose key was used before.
fn duplicate(row: &Row, asked: &Asked) -> Result<Acted, AccessError> {
    let run = row.uuid("id");
    let before = row.get("request_payload").as_json().map(Json::to_value).unwrap_or_default();
    let differs = without_span(before) != without_span(asked.request.clone());
    if asked.on_duplicate == OnDuplicate::Return {
        return Ok(Acted::Duplicate { run, differs });
    }
    let message = match differs {
        true => "a run was asked for under this key before, with another request",
        false => "a run was asked for under this key before",
    };
    let body = ErrorBody::new(Code::ConflictIdempotency, message)
        .with("run_id", run.to_string())
        .with("status", row.text("status"))
        .with("request_differs", differs);
    Err(body.into())
}

fn without_span(mut request: Value) -> Value {
    if let Some(members) = request.as_object_mut() {
        members.remove("parent_span");
    }
    request
}

/// What is answered at once about a run that was started.
#[must_use]
pub fn summary(begun: &Begun) -> Value {
    let standing = begun.started.standing.borrow();
    let run = begun.started.run_id;
    let (result, error) = match &standing.ended {
        Some(ended) => (ended.result.clone(), ended.error.as_ref().and_then(|error| serde_json::to_value(error).ok())),
        None => (None, None),
    };
    json!({
        "run_id": run,
        "status": standing.status.as_str(),
        "autonomy_level": begun.started.level.as_str(),
        "trace_id": chimera_core::id::trace_id(run),
        "plan": begun.plan,
        "risk": begun.risk,
        "dry_run": begun.dry_run,
        "dry_run_results": null,
        "approve_url": null,
        "approvals": [],
        "result": result,
        "error": error,
    })
}

//! Starts a ready place.
//!
//! In this order: render and check the input, use a recording if the run is a replay, check the policy,
//! request approval if required, look in the cache if the node allows it, take a slot, dispatch the
//! call. A call with external effects is recorded as dispatched first; a pure one needs no row before
//! its result.

use super::env::{Env, SlotRequest};
use super::event::{Call, CallMode, Effect, GovernanceDecision};
use super::replay::RecordedOutcome;
use super::scope::RunScope;
use super::task::TaskState;
use super::turn_builder::TurnBuilder;
use super::{EffectStatus, Run, RunPlace};
use crate::access::Level;
use crate::error::{Code, ErrorBody};
use crate::flow::air::{Body, ChildWorkflow, Function, MapItem};
use crate::flow::policy::{Action, PolicyVerdict};
use crate::id;
use crate::json::{CanonicalJson, Digest32, TooDeep, check_depth};
use crate::ledger::decision::{DecisionSource, Outcome};
use crate::limits;
use crate::record::{Json, Unstorable, escapes_nul};
use crate::time::Timestamp;
use crate::tool::{EffectKind, Spec, is_dry_run};
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) enum Work {
    Tool(Arc<Spec>),
    Child { workflow: String, version: Option<i64> },
    Person,
    Map,
    Unsupported(&'static str),
}

impl Run {
    /// Starts what is ready, as far as slots and the limits of the turn allow.
    pub(crate) fn start_ready(&mut self, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        let mut held = Vec::new();
        while self.may_start() {
            if self.is_turn_full(book) {
                book.more |= !self.ready.is_empty();
                break;
            }
            if self.calls.len() >= limits::RUN_CALLS_MAX || held.len() >= limits::RUN_CALLS_MAX {
                break;
            }
            let Some(at) = self.ready.pop_front() else { break };
            if !self.task(at).is_some_and(|task| matches!(task.state, TaskState::Ready)) {
                continue;
            }
            if !self.start(at, env, book)? {
                held.push(at);
            }
        }
        for at in held.into_iter().rev() {
            self.ready.push_front(at);
        }
        Ok(())
    }

    pub(crate) fn may_start(&self) -> bool {
        self.paused_by.is_none()
            && self.cancelled_by.is_none()
            && self.failure.is_none()
            && !self.status.is_final()
            && self.draft.is_none()
            && !self.is_plan_pending()
    }

    pub(crate) fn work(&self, at: RunPlace) -> Work {
        let compiled = &self.graph.nodes[at.node];
        let child = |child: &ChildWorkflow| Work::Child {
            workflow: child.workflow_id.clone(),
            version: child.version.or_else(|| self.pinned(at.node, &child.workflow_id)),
        };
        let tool = || compiled.tool.clone().map_or(Work::Unsupported("function"), Work::Tool);
        match (&compiled.node.body, at.item) {
            (Body::Function(_), _) => tool(),
            (Body::Map(each), Some(_)) => match &each.item {
                MapItem::Function(_) => tool(),
                MapItem::Workflow(started) => child(started),
            },
            (Body::Map(_), None) => Work::Map,
            (Body::Workflow(started), _) => child(started),
            (Body::Hitl(_), _) => Work::Person,
            (Body::Agent(_), _) => Work::Unsupported("agent"),
            (Body::Swarm(_), _) => Work::Unsupported("swarm"),
        }
    }

    /// Whether the call of a place is pure, reads or writes.
    pub(crate) fn reach(&self, at: RunPlace, spec: &Spec) -> EffectKind {
        let input = self.task(at).and_then(|task| task.input.as_deref());
        input.map_or(spec.effect, |input| spec.effect_of(input))
    }

    /// Whether the call of a place can be sent again without a second effect.
    pub(crate) fn is_resendable(&self, at: RunPlace, spec: &Spec) -> bool {
        self.reach(at, spec) != EffectKind::Write || spec.metadata.idempotent
    }

    /// The function of a node or of its items.
    pub(crate) fn function(&self, at: RunPlace) -> Option<&Function> {
        match &self.graph.nodes.get(at.node)?.node.body {
            Body::Function(function) => Some(function),
            Body::Map(each) => match &each.item {
                MapItem::Function(function) => Some(function),
                MapItem::Workflow(_) => None,
            },
            _ => None,
        }
    }

    /// Starts one place. False: it stays ready, because no slot is free or it must wait to ask.
    fn start(&mut self, at: RunPlace, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<bool, Unstorable> {
        match self.work(at) {
            Work::Tool(spec) => self.start_tool(at, &spec, env, book),
            Work::Person | Work::Child { .. } if self.must_wait_to_ask() => Ok(false),
            Work::Person => self.start_person(at, env, book).map(|()| true),
            Work::Child { workflow, version } => self.start_child(at, workflow, version, env, book).map(|()| true),
            Work::Map => self.start_map(at, env, book),
            Work::Unsupported(kind) => {
                let message = format!("nodes of type {kind} are not supported yet");
                self.fail_step(at, ErrorBody::new(Code::ToolUnavailable, message), env, book).map(|()| true)
            }
        }
    }

    fn start_tool(
        &mut self,
        at: RunPlace,
        spec: &Arc<Spec>,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<bool, Unstorable> {
        if let Err(error) = self.prepare_input(at, spec) {
            return self.fail_step(at, error, env, book).map(|()| true);
        }
        match self.recorded_outcome(at, Some(spec)) {
            RecordedOutcome::NotUsed => {}
            RecordedOutcome::Output(output) => {
                return self.complete_without_call(at, spec, output, "recorded", env, book).map(|()| true);
            }
            RecordedOutcome::Failed(error) => return self.fail_step(at, error, env, book).map(|()| true),
            RecordedOutcome::Missing => return self.not_recorded(at, env, book).map(|()| true),
        }
        if self.graph.nodes[at.node].is_tool_absent {
            return self.give_up(at, tool_absent(&spec.name), env, book).map(|()| true);
        }
        match self.judge(at, spec, env) {
            PolicyVerdict::Allow => {}
            PolicyVerdict::Ask(_) if self.must_wait_to_ask() => return Ok(false),
            PolicyVerdict::Ask(demand) => return self.request_approval(at, &demand, env, book).map(|()| true),
            PolicyVerdict::Deny { rule, reason } => {
                return self.refuse_by_policy(at, rule, reason, env, book).map(|()| true);
            }
        }
        if self.may_be_already_done(at, spec) {
            return self.resolve_before_dispatch(at, spec, env, book);
        }
        if self.task(at).is_some_and(|task| task.attempt == 0 && !task.not_recorded)
            && self.look_in_cache(at, spec, book)
        {
            return Ok(true);
        }
        if !self.take_slot(at, spec, env) {
            return Ok(false);
        }
        self.dispatch(at, spec, CallMode::Execute, env, book)?;
        Ok(true)
    }

    /// Takes a slot for a call. False: none is free, and the request is queued.
    pub(crate) fn take_slot(&self, at: RunPlace, spec: &Spec, env: &mut Env<'_>) -> bool {
        let (run, tenant, priority) = (self.head.id, self.head.tenant.as_str(), self.head.priority);
        // The run's values grow only with the outputs of calls.
        if !env.gate.may_grow(run, self.memory_bytes()) {
            return false;
        }
        let input = self.task(at).and_then(|task| task.input.as_deref()).filter(|_| spec.effect != EffectKind::Pure);
        env.gate.enter(SlotRequest { run, at, tenant, tool: &spec.name, input, priority })
    }

    /// At L0, steps are approved one at a time: each after the previous one has ended.
    fn must_wait_to_ask(&self) -> bool {
        self.head.level == Level::Ask && (self.approvals_pending > 0 || !self.calls.is_empty())
    }

    /// Renders, checks and fixes the input of a place.
    fn prepare_input(&mut self, at: RunPlace, spec: &Spec) -> Result<(), ErrorBody> {
        if self.task(at).is_some_and(|task| task.input.is_some()) {
            return Ok(());
        }
        let input = match self.edited_input(at) {
            Some(edited) => edited.clone(),
            None => self.render_inputs(at)?,
        };
        let input = validate_input(spec, input)?;
        self.count_input(at, input.value())?;
        self.fix_input(at, input);
        Ok(())
    }

    /// Fixes the input of a place.
    pub(crate) fn fix_input(&mut self, at: RunPlace, input: CanonicalJson) -> Arc<Value> {
        if let Some(task) = self.task_mut(at) {
            task.input = Some(Arc::clone(input.value()));
            task.digest = Some(input.digest());
        }
        Arc::clone(input.value())
    }

    /// The inputs of a place, with all expressions rendered.
    pub(crate) fn render_inputs(&self, at: RunPlace) -> Result<Value, ErrorBody> {
        let Some(template) = &self.graph.nodes[at.node].inputs else { return Ok(json!({})) };
        template.render(&RunScope::at(self, at)).map_err(|error| {
            ErrorBody::new(
                Code::ValidationFailed,
                format!("the inputs of {} can't be resolved: {error}", self.name(at)),
            )
        })
    }

    /// Judges a call that is about to be made, by the rules, the level and the node.
    pub(crate) fn judge(&self, at: RunPlace, spec: &Spec, env: &Env<'_>) -> PolicyVerdict {
        match self.judge_anew(at, spec, env) {
            PolicyVerdict::Ask(demand) if self.is_met(at, &demand, env) => PolicyVerdict::Allow,
            PolicyVerdict::Ask(demand) => PolicyVerdict::Ask(self.with_lapsed_approvers(at, demand, env)),
            verdict => verdict,
        }
    }

    /// What they say about a call that nobody has approved by itself.
    pub(crate) fn judge_anew(&self, at: RunPlace, spec: &Spec, env: &Env<'_>) -> PolicyVerdict {
        let Some(task) = self.task(at) else { return PolicyVerdict::Allow };
        let Some(input) = task.input.as_deref() else { return PolicyVerdict::Allow };
        let (tenant, actor, level) = (self.head.tenant.as_str(), self.head.actor.as_str(), self.head.level);
        let action = Action { tenant, actor, level, node: self.name(at), tool: spec, input };
        let mut demand = match self.judge_for_requesters(at, &action, env) {
            PolicyVerdict::Allow => None,
            PolicyVerdict::Ask(demand) => Some(demand),
            deny @ PolicyVerdict::Deny { .. } => return deny,
        };
        let own = self.demand_of_node(at).into_iter().chain(self.demand_of_level(at, spec, input, env));
        for further in own {
            demand = Some(match demand {
                Some(demand) => demand.and(further),
                None => further,
            });
        }
        demand.map_or(PolicyVerdict::Allow, PolicyVerdict::Ask)
    }

    pub(crate) fn refuse_by_policy(
        &mut self,
        at: RunPlace,
        rule: String,
        reason: String,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        self.mark_dirty(at, env, book);
        book.add_decision(
            "step.refused",
            self.step_id(at),
            None,
            json!({"node": self.name(at), "rule": rule}),
            GovernanceDecision {
                source: DecisionSource::Policy,
                outcome: Outcome::Rejected,
                rationale: reason.clone(),
                policies: vec![rule.clone()],
            },
        );
        self.give_up(at, ErrorBody::new(Code::PolicyDenied, reason).with("rule", rule), env, book)
    }

    /// Dispatches the call. It is recorded first if it has external effects.
    pub(crate) fn dispatch(
        &mut self,
        at: RunPlace,
        spec: &Arc<Spec>,
        mode: CallMode,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let deadline = self.call_deadline(at, spec, env.now);
        let call = (env.ids)();
        let step = self.ensure_step(at, env);
        let now = env.now;
        let key = self.effect_key(at, &mode);
        let head = Arc::clone(&self.head);
        let Some(task) = self.task_mut(at) else { return Ok(()) };
        task.attempt += u32::from(mode == CallMode::Execute);
        task.started_at.get_or_insert(now);
        let attempt = task.attempt.max(1);
        let input = task.input.clone().unwrap_or_default();
        let digest = task.input_digest();
        // A check looks for the call as it was sent, even if the row of its effect is missing.
        let mut effect = if mode == CallMode::Check { id::effect(head.id, &key) } else { step };
        if spec.effect != EffectKind::Pure && mode == CallMode::Execute {
            effect = book.write_effect(&head, task, &key, &spec.name, EffectStatus::Dispatched, deadline, now)?;
            book.record_call_start(&head, call, step, effect, &key, attempt, spec, &input, now)?;
            book.dirty.insert(at);
            let node = self.name(at).to_owned();
            let mut data = json!({"node": node, "item": at.item, "tool": spec.name, "attempt": attempt, "effect_id": effect, "input_digest": digest});
            note_dry(&mut data, &input);
            book.add_note("step.dispatched", Some(step), None, data);
        } else if let Some(stored) = task.effect {
            effect = stored.id;
        }
        self.enter(at, TaskState::Running { call, mode: mode.clone() });
        self.calls.insert(at);
        book.effects.push(Effect::Call(Call {
            at,
            id: call,
            step,
            effect,
            key,
            attempt,
            tool: spec.name.clone(),
            mode,
            input,
            deadline,
        }));
        Ok(())
    }

    fn call_deadline(&self, at: RunPlace, spec: &Spec, now: Timestamp) -> Timestamp {
        let node = &self.graph.nodes[at.node].node;
        let ms = node.timeout_seconds.map_or(spec.timeout_ms, |seconds| u64::from(seconds) * 1_000);
        Timestamp::from_micros(now.micros().saturating_add(i64::try_from(ms).unwrap_or(i64::MAX / 2_000) * 1_000))
    }

    /// The idempotency key of a call. It begins with the run id, so that keys grow over time.
    pub(crate) fn effect_key(&self, at: RunPlace, mode: &CallMode) -> String {
        let item = at.item.map(|item| format!("[{item}]")).unwrap_or_default();
        let undo = if matches!(mode, CallMode::Undo { .. }) { ":undo" } else { "" };
        format!("{}:{}{item}{undo}", self.head.id.simple(), self.name(at))
    }

    /// Looks in the cache if the node allows it.
    fn look_in_cache(&mut self, at: RunPlace, spec: &Spec, book: &mut TurnBuilder) -> bool {
        if self.reach(at, spec) == EffectKind::Write || self.replay_mode().is_some() {
            return false;
        }
        if self.function(at).is_none_or(|function| function.cache.is_none()) {
            return false;
        }
        let Some(digest) = self.task(at).and_then(|task| task.digest) else { return false };
        let key = cache_key(self.name(at), spec, digest);
        self.enter(at, TaskState::LookingUpCache);
        self.calls.insert(at);
        book.effects.push(Effect::LookUpCache { at, key });
        true
    }

    pub(crate) fn cache_looked_up(
        &mut self,
        at: RunPlace,
        hit: Option<Value>,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let Some(TaskState::LookingUpCache) = self.task(at).map(|task| &task.state) else { return Ok(()) };
        self.calls.remove(&at);
        let Work::Tool(spec) = self.work(at) else { return Ok(()) };
        match hit {
            Some(output) => self.complete_without_call(at, &spec, output, "cached", env, book),
            None => {
                // It is judged again: the lookup took time.
                self.enter(at, TaskState::Ready);
                if let Some(task) = self.task_mut(at) {
                    task.not_recorded = true;
                }
                self.ready.push_front(at);
                Ok(())
            }
        }
    }
}

/// Marks the entry of a call whose own input asks for a dry run.
pub(crate) fn note_dry(data: &mut Value, input: &Value) {
    if is_dry_run(input) {
        data["dry_run"] = true.into();
    }
}

/// The key of a cached output.
pub(crate) fn cache_key(node: &str, spec: &Spec, digest: Digest32) -> String {
    use sha2::{Digest, Sha256};
    let mut hasher = Sha256::new();
    hasher.update(digest);
    hasher.update(spec.name.as_bytes());
    hasher.update([0]);
    hasher.update(spec.version.as_bytes());
    format!("{node}:sha256:{}", hex::encode(hasher.finalize()))
}

/// The error of a place whose tool is not configured here.
pub(crate) fn tool_absent(name: &str) -> ErrorBody {
    let message = format!("the tool {name} is not configured in this process; configure it and retry the run");
    ErrorBody::new(Code::ToolUnavailable, message).with("tool", name)
}

/// Checks an input against the tool's schema and the limits.
pub(crate) fn validate_input(spec: &Spec, input: Value) -> Result<CanonicalJson, ErrorBody> {
    check_input(spec, &input)?;
    CanonicalJson::new(input).map_err(|error| too_deep("the input", &error))
}

/// The error of a value that is nested too deeply.
pub(crate) fn too_deep(what: &str, error: &TooDeep) -> ErrorBody {
    ErrorBody::new(Code::ValidationFailed, format!("{what} is {error}"))
}

/// Checks that the tool accepts this input and that it can be stored.
pub(crate) fn check_input(spec: &Spec, input: &Value) -> Result<(), ErrorBody> {
    check_depth(input, limits::JSON_DEPTH_MAX).map_err(|error| too_deep("the input", &error))?;
    spec.input.check(input).map_err(|faults| {
        let message = format!("the input does not match the schema of {}", spec.name);
        let faults = serde_json::to_value(faults).unwrap_or_default();
        ErrorBody::new(Code::ValidationFailed, message).with("faults", faults)
    })?;
    let text = Json::encode(input).map_err(|error| ErrorBody::new(Code::ValidationFailed, error.to_string()))?;
    if escapes_nul(text.as_str()) {
        return Err(ErrorBody::new(Code::ValidationFailed, "the input of a step has a character that can't be stored"));
    }
    if text.as_str().len() > limits::RUN_INPUT_BYTES_MAX {
        return Err(ErrorBody::new(Code::PayloadTooLarge, "the input of a step is too large"));
    }
    Ok(())
}

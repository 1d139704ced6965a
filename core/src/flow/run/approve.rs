//! When approval is required, and what it covers.
//!
//! An approval is bound to a digest of exactly what would run, and to an expiry. It is stored in
//! `approval_requests`, so it survives restarts. A decision reaches the run as a signal.

use super::env::Env;
use super::event::GovernanceDecision;
use super::replay::RecordedOutcome;
use super::requesters::merge_names;
use super::scope::RunScope;
use super::start::{Work, too_deep, validate_input};
use super::task::TaskState;
use super::turn_builder::TurnBuilder;
use super::{ReplayMode, Run, RunPlace};
use crate::access::{Actor, Level};
use crate::error::{Code, ErrorBody};
use crate::flow::air::{Approval, Body};
use crate::flow::approval::{
    ApprovalRequest, ApprovalRequirement, Decision, EDITED_BY, RequestStatus, RequestedAction, StepApproval, Validity,
    request_digest,
};
use crate::flow::expr::{RenderError, Template};
use crate::flow::policy::{Action, Because, Policy, PolicyVerdict};
use crate::json::{CanonicalJson, Digest32};
use crate::ledger::decision::{DecisionSource, Outcome};
use crate::limits;
use crate::record::Unstorable;
use crate::time::Timestamp;
use crate::tool::{EffectKind, Risk, Spec, is_dry_run};
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

impl Run {
    /// The approval that the node requires.
    pub(crate) fn demand_of_node(&self, at: RunPlace) -> Option<ApprovalRequirement> {
        let node = &self.graph.nodes[at.node].node;
        node.requires_approval.as_ref().map(|approval| demand(approval, "the workflow requires approval for this node"))
    }

    /// The approval that the level requires. At L0: for every call. At L1: for a call whose input was not known
    /// when the plan was approved, if it is risky by itself or riskier than it looked. At L2 and L3: for a call
    /// whose tool requires it or that would have lowered the level.
    pub(crate) fn demand_of_level(
        &self,
        at: RunPlace,
        spec: &Spec,
        input: &Value,
        env: &Env<'_>,
    ) -> Option<ApprovalRequirement> {
        match self.head.level {
            Level::Ask => Some(ApprovalRequirement::one_approval("every step needs approval at L0_Ask")),
            // A frozen replay makes no calls.
            Level::Draft if self.replay_mode() == Some(ReplayMode::Freeze) => None,
            Level::Draft if self.replay_mode() == Some(ReplayMode::Shadow) => self.demand_of_shadow(at, spec, input),
            level => match self.demand_if_lapsed(at, env) {
                None if self.is_planned(at) => None,
                None => self.demand_of_call(level, at, spec, input, env),
                lapsed => lapsed,
            },
        }
    }

    /// The approval that the level requires for a call that no larger approval covers.
    fn demand_of_call(
        &self,
        level: Level,
        at: RunPlace,
        spec: &Spec,
        input: &Value,
        env: &Env<'_>,
    ) -> Option<ApprovalRequirement> {
        match level {
            Level::Ask | Level::Draft => {
                if let Some(unseen) = self.demand_of_item(at) {
                    return Some(unseen);
                }
                let risky = spec.metadata.requires_approval || spec.metadata.risk_level == Risk::High;
                let unknown = "the input was not known when the plan was approved";
                let differs = "what would run differs from what was approved";
                match self.plan.as_ref().and_then(|plan| plan.node(self.name(at))) {
                    None if self.is_patched(at.node) && self.is_tool_changed(at.node, spec) => {
                        Some(ApprovalRequirement::one_approval(differs))
                    }
                    None if self.is_patched(at.node) => {
                        let rises = env.policy.score_call(spec, input).score
                            > env.policy.score_call(spec, &self.input_templates(at)).score;
                        (risky || rises).then(|| ApprovalRequirement::one_approval(unknown))
                    }
                    None => Some(ApprovalRequirement::one_approval("the approved plan does not contain this step")),
                    Some(planned) if planned.differs(at.item, spec) => Some(ApprovalRequirement::one_approval(differs)),
                    Some(planned) => {
                        let rises = env.policy.score_call(spec, input).score > planned.risk;
                        (risky || rises).then(|| ApprovalRequirement::one_approval(unknown))
                    }
                }
            }
            Level::ExecuteNotify | Level::ExecuteSilent => {
                let must = spec.metadata.requires_approval && !is_dry_run(input);
                let tool = must.then(|| ApprovalRequirement::one_approval("the tool requires approval for every call"));
                let demands = [self.demand_of_item(at), tool, self.demand_of_cap(at, spec, input, env)];
                demands.into_iter().flatten().reduce(ApprovalRequirement::and)
            }
        }
    }

    /// The approval that a read of a shadow replay requires. None if the original run made exactly this call.
    fn demand_of_shadow(&self, at: RunPlace, spec: &Spec, input: &Value) -> Option<ApprovalRequirement> {
        if self.reach(at, spec) == EffectKind::Pure {
            return None;
        }
        if spec.metadata.requires_approval && !is_dry_run(input) {
            return Some(ApprovalRequirement::one_approval("the tool requires approval for every call"));
        }
        let digest = self.task(at).and_then(|task| task.digest);
        let reason = match self.recording(at) {
            Some(recording) if recording.tool_version.as_ref() != Some(&spec.version) => {
                "the original run made this call with another version of the tool"
            }
            Some(recording) if recording.input.is_some() && recording.input == digest => return None,
            _ => "the original run made this call with another input",
        };
        Some(ApprovalRequirement::one_approval(reason))
    }

    /// The approval for a call that would have capped the level, had its input and current tool been known.
    fn demand_of_cap(&self, at: RunPlace, spec: &Spec, input: &Value, env: &Env<'_>) -> Option<ApprovalRequirement> {
        if is_dry_run(input) {
            return None;
        }
        let (tenant, actor, level) = (self.head.tenant.as_str(), self.head.actor.as_str(), self.head.level);
        let action = Action { tenant, actor, level, node: self.name(at), tool: spec, input };
        // No run is admitted at this level with such a tool: its risk level has changed since.
        let high = (spec.metadata.risk_level == Risk::High).then_some(Because::HighRiskTool);
        let what = match high.or_else(|| env.policy.mandatory_approval_reason(&action))? {
            Because::HighRiskTool => "the tool can do much harm",
            Because::Deletes => "the call deletes something",
            _ => "the call writes to somebody outside",
        };
        Some(ApprovalRequirement::one_approval(format!("{what}, which was not known when the level was decided")))
    }

    /// The input templates of a place, which is what people see of a patch.
    fn input_templates(&self, at: RunPlace) -> Value {
        self.function(at).map(|function| function.inputs.clone()).unwrap_or_default().into()
    }

    /// Whether exactly this call was approved within the plan or with its map.
    pub(crate) fn is_planned(&self, at: RunPlace) -> bool {
        self.plan_approvers(at).is_some()
    }

    /// Who approved exactly this call, within the plan or with its map.
    pub(crate) fn plan_approvers(&self, at: RunPlace) -> Option<&[String]> {
        let Work::Tool(spec) = self.work(at) else { return None };
        let digest = self.task(at)?.digest?;
        let plan = self.plan.as_ref().filter(|plan| plan.asked.is_none());
        let plan =
            plan.filter(|plan| plan.node(self.name(at)).is_some_and(|planned| planned.covers(at.item, digest, &spec)));
        self.map_approvers(at, digest, &spec).or(plan.map(|plan| plan.by.as_slice()))
    }

    /// The digest of exactly what a place would do.
    pub(crate) fn action_digest(&self, at: RunPlace) -> Digest32 {
        let mut input = self.task(at).and_then(|task| task.digest);
        let (tool, version) = match self.work(at) {
            Work::Map => {
                input = Some(self.calls_of_map(at.node).digest());
                ("map".to_owned(), String::new())
            }
            Work::Tool(spec) => (spec.name.clone(), spec.version.clone()),
            Work::Child { workflow, version } => (format!("workflow {workflow}"), format!("{version:?}")),
            _ => ("hitl".to_owned(), String::new()),
        };
        let action = json!({
            "run_id": self.head.id,
            "node": self.name(at),
            "item": at.item,
            "tool": tool,
            "tool_version": version,
            "input": input,
        });
        Digest32::of(&action)
    }

    /// The next approval request, for this digest. Each is dated later than the previous one, even if the clock was set
    /// back: the date tells which of them is current.
    pub(crate) fn next_request(
        &mut self,
        digest: Digest32,
        demand: &ApprovalRequirement,
        env: &mut Env<'_>,
    ) -> ApprovalRequest {
        let showing = self.approvals;
        self.approvals += 1;
        self.last_request_at = env.now.max(Timestamp::from_micros(self.last_request_at.micros().saturating_add(1)));
        let expires_at = expires_at(demand, env);
        ApprovalRequest { id: (env.ids)(), digest, earlier_requests: showing, expires_at, validity: Validity::Pending }
    }

    /// The digest of the next approval request for this content.
    pub(crate) fn next_request_digest(&self, content: Digest32) -> Digest32 {
        request_digest(content, self.approvals)
    }

    /// Marks requests that were withdrawn together with a signal.
    pub(crate) fn mark_withdrawn(&mut self, requests: &[Uuid]) {
        for request in requests {
            if let Some((at, mut asked)) = self.place_awaiting(*request) {
                asked.withdraw();
                self.enter(at, TaskState::AwaitingApproval(asked));
            }
            let plan = self.plan.iter_mut().filter_map(|plan| plan.asked.as_mut());
            let patches = self.patches_by_number.values_mut().filter_map(|overlay| overlay.asked.as_mut());
            plan.chain(patches).filter(|asked| asked.id == *request).for_each(ApprovalRequest::withdraw);
        }
    }

    /// The action type of an approval request and the data that it shows.
    fn request_data(
        &self,
        at: RunPlace,
        demand: &ApprovalRequirement,
        policy: &dyn Policy,
    ) -> (RequestedAction, Value) {
        let input = || self.task(at).and_then(|task| task.input.as_deref()).cloned();
        let (node, item, reason) = (self.name(at), at.item, &demand.reason);
        match self.work(at) {
            Work::Map => {
                let calls = self.calls_of_map(at.node);
                let data = json!({
                    "node": node, "calls": calls.lines, "items": calls.total, "items_listed": calls.inputs.len(),
                    "reason": reason, "risk": self.score_known(policy),
                });
                (RequestedAction::Map, data)
            }
            Work::Tool(spec) => {
                let input = input().unwrap_or_default();
                let data = json!({
                    "node": node, "item": item, "tool": spec.name, "tool_version": spec.version, "reason": reason,
                    "risk": policy.score_call(&spec, &input), "input": input,
                });
                (RequestedAction::Call(spec.name.clone()), data)
            }
            Work::Child { workflow, version } => {
                let data = json!({
                    "node": node, "item": item, "tool": "workflow", "workflow_id": workflow, "version": version,
                    "input": input(), "reason": reason,
                });
                (RequestedAction::ChildRun, data)
            }
            _ => {
                let data = json!({"node": node, "item": item, "tool": "hitl", "input": input(), "reason": reason});
                (RequestedAction::Question, data)
            }
        }
    }

    /// Requests approval. The place waits.
    pub(crate) fn request_approval(
        &mut self,
        at: RunPlace,
        demand: &ApprovalRequirement,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        if self.approvals >= limits::RUN_APPROVALS_MAX {
            let error = ErrorBody::new(Code::ValidationFailed, "the run exceeds its limit of approval requests");
            return self.fail_step(at, error, env, book);
        }
        let step = self.ensure_step(at, env);
        let digest = self.next_request_digest(self.action_digest(at));
        let asked = self.next_request(digest, demand, env);
        let (action, mut data) = self.request_data(at, demand, env.policy);
        if let Some(task) = self.task(at).filter(|task| !task.changed_by.is_empty()) {
            data[EDITED_BY] = task.changed_by.clone().into();
        }
        let requesters = self.requesters_of(at);
        book.add_approval_request(
            &self.head,
            &asked,
            Some((step, self.name(at))),
            &action,
            data,
            demand,
            requesters,
            self.last_request_at,
        )?;
        let rationale = demand.reason.clone();
        let verdict = GovernanceDecision {
            source: DecisionSource::Approval,
            outcome: Outcome::Deferred,
            rationale,
            policies: Vec::new(),
        };
        let data = json!({"node": self.name(at), "approval_id": asked.id, "digest": digest, "needed": demand.people()});
        book.add_decision("approval.requested", Some(step), None, data, verdict);
        self.enter(at, TaskState::AwaitingApproval(asked));
        self.mark_dirty(at, env, book);
        Ok(())
    }

    /// Starts a `hitl` node.
    pub(crate) fn start_person(
        &mut self,
        at: RunPlace,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let compiled = &self.graph.nodes[at.node];
        let Body::Hitl(hitl) = &compiled.node.body else { return Ok(()) };
        let demand = demand(&hitl.approval, "a person decides here");
        let shown = match self.question(at) {
            Ok(shown) => shown,
            Err(error) => {
                let error = ErrorBody::new(Code::ValidationFailed, format!("the question can't be rendered: {error}"));
                return self.fail_step(at, error, env, book);
            }
        };
        match CanonicalJson::new(shown) {
            Ok(shown) => drop(self.fix_input(at, shown)),
            Err(error) => return self.fail_step(at, too_deep("the question", &error), env, book),
        }
        match self.recorded_outcome(at, None) {
            RecordedOutcome::NotUsed => self.request_approval(at, &demand, env, book),
            RecordedOutcome::Output(output) => self.complete_decision(at, output, env, book),
            RecordedOutcome::Failed(error) => self.fail_step(at, error, env, book),
            RecordedOutcome::Missing => self.not_recorded(at, env, book),
        }
    }

    /// The prompt and the data of a question. The decision covers both.
    fn question(&self, at: RunPlace) -> Result<Value, RenderError> {
        let (compiled, view) = (&self.graph.nodes[at.node], RunScope::at(self, at));
        let rendered =
            |template: &Option<Template>| template.as_ref().map(|template| template.render(&view)).transpose();
        let show = rendered(&compiled.show)?.unwrap_or_else(|| json!({}));
        Ok(match rendered(&compiled.prompt)? {
            None => show,
            Some(prompt) => json!({"prompt": prompt, "show": show}),
        })
    }

    /// Enough people approved.
    pub(crate) fn apply_approval(
        &mut self,
        approval: Uuid,
        by: Vec<String>,
        notes: Option<String>,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        if self.plan_approved(approval, &by, book)? || self.patch_approved(approval, &by, env, book)? {
            return Ok(());
        }
        let Some((at, asked)) = self.place_awaiting(approval) else { return Ok(()) };
        if let Some(task) = self.task_mut(at) {
            let (digest, showing) = (asked.digest, asked.earlier_requests);
            task.approved =
                Some(StepApproval { digest, earlier_requests: showing, by: by.clone(), notes: notes.clone() });
        }
        if matches!(self.work(at), Work::Person) {
            // Later steps may use their notes.
            self.add_co_requesters(by.iter().filter(|_| notes.is_some()).map(String::as_str));
            let output = json!({"decision": Decision::Approve, "approved_by": by, "notes": notes, "success": true});
            return self.complete_decision(at, output, env, book);
        }
        book.add_note(
            "step.approved",
            self.step_id(at),
            by.first().map(Actor::person),
            json!({"node": self.name(at), "by": by}),
        );
        self.enter(at, TaskState::Ready);
        self.mark_dirty(at, env, book);
        self.ready.push_front(at);
        Ok(())
    }

    /// Completes a `hitl` node.
    fn complete_decision(
        &mut self,
        at: RunPlace,
        output: Value,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let given = Digest32::of(&output);
        let data = json!({"node": self.name(at), "how": "decided", "output_digest": given});
        self.ensure_step(at, env);
        let seq = book.add_note("step.completed", self.step_id(at), None, data) + self.run_seq;
        self.enter(at, TaskState::Completed { output: Arc::new(output), seq, items: Vec::new() });
        self.mark_dirty(at, env, book);
        self.place_ended(at, env, book)
    }

    /// A person rejected the request. At a `hitl` node that is a failure which the graph may handle; anywhere
    /// else it cancels the run.
    pub(crate) fn apply_rejection(
        &mut self,
        approval: Uuid,
        by: Actor,
        notes: Option<String>,
        changes: bool,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        if self.patch_denied(approval, &by, book)? {
            return Ok(());
        }
        let decision = rejection_name(changes);
        let reason = rejection_reason(&by, changes);
        if let Some(plan) = self.plan.as_mut().filter(|plan| plan.approval() == Some(approval)) {
            plan.asked = None;
            return self.stop(by, notes.or(Some(reason)), env, book);
        }
        let Some((at, _)) = self.place_awaiting(approval) else { return Ok(()) };
        if matches!(self.work(at), Work::Person) {
            self.add_co_requesters(notes.is_some().then_some(by.id.as_str()));
            let error = ErrorBody::new(Code::PolicyDenied, reason).with("decision", decision).with("notes", notes);
            return self.fail_step(at, error, env, book);
        }
        self.enter(at, TaskState::Cancelled { items: Vec::new() });
        self.mark_dirty(at, env, book);
        self.place_ended(at, env, book)?;
        self.stop(by, notes.or(Some(reason)), env, book)
    }

    /// The request expired: cancels the step and the run.
    pub(crate) fn expire(
        &mut self,
        at: RunPlace,
        asked: &ApprovalRequest,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        book.close_approval_request(asked, RequestStatus::Expired, env.now)?;
        let rationale = "nobody decided in time".to_owned();
        let verdict = GovernanceDecision {
            source: DecisionSource::Approval,
            outcome: Outcome::Rejected,
            rationale: rationale.clone(),
            policies: Vec::new(),
        };
        book.add_decision("approval.expired", self.step_id(at), None, json!({"approval_id": asked.id}), verdict);
        self.enter(at, TaskState::Cancelled { items: Vec::new() });
        self.mark_dirty(at, env, book);
        self.place_ended(at, env, book)?;
        self.stop(Actor::system(), Some(rationale), env, book)
    }

    /// A person changed the input of a step that awaits approval. The old request was withdrawn with their
    /// signal; a new one with a new digest replaces it.
    pub(crate) fn apply_edit(
        &mut self,
        step: Uuid,
        input: Value,
        by: Actor,
        approval: Option<Uuid>,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let Some(at) = self.place_of_step(step) else { return Ok(()) };
        let Some(TaskState::AwaitingApproval(asked)) = self.task(at).map(|task| task.state.clone()) else {
            return Ok(());
        };
        let Work::Tool(spec) = self.work(at) else { return Ok(()) };
        // The signal is about an earlier request, which was already replaced.
        if asked.is_pending() && approval.is_some_and(|approval| approval != asked.id) {
            return Ok(());
        }
        if approval.is_none() {
            book.close_approval_request(&asked, RequestStatus::Superseded, env.now)?;
        }
        match validate_input(&spec, input) {
            Err(error) => {
                let data = json!({"code": error.code, "message": error.message});
                book.add_note("step.edit_refused", Some(step), Some(by), data);
            }
            Ok(input) => {
                let data = json!({"node": self.name(at), "input_digest": input.digest()});
                book.add_note("step.edited", Some(step), Some(by.clone()), data);
                // An edit that changes nothing does not make its author a requester. The input stays as written, since
                // numbers in different notations have the same digest.
                let same = self.task(at).is_some_and(|task| task.digest == Some(input.digest()));
                if !same {
                    self.fix_input(at, input);
                }
                if let Some(task) = self.task_mut(at).filter(|_| !same) {
                    task.approved = None;
                    // Earlier editors stay: parts of their input may remain.
                    task.changed_by = merge_names(std::mem::take(&mut task.changed_by), [by.id.as_str()]);
                }
            }
        }
        let edited = ApprovalRequirement::one_approval("the input was edited");
        match self.judge(at, &spec, env) {
            PolicyVerdict::Deny { rule, reason } => self.refuse_by_policy(at, rule, reason, env, book),
            PolicyVerdict::Ask(demand) => self.request_approval(at, &demand.and(edited), env, book),
            PolicyVerdict::Allow => self.request_approval(at, &edited, env, book),
        }
    }

    fn place_awaiting(&self, approval: Uuid) -> Option<(RunPlace, ApprovalRequest)> {
        self.places().find_map(|at| match &self.task(at)?.state {
            TaskState::AwaitingApproval(asked) if asked.id == approval => Some((at, asked.clone())),
            _ => None,
        })
    }
}

/// The wire name of a rejection.
const fn rejection_name(changes: bool) -> &'static str {
    if changes { Decision::RequestChanges.as_str() } else { Decision::Reject.as_str() }
}

/// The reason of a rejection without notes.
pub(crate) fn rejection_reason(by: &Actor, changes: bool) -> String {
    format!("{} by {}", rejection_name(changes), by.id)
}

pub(crate) fn expires_at(demand: &ApprovalRequirement, env: &Env<'_>) -> crate::time::Timestamp {
    let seconds = demand.expires_seconds.unwrap_or(limits::APPROVAL_SECONDS_DEFAULT).min(limits::APPROVAL_SECONDS_MAX);
    env.now.plus_seconds(i64::from(seconds))
}

fn demand(approval: &Approval, reason: &str) -> ApprovalRequirement {
    ApprovalRequirement {
        needed: approval.approvals_needed,
        approvers: approval.approvers.clone(),
        other_than_requester: approval.other_than_requester,
        expires_seconds: approval.expires_seconds,
        reason: reason.to_owned(),
        further: Vec::new(),
    }
}

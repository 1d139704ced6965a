//! The plan that people approve at L1.
//!
//! Its digest covers the graph, the run's inputs, the tool versions, and for each input either its
//! exact value or its template. A call that was approved exactly runs without further approval. A call
//! whose input was not known is judged again when it is.

use super::env::Env;
use super::event::GovernanceDecision;
use super::requesters::merge_names;
use super::turn_builder::TurnBuilder;
use super::{Run, RunPlace, RunStatus};
use crate::access::Actor;
use crate::error::{Code, ErrorBody};
use crate::flow::approval::{ApprovalRequest, ApprovalRequirement, RequestStatus, RequestedAction};
use crate::flow::patch;
use crate::json::Digest32;
use crate::ledger::decision::{DecisionSource, Outcome};
use crate::limits;
use crate::record::{Json, Unstorable, Value as Cell};
use crate::time::Timestamp;
use crate::tool::Spec;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use uuid::Uuid;

/// What was known of a node when the plan was drafted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlannedNode {
    /// The digest of its input, if known.
    pub(crate) exact: Option<Digest32>,
    /// The digest of its list, if it is a map and the list was known.
    pub(crate) list: Option<Digest32>,
    /// The number of items of that list that were shown.
    pub(crate) items_listed: u32,
    /// The digests of the inputs of its items, as far as known.
    pub(crate) items: BTreeMap<u32, Digest32>,
    /// The risk score of its call; in a map, the highest.
    pub(crate) risk: u32,
    pub(crate) tool_version: String,
}

impl PlannedNode {
    fn digest(&self, item: Option<u32>) -> Option<Digest32> {
        match item {
            None => self.exact,
            Some(item) => self.items.get(&item).copied(),
        }
    }

    /// Whether exactly this call was planned.
    pub(crate) fn covers(&self, item: Option<u32>, digest: Digest32, spec: &Spec) -> bool {
        self.digest(item) == Some(digest) && self.tool_version == spec.version
    }

    /// Whether something else was planned. An input that was not known does not differ.
    pub(crate) fn differs(&self, item: Option<u32>, spec: &Spec) -> bool {
        self.digest(item).is_some() || self.tool_version != spec.version
    }

    pub(crate) fn listed(&self) -> usize {
        usize::try_from(self.items_listed).unwrap_or(usize::MAX)
    }

    fn to_value(&self) -> Value {
        let items: Map<String, Value> =
            self.items.iter().map(|(item, digest)| (item.to_string(), digest.to_string().into())).collect();
        json!({
            "exact": self.exact, "list": self.list, "items_listed": self.items_listed, "items": items,
            "risk": self.risk, "tool_version": self.tool_version,
        })
    }

    fn from_value(value: &Value) -> Self {
        let items = value.get("items").and_then(Value::as_object).into_iter().flatten();
        Self {
            exact: value.get("exact").and_then(parse_digest),
            list: value.get("list").and_then(parse_digest),
            items_listed: number(value, "items_listed"),
            items: items.filter_map(|(item, digest)| Some((item.parse().ok()?, parse_digest(digest)?))).collect(),
            risk: number(value, "risk"),
            tool_version: value.get("tool_version").and_then(Value::as_str).unwrap_or_default().to_owned(),
        }
    }
}

/// An input that a person edited in the plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlanEdit {
    pub(crate) input: Value,
    /// Everyone who edited it. Empty for edits stored before this was recorded.
    pub(crate) by: Vec<String>,
}

/// A drafted plan.
#[derive(Clone, Debug)]
pub(crate) struct DraftedPlan {
    pub(crate) digest: Digest32,
    pub(crate) nodes: BTreeMap<String, PlannedNode>,
    /// The approval request. `None` once it is decided.
    pub(crate) asked: Option<ApprovalRequest>,
    /// Who approved it.
    pub(crate) by: Vec<String>,
}

impl DraftedPlan {
    pub(crate) fn node(&self, node: &str) -> Option<&PlannedNode> {
        self.nodes.get(node)
    }

    pub(crate) fn approval(&self) -> Option<Uuid> {
        self.asked.as_ref().map(|asked| asked.id)
    }

    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.asked.as_ref().and_then(ApprovalRequest::deadline)
    }

    /// The plan as `runs.plan` keeps it.
    pub(crate) fn from_document(document: &Value, asked: Option<ApprovalRequest>, by: Vec<String>) -> Option<Self> {
        let digest = parse_digest(document.get("digest")?)?;
        let nodes = document.get("nodes")?.as_object()?.iter();
        let nodes = nodes.map(|(name, planned)| (name.clone(), PlannedNode::from_value(planned)));
        Some(Self { digest, nodes: nodes.collect(), asked, by })
    }
}

fn number(value: &Value, member: &str) -> u32 {
    value.get(member).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok()).unwrap_or(0)
}

fn parse_digest(value: &Value) -> Option<Digest32> {
    Digest32::from_hex(value.as_str()?)
}

impl Run {
    /// Whether the plan still awaits a decision.
    pub(crate) fn is_plan_pending(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.asked.is_some())
    }

    /// The digest that approvals cover so far: the plan with every applied patch.
    pub(crate) fn covered_digest(&self) -> Option<Digest32> {
        let applied = self.patches_by_number.values().filter(|overlay| overlay.before.is_some());
        let plan = self.plan.as_ref()?.digest;
        Some(applied.fold(plan, |digest, overlay| patch::digest(digest, &overlay.patch)))
    }

    /// Fixes the plan after the draft. It awaits approval, or completes a dry run.
    pub(crate) fn fix_plan(
        &mut self,
        digest: Digest32,
        planned: BTreeMap<String, PlannedNode>,
        lines: &[Value],
        demand: ApprovalRequirement,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let nodes: Map<String, Value> =
            planned.iter().map(|(name, planned)| (name.clone(), planned.to_value())).collect();
        let risk: u32 = planned.values().map(|planned| planned.risk).fold(0, u32::saturating_add);
        let mut document = json!({"digest": digest, "nodes": nodes, "steps": lines, "risk": risk});
        if let (Value::Object(document), Value::Object(edits)) = (&mut document, self.edits_document()) {
            document.extend(edits.into_iter().filter(|_| !self.edits.is_empty()));
        }
        book.set_run_column("plan", Json::encode(&document)?);
        if self.head.risk.is_none() {
            book.set_run_column("risk", Json::encode(&json!({"score": risk}))?);
        }
        let data = json!({"digest": digest, "steps": lines.len(), "risk": risk});
        book.add_note("plan.drafted", None, None, data);
        if self.head.dry_run {
            self.result = Some(json!({"status": "dry_run", "dry_run_results": document["steps"]}));
            self.plan = Some(DraftedPlan { digest, nodes: planned, asked: None, by: Vec::new() });
            return self.end(RunStatus::Completed, env, book);
        }
        let asked = self.next_request(digest, &demand, env);
        let data = json!({"plan": document, "reason": demand.reason});
        book.add_approval_request(
            &self.head,
            &asked,
            None,
            &RequestedAction::Plan,
            data,
            &demand,
            self.requesters_of_plan(),
            self.last_request_at,
        )?;
        let data = json!({"approval_id": asked.id, "digest": digest, "needed": demand.people()});
        let (source, outcome) = (DecisionSource::Approval, Outcome::Deferred);
        let verdict = GovernanceDecision { source, outcome, rationale: demand.reason, policies: Vec::new() };
        book.add_decision("approval.requested", None, None, data, verdict);
        self.plan = Some(DraftedPlan { digest, nodes: planned, asked: Some(asked), by: Vec::new() });
        Ok(())
    }

    /// A person changed the input of a step of the plan. The request was withdrawn with their signal. The
    /// plan is drafted again, because the steps after it may change too.
    pub(crate) fn plan_edited(
        &mut self,
        node: String,
        input: Value,
        by: Actor,
        approval: Uuid,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let Some(asked) = self.plan.as_ref().and_then(|plan| plan.asked.as_ref()) else { return Ok(()) };
        if asked.is_pending() && asked.id != approval {
            return Ok(());
        }
        let digest = Digest32::of(&input);
        let planned = self.plan.as_ref().and_then(|plan| plan.node(&node));
        let same = planned.is_some_and(|planned| planned.exact == Some(digest));
        book.add_note("plan.edited", None, Some(by.clone()), json!({"node": node, "input_digest": digest}));
        self.withdraw_patches(|_| true, RequestStatus::Cancelled, "the plan was edited", env.now, book)?;
        self.plan = None;
        // An edit that changes nothing does not make its author a requester.
        if !same {
            let before = self.edits.remove(&node).map(|edit| edit.by).unwrap_or_default();
            self.edits.insert(node, PlanEdit { input, by: merge_names(before, [by.id.as_str()]) });
        }
        // If the run is claimed before the draft is complete, it is drafted again with the stored edits.
        book.set_run_column("plan", Json::encode(&self.edits_document())?);
        if self.approvals >= limits::RUN_APPROVALS_MAX {
            self.fail_with(ErrorBody::new(Code::ValidationFailed, "the run exceeds its limit of approval requests"));
            return Ok(());
        }
        self.begin_draft(env, book)
    }

    /// The edits, as stored in `runs.plan`.
    fn edits_document(&self) -> Value {
        let inputs: Map<String, Value> =
            self.edits.iter().map(|(node, edit)| (node.clone(), edit.input.clone())).collect();
        let by: Map<String, Value> =
            self.edits.iter().map(|(node, edit)| (node.clone(), edit.by.clone().into())).collect();
        json!({"edits": inputs, "edited_by": by})
    }

    /// The edited input of a place, if a person edited it in the plan.
    pub(crate) fn edited_input(&self, at: RunPlace) -> Option<&Value> {
        self.edits.get(self.name(at)).filter(|_| at.item.is_none()).map(|edit| &edit.input)
    }

    /// People approved the plan. False: the approval is not the plan's.
    pub(crate) fn plan_approved(
        &mut self,
        approval: Uuid,
        by: &[String],
        book: &mut TurnBuilder,
    ) -> Result<bool, Unstorable> {
        let Some(plan) = self.plan.as_mut().filter(|plan| plan.approval() == Some(approval)) else { return Ok(false) };
        plan.asked = None;
        plan.by = by.to_vec();
        let digest = plan.digest;
        book.set_run_column("plan_digest", Cell::Bytes(digest.to_vec()));
        book.add_note("plan.approved", None, by.first().map(Actor::person), json!({"digest": digest, "by": by}));
        self.begin_nodes();
        Ok(true)
    }

    /// Cancels the run if the request for the plan has expired.
    pub(crate) fn expire_plan(&mut self, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        let due = self.plan.as_ref().and_then(DraftedPlan::deadline).is_some_and(|due| due <= env.now);
        if !due {
            return Ok(());
        }
        let rationale = "nobody decided in time".to_owned();
        let (source, outcome) = (DecisionSource::Approval, Outcome::Rejected);
        let verdict = GovernanceDecision { source, outcome, rationale: rationale.clone(), policies: Vec::new() };
        let approval = self.plan.as_ref().and_then(DraftedPlan::approval);
        book.add_decision("approval.expired", None, None, json!({"approval_id": approval}), verdict);
        self.close_plan(RequestStatus::Expired, env, book)?;
        self.stop(Actor::system(), Some(rationale), env, book)
    }

    /// Cancels the pending request for the plan.
    pub(crate) fn drop_plan(&mut self, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        self.close_plan(RequestStatus::Cancelled, env, book)
    }

    fn close_plan(&mut self, status: RequestStatus, env: &Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        let asked = self.plan.as_mut().and_then(|plan| plan.asked.take());
        if let Some(asked) = asked {
            book.close_approval_request(&asked, status, env.now)?;
        }
        Ok(())
    }
}

//! The plan that people approve at L1.
//!
//! Its digest covers the graph, the run's inputs, the tool versions, and for each input either its
//! exact value or its template. A call that was approved exactly runs without further approval. A call
//! whose input was not known is evaluated again when it is.

use crate::access::Actor;
use crate::error::{Code, ErrorBody};
use crate::flow::approval::{ApprovalRequest, ApprovalRequirement, AskedFor, RequestStatus, RequestedAction};
use crate::flow::run::approval_rows::NewRequest;
use crate::flow::run::drafting::draft;
use crate::flow::run::event::GovernanceDecision;
use crate::flow::run::patches::apply;
use crate::flow::run::requesters::merge_names;
use crate::flow::run::turn_builder::{TurnBuilder, TurnContext};
use crate::flow::run::{Run, RunStatus, approval_rows, end, requesters, stop};
use crate::flow::tables::runs;
use crate::json::Digest32;
use crate::ledger::decision::{DecisionSource, Outcome};
use crate::record::{Json, Unstorable, Value as Cell};
use crate::time::Timestamp;
use crate::tool::Spec;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
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
    /// What the plan asks for because of its calls.
    pub(crate) asked_for: AskedFor,
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
            "risk": self.risk, "tool_version": self.tool_version, "asked_for": self.asked_for.to_value(),
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
            asked_for: AskedFor::from_value(value.get("asked_for")).of_several_calls(),
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

/// What a draft found.
pub(crate) struct FinishedDraft {
    pub(crate) digest: Digest32,
    pub(crate) planned: BTreeMap<String, PlannedNode>,
    /// What people see: a list.
    pub(crate) lines: Value,
    /// The approval that the plan needs.
    pub(crate) demand: ApprovalRequirement,
}

/// A person's change of the input of a step of the plan.
pub(crate) struct PlanChange {
    pub(crate) node: String,
    pub(crate) input: Value,
    pub(crate) by: Actor,
    /// The request that was withdrawn with the change.
    pub(crate) approval: Uuid,
}

/// A drafted plan.
#[derive(Clone, Debug)]
pub(crate) struct DraftedPlan {
    pub(super) digest: Digest32,
    pub(super) nodes: BTreeMap<String, PlannedNode>,
    /// The approval request. `None` once it is decided.
    pub(super) asked: Option<ApprovalRequest>,
    /// Who approved it.
    pub(super) by: Vec<String>,
}

impl DraftedPlan {
    pub(crate) fn node(&self, node: &str) -> Option<&PlannedNode> {
        self.nodes.get(node)
    }

    /// The request, until it is decided.
    pub(crate) const fn request(&self) -> Option<&ApprovalRequest> {
        self.asked.as_ref()
    }

    /// Who approved it.
    pub(crate) fn approvers(&self) -> &[String] {
        &self.by
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

/// The digest that approvals cover so far: the plan with every applied patch.
pub(crate) fn covered_digest(run: &Run) -> Option<Digest32> {
    Some(run.patches.covered_digest(run.drafting.plan.as_ref()?.digest))
}

/// Fixes the plan after the draft. It awaits approval, or completes a dry run.
pub(crate) fn fix(run: &mut Run, drafted: FinishedDraft, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let FinishedDraft { digest, planned, lines, demand } = drafted;
    let nodes: Map<String, Value> = planned.iter().map(|(name, planned)| (name.clone(), planned.to_value())).collect();
    let risk: u32 = planned.values().map(|planned| planned.risk).fold(0, u32::saturating_add);
    let steps = lines.as_array().map_or(0, Vec::len);
    let mut document = json!({"digest": digest, "nodes": nodes, "risk": risk});
    document["steps"] = lines;
    if let (Value::Object(document), Value::Object(edits)) = (&mut document, edits_document(run)) {
        document.extend(edits.into_iter().filter(|_| !run.drafting.edits.is_empty()));
    }
    cx.turn.set_run_column(runs::plan, Json::encode(&document)?);
    if run.head.risk.is_none() {
        cx.turn.set_run_column(runs::risk, Json::encode(&json!({"score": risk}))?);
    }
    let data = json!({"digest": digest, "steps": steps, "risk": risk});
    cx.turn.add_note("plan.drafted", None, None, data);
    if run.head.dry_run {
        let mut result = json!({"status": "dry_run"});
        result["dry_run_results"] = document["steps"].take();
        drop(document);
        run.result = Some(Arc::new(result));
        run.drafting.plan = Some(DraftedPlan { digest, nodes: planned, asked: None, by: Vec::new() });
        return end::finish(run, RunStatus::Completed, cx);
    }
    let asked = run.approvals.next(digest, &demand, &mut cx.env);
    let mut data = json!({"reason": demand.reason});
    data["plan"] = document;
    let (requesters, at) = (requesters::requesters_of_plan(run), run.approvals.last_at());
    let request =
        NewRequest { asked: &asked, step: None, action: &RequestedAction::Plan, data, demand: &demand, requesters, at };
    approval_rows::add_request(&run.head, request, &mut cx.turn)?;
    let data = json!({"approval_id": asked.id, "digest": digest, "needed": demand.people()});
    let (source, outcome) = (DecisionSource::Approval, Outcome::Deferred);
    let verdict = GovernanceDecision { source, outcome, rationale: demand.reason, policies: Vec::new() };
    cx.turn.add_decision("approval.requested", None, data, verdict);
    run.drafting.plan = Some(DraftedPlan { digest, nodes: planned, asked: Some(asked), by: Vec::new() });
    Ok(())
}

/// A person changed the input of a step of the plan. The request was withdrawn with their signal. The
/// plan is drafted again, because the steps after it may change too.
pub(crate) fn edited(run: &mut Run, edit: PlanChange, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let PlanChange { node, input, by, approval } = edit;
    let Some(asked) = run.drafting.plan.as_ref().and_then(|plan| plan.asked.as_ref()) else { return Ok(()) };
    if asked.is_pending() && asked.id != approval {
        return Ok(());
    }
    let digest = Digest32::of(&input);
    let planned = run.drafting.planned(&node);
    let same = planned.is_some_and(|planned| planned.exact == Some(digest));
    cx.turn.add_note("plan.edited", None, Some(by.clone()), json!({"node": node, "input_digest": digest}));
    apply::withdraw(run, |_| true, RequestStatus::Cancelled, "the plan was edited", cx)?;
    run.drafting.plan = None;
    // An edit that changes nothing does not make its author a requester.
    if !same {
        let before = run.drafting.edits.remove(&node).map(|edit| edit.by).unwrap_or_default();
        run.drafting.edits.insert(node, PlanEdit { input, by: merge_names(before, [by.id.as_str()]) });
    }
    // If the run is claimed before the draft is complete, it is drafted again with the stored edits.
    cx.turn.set_run_column(runs::plan, Json::encode(&edits_document(run))?);
    if run.approvals.is_exhausted() {
        run.stopping
            .fail_with(ErrorBody::new(Code::ValidationFailed, "the run exceeds its limit of approval requests"));
        return Ok(());
    }
    draft::begin(run, cx)
}

/// The edits, as stored in `runs.plan`.
fn edits_document(run: &Run) -> Value {
    let inputs: Map<String, Value> =
        run.drafting.edits.iter().map(|(node, edit)| (node.clone(), edit.input.clone())).collect();
    let by: Map<String, Value> =
        run.drafting.edits.iter().map(|(node, edit)| (node.clone(), edit.by.clone().into())).collect();
    json!({"edits": inputs, "edited_by": by})
}

/// People approved the plan. False: the approval is not the plan's.
pub(crate) fn approved(
    run: &mut Run,
    approval: Uuid,
    by: &[String],
    turn: &mut TurnBuilder,
) -> Result<bool, Unstorable> {
    let Some(plan) = run.drafting.plan.as_mut().filter(|plan| plan.approval() == Some(approval)) else {
        return Ok(false);
    };
    plan.asked = None;
    plan.by = by.to_vec();
    let digest = plan.digest;
    turn.set_run_column(runs::plan_digest, Cell::Bytes(digest.to_vec()));
    turn.add_note("plan.approved", None, by.first().map(Actor::person), json!({"digest": digest, "by": by}));
    run.tasks.queue_roots();
    Ok(true)
}

/// Cancels the run if the request for the plan has expired.
pub(crate) fn expire(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let due = run.drafting.plan.as_ref().and_then(DraftedPlan::deadline).is_some_and(|due| due <= cx.env.now);
    if !due {
        return Ok(());
    }
    let rationale = "nobody decided in time".to_owned();
    let (source, outcome) = (DecisionSource::Approval, Outcome::Rejected);
    let verdict = GovernanceDecision { source, outcome, rationale: rationale.clone(), policies: Vec::new() };
    let approval = run.drafting.plan.as_ref().and_then(DraftedPlan::approval);
    cx.turn.add_decision("approval.expired", None, json!({"approval_id": approval}), verdict);
    close(run, RequestStatus::Expired, cx)?;
    stop::cancel_run(run, Actor::system(), Some(rationale), cx);
    Ok(())
}

/// Cancels the pending request for the plan.
pub(crate) fn cancel(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    close(run, RequestStatus::Cancelled, cx)
}

fn close(run: &mut Run, status: RequestStatus, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let asked = run.drafting.plan.as_mut().and_then(|plan| plan.asked.take());
    if let Some(asked) = asked {
        cx.turn.close_approval_request(&asked, status, cx.env.now)?;
    }
    Ok(())
}

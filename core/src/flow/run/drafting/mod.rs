//! Plans: how a run drafts what it would do, and what people approved of it.
//!
//! This machine owns the draft in progress, the plan that people approve at L1, the inputs that they edited in it, and
//! the maps whose calls were approved in a request of their own.

pub(crate) mod draft;
pub(crate) mod draft_scope;
pub(crate) mod plan;

use super::event::RunPlace;
use super::map_calls::ApprovedMapCalls;
use crate::flow::approval::{RequestedAction, StoredApproval, current, newest_approved};
use crate::flow::tables::RunRow;
use crate::record::DamagedRows;
use crate::time::Timestamp;
use draft::Draft;
use plan::{DraftedPlan, PlanEdit, PlannedNode};
use serde_json::Value;
use std::collections::BTreeMap;
use uuid::Uuid;

/// The plan of a run.
#[derive(Default)]
pub(crate) struct Drafting {
    /// The draft in progress.
    draft: Option<Draft>,
    /// The plan drafted at L1, pending or approved.
    plan: Option<DraftedPlan>,
    /// Inputs that people edited in the plan. They replace those of the workflow.
    edits: BTreeMap<String, PlanEdit>,
    /// Maps whose calls were approved in a request of their own.
    approved_maps: BTreeMap<usize, ApprovedMapCalls>,
}

impl Drafting {
    /// Loads the plan of a run and its edits. A draft is not stored: it is made again.
    pub(crate) fn load(row: &RunRow, approvals: &[StoredApproval]) -> Result<Self, DamagedRows> {
        let Some(document) = &row.plan else { return Ok(Self::default()) };
        let document = document.value()?;
        let edits = document.get("edits").and_then(Value::as_object).into_iter().flatten();
        // Older rows hold a single name: that of the last editor.
        let by = |node: &str| match &document["edited_by"][node] {
            Value::String(one) => vec![one.clone()],
            several => {
                several.as_array().into_iter().flatten().filter_map(|by| Some(by.as_str()?.to_owned())).collect()
            }
        };
        let edits =
            edits.map(|(node, input)| (node.clone(), PlanEdit { input: input.clone(), by: by(node) })).collect();
        let approved = row.plan_digest.is_some();
        let of_plan = |approval: &StoredApproval| approval.step.is_none() && approval.action == RequestedAction::Plan;
        let by = newest_approved(approvals, of_plan).map(|approved| approved.by);
        let asked = if approved { None } else { current(approvals, of_plan) };
        let plan = DraftedPlan::from_document(&document, asked, by.unwrap_or_default());
        Ok(Self { edits, plan, ..Self::default() })
    }

    /// Whether a draft is in progress.
    pub(crate) const fn is_under_way(&self) -> bool {
        self.draft.is_some()
    }

    /// Whether the plan still awaits a decision.
    pub(crate) fn is_plan_pending(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.asked.is_some())
    }

    /// The plan, pending or approved.
    pub(crate) const fn plan(&self) -> Option<&DraftedPlan> {
        self.plan.as_ref()
    }

    /// What was known of a node when the plan was drafted.
    pub(crate) fn planned(&self, node: &str) -> Option<&PlannedNode> {
        self.plan.as_ref().and_then(|plan| plan.node(node))
    }

    /// The plan, once people have approved it.
    pub(crate) fn approved_plan(&self) -> Option<&DraftedPlan> {
        self.plan.as_ref().filter(|plan| plan.asked.is_none())
    }

    /// When the request for the plan expires.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.plan.as_ref().and_then(DraftedPlan::deadline)
    }

    /// The plan was rejected. False: the request is about something else.
    pub(crate) fn reject_plan(&mut self, approval: Uuid) -> bool {
        let plan = self.plan.as_mut().filter(|plan| plan.approval() == Some(approval));
        plan.and_then(|plan| plan.asked.take()).is_some()
    }

    /// The plan no longer holds: it is drafted again.
    pub(crate) fn drop_plan(&mut self) {
        self.plan = None;
    }

    /// The request for the plan was withdrawn, if it is this one.
    pub(crate) fn withdraw(&mut self, request: Uuid) {
        let asked = self.plan.as_mut().and_then(|plan| plan.asked.as_mut());
        if let Some(asked) = asked.filter(|asked| asked.id == request) {
            asked.withdraw();
        }
    }

    /// Drops the draft, unless a call of it is in flight: then it waits for the answer.
    pub(crate) fn drop_draft(&mut self) {
        self.draft.take_if(|draft| !draft.is_waiting());
    }

    /// Estimated memory of what the draft shows.
    pub(crate) fn memory(&self) -> usize {
        self.draft.as_ref().map_or(0, Draft::memory)
    }

    /// The edited input of a place, if a person edited it in the plan.
    pub(crate) fn edited_input(&self, node: &str, at: RunPlace) -> Option<&Value> {
        self.edits.get(node).filter(|_| at.item.is_none()).map(|edit| &edit.input)
    }

    pub(crate) fn has_edits(&self) -> bool {
        !self.edits.is_empty()
    }

    /// Everyone who edited the input of a node in the plan.
    pub(crate) fn editors_of(&self, node: &str) -> impl Iterator<Item = &str> {
        self.edits.get(node).into_iter().flat_map(|edit| edit.by.iter().map(String::as_str))
    }

    /// Everyone who edited the plan.
    pub(crate) fn editors(&self) -> impl Iterator<Item = &str> {
        self.edits.values().flat_map(|edit| edit.by.iter().map(String::as_str))
    }

    /// The approved calls of a map.
    pub(crate) fn approved_map(&self, node: usize) -> Option<&ApprovedMapCalls> {
        self.approved_maps.get(&node)
    }

    /// People approved the calls of a map.
    pub(crate) fn approve_map(&mut self, node: usize, calls: ApprovedMapCalls) {
        self.approved_maps.insert(node, calls);
    }
}

//! Reads approval requests from `scoped_approvals`.
//!
//! Nothing is guessed: a status, a decision or a requirement that can't be read is an error, and the request is neither
//! approved nor followed.

use super::{
    ApprovalRequest, ApprovalRequirement, AskedFor, Decision, RequestState, RequestStatus, RequestedAction,
    StepApproval, StoredApproval, Validity, approvers,
};
use crate::flow::patch::TOOLS as PATCH_TOOLS;
use crate::flow::tables::ApprovalRow;
use crate::record::DamagedRows;
use crate::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The member of a request's data that counts the earlier requests of the run.
pub(crate) const SHOWING: &str = "showing";
/// The member of a request's data that names the editors of the input.
pub(crate) const EDITED_BY: &str = "edited_by";

/// The member of a request's data that lists what it was asked for.
pub(crate) const ASKED_FOR: &str = "asked_for";

/// One person's decision, as `approval_details.decisions` holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersonDecision {
    #[serde(default)]
    pub at: String,
    pub by: String,
    /// False: the person was disabled or lost the right to decide before the request was approved.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub counts: bool,
    pub decision: Decision,
    pub notes: Option<String>,
}

const fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
const fn is_true(counts: &bool) -> bool {
    *counts
}

impl<'de> Deserialize<'de> for Decision {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Self::parse(&word).ok_or_else(|| serde::de::Error::custom("an unknown decision"))
    }
}

/// Decodes a row of `scoped_approvals`.
pub(super) fn decode(row: &ApprovalRow) -> Result<StoredApproval, DamagedRows> {
    let damaged = |what: &str| DamagedRows { what: format!("{what} of an approval request") };
    let decisions: Vec<PersonDecision> = row.decisions.decode().map_err(|_| damaged("decisions"))?;
    let state = match row.status {
        RequestStatus::Pending => RequestState::Pending,
        RequestStatus::Approved => {
            RequestState::Approved { by: approvers(&decisions), notes: row.review_notes.clone() }
        }
        RequestStatus::Denied => RequestState::Denied,
        RequestStatus::Expired => RequestState::Expired,
        RequestStatus::Superseded => RequestState::Superseded,
        RequestStatus::Cancelled => RequestState::Cancelled,
    };
    let data = row.action_data.value()?;
    let also = row.co_requesters.iter().flatten().cloned();
    Ok(StoredApproval {
        id: row.approval_request_id,
        action: RequestedAction::parse(&row.action_type),
        step: row.step_id,
        digest: row.action_digest,
        requirement: requirement(row, &data).ok_or_else(|| damaged("requirement"))?,
        requesters: std::iter::once(row.requester_actor.clone()).chain(also).collect(),
        created_at: row.created_at,
        reviewed_at: row.reviewed_at,
        expires_at: row.expires_at,
        version: row.state_version,
        state,
        decisions,
        data: ActionData(data),
    })
}

/// The action of a request, as people see it.
#[derive(Clone, Debug, Default)]
pub struct ActionData(Value);

impl ActionData {
    /// The stored document. Its members depend on the action.
    #[must_use]
    pub const fn as_value(&self) -> &Value {
        &self.0
    }

    /// The tools that would be called, and the versions that people saw.
    pub fn tools(&self) -> impl Iterator<Item = (&str, &str)> {
        let listed = [&self.0["calls"], &self.0["plan"]["steps"]].into_iter().filter_map(Value::as_array);
        let lines = std::iter::once(&self.0).chain(listed.flatten());
        let called = lines.filter_map(|line| Some((line["tool"].as_str()?, line["tool_version"].as_str()?)));
        let patched = self.0["patch"][PATCH_TOOLS].as_object().into_iter().flatten();
        called.chain(patched.filter_map(|(name, version)| Some((name.as_str(), version.as_str()?))))
    }

    /// The number of earlier requests of the run. Zero for requests stored before this was recorded.
    pub(crate) fn earlier_requests(&self) -> u32 {
        self.0.get(SHOWING).and_then(Value::as_u64).and_then(|earlier| u32::try_from(earlier).ok()).unwrap_or(0)
    }

    /// The editors of the input. `None` for requests stored before they were recorded.
    pub(crate) fn edited_by(&self) -> Option<Vec<String>> {
        let editors = self.0.get(EDITED_BY)?.as_array()?.iter();
        Some(editors.filter_map(|editor| Some(editor.as_str()?.to_owned())).collect())
    }

    /// What the request was asked for.
    pub(crate) fn asked_for(&self) -> AskedFor {
        AskedFor::from_value(self.0.get(ASKED_FOR))
    }

    /// The risk that people saw.
    pub(crate) fn risk(&self) -> Option<&Value> {
        self.0.get("risk").filter(|risk| !risk.is_null())
    }
}

/// The requirement of a request. Requests stored before it was recorded in parts have it in columns.
fn requirement(row: &ApprovalRow, data: &Value) -> Option<ApprovalRequirement> {
    if let Some(parts) = data.get("demands") {
        return ApprovalRequirement::from_value(parts);
    }
    let approvers = row.approvers.clone().unwrap_or_default();
    Some(ApprovalRequirement { needed: row.approvals_needed, approvers, ..ApprovalRequirement::one_approval("") })
}

/// The current request: the pending one, else the newest, because a run makes a new request only when the
/// previous one was decided or withdrawn. A withdrawn one stays current until the run has applied the signal
/// and made a new request.
pub(crate) fn current(approvals: &[StoredApproval], fits: impl Fn(&StoredApproval) -> bool) -> Option<ApprovalRequest> {
    let rank = |approval: &&StoredApproval| {
        (approval.state == RequestState::Pending, approval.order(), approval.state != RequestState::Superseded)
    };
    let approval = approvals.iter().filter(|approval| fits(approval)).max_by_key(rank)?;
    Some(ApprovalRequest {
        id: approval.id,
        digest: approval.digest,
        earlier_requests: approval.data.earlier_requests(),
        expires_at: approval.expires_at.unwrap_or(Timestamp::from_micros(i64::MAX)),
        asked_for: approval.data.asked_for(),
        validity: match approval.state {
            RequestState::Pending => Validity::Pending,
            RequestState::Superseded | RequestState::Cancelled => Validity::Withdrawn,
            RequestState::Approved { .. } | RequestState::Denied | RequestState::Expired => Validity::Decided,
        },
    })
}

/// The newest approval among these requests.
pub(crate) fn newest_approved(
    approvals: &[StoredApproval],
    fits: impl Fn(&StoredApproval) -> bool,
) -> Option<StepApproval> {
    let approved = approvals.iter().filter(|approval| fits(approval)).filter_map(|approval| match &approval.state {
        RequestState::Approved { by, notes } => Some((approval, by, notes)),
        _ => None,
    });
    let (approval, by, notes) = approved.max_by_key(|(approval, ..)| approval.order())?;
    Some(StepApproval {
        digest: approval.digest,
        earlier_requests: approval.data.earlier_requests(),
        by: by.clone(),
        notes: notes.clone(),
        asked_for: approval.data.asked_for(),
    })
}

//! Reads approval requests from `scoped_approvals`.
//!
//! Nothing is guessed: a status, a decision or a requirement that can't be read is an error, and the request is neither
//! approved nor followed.

use super::{
    ApprovalRequest, ApprovalRequirement, Decision, RequestState, RequestStatus, RequestedAction, StepApproval,
    StoredApproval, Validity, approvers,
};
use crate::flow::tables::scoped_approvals;
use crate::json::Digest32;
use crate::record::{DamagedRows, Json, Row};
use crate::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The member of a request's data that counts the earlier requests of the run.
pub(crate) const SHOWING: &str = "showing";
/// The member of a request's data that names the editors of the input.
pub(crate) const EDITED_BY: &str = "edited_by";

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
pub(super) fn decode(row: &Row) -> Result<StoredApproval, DamagedRows> {
    let damaged = |what: &str| DamagedRows { what: format!("{what} of an approval request") };
    let json = |column| row.get(column).as_json().map(Json::to_value).unwrap_or_default();
    let decisions: Vec<PersonDecision> =
        serde_json::from_value(json(scoped_approvals::decisions)).map_err(|_| damaged("decisions"))?;
    let status = RequestStatus::parse(row.text(scoped_approvals::status)).ok_or_else(|| damaged("status"))?;
    let state = match status {
        RequestStatus::Pending => RequestState::Pending,
        RequestStatus::Approved => RequestState::Approved {
            by: approvers(&decisions),
            notes: row.get(scoped_approvals::review_notes).as_text().map(str::to_owned),
        },
        RequestStatus::Denied => RequestState::Denied,
        RequestStatus::Expired => RequestState::Expired,
        RequestStatus::Superseded => RequestState::Superseded,
        RequestStatus::Cancelled => RequestState::Cancelled,
    };
    let data = json(scoped_approvals::action_data);
    let digest = row.get(scoped_approvals::action_digest).as_bytes().and_then(Digest32::from_slice);
    let also = row.get(scoped_approvals::co_requesters).as_texts().iter().cloned();
    Ok(StoredApproval {
        id: row.uuid(scoped_approvals::approval_request_id),
        action: RequestedAction::parse(row.text(scoped_approvals::action_type)),
        step: row.get(scoped_approvals::step_id).as_uuid(),
        digest: digest.ok_or_else(|| damaged("digest"))?,
        requirement: requirement(row, &data).ok_or_else(|| damaged("requirement"))?,
        requesters: std::iter::once(row.text(scoped_approvals::requester_actor).to_owned()).chain(also).collect(),
        created_at: row.get(scoped_approvals::created_at).as_time(),
        reviewed_at: row.get(scoped_approvals::reviewed_at).as_time(),
        expires_at: row.get(scoped_approvals::expires_at).as_time(),
        version: row.int(scoped_approvals::state_version),
        state,
        decisions,
        data: ActionData(data),
    })
}

/// The action of a request, as people see it.
#[derive(Clone, Debug, Default)]
pub struct ActionData(Value);

impl ActionData {
    /// The tools that would be called, and the versions that people saw.
    pub fn tools(&self) -> impl Iterator<Item = (&str, &str)> {
        let listed = [&self.0["calls"], &self.0["plan"]["steps"]].into_iter().filter_map(Value::as_array);
        let lines = std::iter::once(&self.0).chain(listed.flatten());
        lines.filter_map(|line| Some((line["tool"].as_str()?, line["tool_version"].as_str()?)))
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

    /// The risk that people saw.
    pub(crate) fn risk(&self) -> Option<&Value> {
        self.0.get("risk").filter(|risk| !risk.is_null())
    }
}

/// The requirement of a request. Requests stored before it was recorded in parts have it in columns.
fn requirement(row: &Row, data: &Value) -> Option<ApprovalRequirement> {
    if let Some(parts) = data.get("demands") {
        return ApprovalRequirement::from_value(parts);
    }
    let approvers = row.get(scoped_approvals::approvers).as_texts().to_vec();
    let needed = u32::try_from(row.int(scoped_approvals::approvals_needed)).ok()?;
    Some(ApprovalRequirement { needed, approvers, ..ApprovalRequirement::one_approval("") })
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
    })
}

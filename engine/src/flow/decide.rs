//! Decisions on approval requests.
//!
//! A decision is bound to a digest of exactly what would run. Without a digest or a step it is accepted only while the
//! run's first request is pending, so that a second click on the same button can't approve the next step. With a step
//! alone it is accepted only while the first request for that step is pending.

use super::error::{check_text, mask_credentials};
use super::void_requests::{CANCELLED, PATCH, SUPERSEDED, VoidRequests};
use super::{Flow, load, review};
use crate::access::{APPROVALS_DECIDE, Permit, is_nonce_conflict, missing_scope_error};
use crate::error::EngineError;
use crate::ledger::audit::{DecisionRecord as Audited, EventRecord, Writer};
use crate::port::CommitError;
use chimera_core::access::DeciderRefusal;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::run::{ApprovalRequirement, SamePerson, Signal, SignalKind, affinity, approvers_in};
use chimera_core::flow::tables::{APPROVAL_DETAILS, APPROVAL_REQUESTS};
use chimera_core::json::Digest32;
use chimera_core::ledger::decision::{DecisionSource, Outcome};
use chimera_core::ledger::{ActorType, SubjectType};
use chimera_core::limits;
use chimera_core::record::{Json, Row, Tx, Unstorable, Update, Value as Cell};
use serde_json::{Value, json};
use uuid::Uuid;

/// A person's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Approve,
    Reject,
    /// Rejected until it is changed.
    RequestChanges,
}

impl Decision {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Reject => "reject",
            Self::RequestChanges => "request_changes",
        }
    }

    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Approve, Self::Reject, Self::RequestChanges].into_iter().find(|decision| decision.as_str() == word)
    }
}

/// A decision and what it is about.
#[derive(Clone, Debug)]
pub struct Decide {
    pub run: Uuid,
    pub decision: Decision,
    pub approval: Option<Uuid>,
    pub step: Option<Uuid>,
    /// The digest of what the person reviewed.
    pub digest: Option<Digest32>,
    pub reason: Option<String>,
}

/// The state of the request after the decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionResult {
    pub approval: Uuid,
    /// `approved`, `denied`, or `pending` while more people must approve.
    pub status: &'static str,
    pub approvals: usize,
    pub needed: i64,
}

impl Flow {
    /// Records a decision and wakes the run.
    pub async fn decide(&self, permit: &Permit, ask: Decide) -> Result<DecisionResult, EngineError> {
        self.decide_with_link(permit, ask, None).await
    }

    /// Like `decide`; an approval link is consumed with the decision.
    pub(super) async fn decide_with_link(
        &self,
        permit: &Permit,
        ask: Decide,
        link: Option<Digest32>,
    ) -> Result<DecisionResult, EngineError> {
        if permit.kind() != ActorType::Human {
            return Err(not_decider(&DeciderRefusal::NotAPerson));
        }
        check_text("reason", ask.reason.as_deref())?;
        let mut ask = ask;
        // Expressions may use the notes of an approval; those of a refusal are only displayed.
        if ask.decision != Decision::Approve {
            ask.reason = ask.reason.as_deref().map(mask_credentials);
        }
        for _ in 1..limits::DECIDE_TRIES_MAX {
            match self.try_decide(permit, &ask, link).await {
                // A concurrent decision: retry with the current state.
                Err(EngineError::Commit(error @ CommitError::Conflict(_))) if !is_nonce_conflict(&error) => {}
                decided => return decided,
            }
        }
        self.try_decide(permit, &ask, link).await
    }

    async fn try_decide(
        &self,
        permit: &Permit,
        ask: &Decide,
        link: Option<Digest32>,
    ) -> Result<DecisionResult, EngineError> {
        let used_up = match link {
            Some(link) => Some(self.consume_link(link, self.inner.parts.clock.now()).await?),
            None => None,
        };
        let records = &*self.inner.parts.records;
        let run = load::decidable_run(records, permit, ask.run).await?;
        let rows = self.requests_of(permit.tenant(), ask.run).await?;
        let row = find_request(&rows, ask)?;
        review::check_open(&review::of_row(&run, row, &[], self.inner.parts.clock.steady()))?;
        self.check_decider(permit, row)?;
        if ask.decision == Decision::Approve {
            review::check_approvable(row)?;
            self.check_tool_versions(ask.run, row)?;
        }
        self.check_narrowed_token(permit, ask, row).await?;
        let mut decisions = row.get("decisions").as_json().map(Json::to_value).unwrap_or_default();
        let counted = approvers_in(&decisions);
        let said = decisions
            .as_array_mut()
            .ok_or_else(|| EngineError::refused(Code::Internal, "the approval can't be read"))?;
        let is_own = |said: &Value| said["by"] == permit.actor();
        let before = said.iter().find(|said| is_own(said));
        let decided_already =
            || EngineError::refused(Code::InvalidTransition, "you have already decided on this request");
        let repeats = before.is_some();
        match before {
            // An approver may count again, for instance after being disabled for a while.
            Some(before) if before["decision"] == "approve" && ask.decision == Decision::Approve => {}
            Some(_) => return Err(decided_already()),
            None => {
                let now = self.inner.parts.clock.now();
                said.push(json!({
                    "by": permit.actor(), "decision": ask.decision.as_str(), "at": now.to_string(), "notes": ask.reason,
                }));
            }
        }
        for said in said.iter_mut() {
            let counts = is_own(said) || self.still_counts(permit.tenant(), said, &run);
            let Some(said) = said.as_object_mut() else { continue };
            match counts {
                true => said.remove("counts"),
                // Stored with the request, so that a node that takes over the run knows it too.
                false => said.insert("counts".to_owned(), false.into()),
            };
        }
        let by = approvers_in(&decisions);
        let (demand, requesters) = (demand_of(row), requesters_of(row));
        let same = |one: &str, other: &str| self.inner.parts.asking.recipients.is_same_person(one, other);
        let needed = demand.people_needed_after(&by, &requesters, &same);
        let is_met = demand.is_met(&by, &requesters, &same);
        if !repeats && ask.decision == Decision::Approve && demand.adds_no_approver(&by, &requesters, &same) {
            let message = "somebody with your mail address has already decided, and you count as one person";
            return Err(EngineError::refused(Code::InvalidTransition, message));
        }
        if repeats && !is_met && by == counted {
            return Err(decided_already());
        }
        let status = match ask.decision {
            Decision::Approve if is_met => "approved",
            Decision::Approve => "pending",
            Decision::Reject | Decision::RequestChanges => "denied",
        };
        let decided = DecisionResult { approval: row.uuid("approval_request_id"), status, approvals: by.len(), needed };
        let void = requests_voided_by(&rows, row, &decided);
        let mut tx = self.decision_tx(permit, ask, row, &decisions, &decided, &void)?;
        if let Some(used_up) = used_up {
            tx.updates.push(used_up);
            let (subject, data) = (decided.approval.to_string(), json!({"decision": ask.decision.as_str()}));
            self.record(&mut tx, permit, Some(ask.run), subject, "approval.link_used", data)?;
        }
        self.inner.parts.records.commit(tx).await?;
        if status != "pending" {
            self.inner.wake(ask.run);
        }
        Ok(decided)
    }

    /// Refuses a caller who may not decide on this request.
    pub(super) fn check_decider(&self, permit: &Permit, row: &Row) -> Result<(), EngineError> {
        let demand = demand_of(row);
        // An operator's own contributions in the tenant are not recorded under their name there.
        if permit.acts_for().is_some() && demand.excludes_requesters() {
            return Err(not_decider(&DeciderRefusal::ActsForTenant));
        }
        let same = |one: &str, other: &str| self.inner.parts.asking.recipients.is_same_person(one, other);
        let reason = demand.exclusion_reason(permit.actor(), &requesters_of(row), &same);
        reason.map_or(Ok(()), |reason| Err(not_decider(&reason)))
    }

    /// Whether an earlier decision still counts: not if its author was disabled or may no longer decide.
    fn still_counts(&self, tenant: &str, said: &Value, run: &Row) -> bool {
        let recipients = &self.inner.parts.asking.recipients;
        let person = said["by"].as_str().unwrap_or_default();
        recipients.not_decider(tenant, person, run.text("actor")).is_none()
    }

    /// Refuses to approve a call of a tool that changed since the request; the run asks again.
    fn check_tool_versions(&self, run: Uuid, row: &Row) -> Result<(), EngineError> {
        let data = row.get("action_data").as_json().map(Json::to_value).unwrap_or_default();
        let listed = [&data["calls"], &data["plan"]["steps"]].into_iter().filter_map(Value::as_array).flatten();
        let changed = std::iter::once(&data).chain(listed).find_map(|line| {
            let (name, version) = (line["tool"].as_str()?, line["tool_version"].as_str()?);
            let tool = self.inner.parts.registry.get(name)?;
            (tool.spec().version != version).then(|| name.to_owned())
        });
        let Some(tool) = changed else { return Ok(()) };
        self.inner.wake(run);
        let message = format!("{tool} changed since this approval was requested; fetch the run for the current digest");
        Err(EngineError::refused(Code::StaleApproval, message))
    }

    /// A narrowed token can't release what it could not request, unless it has the scope for deciding. A rejection
    /// counts too: the graph may continue after it.
    async fn check_narrowed_token(&self, permit: &Permit, ask: &Decide, row: &Row) -> Result<(), EngineError> {
        if !permit.is_narrowed() || permit.may(APPROVALS_DECIDE) {
            return Ok(());
        }
        match (row.text("action_type"), ask.decision) {
            // The patch is not part of the run yet.
            (PATCH, Decision::Approve) => Err(EngineError::missing_scope(APPROVALS_DECIDE)),
            // Nothing has run, and nothing will.
            ("plan", Decision::Reject | Decision::RequestChanges) => {
                self.check_end_scopes(permit, ask.run, APPROVALS_DECIDE).await
            }
            _ => self.check_continue_scopes(permit, ask.run, APPROVALS_DECIDE).await,
        }
    }

    fn decision_tx(
        &self,
        permit: &Permit,
        ask: &Decide,
        row: &Row,
        decisions: &Value,
        decided: &DecisionResult,
        void: &VoidRequests,
    ) -> Result<Tx, EngineError> {
        let now = self.inner.parts.clock.steady();
        let approval = decided.approval;
        let json = Json::encode(decisions).map_err(Unstorable::from)?;
        let version = row.int("state_version");
        let details =
            Update::versioned(&APPROVAL_DETAILS, vec![approval.into()], version, vec![("decisions", json.into())]);
        let mut set = vec![("status", decided.status.into())];
        if decided.status != "pending" {
            set.extend([
                ("reviewed_at", now.into()),
                ("reviewed_by", permit.actor().into()),
                ("review_decision", ask.decision.as_str().into()),
                ("review_notes", ask.reason.clone().into()),
            ]);
        }
        let request = Update::new(&APPROVAL_REQUESTS, vec![approval.into()], vec![("status", "pending".into())], set);
        let mut tx = Tx {
            updates: vec![details.map_err(Unstorable::from)?, request.map_err(Unstorable::from)?],
            affinity: affinity(ask.run),
            ..Tx::default()
        };
        let told = match decided.status {
            "approved" => {
                Some(SignalKind::Approved { approval, by: approvers_in(decisions), notes: ask.reason.clone() })
            }
            "denied" => Some(SignalKind::Denied {
                approval,
                by: permit.by(),
                notes: ask.reason.clone(),
                changes: ask.decision == Decision::RequestChanges,
            }),
            _ => None,
        };
        if let Some(told) = told {
            let mut signal = Signal::new(self.inner.id(), told);
            void.close(&mut tx, &mut signal, permit, now)?;
            tx.inserts.push(signal.row(permit.tenant(), ask.run, now)?);
        }
        let writer = Writer { random: &*self.inner.parts.random, clock: &*self.inner.parts.clock };
        let mut entry = decision_record(permit, ask, row, decided);
        void.add_to_entry(&mut entry.event.data);
        writer.decision(&mut tx, entry)?;
        permit.add_nonces(&mut tx);
        Ok(tx)
    }
}

/// The minimum number of people a request needs, including those who have approved.
pub(super) fn people_needed(row: &Row, same: SamePerson<'_>) -> i64 {
    let said = row.get("decisions").as_json().map(Json::to_value).unwrap_or_default();
    demand_of(row).people_needed_after(&approvers_in(&said), &requesters_of(row), same)
}

/// The refusal of a caller who may not decide.
pub(super) fn not_decider(reason: &DeciderRefusal) -> EngineError {
    let body = match reason {
        DeciderRefusal::LacksScope => missing_scope_error(APPROVALS_DECIDE),
        reason => ErrorBody::new(Code::RbacForbidden, reason.message()),
    };
    EngineError::Refused(Box::new(body.with("reason", reason.as_str())))
}

/// Everybody who requested what is being decided on.
fn requesters_of(row: &Row) -> Vec<String> {
    let also = row.get("co_requesters").as_texts();
    std::iter::once(row.text("requester_actor").to_owned()).chain(also.iter().cloned()).collect()
}

/// The approval requirements of a request.
fn demand_of(row: &Row) -> ApprovalRequirement {
    let data = row.get("action_data").as_json().map(Json::to_value).unwrap_or_default();
    ApprovalRequirement::from_value(&data["demands"]).unwrap_or_else(|| {
        let approvers = if let Cell::Texts(approvers) = row.get("approvers") { approvers.clone() } else { Vec::new() };
        let needed = u32::try_from(row.int("approvals_needed")).unwrap_or(u32::MAX);
        ApprovalRequirement { needed, approvers, ..ApprovalRequirement::one_approval("") }
    })
}

/// The pending requests that become void with this decision: other patches were based on a plan without this one, and a
/// stopped run has nothing left to decide. A rejection at a `hitl` node is a normal outcome.
fn requests_voided_by(rows: &[Row], row: &Row, decided: &DecisionResult) -> VoidRequests {
    let other = |other: &Row| other.uuid("approval_request_id") != decided.approval;
    match (decided.status, row.text("action_type")) {
        ("approved", PATCH) => {
            VoidRequests::pending_in(rows, SUPERSEDED, |row| other(row) && row.text("action_type") == PATCH)
        }
        ("denied", action) if ![PATCH, "hitl"].contains(&action) => VoidRequests::pending_in(rows, CANCELLED, other),
        _ => VoidRequests::default(),
    }
}

fn decision_record(permit: &Permit, ask: &Decide, row: &Row, decided: &DecisionResult) -> Audited {
    let digest = row.get("action_digest").as_bytes().map(hex::encode);
    let outcome = match decided.status {
        "approved" => Outcome::Approved,
        "denied" => Outcome::Rejected,
        _ => Outcome::Deferred,
    };
    Audited {
        event: EventRecord {
            tenant_id: permit.tenant().to_owned(),
            subject_type: SubjectType::Other,
            subject_id: decided.approval.to_string(),
            event_type: "approval.decided".to_owned(),
            actor_type: permit.kind(),
            actor_id: Some(permit.actor().to_owned()),
            data: json!({
                "run_id": ask.run, "digest": digest, "decision": ask.decision.as_str(),
                "approvals": decided.approvals, "needed": decided.needed,
            }),
            run_id: Some(ask.run),
            run_seq: None,
            trace_id: Some(chimera_core::id::trace_id(ask.run)),
        },
        source: DecisionSource::Approval,
        outcome,
        rationale: ask.reason.as_deref().map_or_else(|| ask.decision.as_str().to_owned(), mask_credentials),
        agent_id: None,
        action_type: Some(row.text("action_type").to_owned()),
        action_data: None,
        policies: Vec::new(),
        campaign_id: None,
        task_id: None,
    }
}

/// Finds the request that the decision refers to.
fn find_request<'a>(rows: &'a [Row], ask: &Decide) -> Result<&'a Row, EngineError> {
    let ambiguous = |message: &str| EngineError::refused(Code::InvalidTransition, message);
    let stale = || {
        EngineError::refused(
            Code::StaleApproval,
            "no pending approval has this digest; fetch the run for the current digest",
        )
    };
    let of_step = |row: &&Row| ask.step.is_none_or(|step| row.uuid("step_id") == step);
    if let Some(id) = ask.approval {
        let unknown = || EngineError::refused(Code::NotFound, "this run has no approval request with this id");
        let row = rows.iter().find(|row| row.uuid("approval_request_id") == id).ok_or_else(unknown)?;
        if !of_step(&row) {
            return Err(ambiguous("the approval does not belong to this step"));
        }
        let looked_at = |digest: &Digest32| row.get("action_digest").as_bytes() == Some(&digest.0[..]);
        return if ask.digest.as_ref().is_none_or(looked_at) { Ok(row) } else { Err(stale()) };
    }
    let fitting: Vec<&Row> = rows.iter().filter(of_step).collect();
    if let Some(digest) = &ask.digest {
        let looked_at = |row: &&&Row| row.get("action_digest").as_bytes() == Some(&digest.0[..]);
        let pending = fitting.iter().filter(looked_at).find(|row| row.text("status") == "pending");
        return pending.or_else(|| fitting.iter().find(looked_at)).copied().ok_or_else(stale);
    }
    let pending: Vec<&Row> = fitting.iter().copied().filter(|row| row.text("status") == "pending").collect();
    // A caller who names only the step has seen its first version.
    if ask.decision == Decision::Approve && ask.step.is_some() && fitting.len() > 1 && !pending.is_empty() {
        let message =
            "the step changed since its approval was first requested: fetch the run and send its current digest";
        return Err(EngineError::refused(Code::StaleApproval, message));
    }
    match pending.as_slice() {
        [] => Err(ambiguous("no approval is pending here")),
        [only] if ask.step.is_some() || rows.len() == 1 => Ok(only),
        [_] => Err(ambiguous("this is not the first approval of the run: send the step or the digest")),
        _ => Err(ambiguous("several approvals are pending: send the step or the digest")),
    }
}

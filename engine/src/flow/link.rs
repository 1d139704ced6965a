//! Decisions with a link that was sent to one person.
//!
//! The link is the credential: its holder decides as that person, on one request, once, until the request expires.
//! Opening it changes nothing, because mail scanners open links too. The link is consumed in the transaction of the
//! decision, so it can't be consumed without deciding, nor decide twice.

use super::decide::not_decider;
use super::link_token::{check_token, token_digest, was_mailed_to};
use super::{Decide, Decision, DecisionResult, Flow, decide, load, review};
use crate::access::{Permit, link_holder};
use crate::error::EngineError;
use crate::rows;
use chimera_core::access::tables::{APPROVAL_LINKS, ApprovalLinkRow, approval_links};
use chimera_core::error::Code;
use chimera_core::flow::approval::StoredApproval;
use chimera_core::flow::review::Review;
use chimera_core::flow::tables::RunRow;
use chimera_core::json::Digest32;
use chimera_core::record::{Scope, Step, StoredRow, Tx, Unstorable, Update, Value as Cell};
use uuid::Uuid;

/// What a link shows.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkView {
    /// The recipient of the link.
    pub person: String,
    /// What to decide on.
    pub review: Review,
}

/// A resolved link.
struct Link {
    run: Uuid,
    approval: Uuid,
    permit: Permit,
}

/// The row of a link that is neither used nor ended.
struct UsableLink {
    row: ApprovalLinkRow,
    /// Makes the decision conflict if the recipient's entry has changed since it was read.
    unchanged: Option<Step>,
}

/// Shows what to decide on. Changes nothing.
pub async fn open_link(flow: &Flow, token: &str) -> Result<LinkView, EngineError> {
    let link = known_link(flow, token).await?;
    let records = &*flow.inner.parts.records;
    let row = load::readable_run(records, &link.permit, link.run).await?;
    let all = review::requests_of(flow, link.permit.tenant(), link.run).await?;
    let asked = all.iter().find(|request| request.approval_request_id == link.approval);
    let asked = asked.ok_or_else(|| EngineError::not_found("approval"))?;
    let review = review::of_row(&row, asked, &all, flow.inner.parts.clock.steady())?;
    if let Err(error) = usable_link(flow, token).await {
        // Tell the holder what became of the request.
        let gone = error.body();
        if gone.code != Code::Gone.as_str() {
            return Err(error);
        }
        let gone = gone.message;
        let message = if review.is_open() { gone } else { format!("{gone}; {}", review.standing.describe()) };
        return Err(EngineError::refused(Code::Gone, message));
    }
    review::check_open(&review)?;
    decide::check_decider(flow, &link.permit, &StoredApproval::of_row(asked)?)?;
    check_still_decider(flow, &link.permit, &row)?;
    Ok(LinkView { person: link.permit.actor().to_owned(), review })
}

/// Refuses a link that is used or expired. Changes nothing.
pub async fn check_link(flow: &Flow, token: &str) -> Result<(), EngineError> {
    usable_link(flow, token).await.map(|_| ())
}

/// Decides as the recipient of the link, on exactly what they were shown.
pub async fn decide_by_link(
    flow: &Flow,
    token: &str,
    decision: Decision,
    digest: Digest32,
    reason: Option<String>,
) -> Result<DecisionResult, EngineError> {
    let Link { run, approval, permit } = link(&usable_link(flow, token).await?.row);
    check_still_decider(flow, &permit, &load::readable_run(&*flow.inner.parts.records, &permit, run).await?)?;
    let ask = Decide { run, decision, approval: Some(approval), step: None, digest: Some(digest), reason };
    decide::decide_with_link(flow, &permit, ask, Some(token)).await
}

/// Refuses a person who may no longer decide since the link was sent.
fn check_still_decider(flow: &Flow, permit: &Permit, run: &RunRow) -> Result<(), EngineError> {
    let recipients = &flow.inner.parts.asking.recipients;
    let reason = recipients.not_decider(permit.tenant(), permit.actor(), &run.actor);
    reason.map_or(Ok(()), |reason| Err(not_decider(&reason)))
}

/// A link, usable or not.
async fn known_link(flow: &Flow, token: &str) -> Result<Link, EngineError> {
    Ok(link(&link_row(flow, token).await?))
}

async fn link_row(flow: &Flow, token: &str) -> Result<ApprovalLinkRow, EngineError> {
    check_token(token)?;
    // The link determines the tenant.
    let key = Cell::Bytes(token_digest(token).to_vec());
    let select = ApprovalLinkRow::select(Scope::System).with(approval_links::token_digest, key);
    let row: Option<ApprovalLinkRow> = rows::find(&*flow.inner.parts.records, select).await?;
    row.ok_or_else(|| EngineError::not_found("link"))
}

async fn usable_link(flow: &Flow, token: &str) -> Result<UsableLink, EngineError> {
    let row = link_row(flow, token).await?;
    let gone = |why: String| Err(EngineError::refused(Code::Gone, why));
    if let Some(at) = row.used_at {
        return gone(format!("this link was already used, at {at} by {}", row.actor));
    }
    if row.expires_at <= flow.inner.parts.clock.steady() {
        return gone(format!("this link expired at {}", row.expires_at));
    }
    // Read after the row: a link that was stored after its address changed is not ended by its row.
    let recipients = &flow.inner.parts.asking.recipients;
    let registered = recipients.stored_decider(&row.tenant_id, &row.actor, &row.actor).await?;
    if registered.as_ref().is_some_and(|registered| !was_mailed_to(token, registered.mail.as_deref())) {
        return gone("this link was sent to an address that is no longer registered for its person".to_owned());
    }
    Ok(UsableLink { row, unchanged: registered.map(|registered| registered.unchanged) })
}

/// Adds to a decision that its link is consumed, unless it was used or has ended.
pub(super) async fn consume_link(flow: &Flow, token: &str) -> Result<Tx, EngineError> {
    let UsableLink { row, unchanged } = usable_link(flow, token).await?;
    let key = vec![Cell::Bytes(row.token_digest.to_vec())];
    let expect = vec![(approval_links::expires_at, row.expires_at.into()), (approval_links::used_at, Cell::Null)];
    let set = vec![(approval_links::used_at, flow.inner.parts.clock.now().into())];
    let used = Update::new(&APPROVAL_LINKS, key, expect, set).map_err(Unstorable::from)?;
    Ok(Tx { updates: vec![used], steps: unchanged.into_iter().collect(), ..Tx::default() })
}

fn link(row: &ApprovalLinkRow) -> Link {
    let permit = link_holder(&row.tenant_id, &row.actor);
    Link { run: row.run_id, approval: row.approval_id, permit }
}

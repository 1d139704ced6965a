//! Decisions with a link that was sent to one person.
//!
//! The link is the credential: its holder decides as that person, on one request, once, until the request expires.
//! Opening it changes nothing, because mail scanners open links too. The link is consumed in the transaction of the
//! decision, so it can't be consumed without deciding, nor decide twice.

use super::approval_messages::token_digest;
use super::decide::not_decider;
use super::{Decide, Decision, DecisionResult, Flow, load, review};
use crate::access::{Permit, link_holder};
use crate::error::EngineError;
use chimera_core::access::tables::APPROVAL_LINKS;
use chimera_core::error::Code;
use chimera_core::flow::approval::StoredApproval;
use chimera_core::flow::review::Review;
use chimera_core::json::Digest32;
use chimera_core::record::{Row, Scope, Select, Unstorable, Update, Value as Cell};
use chimera_core::time::Timestamp;
use uuid::Uuid;

/// The length of a link's token.
const TOKEN_CHARS: usize = 43;

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
    digest: Digest32,
    run: Uuid,
    approval: Uuid,
    permit: Permit,
}

impl Flow {
    /// Shows what to decide on. Changes nothing.
    pub async fn open_link(&self, token: &str) -> Result<LinkView, EngineError> {
        let link = self.known_link(token).await?;
        let records = &*self.inner.parts.records;
        let row = load::readable_run(records, &link.permit, link.run).await?;
        let all = self.requests_of(link.permit.tenant(), link.run).await?;
        let asked = all.iter().find(|row| row.uuid("approval_request_id") == link.approval);
        let asked = asked.ok_or_else(|| EngineError::not_found("approval"))?;
        let review = review::of_row(&row, asked, &all, self.inner.parts.clock.steady());
        if let Err(error) = self.usable_link_of(token).await {
            // Tell the holder what became of the request.
            let gone = error.body();
            if gone.code != Code::Gone.as_str() {
                return Err(error);
            }
            let gone = gone.message;
            let told = if review.is_open() { gone } else { format!("{gone}; {}", review.standing.describe()) };
            return Err(EngineError::refused(Code::Gone, told));
        }
        review::check_open(&review)?;
        self.check_decider(&link.permit, &StoredApproval::of_row(asked)?)?;
        self.check_still_decider(&link.permit, &row)?;
        Ok(LinkView { person: link.permit.actor().to_owned(), review })
    }

    /// Refuses a link that is used or expired. Changes nothing.
    pub async fn check_link(&self, token: &str) -> Result<(), EngineError> {
        self.usable_link_of(token).await.map(|_| ())
    }

    /// Decides as the recipient of the link, on exactly what they were shown.
    pub async fn decide_by_link(
        &self,
        token: &str,
        decision: Decision,
        digest: Digest32,
        reason: Option<String>,
    ) -> Result<DecisionResult, EngineError> {
        let Link { digest: link, run, approval, permit } = self.usable_link_of(token).await?;
        self.check_still_decider(&permit, &load::readable_run(&*self.inner.parts.records, &permit, run).await?)?;
        let ask = Decide { run, decision, approval: Some(approval), step: None, digest: Some(digest), reason };
        self.decide_with_link(&permit, ask, Some(link)).await
    }

    /// Refuses a person who may no longer decide since the link was sent.
    fn check_still_decider(&self, permit: &Permit, run: &Row) -> Result<(), EngineError> {
        let recipients = &self.inner.parts.asking.recipients;
        let reason = recipients.not_decider(permit.tenant(), permit.actor(), run.text("actor"));
        reason.map_or(Ok(()), |reason| Err(not_decider(&reason)))
    }

    async fn usable_link_of(&self, token: &str) -> Result<Link, EngineError> {
        self.usable_link(digest_of(token)?).await
    }

    /// A link, usable or not.
    async fn known_link(&self, token: &str) -> Result<Link, EngineError> {
        let digest = digest_of(token)?;
        Ok(link(digest, &self.link_row(digest).await?))
    }

    async fn link_row(&self, digest: Digest32) -> Result<Row, EngineError> {
        // The link determines the tenant.
        let key = Cell::Bytes(digest.to_vec());
        let select = Select::from(&APPROVAL_LINKS, Scope::System).with("token_digest", key).take(1);
        let row = self.inner.parts.records.read(select).await?.rows.into_iter().next();
        row.ok_or_else(|| EngineError::not_found("link"))
    }

    async fn usable_link(&self, digest: Digest32) -> Result<Link, EngineError> {
        let row = self.link_row(digest).await?;
        let gone = |why: String| Err(EngineError::refused(Code::Gone, why));
        if let Some(at) = row.get("used_at").as_time() {
            return gone(format!("this link was already used, at {at} by {}", row.text("actor")));
        }
        let end = row.get("expires_at").as_time();
        if end.is_none_or(|end| end <= self.inner.parts.clock.steady()) {
            return gone(end.map_or("this link has expired".to_owned(), |end| format!("this link expired at {end}")));
        }
        Ok(link(digest, &row))
    }

    /// The update that consumes a link, unless it was used.
    pub(super) async fn consume_link(&self, digest: Digest32, now: Timestamp) -> Result<Update, EngineError> {
        self.usable_link(digest).await?;
        let key = vec![Cell::Bytes(digest.to_vec())];
        let used = Update::new(&APPROVAL_LINKS, key, vec![("used_at", Cell::Null)], vec![("used_at", now.into())]);
        Ok(used.map_err(Unstorable::from)?)
    }
}

/// The digest of a token. Malformed tokens cost no read.
fn digest_of(token: &str) -> Result<Digest32, EngineError> {
    let plausible = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if token.len() != TOKEN_CHARS || !token.bytes().all(plausible) {
        return Err(EngineError::not_found("link"));
    }
    Ok(token_digest(token))
}

fn link(digest: Digest32, row: &Row) -> Link {
    let permit = link_holder(row.text("tenant_id"), row.text("actor"));
    Link { digest, run: row.uuid("run_id"), approval: row.uuid("approval_id"), permit }
}

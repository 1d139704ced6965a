//! Records refused requests in the ledger. A refusal has no other effect.

use super::authenticator::Credentials;
use super::directory::Directory;
use super::flood::FloodSummary;
use super::permit::Permit;
use crate::error::EngineError;
use crate::ledger::audit::{self, DecisionRecord, EventRecord, Writer};
use crate::port::{Blocked, CommitError};
use chimera_core::access::ANONYMOUS;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::ledger::decision::{DecisionSource, Outcome};
use chimera_core::ledger::{ActorType, SubjectType};
use chimera_core::limits::{FLOOD_SECONDS, REFUSAL_DETAIL_BYTES_MAX, REFUSAL_POINTERS_MAX};
use chimera_core::record::Tx;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// The error details that the ledger keeps: limits, ids and short texts. Of a list of faults it keeps only the
/// pointers, since the messages may repeat the request's content.
fn recorded_details(details: &Map<String, Value>) -> Value {
    let short = |value: &Value| match value {
        Value::String(text) => text.len() <= REFUSAL_DETAIL_BYTES_MAX,
        Value::Array(_) | Value::Object(_) => false,
        _ => true,
    };
    let kept = details.iter().filter_map(|(name, value)| {
        let kept = match value {
            Value::Array(lines) => {
                let pointers = lines.iter().filter_map(|line| line.get("pointer")).filter(|pointer| short(pointer));
                Value::Array(pointers.take(REFUSAL_POINTERS_MAX).cloned().collect())
            }
            value if short(value) => value.clone(),
            _ => return None,
        };
        Some((name.clone(), kept))
    });
    Value::Object(kept.collect())
}

/// Records how many more requests were refused in a window whose first refusal was recorded.
pub(super) async fn record_flood(directory: &Directory, sum: &FloodSummary) {
    let rationale = match sum.permit {
        Some(_) => "refused again: rate limit exceeded",
        None => "more requests without valid credentials were refused than are recorded one by one",
    };
    let (parts, body) = (&directory.parts, ErrorBody::new(Code::RateLimited, rationale));
    let data = json!({"code": body.code, "target": sum.target, "repeated": sum.more, "seconds": FLOOD_SECONDS});
    let decision = refusal_decision(directory, sum.permit.as_ref(), &sum.target, data, &body);
    let mut tx = Tx::default();
    let writer = Writer { random: &*parts.random, clock: &*parts.clock };
    let written = writer.decision(&mut tx, decision).is_ok();
    if !written || audit::commit(&*parts.records, tx).await.is_err() {
        let actor = sum.permit.as_ref().map_or(ANONYMOUS, Permit::actor);
        tracing::warn!(actor, repeated = sum.more, "refusals could not be recorded");
    }
}

/// The audit decision for a refusal.
fn refusal_decision(
    directory: &Directory,
    permit: Option<&Permit>,
    target: &str,
    data: Value,
    body: &ErrorBody,
) -> DecisionRecord {
    let actor = permit.map_or(ANONYMOUS, Permit::actor);
    DecisionRecord {
        event: EventRecord {
            tenant_id: permit.map_or(directory.settings.tenant.as_str(), Permit::tenant).to_owned(),
            subject_type: SubjectType::Other,
            subject_id: target.to_owned(),
            event_type: "access.refused".to_owned(),
            actor_type: permit.map_or(ActorType::ExternalNode, Permit::kind),
            actor_id: Some(actor.to_owned()),
            data,
            run_id: None,
            run_seq: None,
            trace_id: None,
            operator_of: permit.and_then(Permit::operator_of).map(str::to_owned),
        },
        source: DecisionSource::Access,
        outcome: Outcome::Rejected,
        rationale: body.message.clone(),
        agent_id: None,
        action_type: None,
        action_data: None,
        policies: vec![body.code.clone()],
        campaign_id: None,
        task_id: None,
    }
}

/// Records a refusal; returns it, or the error if it could not be recorded.
pub(super) async fn record_refusal(
    directory: &Directory,
    permit: Option<&Permit>,
    shown: &Credentials<'_>,
    body: ErrorBody,
) -> ErrorBody {
    let parts = &directory.parts;
    let data = json!({
        "code": body.code, "details": recorded_details(&body.details), "target": shown.target,
        "body_sha256": shown.body.map(|body| hex::encode(Sha256::digest(body))), "body_bytes": shown.body.map(<[u8]>::len),
        "peer": shown.peer.map(|peer| peer.to_string()),
    });
    let mut decision = refusal_decision(directory, permit, shown.target, data, &body);
    decision.event.trace_id = shown.trace_id.map(str::to_owned);
    let mut tx = Tx::default();
    let writer = Writer { random: &*parts.random, clock: &*parts.clock };
    if writer.decision(&mut tx, decision).is_err() {
        return ErrorBody::new(Code::Internal, "the refusal could not be recorded");
    }
    match audit::commit(&*parts.records, tx).await {
        Ok(_) => body,
        // A held store can't record the refusal; the request is refused all the same.
        Err(CommitError::Blocked(Blocked::Held(_))) => body,
        // The request is refused all the same; the error is in the log.
        Err(error @ CommitError::Blocked(Blocked::Schema(_))) => EngineError::from(error).body(),
        Err(CommitError::Unavailable(why)) => why.body("the store does not accept changes now"),
        Err(_) => ErrorBody::new(Code::StoreUnavailable, "the store does not accept changes now").retry_after(1),
    }
}

//! Idempotency keys of action requests: one key, one run.
//!
//! The unique key in the store is the source of truth. Within a process, requests with one key are serialized
//! (`recent_keys`). Between nodes, shared counters settle a race before the loser does any work (`claim`). The store is
//! checked for a used key up front only if this process saw the key recently or planning is expensive. Otherwise the
//! store refuses the second run when it is committed, and what pure steps computed for it is discarded.
//!
//! A request holds its `KeyGuard` from before it is planned until it is answered. However a used key is found, the guard
//! answers. What makes two requests equal is in
//! `comparison`; the members that a request may change when it is retried are removed by api/src/act/idempotency.rs.

mod claim;
mod comparison;
mod recent_keys;

use super::Actions;
use super::request::{ActRequest, Objective};
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::{self, Flow, KeyedRun, RunKey};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::json::Digest32;
use chimera_core::ledger::idempotency::InvalidIdempotencyKey;
use claim::ForeignClaims;
pub(super) use claim::claim_key;
use recent_keys::{KeyLock, RecentKeys};
use serde_json::Value;
use std::sync::Arc;
use uuid::Uuid;

/// The idempotency key of a request, and what the request is compared by.
#[derive(Clone, Debug)]
pub struct RequestKey {
    pub key: String,
    pub on_duplicate: DuplicatePolicy,
    /// The digest of the request before masking; `None` if nothing was masked.
    pub unmasked: Option<Digest32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DuplicatePolicy {
    /// A conflict error with the run's id.
    #[default]
    Conflict,
    Return,
}

/// What a process knows about the keys of its requests.
#[derive(Default)]
pub(super) struct KeyState {
    recent: RecentKeys,
    foreign: ForeignClaims,
}

/// What its key means for a request.
pub(super) enum KeyCheck<'a> {
    /// No run is known to have the key. The request holds the guard until it is answered.
    Free(KeyGuard<'a>),
    Used(DuplicateRun),
}

/// The run that used the key of a request, for a caller who wants it.
pub(super) struct DuplicateRun {
    pub(super) run: Uuid,
    /// The earlier request was different.
    pub(super) differs: bool,
}

/// The key of one request, locked in this process. It answers the request if a run has the key.
pub(super) struct KeyGuard<'a> {
    asked: RequestKey,
    key: RunKey,
    /// The request as it is stored and compared.
    request: Arc<Value>,
    lock: KeyLock<'a>,
}

/// Waits until earlier requests with this key are done, and seals the request for comparison. Looks into the store only
/// if this process saw the key recently or the request is costly to plan. The name is that of docs/conformance.md.
pub(super) async fn handle_idempotency<'a>(
    actions: &'a Actions,
    permit: &Permit,
    asked: RequestKey,
    ask: &mut ActRequest,
) -> Result<KeyCheck<'a>, EngineError> {
    let seal = &actions.access.directory.parts.seal;
    let key = RunKey::new(seal, permit, &asked.key).map_err(invalid_key)?;
    if let Some(unmasked) = asked.unmasked {
        comparison::seal_request(Arc::make_mut(&mut ask.request), seal, permit, unmasked);
    }
    let is_costly = matches!(ask.what, Objective::Goal { .. });
    lock_and_look_up(actions, permit, (asked, key), Arc::clone(&ask.request), is_costly).await
}

/// The same for a request to repeat a run, which has nothing to mask.
pub(super) async fn lock_replay_key<'a>(
    actions: &'a Actions,
    permit: &Permit,
    asked: RequestKey,
    request: Arc<Value>,
) -> Result<KeyCheck<'a>, EngineError> {
    let key = RunKey::new(&actions.access.directory.parts.seal, permit, &asked.key).map_err(invalid_key)?;
    lock_and_look_up(actions, permit, (asked, key), request, false).await
}

async fn lock_and_look_up<'a>(
    actions: &'a Actions,
    permit: &Permit,
    (asked, key): (RequestKey, RunKey),
    request: Arc<Value>,
    is_costly: bool,
) -> Result<KeyCheck<'a>, EngineError> {
    let lock = actions.keys.recent.lock(permit, key.said()).await;
    let guard = KeyGuard { asked, key, request, lock };
    if (guard.lock.seen_before || is_costly)
        && let Some(run) = flow::find_run_by_key(&actions.flow, permit, &guard.key).await?
    {
        return guard.duplicate(&run).map(KeyCheck::Used);
    }
    Ok(KeyCheck::Free(guard))
}

impl KeyGuard<'_> {
    /// The key as the run stores it.
    pub(super) fn run_key(&self) -> RunKey {
        self.key.clone()
    }

    /// The answer after an attempt: its outcome, unless a run has the key.
    pub(super) async fn answer<T: From<DuplicateRun>>(
        self,
        flow: &Flow,
        permit: &Permit,
        attempted: Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let run = match attempted {
            Err(EngineError::KeyUsed(run)) => *run,
            // A used key takes precedence over other refusals.
            Err(error) if error.is_refusal() => match flow::find_run_by_key(flow, permit, &self.key).await? {
                Some(run) => run,
                None => return Err(error),
            },
            done => return done,
        };
        self.duplicate(&run).map(T::from)
    }

    /// The response to a request whose key was used by a run.
    fn duplicate(&self, run: &KeyedRun) -> Result<DuplicateRun, EngineError> {
        let differs = comparison::differ(&run.request, &self.request);
        if self.asked.on_duplicate == DuplicatePolicy::Return {
            return Ok(DuplicateRun { run: run.id, differs });
        }
        let mut body = run.conflict().with("request_differs", differs);
        if differs {
            body.message = "this idempotency key was already used with a different request".to_owned();
        }
        Err(body.into())
    }
}

fn invalid_key(error: InvalidIdempotencyKey) -> ErrorBody {
    ErrorBody::new(Code::ValidationFailed, error.to_string()).with("pointer", "/idempotency_key")
}

//! Idempotency keys of action requests: one key, one run.
//!
//! The unique key in the store is the source of truth. Within a process, requests with one key are serialized
//! (`recent_keys`). Between nodes, shared counters settle a race before the loser does any work (`claim`). The store is
//! checked for a used key up front only if this process saw the key recently or planning is expensive. Otherwise the
//! store refuses the second run when it is committed, and what pure steps computed for it is discarded.
//!
//! However a used key is found, `RequestKey::answer` answers the request. What makes two requests equal is in
//! `comparison`; the members that a request may change when it is retried are removed by api/src/act/idempotency.rs.

mod claim;
mod comparison;
mod recent_keys;

use super::actions::{ActOutcome, ActRequest, Actions, Objective};
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::{KeyedRun, RunHandle, RunKey};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::run::Replay;
use chimera_core::json::Digest32;
use chimera_core::ledger::idempotency::InvalidIdempotencyKey;
use claim::ForeignClaims;
use recent_keys::RecentKeys;
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

impl Actions {
    /// Executes a request unless its key was already used; then the answer is about the run that used it.
    pub(super) async fn handle_idempotency(
        &self,
        permit: &Permit,
        asked: RequestKey,
        mut ask: ActRequest,
    ) -> Result<ActOutcome, EngineError> {
        let seal = &self.access.directory.parts.seal;
        let key = RunKey::new(seal, permit, &asked.key).map_err(invalid_key)?;
        if let Some(unmasked) = asked.unmasked {
            comparison::seal_request(Arc::make_mut(&mut ask.request), seal, permit, unmasked);
        }
        let request = Arc::clone(&ask.request);
        let is_costly = matches!(ask.what, Objective::Goal { .. });
        let lock = self.keys.recent.lock(permit, key.said()).await;
        if (lock.seen_before || is_costly)
            && let Some(run) = self.flow.find_by_key(permit, &key).await?
        {
            return asked.answer(&run, &request);
        }
        let run = match self.attempt(permit, ask, Some(key.clone())).await {
            Err(EngineError::KeyUsed(run)) => *run,
            // A used key takes precedence over other refusals.
            Err(error) if error.is_refusal() => match self.flow.find_by_key(permit, &key).await? {
                Some(run) => run,
                None => return Err(error),
            },
            acted => return acted,
        };
        asked.answer(&run, &request)
    }
}

impl RequestKey {
    /// The response to a request whose key was used by a run.
    fn answer(&self, run: &KeyedRun, request: &Value) -> Result<ActOutcome, EngineError> {
        self.find_duplicate(run, request).map(|differs| ActOutcome::Duplicate { run: run.id, differs })
    }

    /// Whether the request differs from the one that used its key, for callers who want the existing run.
    fn find_duplicate(&self, run: &KeyedRun, request: &Value) -> Result<bool, EngineError> {
        let differs = comparison::differ(&run.request, request);
        if self.on_duplicate == DuplicatePolicy::Return {
            return Ok(differs);
        }
        let mut body = run.conflict().with("request_differs", differs);
        if differs {
            body.message = "this idempotency key was already used with a different request".to_owned();
        }
        Err(body.into())
    }
}

/// The result of a request to repeat a run.
pub enum ReplayOutcome {
    Started(RunHandle),
    /// The key was already used, and the caller wants the existing run.
    Duplicate {
        run: Uuid,
        /// The earlier request was different.
        differs: bool,
    },
}

impl Actions {
    /// Replays a run unless the key was already used; then the answer is about the run that used it.
    pub async fn replay_once(
        &self,
        permit: &Permit,
        replay: Replay,
        asked: RequestKey,
    ) -> Result<ReplayOutcome, EngineError> {
        let key = RunKey::new(&self.access.directory.parts.seal, permit, &asked.key).map_err(invalid_key)?;
        let request = replay.request();
        let _lock = self.keys.recent.lock(permit, key.said()).await;
        let run = match self.replay(permit, replay, Some(key.clone())).await {
            Ok(started) => return Ok(ReplayOutcome::Started(started)),
            Err(EngineError::KeyUsed(run)) => *run,
            // A used key takes precedence over other refusals.
            Err(error) if error.is_refusal() => match self.flow.find_by_key(permit, &key).await? {
                Some(run) => run,
                None => return Err(error),
            },
            Err(error) => return Err(error),
        };
        let differs = asked.find_duplicate(&run, &request)?;
        Ok(ReplayOutcome::Duplicate { run: run.id, differs })
    }
}

fn invalid_key(error: InvalidIdempotencyKey) -> ErrorBody {
    ErrorBody::new(Code::ValidationFailed, error.to_string()).with("pointer", "/idempotency_key")
}

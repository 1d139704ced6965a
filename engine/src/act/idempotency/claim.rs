//! Claims of keys across nodes, in counters that all nodes share.
//!
//! A claim names the run that its holder is about to start. It is released if no run was started, and abandoned if its
//! holder dies before that. Without shared counters nothing is claimed, and the store alone decides.

use crate::access::port::{ClaimOutcome, CounterError, Counters};
use crate::access::{CounterFallback, Permit};
use crate::act::Actions;
use crate::error::EngineError;
use crate::flow::{self, RunKey};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::tables::{RUNS, runs};
use chimera_core::limits::{KEY_CLAIM_ABANDONED_SECONDS, KEY_CLAIM_POLL_INTERVAL, RECENT_KEYS_MAX};
use chimera_core::record::{Scope, Select};
use chimera_core::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

/// A key that this process has claimed.
pub(in crate::act) struct KeyClaim {
    counters: Arc<dyn Counters>,
    name: String,
    run: Uuid,
}

impl KeyClaim {
    /// Gives the key back: no run was started with it.
    pub(in crate::act) async fn release(self, now: Timestamp) {
        if let Err(error) = self.counters.release(&self.name, &self.run.to_string(), now).await {
            tracing::warn!(error = %error, "the claim of an idempotency key could not be released");
        }
    }
}

/// Claims a key for a run; `None` if the store alone decides. Fails with the run of a faster request.
pub(in crate::act) async fn claim_key(
    actions: &Actions,
    permit: &Permit,
    key: &RunKey,
    run: Uuid,
) -> Result<Option<KeyClaim>, EngineError> {
    let Some(counters) = &actions.access.authenticator.claims else { return Ok(None) };
    let (settings, clock) = (&actions.access.directory.settings, &actions.access.directory.parts.clock);
    // Only the default tenant uses the key in plain, guessable form: no tenant waits for another's claim or takes
    // it.
    let name = match permit.tenant() == settings.tenant {
        true => format!("idempotency:{}", key.said()),
        false => format!("idempotency:{}", key.derived()),
    };
    loop {
        let claimed = counters.claim(&name, &run.to_string(), settings.idempotency_ttl, clock.steady()).await;
        let held = match claimed {
            Ok(ClaimOutcome::Claimed) => {
                return Ok(Some(KeyClaim { counters: Arc::clone(counters), name, run }));
            }
            Ok(ClaimOutcome::Held(held)) => held,
            Err(CounterError::Unavailable { .. }) if settings.counter_fallback == CounterFallback::Database => {
                return Ok(None);
            }
            Err(_) => {
                let message = "the idempotency key can't be reserved right now; retry";
                return Err(ErrorBody::new(Code::StoreUnavailable, message).retry_after(1).into());
            }
        };
        // In this order: an existing run is also found by its key, unless it belongs to somebody else.
        let is_run = is_run(actions, &held).await?;
        if let Some(run) = flow::find_run_by_key(&actions.flow, permit, key).await? {
            return Err(EngineError::KeyUsed(Box::new(run)));
        }
        if is_run {
            // Our key is stored in another form, so the store decides.
            return Ok(None);
        }
        if actions.keys.foreign.is_abandoned(&name, &held, clock.steady()) {
            // The claim's holder is gone and left no run.
            let _ = counters.release(&name, &held, clock.steady()).await;
        }
        tokio::time::sleep(KEY_CLAIM_POLL_INTERVAL).await;
    }
}

async fn is_run(actions: &Actions, id: &str) -> Result<bool, EngineError> {
    let Ok(id) = Uuid::parse_str(id) else { return Ok(false) };
    let select = Select::from(&RUNS, Scope::System).with(runs::id, id).take(1);
    Ok(!actions.access.directory.parts.records.read(select).await?.rows.is_empty())
}

/// Claims of others without a run: the holder, and since when this process knows of it.
#[derive(Default)]
pub(super) struct ForeignClaims(Mutex<BTreeMap<String, (String, Timestamp)>>);

impl ForeignClaims {
    /// Whether a claim has existed without a run for so long that its holder must be gone.
    fn is_abandoned(&self, name: &str, holder: &str, now: Timestamp) -> bool {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, since)) = waiting.get(name)
            && known == holder
        {
            let abandoned = since.plus_seconds(KEY_CLAIM_ABANDONED_SECONDS) <= now;
            if abandoned {
                waiting.remove(name);
            }
            return abandoned;
        }
        waiting.insert(name.to_owned(), (holder.to_owned(), now));
        if waiting.len() > RECENT_KEYS_MAX {
            // Evicting an entry only makes somebody wait longer.
            waiting.pop_first();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_abandoned_after_its_time_however_many_stop_waiting_for_it() {
        let (claims, at) = (ForeignClaims::default(), |seconds: i64| Timestamp::from_micros(seconds * 1_000_000));
        assert!(!claims.is_abandoned("k", "one", at(0)));
        assert!(!claims.is_abandoned("k", "one", at(4)), "another request, long before its time");
        assert!(claims.is_abandoned("k", "one", at(5)));
        assert!(!claims.is_abandoned("k", "two", at(6)), "the next holder has its own time");
        assert!(!claims.is_abandoned("k", "three", at(12)));
        assert!(claims.is_abandoned("k", "three", at(17)));
    }
}

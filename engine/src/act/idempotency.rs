//! Idempotency keys of action requests: one key, one run.
//!
//! The unique key in the store is the source of truth. Within a process, requests with one key are serialized. Between
//! nodes, shared counters settle a race before the loser does any work. The store is checked for a used key up front
//! only if this process saw the key recently or planning is expensive. Otherwise the store refuses the second run when
//! it is committed, and what pure steps computed for it is discarded.

use super::actions::{ActOutcome, ActRequest, Actions, DuplicatePolicy};
use crate::access::port::{ClaimOutcome, CounterError, Counters};
use crate::access::{CounterFallback, Permit};
use crate::error::EngineError;
use crate::flow::RunKey;
use chimera_core::access::mac;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::run::request_of_row;
use chimera_core::flow::tables::{RUNS, RunBrief, runs};
use chimera_core::json::Digest32;
use chimera_core::limits::{
    IDEMPOTENCY_KEY_CHARS_MAX, KEY_CLAIM_ABANDONED_SECONDS, KEY_CLAIM_POLL_INTERVAL, RECENT_KEYS_MAX,
};
use chimera_core::record::{Row, Scope, Select, StoredRow};
use chimera_core::secret::Secret;
use chimera_core::time::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uuid::Uuid;

impl Actions {
    /// Whether the key was already used, and its run. Only looks it up; the claim that settles a race is made later,
    /// with the run.
    pub(super) async fn handle_idempotency(
        &self,
        permit: &Permit,
        key: &str,
    ) -> Result<(bool, Option<Row>), EngineError> {
        let row = self.flow.find_by_key(permit, &self.run_key(permit, key)).await?;
        Ok((row.is_some(), row))
    }

    /// Claims a key for a run across nodes, or finds the run of a faster request.
    pub(super) async fn claim(&self, permit: &Permit, key: &str, run: Uuid) -> Result<KeyClaimOutcome, EngineError> {
        let Some(counters) = &self.access.authenticator.claims else { return Ok(KeyClaimOutcome::Claimed(None)) };
        let (settings, clock) = (&self.access.directory.settings, &self.access.directory.parts.clock);
        // Only the default tenant uses the key in plain, guessable form: no tenant waits for another's claim or takes
        // it.
        let name = match permit.tenant() == settings.tenant {
            true => format!("idempotency:{key}"),
            false => format!("idempotency:{}", self.run_key(permit, key).derived()),
        };
        loop {
            let claimed = counters.claim(&name, &run.to_string(), settings.idempotency_ttl, clock.steady()).await;
            let held = match claimed {
                Ok(ClaimOutcome::Claimed) => {
                    return Ok(KeyClaimOutcome::Claimed(Some(KeyClaim { counters: Arc::clone(counters), name, run })));
                }
                Ok(ClaimOutcome::Held(held)) => held,
                Err(CounterError::Unavailable { .. }) if settings.counter_fallback == CounterFallback::Database => {
                    return Ok(KeyClaimOutcome::Claimed(None));
                }
                Err(_) => {
                    let message = "the idempotency key can't be reserved right now; retry";
                    return Err(ErrorBody::new(Code::StoreUnavailable, message).retry_after(1).into());
                }
            };
            // In this order: an existing run is also found by its key, unless it belongs to somebody else.
            let is_run = self.is_run(&held).await?;
            if self.flow.find_by_key(permit, &self.run_key(permit, key)).await?.is_some() {
                return Ok(KeyClaimOutcome::Taken);
            }
            if is_run {
                // Our key is stored in another form, so the store decides.
                return Ok(KeyClaimOutcome::Claimed(None));
            }
            if self.recent_keys.is_abandoned(&name, &held, clock.steady()) {
                // The claim's holder is gone and left no run.
                let _ = counters.release(&name, &held, clock.steady()).await;
            }
            tokio::time::sleep(KEY_CLAIM_POLL_INTERVAL).await;
        }
    }

    /// The key in the form that is specific to this actor.
    pub(super) fn run_key(&self, permit: &Permit, said: &str) -> RunKey {
        RunKey::new(&self.access.directory.parts.seal, permit, said)
    }

    /// Adds a keyed digest to a masked request, so that it can be compared with another.
    pub(super) fn seal_request(&self, permit: &Permit, ask: &mut ActRequest) {
        let Some(unmasked) = ask.unmasked else { return };
        if let Some(members) = Arc::make_mut(&mut ask.request).as_object_mut() {
            members.insert(SEALED.to_owned(), seal_of(&self.access.directory.parts.seal, permit, unmasked).into());
        }
    }

    async fn is_run(&self, id: &str) -> Result<bool, EngineError> {
        let Ok(id) = Uuid::parse_str(id) else { return Ok(false) };
        let select = Select::from(&RUNS, Scope::System).with(runs::id, id).take(1);
        Ok(!self.access.directory.parts.records.read(select).await?.rows.is_empty())
    }

    pub(super) async fn release_claim(&self, held: KeyClaim) {
        let now = self.access.directory.parts.clock.steady();
        if let Err(error) = held.counters.release(&held.name, &held.run.to_string(), now).await {
            tracing::warn!(error = %error, "the claim of an idempotency key could not be released");
        }
    }
}

/// Keys that this process saw recently (the oldest are evicted first), and those in flight. Only a hint for when to
/// check the store: a key that is not here may be used, and one that is here may be free.
#[derive(Default)]
pub(super) struct RecentKeys {
    keys: Mutex<KeyTable>,
    /// Claims of others without a run: the holder, and since when this process knows of it.
    waiting: Mutex<BTreeMap<String, (String, Timestamp)>>,
}

#[derive(Default)]
struct KeyTable {
    known: BTreeSet<u64>,
    order: VecDeque<u64>,
    under_way: BTreeMap<u64, Arc<tokio::sync::Mutex<()>>>,
}

/// Serializes requests with one key. Released on drop.
pub(super) struct KeyLock<'a> {
    recent: &'a RecentKeys,
    digest: u64,
    /// The key was seen before.
    pub(super) seen_before: bool,
    guard: Option<tokio::sync::OwnedMutexGuard<()>>,
}

impl RecentKeys {
    /// Records a request with this key, and waits until earlier ones are done.
    pub(super) async fn lock(&self, permit: &Permit, key: &str) -> KeyLock<'_> {
        let mut hasher = DefaultHasher::new();
        (permit.tenant(), permit.actor(), key).hash(&mut hasher);
        let digest = hasher.finish();
        let (again, mine) = self.keys().insert(digest);
        // Created before the wait, so that a cancelled waiter cleans up.
        let mut turn = KeyLock { recent: self, digest, seen_before: again, guard: None };
        turn.guard = Some(mine.lock_owned().await);
        turn
    }

    /// Whether a claim has existed without a run for so long that its holder must be gone.
    fn is_abandoned(&self, name: &str, holder: &str, now: Timestamp) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
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

    fn keys(&self) -> MutexGuard<'_, KeyTable> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyTable {
    fn insert(&mut self, digest: u64) -> (bool, Arc<tokio::sync::Mutex<()>>) {
        let again = !self.known.insert(digest);
        if !again {
            self.order.push_back(digest);
        }
        if self.order.len() > RECENT_KEYS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        (again, Arc::clone(self.under_way.entry(digest).or_default()))
    }
}

impl Drop for KeyLock<'_> {
    fn drop(&mut self) {
        self.guard = None;
        let mut keys = self.recent.keys();
        // No other request holds it or waits for it.
        if keys.under_way.get(&self.digest).is_some_and(|turns| Arc::strong_count(turns) == 1) {
            keys.under_way.remove(&self.digest);
        }
    }
}

/// The request that a possible duplicate is compared with.
pub(super) struct DuplicateCheck {
    pub(super) request: Arc<Value>,
    pub(super) on_duplicate: DuplicatePolicy,
}

/// The result of claiming a key.
pub(super) enum KeyClaimOutcome {
    /// Claimed by this request; `None`: nothing was claimed, and the store alone decides.
    Claimed(Option<KeyClaim>),
    /// A faster request has a run.
    Taken,
}

/// A claimed key.
pub(super) struct KeyClaim {
    counters: Arc<dyn Counters>,
    name: String,
    run: Uuid,
}

pub(super) fn check_key(key: &str) -> Result<(), EngineError> {
    if (1..=IDEMPOTENCY_KEY_CHARS_MAX).contains(&key.chars().count()) && !key.contains('\0') {
        return Ok(());
    }
    let message = format!("an idempotency key must have 1 to {IDEMPOTENCY_KEY_CHARS_MAX} characters");
    Err(ErrorBody::new(Code::ValidationFailed, message).with("pointer", "/idempotency_key").into())
}

/// The member of a stored request with its keyed digest.
const SEALED: &str = "request_seal";

/// A keyed digest of the unmasked request. Keyed, because a plain digest would let others find a short secret by
/// guessing. Prefixed with the name of its key.
fn seal_of(key: &Secret, permit: &Permit, unmasked: Digest32) -> String {
    let name = mac::sign(key, b"request");
    let place = format!("request\0{}\0{}\0{unmasked}", permit.tenant(), permit.actor());
    format!("{}:{}", name.get(..8).unwrap_or_default(), mac::sign(key, place.as_bytes()))
}

/// Whether two requests differ; `None` if their digests were made with different keys.
fn seals_differ(one: Option<&str>, other: Option<&str>) -> Option<bool> {
    let (one, other) = (one?, other?);
    let (one_key, other_key) = (one.split_once(':')?.0, other.split_once(':')?.0);
    (one_key == other_key).then(|| one != other)
}

/// The response to a request whose key was already used.
pub(super) fn duplicate_response(row: &Row, asked: &DuplicateCheck) -> Result<ActOutcome, EngineError> {
    let RunBrief { id: run, status, .. } = RunBrief::peek(row)?;
    let (before, _) = request_of_row(row);
    let seal = |request: &Value| request.get(SEALED).and_then(Value::as_str).map(str::to_owned);
    let sealed = seals_differ(seal(&before).as_deref(), seal(&asked.request).as_deref());
    let differs = sealed.unwrap_or_else(|| digest_of_request(before) != digest_of_request((*asked.request).clone()));
    if asked.on_duplicate == DuplicatePolicy::Return {
        return Ok(ActOutcome::Duplicate { run, differs });
    }
    let message = match differs {
        true => "this idempotency key was already used with a different request",
        false => "the idempotency key was already used by a run",
    };
    let body = ErrorBody::new(Code::ConflictIdempotency, message)
        .with("run_id", run.to_string())
        .with("status", status.as_str())
        .with("request_differs", differs);
    Err(body.into())
}

/// The digest of a request without added members.
fn digest_of_request(mut request: Value) -> Digest32 {
    if let Some(members) = request.as_object_mut() {
        ["parent_span", SEALED].iter().for_each(|added| drop(members.remove(*added)));
    }
    Digest32::of(&request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::local_operator;
    use futures::FutureExt;

    #[test]
    fn a_claim_is_abandoned_after_its_time_however_many_stop_waiting_for_it() {
        let (recent, at) = (RecentKeys::default(), |seconds: i64| Timestamp::from_micros(seconds * 1_000_000));
        assert!(!recent.is_abandoned("k", "one", at(0)));
        assert!(!recent.is_abandoned("k", "one", at(4)), "another request, long before its time");
        assert!(recent.is_abandoned("k", "one", at(5)));
        assert!(!recent.is_abandoned("k", "two", at(6)), "the next holder has its own time");
        assert!(!recent.is_abandoned("k", "three", at(12)));
        assert!(recent.is_abandoned("k", "three", at(17)));
    }

    #[test]
    fn requests_that_differ_in_a_masked_place_are_told_apart_unless_their_keys_differ() {
        let (permit, key) = (local_operator("acme"), Secret::new([7; 32]));
        let seal = |key: &Secret, permit: &Permit, said: &str| seal_of(key, permit, Digest32::of(&Value::from(said)));
        let one = seal(&key, &permit, "one");
        assert_eq!(seals_differ(Some(&one), Some(&seal(&key, &permit, "one"))), Some(false));
        assert_eq!(seals_differ(Some(&one), Some(&seal(&key, &permit, "two"))), Some(true));
        assert_eq!(seals_differ(Some(&one), Some(&seal(&Secret::new([8; 32]), &permit, "one"))), None);
        assert_eq!((seals_differ(None, Some(&one)), seals_differ(Some("?"), Some(&one))), (None, None));
        assert_ne!(one, seal(&key, &local_operator("other"), "one"), "nobody can compare with another's");
    }

    #[tokio::test]
    async fn whoever_comes_second_waits_and_nobody_leaves_anything_behind() {
        let (recent, permit) = (RecentKeys::default(), local_operator("acme"));
        let first = recent.lock(&permit, "k").await;
        assert!(!first.seen_before);
        assert!(recent.lock(&permit, "k").now_or_never().is_none(), "it waits, and then stops waiting");
        assert!(!recent.lock(&permit, "other").await.seen_before, "another key has its own turn");
        let (second, ()) = tokio::join!(recent.lock(&permit, "k"), async { drop(first) });
        assert!(second.seen_before);
        drop(second);
        assert!(recent.keys().under_way.is_empty());
    }

    #[test]
    fn the_oldest_keys_are_forgotten() {
        let mut keys = KeyTable::default();
        (0..=RECENT_KEYS_MAX as u64).for_each(|digest| drop(keys.insert(digest)));
        assert_eq!((keys.known.len(), keys.order.len()), (RECENT_KEYS_MAX, RECENT_KEYS_MAX));
        assert!(keys.insert(1).0 && !keys.insert(0).0);
    }
}

//! Keys under which things are asked for: one key, one run.
//!
//! The unique key in the store is the truth. Within a process requests under one key take turns; between
//! nodes, counters that they share settle a race before anything is computed for the loser. A used key
//! is looked for first if this process was asked for it lately, or if planning is costly; otherwise the
//! store refuses the second run when it is about to be written, and what pure steps computed for it by
//! then is thrown away.

use super::actions::{Act, Acted, Actions, OnDuplicate};
use crate::access::port::{Claim, CounterError, Counters};
use crate::access::{Permit, WithoutCounters};
use crate::error::EngineError;
use crate::flow::RunKey;
use chimera_core::access::mac;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::run::request_of_row;
use chimera_core::flow::tables::RUNS;
use chimera_core::json::Digest32;
use chimera_core::limits::{
    IDEMPOTENCY_KEY_CHARS_MAX, KEY_CLAIM_ABANDONED_SECONDS, KEY_CLAIM_LOOK_INTERVAL, RECENT_KEYS_MAX,
};
use chimera_core::record::{Row, Scope, Select};
use chimera_core::secret::Secret;
use chimera_core::time::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uuid::Uuid;

impl Actions {
    /// Whether the key was used before, and the run that it was used for. The claim that settles a race
    /// comes later, with the run; this only looks.
    pub(super) async fn handle_idempotency(
        &self,
        permit: &Permit,
        key: &str,
    ) -> Result<(bool, Option<Row>), EngineError> {
        let row = self.flow.by_key(permit, &self.run_key(permit, key)).await?;
        Ok((row.is_some(), row))
    }

    /// Claims a key for a run on all nodes; or finds the run of whoever was faster.
    pub(super) async fn claim(&self, permit: &Permit, key: &str, run: Uuid) -> Result<Claimed, EngineError> {
        let Some(counters) = &self.access.door.claims else { return Ok(Claimed::Ours(None)) };
        let (settings, clock) = (&self.access.directory.settings, &self.access.directory.parts.clock);
        // A key is in the form that everybody may guess for the default tenant alone: nobody waits for another
        // tenant's claim, or takes it.
        let name = match permit.tenant() == settings.tenant {
            true => format!("idempotency:{key}"),
            false => format!("idempotency:{}", self.run_key(permit, key).sealed()),
        };
        loop {
            let claimed = counters.claim(&name, &run.to_string(), settings.idempotency_ttl, clock.steady()).await;
            let held = match claimed {
                Ok(Claim::Claimed) => {
                    return Ok(Claimed::Ours(Some(Held { counters: Arc::clone(counters), name, run })));
                }
                Ok(Claim::Held(held)) => held,
                Err(CounterError::Unavailable { .. }) if settings.without_counters == WithoutCounters::Database => {
                    return Ok(Claimed::Ours(None));
                }
                Err(_) => {
                    let body = ErrorBody::new(Code::StoreUnavailable, "keys can't be claimed now").retry_after(1);
                    return Err(body.into());
                }
            };
            // In this order: a run that is there is found by its key as well, unless it is somebody else's.
            let is_run = self.is_run(&held).await?;
            if self.flow.by_key(permit, &self.run_key(permit, key)).await?.is_some() {
                return Ok(Claimed::Run);
            }
            if is_run {
                // Ours is kept in another form, and the store decides.
                return Ok(Claimed::Ours(None));
            }
            if self.recent_keys.is_abandoned(&name, &held, clock.steady()) {
                // Whoever claimed it is gone without a run.
                let _ = counters.release(&name, &held, clock.steady()).await;
            }
            tokio::time::sleep(KEY_CLAIM_LOOK_INTERVAL).await;
        }
    }

    /// A key with the form that is only this actor's.
    pub(super) fn run_key(&self, permit: &Permit, said: &str) -> RunKey {
        RunKey::new(&self.access.directory.parts.seal, permit, said)
    }

    /// Adds to a request what tells it from others.
    pub(super) fn seal_request(&self, permit: &Permit, ask: &mut Act) {
        let Some(unmasked) = ask.unmasked else { return };
        if let Some(members) = Arc::make_mut(&mut ask.request).as_object_mut() {
            members.insert(SEALED.to_owned(), seal_of(&self.access.directory.parts.seal, permit, unmasked).into());
        }
    }

    async fn is_run(&self, id: &str) -> Result<bool, EngineError> {
        let Ok(id) = Uuid::parse_str(id) else { return Ok(false) };
        let select = Select::from(&RUNS, Scope::System).with("id", id).take(1);
        Ok(!self.access.directory.parts.records.read(select).await?.rows.is_empty())
    }

    pub(super) async fn give_up(&self, held: Held) {
        let now = self.access.directory.parts.clock.steady();
        if let Err(error) = held.counters.release(&held.name, &held.run.to_string(), now).await {
            tracing::warn!(error = %error, "a key stays claimed until somebody finds it without a run");
        }
    }
}

/// Keys that this process was asked for lately, the oldest forgotten first, and those that it works on now.
/// It only says where a look into the store is worth its while: a key that is not here may be used, and
/// one that is here may be free.
#[derive(Default)]
pub(super) struct RecentKeys {
    keys: Mutex<Keys>,
    /// Claims of others without a run: whose, and since when this process knows of them.
    waiting: Mutex<BTreeMap<String, (String, Timestamp)>>,
}

#[derive(Default)]
struct Keys {
    known: BTreeSet<u64>,
    order: VecDeque<u64>,
    under_way: BTreeMap<u64, Arc<tokio::sync::Mutex<()>>>,
}

/// The turn of one request among those under the same key. It ends when this is dropped.
pub(super) struct KeyLock<'a> {
    recent: &'a RecentKeys,
    digest: u64,
    /// The key was asked for before.
    pub(super) again: bool,
    guard: Option<tokio::sync::OwnedMutexGuard<()>>,
}

impl RecentKeys {
    /// Notes that somebody asks under a key, and waits until whoever did so before is done.
    pub(super) async fn turn(&self, permit: &Permit, key: &str) -> KeyLock<'_> {
        let mut hasher = DefaultHasher::new();
        (permit.tenant(), permit.actor(), key).hash(&mut hasher);
        let digest = hasher.finish();
        let (again, mine) = self.keys().note(digest);
        // It is there while we wait, so that whoever stops waiting leaves nothing behind.
        let mut turn = KeyLock { recent: self, digest, again, guard: None };
        turn.guard = Some(mine.lock_owned().await);
        turn
    }

    /// Whether a claim has stood without a run for so long that nobody is behind it any more.
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
            // Somebody waits longer for it; nothing else hangs on an entry.
            waiting.pop_first();
        }
        false
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keys {
    fn note(&mut self, digest: u64) -> (bool, Arc<tokio::sync::Mutex<()>>) {
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
        // Nobody else holds it or waits for it.
        if keys.under_way.get(&self.digest).is_some_and(|turns| Arc::strong_count(turns) == 1) {
            keys.under_way.remove(&self.digest);
        }
    }
}

/// What a duplicate is compared with.
pub(super) struct Asked {
    pub(super) request: Arc<Value>,
    pub(super) on_duplicate: OnDuplicate,
}

/// Who has a key.
pub(super) enum Claimed {
    /// Nobody else has it; none: nothing was claimed, the store alone decides.
    Ours(Option<Held>),
    /// Somebody was faster, and has a run.
    Run,
}

/// A key that was claimed for a run.
pub(super) struct Held {
    counters: Arc<dyn Counters>,
    name: String,
    run: Uuid,
}

pub(super) fn check_key(key: &str) -> Result<(), EngineError> {
    if (1..=IDEMPOTENCY_KEY_CHARS_MAX).contains(&key.chars().count()) && !key.contains('\0') {
        return Ok(());
    }
    let message = format!("an idempotency key has 1 to {IDEMPOTENCY_KEY_CHARS_MAX} characters");
    Err(ErrorBody::new(Code::ValidationFailed, message).with("pointer", "/idempotency_key").into())
}

/// The member of a stored request that tells it from others, also where both are masked.
const SEALED: &str = "request_seal";

/// What tells a request from others: the digest of what was said before it was masked, keyed, because who could work
/// it out could find a short secret by trying. It begins with the name of its key.
fn seal_of(key: &Secret, permit: &Permit, unmasked: Digest32) -> String {
    let name = mac::sign(key, b"request");
    let place = format!("request\0{}\0{}\0{unmasked}", permit.tenant(), permit.actor());
    format!("{}:{}", name.get(..8).unwrap_or_default(), mac::sign(key, place.as_bytes()))
}

/// Whether two requests that were sealed under the same key are different ones; none: that can't be told.
fn seals_differ(one: Option<&str>, other: Option<&str>) -> Option<bool> {
    let (one, other) = (one?, other?);
    let (one_key, other_key) = (one.split_once(':')?.0, other.split_once(':')?.0);
    (one_key == other_key).then(|| one != other)
}

/// The answer to a request whose key was used before.
pub(super) fn duplicate(row: &Row, asked: &Asked) -> Result<Acted, EngineError> {
    let run = row.uuid("id");
    let (before, _) = request_of_row(row);
    let seal = |request: &Value| request.get(SEALED).and_then(Value::as_str).map(str::to_owned);
    let sealed = seals_differ(seal(&before).as_deref(), seal(&asked.request).as_deref());
    let differs = sealed.unwrap_or_else(|| as_said(before) != as_said((*asked.request).clone()));
    if asked.on_duplicate == OnDuplicate::Return {
        return Ok(Acted::Duplicate { run, differs });
    }
    let message = match differs {
        true => "a run was asked for under this key before, with another request",
        false => "a run was asked for under this key before",
    };
    let body = ErrorBody::new(Code::ConflictIdempotency, message)
        .with("run_id", run.to_string())
        .with("status", row.text("status"))
        .with("request_differs", differs);
    Err(body.into())
}

/// A request without what was added to it.
fn as_said(mut request: Value) -> Value {
    if let Some(members) = request.as_object_mut() {
        ["parent_span", SEALED].iter().for_each(|added| drop(members.remove(*added)));
    }
    request
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
        let first = recent.turn(&permit, "k").await;
        assert!(!first.again);
        assert!(recent.turn(&permit, "k").now_or_never().is_none(), "it waits, and then stops waiting");
        assert!(!recent.turn(&permit, "other").await.again, "another key has its own turn");
        let (second, ()) = tokio::join!(recent.turn(&permit, "k"), async { drop(first) });
        assert!(second.again);
        drop(second);
        assert!(recent.keys().under_way.is_empty());
    }

    #[test]
    fn the_oldest_keys_are_forgotten() {
        let mut keys = Keys::default();
        (0..=RECENT_KEYS_MAX as u64).for_each(|digest| drop(keys.note(digest)));
        assert_eq!((keys.known.len(), keys.order.len()), (RECENT_KEYS_MAX, RECENT_KEYS_MAX));
        assert!(keys.note(1).0 && !keys.note(0).0);
    }
}

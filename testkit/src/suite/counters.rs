//! The contract of `chimera_engine::access::port::Counters`.

use async_trait::async_trait;
use chimera_core::access::window::{Quota, RateDecision, keys};
use chimera_core::limits::{CLAIM_TTL_SECONDS_MAX, COUNTER_KEY_BYTES_MAX, COUNTER_VALUE_BYTES_MAX};
use chimera_core::time::Timestamp;
use chimera_engine::access::port::{ClaimOutcome, CounterError, Counters};
use futures::future;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// 2023-11-14T22:13:00Z, the beginning of a minute.
const START: Timestamp = Timestamp::from_micros(1_699_999_980_000_000);
const TTL: Duration = Duration::from_secs(10);

/// A fresh store under test.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// Two nodes that share the store.
    fn nodes(&self) -> [Arc<dyn Counters>; 2];

    /// Lets time pass for a store with its own clock; the suite advances its `now` by the same amount.
    async fn elapse(&self, by: Duration);
}

/// Runs the whole contract. `make` creates a fresh store.
pub async fn contract(make: impl AsyncFn() -> Box<dyn Fixture>) {
    a_claim_belongs_to_its_holder(make().await.as_ref()).await;
    of_many_claims_exactly_one_wins(make().await.as_ref()).await;
    a_claim_ends_by_itself(make().await.as_ref()).await;
    a_window_allows_its_limit_and_no_more(make().await.as_ref()).await;
    a_burst_across_the_boundary_is_weighed(make().await.as_ref()).await;
    two_nodes_together_never_exceed_the_limit(make().await.as_ref()).await;
    every_hit_is_decided_like_the_one_function_says(make().await.as_ref()).await;
    what_is_beyond_the_limits_is_refused(make().await.as_ref()).await;
}

fn quota(limit: u32, seconds: u32) -> Quota {
    Quota::new(limit, seconds).unwrap()
}

fn held(value: &str) -> Result<ClaimOutcome, CounterError> {
    Ok(ClaimOutcome::Held(value.to_owned()))
}

async fn a_claim_belongs_to_its_holder(on: &dyn Fixture) {
    let [a, b] = on.nodes();
    assert_eq!(a.read("k", START).await, Ok(None));
    assert_eq!(a.claim("k", "run 1", TTL, START).await, Ok(ClaimOutcome::Claimed));
    assert_eq!(b.claim("k", "run 2", TTL, START).await, held("run 1"));
    assert_eq!(a.claim("k", "run 1", TTL, START).await, held("run 1"), "also by its holder, who gets its own value");
    assert_eq!(b.claim("other", "run 2", TTL, START).await, Ok(ClaimOutcome::Claimed));
    assert_eq!(b.read("k", START).await, Ok(Some("run 1".into())));
    assert_eq!(b.release("k", "run 2", START).await, Ok(false));
    assert_eq!(b.read("k", START).await, Ok(Some("run 1".into())));
    assert_eq!(b.release("k", "run 1", START).await, Ok(true));
    assert_eq!(a.release("k", "run 1", START).await, Ok(false));
    assert_eq!(b.claim("k", "", TTL, START).await, Ok(ClaimOutcome::Claimed), "an empty value is a value");
    assert_eq!(a.claim("k", "run 3", TTL, START).await, held(""));
    assert_eq!(a.ready().await, Ok(()));
}

async fn of_many_claims_exactly_one_wins(on: &dyn Fixture) {
    let nodes = on.nodes();
    let values: Vec<String> = (0..64).map(|number| format!("run {number}")).collect();
    let claims = values.iter().enumerate().map(|(n, value)| nodes[n % 2].claim("race", value, TTL, START));
    let outcomes = future::join_all(claims).await;
    let winners: Vec<&String> =
        values.iter().zip(&outcomes).filter(|(_, o)| **o == Ok(ClaimOutcome::Claimed)).map(|w| w.0).collect();
    assert_eq!(winners.len(), 1, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == held(winners[0])).count(), 63);
}

async fn a_claim_ends_by_itself(on: &dyn Fixture) {
    let [a, b] = on.nodes();
    assert_eq!(a.claim("k", "first", TTL, START).await, Ok(ClaimOutcome::Claimed));
    on.elapse(Duration::from_secs(5)).await;
    assert_eq!(
        b.claim("k", "second", TTL, START.plus_seconds(5)).await,
        held("first"),
        "and a refused claim does not extend the TTL"
    );
    on.elapse(Duration::from_secs(5)).await;
    let now = START.plus_seconds(10);
    assert_eq!(a.read("k", now).await, Ok(None));
    assert_eq!(b.claim("k", "second", TTL, now).await, Ok(ClaimOutcome::Claimed));
    assert_eq!(a.release("k", "first", now).await, Ok(false), "an expired holder releases nothing");
    assert_eq!(a.read("k", now).await, Ok(Some("second".into())));
}

async fn a_window_allows_its_limit_and_no_more(on: &dyn Fixture) {
    let [a, b] = on.nodes();
    let minute = quota(3, 60);
    let reset_at = START.plus_seconds(60);
    for remaining in [2, 1, 0] {
        let node = if remaining == 1 { &b } else { &a };
        assert_eq!(node.hit("ada", minute, START).await, Ok(RateDecision::Allowed { remaining, reset_at }));
    }
    for _ in 0..5 {
        let refused = a.hit("ada", minute, START).await;
        assert_eq!(
            refused,
            Ok(RateDecision::Refused { retry_after: Duration::from_secs(80), reset_at }),
            "refused hits don't count"
        );
    }
    assert_eq!(
        b.hit("bob", minute, START).await,
        Ok(RateDecision::Allowed { remaining: 2, reset_at }),
        "other keys are not affected"
    );
    assert!(matches!(a.hit("none", quota(0, 60), START).await, Ok(RateDecision::Refused { .. })));
}

async fn a_burst_across_the_boundary_is_weighed(on: &dyn Fixture) {
    let [a, b] = on.nodes();
    let minute = quota(10, 60);
    let late = START.plus_seconds(55);
    for _ in 0..10 {
        assert!(matches!(a.hit("ada", minute, late).await, Ok(RateDecision::Allowed { .. })));
    }
    on.elapse(Duration::from_secs(5)).await;
    assert!(matches!(b.hit("ada", minute, START.plus_seconds(60)).await, Ok(RateDecision::Refused { .. })));
    on.elapse(Duration::from_secs(30)).await;
    let half_way = START.plus_seconds(90);
    for remaining in (0..5).rev() {
        let reset_at = START.plus_seconds(120);
        assert_eq!(b.hit("ada", minute, half_way).await, Ok(RateDecision::Allowed { remaining, reset_at }));
    }
    assert!(matches!(a.hit("ada", minute, half_way).await, Ok(RateDecision::Refused { .. })));
    on.elapse(Duration::from_secs(120)).await;
    assert!(matches!(
        a.hit("ada", minute, START.plus_seconds(210)).await,
        Ok(RateDecision::Allowed { remaining: 9, .. })
    ));
}

async fn two_nodes_together_never_exceed_the_limit(on: &dyn Fixture) {
    let nodes = on.nodes();
    let minute = quota(50, 60);
    let hits = (0..200).map(|n| nodes[n % 2].hit("burst", minute, START));
    let outcomes = future::join_all(hits).await;
    let mut remaining: Vec<u32> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Ok(RateDecision::Allowed { remaining, .. }) => Some(*remaining),
            _ => None,
        })
        .collect();
    remaining.sort_unstable();
    assert_eq!(remaining, (0..50).collect::<Vec<u32>>(), "each allowed hit saw a different count");
}

/// A seeded random sequence of hits, compared with a simple model. Its time steps are far longer than the test takes,
/// so that a store's own clock makes no difference.
async fn every_hit_is_decided_like_the_one_function_says(on: &dyn Fixture) {
    let nodes = on.nodes();
    let minute = quota(7, 60);
    let mut counts: HashMap<String, (u32, Timestamp)> = HashMap::new();
    let (mut now, mut seed) = (START.plus_seconds(7), 42_u32);
    for step in 0..400 {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (dice, actor) = (seed >> 24, format!("actor {}", (seed >> 20) % 3));
        if dice < 40 {
            let by = Duration::from_secs(if dice < 5 { 110 } else { 20 });
            on.elapse(by).await;
            now = now.plus_seconds(by.as_secs() as i64);
        }
        let (current, previous) = keys(&actor, minute, now);
        let count = |key: &str| counts.get(key).filter(|(_, end)| *end > now).map_or(0, |(count, _)| *count);
        let wanted = minute.decide(count(&previous), count(&current), now);
        if matches!(wanted, RateDecision::Allowed { .. }) {
            counts.insert(current.clone(), (count(&current) + 1, now.plus_seconds(60)));
        }
        assert_eq!(nodes[step % 2].hit(&actor, minute, now).await, Ok(wanted), "step {step}, {actor}, {now}");
    }
}

async fn what_is_beyond_the_limits_is_refused(on: &dyn Fixture) {
    let [a, _] = on.nodes();
    for key in [String::new(), "k".repeat(COUNTER_KEY_BYTES_MAX + 1)] {
        assert_eq!(a.claim(&key, "v", TTL, START).await, Err(CounterError::InvalidKey));
        assert_eq!(a.read(&key, START).await, Err(CounterError::InvalidKey));
        assert_eq!(a.release(&key, "v", START).await, Err(CounterError::InvalidKey));
        assert_eq!(a.hit(&key, quota(1, 60), START).await, Err(CounterError::InvalidKey));
    }
    let long = "v".repeat(COUNTER_VALUE_BYTES_MAX + 1);
    assert_eq!(a.claim("k", &long, TTL, START).await, Err(CounterError::ValueTooLarge));
    for ttl in [Duration::ZERO, Duration::from_micros(999), Duration::from_secs(CLAIM_TTL_SECONDS_MAX + 1)] {
        assert_eq!(a.claim("k", "v", ttl, START).await, Err(CounterError::InvalidTtl));
    }
    assert_eq!(a.claim("k", &long[1..], TTL, START).await, Ok(ClaimOutcome::Claimed));
}

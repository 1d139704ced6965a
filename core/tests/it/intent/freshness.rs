//! How long an envelope may be used.

use super::given::{changed, example, read, signed};
use chimera_core::intent::{Stale, check_age, sighting_kept_until};
use chimera_core::time::Timestamp;
use serde_json::json;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// INTENT-068
#[test]
fn the_age_counts_from_the_signed_time() {
    let mut issued = example();
    issued["issued_at"] = json!("2026-03-01T12:00:00Z");
    let issued = read(&signed(issued)).unwrap();
    let age = |now: &str| check_age(&issued, at(now), at(now));
    assert_eq!(age("2026-03-01T12:00:00Z"), Ok(()));
    assert_eq!(age("2026-03-01T12:02:00Z"), Ok(()));
    assert_eq!(age("2026-03-01T12:02:00.000001Z"), Err(Stale::Expired { at: at("2026-03-01T12:02:00Z") }));
    assert_eq!(age("2026-03-01T11:59:00Z"), Ok(()), "clocks differ a little");
    let from_future = Stale::FromFuture { issued_at: at("2026-03-01T12:00:00Z") };
    assert_eq!(age("2026-03-01T11:58:59.999999Z"), Err(from_future));
    assert_eq!(from_future.reason(), "issued_in_future");
}

/// INTENT-068
#[test]
fn without_a_signed_time_the_age_counts_from_the_first_sight() {
    let bare = read(&signed(example())).unwrap();
    let seen = at("2026-03-01T12:00:00Z");
    assert_eq!(check_age(&bare, seen, seen), Ok(()));
    assert_eq!(check_age(&bare, seen, seen.plus_seconds(120)), Ok(()));
    assert!(matches!(check_age(&bare, seen, seen.plus_seconds(121)), Err(Stale::Expired { .. })));
    for ttl in [json!(0), json!(-1), json!(0.000_000_1)] {
        let over = read(&changed("/constraints/ttl_sec", Some(ttl))).unwrap();
        assert!(matches!(check_age(&over, seen, seen), Err(Stale::Expired { .. })), "it is over at once");
    }
    let half = read(&changed("/constraints/ttl_sec", Some(json!(0.5)))).unwrap();
    assert_eq!(check_age(&half, seen, Timestamp::from_micros(seen.micros() + 500_000)), Ok(()));
}

#[test]
fn a_sighting_is_kept_as_long_as_its_signature_could_be_used_again() {
    let bare = read(&signed(example())).unwrap();
    let now = at("2026-03-01T12:00:00Z");
    assert!(sighting_kept_until(&bare, now, None) > now.plus_seconds(50 * 365 * 86_400), "the key never expires");
    let expires = now.plus_seconds(86_400);
    assert!(sighting_kept_until(&bare, now, Some(expires)) > expires);
    let soon = sighting_kept_until(&bare, now, Some(now.plus_seconds(1)));
    assert!(soon > now.plus_seconds(120));
}

//! Keys that count no more: they are in nobody's way, they go, and none of them comes back.

use super::porch::{entry, porch_with};
use chimera_core::access::tables::ACTOR_KEYS;
use chimera_core::limits::{ACTOR_KEYS_MAX, ACTORS_MAX};
use chimera_core::record::{Row, Value as Cell};
use chimera_testkit::access::settings;
use chimera_testkit::flow::TENANT;
use reqwest::Method;
use serde_json::json;
use uuid::Uuid;

fn set(row: &mut Row, column: &str, value: Cell) {
    let at = ACTOR_KEYS.position(column).unwrap();
    row.cells[at] = value;
}

/// However many keys have ended, whoever is disabled is let in no more.
#[tokio::test]
async fn keys_that_have_ended_keep_nothing_from_counting() {
    let porch = porch_with(settings(TENANT, vec![entry("user_bob", &["runs.read"])]), None).await;
    let key = porch.ask("admin", Method::POST, "/actors/user_bob/keys", json!({})).await;
    assert_eq!(key.status, 201, "{key:?}");
    porch.house.stage.records.tamper(&ACTOR_KEYS, |rows| {
        let live = rows[0].clone();
        let ended = (0..=ACTORS_MAX * ACTOR_KEYS_MAX).map(|n| {
            let mut row = live.clone();
            set(&mut row, "id", Uuid::from_u64_pair(7, n as u64).into());
            set(&mut row, "expires_at", live.get("not_before").clone());
            row
        });
        rows.extend(ended);
    });
    assert_eq!(porch.get("user_bob", "/runs").await.status, 200);
    let disabled = json!({"scopes": ["runs.read"], "disabled": true});
    assert_eq!(porch.ask("admin", Method::PUT, "/actors/user_bob", disabled).await.status, 200);
    assert_eq!(porch.get("user_bob", "/runs").await.status, 403);
}

#[tokio::test]
async fn a_key_that_has_ended_is_swept_and_one_of_the_configuration_does_not_come_back() {
    let porch = porch_with(settings(TENANT, vec![entry("user_bob", &["runs.read"])]), None).await;
    for _ in 0..3 {
        let made = porch.ask("admin", Method::POST, "/actors/user_bob/keys", json!({"overlap_seconds": 0})).await;
        assert_eq!(made.status, 201, "{made:?}");
    }
    assert_eq!(
        porch.house.stage.rows(&ACTOR_KEYS).len(),
        4,
        "three that were made, and the end of the configuration's"
    );
    porch.clock.wait(1);
    porch.directory.sweep().await.unwrap();
    porch.directory.refresh().await.unwrap();
    let kept = porch.house.stage.rows(&ACTOR_KEYS);
    assert_eq!(kept.len(), 2, "the newest, and the end of the configuration's");
    assert_eq!(porch.sign_in("user_bob", "old").await.status, 401, "the configuration's key has ended for ever");
    let shown = porch.get("admin", "/actors/user_bob").await.body;
    assert_eq!(shown["keys"], 1, "{shown}");
}
/// Whatever was changed or revoked may not count here yet, and the node says so.
#[tokio::test]
async fn a_registry_that_can_not_be_read_again_is_told() {
    let porch = porch_with(settings(TENANT, Vec::new()), None).await;
    assert!(!porch.directory.is_behind());
    porch.house.stage.records.refuse_reads();
    porch.directory.refresh().await.unwrap_err();
    assert!(porch.directory.is_behind());
    porch.house.stage.records.heal();
    porch.directory.refresh().await.unwrap();
    assert!(!porch.directory.is_behind());
}

//! Expired keys: they block nobody, they are cleaned up, and none becomes valid again.

use super::access_server::{entry, porch_with};
use chimera_core::access::ActorEntry;
use chimera_core::access::tables::{ACTOR_KEYS, ACTORS};
use chimera_core::limits::{ACTOR_KEYS_MAX, ACTORS_MAX, ACTORS_OWN_MIN, TENANT_ACTORS_MAX};
use chimera_core::record::{Row, Value as Cell};
use chimera_core::secret::Secret;
use chimera_testkit::access::{key_of, settings};
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
    porch.directory.delete_expired_rows().await.unwrap();
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
    assert!(!porch.directory.is_stale());
    porch.house.stage.records.refuse_reads();
    porch.directory.refresh().await.unwrap_err();
    assert!(porch.directory.is_stale());
    porch.house.stage.records.clear_faults();
    porch.directory.refresh().await.unwrap();
    assert!(!porch.directory.is_stale());
}

/// With rights of its own to make actors too.
#[tokio::test]
async fn a_tenant_that_makes_actors_without_end_takes_no_room_from_others() {
    let keeper = |id: &str, tenant: &str| ActorEntry { tenant: tenant.to_owned(), ..entry(id, &["actors.write"]) };
    let mut entries = vec![keeper("loud_*", "loud"), keeper("quiet_*", "quiet")];
    entries.extend([keeper("loud_ann", "loud"), keeper("quiet_ann", "quiet")]);
    let mut settings = settings(TENANT, entries);
    settings.keys.extend(["loud_ann", "quiet_ann"].map(|actor| (actor.to_owned(), Secret::new(key_of(actor)))));
    let porch = porch_with(settings, None).await;
    let put = async |actor: &str, id: &str| {
        porch.ask(actor, Method::PUT, &format!("/actors/{id}"), json!({"scopes": ["actors.write"]})).await
    };
    assert_eq!(put("loud_ann", "loud_bob").await.status, 200);
    let crowd = |tenants: &[(&str, usize)]| {
        porch.house.stage.records.tamper(&ACTORS, |rows| {
            let model = rows[0].clone();
            rows.truncate(1);
            for (tenant, count) in tenants {
                rows.extend((0..*count).map(|n| {
                    let mut row = model.clone();
                    row.cells[ACTORS.position("id").unwrap()] = format!("{tenant}_{n:05}").into();
                    row.cells[ACTORS.position("tenant_id").unwrap()] = (*tenant).into();
                    row
                }));
            }
        });
    };
    crowd(&[("loud", TENANT_ACTORS_MAX)]);
    porch.directory.refresh().await.unwrap();
    let refused = put("loud_ann", "loud_more").await;
    assert_eq!((refused.status, refused.code()), (422, "VALIDATION_FAILED"), "{refused:?}");
    assert!(refused.body["detail"].as_str().unwrap().contains("the tenant loud has 20"), "{refused:?}");
    let keyed = async |actor: &str, id: &str| {
        porch.ask(actor, Method::POST, &format!("/actors/{id}/keys"), json!({})).await.status
    };
    assert_eq!(keyed("loud_ann", "loud_more").await, 422, "a key makes a name an actor too");
    assert_eq!((keyed("loud_ann", "loud_00001").await, keyed("quiet_ann", "quiet_dan").await), (201, 201));
    assert_eq!((put("quiet_ann", "quiet_bob").await.status, put("admin", "user_cat").await.status), (200, 200));

    let guests: Vec<String> = (0..20).map(|n| format!("loud{n}")).collect();
    let each = (ACTORS_MAX - ACTORS_OWN_MIN) / guests.len();
    crowd(&guests.iter().map(|tenant| (tenant.as_str(), each)).collect::<Vec<_>>());
    porch.directory.refresh().await.unwrap();
    assert_eq!(put("quiet_ann", "quiet_cat").await.status, 422, "the guests have all that is for guests");
    assert_eq!(put("admin", "user_dan").await.status, 200);
}

//! A key that a pattern shares is for services: the registry says who is a person, and people never share one.

use super::access_server::{AccessServer, ApiResponse, entry, porch_with, sent};
use chimera_core::access::{ActorEntry, Kind, mac};
use chimera_core::secret::Secret;
use chimera_testkit::access::{key_of, settings};
use chimera_testkit::flow::TENANT;
use reqwest::Method;
use serde_json::json;

/// A front door at which one key is shared by a pattern.
async fn shared_by(pattern: &str, entries: Vec<ActorEntry>) -> AccessServer {
    let mut settings = settings(TENANT, entries);
    settings.keys.push((pattern.to_owned(), Secret::new(key_of(pattern).as_str())));
    porch_with(settings, None).await
}

/// How signing in as somebody with that key is answered.
async fn sign_in(porch: &AccessServer, pattern: &str, actor: &str, nonce: &str) -> u16 {
    answer_to(porch, pattern, actor, nonce).await.status
}

async fn answer_to(porch: &AccessServer, pattern: &str, actor: &str, nonce: &str) -> ApiResponse {
    let body = json!({"actor": actor, "issued_at": porch.now(), "nonce": nonce}).to_string();
    let signature = mac::sign(&Secret::new(key_of(pattern)), body.as_bytes());
    let request = porch.house.client.post(porch.house.server.url("/auth/token"));
    let request = request.header("content-type", "application/json").header("x-hmac-signature", signature);
    sent(request.body(body)).await
}

#[tokio::test]
async fn people_share_no_key_whatever_they_are_called() {
    let people = ActorEntry { kind: Kind::Human, ..entry("ops_*", &["local.summarize", "approvals.decide"]) };
    let porch = shared_by("ops_*", vec![people]).await;
    assert_eq!(sign_in(&porch, "ops_*", "ops_ann", "1").await, 401);
    assert_eq!(sign_in(&porch, "ops_*", "ops_bob", "2").await, 401);
}

#[tokio::test]
async fn a_pattern_that_becomes_one_of_people_loses_its_key() {
    let porch = shared_by("ops_*", vec![entry("ops_*", &["local.summarize"])]).await;
    assert_eq!(sign_in(&porch, "ops_*", "ops_ann", "1").await, 200);
    let human = json!({"kind": "human", "scopes": ["local.summarize"]});
    assert_eq!(porch.ask("admin", Method::PUT, "/actors/ops_*", human).await.status, 200);
    assert_eq!(sign_in(&porch, "ops_*", "ops_ann", "2").await, 401);
}

#[tokio::test]
async fn nobody_gets_in_by_a_shared_key_under_a_name_that_nobody_could_be_given() {
    let porch = shared_by("n8n_workflow_*", Vec::new()).await;
    assert_eq!(sign_in(&porch, "n8n_workflow_*", "n8n_workflow_a", "1").await, 200);
    for (at, strange) in
        ["n8n_workflow_a\u{200b}", "n8n_workflow_\u{430}", "n8n_workflow_<b>", "n8n_workflow_a\u{202e}"]
            .iter()
            .enumerate()
    {
        let answer = sign_in(&porch, "n8n_workflow_*", strange, &format!("strange {at}")).await;
        assert!([400, 401].contains(&answer), "{strange:?}: {answer}");
    }
}

/// What a shared key gave ends where the key does: no token of it outlives the moment at which its name is a person's,
/// or has an entry that may allow it more.
#[tokio::test]
async fn a_token_of_a_shared_key_ends_when_its_name_gets_an_entry_or_its_pattern_is_one_of_people() {
    let own = |kind: &str| ("/actors/ops_ann", json!({"kind": kind, "scopes": ["local.summarize"]}));
    let people = ("/actors/ops_*", json!({"kind": "human", "scopes": ["local.summarize"]}));
    for (path, entry_now) in [own("human"), own("service"), people] {
        let porch = shared_by("ops_*", vec![entry("ops_*", &["local.summarize"])]).await;
        let tokens = answer_to(&porch, "ops_*", "ops_ann", "1").await.body;
        let bearer = tokens["access_token"].as_str().unwrap();
        let look = async || sent(porch.house.client.get(porch.house.server.url("/runs")).bearer_auth(bearer)).await;
        assert_eq!(look().await.status, 200);
        assert_eq!(porch.ask("admin", Method::PUT, path, entry_now.clone()).await.status, 200);
        let refused = look().await;
        assert_eq!((refused.status, refused.detail("reason")), (401, &json!("shared key")), "{path} {entry_now}");
    }
}

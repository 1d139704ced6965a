//! Signed requests: what a signature must cover, how long it is valid, and that it is accepted once.

use super::access_server::{AccessServer, ApiResponse, porch, sent};
use crate::flow::{FlowServer, furnished, path, reviewed, setup};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chimera_core::access::tables::NONCES;
use chimera_core::access::{mac, signature};
use chimera_core::limits::{CLOCK_SKEW_SECONDS, NONCE_CHARS_MAX, SIGNATURES_TRIED_MAX};
use chimera_core::record::{Tx, Value as Cell};
use chimera_core::secret::Secret;
use chimera_engine::commit::{Batch, BatchOutcome};
use chimera_engine::port::{Outage, Random, Unavailable};
use chimera_testkit::access::{key_of, signed};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use std::time::Duration;

/// A request of the operator under a signature of a test's own making: what is covered and with which
/// values, and further parameters.
struct Handmade {
    covered: Vec<(&'static str, String)>,
    params: String,
}

impl Handmade {
    /// Everything that has to be covered, of a request that is made now.
    fn of(house: &FlowServer, method: &str, path: &str, body: &str) -> Self {
        let created = house.stage.world.clock.now().millis() / 1_000;
        let nonce = house.stage.world.random.row_id(house.stage.world.clock.now());
        let mut covered = vec![("@method", method.to_owned()), ("@path", path.to_owned()), ("@query", "?".to_owned())];
        if !body.is_empty() {
            covered.push(("content-digest", signature::content_digest(body.as_bytes())));
        }
        Self { covered, params: format!(r#"created={created};nonce="{nonce}";keyid="admin""#) }
    }

    fn without(mut self, name: &str) -> Self {
        self.covered.retain(|(covered, _)| *covered != name);
        self
    }

    fn and(mut self, param: &str) -> Self {
        self.params.push_str(param);
        self
    }

    async fn send(&self, house: &FlowServer, method: Method, target: &str, body: &str) -> ApiResponse {
        sent_with(house, method, target, body, &[("s", self, &key_of("admin"))]).await
    }

    /// What stands behind a label in `Signature-Input` and in `Signature`.
    fn signed_with(&self, key: &str) -> (String, String) {
        let names: Vec<String> = self.covered.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        let input = format!("({});{}", names.join(" "), self.params);
        let lines: String = self.covered.iter().map(|(name, value)| format!("\"{name}\": {value}\n")).collect();
        let base = format!("{lines}\"@signature-params\": {input}");
        (input, STANDARD.encode(mac::bytes(&Secret::new(key), base.as_bytes())))
    }
}

/// Sends a request under signatures with labels, each made with a key.
async fn sent_with(
    house: &FlowServer,
    method: Method,
    target: &str,
    body: &str,
    signatures: &[(&str, &Handmade, &str)],
) -> ApiResponse {
    sent(signed_request(house, method, target, body, signatures)).await
}

fn signed_request(
    house: &FlowServer,
    method: Method,
    target: &str,
    body: &str,
    signatures: &[(&str, &Handmade, &str)],
) -> RequestBuilder {
    let mut request = house.client.request(method, house.server.url(target)).bearer_auth(house.token("admin"));
    let (mut inputs, mut macs) = (Vec::new(), Vec::new());
    for (label, made, key) in signatures {
        let (input, mac) = made.signed_with(key);
        inputs.push(format!("{label}={input}"));
        macs.push(format!("{label}=:{mac}:"));
    }
    request = request.header("signature-input", inputs.join(", ")).header("signature", macs.join(", "));
    let covered = signatures.iter().flat_map(|(_, made, _)| &made.covered).find(|(name, _)| *name == "content-digest");
    if let Some((name, value)) = covered {
        request = request.header(*name, value);
    }
    if !body.is_empty() {
        request = request.header("content-type", "application/json").body(body.to_owned());
    }
    request
}

/// A proxy or another library may sign too, under the same key's name: one signature that fits is enough.
#[tokio::test]
async fn of_several_signatures_one_that_fits_is_enough() {
    let house = furnished(setup(), |edge| edge).await;
    let (body, key) = (reviewed().document().to_string(), key_of("admin"));
    let made = || Handmade::of(&house, "PUT", "/workflows/reviewed", &body);
    let put = async |signatures: &[(&str, &Handmade, &str)]| {
        sent_with(&house, Method::PUT, "/workflows/reviewed", &body, signatures).await
    };
    let (bare, whole) = (made().without("@path"), made());
    let answer = put(&[("bare", &bare, &key), ("whole", &whole, &key)]).await;
    assert_eq!(answer.status, 200, "one covers too little: {answer:?}");
    let (other, whole) = (made(), made());
    let answer = put(&[("other", &other, "another key"), ("whole", &whole, &key)]).await;
    assert_eq!(answer.status, 200, "one is made with another key: {answer:?}");
    let (over, whole) = (made().and(";expires=1"), made());
    let answer = put(&[("over", &over, &key), ("whole", &whole, &key)]).await;
    assert_eq!(answer.status, 200, "one has expired: {answer:?}");
    let (first, second) = (made(), made());
    assert_eq!(put(&[("first", &first, &key), ("second", &second, &key)]).await.status, 200);
    for alone in [&first, &second] {
        let again = put(&[("s", alone, &key)]).await;
        assert_eq!((again.status, again.detail("reason")), (401, &json!("nonce_used")), "{again:?}");
    }
    let (first, second) = (made(), made());
    let answer = put(&[("first", &first, "another key"), ("second", &second, "a third")]).await;
    assert_eq!((answer.status, answer.detail("reason")), (401, &json!("mismatch")), "{answer:?}");
    let (bare, other) = (made().without("@path"), made());
    let answer = put(&[("bare", &bare, &key), ("other", &other, "another key")]).await;
    assert_eq!(answer.status, 401, "none is whole: {answer:?}");
}

/// None of them could be sent again alone: what was not looked at would not be used up.
#[tokio::test]
async fn more_signatures_than_are_tried_are_refused() {
    let house = furnished(setup(), |edge| edge).await;
    let (body, key) = (reviewed().document().to_string(), key_of("admin"));
    let put = async |signatures: &[(&str, &Handmade, &str)]| {
        sent_with(&house, Method::PUT, "/workflows/reviewed", &body, signatures).await
    };
    let labels: Vec<String> = (0..=SIGNATURES_TRIED_MAX).map(|at| format!("s{at}")).collect();
    let made: Vec<Handmade> =
        labels.iter().map(|_| Handmade::of(&house, "PUT", "/workflows/reviewed", &body)).collect();
    let all: Vec<_> = labels.iter().zip(&made).map(|(label, made)| (label.as_str(), made, key.as_str())).collect();
    let answer = put(&all).await;
    assert_eq!((answer.status, answer.code()), (401, "SIGNATURE_INVALID"), "{answer:?}");
    assert_eq!(answer.detail("reason"), "unreadable", "{answer:?}");
    let answer = put(&all[1..]).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    for alone in &all[1..] {
        let again = put(&[*alone]).await;
        assert_eq!((again.status, again.detail("reason")), (401, &json!("nonce_used")), "{again:?}");
    }
}

/// A signature that does not count yet would count a little later.
#[tokio::test]
async fn a_signature_from_the_future_beside_a_good_one_is_used_up_too() {
    let house = furnished(setup(), |edge| edge).await;
    let (body, key) = (reviewed().document().to_string(), key_of("admin"));
    let made = || Handmade::of(&house, "PUT", "/workflows/reviewed", &body);
    let put = async |signatures: &[(&str, &Handmade, &str)]| {
        sent_with(&house, Method::PUT, "/workflows/reviewed", &body, signatures).await
    };
    let ahead_by = |seconds: i64| {
        let now = house.stage.world.clock.now().millis() / 1_000;
        let mut made = made();
        made.params = made.params.replace(&format!("created={now}"), &format!("created={}", now + seconds));
        made
    };
    let (ahead, whole) = (ahead_by(CLOCK_SKEW_SECONDS + 10), made());
    let answer = put(&[("ahead", &ahead, &key), ("whole", &whole, &key)]).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    // As long as it counts, it was used: also when the good one is forgotten.
    let last = house.stage.world.clock.now().plus_seconds(2 * CLOCK_SKEW_SECONDS + 9);
    let kept = house
        .stage
        .rows(&NONCES)
        .into_iter()
        .filter(|row| matches!(row.get("expires_at"), Cell::Time(until) if *until >= last))
        .count();
    assert_eq!(kept, 1, "{:?}", house.stage.rows(&NONCES));
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(12)).await;
    tokio::time::resume();
    let again = put(&[("s", &ahead, &key)]).await;
    assert_eq!((again.status, again.detail("reason")), (401, &json!("nonce_used")), "{again:?}");
    let (never, whole) = (ahead_by(100 * 365 * 86_400), made());
    let answer = put(&[("never", &never, &key), ("whole", &whole, &key)]).await;
    assert_eq!((answer.status, answer.code()), (401, "EXPIRED_TTL"), "nobody remembers it so long: {answer:?}");
}

/// A proxy that removes or changes a field must not leave a signature over it to be used again.
#[tokio::test]
async fn a_signature_over_a_field_that_was_lost_on_the_way_is_used_up_too() {
    let house = furnished(setup(), |edge| edge).await;
    let (body, key) = (reviewed().document().to_string(), key_of("admin"));
    let made = || Handmade::of(&house, "PUT", "/workflows/reviewed", &body);
    let over = |value: &str| {
        let mut made = made();
        made.covered.push(("x-extra", value.to_owned()));
        made
    };
    let put = async |extra: Option<&str>, signatures: &[(&str, &Handmade, &str)]| {
        let request = signed_request(&house, Method::PUT, "/workflows/reviewed", &body, signatures);
        sent(extra.into_iter().fold(request, |request, extra| request.header("x-extra", extra))).await
    };
    for arrived in [None, Some("changed")] {
        let (whole, more) = (made(), over("1"));
        let answer = put(arrived, &[("sig1", &whole, &key), ("sig2", &more, &key)]).await;
        assert_eq!(answer.status, 200, "{arrived:?}: {answer:?}");
        let again = put(Some("1"), &[("sig2", &more, &key)]).await;
        assert_eq!((again.status, again.detail("reason")), (401, &json!("nonce_used")), "{arrived:?}: {again:?}");
    }
    let (whole, bodyless) = (made(), made().without("content-digest"));
    assert_eq!(put(None, &[("sig1", &whole, &key), ("sig2", &bodyless, &key)]).await.status, 200);
    let again = sent_with(&house, Method::PUT, "/workflows/reviewed", "", &[("sig2", &bodyless, &key)]).await;
    assert_eq!((again.status, again.detail("reason")), (401, &json!("nonce_used")), "without its body: {again:?}");
}

#[tokio::test]
async fn a_signature_with_an_unusable_nonce_counts_neither_beside_a_good_one_nor_alone() {
    let house = furnished(setup(), |edge| edge).await;
    let (body, key) = (reviewed().document().to_string(), key_of("admin"));
    let made = || Handmade::of(&house, "PUT", "/workflows/reviewed", &body);
    let put = async |signatures: &[(&str, &Handmade, &str)]| {
        sent_with(&house, Method::PUT, "/workflows/reviewed", &body, signatures).await
    };
    for nonce in ["n".repeat(NONCE_CHARS_MAX + 1), String::new()] {
        let (mut unusable, whole) = (made(), made());
        let created = house.stage.world.clock.now().millis() / 1_000;
        unusable.params = format!(r#"created={created};nonce="{nonce}";keyid="admin""#);
        let answer = put(&[("unusable", &unusable, &key), ("whole", &whole, &key)]).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let alone = put(&[("s", &unusable, &key)]).await;
        assert_eq!((alone.status, alone.detail("reason")), (401, &json!("parameter")), "{alone:?}");
    }
}

#[tokio::test]
async fn a_signature_that_leaves_something_out_is_refused_and_names_it() {
    let house = furnished(setup(), |edge| edge).await;
    let body = reviewed().document().to_string();
    let made = || Handmade::of(&house, "PUT", "/workflows/reviewed", &body);
    for missing in ["@method", "@path", "@query", "content-digest"] {
        let refused = made().without(missing).send(&house, Method::PUT, "/workflows/reviewed", &body).await;
        assert_eq!((refused.status, refused.code()), (401, "SIGNATURE_INVALID"), "{missing}: {refused:?}");
        assert_eq!(refused.detail("reason"), "not_covered", "{missing}");
        assert!(refused.body.to_string().contains(missing), "{refused:?}");
    }
    let taken = made().send(&house, Method::PUT, "/workflows/reviewed", &body).await;
    assert_eq!(taken.status, 200, "{taken:?}");
    // Without a body there is nothing whose digest could be covered.
    let bare = Handmade::of(&house, "DELETE", "/workflows/reviewed/cache", "");
    let taken = bare.send(&house, Method::DELETE, "/workflows/reviewed/cache", "").await;
    assert_eq!(taken.status / 100, 2, "{taken:?}");
    let bare = Handmade::of(&house, "DELETE", "/workflows/reviewed/cache", "");
    let refused = bare.send(&house, Method::DELETE, "/workflows/reviewed/cache", "{}").await;
    assert_eq!((refused.status, refused.detail("reason")), (401, &json!("not_covered")), "{refused:?}");
    let bare = Handmade::of(&house, "DELETE", "/workflows/reviewed/cache", "");
    let refused = bare.send(&house, Method::DELETE, "/workflows/reviewed/cache?key=x", "").await;
    assert_eq!((refused.status, refused.detail("reason")), (401, &json!("mismatch")), "{refused:?}");
}

#[tokio::test]
async fn a_signature_ends_when_it_says_so() {
    let house = furnished(setup(), |edge| edge).await;
    let now = house.stage.world.clock.now().millis() / 1_000;
    let body = reviewed().document().to_string();
    let put = async |expires: i64| {
        let made = Handmade::of(&house, "PUT", "/workflows/reviewed", &body).and(&format!(";expires={expires}"));
        made.send(&house, Method::PUT, "/workflows/reviewed", &body).await
    };
    let refused = put(now - 1).await;
    assert_eq!((refused.status, refused.code()), (401, "EXPIRED_TTL"), "{refused:?}");
    assert_eq!(refused.detail("reason"), "expired");
    assert_eq!(put(now + 600).await.status, 200);
}

/// A proxy may take the front of the path away that callers see and sign.
#[tokio::test]
async fn the_path_that_callers_see_may_be_signed_and_no_other() {
    let house = furnished(setup(), |edge| edge.with_public_url("https://gate.example/chimera/")).await;
    let body = reviewed().document().to_string();
    for (seen, status) in [
        ("/chimera/workflows/reviewed", 200),
        ("/workflows/reviewed", 200),
        ("/other/workflows/reviewed", 401),
        ("/chimera/workflows/other", 401),
    ] {
        let made = Handmade::of(&house, "PUT", seen, &body);
        let answer = made.send(&house, Method::PUT, "/workflows/reviewed", &body).await;
        assert_eq!(answer.status, status, "{seen}: {answer:?}");
    }
    let house = furnished(setup(), |edge| edge).await;
    let made = Handmade::of(&house, "PUT", "/chimera/workflows/reviewed", &body);
    let answer = made.send(&house, Method::PUT, "/workflows/reviewed", &body).await;
    assert_eq!(answer.status, 401, "nobody has said that this is its address: {answer:?}");
}

/// Whether a transaction uses a nonce up and does nothing else.
fn is_nonce_alone(tx: &Tx) -> bool {
    let nonces = tx.inserts.iter().filter(|insert| insert.table == &NONCES).count();
    nonces > 0 && nonces == tx.inserts.len() && tx.updates.is_empty() && tx.steps.is_empty() && tx.entries.is_empty()
}

/// From now on the store takes no nonce that comes without a change.
fn refuse_nonces_alone(porch: &AccessServer) {
    porch.house.stage.records.inject_batch_fault(Box::new(|batch: &Batch| {
        let alone = batch.txs.iter().any(is_nonce_alone);
        alone.then(|| BatchOutcome::Unavailable(Unavailable::new(Outage::Full, "the disk is full")))
    }));
}

/// Both are there or neither is, however the process ends: a second transaction might never come.
#[tokio::test]
async fn what_a_request_changes_and_its_nonce_are_one_transaction() {
    let porch = porch().await;
    let note = json!([{"tool": "notion.note", "input": {"n": 1}}]);
    let draft = porch.act("n8n_workflow_1", json!({"steps": note, "autonomy_level": "L1_Draft"})).await.body;
    let other = porch.act("n8n_workflow_1", json!({"steps": note, "autonomy_level": "L1_Draft"})).await.body;
    refuse_nonces_alone(&porch);
    let mut dated = json!({"steps": note, "nonce": "n1", "issued_at": porch.now()});
    dated["autonomy_level"] = "L1_Draft".into();
    for (method, target, body) in [
        (Method::PUT, "/workflows/by_hand".to_owned(), reviewed_by_hand().document().clone()),
        (Method::PUT, "/actors/user_cat".to_owned(), json!({"scopes": []})),
        (Method::POST, "/actors/user_cat/keys".to_owned(), json!({})),
        (Method::POST, path(&draft, "/pause"), Value::Null),
        (Method::POST, path(&other, "/approve"), json!({"decision": "approve"})),
        (Method::POST, "/act".to_owned(), dated),
    ] {
        let answer = porch.ask("admin", method, &target, body).await;
        assert_eq!(answer.status / 100, 2, "{target}: {answer:?}");
    }
}

fn reviewed_by_hand() -> chimera_testkit::flow::Air {
    chimera_testkit::flow::workflow("by_hand").node(json!({"id": "review", "type": "hitl"}))
}

/// A decision that the store did not take can be sent again as it is, and one that it took can not.
#[tokio::test]
async fn a_decision_uses_its_nonce_up_only_if_it_is_written() {
    let porch = porch().await;
    let note = json!([{"tool": "notion.note", "input": {"n": 1}}]);
    let draft = porch.act("n8n_workflow_1", json!({"steps": note, "autonomy_level": "L1_Draft"})).await.body;
    let (target, body) = (path(&draft, "/approve"), json!({"decision": "approve"}).to_string());
    let headers = signed("admin", porch.house.stage.world.clock.now(), ("POST", &target), body.as_bytes());
    let send = async || {
        let request = porch.request("admin", Method::GET, &target, &Value::Null).build().unwrap();
        let token = request.headers()["authorization"].clone();
        let request = porch.house.client.post(porch.house.server.url(&target)).header("authorization", token);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
        sent(request.header("content-type", "application/json").body(body.clone())).await
    };
    porch.house.stage.records.refuse_writes();
    let failed = send().await;
    assert_eq!(failed.status, 503, "{failed:?}");
    assert_eq!(porch.house.stage.rows(&NONCES).len(), 0);
    porch.house.stage.records.clear_faults();
    let decided = send().await;
    assert_eq!(decided.status, 200, "{decided:?}");
    let again = send().await;
    assert_eq!((again.status, again.detail("reason")), (401, &json!("nonce_used")), "{again:?}");
}

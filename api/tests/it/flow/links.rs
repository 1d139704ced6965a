//! The approval page that a mailed link opens: opening it changes nothing, and its form decides once.

use super::{FlowServer, furnished, path, setup};
use async_trait::async_trait;
use chimera_core::flow::run::RunHead;
use chimera_core::flow::tables::NOTIFICATIONS;
use chimera_engine::flow::port::{DeliveryReceipt, Message, Notifier, Recipient, Recipients, ToolError};
use chimera_engine::flow::{Asking, RunRecipients};
use chimera_testkit::flow::{Air, approval_link, asking, id_of, workflow};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use std::sync::Arc;

/// Has keys and sends nothing.
struct KeyNotifier(Vec<String>);

#[async_trait]
impl Notifier for KeyNotifier {
    fn check(&self, _: &str, _: &str) -> Result<(), ToolError> {
        Ok(())
    }

    async fn send(&self, _: &Message) -> Result<DeliveryReceipt, ToolError> {
        Ok(DeliveryReceipt::default())
    }

    async fn public_keys(&self) -> Vec<String> {
        self.0.clone()
    }
}

/// Registers every address for whoever asked for the run.
struct Own;

#[async_trait]
impl Recipients for Own {
    async fn of(&self, head: &RunHead) -> Vec<Recipient> {
        let mut named = RunRecipients.of(head).await;
        named.iter_mut().for_each(|recipient| recipient.person = Some(head.actor.clone()));
        named
    }
}

async fn mailing() -> FlowServer {
    furnished(setup().asking(Asking { recipients: Arc::new(Own), ..asking() }), |edge| edge).await
}

const EVIL: &str = "</pre><script>alert(1)</script><a href='//evil' onload=\"x\">&";

fn evil() -> Air {
    workflow("evil").function("change", "change", json!({"text": EVIL}))
}

/// A house, a run that waits at L0, and the address of the link about it.
async fn waiting(air: &Air) -> (FlowServer, Value, String) {
    let house = mailing().await;
    let ask = json!({"autonomy_level": "L0_Ask", "notify": {"email": "ann@example.com"}});
    let run = house.run(air, ask).await;
    let row = house.stage.rows_of(&NOTIFICATIONS, id_of(&run["run_id"])).remove(0);
    let link = house.server.url(&approval_link(&row).unwrap());
    (house, run, link)
}

async fn click(house: &FlowServer, link: &str, form: &str) -> Response {
    let request = house.client.post(link).header("content-type", "application/x-www-form-urlencoded");
    request.body(form.to_owned()).send().await.unwrap()
}

fn digest(run: &Value) -> String {
    run["approvals"][0]["digest"].as_str().unwrap().to_owned()
}

/// The status and the text of a page.
async fn page(answer: Response) -> (u16, String) {
    let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
    assert_eq!(kind, "text/html; charset=utf-8");
    assert_eq!(answer.headers()["cache-control"], "no-store");
    assert_eq!(answer.headers()["referrer-policy"], "no-referrer");
    (answer.status().as_u16(), answer.text().await.unwrap())
}

#[tokio::test]
async fn the_page_shows_what_would_run_and_runs_nothing_itself() {
    let (house, run, link) = waiting(&evil()).await;
    let answer = house.client.get(&link).send().await.unwrap();
    let policy = answer.headers()["content-security-policy"].to_str().unwrap().to_owned();
    let nonce = policy.split("'nonce-").nth(1).unwrap().split('\'').next().unwrap().to_owned();
    assert_eq!(
        policy,
        format!(
            "default-src 'none'; style-src 'nonce-{nonce}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
        )
    );
    assert_eq!(
        (&answer.headers()["x-frame-options"], &answer.headers()["x-robots-tag"]),
        (&"DENY".parse().unwrap(), &"noindex".parse().unwrap())
    );
    let (status, text) = page(answer).await;
    assert_eq!(status, 200);
    assert!(text.contains(&format!("<style nonce=\"{nonce}\">")));
    let input = format!("text: {EVIL}");
    let input = input.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let input = input.replace('"', "&quot;").replace('\'', "&#39;");
    let digest = digest(&run);
    let run_id = run["run_id"].as_str().unwrap();
    for part in [input.as_str(), "calls change", "L0_Ask", "admin", "1 call", &digest, run_id] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    for part in ["<script", "<a ", "onload=\"", "http://", "https://"] {
        assert!(!text.contains(part), "{part}: {text}");
    }
    let again = house.client.get(&link).send().await.unwrap();
    assert_ne!(again.headers()["content-security-policy"], policy, "a nonce is used once");
}

#[tokio::test]
async fn a_program_that_opens_every_link_decides_nothing() {
    let (house, run, link) = waiting(&evil()).await;
    for method in [Method::GET, Method::HEAD, Method::GET] {
        let query = format!("{link}?decision=approve&digest={}", digest(&run));
        for address in [&link, &query] {
            assert_eq!(house.client.request(method.clone(), address).send().await.unwrap().status(), 200);
        }
    }
    let (_, shown) = house.get(&path(&run, "")).await;
    assert_eq!((&shown["status"], &shown["approvals"][0]["decisions"]), (&json!("awaiting_approval"), &json!([])));
}

#[tokio::test]
async fn the_form_decides_once_as_the_person_the_link_was_sent_to() {
    let (house, run, link) = waiting(&evil()).await;
    let form = format!("decision=approve&digest={}&reason=looks+fine%21", digest(&run));
    let (status, text) = page(click(&house, &link, &form).await).await;
    assert!(status == 200 && text.contains("<h1>Approved</h1>"), "{text}");
    house.until(&run, "completed").await;
    let (status, text) = page(click(&house, &link, &form).await).await;
    assert!(status == 410 && text.contains("already used") && text.contains("GONE"), "{text}");
    let (status, _) = page(house.client.get(&link).send().await.unwrap()).await;
    assert_eq!(status, 410);
    let rows = house.stage.rows(&chimera_core::flow::tables::SCOPED_APPROVALS);
    assert_eq!(rows[0].get("reviewed_by").as_text(), Some("admin"));
    assert_eq!(rows[0].get("review_notes").as_text(), Some("looks fine!"));
}

#[tokio::test]
async fn a_no_on_the_page_stops_the_run() {
    let (house, run, link) = waiting(&evil()).await;
    let form = format!("decision=reject&digest={}&reason=", digest(&run));
    let (status, text) = page(click(&house, &link, &form).await).await;
    assert!(status == 200 && text.contains("<h1>Rejected</h1>"), "{text}");
    house.until(&run, "cancelled").await;
}

#[tokio::test]
async fn a_plan_is_shown_step_by_step() {
    let house = mailing().await;
    let air = workflow("two")
        .function("first", "think", json!({"n": 1}))
        .function("second", "change", json!({"seen": "${nodes.first.outputs}"}))
        .edge("first", "second");
    let run = house.run(&air, json!({"autonomy_level": "L1_Draft", "notify": {"email": "ann@example.com"}})).await;
    let row = house.stage.rows_of(&NOTIFICATIONS, id_of(&run["run_id"])).remove(0);
    let link = house.server.url(&approval_link(&row).unwrap());
    let (status, text) = page(house.client.get(&link).send().await.unwrap()).await;
    assert_eq!(status, 200);
    let (first, second) = (text.find("first calls think"), text.find("second calls change"));
    assert!(first.is_some() && first < second, "{text}");
    assert!(text.contains("n: 1") && text.contains("Risk"), "{text}");
}

/// The link in the mail about a run.
fn link_of(house: &FlowServer, run: &Value) -> String {
    let row = house.stage.rows_of(&NOTIFICATIONS, id_of(&run["run_id"])).remove(0);
    house.server.url(&approval_link(&row).unwrap())
}

#[tokio::test]
async fn every_item_of_a_map_and_every_part_of_a_question_is_on_the_page() {
    let house = mailing().await;
    let air = workflow("many").map("m", json!("${inputs.list}"), "change", json!({"n": "${item}"})).in_parallel(4);
    let told = json!({"email": "ann@example.com"});
    let inputs = json!({"list": (0..30).collect::<Vec<_>>()});
    let run = house.run(&air, json!({"autonomy_level": "L1_Draft", "notify": told, "inputs": inputs})).await;
    let (_, text) = page(house.client.get(link_of(&house, &run)).send().await.unwrap()).await;
    assert!(text.contains("(30 calls)"), "{text}");
    assert!((0..30).all(|item| text.contains(&format!("m[{item}] calls change"))), "{text}");
    assert!(text.contains("<button class=\"primary\"") && text.contains("<button class=\"plain\""), "{text}");
    let ask = json!({"id": "ask", "type": "hitl", "prompt": "Pay <b>it</b>?", "show": {"to": "a\u{202e}b"}});
    let run = house.run(&workflow("asks").node(ask), json!({"autonomy_level": "L0_Ask", "notify": told})).await;
    let (_, text) = page(house.client.get(link_of(&house, &run)).send().await.unwrap()).await;
    assert!(text.contains("<blockquote>Pay &lt;b&gt;it&lt;/b&gt;?</blockquote>"), "{text}");
    assert!(text.contains("to: a\\u202eb") && !text.contains('\u{202e}'), "{text}");
}

#[tokio::test]
async fn what_is_no_answer_to_the_page_costs_nothing() {
    let (house, run, link) = waiting(&evil()).await;
    let digest = digest(&run);
    let long = format!("decision=approve&digest={digest}&reason={}", "x".repeat(9_000));
    let other = format!("decision=approve&digest={}", "00".repeat(32));
    for (form, expected, code) in [
        (other.as_str(), 409, "STALE_APPROVAL"),
        ("decision=approve&digest=zz", 400, "SCHEMA_INVALID"),
        ("decision=approve", 422, "VALIDATION_FAILED"),
        (&format!("decision=perhaps&digest={digest}"), 422, "VALIDATION_FAILED"),
        ("", 422, "VALIDATION_FAILED"),
        (&format!("decision=approve&digest={digest}&reason=%00"), 422, "VALIDATION_FAILED"),
        (&long, 413, "PAYLOAD_TOO_LARGE"),
    ] {
        let (status, text) = page(click(&house, &link, form).await).await;
        assert!(status == expected && text.contains(code), "{form}: {status} {text}");
    }
    let answer = house.client.post(&link).json(&json!({"decision": "approve"})).send().await.unwrap();
    assert_eq!(page(answer).await.0, 415);
    let (status, _) = page(click(&house, &link, &format!("decision=approve&digest={digest}")).await).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn a_link_that_nobody_sent_and_one_that_came_too_late_say_so() {
    let (house, run, link) = waiting(&evil()).await;
    let digest = digest(&run);
    for strange in ["/approvals/x", &format!("/approvals/{}", "A".repeat(43)), "/approvals/%00", "/approvals/%ff"] {
        let url = house.server.url(strange);
        let (status, text) = page(house.client.get(&url).send().await.unwrap()).await;
        assert!(status == 404 && text.contains("NOT_FOUND"), "{strange}: {status} {text}");
        let (status, _) = page(click(&house, &url, &format!("decision=approve&digest={digest}")).await).await;
        assert_eq!(status, 404, "{strange}");
    }
    let (status, _) = house.post(&path(&run, "/reject"), json!({})).await;
    assert_eq!(status, 200);
    let (status, text) = page(house.client.get(&link).send().await.unwrap()).await;
    assert!(status == 409 && text.contains("This request was denied by admin at "), "{text}");
}

#[tokio::test]
async fn whoever_receives_webhooks_can_read_the_key_that_signs_them() {
    let keys = vec!["whpk_one".to_owned(), "whpk_two".to_owned()];
    let house = furnished(setup().notifier(Arc::new(KeyNotifier(keys))), |edge| edge).await;
    let url = house.server.url("/.well-known/webhooks.json");
    let answer: Value = house.client.get(url).send().await.unwrap().json().await.unwrap();
    assert_eq!(answer, json!({"public_key": "whpk_one", "public_keys": ["whpk_one", "whpk_two"]}));
}

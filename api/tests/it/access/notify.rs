//! Whom a run may tell: nobody gets a message that its actor could not send by a tool.

use super::access_server::{AccessServer, entry, harmless, porch_with};
use chimera_core::access::tables::APPROVAL_LINKS;
use chimera_core::access::{ActorEntry, TenantSettings};
use chimera_core::flow::tables::{INBOX_MESSAGES, NOTIFICATIONS};
use chimera_core::limits::PAGE_BYTES_MAX;
use chimera_core::record::Row;
use chimera_testkit::access::settings;
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{TENANT, approval_link, id_of, workflow};
use reqwest::Method;
use serde_json::{Value, json};

/// An entry with an address.
fn told(id: &str, scopes: &[&str], notify: Value) -> ActorEntry {
    ActorEntry { notify: Some(notify), ..entry(id, scopes) }
}

/// A bot that may only summarize, a person who decides, and a tenant with a channel of its own.
async fn house(more: &[&str]) -> AccessServer {
    let scopes: Vec<&str> = ["local.summarize", "notion.notes.write"].iter().chain(more).copied().collect();
    let people = [
        told("service_bot", &scopes, json!({"webhook": "https://bot.acme.example/hook"})),
        told(
            "user_ann",
            &["approvals.decide"],
            json!({"email": "ann@acme.example", "webhook": "https://ann.example/"}),
        ),
        told("service_other", &[], json!({"email": "other@acme.example"})),
        ActorEntry { disabled: true, ..told("user_cat", &["approvals.decide"], json!({"email": "cat@acme.example"})) },
        entry("user_bob", &["runs.manage", "notion.*", "local.*"]),
        entry("admin", &["*"]),
    ];
    let mut settings = settings(TENANT, people.to_vec());
    let channel = Some(json!({"email": "ops@acme.example"}));
    settings.tenants.insert(
        TENANT.to_owned(),
        TenantSettings { domains: vec!["acme.example".to_owned()], notify: channel, ..TenantSettings::default() },
    );
    porch_with(settings, None).await
}

/// What is sent about a run, and what somebody finds in their inbox.
fn messages(porch: &AccessServer, run: &Value) -> Vec<Row> {
    let of = |table| porch.house.stage.rows_of(table, id_of(&run["run_id"]));
    of(&NOTIFICATIONS).into_iter().chain(of(&INBOX_MESSAGES)).collect()
}

#[tokio::test]
async fn who_may_only_summarize_sends_no_words_to_strangers() {
    let porch = house(&[]).await;
    for (channel, target, scope) in [
        ("email", "stranger@elsewhere.example", "email.send"),
        ("email", "ann@acme.example.evil.test", "email.send"),
        ("email", "other@acme.example", "email.send"),
        ("email", "cat@acme.example", "email.send"),
        ("webhook", "https://evil.test/collect", "http.request"),
        ("webhook", "https://ann.example/", "http.request"),
    ] {
        let ask = json!({"steps": harmless(), "notify": {channel: target}, "wait": 10});
        let refused = porch.act("service_bot", ask).await;
        let pointer = json!(format!("/notify/{channel}"));
        assert_eq!((refused.status, refused.code()), (403, "RBAC_FORBIDDEN"), "{target}: {refused:?}");
        assert_eq!((refused.detail("required_scope"), refused.detail("pointer")), (&json!(scope), &pointer));
    }
    assert_eq!(porch.traces(), (0, 0, 0));
    assert!(porch.house.stage.rows(&NOTIFICATIONS).is_empty());
}

/// An address may carry what lets somebody in.
#[tokio::test]
async fn the_refusal_of_a_stranger_repeats_no_more_than_the_host() {
    let porch = house(&[]).await;
    for (target, shown) in [
        ("https://carl:pw-93x@evil.test:8443/path-77k?token=tok-55z#frag-1", "https://evil.test:8443 is not"),
        ("http://evil.test/T0/B1/hook-41q", "http://evil.test is not"),
    ] {
        let refused = porch.act("service_bot", json!({"steps": harmless(), "notify": {"webhook": target}})).await;
        assert_eq!((refused.status, refused.code()), (403, "RBAC_FORBIDDEN"), "{refused:?}");
        let told = refused.body.to_string();
        assert!(told.contains(shown), "{told}");
        for part in ["carl", "pw-93x", "path-77k", "tok-55z", "frag-1", "hook-41q"] {
            assert!(!told.contains(part), "{part}: {told}");
        }
    }
}

#[tokio::test]
async fn registered_addresses_are_told_without_a_scope() {
    let porch = house(&[]).await;
    for (channel, target) in
        [("webhook", "https://bot.acme.example/hook"), ("email", "ops@acme.example"), ("email", "ann@acme.example")]
    {
        let ask = json!({"steps": harmless(), "notify": {channel: target}, "wait": 10});
        let answer = porch.act("service_bot", ask).await;
        assert_eq!(answer.status, 200, "{target}: {answer:?}");
        let rows = messages(&porch, &answer.body);
        let told: Vec<_> = rows.iter().map(|row| (row.text("channel"), row.text("target"))).collect();
        assert_eq!(told, [(channel, target)]);
    }
}

#[tokio::test]
async fn whoever_may_send_mail_or_requests_may_have_anybody_told() {
    let cases = [
        ("email.send", "email", "ann@acme.example.test"),
        ("http.request", "webhook", "https://x.test/y"),
        ("webhook.send", "webhook", "https://x.test/y"),
    ];
    for (scope, channel, target) in cases {
        let porch = house(&[scope]).await;
        let answer = porch.act("service_bot", json!({"steps": harmless(), "notify": {channel: target}})).await;
        assert_eq!(answer.status, 200, "{scope}: {answer:?}");
    }
}

#[tokio::test]
async fn naming_a_deciders_address_does_not_take_their_link() {
    let porch = house(&[]).await;
    let note = json!([{"tool": "notion.note", "input": {"n": 1}}]);
    for notify in [json!(null), json!({"email": "ann@acme.example"})] {
        let ask = json!({"steps": note, "autonomy_level": "L0_Ask", "notify": notify});
        let waiting = porch.act("service_bot", ask).await;
        assert_eq!(waiting.body["status"], "awaiting_approval", "{waiting:?}");
        let rows = messages(&porch, &waiting.body);
        let mail: Vec<&Row> = rows.iter().filter(|row| row.text("target") == "ann@acme.example").collect();
        assert_eq!(mail.len(), 1, "{notify}");
        assert!(approval_link(mail[0]).is_some(), "{notify}: {:?}", mail[0]);
        let links = porch.house.stage.rows_of(&APPROVAL_LINKS, id_of(&waiting.body["run_id"]));
        assert_eq!(links.iter().map(|row| row.text("actor")).collect::<Vec<_>>(), ["user_ann"], "{notify}");
    }
}

/// Whoever names the address of somebody else does not get a link there that decides in their own name.
#[tokio::test]
async fn the_link_in_a_mail_is_of_whoever_has_the_address() {
    let porch = house(&[]).await;
    let note = json!([{"tool": "notion.note", "input": {"n": 1}}]);
    let ask = json!({"steps": note, "autonomy_level": "L0_Ask", "notify": {"email": "ann@acme.example"}});
    let waiting = porch.act("user_bob", ask).await;
    assert_eq!(waiting.body["status"], "awaiting_approval", "{waiting:?}");
    let links = porch.house.stage.rows_of(&APPROVAL_LINKS, id_of(&waiting.body["run_id"]));
    assert_eq!(links.iter().map(|row| row.text("actor")).collect::<Vec<_>>(), ["user_ann"]);
}

#[tokio::test]
async fn a_link_opens_nothing_for_somebody_who_may_not_decide_any_more() {
    let porch = house(&[]).await;
    let note = json!([{"tool": "notion.note", "input": {"n": 1}}]);
    let waiting = porch.act("service_bot", json!({"steps": note, "autonomy_level": "L0_Ask"})).await;
    let rows = messages(&porch, &waiting.body);
    let mail = rows.iter().find(|row| row.text("target") == "ann@acme.example").unwrap();
    let link = approval_link(mail).unwrap();
    let url = porch.house.server.url(&format!("/approvals/{}", link.rsplit('/').next().unwrap()));
    let opened = async || porch.house.client.get(&url).send().await.unwrap().status().as_u16();
    assert_eq!(opened().await, 200);
    let with = |mail: &str| json!({"scopes": [], "notify": {"email": mail}});
    assert_eq!(porch.ask("admin", Method::PUT, "/actors/user_ann", with("ann@acme.example")).await.status, 200);
    assert_eq!(opened().await, 403);
    assert_eq!(porch.ask("admin", Method::PUT, "/actors/user_ann", with("ann2@acme.example")).await.status, 200);
    assert_eq!(opened().await, 410, "the link went to an address that is not theirs any more");
}

/// Having another's run done again is no way to write to whom only they may write.
#[tokio::test]
async fn whoever_has_a_run_done_again_tells_only_whom_they_may_tell() {
    let porch = house(&["email.send"]).await;
    let ask = json!({"steps": harmless(), "notify": {"email": "team@acme.example"}, "wait": 10});
    let first = porch.act("service_bot", ask).await;
    assert_eq!(first.body["status"], "completed", "{first:?}");
    assert_eq!(messages(&porch, &first.body)[0].text("target"), "team@acme.example");
    let again = porch.ask("user_bob", Method::POST, &crate::flow::path(&first.body, "/retry"), json!({})).await;
    assert_eq!(again.status / 100, 2, "{again:?}");
    porch.house.until(&again.body, "awaiting_approval").await;
    let rows = messages(&porch, &again.body);
    assert!(rows.iter().all(|row| row.text("target") != "team@acme.example"), "{again:?}");
    let inbox = porch.get("user_bob", "/inbox").await;
    assert_eq!(inbox.body["items"][0]["run_id"], again.body["run_id"], "whoever asked is told: {inbox:?}");
}

/// CORE-036
#[tokio::test]
async fn deletions_and_messages_to_outsiders_wait_for_a_person_whoever_asks() {
    let porch = house(&[]).await;
    let one = |tool: &str, input: Value| json!([{"tool": tool, "input": input}]);
    for (steps, because) in [
        (one("http.request", json!({"method": "DELETE", "url": "https://api.acme.example/1"})), "deletes"),
        (one("webhook_send", json!({"url": "https://hooks.elsewhere.example/"})), "message_to_outsiders"),
        (one("webhook_send", json!({})), "message_to_outsiders"),
    ] {
        for forced in [None, Some("L3_ExecuteSilent")] {
            let asked = porch.act("admin", json!({"steps": steps, "autonomy_level": forced})).await;
            assert_eq!(asked.body["autonomy_level"], "L1_Draft", "{steps}: {asked:?}");
            assert_eq!(asked.body["risk"]["level_because"], because, "{asked:?}");
        }
    }
    let inside = one("webhook_send", json!({"url": "https://hooks.acme.example/"}));
    let made = one("http.request", json!({"method": "POST", "url": "https://api.acme.example/1"}));
    for steps in [inside, made] {
        let begun = porch.act("admin", json!({"steps": steps})).await;
        assert_eq!(begun.body["autonomy_level"], "L3_ExecuteSilent", "{begun:?}");
    }
    let told =
        json!({"steps": harmless(), "autonomy_level": "L2_ExecuteNotify", "notify": {"email": "x@elsewhere.example"}});
    let asked = porch.act("admin", told).await;
    assert_eq!(
        asked.body["risk"]["level_because"], "message_to_outsiders",
        "what a run tells is a message too: {asked:?}"
    );
}

/// CORE-026, CORE-027
#[tokio::test]
async fn at_l2_somebody_is_told_though_nobody_is_named() {
    let porch = house(&[]).await;
    let forbidden =
        json!([{"tool": "local.summarize", "input": {"text": "x"}}, {"tool": "local.forbidden", "input": {}}]);
    let refused = porch.act("service_bot", json!({"steps": forbidden, "wait": 10})).await;
    assert_eq!((refused.status, refused.code()), (403, "POLICY_DENIED"), "the guard comes first: {refused:?}");
    assert_eq!(porch.traces(), (0, 0, 0), "and nothing ran");
    let told = async |actor: &str| {
        let run =
            porch.act(actor, json!({"steps": harmless(), "autonomy_level": "L2_ExecuteNotify", "wait": 10})).await;
        assert_eq!(run.body["status"], "completed", "{run:?}");
        let rows = messages(&porch, &run.body);
        rows.iter().map(|row| (row.text("channel").to_owned(), row.text("target").to_owned())).collect::<Vec<_>>()
    };
    let one = |channel: &str, target: &str| vec![(channel.to_owned(), target.to_owned())];
    assert_eq!(told("service_bot").await, one("webhook", "https://bot.acme.example/hook"), "the actor's own channel");
    assert_eq!(told("n8n_workflow_1").await, one("email", "ops@acme.example"), "the tenant's default channel");
    let bare = super::access_server::porch().await;
    let run = bare.act("n8n_workflow_1", json!({"steps": harmless(), "wait": 10})).await;
    let inbox = bare.get("n8n_workflow_1", "/inbox").await;
    assert_eq!((inbox.status, inbox.body["items"].as_array().map(Vec::len)), (200, Some(1)), "{inbox:?}");
    let item = &inbox.body["items"][0];
    assert_eq!((&item["type"], &item["run_id"]), (&json!("run.completed"), &run.body["run_id"]));
    assert_eq!(item["data"]["result"], run.body["result"]);
    assert_eq!(bare.get("n8n_workflow_123", "/inbox").await.body["items"], json!([]), "an inbox is its actor's own");
}

/// The end of a run is shown from the run, so a page ends by what it shows and not by its rows.
#[tokio::test]
async fn a_page_of_the_inbox_ends_before_it_shows_too_much() {
    let porch = super::access_server::porch().await;
    let text = "One. ".repeat(120_000);
    let runs = PAGE_BYTES_MAX / text.len() + 3;
    for _ in 0..runs {
        let steps = json!([{"tool": "local.summarize", "input": {"text": text}}]);
        let run = porch.act("n8n_workflow_1", json!({"steps": steps, "wait": 10})).await;
        assert_eq!(run.body["status"], "completed", "{}", run.status);
    }
    let first = porch.get("n8n_workflow_1", "/inbox?limit=1000").await.body;
    let shown = first["items"].as_array().unwrap();
    assert!(shown[0]["data"]["result"].to_string().len() >= text.len(), "the tool gives the text back");
    assert!(!shown.is_empty() && first.to_string().len() <= PAGE_BYTES_MAX + 100_000, "{} items", shown.len());
    let cursor = first["next_cursor"].as_str().expect("there is more");
    let rest = porch.get("n8n_workflow_1", &format!("/inbox?limit=1000&cursor={cursor}")).await.body;
    assert_eq!(shown.len() + rest["items"].as_array().unwrap().len(), runs);
}

/// Whoever waits for a person has been let do nothing yet, and telling somebody outside what it would do is doing something.
#[tokio::test]
async fn an_outsider_hears_nothing_of_what_a_run_would_do_before_somebody_decides() {
    let porch = house(&["http.request", "email.send"]).await;
    for (channel, target) in [("webhook", "https://evil.test/collect"), ("email", "mallory@evil.test")] {
        for level in ["L0_Ask", "L1_Draft"] {
            let steps = json!([{"tool": "local.summarize", "input": {"text": "word-kept-inside"}}]);
            let ask = json!({"steps": steps, "autonomy_level": level, "notify": {channel: target}});
            let waiting = porch.act("service_bot", ask).await;
            assert_eq!(waiting.body["status"], "awaiting_approval", "{waiting:?}");
            let rows = messages(&porch, &waiting.body);
            let sent = |to: &str| {
                let row = rows.iter().find(|row| row.text("target") == to).expect("somebody is told");
                row.get("payload").as_json().unwrap().value().unwrap()
            };
            let (outside, decides) = (sent(target), sent("ann@acme.example"));
            assert!(!outside.to_string().contains("word-kept-inside"), "{level}: {outside}");
            assert_eq!((&outside["type"], &outside["data"]["withheld"]), (&json!("approval.requested"), &json!(true)));
            assert!(decides.to_string().contains("word-kept-inside"), "{level}: {decides}");
            let told = decides["data"]["review"]["notifies"].to_string();
            assert!(told.contains(target), "who decides sees where the result goes: {told}");
        }
    }
}

#[tokio::test]
async fn who_decides_and_has_no_address_finds_the_request_in_the_inbox() {
    let porch = super::access_server::porch().await;
    let note = json!([{"tool": "notion.note", "input": {"n": 1}}]);
    let waiting = porch.act("n8n_workflow_1", json!({"steps": note, "autonomy_level": "L1_Draft"})).await;
    let inbox = porch.get("admin", "/inbox").await.body;
    assert_eq!(inbox["items"][0]["type"], "approval.requested", "{inbox}");
    assert_eq!(inbox["items"][0]["run_id"], waiting.body["run_id"]);
}

#[tokio::test]
async fn who_decides_by_a_pattern_and_has_a_key_finds_the_request_in_the_inbox() {
    let pattern = ActorEntry { level: None, ..entry("team_*", &["approvals.decide"]) };
    let pattern = ActorEntry { kind: chimera_core::access::Kind::Human, ..pattern };
    let bots = entry("service_bot", &["notion.*"]);
    let porch = porch_with(settings(TENANT, vec![pattern, bots]), None).await;
    let key = |of: &str| format!("/actors/{of}/keys");
    let made = porch.ask("admin", Method::POST, &key("team_ada"), json!({})).await;
    assert_eq!(made.status, 201, "{made:?}");
    let note = json!([{"tool": "notion.note", "input": {"n": 1}}]);
    let waiting = porch.act("service_bot", json!({"steps": note, "autonomy_level": "L1_Draft"})).await;
    let rows = messages(&porch, &waiting.body);
    let told: Vec<_> = rows.iter().filter(|row| format!("{row:?}").contains("team_ada")).collect();
    assert_eq!(told.len(), 1, "{rows:?}");
    assert!(!rows.iter().any(|row| format!("{row:?}").contains("team_*")), "a pattern is nobody: {rows:?}");
}

#[tokio::test]
async fn the_links_of_whoever_is_removed_end() {
    let porch = house(&[]).await;
    let own = json!({"scopes": ["notion.*", "approvals.decide"], "notify": {"email": "zed@acme.example"}});
    assert_eq!(porch.ask("admin", Method::PUT, "/actors/user_zed", own).await.status, 200);
    let note = json!([{"tool": "notion.note", "input": {"n": 1}}]);
    let waiting = porch.act("service_bot", json!({"steps": note, "autonomy_level": "L0_Ask"})).await;
    let rows = messages(&porch, &waiting.body);
    let link = approval_link(rows.iter().find(|row| row.text("target") == "zed@acme.example").unwrap()).unwrap();
    let url = porch.house.server.url(&format!("/approvals/{}", link.rsplit('/').next().unwrap()));
    let opened = async || porch.house.client.get(&url).send().await.unwrap().status().as_u16();
    assert_eq!(opened().await, 200);
    assert_eq!(porch.ask("admin", Method::DELETE, "/actors/user_zed", Value::Null).await.status, 200);
    assert_eq!(opened().await, 410);
    let digest = porch.get("admin", &crate::flow::path(&waiting.body, "")).await.body["approvals"][0]["digest"].clone();
    let form = format!("decision=approve&digest={}", digest.as_str().unwrap());
    let post = porch.house.client.post(&url).header("content-type", "application/x-www-form-urlencoded").body(form);
    assert_eq!(post.send().await.unwrap().status().as_u16(), 410);
}

/// Whoever asked may not decide, so those who may are told, each with a link of their own.
#[tokio::test]
async fn who_decides_is_told_when_somebody_else_than_a_person_who_asked_must_decide() {
    for approvers in [json!([]), json!(["user_ann", "user_dan"])] {
        let porch = house(&[]).await;
        let dan = json!({"scopes": ["approvals.decide"]});
        assert_eq!(porch.ask("admin", Method::PUT, "/actors/user_dan", dan).await.status, 200);
        let demanded = json!({"other_than_requester": true, "approvers": approvers});
        let air = workflow("strict").node(json!({
            "id": "a", "type": "function", "fn": "notion.note", "inputs": {"n": 1}, "requires_approval": demanded,
        }));
        // Whoever wrote the workflow may not decide either.
        porch.house.stage.apply_as("user_eve", &air).await;
        let waiting = porch.act("user_bob", json!({"workflow_id": "strict", "inputs": {}})).await;
        assert_eq!(waiting.body["status"], "awaiting_approval", "{waiting:?}");
        let rows = messages(&porch, &waiting.body);
        let mail = rows.iter().find(|row| row.text("target") == "ann@acme.example");
        assert!(mail.and_then(approval_link).is_some(), "{approvers}: {rows:?}");
        let dans = porch.get("user_dan", "/inbox").await;
        assert_eq!(dans.body["items"][0]["run_id"], waiting.body["run_id"], "{approvers}: {dans:?}");
        let admins = porch.get("admin", "/inbox").await.body["items"].as_array().map(Vec::len);
        assert_eq!(admins, Some(usize::from(approvers == json!([]))), "{approvers}: only who may decide is told");
    }
}

/// What they may decide themselves disturbs nobody else.
#[tokio::test]
async fn who_decides_about_their_own_run_disturbs_nobody() {
    let porch = house(&[]).await;
    let note = json!([{"tool": "notion.note", "input": {"n": 1}}]);
    let waiting = porch.act("user_bob", json!({"steps": note, "autonomy_level": "L0_Ask"})).await;
    assert_eq!(waiting.body["status"], "awaiting_approval", "{waiting:?}");
    let rows = messages(&porch, &waiting.body);
    assert!(rows.iter().all(|row| row.text("target") != "ann@acme.example"), "{rows:?}");
}

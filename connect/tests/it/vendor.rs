//! The bundled vendors against servers that check what they are sent.

use crate::server::{FixedSecrets, ReceivedRequest, Reply, Server, call, call_as, ctx, gist, local, toolbox};
use chimera_connect::flow::{ToolDependencies, http_tools, vendor};
use chimera_core::access::scope;
use chimera_core::tool::{EffectKind, Metadata, Risk};
use chimera_engine::flow::ToolRegistry;
use chimera_engine::flow::port::{CheckResult, CompletedCall, Sent, Tool};
use chimera_testkit::build::NOON;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

const SECRETS: &[(&str, &str)] = &[
    ("notion", "ntn_secret-of-notion"),
    ("github", "ghp_secret-of-github"),
    ("google", "ya29.secret-of-google"),
    ("outlook", "eyJ.secret-of-outlook"),
];
const VENDORS: &[&str] = &["notion", "github", "google", "outlook"];

fn tool(name: &str, server: &Server) -> Arc<dyn Tool> {
    let tools = http_tools(&toolbox(SECRETS, VENDORS, server)).unwrap();
    tools.into_iter().find(|tool| tool.spec().name == name).unwrap()
}

async fn nobody() -> Server {
    Server::start(|_| Reply::status(500)).await
}

fn metadata(requires_approval: bool, idempotent: bool, capabilities: &[&str], risk_level: Risk) -> Metadata {
    let capabilities = capabilities.iter().map(|name| (*name).to_owned()).collect();
    Metadata { requires_approval, dry_run_supported: true, idempotent, capabilities, risk_level }
}

/// CORE-062, CORE-078, CORE-087, CORE-088
#[tokio::test]
async fn every_vendor_has_the_metadata_of_the_document() {
    let server = nobody().await;
    for (name, effect, expected) in [
        ("notion.search", EffectKind::Read, metadata(false, true, &["notion.pages.read", "notion.search"], Risk::Low)),
        (
            "notion.create_page",
            EffectKind::Write,
            metadata(true, false, &["notion.pages.create", "notion.write"], Risk::Medium),
        ),
        ("github.repos.read", EffectKind::Read, metadata(false, true, &["github.repos.read"], Risk::Low)),
        ("github.issues.list", EffectKind::Read, metadata(false, true, &["github.issues.read"], Risk::Low)),
        (
            "github.issues.create",
            EffectKind::Write,
            metadata(true, false, &["github.issues.create", "github.write"], Risk::Medium),
        ),
        ("google.drive.search", EffectKind::Read, metadata(false, true, &["google.drive.read"], Risk::Low)),
        ("outlook.send", EffectKind::Write, metadata(true, false, &["outlook.send", "external_api"], Risk::High)),
    ] {
        let tool = tool(name, &server);
        assert_eq!((tool.spec().effect, &tool.spec().metadata), (effect, &expected), "{name}");
    }
    for (name, reversible, checkable) in
        [("notion.create_page", true, false), ("github.issues.create", true, true), ("outlook.send", false, false)]
    {
        let tool = tool(name, &server);
        assert_eq!((tool.spec().is_reversible(), tool.spec().checkable), (reversible, checkable), "{name}");
    }
}

/// CORE-064
/// Every grant that the document gives as an example reaches the tools that it speaks of, and no others.
///
/// CORE-002, CORE-007, CORE-008, CORE-077, CORE-078, CORE-087, CORE-088
#[tokio::test]
async fn the_grants_of_the_documents_examples_reach_the_tools_they_speak_of() {
    let server = nobody().await;
    let tools = http_tools(&toolbox(SECRETS, VENDORS, &server)).unwrap();
    let reached = |scopes: &[&str]| -> Vec<String> {
        let may = |tool: &&Arc<dyn Tool>| scope::missing(scopes, tool.spec(), false).is_none();
        let mut names: Vec<String> = tools.iter().filter(may).map(|tool| tool.spec().name.clone()).collect();
        names.sort_unstable();
        names
    };
    let github_reads = ["github.issues.list", "github.repos.read"];
    for (scopes, expected) in [
        // §1, the definition of an actor.
        (vec!["notion.read", "github.write", "local.summarize"], vec!["github.issues.create", "notion.search"]),
        // §1, the registry.
        (
            vec!["notion.*", "google.*", "github.read", "outlook.send"],
            [&github_reads[..], &["google.drive.search", "notion.create_page", "notion.search", "outlook.send"]]
                .concat(),
        ),
        (vec!["local.summarize", "github.read", "notion.read"], [&github_reads[..], &["notion.search"]].concat()),
        (vec![], vec![]),
        // §5, the taxonomy, and what its tools declare.
        (vec!["notion.pages.read"], vec!["notion.search"]),
        (vec!["notion.pages.create"], vec!["notion.create_page"]),
        (vec!["notion.write"], vec!["notion.create_page"]),
        (vec!["github.repos.read"], vec!["github.repos.read"]),
        (vec!["github.issues.create"], vec!["github.issues.create"]),
        // §7, the claims of a token.
        (vec!["notion.*", "github.read"], [&github_reads[..], &["notion.create_page", "notion.search"]].concat()),
    ] {
        assert_eq!(reached(&scopes), expected, "{scopes:?}");
    }
    assert_eq!(reached(&["*"]).len(), tools.len());
    for tool in &tools {
        let dotted = tool.spec().metadata.capabilities.iter().filter(|name| name.contains('.'));
        for name in dotted {
            let parts: Vec<&str> = name.split('.').collect();
            assert!((2..=3).contains(&parts.len()) && scope::is_well_formed(name), "{name}");
            assert!(tool.spec().name.starts_with(parts[0]), "{name} begins with its adapter");
        }
    }
}

#[tokio::test]
async fn every_tool_takes_dry_run_and_has_a_name_of_its_own() {
    let server = nobody().await;
    let mut registry = ToolRegistry::default();
    for tool in http_tools(&toolbox(SECRETS, VENDORS, &server)).unwrap() {
        assert_eq!(tool.spec().input.document()["properties"]["dry_run"]["type"], "boolean", "{}", tool.spec().name);
        registry.add(tool).unwrap();
    }
    assert_eq!(registry.specs().len(), 10);
}

fn example(name: &str) -> Value {
    match name {
        "notion.search" => json!({"query": "Plan", "object": "page", "limit": 3}),
        "notion.create_page" => {
            json!({"title": "Summary", "parent_page_id": "p-1", "paragraphs": ["One.", "Two."]})
        }
        "github.repos.read" => json!({"owner": "acme", "repo": "rocket"}),
        "github.issues.list" => json!({"owner": "acme", "repo": "rocket", "labels": "bug,ui"}),
        "github.issues.create" => json!({"owner": "acme", "repo": "rocket", "title": "Leak", "labels": ["bug"]}),
        "google.drive.search" => json!({"text": "it's a \\ plan"}),
        _ => {
            json!({"to": ["a@example.com", "b@example.com"], "cc": ["c@example.com"], "subject": "Hi", "body": "Hello"})
        }
    }
}

/// CORE-066, CORE-068, CORE-070
#[tokio::test]
async fn a_dry_run_of_any_vendor_calls_nobody_and_gives_an_output_of_the_right_shape() {
    let server = nobody().await;
    let tools = http_tools(&toolbox(&[], VENDORS, &server)).unwrap();
    for tool in tools.iter().skip(3) {
        let mut input = example(&tool.spec().name);
        input["dry_run"] = true.into();
        let output = call(tool.as_ref(), input.clone()).await.unwrap();
        assert_eq!(output["warning"], "This is a simulated response; no real action taken");
        assert_eq!(tool.spec().output.check(&output["simulated_output"]), Ok(()), "{}", tool.spec().name);
        input["surprise"] = true.into();
        assert!(tool.spec().input.check(&input).is_err(), "{}", tool.spec().name);
    }
    let create = tool("notion.create_page", &server);
    let input = json!({"title": "Summary", "parent_page_id": "p", "dry_run": true});
    let would = call(create.as_ref(), input).await.unwrap()["would_execute"].as_str().unwrap().to_owned();
    assert!(would.starts_with("POST /v1/pages with {") && would.contains("Summary"), "{would}");
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn notion_is_searched_page_by_page() {
    let server = Server::start(|seen| {
        let page = |id: &str| {
            json!({"object": "page", "id": id, "url": format!("https://notion.so/{id}"),
            "properties": {"Due": {"type": "date"}, "Name": {"title": [{"plain_text": format!("Plan {id}")}]}}})
        };
        let first = seen.len() == 1;
        let results = if first { vec![page("a"), page("b")] } else { vec![page("c"), page("d")] };
        let next = if first { json!("cursor-2") } else { Value::Null };
        Reply::json(200, &json!({"object": "list", "results": results, "has_more": first, "next_cursor": next}))
    })
    .await;
    let output = call(tool("notion.search", &server).as_ref(), example("notion.search")).await.unwrap();
    let titles: Vec<&str> =
        output["results"].as_array().unwrap().iter().map(|p| p["title"].as_str().unwrap()).collect();
    assert_eq!((titles, &output["has_more"]), (vec!["Plan a", "Plan b", "Plan c"], &json!(true)));
    let seen = server.seen();
    assert_eq!(server.lines(), ["POST /v1/search", "POST /v1/search"]);
    assert_eq!(seen[0].header("authorization"), "Bearer ntn_secret-of-notion");
    assert_eq!(seen[0].header("notion-version"), "2022-06-28");
    assert_eq!(seen[0].header("content-type"), "application/json");
    // With a key, a vendor that honours it would answer the second page with the first.
    assert!(seen.iter().all(|seen| seen.header("idempotency-key").is_empty()));
    let filter = json!({"property": "object", "value": "page"});
    assert_eq!(seen[0].json(), json!({"query": "Plan", "page_size": 100, "filter": filter}));
    let second = json!({"query": "Plan", "page_size": 100, "filter": filter, "start_cursor": "cursor-2"});
    assert_eq!(seen[1].json(), second);
}

/// CORE-134, CORE-136
#[tokio::test]
async fn a_notion_page_is_created_and_undone_by_archiving_it() {
    let server = Server::start(|seen| match seen.last().unwrap().method.as_str() {
        "PATCH" if seen.len() > 2 => Reply::json(404, &json!({"object": "error", "message": "gone"})),
        _ => Reply::json(200, &json!({"object": "page", "id": "59833787", "url": "https://notion.so/59833787"})),
    })
    .await;
    let tool = tool("notion.create_page", &server);
    let input = example("notion.create_page");
    let output = call(tool.as_ref(), input.clone()).await.unwrap();
    assert_eq!(output, json!({"page_id": "59833787", "url": "https://notion.so/59833787"}));
    let paragraph = |text: &str| {
        json!({"object": "block", "type": "paragraph",
            "paragraph": {"rich_text": [{"type": "text", "text": {"content": text}}]}})
    };
    let created = json!({
        "parent": {"page_id": "p-1"},
        "properties": {"title": {"title": [{"type": "text", "text": {"content": "Summary"}}]}},
        "children": [paragraph("One."), paragraph("Two.")],
    });
    assert_eq!(server.seen()[0].json(), created);
    assert_eq!(server.seen()[0].header("idempotency-key"), "key-3");

    let done = CompletedCall { input, output };
    assert_eq!(tool.rollback(&ctx(), &done).await.unwrap(), json!({"rolled_back": true, "status": 200}));
    assert_eq!(server.seen()[1].line(), "PATCH /v1/pages/59833787");
    assert_eq!(server.seen()[1].json(), json!({"archived": true}));
    assert_eq!(server.seen()[1].header("notion-version"), "2022-06-28");
    assert_eq!(tool.rollback(&ctx(), &done).await.unwrap()["was_gone"], true);
}

#[tokio::test]
async fn a_busy_vendor_says_when_to_come_back_in_its_own_way() {
    let limited = async |name: &str, reply: fn() -> Reply| {
        let server = Server::start(move |_| reply()).await;
        let error = call(tool(name, &server).as_ref(), example(name)).await.unwrap_err();
        assert_eq!(gist(&error), ("RATE_LIMITED", true, Sent::No), "{name}");
        error.body.retry_after_seconds
    };
    assert_eq!(limited("notion.create_page", || Reply::status(429).with("retry-after", "5")).await, Some(5));
    assert_eq!(limited("outlook.send", || Reply::status(429).with("retry-after", "120")).await, Some(120));
    let reset = || {
        let at = (NOON.micros() / 1_000_000 + 40).to_string();
        Reply::status(403).with("x-ratelimit-remaining", "0").with("x-ratelimit-reset", at)
    };
    assert_eq!(limited("github.issues.create", reset).await, Some(40));
    assert_eq!(limited("github.issues.list", || Reply::status(403).with("retry-after", "60")).await, Some(60));
    let google = || Reply::json(403, &json!({"error": {"errors": [{"reason": "userRateLimitExceeded"}]}}));
    assert_eq!(limited("google.drive.search", google).await, None);

    let server = Server::start(|_| Reply::json(403, &json!({"message": "Resource not accessible"}))).await;
    let error =
        call(tool("github.issues.create", &server).as_ref(), example("github.issues.create")).await.unwrap_err();
    assert_eq!(gist(&error), ("EXTERNAL_SERVICE_ERROR", false, Sent::No));
    assert!(error.body.message.ends_with("answered 403: Resource not accessible"), "{}", error.body.message);
}

#[tokio::test]
async fn a_repository_is_read() {
    let server = Server::with_answer(
        200,
        json!({"full_name": "acme/rocket", "private": true, "default_branch": "main",
        "description": null, "stargazers_count": 5, "id": 9_007_199_254_740_993_u64}),
    )
    .await;
    let output = call(tool("github.repos.read", &server).as_ref(), example("github.repos.read")).await.unwrap();
    assert_eq!(output, json!({"full_name": "acme/rocket", "private": true, "default_branch": "main", "stars": 5}));
    let seen = &server.seen()[0];
    assert_eq!(seen.line(), "GET /repos/acme/rocket");
    assert_eq!(seen.header("authorization"), "Bearer ghp_secret-of-github");
    assert_eq!(seen.header("accept"), "application/vnd.github+json");
    assert_eq!(seen.header("x-github-api-version"), "2022-11-28");
    assert!(seen.header("user-agent").starts_with("chimera/"));
    for repo in ["..", ".", "a/../../user", "x?y=1", "%2e%2e"] {
        let outcome = call(tool("github.repos.read", &server).as_ref(), json!({"owner": "acme", "repo": repo})).await;
        match outcome {
            Err(error) => assert_eq!(error.body.code, "MALFORMED_ARGS", "{repo}"),
            Ok(_) => assert!(server.seen().last().unwrap().target.starts_with("/repos/acme/"), "{repo}"),
        }
    }
    assert_eq!(
        server.lines()[1..],
        ["GET /repos/acme/a%2F..%2F..%2Fuser", "GET /repos/acme/x%3Fy%3D1", "GET /repos/acme/%252e%252e"]
    );
}

fn issues(numbers: std::ops::Range<u64>) -> Value {
    numbers.map(|number| json!({"number": number, "title": format!("t{number}"), "state": "open", "labels": [{"name": "bug"}]})).collect()
}

#[tokio::test]
async fn issues_are_listed_along_the_link_header() {
    let server = Server::start(|seen| {
        let base = format!("http://{}", seen[0].header("host"));
        match seen.len() {
            1 => Reply::json(200, &issues(0..100))
                .with("link", format!("<{base}/repositories/1/issues?page=2>; rel=\"next\"")),
            2 => Reply::json(200, &issues(100..103)).with("link", format!("<{base}/x?page=1>; rel=\"prev\"")),
            _ => Reply::status(500),
        }
    })
    .await;
    let mut input = example("github.issues.list");
    input["limit"] = 1000.into();
    let output = call(tool("github.issues.list", &server).as_ref(), input).await.unwrap();
    assert_eq!((output["issues"].as_array().unwrap().len(), &output["has_more"]), (103, &json!(false)));
    assert_eq!(output["issues"][102], json!({"number": 102, "title": "t102", "state": "open", "labels": ["bug"]}));
    assert_eq!(
        server.lines(),
        ["GET /repos/acme/rocket/issues?labels=bug%2Cui&per_page=100&state=open", "GET /repositories/1/issues?page=2"]
    );
    assert_eq!(server.seen()[1].header("authorization"), "Bearer ghp_secret-of-github");
}

#[tokio::test]
async fn a_next_page_on_another_server_gets_no_credentials() {
    let other = Server::with_answer(200, json!([])).await;
    let link = format!("<{}>; rel=\"next\"", other.url("/steal"));
    let server = Server::start(move |_| Reply::json(200, &issues(0..1)).with("link", link.clone())).await;
    let error = call(tool("github.issues.list", &server).as_ref(), example("github.issues.list")).await.unwrap_err();
    assert_eq!(gist(&error), ("EXTERNAL_SERVICE_ERROR", false, Sent::No));
    assert!(other.seen().is_empty());
}

const MARK: &str = "<!-- chimera-effect:00000000-0000-0000-0000-000000000003 -->";

#[tokio::test]
async fn an_issue_is_opened_and_undone_by_closing_it() {
    let created = json!({"number": 42, "html_url": "https://github.com/acme/rocket/issues/42", "state": "open"});
    let server = Server::with_answer(201, created).await;
    let tool = tool("github.issues.create", &server);
    let input = example("github.issues.create");
    let output = call(tool.as_ref(), input.clone()).await.unwrap();
    assert_eq!(output["number"], 42);
    assert_eq!(server.seen()[0].line(), "POST /repos/acme/rocket/issues");
    assert_eq!(server.seen()[0].json(), json!({"title": "Leak", "body": format!("\n\n{MARK}"), "labels": ["bug"]}));
    tool.rollback(&ctx(), &CompletedCall { input, output }).await.unwrap();
    assert_eq!(server.seen()[1].line(), "PATCH /repos/acme/rocket/issues/42");
    assert_eq!(server.seen()[1].json(), json!({"state": "closed", "state_reason": "not_planned"}));
}

/// The issue tool, with a shorter `never_after_ms`.
fn patient(server: &Server, toolbox: &ToolDependencies) -> impl Tool {
    let text = vendor::file("github").unwrap().replace("never_after_ms = 12000", "never_after_ms = 1");
    assert!(text.contains("never_after_ms = 1\n"));
    let tools = chimera_connect::flow::declared::tools(&text, &server.url(""), toolbox).unwrap();
    tools.into_iter().find(|tool| tool.spec().name == "github.issues.create").unwrap()
}

#[tokio::test]
async fn an_issue_whose_answer_was_lost_is_found_by_its_mark() {
    let server = Server::start(|seen| match seen {
        [post] if post.method == "POST" => Reply::Cut,
        _ => {
            let lost = json!({"number": 7, "html_url": "u", "state": "open", "body": format!("text\n\n{MARK}")});
            Reply::json(200, &json!([{"number": 8, "body": null}, lost]))
        }
    })
    .await;
    let tool = tool("github.issues.create", &server);
    let mut ctx = ctx();
    // A time-ordered id of 2026-02-06T12:00:00Z.
    ctx.run_id = Uuid::from_u128((1_770_379_200_000_u128 << 80) | (7 << 76) | (2 << 62));
    let lost = call_as(tool.as_ref(), &ctx, example("github.issues.create")).await.unwrap_err();
    assert_eq!(lost.sent, Sent::Maybe);
    let found = tool.check(&ctx, &example("github.issues.create")).await.unwrap();
    assert_eq!(found, CheckResult::Happened(json!({"number": 7, "url": "u", "state": "open"})));
    let asked = "GET /repos/acme/rocket/issues?direction=desc&per_page=100&since=2026-02-06T11%3A55%3A00Z&sort=created&state=all";
    assert_eq!(server.lines()[1], asked);
}

#[tokio::test]
async fn an_issue_that_is_not_there_after_a_while_never_was() {
    let server = Server::start(|seen| match seen.len() {
        1 | 3 => Reply::json(200, &issues(0..2)).with("link", "</second>; rel=\"next\""),
        _ => Reply::json(200, &json!([])),
    })
    .await;
    let toolbox = toolbox(SECRETS, VENDORS, &server);
    let found = patient(&server, &toolbox).check(&ctx(), &example("github.issues.create")).await.unwrap();
    assert_eq!((found, server.seen().len()), (CheckResult::DidNotHappen, 4));
    let mut hurried = ctx();
    hurried.time_left = std::time::Duration::from_secs(5);
    let tool = tool("github.issues.create", &server);
    assert_eq!(tool.check(&hurried, &example("github.issues.create")).await.unwrap(), CheckResult::Unknown);
}

/// CORE-062, CORE-135, CORE-136
#[tokio::test]
async fn a_mail_whose_answer_is_an_error_is_not_sent_a_second_time() {
    for status in [500, 503] {
        let server = Server::start(move |_| Reply::status(status)).await;
        let tool = tool("outlook.send", &server);
        let error = call(tool.as_ref(), example("outlook.send")).await.unwrap_err();
        assert_eq!((server.seen().len(), error.sent), (1, Sent::Maybe), "{status}: {error:?}");
    }
}

/// CORE-062, CORE-135, CORE-136
#[tokio::test]
async fn a_mail_is_handed_to_graph_as_it_asks_for() {
    let server = Server::start(|_| Reply::status(202).with("request-id", "r-9")).await;
    let tool = tool("outlook.send", &server);
    assert!(tool.spec().effect == EffectKind::Write && !tool.spec().metadata.idempotent);
    let output = call(tool.as_ref(), example("outlook.send")).await.unwrap();
    assert_eq!(output, json!({"accepted": true, "request_id": "r-9"}));
    let seen = &server.seen()[0];
    assert_eq!(seen.line(), "POST /v1.0/me/sendMail");
    assert_eq!(seen.header("authorization"), "Bearer eyJ.secret-of-outlook");
    assert_eq!(seen.header("client-request-id"), ctx().effect_id.to_string());
    let to = |address: &str| json!({"emailAddress": {"address": address}});
    let message = json!({
        "subject": "Hi", "body": {"contentType": "Text", "content": "Hello"},
        "toRecipients": [to("a@example.com"), to("b@example.com")], "ccRecipients": [to("c@example.com")],
    });
    assert_eq!(seen.json(), json!({"message": message, "saveToSentItems": true}));
    let input = json!({"to": "a@example.com", "subject": "Hi", "mailbox": "ops@acme.com"});
    let output = call(tool.as_ref(), input.clone()).await.unwrap();
    let undone = tool.rollback(&ctx(), &CompletedCall { input, output }).await.unwrap_err();
    assert_eq!(undone.body.message, "outlook.send does not support rollback", "what was sent is sent");
    assert_eq!(server.lines()[1..], ["POST /v1.0/users/ops%40acme.com/sendMail"]);
    assert_eq!(server.seen()[1].json()["message"]["toRecipients"], json!([to("a@example.com")]));
}

#[tokio::test]
async fn a_mail_whose_answer_is_lost_or_broken_may_have_been_sent() {
    let cut = Server::start(|_| Reply::Cut).await;
    assert_eq!(call(tool("outlook.send", &cut).as_ref(), example("outlook.send")).await.unwrap_err().sent, Sent::Maybe);
    let broken = Server::start(|_| Reply::status(502)).await;
    let error = call(tool("outlook.send", &broken).as_ref(), example("outlook.send")).await.unwrap_err();
    assert_eq!(gist(&error), ("EXTERNAL_SERVICE_ERROR", true, Sent::Maybe));
}

fn oauth(seen: &[ReceivedRequest]) -> Reply {
    let tokens = seen.iter().filter(|seen| seen.target == "/acme/token").count();
    match seen.last().unwrap().target.as_str() {
        "/acme/token" => {
            Reply::json(200, &json!({"access_token": format!("fresh-token-{tokens}"), "expires_in": 3600}))
        }
        // The first token is revoked before its third use.
        _ if tokens == 1 && seen.len() > 3 => Reply::json(401, &json!({"error": {"message": "fresh-token-1 expired"}})),
        _ => Reply::status(202),
    }
}

#[tokio::test]
async fn a_token_is_fetched_kept_and_fetched_again_when_it_is_refused() {
    let server = Server::start(oauth).await;
    let account = json!({"client_id": "id-1", "client_secret": "cs-secret", "refresh_token": "rt-secret",
        "tenant": "acme", "token_url": server.url("/{tenant}/token")});
    let account = account.to_string();
    let base_urls = [("outlook".to_owned(), server.url(""))].into();
    let toolbox = ToolDependencies { client: local(), secrets: FixedSecrets::of(&[("outlook", &account)]), base_urls };
    let tool = http_tools(&toolbox).unwrap().into_iter().find(|tool| tool.spec().name == "outlook.send").unwrap();
    call(tool.as_ref(), example("outlook.send")).await.unwrap();
    call(tool.as_ref(), example("outlook.send")).await.unwrap();
    let refused = call(tool.as_ref(), example("outlook.send")).await.unwrap_err();
    assert_eq!(gist(&refused), ("EXTERNAL_SERVICE_ERROR", true, Sent::No));
    assert!(!format!("{refused:?}").contains("fresh-token"), "{refused:?}");
    call(tool.as_ref(), example("outlook.send")).await.unwrap();
    let seen = server.seen();
    let mail = "POST /v1.0/me/sendMail";
    assert_eq!(server.lines(), ["POST /acme/token", mail, mail, mail, "POST /acme/token", mail]);
    let form = String::from_utf8(seen[0].body.to_vec()).unwrap();
    assert_eq!(seen[0].header("content-type"), "application/x-www-form-urlencoded");
    assert_eq!(
        form,
        "grant_type=refresh_token&client_id=id-1&client_secret=cs-secret&refresh_token=rt-secret&scope=https%3A%2F%2Fgraph.microsoft.com%2F.default"
    );
    assert_eq!(
        (seen[1].header("authorization"), seen[5].header("authorization")),
        ("Bearer fresh-token-1", "Bearer fresh-token-2")
    );
}

#[tokio::test]
async fn drive_is_searched_along_page_tokens_and_quotes_stay_inside() {
    let server = Server::start(|seen| {
        let file = |id: &str| json!({"id": id, "name": format!("{id}.txt"), "mimeType": "text/plain"});
        match seen.len() {
            1 => Reply::json(200, &json!({"files": [file("a")], "nextPageToken": "t/2", "incompleteSearch": false})),
            _ => Reply::json(200, &json!({"files": [file("b")]})),
        }
    })
    .await;
    let output = call(tool("google.drive.search", &server).as_ref(), example("google.drive.search")).await.unwrap();
    let names: Vec<&Value> = output["files"].as_array().unwrap().iter().map(|file| &file["name"]).collect();
    assert_eq!((json!(names), &output["has_more"]), (json!(["a.txt", "b.txt"]), &json!(false)));
    let url = reqwest::Url::parse(&server.url(&server.seen()[1].target)).unwrap();
    let query: std::collections::BTreeMap<_, _> = url.query_pairs().into_owned().collect();
    assert_eq!(url.path(), "/drive/v3/files");
    assert_eq!(query["q"], r"fullText contains 'it\'s a \\ plan' and trashed = false");
    assert_eq!((query["pageToken"].as_str(), query["pageSize"].as_str()), ("t/2", "100"));
    assert!(query["fields"].starts_with("nextPageToken,"));
    assert_eq!(server.seen()[0].header("authorization"), "Bearer ya29.secret-of-google");
    assert!(!server.seen()[0].target.contains("pageToken="));
}

#[tokio::test]
async fn a_vendor_that_repeats_the_credential_does_not_get_it_into_the_record() {
    let server = Server::start(|seen| {
        let last = seen.last().unwrap();
        match last.method.as_str() {
            "GET" => Reply::json(
                200,
                &json!({"full_name": last.header("authorization"), "private": true, "default_branch": "m"}),
            ),
            _ => Reply::json(400, &json!({"message": format!("bad {}", last.header("authorization"))})),
        }
    })
    .await;
    let output = call(tool("github.repos.read", &server).as_ref(), example("github.repos.read")).await.unwrap();
    assert_eq!(output["full_name"], "Bearer [redacted]");
    for name in ["github.issues.create", "notion.create_page"] {
        let error = call(tool(name, &server).as_ref(), example(name)).await.unwrap_err();
        assert!(!format!("{error:?}").contains("secret-of"), "{error:?}");
    }
    let bare = http_tools(&toolbox(&[], VENDORS, &server)).unwrap();
    let notion = bare.iter().find(|tool| tool.spec().name == "notion.search").unwrap();
    let error = call(notion.as_ref(), example("notion.search")).await.unwrap_err();
    assert_eq!(gist(&error), ("TOOL_UNAVAILABLE", false, Sent::No));
    assert_eq!(error.body.message, "the secret secret://notion is not set");
}

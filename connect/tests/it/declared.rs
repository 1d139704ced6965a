//! Tools from a custom file.

use crate::server::{FixedSecrets, Reply, Server, call, ctx, gist, local, toolbox};
use chimera_connect::flow::ToolDependencies;
use chimera_connect::flow::declared::{HttpTool, file_tools, load, restore, tools};
use chimera_core::tool::{Execution, Rollback};
use chimera_engine::flow::port::{CheckResult, CompletedCall, Sent, Tool};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const CRM: &str = include_str!("../data/crm.toml");

/// A tool that workers execute.
const THUMBNAILS: &str = include_str!("../../../examples/workers/thumbnails.toml");

/// What changes a call under the same version.
const CHANGED: [(&str, &str); 8] = [
    ("https://crm.example.com", "https://crm.example.org"),
    ("secret://crm_tag", "secret://crm_other"),
    ("username = \"chimera\"", "username = \"other\""),
    ("/lists/{input.list}/leads", "/evil/{input.list}/leads"),
    ("method = \"PUT\"", "method = \"POST\""),
    ("idempotent = true", "idempotent = false"),
    ("default = 3", "default = 4"),
    ("tag = \"{input.tags}\"", "tag = \"{input.name}\""),
];

fn tool(text: &str, server: &Server) -> HttpTool {
    let toolbox = toolbox(&[("crm", "crm-pass-word"), ("crm_tag", "tag-value-1")], &["crm"], server);
    tools(text, "crm.toml", &toolbox).unwrap().remove(0)
}

#[tokio::test]
async fn a_tool_of_a_file_sends_what_the_file_says() {
    let server =
        Server::start(|_| Reply::json(201, &json!({"data": {"id": 5, "name": "Ada"}})).with("location", "/leads/5"))
            .await;
    let input = json!({"name": "Ada", "list": "a b/c", "tags": ["x", "y"]});
    let output = call(&tool(CRM, &server), input).await.unwrap();
    assert_eq!(output, json!({"id": 5, "where": "/leads/5", "kind": "lead"}));
    let seen = &server.seen()[0];
    assert_eq!(seen.line(), "PUT /lists/a%20b%2Fc/leads?tag=x&tag=y");
    assert_eq!(seen.header("authorization"), "Basic Y2hpbWVyYTpjcm0tcGFzcy13b3Jk");
    assert_eq!(
        (seen.header("x-tag"), seen.header("x-run")),
        ("tag-value-1", "run 00000000-0000-0000-0000-000000000001")
    );
    assert_eq!(seen.json(), json!({"name": "Ada", "size": 3, "note": "for Ada"}));
}

#[tokio::test]
async fn a_file_may_be_json() {
    let document: Value = toml::from_str(CRM).unwrap();
    let loaded = load(&document.to_string(), "crm.json").unwrap();
    assert_eq!((loaded[0].spec().name.as_str(), loaded[0].vendor()), ("crm.leads.put", "crm"));
    assert!(loaded[0].spec().metadata.idempotent);
}

/// A definition is stored with its digest: what is restored from it is the same tool, and nothing else passes for it.
#[tokio::test]
async fn a_stored_definition_is_the_same_tool_again() {
    let server = Server::start(|_| Reply::json(201, &json!({"data": {"id": 5, "name": "Ada"}}))).await;
    let toolbox = toolbox(&[("crm", "crm-pass-word"), ("crm_tag", "tag-value-1")], &["crm"], &server);
    let first = tools(CRM, "crm.toml", &toolbox).unwrap().remove(0);
    let stored: Value = serde_json::from_str(&first.definition().to_string()).unwrap();
    assert!(!stored.to_string().contains("crm-pass-word"), "names of secrets, and no secret");
    // The process may have other settings by then.
    let elsewhere = ToolDependencies { base_urls: BTreeMap::new(), ..toolbox };
    let again = restore(&stored, &elsewhere).unwrap();
    assert_eq!(again.spec().version, first.spec().version);
    let input = json!({"name": "Ada", "list": "a"});
    call(&*again, input.clone()).await.unwrap();
    call(&first, input).await.unwrap();
    let seen = server.seen();
    assert_eq!((seen[0].line(), seen[0].json()), (seen[1].line(), seen[1].json()));
    let mut changed = stored.clone();
    changed["tool"]["request"]["path"] = json!("/evil/{input.list}");
    assert_ne!(restore(&changed, &elsewhere).unwrap().spec().version, first.spec().version);
    assert!(restore(&json!({}), &elsewhere).is_err());
}

#[tokio::test]
async fn a_stored_definition_of_a_tool_that_workers_execute_is_the_same_tool_again() {
    let server = Server::start(|_| Reply::json(200, &json!({}))).await;
    let toolbox = toolbox(&[], &[], &server);
    let read = |text: &str| file_tools(text, "thumbnails.toml", &toolbox).unwrap().remove(0);
    let first = read(THUMBNAILS);
    let stored: Value = serde_json::from_str(&first.definition.to_string()).unwrap();
    let again = restore(&stored, &toolbox).unwrap();
    assert_eq!(again.spec(), first.tool.spec());
    assert_eq!(again.spec().execution, first.tool.spec().execution);
    assert!(matches!(&again.spec().execution, Execution::Workers(queue) if queue.name == "thumbnails"));
    let moved = read(&THUMBNAILS.replace("queue = \"thumbnails\"", "queue = \"pictures\""));
    assert_ne!(moved.tool.spec().version, first.tool.spec().version, "the queue is part of the definition");
    let mut changed = stored.clone();
    changed["shared"]["queue"] = json!("evil");
    assert_ne!(restore(&changed, &toolbox).unwrap().spec().version, first.tool.spec().version);
    changed["shared"]["kind"] = json!("elf");
    assert!(restore(&changed, &toolbox).is_err());
}

/// Whatever depends on a tool's version notices when the tool's definition changes.
#[test]
fn a_changed_definition_is_another_version_whatever_the_file_calls_it() {
    let version = |text: &str| load(text, "crm.toml").unwrap()[0].spec().version.clone();
    let first = version(CRM);
    assert!(first.starts_with("1+") && first.len() == 18, "{first}");
    assert_eq!(version(&format!("# a remark\n\n{CRM}")), first, "what is not declared does not count");
    let mut seen = std::collections::BTreeSet::from([first]);
    for (from, to) in CHANGED {
        assert!(CRM.contains(from), "{from}");
        let changed = version(&CRM.replacen(from, to, 1));
        assert!(changed.starts_with("1+") && seen.insert(changed), "{to} is not told apart");
    }
    let elsewhere = |url: &str| {
        let base_urls = [("crm".to_owned(), url.to_owned())].into();
        let toolbox = ToolDependencies { client: local(), secrets: FixedSecrets::of(&[]), base_urls };
        tools(CRM, "crm.toml", &toolbox).unwrap()[0].spec().version.clone()
    };
    assert_ne!(elsewhere("https://one.example"), elsewhere("https://two.example"));
}

#[tokio::test]
async fn an_answer_without_what_was_promised_is_an_error_that_may_have_happened() {
    for (status, body) in [(200, json!({"data": {}})), (200, json!([])), (302, json!({}))] {
        let server = Server::with_answer(status, body).await;
        let error = call(&tool(CRM, &server), json!({"name": "Ada", "list": "l"})).await.unwrap_err();
        assert_eq!(gist(&error), ("EXTERNAL_SERVICE_ERROR", false, Sent::Maybe), "{status}");
    }
    let server = Server::start(|_| Reply::Answer(200, Vec::new(), b"<html>".to_vec())).await;
    assert_eq!(call(&tool(CRM, &server), json!({"name": "A", "list": "l"})).await.unwrap_err().sent, Sent::Maybe);
}

#[tokio::test]
async fn a_repeatable_write_is_not_in_doubt_after_a_refusal() {
    let server = Server::start(|seen| if seen.len() == 1 { Reply::status(503) } else { Reply::Cut }).await;
    let tool = tool(CRM, &server);
    let input = json!({"name": "Ada", "list": "l"});
    assert_eq!(gist(&call(&tool, input.clone()).await.unwrap_err()), ("EXTERNAL_SERVICE_ERROR", true, Sent::Answered));
    assert_eq!(gist(&call(&tool, input).await.unwrap_err()), ("EXTERNAL_SERVICE_ERROR", true, Sent::Maybe));
}

#[tokio::test]
async fn undoing_needs_the_output_and_a_tool_without_lookup_can_not_tell() {
    let server = Server::start(|_| Reply::status(204)).await;
    let tool = tool(CRM, &server);
    let input = json!({"name": "Ada", "list": "l"});
    let empty = CompletedCall { input: input.clone(), output: json!({}) };
    assert_eq!(gist(&tool.rollback(&ctx(), &empty).await.unwrap_err()), ("MALFORMED_ARGS", false, Sent::No));
    let done = CompletedCall { input: input.clone(), output: json!({"id": 5}) };
    tool.rollback(&ctx(), &done).await.unwrap();
    assert_eq!(server.lines(), ["DELETE /lists/l/leads/5"]);
    assert_eq!(tool.check(&ctx(), &input).await.unwrap(), CheckResult::Unknown);
}

/// A second refund is another refund; a second `DELETE` of the same object has no effect.
#[tokio::test]
async fn an_undo_may_be_repeated_if_its_method_or_its_file_says_so() {
    let delete = "method = \"DELETE\"";
    assert!(CRM.contains(delete));
    let undo_by = |method: &str, said: &str| {
        let text = CRM.replacen(delete, &format!("method = \"{method}\""), 1);
        text.replacen("[tool.rollback]", &format!("[tool.rollback]\n{said}"), 1)
    };
    for (method, said, rollback) in [
        ("DELETE", "", Rollback::Repeatable),
        ("PUT", "", Rollback::Repeatable),
        ("PATCH", "", Rollback::Once),
        ("POST", "", Rollback::Once),
        ("POST", "repeatable = true", Rollback::Repeatable),
        ("DELETE", "repeatable = false", Rollback::Once),
    ] {
        let text = undo_by(method, said);
        assert_eq!(load(&text, "crm.toml").unwrap()[0].spec().rollback, rollback, "{method} {said}");
        // A server error comes after the server has begun to work.
        let server = Server::start(|_| Reply::status(503)).await;
        let done = CompletedCall { input: json!({"name": "Ada", "list": "l"}), output: json!({"id": 5}) };
        let error = tool(&text, &server).rollback(&ctx(), &done).await.unwrap_err();
        let sent = if rollback == Rollback::Once { Sent::Maybe } else { Sent::Answered };
        assert_eq!(error.sent, sent, "{method} {said}");
    }
}

/// A rejected file is reported with the file, the key and the reason.
#[test]
fn a_file_that_could_only_fail_later_is_refused() {
    for (from, to, told) in [
        ("vendor = \"crm\"", "vendor = \"C R M\"", "crm.toml: vendor: a-z"),
        ("vendor = \"crm\"", "vendor = \"crm\"\nspeed = 9", "unknown field `speed`"),
        ("vendor = \"crm\"", "vendor = ", "crm.toml: file: line 1, column 10: "),
        ("https://crm.example.com", "ftp://crm.example.com", "crm.toml: base_url: expected http or https"),
        ("secret = \"secret://crm\"", "secret = \"hunter2\"", "crm.toml: auth.secret: not a secret's name"),
        ("x-run = \"run {run_id}\"", "host = \"x\"", "headers.host: this header is set by Chimera itself"),
        ("/lists/{input.list}/leads\"", "/lists/{input.lost}/leads\"", "{input.lost} is not a property of the input"),
        ("/lists/{input.list}/leads\"", "/lists/{input.tags}/leads\"", "{input.tags} may be missing"),
        ("/lists/{input.list}/leads\"", "lists\"", "request.path: a path must begin with /"),
        ("note = \"for {input.name}\"", "note = \"for {output.id}\"", "{output.id} has no value here"),
        (
            "note = \"for {input.name}\"",
            "note = \"for {input.name\"",
            "request.body: unmatched brace in \"for {input.name\"",
        ),
        ("/leads/{output.id}\"", "/leads/{output.key}\"", "{output.key} is not a property of the output"),
        ("id = \"/data/id\"", "id = \"data.id\"", "response: id: \"data.id\" is not a JSON pointer"),
        ("method = \"PUT\"", "method = \"FETCH\"", "request.method: GET, HEAD"),
        ("effect = \"write\"", "effect = \"pure\"", "effect: a tool that calls somebody is read or write"),
        ("effect = \"write\"", "effect = \"read\"", "rollback: a read has nothing to undo"),
        ("dry_run_supported = true", "dry_run_supported = false", "dry_run: given if, and only if"),
        ("risk_level = \"low\"", "risk_level = \"tiny\"", "unknown variant `tiny`"),
        ("risk_level = \"low\"", "risk_level = \"low\"\nfast = true", "unknown field `fast`"),
        ("capabilities = [\"crm.leads.put\"]", "capabilities = []", "metadata.capabilities: name at least one"),
        (
            "capabilities = [\"crm.leads.put\"]",
            "capabilities = [\"crm.leads.DELETE\"]",
            "metadata.capabilities: words of a-z",
        ),
        ("name = \"crm.leads.put\"", "name = \"CRM!\"", "name: words of a-z"),
        ("name = \"crm.leads.put\"", "name = \"graph.patch\"", "name: this name is reserved"),
        ("type = \"object\"", "type = \"objekt\"", "input"),
        ("type = \"object\"", "type = \"object\"\nx-destinations = [\"nobody\"]", "input.x-destinations: a list of"),
    ] {
        assert!(CRM.contains(from), "{from}");
        let error = load(&CRM.replacen(from, to, 1), "crm.toml").unwrap_err().to_string();
        assert!(error.starts_with("crm.toml: ") && error.contains(told), "{to}\n  {error}\n  {told}");
    }
    let twice = format!("{CRM}\n{}", &CRM[CRM.find("[[tool]]").unwrap()..]);
    assert!(load(&twice, "crm.toml").unwrap_err().reason.contains("duplicate tool name"));
}

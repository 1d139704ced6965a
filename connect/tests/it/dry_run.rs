//! What every tool owes whoever approves its dry run: an input that the call rejects before it sends anything is
//! rejected by the dry run, in the same words.

use crate::fixtures::{call, every_tool};
use chimera_engine::flow::port::Sent;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tempfile::TempDir;

/// Tools with nothing to reject: their schemas say everything.
const SCHEMA_SAYS_ALL: &[&str] =
    &["google.drive.search", "local.echo", "local.summarize", "notion.create_page", "notion.search", "slack_post"];

/// Inputs that pass the schema of a tool and are rejected by it.
fn rejected() -> Vec<(&'static str, Value)> {
    let missing = format!("cas://sha256:{}", "0".repeat(64));
    let put = |key: &str| ("s3_upload", json!({"bucket": "notes", "key": key, "content": "x"}));
    let into = |bucket: &str| ("s3_upload", json!({"bucket": bucket, "key": "k", "content": "x"}));
    let header = |name: &str, value: &str| {
        ("http.request", json!({"method": "POST", "url": "http://127.0.0.1:9/", "headers": {name: value}}))
    };
    let hook = |url: &str, secret: &str| {
        ("webhook_send", json!({"url": url, "event_type": "a.b", "secret": format!("secret://webhook.{secret}")}))
    };
    let mail = |to: &str| ("email_send", json!({"to": to, "subject": "s", "body": "b"}));
    vec![
        put("../x"),
        put("a//b"),
        put("."),
        put("ok\n"),
        put("a\\b"),
        put(&"x".repeat(300)),
        put(".tenants/globex/x"),
        into("../etc"),
        into("NoTes"),
        into("a/b"),
        ("s3_upload", json!({"bucket": "notes", "key": "k", "content_base64": "?"})),
        ("s3_upload", json!({"bucket": "notes", "key": "k", "artifact": missing})),
        header("x-own", "two\nlines"),
        header("not a name", "x"),
        header("host", "elsewhere"),
        header("x-http-method-override", "DELETE"),
        header("authorization", "Bearer secret://http.127.0.0.1 and more"),
        header("authorization", "Bearer\nsecret://http.127.0.0.1"),
        header("authorization", "Bearer secret://http.elsewhere.example"),
        ("http.request", json!({"url": "ftp://127.0.0.1/"})),
        ("http.request", json!({"url": "http://user:password@127.0.0.1/"})),
        ("http.request", json!({"url": "http://10.0.0.1/"})),
        hook("not a url", "crm"),
        hook("http://10.0.0.1/", "crm"),
        hook("http://127.0.0.1:9/", ".x"),
        mail("nobody"),
        mail("a@b.example\r\nbcc: c@d.example"),
        ("local.markdown_to_pdf", json!({"markdown": format!("![x]({missing})")})),
        ("github.repos.read", json!({"owner": "..", "repo": "r"})),
        ("github.issues.list", json!({"owner": "o", "repo": "."})),
        ("github.issues.create", json!({"owner": "..", "repo": "r", "title": "t"})),
        ("outlook.send", json!({"mailbox": "..", "to": ["a@b.example"], "subject": "s", "body": "b"})),
    ]
}

#[tokio::test]
async fn what_a_call_rejects_before_it_sends_anything_its_dry_run_rejects_too() {
    let home = TempDir::new().unwrap();
    let tools = every_tool(home.path()).await;
    let mut covered: BTreeSet<&str> = SCHEMA_SAYS_ALL.iter().copied().collect();
    for (name, input) in rejected() {
        let tool = tools.iter().find(|tool| tool.spec().name == name).unwrap_or_else(|| panic!("{name}"));
        if tool.spec().input.check(&input).is_err() {
            panic!("{name} {input}: rejected by the schema already");
        }
        let real = tool.execute(&call(1), &input).await.unwrap_err();
        assert_eq!(real.sent, Sent::No, "{name} {input}: {real:?}");
        let mut dry = input.clone();
        dry["dry_run"] = true.into();
        let dry = tool.execute(&call(1), &dry).await;
        let dry = dry.map_err(|error| (error.body.code, error.body.message));
        assert_eq!(dry, Err((real.body.code, real.body.message)), "{name} {input}");
        covered.insert(name);
    }
    let dry = tools.iter().filter(|tool| tool.spec().metadata.dry_run_supported);
    let dry: BTreeSet<&str> = dry.map(|tool| tool.spec().name.as_str()).collect();
    assert_eq!(covered, dry, "a tool with dry runs and without a case, or a case without its tool");
}

//! Every tool that makes external calls reports the host that a call would reach.

use crate::fixtures::every_tool;
use chimera_core::tool::EffectKind;
use serde_json::{Value, json};
use tempfile::TempDir;

async fn host(name: &str, input: &Value) -> Option<String> {
    let folder = TempDir::new().unwrap();
    let tools = every_tool(folder.path()).await;
    tools.iter().find(|tool| tool.spec().name == name).expect("a tool of this name").host(input)
}

#[tokio::test]
async fn a_request_reaches_the_host_of_its_url_and_a_port_that_is_not_the_usual_one_counts() {
    for tool in ["http.request", "webhook_send"] {
        for (url, reached) in [
            ("https://API.example.com./v1?x=1", Some("api.example.com")),
            ("https://api.example.com:443/", Some("api.example.com")),
            ("http://127.0.0.1:9999/", Some("127.0.0.1:9999")),
            ("not a url", None),
        ] {
            assert_eq!(host(tool, &json!({"url": url})).await.as_deref(), reached, "{url}");
        }
    }
}

#[tokio::test]
async fn a_tool_that_calls_one_service_reaches_its_host_whatever_the_input() {
    assert_eq!(host("slack_post", &json!({"channel_alias": "ops"})).await.as_deref(), Some("slack.com"));
    assert_eq!(host("email_send", &json!({})).await.as_deref(), Some("localhost:25"));
    assert_eq!(host("local.echo", &json!({"message": "x"})).await, None);
}

#[tokio::test]
async fn no_tool_of_a_vendor_is_without_a_host() {
    let folder = TempDir::new().unwrap();
    let input = json!({"url": "https://example.com/", "bucket": "notes"});
    let outside = every_tool(folder.path()).await.into_iter().filter(|tool| tool.spec().effect != EffectKind::Pure);
    // A folder is on this machine.
    let without: Vec<String> =
        outside.filter(|tool| tool.host(&input).is_none()).map(|tool| tool.spec().name.clone()).collect();
    assert_eq!(without, ["s3_upload"]);
}

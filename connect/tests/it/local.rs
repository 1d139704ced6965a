//! Tools that need nothing outside the process.

use crate::fixtures::{blobs, call, execute, owned};
use chimera_connect::flow::local_tools;
use chimera_core::tool::{EffectKind, Risk};
use chimera_engine::flow::port::{CompletedCall, Tool};
use serde_json::json;
use std::sync::Arc;
use tempfile::TempDir;

fn tool(name: &str) -> (TempDir, Arc<dyn Tool>) {
    let home = TempDir::new().unwrap();
    let tools = local_tools(owned(&blobs(home.path()))).unwrap();
    let tool = tools.into_iter().find(|tool| tool.spec().name == name).unwrap();
    (home, tool)
}

/// CORE-061, CORE-064
#[test]
fn local_tools_say_of_themselves_what_the_document_says() {
    let home = TempDir::new().unwrap();
    let tools = local_tools(owned(&blobs(home.path()))).unwrap();
    let seen: Vec<(&str, &str)> =
        tools.iter().map(|tool| (tool.spec().name.as_str(), tool.spec().metadata.capabilities[0].as_str())).collect();
    assert_eq!(
        seen,
        [
            ("local.echo", "local.echo"),
            ("local.summarize", "local.summarize"),
            ("local.markdown_to_pdf", "local.convert")
        ]
    );
    for tool in &tools {
        let spec = tool.spec();
        assert_eq!(spec.effect, EffectKind::Pure);
        assert!(!spec.metadata.requires_approval && spec.metadata.dry_run_supported && spec.metadata.idempotent);
        assert_eq!((spec.metadata.capabilities.len(), spec.metadata.risk_level), (1, Risk::Low));
        assert_eq!(spec.input.document()["properties"]["dry_run"]["type"], "boolean");
    }
}

/// CORE-060, CORE-132, CORE-133, CORE-135
#[tokio::test]
async fn a_tool_without_rollback_is_a_tool_and_says_the_same_of_itself_whatever_it_did() {
    let (_home, echo) = tool("local.echo");
    let before = echo.spec().metadata.clone();
    let input = json!({"message": "hi"});
    let output = echo.execute(&call(1), &input).await.unwrap();
    assert_eq!(output, input);
    let refused = echo.rollback(&call(1), &CompletedCall { input, output }).await.unwrap_err();
    assert_eq!(refused.body.message, "local.echo does not support rollback");
    assert_eq!(echo.spec().metadata, before);
}

/// CORE-070
#[tokio::test]
async fn an_echo_gives_back_what_it_was_given_and_takes_nothing_else() {
    let (_home, echo) = tool("local.echo");
    for input in [json!({"message": "hi"}), json!({"value": {"a": [1, null]}}), json!({"message": "", "value": 0})] {
        assert_eq!(execute(&*echo, &call(1), &input).await.unwrap(), input);
    }
    let dry = execute(&*echo, &call(1), &json!({"message": "hi", "dry_run": true})).await.unwrap();
    assert_eq!(
        dry,
        json!({
            "status": "dry_run",
            "simulated_output": {"message": "hi"},
            "warning": "This is a simulated response; no real action taken",
            "would_execute": "give the input back",
        })
    );
    for input in [json!({}), json!({"message": 1}), json!({"message": "a", "other": 1}), json!("hi")] {
        assert!(echo.spec().input.check(&input).is_err(), "{input}");
    }
}

#[tokio::test]
async fn a_summary_is_made_of_whole_sentences_and_always_the_same() {
    let (_home, summarize) = tool("local.summarize");
    let text = "Dr. Weber leads the audit team in Bonn. The audit found that payments were sent twice. \
        A second audit by Dr. Weber will check all payments of the year. It rained on that day. \
        The team expects the results of the audit in May.";
    let input = json!({"text": text, "sentences": 2});
    let first = execute(&*summarize, &call(1), &input).await.unwrap();
    assert_eq!(first, execute(&*summarize, &call(2), &input).await.unwrap());
    let sentences = first["sentences"].as_array().unwrap();
    assert_eq!((sentences.len(), &first["sentences_in_text"]), (2, &json!(5)));
    for sentence in sentences {
        assert!(text.contains(sentence.as_str().unwrap()), "{sentence}");
        assert!(sentence.as_str().unwrap().contains("audit"), "{sentence}");
    }
    let short = execute(&*summarize, &call(1), &json!({"text": text, "max_chars": 50})).await.unwrap();
    assert!(short["summary"].as_str().unwrap().chars().count() <= 50);
    let dry = execute(&*summarize, &call(1), &json!({"text": text, "sentences": 2, "dry_run": true})).await.unwrap();
    assert_eq!(dry["simulated_output"], first);
    for bad in
        [json!({}), json!({"text": ""}), json!({"text": "a", "sentences": 0}), json!({"text": "a", "max_chars": 0})]
    {
        assert!(summarize.spec().input.check(&bad).is_err(), "{bad}");
    }
    let long = json!({"text": "word ".repeat(300_000)});
    let refused = execute(&*summarize, &call(1), &long).await.unwrap_err();
    assert_eq!(refused.body.code, "PAYLOAD_TOO_LARGE");
}

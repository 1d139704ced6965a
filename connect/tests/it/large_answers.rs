//! A large answer is processed where it blocks no request.

use crate::server::{FixedSecrets, Reply, Server, ctx, local, toolbox};
use chimera_connect::flow::HttpRequest;
use chimera_connect::flow::declared::tools;
use chimera_engine::flow::port::{Tool, ToolError};
use serde_json::{Value, json};
use std::future::poll_fn;
use std::pin::pin;
use std::time::{Duration, Instant};

const KEYS: usize = 49_000;
/// A busy machine pauses now and then: the fastest of so many calls counts.
const CALLS: usize = 4;
/// The fraction of an answer's parse time for which a call may block its thread.
const PART_MAX: u32 = 3;

/// An object with many small values, as one member of an object.
fn many() -> Value {
    let members: serde_json::Map<String, Value> = (0..KEYS).map(|n| (format!("key-{n}"), json!(n))).collect();
    json!({"data": {"id": 5, "many": members}, "message": "no"})
}

/// How long it takes to read it.
fn reading(text: &str) -> Duration {
    let began = Instant::now();
    let read: Value = serde_json::from_str(text).unwrap();
    let took = began.elapsed();
    assert!(read.is_object());
    took
}

/// The result of a call, and the longest time it blocked its thread.
async fn stretch(tool: &dyn Tool, input: &Value) -> (Result<Value, ToolError>, Duration) {
    let ctx = ctx();
    let mut called = pin!(tool.execute(&ctx, input));
    let mut longest = Duration::ZERO;
    let told = poll_fn(|context| {
        let began = Instant::now();
        let polled = called.as_mut().poll(context);
        longest = longest.max(began.elapsed());
        polled
    })
    .await;
    (told, longest)
}

async fn holds_up_nobody(tool: &dyn Tool, input: Value, expected: impl Fn(Result<Value, ToolError>)) {
    let text = many().to_string();
    let mut shortest = Duration::MAX;
    for _ in 0..CALLS {
        let (told, longest) = stretch(tool, &input).await;
        expected(told);
        shortest = shortest.min(longest);
    }
    let whole = (0..CALLS).map(|_| reading(&text)).min().unwrap();
    assert!(shortest * PART_MAX <= whole, "{shortest:?} at a stretch, and {whole:?} to read the answer");
}

#[tokio::test]
async fn the_answer_of_a_request_with_many_values() {
    let server = Server::start(|_| Reply::json(200, &many())).await;
    let tool = HttpRequest::new(local(), FixedSecrets::of(&[("http.127.0.0.1", "hunter-2-hunter")])).unwrap();
    let input = json!({"url": server.url("/")});
    holds_up_nobody(&tool, input, |told| assert_eq!(told.unwrap()["body"]["data"]["many"]["key-7"], 7)).await;
    // Binary bodies are searched for the secret that was sent.
    let server =
        Server::start(|_| Reply::Answer(200, Vec::new(), [b"\xff\n".as_slice(), &vec![b'a'; 2_000_000]].concat()))
            .await;
    let input = json!({"url": server.url("/"), "headers": {"x-key": "secret://http.127.0.0.1"}});
    holds_up_nobody(&tool, input, |told| assert!(told.unwrap()["body_base64"].is_string())).await;
}

const MANY: &str = r#"
vendor = "many"
base_url = "https://many.example.com"
error_message = "/message"

[[tool]]
name = "many.read"
version = "1"
description = "Reads many."
effect = "read"
dry_run = { id = 1 }

[tool.metadata]
requires_approval = false
dry_run_supported = true
idempotent = true
capabilities = ["many.read"]
risk_level = "low"

[tool.input]
type = "object"

[tool.output]
type = "object"
[tool.output.properties]
id = { type = "integer" }
many = { type = "object", additionalProperties = { type = "integer" } }

[tool.request]
method = "GET"
path = "/many"

[tool.response]
id = "/data/id"
many = "/data/many"
"#;

#[tokio::test]
async fn the_answer_of_a_declared_tool_with_many_values() {
    for status in [200, 400] {
        let server = Server::start(move |_| Reply::json(status, &many())).await;
        let toolbox = toolbox(&[], &["many"], &server);
        let tool = tools(MANY, "many.toml", &toolbox).unwrap().remove(0);
        holds_up_nobody(&tool, json!({}), |told| match told {
            Ok(output) => assert_eq!((status, &output["many"]["key-7"]), (200, &json!(7))),
            Err(error) => assert_eq!((status, error.body.message.ends_with(": no")), (400, true), "{error:?}"),
        })
        .await;
    }
}

//! `http.request` and the client below it.

use crate::server::{
    FixedSecrets, Reply, Server, call, call_as, cancellable, client, client_with_hosts, ctx, gist, local,
};
use chimera_connect::flow::HttpRequest;
use chimera_connect::http::Client;
use chimera_core::limits::{HTTP_RESPONSE_BYTES_MAX, HTTP_RESPONSE_HEAD_BYTES_MAX};
use chimera_core::tool::{EffectKind, Risk};
use chimera_engine::flow::port::{Sent, Tool};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn tool(client: Client) -> HttpRequest {
    HttpRequest::new(client, FixedSecrets::of(&[("http.127.0.0.1", "hunter-2-hunter"), ("smtp", "mail-password")]))
        .unwrap()
}

#[test]
fn the_tool_says_what_it_is() {
    let tool = tool(local());
    let spec = tool.spec();
    assert_eq!(spec.name, "http.request");
    assert_eq!(spec.effect, EffectKind::Write);
    assert!(spec.metadata.dry_run_supported && !spec.metadata.idempotent);
    assert_eq!(spec.metadata.risk_level, Risk::Medium);
    for bad in [json!({}), json!({"url": "http://x", "json": 1, "text": "x"}), json!({"url": "http://x", "bodi": 1})] {
        assert!(spec.input.check(&bad).is_err(), "{bad}");
    }
}

#[tokio::test]
async fn a_request_arrives_as_it_was_written_and_carries_key_and_trace() {
    let server =
        Server::start(|_| Reply::json(201, &json!({"id": 7})).with("x-request-id", "r1").with("set-cookie", "s=1"))
            .await;
    let input = json!({
        "method": "POST", "url": server.url("/a b/é?x=1"), "query": {"q": "a&b", "tags": ["u", 2], "on": true},
        "headers": {"X-Own": "mine", "Authorization": "Bearer secret://http.127.0.0.1"}, "json": {"n": 1},
    });
    let output = call(&tool(local()), input).await.unwrap();
    assert_eq!(output["status"], 201);
    assert_eq!(output["body"], json!({"id": 7}));
    assert_eq!(output["truncated"], false);
    assert_eq!(output["headers"]["x-request-id"], "r1");
    assert_eq!(output["headers"].get("set-cookie"), None);
    let seen = &server.seen()[0];
    assert_eq!(seen.line(), "POST /a%20b/%C3%A9?x=1&on=true&q=a%26b&tags=u&tags=2");
    assert_eq!(seen.json(), json!({"n": 1}));
    assert_eq!(seen.header("content-type"), "application/json");
    assert_eq!(seen.header("content-length"), "7");
    assert_eq!(seen.header("authorization"), "Bearer hunter-2-hunter");
    assert_eq!(seen.header("x-own"), "mine");
    assert_eq!(seen.header("idempotency-key"), "key-3");
    assert_eq!(seen.header("traceparent"), ctx().traceparent);
    assert!(seen.header("user-agent").starts_with("chimera/"));
}

#[tokio::test]
async fn a_question_carries_no_key_and_text_stays_text() {
    let server = Server::start(|_| Reply::Answer(200, Vec::new(), b"{\"a\":1}".to_vec())).await;
    let output = call(&tool(local()), json!({"url": server.url("/")})).await.unwrap();
    assert_eq!(output["body"], "{\"a\":1}");
    assert_eq!(server.seen()[0].header("idempotency-key"), "");
    let input = json!({"method": "PUT", "url": server.url("/"), "text": "hé", "headers": {"content-type": "text/csv"}});
    call(&tool(local()), input).await.unwrap();
    assert_eq!((server.seen()[1].header("content-type"), &server.seen()[1].body[..]), ("text/csv", "hé".as_bytes()));
    call(&tool(local()), json!({"method": "DELETE", "url": server.url("/x")})).await.unwrap();
    assert_eq!(server.seen()[2].header("content-length"), "0");
}

/// CORE-070
#[tokio::test]
async fn a_dry_run_calls_nobody_and_says_what_it_would_do() {
    let server = Server::with_answer(200, json!({})).await;
    let input = json!({"method": "POST", "url": server.url("/pages"), "json": {"title": "Summary"}, "dry_run": true});
    let output = call(&tool(local()), input).await.unwrap();
    assert_eq!(output["status"], "dry_run");
    assert_eq!(output["warning"], "This is a simulated response; no real action taken");
    assert_eq!(output["would_execute"], format!("POST {} with {{\"title\":\"Summary\"}}", server.url("/pages")));
    assert_eq!(tool(local()).spec().output.check(&output["simulated_output"]), Ok(()));
    let refused = call(&tool(client(&[])), json!({"url": server.url("/"), "dry_run": true})).await.unwrap_err();
    assert_eq!(refused.body.code, "POLICY_DENIED");
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn a_server_that_repeats_a_secret_does_not_get_it_into_the_record() {
    let echo = Server::start(|seen| {
        let last = seen.last().unwrap();
        let status = if last.target == "/bad" { 400 } else { 200 };
        Reply::json(status, &json!({"sent": last.header("x-key"), last.header("x-key"): 1}))
    })
    .await;
    let input = |path: &str| json!({"url": echo.url(path), "headers": {"X-Key": "secret://http.127.0.0.1"}});
    let output = call(&tool(local()), input("/good")).await.unwrap();
    assert_eq!(output["body"], json!({"sent": "[redacted]", "[redacted]": 1}));
    let error = call(&tool(local()), input("/bad")).await.unwrap_err();
    assert_eq!(echo.seen()[1].header("x-key"), "hunter-2-hunter");
    assert!(!format!("{error:?}").contains("hunter"), "{error:?}");
    assert!(error.body.details["answer"].as_str().unwrap().contains("[redacted]"));
}

#[tokio::test]
async fn a_secret_goes_to_the_host_in_its_name_and_nowhere_else() {
    let server = Server::with_answer(200, json!({})).await;
    let with = |url: String, value: &str| json!({"url": url, "headers": {"X-Key": value}});
    for dry in [false, true] {
        let mut input = with(server.url("/"), "secret://smtp");
        input["dry_run"] = dry.into();
        let error = call(&tool(local()), input).await.unwrap_err();
        assert_eq!(gist(&error), ("POLICY_DENIED", false, Sent::No));
        assert_eq!(error.body.details["policy_id"], "secret_host");
    }
    // The host may be called, but a secret for a public host needs https.
    let clear = with("http://example.com/".into(), "secret://http.example.com");
    let error = call(&tool(client(&["*"])), clear).await.unwrap_err();
    assert_eq!(gist(&error), ("POLICY_DENIED", false, Sent::No));
    let missing = call(&tool(local()), with(server.url("/"), "secret://http.127.0.0.1_other")).await.unwrap_err();
    assert_eq!(gist(&missing), ("TOOL_UNAVAILABLE", false, Sent::No));
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn headers_that_belong_to_the_connection_are_refused() {
    for name in ["Host", "content-length", "Transfer-Encoding", "idempotency-key", "traceparent", "b\u{e4}d"] {
        let input = json!({"url": "https://example.com/", "headers": {name: "x"}});
        let error = call(&tool(client(&[])), input).await.unwrap_err();
        assert_eq!(gist(&error), ("MALFORMED_ARGS", false, Sent::No), "{name}");
    }
    let with = |method: &str, name: &str, value: &str, dry: bool| json!({"method": method, "url": "https://example.com/", "headers": {name: value}, "dry_run": dry});
    for name in ["X-HTTP-Method-Override", "x-http-method", "X-Method-Override", "X_HTTP_METHOD_OVERRIDE"] {
        for value in ["DELETE", "delete", "secret://http.example.com", ""] {
            for dry in [false, true] {
                let error = call(&tool(client(&[])), with("POST", name, value, dry)).await.unwrap_err();
                assert_eq!(gist(&error), ("MALFORMED_ARGS", false, Sent::No), "{name}: {value}");
            }
        }
        call(&tool(client(&[])), with("PUT", name, "put", true)).await.unwrap();
    }
    let input = json!({"url": "https://example.com/", "headers": {"x": "a\r\nb: c"}});
    assert_eq!(gist(&call(&tool(client(&[])), input).await.unwrap_err()).0, "MALFORMED_ARGS");
}

#[tokio::test]
async fn private_addresses_are_refused_in_every_spelling_and_nothing_connects() {
    let server = Server::with_answer(200, json!({})).await;
    let port = server.address.port();
    for host in
        ["127.0.0.1", "127.1", "2130706433", "0177.0.0.1", "0x7f.0.0.1", "[::ffff:127.0.0.1]", "localhost", "LocalHost"]
    {
        for rules in [&[][..], &["*"]] {
            let input = json!({"method": "POST", "url": format!("http://{host}:{port}/"), "text": "x"});
            let error = call(&tool(client(rules)), input).await.unwrap_err();
            assert_eq!(gist(&error), ("POLICY_DENIED", false, Sent::No), "{host}");
        }
    }
    let metadata = call(&tool(client(&[])), json!({"url": "http://169.254.169.254/latest/meta-data/"})).await;
    assert_eq!(gist(&metadata.unwrap_err()).0, "POLICY_DENIED");
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn a_name_is_judged_by_all_its_addresses() {
    let server = Server::with_answer(200, json!({})).await;
    let url = format!("http://api.test:{}/", server.address.port());
    let rebound: &[(&str, &[&str])] = &[("api.test", &["93.184.216.34", "127.0.0.1"])];
    let ask = |rules: &'static [&'static str], names| call_owned(client_with_hosts(rules, names), url.clone());
    assert_eq!(ask(&[], rebound).await, Err("POLICY_DENIED".to_owned()));
    assert_eq!(ask(&["*.test"], rebound).await, Err("POLICY_DENIED".to_owned()));
    assert_eq!(ask(&["other.test"], rebound).await, Err("POLICY_DENIED".to_owned()));
    assert_eq!(ask(&["api.test"], &[("api.test", &["127.0.0.1"])]).await, Ok(()));
    // No name may resolve to the address where clouds serve credentials, not even a listed one.
    assert_eq!(ask(&["api.test"], &[("api.test", &["169.254.169.254"])]).await, Err("POLICY_DENIED".to_owned()));
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_url_with_a_control_character_is_refused() {
    let server = Server::start(|_| Reply::json(200, &json!({}))).await;
    for sign in ["\t", "\n", "\r", "\u{0}"] {
        let url = server.url(&format!("/x?_met{sign}hod=DELETE"));
        let error = call(&tool(local()), json!({"method": "POST", "url": url})).await.unwrap_err();
        assert_eq!(gist(&error), ("MALFORMED_ARGS", false, Sent::No));
    }
    assert!(server.seen().is_empty());
}

async fn call_owned(client: Client, url: String) -> Result<(), String> {
    call(&tool(client), json!({"url": url})).await.map(drop).map_err(|error| error.body.code.clone())
}

#[tokio::test]
async fn what_was_never_sent_is_told_apart_from_what_may_have_been() {
    let cut = Server::start(|_| Reply::Cut).await;
    let post = |url: String| json!({"method": "POST", "url": url, "json": {}});
    let error = call(&tool(local()), post(cut.url("/"))).await.unwrap_err();
    assert_eq!(gist(&error), ("EXTERNAL_SERVICE_ERROR", true, Sent::Maybe));
    assert_eq!(cut.seen().len(), 1);
    let question = call(&tool(local()), json!({"url": cut.url("/")})).await.unwrap_err();
    assert_eq!(gist(&question), ("EXTERNAL_SERVICE_ERROR", true, Sent::No));

    for overrides in [
        json!({"url": cut.url("/?_method=DELETE")}),
        json!({"method": "OPTIONS", "url": cut.url("/"), "json": {"_method": "DELETE"}}),
    ] {
        let error = call(&tool(local()), overrides.clone()).await.unwrap_err();
        assert_eq!(gist(&error), ("EXTERNAL_SERVICE_ERROR", true, Sent::Maybe), "{overrides}");
    }

    let nobody = chimera_testkit::net::free_port();
    let error = call(&tool(local()), post(format!("http://127.0.0.1:{nobody}/"))).await.unwrap_err();
    assert_eq!(gist(&error), ("EXTERNAL_SERVICE_UNAVAILABLE", true, Sent::No));
    let error = call(&tool(client(&[])), post("http://nowhere.invalid/".into())).await.unwrap_err();
    assert_eq!(gist(&error), ("EXTERNAL_SERVICE_UNAVAILABLE", true, Sent::No));
    assert!(!error.body.message.contains("://"), "{}", error.body.message);
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_handshake_has_sent_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut hello = [0; 5];
        stream.read_exact(&mut hello).await.unwrap();
    });
    let error = call(&tool(local()), json!({"method": "POST", "url": url, "json": {}})).await.unwrap_err();
    assert_eq!(gist(&error), ("EXTERNAL_SERVICE_UNAVAILABLE", true, Sent::No));
    server.await.unwrap();
}

#[tokio::test]
async fn a_deadline_that_passes_in_the_handshake_has_sent_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let mut short = ctx();
    short.time_left = Duration::from_millis(200);
    let input = json!({"method": "POST", "url": url, "json": {}});
    let error = call_as(&tool(local()), &short, input).await.unwrap_err();
    assert_eq!(gist(&error), ("REQUEST_TIMEOUT", true, Sent::No));
}

#[tokio::test]
async fn an_answer_that_breaks_off_in_its_body_may_have_been_a_success() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\nx") {
            stream.read_buf(&mut request).await.unwrap();
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await.unwrap();
    });
    let error = call(&tool(local()), json!({"method": "POST", "url": url, "text": "x"})).await.unwrap_err();
    server.await.unwrap();
    assert_eq!(error.sent, Sent::Maybe);
}

#[tokio::test]
async fn a_slow_answer_ends_at_the_deadline_and_a_cancelled_one_at_once() {
    let server = Server::start(|_| Reply::Hang).await;
    let input = json!({"method": "POST", "url": server.url("/"), "json": {}});
    let mut short = ctx();
    short.time_left = Duration::from_secs(1);
    let error = call_as(&tool(local()), &short, input.clone()).await.unwrap_err();
    assert_eq!(gist(&error), ("REQUEST_TIMEOUT", true, Sent::Maybe));

    let (wish, ctx) = cancellable();
    let tool = tool(local());
    let (answer, ()) = tokio::join!(call_as(&tool, &ctx, input), async {
        server.received(2).await;
        wish.send(true).unwrap();
    });
    assert_eq!(gist(&answer.unwrap_err()), ("REQUEST_TIMEOUT", false, Sent::Maybe));
}

#[tokio::test]
async fn a_call_that_was_cancelled_before_it_began_sends_nothing() {
    let server = Server::with_answer(200, json!({})).await;
    let (wish, ctx) = cancellable();
    wish.send(true).unwrap();
    let input = json!({"method": "POST", "url": server.url("/"), "json": {}});
    assert_eq!(call_as(&tool(local()), &ctx, input).await.unwrap_err().sent, Sent::No);
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn statuses_become_errors_unless_they_were_expected() {
    let server = Server::start(|seen| {
        let status = seen.last().unwrap().target.trim_start_matches('/').parse().unwrap();
        Reply::json(status, &json!({"why": "no"})).with("retry-after", "3")
    })
    .await;
    let ask = async |status: u16, more: Value| {
        let mut input = json!({"method": "POST", "url": server.url(&format!("/{status}")), "json": {}});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        call(&tool(local()), input).await
    };
    let limited = ask(429, json!({})).await.unwrap_err();
    assert_eq!(gist(&limited), ("RATE_LIMITED", true, Sent::No));
    assert_eq!(limited.body.retry_after_seconds, Some(3));
    assert_eq!(gist(&ask(503, json!({})).await.unwrap_err()), ("EXTERNAL_SERVICE_ERROR", true, Sent::Maybe));
    let missing = ask(404, json!({})).await.unwrap_err();
    assert_eq!(gist(&missing), ("EXTERNAL_SERVICE_ERROR", false, Sent::No));
    assert_eq!(missing.body.details["answer"], r#"{"why":"no"}"#);
    assert_eq!(ask(404, json!({"expect_status": [200, 404]})).await.unwrap()["status"], 404);
    let other = ask(202, json!({"expect_status": [200]})).await.unwrap_err();
    assert_eq!(gist(&other), ("EXTERNAL_SERVICE_ERROR", false, Sent::Maybe));
    assert_eq!(ask(304, json!({})).await.unwrap()["status"], 304);
}

#[tokio::test]
async fn a_long_answer_is_cut_and_a_long_head_is_refused() {
    let server = Server::start(|seen| match seen.last().unwrap().target.as_str() {
        "/body" => Reply::Answer(
            200,
            vec![("content-type", "application/json".into())],
            vec![b' '; HTTP_RESPONSE_BYTES_MAX + 1],
        ),
        "/edge" => Reply::Answer(200, Vec::new(), vec![b' '; HTTP_RESPONSE_BYTES_MAX]),
        _ => Reply::status(200).with("x-long", "x".repeat(HTTP_RESPONSE_HEAD_BYTES_MAX)),
    })
    .await;
    let cut = call(&tool(local()), json!({"url": server.url("/body")})).await.unwrap();
    assert_eq!(cut["truncated"], true);
    assert_eq!(cut["body"].as_str().unwrap().len(), HTTP_RESPONSE_BYTES_MAX);
    assert_eq!(call(&tool(local()), json!({"url": server.url("/edge")})).await.unwrap()["truncated"], false);
    let head = call(&tool(local()), json!({"method": "POST", "url": server.url("/head")})).await.unwrap_err();
    assert_eq!(gist(&head), ("EXTERNAL_SERVICE_ERROR", false, Sent::Maybe));
}

/// Text with replaced characters looks like the answer but is not: storing it stores something else.
#[tokio::test]
async fn a_body_that_is_no_text_is_given_as_its_bytes_and_never_as_replaced_text() {
    const BYTES: &[u8] = b"\x89PNG\r\n\x1a\n\xff\x00\xe9";
    let server = Server::start(|seen| match seen.last().unwrap().target.as_str() {
        "/json" => Reply::Answer(200, vec![("content-type", "application/json".into())], BYTES.to_vec()),
        "/cut" => Reply::Answer(200, Vec::new(), "aé".repeat(HTTP_RESPONSE_BYTES_MAX / 3 + 1).into_bytes()),
        "/echo" => Reply::Answer(200, Vec::new(), [BYTES, b"hunter-2-hunter"].concat()),
        "/text" => Reply::Answer(200, Vec::new(), "hé".into()),
        _ => Reply::Answer(200, Vec::new(), BYTES.to_vec()),
    })
    .await;
    let tool = tool(local());
    for path in ["/", "/json"] {
        let output = call(&tool, json!({"url": server.url(path)})).await.unwrap();
        assert_eq!((&output["body"], &output["body_base64"]), (&Value::Null, &json!("iVBORw0KGgr/AOk=")), "{path}");
        assert!(tool.spec().output.check(&output).is_ok());
    }
    let text = call(&tool, json!({"url": server.url("/text")})).await.unwrap();
    assert_eq!((&text["body"], text.get("body_base64")), (&json!("hé"), None));
    // A character cut in two by the limit is dropped; the rest is text.
    let cut = call(&tool, json!({"url": server.url("/cut")})).await.unwrap();
    let body = cut["body"].as_str().unwrap();
    assert!(cut["truncated"] == true && body.len() + 1 >= HTTP_RESPONSE_BYTES_MAX && !body.contains('\u{fffd}'));
    // A secret in binary content can't be masked.
    let headers = json!({"authorization": "secret://http.127.0.0.1"});
    let echo = call(&tool, json!({"url": server.url("/echo"), "headers": headers})).await.unwrap_err();
    assert_eq!(gist(&echo), ("EXTERNAL_SERVICE_ERROR", false, Sent::No));
}

//! The API client: answers, errors, other servers, event streams.

use crate::server::{Reply, Server};
use chimera_connect::client::{self, ApiClientError, ApiCredentials};
use chimera_core::access::mac;
use chimera_core::access::signature::{ExpectedSigner, RequestParts, UnverifiedSignature};
use chimera_core::error::{Code, ErrorBody, ProblemDetails};
use chimera_core::secret::Secret;
use chimera_core::time::Timestamp;
use chimera_testkit::ledger_fixture::LedgerFixture;
use futures::StreamExt;
use serde_json::json;
use std::sync::Arc;

fn at(server: &Server) -> client::Server {
    client::Server::new(&server.url(""), credentials(Some("sesame"))).unwrap()
}

fn credentials(token: Option<&str>) -> ApiCredentials {
    let world = LedgerFixture::new(1);
    ApiCredentials {
        actor: "user_ann".into(),
        key: Some(Secret::new("the key of ann")),
        token: token.map(str::to_owned),
        clock: Arc::new(world.clock),
        random: Arc::new(world.random),
    }
}

#[tokio::test]
async fn requests_show_the_token_and_are_signed_and_answers_come_with_their_status() {
    let server = Server::with_answer(202, json!({"ok": true})).await;
    let answer = at(&server).ask("POST", "runs/x/cancel", Some("{\"a\":1}".into())).await.unwrap();
    assert_eq!(answer, (202, json!({"ok": true})));
    let seen = &server.seen()[0];
    assert_eq!((seen.line().as_str(), seen.json()), ("POST /runs/x/cancel", json!({"a": 1})));
    assert_eq!(seen.header("authorization"), "Bearer sesame");
    let fields =
        ["content-digest", "signature-input", "signature"].map(|name| (name.to_owned(), seen.header(name).to_owned()));
    let (method, path, body) = ("POST", "/runs/x/cancel", b"{\"a\":1}".as_slice());
    let parts =
        RequestParts { method, scheme: "http", authority: "", path, prefix: "", query: None, fields: &fields, body };
    let signer = ExpectedSigner { actor: "user_ann", signing_keys: &[] };
    let claimed = UnverifiedSignature::parse(&parts, &signer).unwrap().remove(0);
    assert_eq!(claimed.verify([&Secret::new("the key of ann")], Timestamp::from_micros(0)), Ok(()));
    at(&server).ask("POST", "act", Some("{}".into())).await.unwrap();
    let signature = mac::sign(&Secret::new("the key of ann"), b"{}");
    assert_eq!(server.seen()[1].header("x-hmac-signature"), signature);
}

#[tokio::test]
async fn without_a_token_one_is_got_with_the_key_and_kept() {
    let server = Server::with_answer(200, json!({"access_token": "fresh"})).await;
    let client = client::Server::new(&server.url(""), credentials(None)).unwrap();
    client.ask("GET", "runs", None).await.unwrap();
    client.ask("GET", "runs", None).await.unwrap();
    let seen = server.seen();
    let lines: Vec<_> = seen.iter().map(|seen| seen.line()).collect();
    assert_eq!(lines, ["POST /auth/token", "GET /runs", "GET /runs"]);
    assert_eq!(seen[0].json()["actor"], "user_ann");
    assert_eq!(seen[2].header("authorization"), "Bearer fresh");
}

#[tokio::test]
async fn an_address_that_is_none_and_a_lack_of_credentials_are_refused_in_words() {
    assert!(matches!(client::Server::new("nowhere", credentials(None)), Err(ApiClientError::Unusable(_))));
    assert!(matches!(client::Server::new("http://x", credentials(Some("a\nb"))), Err(ApiClientError::Unusable(_))));
    let bare = client::Server::new("http://127.0.0.1:9", ApiCredentials { key: None, ..credentials(None) }).unwrap();
    assert!(matches!(bare.ask("GET", "runs", None).await, Err(ApiClientError::NoKey { .. })));
    let server = Server::with_answer(200, json!({})).await;
    let reader = ApiCredentials { key: None, ..credentials(Some("sesame")) };
    let reader = client::Server::new(&server.url(""), reader).unwrap();
    assert!(reader.ask("GET", "runs", None).await.is_ok(), "a token alone reads");
    assert!(matches!(reader.ask("POST", "runs/x/cancel", None).await, Err(ApiClientError::Unusable(_))));
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_refusal_is_the_servers_own_error_and_a_stranger_is_told_apart() {
    let body = ErrorBody::new(Code::StaleApproval, "too late").with("n", 1);
    let problem = serde_json::to_value(ProblemDetails::new(Code::StaleApproval, body.clone(), "/x", "t")).unwrap();
    let server = Server::with_answer(409, problem).await;
    match at(&server).ask("GET", "runs", None).await {
        Err(ApiClientError::Refused(told)) => assert_eq!(*told, body),
        other => panic!("{other:?}"),
    }
    let strange = Server::with_answer(404, json!({"message": "nginx"})).await;
    assert!(matches!(at(&strange).ask("GET", "runs", None).await, Err(ApiClientError::NotChimera { status: 404, .. })));
    let cut = Server::start(|_| Reply::Cut).await;
    assert!(matches!(at(&cut).ask("GET", "runs", None).await, Err(ApiClientError::NoAnswer { .. })));
}

#[tokio::test]
async fn events_are_read_to_the_end_of_the_stream() {
    let text = ":\n\nid: 1\nevent: a\ndata: {\"run_seq\":1}\n\nid: 2\nevent: b\ndata: {\"run_seq\":2}\n\n";
    let server =
        Server::start(move |_| Reply::Answer(200, vec![("content-type", "text/event-stream".into())], text.into()))
            .await;
    let events: Vec<_> = at(&server).events("runs/x/events?after=0").await.unwrap().collect().await;
    let numbers: Vec<_> = events.into_iter().map(|event| event.unwrap()["run_seq"].clone()).collect();
    assert_eq!(numbers, [json!(1), json!(2)]);
}

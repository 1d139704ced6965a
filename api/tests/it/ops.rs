//! Health, readiness, metrics.

use crate::support::{client, edge, failing_check, get_json, passing_check, served};
use chimera_api::ReadinessCheck;
use futures::future::join_all;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[tokio::test]
async fn a_living_process_says_so() {
    let server = served(edge().with_checks(vec![failing_check("records", "down")])).await;
    insta::assert_json_snapshot!(get_json(server.url("/healthz")).await);
}

#[tokio::test]
async fn readiness_lists_every_part() {
    let server = served(edge().with_checks(vec![passing_check("records"), passing_check("blobs")])).await;
    insta::assert_json_snapshot!(get_json(server.url("/readyz")).await);
}

#[tokio::test]
async fn one_part_that_fails_or_hangs_makes_the_process_not_ready_and_is_named() {
    let hanging = ReadinessCheck::new("bus", std::future::pending::<Result<(), String>>);
    let checks = vec![passing_check("blobs"), failing_check("records", "no space left"), hanging];
    let server = served(edge().with_checks(checks).with_check_timeout(Duration::from_millis(20))).await;
    insta::assert_json_snapshot!(get_json(server.url("/readyz")).await);
}

/// The endpoint is public, and checks make stores write.
#[tokio::test]
async fn however_many_ask_whether_it_is_ready_the_parts_are_asked_once() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let counting = ReadinessCheck::new("records", move || {
        count.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(()))
    });
    let server = served(edge().with_checks(vec![counting])).await;
    let answers = join_all((0..20).map(|_| get_json(server.url("/readyz")))).await;
    assert!(answers.iter().all(|(status, _)| *status == 200));
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_stopping_process_is_not_ready() {
    let server = served(edge().with_checks(vec![passing_check("records")])).await;
    server.edge.begin_stopping();
    let (status, body) = get_json(server.url("/readyz")).await;
    assert_eq!(status, 503);
    assert_eq!(body["error"]["details"]["checks"][1]["reason"], "stopping");
}

#[tokio::test]
async fn metrics_are_what_the_exporter_renders() {
    let server = served(edge().with_metrics(|| "chimera_up 1\n".to_owned())).await;
    let response = client().get(server.url("/metrics")).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(response.text().await.unwrap(), "chimera_up 1\n");
}

#[tokio::test]
async fn the_docs_page_lists_every_endpoint_and_every_error() {
    let server = served(edge()).await;
    let page = client().get(server.url("/docs")).send().await.unwrap().text().await.unwrap();
    for path in chimera_api::route_table().iter().map(|route| route.path) {
        assert!(page.contains(&format!("<code>{path}</code>")), "{path}");
    }
    for code in chimera_core::error::Code::ALL {
        assert!(page.contains(&code.page()), "{code}");
    }
}

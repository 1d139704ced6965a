//! `GET /metrics`: metrics in the Prometheus text format.

use crate::edge::Edge;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

/// Returns metrics in the Prometheus text format.
#[utoipa::path(get, path = "/metrics", tag = "ops", responses((status = 200, body = String, content_type = "text/plain", description = "Current metrics")))]
pub(crate) async fn metrics(State(edge): State<Edge>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], (edge.metrics)())
}

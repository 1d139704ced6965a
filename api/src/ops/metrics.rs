//! `GET /metrics`: the numbers, in the text format of Prometheus.

use crate::edge::Edge;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

/// Metrics as Prometheus text.
#[utoipa::path(get, path = "/metrics", tag = "ops", responses((status = 200, body = String, content_type = "text/plain", description = "The numbers of now")))]
pub(crate) async fn metrics(State(edge): State<Edge>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], (edge.metrics)())
}

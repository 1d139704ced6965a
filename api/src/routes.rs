//! The route table, and the OpenAPI document made from the same handlers.
//!
//! A test compares both: a route without documentation and a documented path without a route fail.

use crate::edge::Edge;
use crate::intent::artifact;
use crate::ops::{docs, errors, healthz, metrics, openapi, readyz, schema};
use crate::problem::ApiError;
use crate::request;
use axum::Router;
use axum::http::{Method, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{MethodRouter, get};
use chimera_core::error::Code;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::OpenApi;

fn table() -> Vec<(&'static str, MethodRouter<Edge>)> {
    vec![
        ("/healthz", get(healthz::healthz)),
        ("/readyz", get(readyz::readyz)),
        ("/metrics", get(metrics::metrics)),
        ("/openapi.json", get(openapi::openapi)),
        ("/docs", get(docs::docs)),
        ("/docs/errors/{code}", get(errors::error)),
        ("/artifacts/{sha256}", get(artifact::artifact)),
    ]
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Chimera", description = "Lets AI agents act, and keeps every act under control."),
    paths(
        healthz::healthz,
        readyz::readyz,
        metrics::metrics,
        openapi::openapi,
        docs::docs,
        errors::error,
        artifact::artifact,
    ),
    components(schemas(schema::ProblemDocument)),
    tags(
        (name = "ops", description = "Health, metrics, documentation"),
        (name = "intent", description = "Intents and what they produce"),
    ),
)]
struct Document;

/// The OpenAPI 3.1 document.
#[must_use]
pub fn document() -> utoipa::openapi::OpenApi {
    Document::openapi()
}

/// Every path of the route table.
#[must_use]
pub fn paths() -> Vec<&'static str> {
    table().into_iter().map(|(path, _)| path).collect()
}

/// The whole edge as one service.
pub fn router(edge: Edge) -> Router {
    with_routes(edge, Router::new())
}

/// The whole edge with further routes under the same layers.
pub fn with_routes(edge: Edge, more: Router<Edge>) -> Router {
    table()
        .into_iter()
        .fold(more, |router, (path, methods)| router.route(path, methods))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(CatchPanicLayer::custom(request::after_panic))
        .layer(from_fn_with_state(edge.clone(), request::limit_time))
        .layer(from_fn(request::check_head))
        .layer(from_fn_with_state(edge.clone(), request::observe))
        .with_state(edge)
}

async fn not_found(uri: Uri) -> ApiError {
    ApiError::new(Code::NotFound, format!("nothing is at {}", uri.path()))
}

async fn method_not_allowed(method: Method) -> ApiError {
    ApiError::new(Code::MethodNotAllowed, format!("the address does not take {method}"))
}

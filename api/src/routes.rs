//! The route table, and the OpenAPI document made from the same handlers.
//!
//! A test compares both: a route without documentation and a documented path without a route fail.

use crate::access::{act, actor_get, actor_key, actor_list, actor_put, gate, jwks, token, token_refresh, token_revoke};
use crate::edge::Edge;
use crate::flow::{
    cache_forget, call_list, doubt_list, link_decide, link_open, run_approve, run_call, run_cancel, run_events,
    run_get, run_list, run_mark, run_patch, run_pause, run_reject, run_replay, run_resume, run_retry, run_rollback,
    run_steps, run_unpatch, step_edit, step_resolve, tool_list, workflow_apply, workflow_check, workflow_get,
    workflow_list,
};
use crate::intent::artifact;
use crate::ledger::audit_list;
use crate::ops::{docs, errors, healthz, metrics, openapi, readyz, schema, webhooks};
use crate::problem::ApiError;
use crate::request;
use axum::Router;
use axum::http::{Method, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, delete, get, post};
use chimera_core::error::Code;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

/// What anybody may ask for.
fn open() -> Vec<(&'static str, MethodRouter<Edge>)> {
    vec![
        ("/healthz", get(healthz::healthz)),
        ("/readyz", get(readyz::readyz)),
        ("/metrics", get(metrics::metrics)),
        ("/openapi.json", get(openapi::openapi)),
        ("/docs", get(docs::docs)),
        ("/docs/errors/{code}", get(errors::error)),
        ("/.well-known/webhooks.json", get(webhooks::keys)),
        ("/approvals/{token}", get(link_open::open).post(link_decide::decide)),
        ("/artifacts/{sha256}", get(artifact::artifact)),
        ("/.well-known/jwks.json", get(jwks::jwks)),
        ("/auth/token", post(token::sign_in)),
        ("/auth/refresh", post(token_refresh::refresh)),
    ]
}

/// What only those may ask for whom the door lets in.
fn guarded() -> Vec<(&'static str, MethodRouter<Edge>)> {
    vec![
        ("/auth/revoke", post(token_revoke::revoke)),
        ("/act", post(act::act)),
        ("/actors", get(actor_list::list)),
        ("/actors/{id}", get(actor_get::get).put(actor_put::put)),
        ("/actors/{id}/keys", post(actor_key::add)),
        ("/tools", get(tool_list::list)),
        ("/tool-calls", get(call_list::list)),
        ("/doubts", get(doubt_list::list)),
        ("/audit", get(audit_list::list)),
        ("/workflows", get(workflow_list::list)),
        ("/workflows/{id}", get(workflow_get::get).put(workflow_apply::apply)),
        ("/workflows/{id}/check", post(workflow_check::check)),
        ("/workflows/{id}/cache", delete(cache_forget::forget)),
        ("/workflows/{id}/call", post(run_call::call)),
        ("/runs", get(run_list::list)),
        ("/runs/{id}", get(run_get::get).patch(run_mark::mark)),
        ("/runs/{id}/steps", get(run_steps::steps)),
        ("/runs/{id}/steps/{step}/resolve", post(step_resolve::resolve)),
        ("/runs/{id}/steps/{step}/edit", post(step_edit::edit)),
        ("/runs/{id}/events", get(run_events::events)),
        ("/runs/{id}/approve", post(run_approve::approve)),
        ("/runs/{id}/reject", post(run_reject::reject)),
        ("/runs/{id}/cancel", post(run_cancel::cancel)),
        ("/runs/{id}/pause", post(run_pause::pause)),
        ("/runs/{id}/resume", post(run_resume::resume)),
        ("/runs/{id}/rollback", post(run_rollback::rollback)),
        ("/runs/{id}/retry", post(run_retry::retry)),
        ("/runs/{id}/replay", post(run_replay::replay)),
        ("/runs/{id}/patch", post(run_patch::patch)),
        ("/runs/{id}/patches/{number}", delete(run_unpatch::unpatch)),
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
        webhooks::keys,
        link_open::open,
        link_decide::decide,
        artifact::artifact,
        jwks::jwks,
        token::sign_in,
        token_refresh::refresh,
        token_revoke::revoke,
        act::act,
        actor_list::list,
        actor_get::get,
        actor_put::put,
        actor_key::add,
        tool_list::list,
        call_list::list,
        doubt_list::list,
        audit_list::list,
        workflow_list::list,
        workflow_get::get,
        workflow_apply::apply,
        workflow_check::check,
        cache_forget::forget,
        run_call::call,
        run_list::list,
        run_get::get,
        run_mark::mark,
        run_steps::steps,
        step_resolve::resolve,
        step_edit::edit,
        run_events::events,
        run_approve::approve,
        run_reject::reject,
        run_cancel::cancel,
        run_pause::pause,
        run_resume::resume,
        run_rollback::rollback,
        run_retry::retry,
        run_replay::replay,
        run_patch::patch,
        run_unpatch::unpatch,
    ),
    components(schemas(schema::ProblemDocument)),
    modifiers(&Credentials),
    security(("bearer" = [])),
    tags(
        (name = "ops", description = "Health, metrics, documentation"),
        (name = "access", description = "Who calls, and what they ask for"),
        (name = "flow", description = "Workflows, runs and tools"),
        (name = "link", description = "Links that are sent to people"),
        (name = "ledger", description = "What happened, by whom, and why"),
        (name = "intent", description = "Intents and what they produce"),
    ),
)]
struct Document;

/// How callers prove who they are.
struct Credentials;

impl Modify for Credentials {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let token = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .bearer_format("JWT")
            .description(Some("An access token of `/auth/token`. A request with a body is signed as well."))
            .build();
        let signature = ApiKeyValue::with_description(
            "X-HMAC-Signature",
            "Lower-case hex of the HMAC-SHA256 of the raw body, with the actor's key",
        );
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(token));
        components.add_security_scheme("hmac", SecurityScheme::ApiKey(ApiKey::Header(signature)));
    }
}

/// The OpenAPI 3.1 document.
#[must_use]
pub fn document() -> utoipa::openapi::OpenApi {
    Document::openapi()
}

/// Every path of the route table.
#[must_use]
pub fn paths() -> Vec<&'static str> {
    open().into_iter().chain(guarded()).map(|(path, _)| path).collect()
}

/// The whole edge as one service.
pub fn router(edge: Edge) -> Router {
    with_routes(edge, Router::new())
}

/// The whole edge with further routes under the same layers.
pub fn with_routes(edge: Edge, more: Router<Edge>) -> Router {
    let add = |router: Router<Edge>, (path, methods)| router.route(path, methods);
    let guarded = guarded()
        .into_iter()
        .fold(Router::new(), add)
        .route_layer(from_fn_with_state(edge.clone(), gate::authenticate));
    open()
        .into_iter()
        .fold(more, add)
        .merge(guarded)
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(CatchPanicLayer::custom(request::after_panic))
        .layer(from_fn_with_state(edge.clone(), request::observe))
        .with_state(edge)
}

/// The edge of a process that may not begin yet: it says so, and why.
pub fn waiting_router(edge: Edge) -> Router {
    Router::new()
        .route("/healthz", get(healthz::healthz))
        .route("/readyz", get(readyz::readyz))
        .route("/metrics", get(metrics::metrics))
        .fallback(not_begun)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(CatchPanicLayer::custom(request::after_panic))
        .layer(from_fn_with_state(edge.clone(), request::observe))
        .with_state(edge)
}

async fn not_begun() -> ApiError {
    ApiError::new(Code::NotReady, "this node has not begun its work; /readyz says why").retry_after(1)
}

async fn not_found(uri: Uri) -> ApiError {
    ApiError::new(Code::NotFound, format!("nothing is at {}", uri.path()))
}

async fn method_not_allowed(method: Method) -> ApiError {
    ApiError::new(Code::MethodNotAllowed, format!("the address does not take {method}"))
}

//! The route table, and the OpenAPI document made from the same handlers.
//!
//! Each route is listed once, with the operation id that generated clients use as its name, and the rules that
//! apply to it.

use crate::access::{
    actor_get, actor_key, actor_list, actor_put, actor_remove, intent_keys, jwks, signing_key_add, signing_key_list,
    signing_key_revoke, signing_key_rotate, tenant_add, tenant_get, tenant_list, tenant_set, token, token_refresh,
    token_revoke,
};
use crate::act::{
    act_post, run_call, run_patch, run_replay, run_retry, schedule_add, schedule_get, schedule_list, schedule_next,
    schedule_pause, schedule_put, schedule_remove, schedule_resume, schedule_run,
};
use crate::audit::audit_list;
use crate::edge::Edge;
use crate::flow::wire::EventDocument;
use crate::flow::{
    artifact_get, cache_forget, call_list, doubt_list, event_list, event_publish, inbox_list, link_decide, link_open,
    run_approve, run_cancel, run_events, run_get, run_list, run_mark, run_pause, run_reject, run_resume, run_rollback,
    run_steps, run_unpatch, step_edit, step_resolve, tool_list, tool_problems, tool_reload, work_claim, work_complete,
    work_fail, work_list, work_renew, workflow_apply, workflow_check, workflow_get, workflow_list, workflow_share,
    workflow_unshare,
};
use crate::intent::{intent_catalog, intent_post, intent_validate, schema_get};
use crate::job::execution_list;
use crate::ops::{docs, errors, healthz, metrics, openapi, readyz, schema, webhooks};
use crate::problem::ApiError;
use crate::route::{self, Route, RouteRules, Signed};
use crate::{examples, gate, request};
use axum::Router;
use axum::http::{Method, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, MethodRouter, get, on};
use chimera_core::error::Code;
use std::sync::LazyLock;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::schema::Type;
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{ObjectBuilder, RefOr, Required};
use utoipa::{Modify, OpenApi};

/// Generates the route table, the list of handlers and the OpenAPI document from one list.
macro_rules! routes {
    ($($method:ident $path:literal $operation:ident $module:ident::$handler:ident $rules:ident;)*) => {
        /// The route table.
        static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
            vec![$(Route {
                method: Method::$method,
                path: $path,
                operation: stringify!($operation),
                rules: &route::$rules,
            }),*]
        });

        /// One handler per line of the table, in the same order.
        fn handlers() -> Vec<MethodRouter<Edge>> {
            vec![$(on(MethodFilter::$method, $module::$handler)),*]
        }

        #[derive(OpenApi)]
        #[openapi(paths($($module::$handler),*))]
        struct Operations;
    };
}

routes! {
    GET "/healthz" get_health healthz::healthz OPEN;
    GET "/readyz" get_readiness readyz::readyz OPEN;
    GET "/metrics" get_metrics metrics::metrics OPEN;
    GET "/openapi.json" get_openapi openapi::openapi OPEN;
    GET "/docs" get_docs docs::docs OPEN;
    GET "/docs/errors/{code}" get_error_page errors::error OPEN;
    GET "/.well-known/webhooks.json" get_webhook_keys webhooks::keys OPEN;
    GET "/.well-known/jwks.json" get_token_keys jwks::jwks OPEN;
    GET "/.well-known/intent-keys.json" get_intent_keys intent_keys::keys OPEN;
    GET "/approvals/{token}" open_approval_link link_open::open OPEN;
    POST "/approvals/{token}" decide_by_link link_decide::decide LINK;
    GET "/artifacts/{sha256}" download_artifact artifact_get::artifact OPEN;
    POST "/auth/token" create_token token::sign_in SIGN_IN;
    POST "/auth/refresh" refresh_token token_refresh::refresh REFRESH;
    POST "/auth/revoke" revoke_token token_revoke::revoke CHANGE;
    POST "/act" act act_post::act ACT;
    POST "/intents" submit_intent intent_post::submit INTENT;
    POST "/intents/validate" validate_intent intent_validate::validate CHECK;
    GET "/intents/catalog" list_intents intent_catalog::list READ;
    GET "/schemas/{name}" get_schema schema_get::schema OPEN;
    GET "/actors" list_actors actor_list::list READ;
    GET "/actors/{id}" get_actor actor_get::get READ;
    PUT "/actors/{id}" put_actor actor_put::put CHANGE;
    DELETE "/actors/{id}" remove_actor actor_remove::remove CHANGE;
    POST "/actors/{id}/keys" create_actor_key actor_key::add CHANGE;
    GET "/actors/{id}/signing-keys" list_signing_keys signing_key_list::list READ;
    POST "/actors/{id}/signing-keys" add_signing_key signing_key_add::add CHANGE;
    POST "/signing-keys/{kid}/rotate" rotate_signing_key signing_key_rotate::rotate CHANGE;
    DELETE "/signing-keys/{kid}" revoke_signing_key signing_key_revoke::revoke CHANGE;
    GET "/tenants" list_tenants tenant_list::list READ;
    POST "/tenants" create_tenant tenant_add::add CHANGE;
    GET "/tenants/{slug}" get_tenant tenant_get::get READ;
    PATCH "/tenants/{slug}" update_tenant tenant_set::set CHANGE;
    GET "/tools" list_tools tool_list::list READ;
    GET "/tools/problems" list_tool_problems tool_problems::list READ;
    POST "/tools/reload" reload_tools tool_reload::reload CHANGE;
    GET "/tool-calls" list_tool_calls call_list::list READ;
    GET "/doubts" list_doubts doubt_list::list READ;
    GET "/inbox" list_inbox inbox_list::list READ;
    GET "/audit" list_audit_entries audit_list::list READ;
    GET "/workflows" list_workflows workflow_list::list READ;
    GET "/workflows/{id}" get_workflow workflow_get::get READ;
    PUT "/workflows/{id}" apply_workflow workflow_apply::apply CHANGE;
    POST "/workflows/{id}/check" check_workflow workflow_check::check CHECK;
    PUT "/workflows/{id}/share" share_workflow workflow_share::share CHANGE;
    DELETE "/workflows/{id}/share" unshare_workflow workflow_unshare::unshare CHANGE;
    DELETE "/workflows/{id}/cache" clear_workflow_cache cache_forget::forget CHANGE;
    POST "/workflows/{id}/call" call_workflow run_call::call CALL;
    GET "/schedules" list_schedules schedule_list::list READ;
    POST "/schedules" create_schedule schedule_add::add CHANGE;
    GET "/schedules/{name}" get_schedule schedule_get::get READ;
    PUT "/schedules/{name}" replace_schedule schedule_put::put CHANGE;
    DELETE "/schedules/{name}" remove_schedule schedule_remove::remove CHANGE;
    GET "/schedules/{name}/next" list_next_ticks schedule_next::next READ;
    POST "/schedules/{name}/pause" pause_schedule schedule_pause::pause CHANGE;
    POST "/schedules/{name}/resume" resume_schedule schedule_resume::resume CHANGE;
    POST "/schedules/{name}/run" run_schedule schedule_run::run CALL;
    GET "/work" list_work work_list::list READ;
    POST "/work/claim" claim_work work_claim::claim CHANGE;
    POST "/work/renew" renew_work work_renew::renew CHANGE;
    POST "/work/complete" complete_work work_complete::complete CHANGE;
    POST "/work/fail" fail_work work_fail::fail CHANGE;
    GET "/events" list_events event_list::list READ;
    POST "/events" publish_event event_publish::publish CHANGE;
    GET "/runs" list_runs run_list::list READ;
    GET "/runs/{id}" get_run run_get::get READ;
    PATCH "/runs/{id}" mark_run run_mark::mark CHANGE;
    GET "/runs/{id}/steps" list_steps run_steps::steps READ;
    GET "/runs/{id}/executions" list_executions execution_list::list READ;
    POST "/runs/{id}/steps/{step}/resolve" resolve_step step_resolve::resolve CHANGE;
    POST "/runs/{id}/steps/{step}/edit" edit_step step_edit::edit CHANGE;
    GET "/runs/{id}/events" stream_run_events run_events::events READ;
    POST "/runs/{id}/approve" approve_run run_approve::approve CHANGE;
    POST "/runs/{id}/reject" reject_run run_reject::reject CHANGE;
    POST "/runs/{id}/cancel" cancel_run run_cancel::cancel CHANGE;
    POST "/runs/{id}/pause" pause_run run_pause::pause CHANGE;
    POST "/runs/{id}/resume" resume_run run_resume::resume CHANGE;
    POST "/runs/{id}/rollback" roll_back_run run_rollback::rollback CHANGE;
    POST "/runs/{id}/retry" retry_run run_retry::retry CHANGE;
    POST "/runs/{id}/replay" replay_run run_replay::replay CHANGE;
    POST "/runs/{id}/patch" patch_run run_patch::patch CHANGE;
    DELETE "/runs/{id}/patches/{number}" revert_patch run_unpatch::unpatch CHANGE;
}

/// The route of a matched path. HEAD uses the route of GET.
pub(crate) fn route(method: &Method, path: &str) -> Option<&'static Route> {
    let method = if *method == Method::HEAD { &Method::GET } else { method };
    ROUTES.iter().find(|route| route.path == path && route.method == *method)
}

#[must_use]
pub fn route_table() -> &'static [Route] {
    &ROUTES
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Chimera", description = "Lets AI agents act under control."),
    components(schemas(schema::ProblemDocument, EventDocument)),
    tags(
        (name = "ops", description = "Health, metrics, documentation"),
        (name = "access", description = "Authentication, actors and tenants"),
        (name = "flow", description = "Workflows, runs and tools"),
        (name = "job", description = "The execution log"),
        (name = "link", description = "Approval links sent to people"),
        (name = "ledger", description = "The audit ledger"),
        (name = "intent", description = "Intents and their artifacts"),
    ),
)]
struct Document;

/// Adds what the route table says of each operation: its id, its security requirements, its examples.
struct RouteTable;

impl Modify for RouteTable {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let token = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .bearer_format("JWT")
            .description(Some("Access token issued by `/auth/token`"))
            .build();
        let body = ApiKeyValue::with_description(
            "X-HMAC-Signature",
            "HMAC-SHA256 of the raw body with the actor's key, in lower-case hex",
        );
        let message = ApiKeyValue::with_description(
            "Signature",
            "An HTTP message signature (RFC 9421) over `@method`, `@path`, `@query` and, with a body, `content-digest`; \
             `Signature-Input` has `created`, `nonce` and `keyid`: the actor, with its key and `alg=\"hmac-sha256\"`, or the \
             id of a signing key of the actor, with `alg=\"ed25519\"`",
        );
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(token));
        components.add_security_scheme("hmac", SecurityScheme::ApiKey(ApiKey::Header(body)));
        components.add_security_scheme("signature", SecurityScheme::ApiKey(ApiKey::Header(message)));
        let examples = examples::all();
        for route in route_table() {
            let operations = document.paths.paths.get_mut(route.path).into_iter();
            for operation in operations.filter_map(|item| operation(item, &route.method)) {
                operation.operation_id = Some(route.operation.to_owned());
                operation.security = Some(vec![security_requirement(route.rules)]);
                examples.get(route.operation).into_iter().for_each(|found| examples::add(operation, found));
                if route.rules.token && route.rules.signed != Signed::Body {
                    operation.parameters.get_or_insert_default().push(RefOr::T(for_tenant()));
                }
            }
        }
    }
}

fn operation<'a>(item: &'a mut PathItem, method: &Method) -> Option<&'a mut Operation> {
    let slot = match method.as_str() {
        "GET" => &mut item.get,
        "PUT" => &mut item.put,
        "POST" => &mut item.post,
        "DELETE" => &mut item.delete,
        "PATCH" => &mut item.patch,
        _ => return None,
    };
    slot.as_mut()
}

fn for_tenant() -> Parameter {
    ParameterBuilder::new()
        .name(gate::FOR_TENANT)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some("Operators only: slug of the tenant to act for"))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build()
}

fn security_requirement(rules: &RouteRules) -> SecurityRequirement {
    let none: [&str; 0] = [];
    let token = rules.token.then_some("bearer");
    let signed = match rules.signed {
        Signed::No => None,
        Signed::Body => Some("hmac"),
        Signed::Message => Some("signature"),
    };
    token.into_iter().chain(signed).fold(SecurityRequirement::default(), |all, name| all.add(name, none))
}

/// The OpenAPI 3.1 document.
#[must_use]
pub fn document() -> utoipa::openapi::OpenApi {
    let mut document = Document::openapi();
    document.merge(Operations::openapi());
    RouteTable.modify(&mut document);
    document
}

/// All routes with their middleware.
pub fn router(edge: Edge) -> Router {
    with_routes(edge, Router::new())
}

/// Like [`router`], with further routes under the same middleware.
pub fn with_routes(edge: Edge, more: Router<Edge>) -> Router {
    route_table()
        .iter()
        .zip(handlers())
        .fold(more, |router, (route, handler)| {
            let handler = match route.rules.has_gate() {
                true => handler.route_layer(from_fn_with_state(edge.clone(), gate::enforce)),
                false => handler,
            };
            router.route(route.path, handler)
        })
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(CatchPanicLayer::custom(request::panic_response))
        .layer(from_fn_with_state(edge.clone(), request::observe))
        .with_state(edge)
}

/// The routes of a process that may not start yet: health, readiness and metrics; everything else is `NOT_READY`.
pub fn waiting_router(edge: Edge) -> Router {
    Router::new()
        .route("/healthz", get(healthz::healthz))
        .route("/readyz", get(readyz::readyz))
        .route("/metrics", get(metrics::metrics))
        .fallback(not_started)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(CatchPanicLayer::custom(request::panic_response))
        .layer(from_fn_with_state(edge.clone(), request::observe))
        .with_state(edge)
}

async fn not_started() -> ApiError {
    ApiError::new(Code::NotReady, "this node has not started yet; see /readyz for the reason").retry_after(1)
}

async fn not_found(uri: Uri) -> ApiError {
    ApiError::new(Code::NotFound, format!("no route matches {}", request::redacted_path(uri.path())))
}

async fn method_not_allowed(method: Method) -> ApiError {
    ApiError::new(
        Code::MethodNotAllowed,
        format!("{method} is not allowed here; the Allow header lists the methods that are"),
    )
}

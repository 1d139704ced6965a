//! `POST /auth/token`: signs an actor in.
//!
//! The body is signed with the actor's key and carries a time and a nonce, so it is accepted once.

use crate::edge::Edge;
use crate::error_responses::SignInErrors;
use crate::gate::received::ReceivedRequest;
use crate::gate::{authenticator, refusal_response, with_rate_headers};
use crate::problem::ApiError;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use chimera_engine::access::{self, SignIn, Tokens};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use utoipa::ToSchema;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, Type};

/// A sign-in request.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignInBody {
    /// Name of the actor.
    #[schema(example = "n8n_workflow_abc")]
    actor: String,
    /// When the request was made, at most one minute from now: Unix seconds or RFC 3339.
    #[schema(schema_with = time_schema)]
    issued_at: Value,
    /// Unique string; a repeated one is refused.
    nonce: String,
    /// Limits the token to these scopes; all of the actor's scopes if omitted.
    scopes: Option<Vec<String>>,
}

/// The schema of a time: Unix seconds or RFC 3339.
pub(crate) fn time_schema() -> Schema {
    let seconds = ObjectBuilder::new().schema_type(Type::Number).description(Some("Unix seconds"));
    let text = ObjectBuilder::new().schema_type(Type::String).description(Some("RFC 3339"));
    OneOfBuilder::new().item(seconds).item(text).into()
}

/// An access token and a refresh token.
#[derive(Serialize, ToSchema)]
pub(crate) struct TokenDocument {
    /// Send it as `Authorization: Bearer …`.
    access_token: String,
    /// Always `Bearer`.
    token_type: &'static str,
    /// Lifetime of the access token in seconds.
    expires_in: i64,
    /// Exchange it once at `/auth/refresh` for new tokens.
    refresh_token: String,
    /// Scopes of the access token.
    scopes: Vec<String>,
}

/// Signs an actor in.
#[utoipa::path(
    post,
    path = "/auth/token",
    tag = "access",
    request_body = SignInBody,
    responses((status = 200, body = TokenDocument, description = "Tokens"), SignInErrors)
)]
pub(crate) async fn sign_in(
    State(edge): State<Edge>,
    Extension(received): Extension<Arc<ReceivedRequest>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let SignInBody { actor, issued_at, nonce, scopes } = match received.json(&headers) {
        Ok(body) => body,
        Err(error) => return Ok(received.refuse(&edge, error).await),
    };
    let ask = SignIn { actor, issued_at, nonce, scopes };
    Ok(match access::sign_in(authenticator(&edge)?, &ask, &received.credentials()).await {
        Ok(tokens) => token_response(tokens),
        Err(turned) => refusal_response(turned),
    })
}

/// The token response, with `Cache-Control: no-store`.
pub(super) fn token_response(tokens: Tokens) -> Response {
    let Tokens { access_token, expires_in, refresh_token, scopes, rate } = tokens;
    let document = TokenDocument { access_token, token_type: "Bearer", expires_in, refresh_token, scopes };
    let mut response = Json(document).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    with_rate_headers(response, &rate)
}

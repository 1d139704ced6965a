//! `POST /auth/refresh`: exchanges a refresh token for a new refresh token and access token.
//!
//! The body is signed with the actor's key; the access token may have expired already.

use super::token::{TokenDocument, token_response};
use crate::edge::Edge;
use crate::error_responses::SignInErrors;
use crate::gate::received::ReceivedRequest;
use crate::gate::{authenticator, refusal_response};
use crate::problem::ApiError;
use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use chimera_engine::access;
use serde::Deserialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// A refresh request.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RefreshBody {
    /// The refresh token.
    refresh_token: String,
}

/// Exchanges a refresh token for new tokens.
#[utoipa::path(
    post,
    path = "/auth/refresh",
    tag = "access",
    request_body = RefreshBody,
    responses((status = 200, body = TokenDocument, description = "The new tokens"), SignInErrors)
)]
pub(crate) async fn refresh(
    State(edge): State<Edge>,
    Extension(received): Extension<Arc<ReceivedRequest>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let RefreshBody { refresh_token } = match received.json(&headers) {
        Ok(body) => body,
        Err(error) => return Ok(received.refuse(&edge, error).await),
    };
    Ok(match access::refresh_tokens(authenticator(&edge)?, &refresh_token, &received.credentials()).await {
        Ok(tokens) => token_response(tokens),
        Err(turned) => refusal_response(turned),
    })
}

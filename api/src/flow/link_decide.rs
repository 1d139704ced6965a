//! `POST /approvals/{token}`: the form on the approval page that a mailed link opens.
//!
//! It decides once, as the person to whom the link was sent, about the digest that the page showed.

use super::link_open;
use crate::edge::Edge;
use crate::page::{self, escape};
use crate::params;
use crate::problem::ApiError;
use axum::Form;
use axum::extract::rejection::{FormRejection, PathRejection};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use chimera_engine::flow::{self, Decision, DecisionResult, RequestStatus};
use serde::Deserialize;
use utoipa::ToSchema;

/// A decision on the approval page.
#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FormDecision {
    /// Approve the request.
    Approve,
    /// Reject the request.
    Reject,
}

/// The form of the approval page.
#[derive(Deserialize, ToSchema)]
pub(crate) struct DecisionForm {
    /// The decision.
    decision: FormDecision,
    /// Digest of what the page showed: 64 hex digits.
    digest: String,
    /// Reason for the decision.
    #[serde(default)]
    reason: String,
}

/// Approves or rejects with an approval link.
#[utoipa::path(
    post,
    path = "/approvals/{token}",
    tag = "link",
    params(("token" = String, Path, description = "Token of the approval link")),
    request_body(content = DecisionForm, content_type = "application/x-www-form-urlencoded"),
    responses(
        (status = 200, body = String, content_type = "text/html", description = "The decision was recorded"),
        (status = 400, body = String, content_type = "text/html", description = "The form is malformed"),
        (status = 403, body = String, content_type = "text/html", description = "The person is not allowed to decide any more"),
        (status = 404, body = String, content_type = "text/html", description = "Unknown link"),
        (status = 408, body = String, content_type = "text/html", description = "The form arrived too slowly"),
        (status = 409, body = String, content_type = "text/html", description = "The request was decided elsewhere, or changed since the page was shown"),
        (status = 410, body = String, content_type = "text/html", description = "The link was used or has expired"),
        (status = 413, body = String, content_type = "text/html", description = "The reason is too long"),
        (status = 415, body = String, content_type = "text/html", description = "The body is not a form"),
        (status = 422, body = String, content_type = "text/html", description = "A form field is missing"),
        (status = 429, body = String, content_type = "text/html", description = "Too many bytes of refused requests came from the address"),
        (status = 503, body = String, content_type = "text/html", description = "The store accepts no changes now"),
    )
)]
pub(crate) async fn decide(
    State(edge): State<Edge>,
    token: Result<Path<String>, PathRejection>,
    form: Result<Form<DecisionForm>, FormRejection>,
) -> Response {
    match apply_decision(&edge, &link_open::token_or_empty(token), form).await {
        Ok((decision, decided)) => {
            let (title, words) = describe_outcome(decision, &decided);
            page::private_page(StatusCode::OK, title, &*edge.random, |page| {
                page.push_str(&format!("<h1>{title}</h1><p>{}</p>", escape(&words)));
            })
        }
        Err(error) => page::refused(error, &*edge.random),
    }
}

async fn apply_decision(
    edge: &Edge,
    token: &str,
    form: Result<Form<DecisionForm>, FormRejection>,
) -> Result<(Decision, DecisionResult), ApiError> {
    let flow = link_open::flow(edge)?;
    let Form(DecisionForm { decision, digest, reason }) =
        form.map_err(|rejection| ApiError::from_status(rejection.status()))?;
    let digest = params::digest(&digest)?;
    let decision = match decision {
        FormDecision::Approve => Decision::Approve,
        FormDecision::Reject => Decision::Reject,
    };
    let reason = Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty());
    Ok((decision, flow::decide_by_link(flow, token, decision, digest, reason).await?))
}

fn describe_outcome(decision: Decision, decided: &DecisionResult) -> (&'static str, String) {
    match (decision, decided.status) {
        (Decision::Approve, RequestStatus::Pending) => {
            let (form, needed) = (decided.approvals, decided.needed);
            (
                "Approved",
                format!("{form} of {needed} people have approved. It runs once all have. You can close this page."),
            )
        }
        (Decision::Approve, _) => ("Approved", "It runs now. You can close this page.".to_owned()),
        _ => ("Rejected", "It will not run. You can close this page.".to_owned()),
    }
}

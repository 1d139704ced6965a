//! `POST /approvals/{token}`: the form on the page behind the link in a mail.
//!
//! It decides as the person to whom the link was sent, once, about the digest that the page showed.

use super::link_open;
use crate::edge::Edge;
use crate::page::{self, escape};
use crate::place;
use crate::problem::ApiError;
use axum::Form;
use axum::extract::rejection::{FormRejection, PathRejection};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use chimera_engine::flow::{DecisionResult, Decision};
use serde::Deserialize;
use utoipa::ToSchema;

/// What a person says on the page.
#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Button {
    /// It may run.
    Approve,
    /// It may not.
    Reject,
}

/// The form.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Said {
    /// What is said.
    decision: Button,
    /// What the page showed: 64 hex digits.
    digest: String,
    /// Why.
    #[serde(default)]
    reason: String,
}

/// Decides by the link in a mail.
#[utoipa::path(
    post,
    path = "/approvals/{token}",
    tag = "link",
    params(("token" = String, Path, description = "What the link in the mail ends with")),
    request_body(content = Said, content_type = "application/x-www-form-urlencoded"),
    responses(
        (status = 200, body = String, content_type = "text/html", description = "What became of the request"),
        (status = 400, body = String, content_type = "text/html", description = "The form can't be read"),
        (status = 403, body = String, content_type = "text/html", description = "The person may not decide any more"),
        (status = 404, body = String, content_type = "text/html", description = "There is no such link"),
        (status = 408, body = String, content_type = "text/html", description = "The form arrived too slowly"),
        (status = 409, body = String, content_type = "text/html", description = "It was decided otherwise, or is not what the page showed"),
        (status = 410, body = String, content_type = "text/html", description = "The link was used or has expired"),
        (status = 413, body = String, content_type = "text/html", description = "The reason is too long"),
        (status = 415, body = String, content_type = "text/html", description = "It is no form"),
        (status = 422, body = String, content_type = "text/html", description = "The form lacks something"),
        (status = 429, body = String, content_type = "text/html", description = "Too many bytes of refused requests came from the address"),
        (status = 503, body = String, content_type = "text/html", description = "The store takes no changes now"),
    )
)]
pub(crate) async fn decide(
    State(edge): State<Edge>,
    token: Result<Path<String>, PathRejection>,
    said: Result<Form<Said>, FormRejection>,
) -> Response {
    match decided(&edge, &link_open::named(token), said).await {
        Ok((decision, decided)) => {
            let (title, words) = outcome(decision, &decided);
            page::private(StatusCode::OK, title, &*edge.random, |page| {
                page.push_str(&format!("<h1>{title}</h1><p>{}</p>", escape(&words)));
            })
        }
        Err(error) => page::refused(error, &*edge.random),
    }
}

async fn decided(
    edge: &Edge,
    token: &str,
    said: Result<Form<Said>, FormRejection>,
) -> Result<(Decision, DecisionResult), ApiError> {
    let flow = link_open::flow(edge)?;
    let Form(Said { decision, digest, reason }) = said.map_err(|rejection| ApiError::of_status(rejection.status()))?;
    let digest = place::digest(&digest)?;
    let decision = match decision {
        Button::Approve => Decision::Approve,
        Button::Reject => Decision::Reject,
    };
    let reason = Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty());
    Ok((decision, flow.decide_by_link(token, decision, digest, reason).await?))
}

fn outcome(decision: Decision, decided: &DecisionResult) -> (&'static str, String) {
    match (decision, decided.status) {
        (Decision::Approve, "pending") => {
            let (said, needed) = (decided.approvals, decided.needed);
            (
                "Approved",
                format!("{said} of {needed} people have approved; it runs when all have. You can close this page."),
            )
        }
        (Decision::Approve, _) => ("Approved", "It runs now. You can close this page.".to_owned()),
        _ => ("Rejected", "It will not run. You can close this page.".to_owned()),
    }
}

//! `GET /runs`: lists runs, newest first.

use crate::caller::Caller;
use crate::error_responses::ReadErrors;
use crate::extract::ApiQuery;
use crate::flow::wire::{self, RunPage};
use crate::params;
use crate::problem::ApiError;
use axum::response::Response;
use chimera_core::error::Code;
use chimera_core::flow::run::RunStatus;
use chimera_core::text::did_you_mean;
use chimera_engine::flow::{self, RunFilter};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListRunsQuery {
    status: Option<String>,
    actor: Option<String>,
    workflow_id: Option<String>,
    id_prefix: Option<String>,
    since: Option<String>,
    until: Option<String>,
    in_doubt: Option<bool>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// Lists runs.
#[utoipa::path(
    get,
    path = "/runs",
    tag = "flow",
    params(
        ("status" = Option<wire::RunStatus>, Query, description = "Only runs with this status"),
        ("actor" = Option<String>, Query, description = "Only runs of this actor"),
        ("workflow_id" = Option<String>, Query, description = "Only runs of this workflow"),
        ("id_prefix" = Option<String>, Query, description = "Only runs whose id begins with these hex digits, at least 8, with or without dashes"),
        ("since" = Option<DateTime>, Query, description = "Only runs created at or after this time (RFC 3339)"),
        ("until" = Option<DateTime>, Query, description = "Only runs created before this time (RFC 3339)"),
        ("in_doubt" = Option<bool>, Query, description = "`true`: only runs with a tool call whose outcome is unknown"),
        ("limit" = Option<usize>, Query, description = "Maximum number of runs"),
        ("cursor" = Option<String>, Query, description = "Cursor from the previous page"),
    ),
    responses((status = 200, body = RunPage, description = "A page of runs"), ReadErrors)
)]
pub(crate) async fn list(caller: Caller, ApiQuery(which): ApiQuery<ListRunsQuery>) -> Result<Response, ApiError> {
    let filter = RunFilter {
        status: which.status.as_deref().map(parse_status).transpose()?,
        actor: which.actor,
        workflow_id: which.workflow_id,
        id_prefix: params::id_prefix(which.id_prefix.as_deref())?,
        since: params::time("since", which.since.as_deref())?,
        until: params::time("until", which.until.as_deref())?,
        in_doubt: which.in_doubt.unwrap_or(false),
        limit: params::parse_limit(which.limit)?,
        cursor: which.cursor,
    };
    let runs = flow::list_runs(&caller.flow, &caller.permit, filter).await?;
    params::page::<_, RunPage>(&caller, runs).await
}

fn parse_status(word: &str) -> Result<RunStatus, ApiError> {
    RunStatus::parse(word).ok_or_else(|| {
        let known: Vec<&str> = RunStatus::ALL.iter().map(|status| status.as_str()).collect();
        let close = did_you_mean(word, known.iter().copied());
        ApiError::new(Code::SchemaInvalid, format!("unknown run status `{word}`{close}"))
            .with("parameter", "status")
            .with("expected", known.join(", "))
    })
}

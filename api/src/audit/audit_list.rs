//! `GET /audit`: lists ledger entries.

use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::ReadErrors;
use crate::extract::ApiQuery;
use crate::params;
use crate::problem::ApiError;
use axum::extract::State;
use axum::response::Response;
use chimera_engine::audit::{EntryFilter, list_entries};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListEntriesQuery {
    subject_id: Option<String>,
    event_type: Option<String>,
    actor: Option<String>,
    run_id: Option<Uuid>,
    since: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
}

/// A page of ledger entries.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct EntryPage {
    /// Ordered by lane and sequence number. Members: `lane`, `seq`, `id`, `event_type`, `subject_id`, `actor_id`,
    /// `timestamp`, `data_json`, `run_id`, `trace_id`, `content_digest`, `prev_hash`, `hash`.
    #[schema(value_type = Vec<Object>)]
    items: Vec<Value>,
    /// Cursor of the next page; null on the last one.
    next_cursor: Option<String>,
}

/// Lists ledger entries.
#[utoipa::path(
    get,
    path = "/audit",
    tag = "ledger",
    params(
        ("subject_id" = Option<String>, Query, description = "Only entries about this subject"),
        ("event_type" = Option<String>, Query, description = "Only entries of this type"),
        ("actor" = Option<String>, Query, description = "Only entries caused by this actor"),
        ("run_id" = Option<String>, Query, description = "Only entries of this run"),
        ("since" = Option<String>, Query, description = "Only entries at or after this time (RFC 3339)"),
        ("limit" = Option<usize>, Query, description = "Maximum number of entries"),
        ("after" = Option<String>, Query, description = "Cursor from the previous page"),
    ),
    responses((status = 200, body = EntryPage, description = "A page of entries"), ReadErrors)
)]
pub(crate) async fn list(
    State(edge): State<Edge>,
    caller: Caller,
    ApiQuery(which): ApiQuery<ListEntriesQuery>,
) -> Result<Response, ApiError> {
    let filter = EntryFilter {
        subject_id: which.subject_id,
        event_type: which.event_type,
        actor: which.actor,
        run_id: which.run_id,
        since: params::time("since", which.since.as_deref())?,
        limit: params::parse_limit(which.limit)?,
        after: which.after,
    };
    let access = edge.access.as_deref().ok_or_else(ApiError::internal)?;
    let entries = list_entries(access.records(), &caller.permit, filter).await?;
    params::document(&caller, entries).await
}

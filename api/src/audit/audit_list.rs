//! `GET /audit`: lists ledger entries.

use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::ReadErrors;
use crate::extract::ApiQuery;
use crate::flow::wire::pages;
use crate::params;
use crate::problem::ApiError;
use crate::wire::{AnyJson, DateTime, wire};
use axum::extract::State;
use axum::response::Response;
use chimera_engine::audit::{EntryFilter, EntryView, list_entries};
use serde::Deserialize;
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

wire! {
    /// A ledger entry.
    pub(crate) EntryDocument from EntryView {
        /// Lane: one writer's chain of entries.
        lane in position: i64,
        /// Number within the lane.
        seq in position: i64,
        /// Id of the entry.
        id: String,
        /// Id of the tenant.
        tenant_id: String,
        /// Type of the subject.
        subject_type: String,
        /// What the entry is about.
        subject_id: String,
        /// Type of the event.
        event_type: String,
        /// Type of the actor.
        actor_type: String,
        /// Actor who caused it.
        actor_id: Option<String>,
        /// When it was recorded.
        timestamp: Option<DateTime>,
        /// Details; the members depend on the type. Null if they were erased.
        data_json: AnyJson,
        /// Id of the run.
        run_id in run: Option<Uuid>,
        /// Number within the run.
        run_seq in run: Option<i64>,
        /// W3C trace id.
        trace_id in run: Option<String>,
        /// SHA-256 of the salted content.
        content_digest in position: String,
        /// Hash of the entry before it.
        prev_hash in position: String,
        /// Hash of this entry.
        hash in position: String,
    }
}

pages! {
    /// A page of ledger entries.
    pub EntryPage of EntryDocument from EntryView: "Ordered by lane and sequence number.";
}

/// Lists ledger entries.
#[utoipa::path(
    get,
    path = "/audit",
    tag = "audit",
    params(
        ("subject_id" = Option<String>, Query, description = "Only entries about this subject"),
        ("event_type" = Option<String>, Query, description = "Only entries of this type"),
        ("actor" = Option<String>, Query, description = "Only entries caused by this actor"),
        ("run_id" = Option<Uuid>, Query, description = "Only entries of this run"),
        ("since" = Option<DateTime>, Query, description = "Only entries at or after this time (RFC 3339)"),
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
    params::page::<_, EntryPage>(&caller, entries).await
}

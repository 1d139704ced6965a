//! `GET /actors/{id}`: what an actor may do, how often and how freely.

use crate::caller::Caller;
use crate::edge::Edge;
use crate::problem::ApiError;
use crate::refusals::Asking;
use axum::Json;
use axum::extract::{Path, State};
use chimera_core::access::{Kind, Level};
use chimera_engine::access::{Directory, ActorView};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// An actor, or a pattern of actors.
#[derive(Serialize, ToSchema)]
pub(crate) struct ActorDocument {
    /// The name or pattern.
    id: String,
    /// The slug of its tenant.
    tenant: String,
    /// A person or not: `human` or `service`.
    #[schema(value_type = String)]
    kind: Kind,
    /// Scopes of its own.
    scopes: Vec<String>,
    /// Roles of its tenant, whose scopes it has too. A role that is gone gives nothing.
    roles: Vec<String>,
    /// What it may do: its own scopes, and those of its roles.
    effective_scopes: Vec<String>,
    /// Requests a minute.
    quota_per_minute: u32,
    /// How freely it may act; null: the risk decides.
    #[schema(value_type = Option<String>)]
    autonomy_level: Option<Level>,
    /// Where it is told how its runs ended.
    #[schema(value_type = Option<Object>)]
    notify: Option<Value>,
    /// It may do nothing for now.
    disabled: bool,
    /// The name or pattern of the entry that counts.
    matched: Option<String>,
    /// Where that entry comes from: `shipped`, `config`, `registry` or `none`.
    source: &'static str,
    /// How many keys count now.
    keys: usize,
}

impl From<ActorView> for ActorDocument {
    fn from(shown: ActorView) -> Self {
        let entry = shown.entry;
        Self {
            id: entry.id,
            tenant: shown.tenant,
            kind: entry.kind,
            scopes: entry.scopes,
            roles: entry.roles,
            effective_scopes: shown.effective_scopes,
            quota_per_minute: entry.quota_per_minute,
            autonomy_level: entry.level,
            notify: entry.notify,
            disabled: entry.disabled,
            matched: shown.matched,
            source: shown.source,
            keys: shown.keys,
        }
    }
}

/// What an actor may do.
#[utoipa::path(
    get,
    path = "/actors/{id}",
    tag = "access",
    params(("id" = String, Path, description = "The actor's name, or a pattern")),
    responses((status = 200, body = ActorDocument, description = "The entry that counts"), Asking)
)]
pub(crate) async fn get(
    State(edge): State<Edge>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<ActorDocument>, ApiError> {
    Ok(Json(directory(&edge)?.actor(&caller.permit, &id)?.into()))
}

/// The registry of this server.
pub(super) fn directory(edge: &Edge) -> Result<&Directory, ApiError> {
    edge.access.as_ref().map(|access| access.directory()).ok_or_else(ApiError::internal)
}

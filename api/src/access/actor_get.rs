//! `GET /actors/{id}`: an actor's scopes, quota and autonomy level.

use super::notify::Notify;
use super::wire::{ActorKind, ActorSource, AutonomyLevel};
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::ReadErrors;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::{Path, State};
use chimera_engine::access::{self, ActorView, Directory};
use serde::Serialize;
use utoipa::ToSchema;

/// An actor, or a pattern of actors.
#[derive(Debug, Serialize, ToSchema)]
pub struct ActorDocument {
    /// Name or pattern.
    id: String,
    /// Slug of its tenant.
    tenant: String,
    /// Kind of the actor.
    kind: ActorKind,
    /// Scopes granted directly.
    scopes: Vec<String>,
    /// Roles of its tenant, which grant further scopes. A deleted role grants nothing.
    roles: Vec<String>,
    /// All scopes it holds: granted directly and through roles.
    effective_scopes: Vec<String>,
    /// Maximum requests per minute.
    quota_per_minute: u32,
    /// Autonomy level; null if it is derived from the risk.
    #[schema(required)]
    autonomy_level: Option<AutonomyLevel>,
    /// Where notifications about its runs are sent.
    #[schema(required)]
    notify: Option<Notify>,
    /// A disabled actor is refused everything.
    disabled: bool,
    /// Name or pattern of the registry entry that applies.
    #[schema(required)]
    matched: Option<String>,
    /// Where that entry comes from.
    source: ActorSource,
    /// Number of valid keys.
    keys: usize,
}

impl From<ActorView> for ActorDocument {
    fn from(shown: ActorView) -> Self {
        let entry = shown.entry;
        Self {
            id: entry.id,
            tenant: shown.tenant,
            kind: entry.kind.into(),
            scopes: entry.scopes,
            roles: entry.roles,
            effective_scopes: shown.effective_scopes,
            quota_per_minute: entry.quota_per_minute,
            autonomy_level: entry.level.map(Into::into),
            notify: entry.notify.and_then(|notify| serde_json::from_value(notify).ok()),
            disabled: entry.disabled,
            matched: shown.matched,
            source: shown.source.into(),
            keys: shown.keys,
        }
    }
}

/// Retrieves an actor.
#[utoipa::path(
    get,
    path = "/actors/{id}",
    tag = "access",
    params(("id" = String, Path, description = "Actor name or pattern")),
    responses((status = 200, body = ActorDocument, description = "The entry that applies"), ReadErrors)
)]
pub(crate) async fn get(
    State(edge): State<Edge>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<ActorDocument>, ApiError> {
    Ok(Json(access::show_actor(directory(&edge)?, &caller.permit, &id)?.into()))
}

pub(super) fn directory(edge: &Edge) -> Result<&Directory, ApiError> {
    edge.access.as_ref().map(|access| access.directory()).ok_or_else(ApiError::internal)
}

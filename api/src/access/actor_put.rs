//! `PUT /actors/{id}`: creates or replaces an actor.
//!
//! The whole entry is replaced. An omitted member gets the default of an actor without an entry: no
//! scopes, sixty requests per minute, a level derived from the risk.

use super::actor_get::{ActorDocument, directory};
use super::notify::Notify;
use super::wire::{ActorKind, AutonomyLevel};
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::WriteErrors;
use crate::extract::ApiJson;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::{Path, State};
use chimera_core::access::ActorEntry;
use chimera_engine::access;
use serde::Deserialize;
use utoipa::ToSchema;

/// An actor's registry entry.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActorBody {
    /// Scopes granted directly.
    #[serde(default)]
    scopes: Vec<String>,
    /// Roles of its tenant, which grant further scopes.
    #[serde(default)]
    #[schema(example = json!(["clerk"]))]
    roles: Vec<String>,
    /// Maximum requests per minute.
    quota_per_minute: Option<u32>,
    /// Autonomy level; derived from the risk if omitted.
    autonomy_level: Option<AutonomyLevel>,
    /// Kind of the actor; unchanged if omitted.
    kind: Option<ActorKind>,
    /// Slug of its tenant; the caller's tenant if omitted.
    tenant: Option<String>,
    /// Where notifications about its runs are sent.
    notify: Option<Notify>,
    /// A disabled actor is refused everything.
    #[serde(default)]
    disabled: bool,
}

/// Creates or replaces an actor.
#[utoipa::path(
    put,
    path = "/actors/{id}",
    tag = "access",
    params(("id" = String, Path, description = "Actor name or pattern")),
    request_body = ActorBody,
    responses((status = 200, body = ActorDocument, description = "The entry that applies now"), WriteErrors)
)]
pub(crate) async fn put(
    State(edge): State<Edge>,
    caller: Caller,
    Path(id): Path<String>,
    ApiJson(body): ApiJson<ActorBody>,
) -> Result<Json<ActorDocument>, ApiError> {
    let directory = directory(&edge)?;
    let plain = ActorEntry::default_for(&id, caller.permit.tenant());
    let notify = body.notify.map(Notify::validate).transpose()?;
    let entry = ActorEntry {
        kind: body.kind.map_or_else(|| directory.kind(&id), Into::into),
        scopes: body.scopes,
        roles: body.roles,
        quota_per_minute: body.quota_per_minute.unwrap_or(plain.quota_per_minute),
        level: body.autonomy_level.map(Into::into),
        notify,
        disabled: body.disabled,
        ..plain
    };
    Ok(Json(access::put_actor(directory, &caller.permit, entry, body.tenant.as_deref()).await?.into()))
}

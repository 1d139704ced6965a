//! `PUT /actors/{id}`: writes an entry of the registry.
//!
//! The whole entry is written. What is left out gets the value of somebody who has no entry: no
//! scopes, sixty requests a minute; the level is then decided by the risk.

use super::actor_get::{ActorDocument, directory};
use super::notify::Notify;
use crate::caller::Caller;
use crate::edge::Edge;
use crate::extract::ApiJson;
use crate::problem::ApiError;
use crate::refusals::Changing;
use axum::Json;
use axum::extract::{Path, State};
use chimera_core::access::{Entry, Kind, Level};
use serde::Deserialize;
use utoipa::ToSchema;

/// An entry.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActorBody {
    /// Scopes of its own.
    #[serde(default)]
    scopes: Vec<String>,
    /// Roles of its tenant, whose scopes it has too.
    #[serde(default)]
    #[schema(example = json!(["clerk"]))]
    roles: Vec<String>,
    /// Requests a minute.
    quota_per_minute: Option<u32>,
    /// How freely it may act; without it the risk decides.
    #[schema(value_type = Option<String>, example = "L1_Draft")]
    autonomy_level: Option<Level>,
    /// `human` or `service`; without it what the registry says of the name so far.
    #[schema(value_type = Option<String>, example = "service")]
    kind: Option<Kind>,
    /// The slug of its tenant; the caller's own without it.
    tenant: Option<String>,
    /// Where it is told how its runs ended.
    notify: Option<Notify>,
    /// It may do nothing for now.
    #[serde(default)]
    disabled: bool,
}

/// Writes an entry.
#[utoipa::path(
    put,
    path = "/actors/{id}",
    tag = "access",
    params(("id" = String, Path, description = "The actor's name, or a pattern")),
    request_body = ActorBody,
    responses((status = 200, body = ActorDocument, description = "The entry that counts now"), Changing)
)]
pub(crate) async fn put(
    State(edge): State<Edge>,
    caller: Caller,
    Path(id): Path<String>,
    ApiJson(body): ApiJson<ActorBody>,
) -> Result<Json<ActorDocument>, ApiError> {
    let directory = directory(&edge)?;
    let plain = Entry::default_for(&id, caller.permit.tenant());
    let notify = body.notify.map(Notify::checked).transpose()?;
    let entry = Entry {
        tenant: plain.tenant,
        kind: body.kind.unwrap_or_else(|| directory.kind(&id)),
        scopes: body.scopes,
        roles: body.roles,
        quota_per_minute: body.quota_per_minute.unwrap_or(plain.quota_per_minute),
        level: body.autonomy_level,
        notify,
        disabled: body.disabled,
        id: plain.id,
    };
    Ok(Json(directory.put_actor(&caller.permit, entry, body.tenant.as_deref()).await?.into()))
}

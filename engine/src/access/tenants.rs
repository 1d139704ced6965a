//! Tenants, managed by the operator.
//!
//! People refer to a tenant by its slug. Internally only its id is used: a random one, which reveals nothing and stays
//! when the slug changes. Tenants from before ids were random have their slug as id. Disabling a tenant locks its
//! actors out, ends its streams and stops its runs from making calls; its data stays.

use super::actors::{add_entry, ensure_tenant, record_in};
use super::authenticator::{Authenticator, Credentials};
use super::directory::{Directory, Snapshot};
use super::permit::Permit;
use super::registry_change::{change_registry, expect_registry};
use crate::error::EngineError;
use crate::ledger::audit::{self, EventRecord};
use crate::port::CommitError;
use chimera_core::access::tables::{TENANTS, TenantRow, tenants};
use chimera_core::access::tenant::{TenantStatus, is_slug};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::limits::{TENANT_NAME_CHARS_MAX, TENANTS_MAX};
use chimera_core::record::{Conflict, Insert, Tx, Update};
use chimera_core::text::did_you_mean;
use chimera_core::time::Timestamp;
use futures::FutureExt;
use serde_json::json;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantView {
    pub id: String,
    pub slug: String,
    pub name: String,
    /// Its actors can't authenticate.
    pub disabled: bool,
    /// `None`: only the configuration names it, and nothing is stored yet.
    pub created_at: Option<Timestamp>,
    /// For optimistic concurrency control.
    pub(super) version: i64,
}

impl From<TenantRow> for TenantView {
    fn from(row: TenantRow) -> Self {
        Self {
            id: row.id,
            slug: row.slug,
            name: row.name,
            disabled: row.status == TenantStatus::Suspended,
            created_at: Some(row.created_at),
            version: row.state_version,
        }
    }
}

/// All tenants, sorted by slug.
pub fn list_tenants(directory: &Directory, permit: &Permit) -> Result<Vec<TenantView>, EngineError> {
    require_operator(directory, permit)?;
    let mut all: Vec<TenantView> = directory.snapshot().tenants.values().cloned().collect();
    all.sort_by(|one, other| one.slug.cmp(&other.slug));
    Ok(all)
}

pub fn show_tenant(directory: &Directory, permit: &Permit, slug: &str) -> Result<TenantView, EngineError> {
    require_operator(directory, permit)?;
    let snapshot = directory.snapshot();
    snapshot.find_by_slug(slug).cloned().ok_or_else(|| unknown_tenant(slug, &snapshot))
}

/// Adds a tenant with a new id. Nothing is shared with it unless the configuration says so.
pub async fn add_tenant(
    directory: &Directory,
    permit: &Permit,
    slug: &str,
    name: Option<&str>,
) -> Result<TenantView, EngineError> {
    change_registry(directory, permit, |permit| {
        async move { try_add_tenant(directory, &permit, slug, name).await }.boxed()
    })
    .await
}

async fn try_add_tenant(
    directory: &Directory,
    permit: &Permit,
    slug: &str,
    name: Option<&str>,
) -> Result<TenantView, EngineError> {
    require_operator(directory, permit)?;
    let refused =
        |pointer: &str, what: String| Err(ErrorBody::new(Code::ValidationFailed, what).with("pointer", pointer).into());
    if !is_slug(slug) {
        let what = "use lower-case letters, digits and hyphens, starting with a letter, 63 characters at most";
        return refused("/slug", format!("`{slug}` is not a valid tenant slug: {what}"));
    }
    let name = name.unwrap_or(slug).trim();
    if !(1..=TENANT_NAME_CHARS_MAX).contains(&name.chars().count()) || name.chars().any(char::is_control) {
        return refused(
            "/name",
            format!("a tenant's name must have 1 to {TENANT_NAME_CHARS_MAX} printable characters"),
        );
    }
    let taken = || EngineError::refused(Code::OccConflict, format!("the tenant {slug} already exists"));
    let snapshot = directory.snapshot();
    if snapshot.find_by_slug(slug).is_some() {
        return Err(taken());
    }
    if snapshot.tenants.len() >= TENANTS_MAX {
        return refused("/slug", format!("there are already {TENANTS_MAX} tenants, which is the limit"));
    }
    let (id, now) = (directory.parts.random.opaque_id(), directory.parts.clock.now());
    let row = vec![
        (tenants::id, id.as_str().into()),
        (tenants::slug, slug.into()),
        (tenants::name, name.into()),
        (tenants::created_at, now.into()),
        (tenants::updated_at, now.into()),
    ];
    let mut tx = Tx { inserts: vec![Insert::new(&TENANTS, row)?], ..Tx::default() };
    // The number of tenants is limited.
    ensure_tenant(directory, permit, &directory.settings.tenant).await?;
    expect_registry(&mut tx, &snapshot, &directory.settings.tenant)?;
    let event = permit.event(id.as_str(), "tenant.created", json!({"slug": slug, "name": name}));
    // No other tenant is told, also if the operator acts for one.
    record_in(directory, &mut tx, permit, &directory.settings.tenant, event)?;
    match audit::commit(&*directory.parts.records, tx).await {
        // It was added concurrently.
        Err(error @ CommitError::Conflict(Conflict::Exists(_))) if !permit.is_alongside_conflict(&error) => {
            return Err(taken());
        }
        committed => committed?,
    };
    directory.refresh_and_announce().await?;
    show_tenant(directory, permit, slug)
}

/// Disables or enables a tenant.
pub async fn set_tenant_disabled(
    directory: &Directory,
    permit: &Permit,
    slug: &str,
    disabled: bool,
) -> Result<TenantView, EngineError> {
    let set = |permit: Permit| async move { try_set_tenant_disabled(directory, &permit, slug, disabled).await }.boxed();
    change_registry(directory, permit, set).await
}

async fn try_set_tenant_disabled(
    directory: &Directory,
    permit: &Permit,
    slug: &str,
    disabled: bool,
) -> Result<TenantView, EngineError> {
    let tenant = show_tenant(directory, permit, slug)?;
    if tenant.id == directory.settings.tenant {
        let what = format!("cannot disable the tenant {slug}: no operator would be left");
        return Err(EngineError::refused(Code::ValidationFailed, what));
    }
    if tenant.disabled == disabled {
        return Ok(tenant);
    }
    let status = if disabled { TenantStatus::Suspended } else { TenantStatus::Active };
    let set = vec![(tenants::status, status.into()), (tenants::updated_at, directory.parts.clock.now().into())];
    let key = vec![tenant.id.as_str().into()];
    let mut tx = Tx { updates: vec![Update::versioned(&TENANTS, key, tenant.version, set)?], ..Tx::default() };
    let event = if disabled { "tenant.disabled" } else { "tenant.enabled" };
    let event = permit.event(tenant.id.as_str(), event, json!({"slug": slug}));
    record_in(directory, &mut tx, permit, &tenant.id, event)?;
    audit::commit(&*directory.parts.records, tx).await?;
    directory.refresh_and_announce().await?;
    show_tenant(directory, permit, slug)
}

/// Refuses callers who are not operators.
fn require_operator(directory: &Directory, permit: &Permit) -> Result<(), EngineError> {
    if directory.is_operator(permit) {
        return Ok(());
    }
    let what = "only an operator may manage tenants";
    Err(ErrorBody::new(Code::RbacForbidden, what).with("required_scope", "*").into())
}

/// Whether the configuration names a tenant, in an entry or a tenant section.
pub(super) fn names_tenant(directory: &Directory, slug: &str) -> bool {
    let settings = &directory.settings;
    settings.tenants.contains_key(slug) || settings.entries.iter().any(|entry| entry.tenant == slug)
}

/// Lets an operator act for the tenant with this slug. That tenant's ledger records it before anything happens.
pub async fn act_for(
    authenticator: &Authenticator,
    permit: &Permit,
    slug: &str,
    shown: &Credentials<'_>,
) -> Result<Permit, ErrorBody> {
    let directory = &authenticator.directory;
    let tenant = show_tenant(directory, permit, slug).map_err(|error| error.body())?;
    if tenant.id == permit.tenant() {
        return Ok(permit.clone());
    }
    // An operator may look at what a disabled tenant left, and enable it.
    if !shown.reads {
        directory.check_enabled(&tenant.id)?;
    }
    let data = json!({"target": shown.target, "slug": slug, "operator_of": permit.tenant()});
    let event = permit.event(permit.actor(), "operator.acted", data);
    let mut tx = Tx::default();
    // Only there: what the request changes is recorded in both ledgers, with the change.
    let entered = add_entry(directory, &mut tx, EventRecord { tenant_id: tenant.id.clone(), ..event });
    entered.map_err(|error| error.body())?;
    let committed = audit::commit(&*directory.parts.records, tx).await;
    committed.map_err(|error| EngineError::from(error).body())?;
    Ok(permit.clone().acting_for(&tenant.id))
}

/// Restores the tenant that a readmitted operator acted for.
pub(super) fn restore_acting_tenant(authenticator: &Authenticator, permit: Permit, before: &Permit) -> Option<Permit> {
    match before.acts_for() {
        None => Some(permit),
        Some(tenant) => authenticator.directory.is_operator(&permit).then(|| permit.acting_for(tenant)),
    }
}

/// For operators only: the suggestion names other tenants.
fn unknown_tenant(slug: &str, snapshot: &Snapshot) -> EngineError {
    let close = did_you_mean(slug, snapshot.tenants.values().map(|tenant| tenant.slug.as_str()));
    let body = ErrorBody::new(Code::NotFound, format!("no tenant `{slug}`{close}"));
    body.with("hint", "chimera tenant list shows all tenants; chimera tenant add creates one").into()
}

//! Tenants, managed by the operator.
//!
//! People refer to a tenant by its slug. Internally only its id is used: a random one, which reveals nothing and stays
//! when the slug changes. Tenants from before ids were random have their slug as id. Disabling a tenant locks its
//! actors out, ends its streams and stops its runs from making calls; its data stays.

use super::authenticator::{Authenticator, Credentials};
use super::directory::{Directory, Snapshot};
use super::permit::Permit;
use super::registry_change::expect_registry;
use crate::error::EngineError;
use crate::ledger::audit;
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

impl Directory {
    /// All tenants, sorted by slug.
    pub fn list_tenants(&self, permit: &Permit) -> Result<Vec<TenantView>, EngineError> {
        self.require_operator(permit)?;
        let mut all: Vec<TenantView> = self.snapshot().tenants.values().cloned().collect();
        all.sort_by(|one, other| one.slug.cmp(&other.slug));
        Ok(all)
    }

    pub fn show_tenant(&self, permit: &Permit, slug: &str) -> Result<TenantView, EngineError> {
        self.require_operator(permit)?;
        let snapshot = self.snapshot();
        snapshot.find_by_slug(slug).cloned().ok_or_else(|| unknown_tenant(slug, &snapshot))
    }

    /// Adds a tenant with a new id. Nothing is shared with it unless the configuration says so.
    pub async fn add_tenant(&self, permit: &Permit, slug: &str, name: Option<&str>) -> Result<TenantView, EngineError> {
        self.change(permit, |permit| async move { self.try_add_tenant(&permit, slug, name).await }.boxed()).await
    }

    async fn try_add_tenant(&self, permit: &Permit, slug: &str, name: Option<&str>) -> Result<TenantView, EngineError> {
        self.require_operator(permit)?;
        let refused = |pointer: &str, what: String| {
            Err(ErrorBody::new(Code::ValidationFailed, what).with("pointer", pointer).into())
        };
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
        let snapshot = self.snapshot();
        if snapshot.find_by_slug(slug).is_some() {
            return Err(taken());
        }
        if snapshot.tenants.len() >= TENANTS_MAX {
            return refused("/slug", format!("there are already {TENANTS_MAX} tenants, which is the limit"));
        }
        let (id, now) = (self.parts.random.opaque_id(), self.parts.clock.now());
        let row = vec![
            (tenants::id, id.as_str().into()),
            (tenants::slug, slug.into()),
            (tenants::name, name.into()),
            (tenants::created_at, now.into()),
            (tenants::updated_at, now.into()),
        ];
        let mut tx = Tx { inserts: vec![Insert::new(&TENANTS, row)?], ..Tx::default() };
        // The number of tenants is limited.
        self.ensure_tenant(permit, &self.settings.tenant).await?;
        expect_registry(&mut tx, &snapshot, &self.settings.tenant)?;
        let event = permit.event(id.as_str(), "tenant.added", json!({"slug": slug, "name": name}));
        self.record(&mut tx, permit, event)?;
        match audit::commit(&*self.parts.records, tx).await {
            // It was added concurrently.
            Err(error @ CommitError::Conflict(Conflict::Exists(_))) if !permit.is_alongside_conflict(&error) => {
                return Err(taken());
            }
            committed => committed?,
        };
        self.refresh_and_announce().await?;
        self.show_tenant(permit, slug)
    }

    /// Disables or enables a tenant.
    pub async fn set_tenant_disabled(
        &self,
        permit: &Permit,
        slug: &str,
        disabled: bool,
    ) -> Result<TenantView, EngineError> {
        let set = |permit: Permit| async move { self.try_set_tenant_disabled(&permit, slug, disabled).await }.boxed();
        self.change(permit, set).await
    }

    async fn try_set_tenant_disabled(
        &self,
        permit: &Permit,
        slug: &str,
        disabled: bool,
    ) -> Result<TenantView, EngineError> {
        let tenant = self.show_tenant(permit, slug)?;
        if tenant.id == self.settings.tenant {
            let what = format!("cannot disable the tenant {slug}: no operator would be left");
            return Err(EngineError::refused(Code::ValidationFailed, what));
        }
        if tenant.disabled == disabled {
            return Ok(tenant);
        }
        let status = if disabled { TenantStatus::Suspended } else { TenantStatus::Active };
        let set = vec![(tenants::status, status.into()), (tenants::updated_at, self.parts.clock.now().into())];
        let key = vec![tenant.id.as_str().into()];
        let mut tx = Tx { updates: vec![Update::versioned(&TENANTS, key, tenant.version, set)?], ..Tx::default() };
        let event = if disabled { "tenant.disabled" } else { "tenant.enabled" };
        let event = permit.event(tenant.id.as_str(), event, json!({"slug": slug}));
        // The tenant's own ledger records it too, with who did it.
        self.record_in_both(&mut tx, permit, &tenant.id, event)?;
        audit::commit(&*self.parts.records, tx).await?;
        self.refresh_and_announce().await?;
        self.show_tenant(permit, slug)
    }

    /// Refuses callers who are not operators.
    fn require_operator(&self, permit: &Permit) -> Result<(), EngineError> {
        if self.is_operator(permit) {
            return Ok(());
        }
        let what = "only an operator may manage tenants";
        Err(ErrorBody::new(Code::RbacForbidden, what).with("required_scope", "*").into())
    }

    /// Whether the configuration names a tenant, in an entry or a tenant section.
    pub(super) fn names_tenant(&self, slug: &str) -> bool {
        let settings = &self.settings;
        settings.tenants.contains_key(slug) || settings.entries.iter().any(|entry| entry.tenant == slug)
    }
}

impl Authenticator {
    /// Lets an operator act for the tenant with this slug. That tenant's ledger records it before anything happens.
    pub async fn act_for(&self, permit: &Permit, slug: &str, shown: &Credentials<'_>) -> Result<Permit, ErrorBody> {
        let directory = &self.directory;
        let tenant = directory.show_tenant(permit, slug).map_err(|error| error.body())?;
        if tenant.id == permit.tenant() {
            return Ok(permit.clone());
        }
        let (mut tx, told) = (Tx::default(), json!({"target": shown.target, "slug": slug}));
        let event = permit.event(permit.actor(), "operator.acted", told);
        let entered = directory.record_for(&mut tx, permit, &tenant.id, event);
        entered.map_err(|error| error.body())?;
        let committed = audit::commit(&*directory.parts.records, tx).await;
        committed.map_err(|error| EngineError::from(error).body())?;
        Ok(permit.clone().acting_for(&tenant.id))
    }

    /// Restores the tenant that a readmitted operator acted for.
    pub(super) fn restore_acting_tenant(&self, permit: Permit, before: &Permit) -> Option<Permit> {
        match before.acts_for() {
            None => Some(permit),
            Some(tenant) => self.directory.is_operator(&permit).then(|| permit.acting_for(tenant)),
        }
    }
}

/// For operators only: the suggestion names other tenants.
fn unknown_tenant(slug: &str, snapshot: &Snapshot) -> EngineError {
    let close = did_you_mean(slug, snapshot.tenants.values().map(|tenant| tenant.slug.as_str()));
    let body = ErrorBody::new(Code::NotFound, format!("no tenant `{slug}`{close}"));
    body.with("hint", "chimera tenant list shows all tenants; chimera tenant add creates one").into()
}

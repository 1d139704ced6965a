//! Tenants: who there is beside the default tenant, for the operator who looks after them.
//!
//! People call a tenant by its slug. Inside, only its id travels: a random one, which says nothing and stays when
//! the slug is written elsewhere. Tenants from before ids were random have their slug for an id. A disabled tenant's
//! actors are let in no more, its streams end and its runs make no further call; everything that it has stays.

use super::directory::{Directory, Snapshot};
use super::door::{Door, Presented};
use super::once::is_repeated;
use super::permit::Permit;
use crate::error::EngineError;
use crate::ledger::audit;
use crate::port::CommitError;
use chimera_core::access::tables::TENANTS;
use chimera_core::access::tenant::is_slug;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::limits::{TENANT_NAME_CHARS_MAX, TENANTS_MAX};
use chimera_core::record::{Conflict, Insert, Row, Tx, Update};
use chimera_core::time::Timestamp;
use serde_json::json;

/// A tenant as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantShown {
    /// What it is inside.
    pub id: String,
    /// What people call it.
    pub slug: String,
    /// Its name in full.
    pub name: String,
    /// Its actors are let in no more.
    pub disabled: bool,
    /// Since when it is there; none: the configuration names it, and nothing of it is stored yet.
    pub created_at: Option<Timestamp>,
    /// How often it was changed.
    pub(super) version: i64,
}

impl TenantShown {
    pub(super) fn of_row(row: &Row) -> Self {
        Self {
            id: row.text("id").to_owned(),
            slug: row.text("slug").to_owned(),
            name: row.text("name").to_owned(),
            disabled: row.text("status") != "active",
            created_at: row.get("created_at").as_time(),
            version: row.int("state_version"),
        }
    }
}

impl Snapshot {
    /// What a tenant is called; a tenant that is not stored has its id for a slug.
    pub(crate) fn slug_of<'a>(&'a self, tenant: &'a str) -> &'a str {
        self.tenants.get(tenant).map_or(tenant, |tenant| tenant.slug.as_str())
    }

    /// The tenant that is called so.
    pub(super) fn called(&self, slug: &str) -> Option<&TenantShown> {
        self.tenants.values().find(|tenant| tenant.slug == slug)
    }

    /// The id behind a slug; one that is not stored is its own.
    pub(super) fn id_of(&self, slug: &str) -> String {
        self.called(slug).map_or_else(|| slug.to_owned(), |tenant| tenant.id.clone())
    }
}

impl Directory {
    /// Every tenant, by its slug.
    pub fn list_tenants(&self, permit: &Permit) -> Result<Vec<TenantShown>, EngineError> {
        self.require_operator(permit)?;
        let mut all: Vec<TenantShown> = self.snapshot().tenants.values().cloned().collect();
        all.sort_by(|one, other| one.slug.cmp(&other.slug));
        Ok(all)
    }

    /// A tenant by its slug.
    pub fn show_tenant(&self, permit: &Permit, slug: &str) -> Result<TenantShown, EngineError> {
        self.require_operator(permit)?;
        self.snapshot().called(slug).cloned().ok_or_else(|| unknown(slug))
    }

    /// Adds a tenant with a new id. Nothing is shared with it until the configuration says so.
    pub async fn add_tenant(
        &self,
        permit: &Permit,
        slug: &str,
        name: Option<&str>,
    ) -> Result<TenantShown, EngineError> {
        self.require_operator(permit)?;
        let refused = |pointer: &str, what: String| {
            Err(ErrorBody::new(Code::ValidationFailed, what).with("pointer", pointer).into())
        };
        if !is_slug(slug) {
            let what = "write lower-case letters, digits and hyphens, beginning with a letter, 63 at most";
            return refused("/slug", format!("`{slug}` can't be a tenant's slug: {what}"));
        }
        let name = name.unwrap_or(slug).trim();
        if !(1..=TENANT_NAME_CHARS_MAX).contains(&name.chars().count()) || name.chars().any(char::is_control) {
            return refused("/name", format!("a tenant's name has 1 to {TENANT_NAME_CHARS_MAX} printable characters"));
        }
        let taken = || EngineError::refused(Code::OccConflict, format!("there is a tenant {slug} already"));
        let snapshot = self.snapshot();
        if snapshot.called(slug).is_some() {
            return Err(taken());
        }
        if snapshot.tenants.len() >= TENANTS_MAX {
            return refused("/slug", format!("there are {TENANTS_MAX} tenants, as many as there can be"));
        }
        let (id, now) = (self.parts.random.opaque_id(), self.parts.clock.now());
        let row = vec![
            ("id", id.as_str().into()),
            ("slug", slug.into()),
            ("name", name.into()),
            ("created_at", now.into()),
            ("updated_at", now.into()),
        ];
        let mut tx = Tx { inserts: vec![Insert::into(&TENANTS, row)?], ..Tx::default() };
        self.enter(&mut tx, permit, &id, "tenant.added", json!({"slug": slug, "name": name}))?;
        match audit::commit(&*self.parts.records, tx).await {
            // Somebody else adds it at the same time.
            Err(error @ CommitError::Conflict(Conflict::Exists(_))) if !is_repeated(&error) => return Err(taken()),
            committed => committed?,
        };
        self.changed().await?;
        self.show_tenant(permit, slug)
    }

    /// Lets the actors of a tenant in no more, or again.
    pub async fn set_tenant(&self, permit: &Permit, slug: &str, disabled: bool) -> Result<TenantShown, EngineError> {
        let tenant = self.show_tenant(permit, slug)?;
        if tenant.id == self.settings.tenant {
            let what = format!("the tenant {slug} stays: no operator would be left");
            return Err(EngineError::refused(Code::ValidationFailed, what));
        }
        if tenant.disabled == disabled {
            return Ok(tenant);
        }
        let status = if disabled { "suspended" } else { "active" };
        let set = vec![("status", status.into()), ("updated_at", self.parts.clock.now().into())];
        let key = vec![tenant.id.as_str().into()];
        let mut tx = Tx { updates: vec![Update::versioned(&TENANTS, key, tenant.version, set)?], ..Tx::default() };
        let event = if disabled { "tenant.disabled" } else { "tenant.enabled" };
        self.enter(&mut tx, permit, &tenant.id, event, json!({"slug": slug}))?;
        // The tenant's own ledger says so too, and who did it.
        self.enter_for(&mut tx, permit, &tenant.id, (&tenant.id, event), json!({"slug": slug}))?;
        audit::commit(&*self.parts.records, tx).await?;
        self.changed().await?;
        self.show_tenant(permit, slug)
    }

    /// Refuses whoever does not look after all tenants.
    fn require_operator(&self, permit: &Permit) -> Result<(), EngineError> {
        if self.is_operator(permit) {
            return Ok(());
        }
        let what = "only an operator looks after tenants";
        Err(ErrorBody::new(Code::RbacForbidden, what).with("required_scope", "*").into())
    }

    /// Whether the configuration names a tenant: one of its entries, or what it registered.
    pub(super) fn names_tenant(&self, slug: &str) -> bool {
        let settings = &self.settings;
        settings.tenants.contains_key(slug) || settings.entries.iter().any(|entry| entry.tenant == slug)
    }
}

impl Door {
    /// Lets an operator act for the tenant with this slug. That tenant's ledger says so before anything happens.
    pub async fn act_for(&self, permit: &Permit, slug: &str, shown: &Presented<'_>) -> Result<Permit, ErrorBody> {
        let directory = &self.directory;
        let tenant = directory.show_tenant(permit, slug).map_err(|error| error.body())?;
        if tenant.id == permit.tenant() {
            return Ok(permit.clone());
        }
        let (mut tx, told) = (Tx::default(), json!({"target": shown.target, "slug": slug}));
        let entered = directory.enter_for(&mut tx, permit, &tenant.id, (permit.actor(), "operator.acted"), told);
        entered.map_err(|error| error.body())?;
        let committed = audit::commit(&*directory.parts.records, tx).await;
        committed.map_err(|error| EngineError::from(error).body())?;
        Ok(permit.clone().acting_for(&tenant.id))
    }

    /// Somebody who was let in again, for the tenant for which they acted before.
    pub(super) fn still_acting(&self, permit: Permit, before: &Permit) -> Option<Permit> {
        match before.acts_for() {
            None => Some(permit),
            Some(tenant) => self.directory.is_operator(&permit).then(|| permit.acting_for(tenant)),
        }
    }
}

pub(super) fn unknown(slug: &str) -> EngineError {
    let body = ErrorBody::new(Code::NotFound, format!("there is no tenant {slug}"));
    body.with("hint", "chimera tenant list shows every tenant; chimera tenant add makes one").into()
}

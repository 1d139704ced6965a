//! The tables of the access room: tenants, actors, keys, tokens.
//!
//! Expiring rows (tokens, nonces) have no tenant column. They are looked up by key and swept by time.

use crate::record::{Column, Kind, Table};

pub static TENANTS: Table = Table {
    name: "tenants",
    columns: &[
        Column::new("id", Kind::Text),
        Column::new("slug", Kind::Text),
        Column::new("name", Kind::Text),
        Column::new("status", Kind::Text).default(),
        Column::new("created_at", Kind::Time).default(),
        Column::new("updated_at", Kind::Time).default(),
        Column::new("state_version", Kind::Int).default(),
    ],
    key: &["id"],
    uniques: &[&["slug"]],
    tenant: None,
    rank: 100,
};

/// Actors: people, services, and patterns of names.
pub static ACTORS: Table = Table {
    name: "actors",
    columns: &[
        Column::new("id", Kind::Text),
        Column::new("tenant_id", Kind::Text),
        Column::new("kind", Kind::Text),
        Column::new("identity_id", Kind::Uuid),
        Column::new("scopes", Kind::Texts),
        Column::new("roles", Kind::Texts).default(),
        Column::new("quota_per_minute", Kind::Int32).default(),
        Column::new("autonomy_level", Kind::Text).nullable(),
        Column::new("notify", Kind::Json).nullable(),
        Column::new("disabled", Kind::Bool).default(),
        Column::new("created_at", Kind::Time).default(),
        Column::new("updated_at", Kind::Time).default(),
        Column::new("state_version", Kind::Int).default(),
    ],
    key: &["id"],
    uniques: &[&["identity_id"]],
    tenant: Some("tenant_id"),
    rank: 101,
};

/// Signing keys of actors.
pub static ACTOR_KEYS: Table = Table {
    name: "actor_keys",
    columns: &[
        Column::new("id", Kind::Uuid),
        Column::new("actor_id", Kind::Text),
        Column::new("tenant_id", Kind::Text),
        Column::new("secret_ref", Kind::Text).nullable(),
        Column::new("sealed_key", Kind::Bytes).nullable(),
        Column::new("not_before", Kind::Time).default(),
        Column::new("expires_at", Kind::Time).nullable(),
        Column::new("revoked_at", Kind::Time).nullable(),
        Column::new("created_at", Kind::Time).default(),
    ],
    key: &["id"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 102,
};

/// Refresh token families: all refresh tokens that descend from one sign-in.
pub static TOKEN_FAMILIES: Table = Table {
    name: "token_families",
    columns: &[
        Column::new("id", Kind::Uuid),
        Column::new("actor_id", Kind::Text),
        Column::new("tenant_id", Kind::Text),
        Column::new("scopes", Kind::Texts),
        Column::new("created_at", Kind::Time).default(),
        Column::new("expires_at", Kind::Time),
        Column::new("revoked_at", Kind::Time).nullable(),
        Column::new("revoked_because", Kind::Text).nullable(),
        Column::new("state_version", Kind::Int).default(),
    ],
    key: &["id"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 103,
};

/// Individual refresh tokens, by digest.
pub static REFRESH_TOKENS: Table = Table {
    name: "refresh_tokens",
    columns: &[
        Column::new("token_digest", Kind::Bytes),
        Column::new("family_id", Kind::Uuid),
        Column::new("issued_at", Kind::Time).default(),
        Column::new("expires_at", Kind::Time),
        Column::new("used_at", Kind::Time).nullable(),
    ],
    key: &["token_digest"],
    uniques: &[],
    tenant: None,
    rank: 104,
};

/// Revoked access tokens.
pub static REVOKED_TOKENS: Table = Table {
    name: "revoked_tokens",
    columns: &[
        Column::new("token_id", Kind::Text),
        Column::new("actor_id", Kind::Text),
        Column::new("tenant_id", Kind::Text),
        Column::new("revoked_at", Kind::Time).default(),
        Column::new("expires_at", Kind::Time),
    ],
    key: &["token_id"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 105,
};

/// Used nonces.
pub static NONCES: Table = Table {
    name: "nonces",
    columns: &[
        Column::new("actor_id", Kind::Text),
        Column::new("nonce", Kind::Text),
        Column::new("seen_at", Kind::Time).default(),
        Column::new("expires_at", Kind::Time),
    ],
    key: &["actor_id", "nonce"],
    uniques: &[],
    tenant: None,
    rank: 106,
};

/// One-time decision links for one person each. The link itself is only in the message.
pub static APPROVAL_LINKS: Table = Table {
    name: "approval_links",
    columns: &[
        Column::new("token_digest", Kind::Bytes),
        Column::new("tenant_id", Kind::Text),
        Column::new("run_id", Kind::Uuid),
        Column::new("approval_id", Kind::Uuid),
        Column::new("actor", Kind::Text),
        Column::new("expires_at", Kind::Time),
        Column::new("used_at", Kind::Time).nullable(),
        Column::new("created_at", Kind::Time).default(),
    ],
    key: &["token_digest"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 312,
};

/// The room's tables and views.
pub static ALL: &[&Table] =
    &[&TENANTS, &ACTORS, &ACTOR_KEYS, &TOKEN_FAMILIES, &REFRESH_TOKENS, &REVOKED_TOKENS, &NONCES, &APPROVAL_LINKS];

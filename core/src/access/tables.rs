//! The tables of the access room: tenants, actors, keys, tokens.
//!
//! Expiring rows (tokens, nonces) have no tenant column. They are looked up by key and swept by time.

use crate::record::{Column, ColumnType, Table};

pub static TENANTS: Table = Table {
    name: "tenants",
    columns: &[
        Column::new("id", ColumnType::Text),
        Column::new("slug", ColumnType::Text),
        Column::new("name", ColumnType::Text),
        Column::new("status", ColumnType::Text).default(),
        Column::new("created_at", ColumnType::Time).default(),
        Column::new("updated_at", ColumnType::Time).default(),
        Column::new("state_version", ColumnType::Int).default(),
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
        Column::new("id", ColumnType::Text),
        Column::new("tenant_id", ColumnType::Text),
        Column::new("kind", ColumnType::Text),
        Column::new("identity_id", ColumnType::Uuid),
        Column::new("scopes", ColumnType::Texts),
        Column::new("roles", ColumnType::Texts).default(),
        Column::new("quota_per_minute", ColumnType::Int32).default(),
        Column::new("autonomy_level", ColumnType::Text).nullable(),
        Column::new("notify", ColumnType::Json).nullable(),
        Column::new("disabled", ColumnType::Bool).default(),
        Column::new("created_at", ColumnType::Time).default(),
        Column::new("updated_at", ColumnType::Time).default(),
        Column::new("state_version", ColumnType::Int).default(),
        Column::new("removed_at", ColumnType::Time).nullable(),
        Column::new("former_mails", ColumnType::Texts).nullable(),
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
        Column::new("id", ColumnType::Uuid),
        Column::new("actor_id", ColumnType::Text),
        Column::new("tenant_id", ColumnType::Text),
        Column::new("secret_ref", ColumnType::Text).nullable(),
        Column::new("sealed_key", ColumnType::Bytes).nullable(),
        Column::new("not_before", ColumnType::Time).default(),
        Column::new("expires_at", ColumnType::Time).nullable(),
        Column::new("revoked_at", ColumnType::Time).nullable(),
        Column::new("created_at", ColumnType::Time).default(),
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
        Column::new("id", ColumnType::Uuid),
        Column::new("actor_id", ColumnType::Text),
        Column::new("tenant_id", ColumnType::Text),
        Column::new("scopes", ColumnType::Texts),
        Column::new("created_at", ColumnType::Time).default(),
        Column::new("expires_at", ColumnType::Time),
        Column::new("revoked_at", ColumnType::Time).nullable(),
        Column::new("revoked_because", ColumnType::Text).nullable(),
        Column::new("state_version", ColumnType::Int).default(),
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
        Column::new("token_digest", ColumnType::Bytes),
        Column::new("family_id", ColumnType::Uuid),
        Column::new("issued_at", ColumnType::Time).default(),
        Column::new("expires_at", ColumnType::Time),
        Column::new("used_at", ColumnType::Time).nullable(),
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
        Column::new("token_id", ColumnType::Text),
        Column::new("actor_id", ColumnType::Text),
        Column::new("tenant_id", ColumnType::Text),
        Column::new("revoked_at", ColumnType::Time).default(),
        Column::new("expires_at", ColumnType::Time),
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
        Column::new("actor_id", ColumnType::Text),
        Column::new("nonce", ColumnType::Text),
        Column::new("seen_at", ColumnType::Time).default(),
        Column::new("expires_at", ColumnType::Time),
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
        Column::new("token_digest", ColumnType::Bytes),
        Column::new("tenant_id", ColumnType::Text),
        Column::new("run_id", ColumnType::Uuid),
        Column::new("approval_id", ColumnType::Uuid),
        Column::new("actor", ColumnType::Text),
        Column::new("expires_at", ColumnType::Time),
        Column::new("used_at", ColumnType::Time).nullable(),
        Column::new("created_at", ColumnType::Time).default(),
    ],
    key: &["token_digest"],
    uniques: &[],
    tenant: Some("tenant_id"),
    rank: 312,
};

/// The room's tables and views.
pub static ALL: &[&Table] =
    &[&TENANTS, &ACTORS, &ACTOR_KEYS, &TOKEN_FAMILIES, &REFRESH_TOKENS, &REVOKED_TOKENS, &NONCES, &APPROVAL_LINKS];

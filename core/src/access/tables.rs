//! The tables of the access room: tenants, actors, keys, tokens.
//!
//! Expiring rows (tokens, nonces) have no tenant column. They are looked up by key and swept by time.

use super::level::Level;
use super::registry::Kind;
use super::tenant::TenantStatus;
use crate::json::Digest32;
use crate::record::{Json, Table, table};
use crate::time::Timestamp;
use uuid::Uuid;

table! {
    TENANTS = tenants -> TenantRow {
        id: String,
        slug: String,
        name: String,
        status: TenantStatus [default],
        created_at: Timestamp [default],
        updated_at: Timestamp [default],
        state_version: i64 [default],
    }
    key: [id],
    unique: [slug],
    rank: 100,
}

table! {
    /// Actors: people, services, and patterns of names.
    ACTORS = actors -> ActorRow {
        id: String,
        tenant_id: String,
        kind: Kind,
        identity_id: Uuid,
        scopes: Vec<String>,
        roles: Vec<String> [default],
        quota_per_minute: u32 [default],
        autonomy_level: Option<Level>,
        notify: Option<Json>,
        disabled: bool [default],
        created_at: Timestamp [default],
        updated_at: Timestamp [default],
        state_version: i64 [default],
        removed_at: Option<Timestamp>,
        former_mails: Option<Vec<String>>,
    }
    key: [id],
    unique: [identity_id],
    tenant: tenant_id,
    rank: 101,
}

table! {
    /// HMAC keys of actors.
    ACTOR_KEYS = actor_keys -> ActorKeyRow {
        id: Uuid,
        actor_id: String,
        tenant_id: String,
        secret_ref: Option<String>,
        sealed_key: Option<Vec<u8>>,
        not_before: Timestamp [default],
        expires_at: Option<Timestamp>,
        revoked_at: Option<Timestamp>,
        created_at: Timestamp [default],
    }
    key: [id],
    tenant: tenant_id,
    rank: 102,
}

table! {
    /// Refresh token families: all refresh tokens that descend from one sign-in.
    TOKEN_FAMILIES = token_families -> TokenFamilyRow {
        id: Uuid,
        actor_id: String,
        tenant_id: String,
        scopes: Vec<String>,
        created_at: Timestamp [default],
        expires_at: Timestamp,
        revoked_at: Option<Timestamp>,
        revoked_because: Option<String>,
        state_version: i64 [default],
    }
    key: [id],
    tenant: tenant_id,
    rank: 103,
}

table! {
    /// Individual refresh tokens, by digest.
    REFRESH_TOKENS = refresh_tokens -> RefreshTokenRow {
        token_digest: Digest32,
        family_id: Uuid,
        issued_at: Timestamp [default],
        expires_at: Timestamp,
        used_at: Option<Timestamp>,
    }
    key: [token_digest],
    rank: 104,
}

table! {
    /// Revoked access tokens.
    REVOKED_TOKENS = revoked_tokens -> RevokedTokenRow {
        token_id: String,
        actor_id: String,
        tenant_id: String,
        revoked_at: Timestamp [default],
        expires_at: Timestamp,
    }
    key: [token_id],
    tenant: tenant_id,
    rank: 105,
}

table! {
    /// Used nonces.
    NONCES = nonces -> NonceRow {
        actor_id: String,
        nonce: String,
        seen_at: Timestamp [default],
        expires_at: Timestamp,
    }
    key: [actor_id, nonce],
    rank: 106,
}

table! {
    /// One-time decision links for one person each. The link itself is only in the message.
    APPROVAL_LINKS = approval_links -> ApprovalLinkRow {
        token_digest: Digest32,
        tenant_id: String,
        run_id: Uuid,
        approval_id: Uuid,
        actor: String,
        expires_at: Timestamp,
        used_at: Option<Timestamp>,
        created_at: Timestamp [default],
    }
    key: [token_digest],
    tenant: tenant_id,
    rank: 312,
}

table! {
    /// Ed25519 keys that actors sign requests and intents with.
    SIGNING_KEYS = signing_keys -> SigningKeyRow {
        kid: String,
        tenant_id: String,
        actor: String,
        public_key: [u8; 32],
        label: Option<String>,
        created_at: Timestamp [default],
        created_by: String,
        not_before: Timestamp [default],
        expires_at: Option<Timestamp>,
        revoked_at: Option<Timestamp>,
        revoked_by: Option<String>,
        reason: Option<String>,
    }
    key: [kid],
    tenant: tenant_id,
    rank: 107,
}

/// The room's tables and views.
pub static ALL: &[&Table] = &[
    &TENANTS,
    &ACTORS,
    &ACTOR_KEYS,
    &TOKEN_FAMILIES,
    &REFRESH_TOKENS,
    &REVOKED_TOKENS,
    &NONCES,
    &SIGNING_KEYS,
    &APPROVAL_LINKS,
];

-- Who acts: tenants, actors, their keys and their tokens.
-- Times are microseconds since 1970, UUIDs 16 bytes, decimals text, arrays and documents JSON text.

CREATE TABLE tenants (
    id TEXT NOT NULL PRIMARY KEY,
    slug TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'suspended')),
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    updated_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    state_version INTEGER NOT NULL DEFAULT 1
) STRICT, WITHOUT ROWID;

-- An id that ends in `*` is a pattern; the exact name goes before the longest pattern. The id is
-- unique over all tenants because a token names the actor alone.
CREATE TABLE actors (
    id TEXT NOT NULL PRIMARY KEY,
    tenant_id TEXT NOT NULL REFERENCES tenants(id),
    kind TEXT NOT NULL CHECK (kind IN ('human', 'service')),
    identity_id BLOB NOT NULL UNIQUE CHECK (length(identity_id) = 16),
    scopes TEXT NOT NULL,
    roles TEXT NOT NULL DEFAULT '[]',
    quota_per_minute INTEGER NOT NULL DEFAULT 60 CHECK (quota_per_minute >= 0),
    autonomy_level TEXT CHECK (autonomy_level IN ('L0_Ask', 'L1_Draft', 'L2_ExecuteNotify', 'L3_ExecuteSilent')),
    notify TEXT,
    disabled INTEGER NOT NULL DEFAULT 0 CHECK (disabled IN (0, 1)),
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    updated_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    state_version INTEGER NOT NULL DEFAULT 1
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_actors_tenant ON actors(tenant_id, id);

-- A key is the name of a secret or sealed bytes, never plain. Two keys overlap while one replaces
-- the other.
CREATE TABLE actor_keys (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    actor_id TEXT NOT NULL REFERENCES actors(id),
    tenant_id TEXT NOT NULL REFERENCES tenants(id),
    secret_ref TEXT,
    sealed_key BLOB,
    not_before INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    expires_at INTEGER,
    revoked_at INTEGER,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    CHECK ((secret_ref IS NULL) <> (sealed_key IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_actor_keys_actor ON actor_keys(actor_id);

-- All refresh tokens that descend from one sign-in. A token used twice revokes its family.
CREATE TABLE token_families (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    actor_id TEXT NOT NULL REFERENCES actors(id),
    tenant_id TEXT NOT NULL REFERENCES tenants(id),
    scopes TEXT NOT NULL,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    expires_at INTEGER NOT NULL,
    revoked_at INTEGER,
    revoked_because TEXT,
    state_version INTEGER NOT NULL DEFAULT 1
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_token_families_actor ON token_families(actor_id);
CREATE INDEX idx_token_families_expires_at ON token_families(expires_at);

CREATE TABLE refresh_tokens (
    token_digest BLOB NOT NULL PRIMARY KEY CHECK (length(token_digest) = 32),
    family_id BLOB NOT NULL REFERENCES token_families(id) ON DELETE CASCADE CHECK (length(family_id) = 16),
    issued_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    expires_at INTEGER NOT NULL,
    used_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_refresh_tokens_family ON refresh_tokens(family_id);

CREATE TABLE revoked_tokens (
    token_id TEXT NOT NULL PRIMARY KEY,
    actor_id TEXT NOT NULL,
    tenant_id TEXT NOT NULL,
    revoked_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_revoked_tokens_expires_at ON revoked_tokens(expires_at);

CREATE TABLE nonces (
    actor_id TEXT NOT NULL,
    nonce TEXT NOT NULL,
    seen_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (actor_id, nonce)
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_nonces_expires_at ON nonces(expires_at);

-- Who acts: tenants, actors, their keys and their tokens.

CREATE TABLE tenants (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    slug TEXT COLLATE "C" NOT NULL UNIQUE,
    name TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'suspended')),
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    state_version BIGINT NOT NULL DEFAULT 1
);

-- An id that ends in `*` is a pattern; the exact name goes before the longest pattern. The id is
-- unique over all tenants because a token names the actor alone.
CREATE TABLE actors (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    tenant_id TEXT NOT NULL REFERENCES tenants(id),
    kind TEXT NOT NULL CHECK (kind IN ('human', 'service')),
    identity_id UUID NOT NULL UNIQUE,
    scopes TEXT[] NOT NULL,
    roles TEXT[] NOT NULL DEFAULT '{}',
    quota_per_minute INTEGER NOT NULL DEFAULT 60 CHECK (quota_per_minute >= 0),
    autonomy_level TEXT CHECK (autonomy_level IN ('L0_Ask', 'L1_Draft', 'L2_ExecuteNotify', 'L3_ExecuteSilent')),
    notify JSONB,
    disabled BOOLEAN NOT NULL DEFAULT FALSE,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    state_version BIGINT NOT NULL DEFAULT 1
);

CREATE INDEX idx_actors_tenant ON actors(tenant_id, id);

-- A key is the name of a secret or sealed bytes, never plain. Two keys overlap while one replaces
-- the other.
CREATE TABLE actor_keys (
    id UUID NOT NULL PRIMARY KEY,
    actor_id TEXT NOT NULL REFERENCES actors(id),
    tenant_id TEXT NOT NULL REFERENCES tenants(id),
    secret_ref TEXT,
    sealed_key BYTEA,
    not_before TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    expires_at TIMESTAMPTZ,
    revoked_at TIMESTAMPTZ,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    CHECK ((secret_ref IS NULL) <> (sealed_key IS NULL))
);

CREATE INDEX idx_actor_keys_actor ON actor_keys(actor_id);

-- All refresh tokens that descend from one sign-in. A token used twice revokes its family.
CREATE TABLE token_families (
    id UUID NOT NULL PRIMARY KEY,
    actor_id TEXT NOT NULL REFERENCES actors(id),
    tenant_id TEXT NOT NULL REFERENCES tenants(id),
    scopes TEXT[] NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    expires_at TIMESTAMPTZ NOT NULL,
    revoked_at TIMESTAMPTZ,
    revoked_because TEXT,
    state_version BIGINT NOT NULL DEFAULT 1
);

CREATE INDEX idx_token_families_actor ON token_families(actor_id);
CREATE INDEX idx_token_families_expires_at ON token_families(expires_at);

CREATE TABLE refresh_tokens (
    token_digest BYTEA NOT NULL PRIMARY KEY CHECK (length(token_digest) = 32),
    family_id UUID NOT NULL REFERENCES token_families(id) ON DELETE CASCADE,
    issued_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    expires_at TIMESTAMPTZ NOT NULL,
    used_at TIMESTAMPTZ
);

CREATE INDEX idx_refresh_tokens_family ON refresh_tokens(family_id);

CREATE TABLE revoked_tokens (
    token_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    actor_id TEXT NOT NULL,
    tenant_id TEXT NOT NULL,
    revoked_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    expires_at TIMESTAMPTZ NOT NULL
);

CREATE INDEX idx_revoked_tokens_expires_at ON revoked_tokens(expires_at);

CREATE TABLE nonces (
    actor_id TEXT COLLATE "C" NOT NULL,
    nonce TEXT COLLATE "C" NOT NULL,
    seen_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    expires_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (actor_id, nonce)
);

CREATE INDEX idx_nonces_expires_at ON nonces(expires_at);

-- Keys and sign-ins belong to a name; the registry's entry for it may be a pattern. The tables are
-- made anew: nothing has written to them before.
DROP TABLE refresh_tokens;
DROP TABLE token_families;
DROP TABLE actor_keys;

CREATE TABLE actor_keys (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    actor_id TEXT NOT NULL,
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

CREATE TABLE token_families (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    actor_id TEXT NOT NULL,
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

-- The dry pass of a run has no steps yet; it is found by the run.
CREATE INDEX idx_tool_calls_dry ON tool_calls(run_id) WHERE step_id IS NULL;

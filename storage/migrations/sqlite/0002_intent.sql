-- Signed intents: what came in, the keys that signed it, and the documents it may name.

-- A private key is the name of a secret or sealed bytes; a key we only verify with has neither.
CREATE TABLE intent_keys (
    kid TEXT NOT NULL PRIMARY KEY,
    tenant_id TEXT REFERENCES tenants(id),
    public_jwk TEXT NOT NULL,
    secret_ref TEXT,
    sealed_key BLOB,
    not_before INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    expires_at INTEGER,
    revoked_at INTEGER,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    CHECK (secret_ref IS NULL OR sealed_key IS NULL)
) STRICT, WITHOUT ROWID;

-- Every intent, accepted or rejected. One that can't be read has no tenant, actor or type.
CREATE TABLE intent_log (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    tenant_id TEXT,
    actor TEXT,
    intent_type TEXT,
    result TEXT NOT NULL CHECK (result IN ('accepted', 'rejected')),
    trace_id TEXT,
    error_code TEXT,
    policy_id TEXT,
    envelope_digest BLOB NOT NULL,
    kid TEXT,
    idempotency_key TEXT,
    run_id BLOB CHECK (length(run_id) = 16),
    latency_ms INTEGER CHECK (latency_ms >= 0),
    received_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER))
) STRICT;

CREATE INDEX idx_intent_log_tenant ON intent_log(tenant_id, id);

-- When an envelope without an issue time was first seen: its time to live counts from there.
CREATE TABLE intent_sightings (
    envelope_digest BLOB NOT NULL PRIMARY KEY CHECK (length(envelope_digest) = 32),
    first_seen_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_intent_sightings_expires_at ON intent_sightings(expires_at);

-- The bytes live in the blob store under their digest; this says which tenant may read them.
CREATE TABLE artifacts (
    tenant_id TEXT NOT NULL REFERENCES tenants(id),
    sha256 BLOB NOT NULL CHECK (length(sha256) = 32),
    size_bytes INTEGER NOT NULL CHECK (size_bytes >= 0),
    media_type TEXT NOT NULL,
    created_by TEXT,
    run_id BLOB CHECK (length(run_id) = 16),
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    PRIMARY KEY (tenant_id, sha256)
) STRICT, WITHOUT ROWID;

CREATE TABLE kb_documents (
    tenant_id TEXT NOT NULL REFERENCES tenants(id),
    id TEXT NOT NULL,
    title TEXT NOT NULL,
    source_uri TEXT,
    sha256 BLOB NOT NULL,
    size_bytes INTEGER NOT NULL CHECK (size_bytes >= 0),
    media_type TEXT NOT NULL,
    metadata TEXT,
    indexed_at INTEGER,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    updated_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    state_version INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, sha256) REFERENCES artifacts(tenant_id, sha256)
) STRICT, WITHOUT ROWID;

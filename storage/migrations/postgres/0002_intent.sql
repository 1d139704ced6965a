-- Signed intents: what came in, the keys that signed it, and the documents it may name.

-- A private key is the name of a secret or sealed bytes; a key we only verify with has neither.
CREATE TABLE intent_keys (
    kid TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    tenant_id TEXT REFERENCES tenants(id),
    public_jwk JSONB NOT NULL,
    secret_ref TEXT,
    sealed_key BYTEA,
    not_before TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    expires_at TIMESTAMPTZ,
    revoked_at TIMESTAMPTZ,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    CHECK (secret_ref IS NULL OR sealed_key IS NULL)
);

-- Every intent, accepted or rejected. One that can't be read has no tenant, actor or type.
CREATE TABLE intent_log (
    id UUID NOT NULL PRIMARY KEY,
    tenant_id TEXT,
    actor TEXT,
    intent_type TEXT,
    result TEXT NOT NULL CHECK (result IN ('accepted', 'rejected')),
    trace_id TEXT,
    error_code TEXT,
    policy_id TEXT,
    envelope_digest BYTEA NOT NULL,
    kid TEXT,
    idempotency_key TEXT,
    run_id UUID,
    latency_ms INTEGER CHECK (latency_ms >= 0),
    received_at TIMESTAMPTZ NOT NULL DEFAULT NOW()
);

CREATE INDEX idx_intent_log_tenant ON intent_log(tenant_id, id);

-- When an envelope without an issue time was first seen: its time to live counts from there.
CREATE TABLE intent_sightings (
    envelope_digest BYTEA NOT NULL PRIMARY KEY CHECK (length(envelope_digest) = 32),
    first_seen_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    expires_at TIMESTAMPTZ NOT NULL
);

CREATE INDEX idx_intent_sightings_expires_at ON intent_sightings(expires_at);

-- The bytes live in the blob store under their digest; this says which tenant may read them.
CREATE TABLE artifacts (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants(id),
    sha256 BYTEA NOT NULL CHECK (length(sha256) = 32),
    size_bytes BIGINT NOT NULL CHECK (size_bytes >= 0),
    media_type TEXT NOT NULL,
    created_by TEXT,
    run_id UUID,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    PRIMARY KEY (tenant_id, sha256)
);

CREATE TABLE kb_documents (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants(id),
    id TEXT COLLATE "C" NOT NULL,
    title TEXT NOT NULL,
    source_uri TEXT,
    sha256 BYTEA NOT NULL,
    size_bytes BIGINT NOT NULL CHECK (size_bytes >= 0),
    media_type TEXT NOT NULL,
    metadata JSONB,
    indexed_at TIMESTAMPTZ,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    state_version BIGINT NOT NULL DEFAULT 1,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, sha256) REFERENCES artifacts(tenant_id, sha256)
);

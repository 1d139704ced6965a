-- The Ed25519 keys that actors sign requests and intents with. The id of a key is the thumbprint of the public key, so
-- that nobody can choose it. The row of a revoked key stays, so that the key can't be added again.
-- Nothing has ever written to the table that this one replaces.
DROP TABLE intent_keys;

CREATE TABLE signing_keys (
    kid TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants(id),
    actor TEXT NOT NULL,
    public_key BYTEA NOT NULL CHECK (length(public_key) = 32),
    label TEXT,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    created_by TEXT NOT NULL,
    not_before TIMESTAMPTZ NOT NULL DEFAULT now(),
    expires_at TIMESTAMPTZ,
    revoked_at TIMESTAMPTZ,
    revoked_by TEXT,
    reason TEXT,
    CHECK ((revoked_at IS NULL) = (revoked_by IS NULL))
);
CREATE INDEX idx_signing_keys_actor ON signing_keys(actor);

-- The Ed25519 keys that actors sign requests and intents with. The id of a key is the thumbprint of the public key, so
-- that nobody can choose it. The row of a revoked key stays, so that the key can't be added again.
-- Nothing has ever written to the table that this one replaces.
DROP TABLE intent_keys;

CREATE TABLE signing_keys (
    kid TEXT NOT NULL PRIMARY KEY,
    tenant_id TEXT NOT NULL REFERENCES tenants(id),
    actor TEXT NOT NULL,
    public_key BLOB NOT NULL CHECK (length(public_key) = 32),
    label TEXT,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    created_by TEXT NOT NULL,
    not_before INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    expires_at INTEGER,
    revoked_at INTEGER,
    revoked_by TEXT,
    reason TEXT,
    CHECK ((revoked_at IS NULL) = (revoked_by IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_signing_keys_actor ON signing_keys(actor);

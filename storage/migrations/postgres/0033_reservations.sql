-- What limits over time have counted: a row per subject and window. A row whose `expires_at` has passed counts nothing.
CREATE TABLE reservations (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants(id),
    subject TEXT COLLATE "C" NOT NULL,
    window_seconds BIGINT NOT NULL CHECK (window_seconds > 0),
    rule TEXT NOT NULL,
    entries JSONB NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL,
    state_version BIGINT NOT NULL DEFAULT 1,
    PRIMARY KEY (tenant_id, subject, window_seconds)
);
CREATE INDEX idx_reservations_expires_at ON reservations(expires_at);

-- What limits over time have counted: a row per subject and window. A row whose `expires_at` has passed counts nothing.
CREATE TABLE reservations (
    tenant_id TEXT NOT NULL REFERENCES tenants(id),
    subject TEXT NOT NULL,
    window_seconds INTEGER NOT NULL CHECK (window_seconds > 0),
    rule TEXT NOT NULL,
    entries TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    state_version INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (tenant_id, subject, window_seconds)
) STRICT;
CREATE INDEX idx_reservations_expires_at ON reservations(expires_at);

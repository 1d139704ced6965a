-- Calls that workers outside execute. A step says who executes its call, and until when it waits; the item says how far
-- it came. Items are written all the time: they refer to no tenant row, which every writer would lock.
ALTER TABLE steps ADD COLUMN work_kind TEXT CHECK (work_kind IN ('job', 'worker'));
ALTER TABLE steps ADD COLUMN work_id BLOB CHECK (length(work_id) = 16);
ALTER TABLE steps ADD COLUMN work_until INTEGER;

CREATE TABLE work_items (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    tenant_id TEXT NOT NULL,
    queue TEXT NOT NULL,
    run_id BLOB NOT NULL CHECK (length(run_id) = 16),
    step_id BLOB NOT NULL CHECK (length(step_id) = 16),
    actor TEXT NOT NULL,
    tool TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    repeatable INTEGER NOT NULL CHECK (repeatable IN (0, 1)),
    in_doubt INTEGER NOT NULL CHECK (in_doubt IN (0, 1)),
    lease_seconds INTEGER NOT NULL,
    input TEXT,
    deadline INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('queued', 'claimed', 'done', 'failed', 'cancelled', 'lost')),
    claims INTEGER NOT NULL DEFAULT 0,
    cancel_requested INTEGER NOT NULL DEFAULT 0 CHECK (cancel_requested IN (0, 1)),
    claimed_by TEXT,
    worker TEXT,
    claimed_at INTEGER,
    lease_until INTEGER,
    lease_digest BLOB CHECK (length(lease_digest) = 32),
    claim_digest BLOB CHECK (length(claim_digest) = 32),
    result_digest BLOB CHECK (length(result_digest) = 32),
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    settled_at INTEGER,
    CHECK ((state = 'claimed') = (lease_until IS NOT NULL))
) STRICT;

CREATE INDEX idx_work_items_claim ON work_items(tenant_id, queue, state, priority, id);
CREATE INDEX idx_work_items_open ON work_items(tenant_id, state, id);
CREATE INDEX idx_work_items_lease ON work_items(state, lease_until);
CREATE INDEX idx_work_items_run ON work_items(run_id);
CREATE INDEX idx_work_items_claim_digest ON work_items(tenant_id, claim_digest, state, id);

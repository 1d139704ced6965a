-- Calls that workers outside execute. A step says who executes its call, and until when it waits; the item says how far
-- it came. Items are written all the time: they refer to no tenant row, which every writer would lock.
ALTER TABLE steps ADD COLUMN work_kind TEXT CHECK (work_kind IN ('job', 'worker'));
ALTER TABLE steps ADD COLUMN work_id UUID;
ALTER TABLE steps ADD COLUMN work_until TIMESTAMPTZ;

CREATE TABLE work_items (
    id UUID NOT NULL PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    queue TEXT NOT NULL,
    run_id UUID NOT NULL,
    step_id UUID NOT NULL,
    actor TEXT NOT NULL,
    tool TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    repeatable BOOLEAN NOT NULL,
    in_doubt BOOLEAN NOT NULL,
    lease_seconds INTEGER NOT NULL,
    input JSONB,
    deadline TIMESTAMPTZ NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('queued', 'claimed', 'done', 'failed', 'cancelled', 'lost')),
    claims INTEGER NOT NULL DEFAULT 0,
    cancel_requested BOOLEAN NOT NULL DEFAULT FALSE,
    claimed_by TEXT,
    worker TEXT,
    claimed_at TIMESTAMPTZ,
    lease_until TIMESTAMPTZ,
    lease_digest BYTEA CHECK (length(lease_digest) = 32),
    claim_digest BYTEA CHECK (length(claim_digest) = 32),
    result_digest BYTEA CHECK (length(result_digest) = 32),
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    settled_at TIMESTAMPTZ,
    CHECK ((state = 'claimed') = (lease_until IS NOT NULL))
);

CREATE INDEX idx_work_items_claim ON work_items(tenant_id, queue, state, priority, id);
CREATE INDEX idx_work_items_open ON work_items(tenant_id, state, id);
CREATE INDEX idx_work_items_lease ON work_items(state, lease_until);
CREATE INDEX idx_work_items_run ON work_items(run_id);
CREATE INDEX idx_work_items_claim_digest ON work_items(tenant_id, claim_digest, state, id);

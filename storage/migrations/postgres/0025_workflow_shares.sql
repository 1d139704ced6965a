-- A workflow of the first tenant that every tenant may start. What another tenant's runs follow is copied to it first, so
-- that they keep it whatever becomes of the share: such a version names the tenant whose it is.
CREATE TABLE workflow_shares (
    workflow_id TEXT NOT NULL,
    tenant_id TEXT NOT NULL REFERENCES tenants(id),
    shared_by TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (workflow_id)
);

ALTER TABLE workflows ADD COLUMN shared_from TEXT;

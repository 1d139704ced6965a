-- Every definition of a declared tool that was ever loaded, so that a run that began with one can end with it, also after
-- a restart or on another node. A definition never changes; its status says whether new runs use it.
CREATE TABLE tool_definitions (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants(id),
    name TEXT COLLATE "C" NOT NULL,
    version TEXT COLLATE "C" NOT NULL,
    document JSON NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('current', 'superseded', 'removed')),
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    state_version BIGINT NOT NULL DEFAULT 1,
    PRIMARY KEY (tenant_id, name, version)
);

-- Every definition of a declared tool that was ever loaded, so that a run that began with one can end with it, also after
-- a restart or on another node. A definition never changes; its status says whether new runs use it.
CREATE TABLE tool_definitions (
    tenant_id TEXT NOT NULL REFERENCES tenants(id),
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    document TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('current', 'superseded', 'removed')),
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    updated_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    state_version INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (tenant_id, name, version)
) STRICT, WITHOUT ROWID;

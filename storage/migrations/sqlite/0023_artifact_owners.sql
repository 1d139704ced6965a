-- Whoever has put a blob owns it. Of the blobs from before, a tenant owns the documents that its steps made. What an
-- upload replaced is the first tenant's: buckets were shared, so what another tenant replaced need not be its own.
INSERT OR IGNORE INTO artifacts (tenant_id, sha256, size_bytes, media_type, run_id)
    SELECT tenant_id, unhex(substr(output ->> '$.artifact', 14)), CAST(coalesce(output ->> '$.bytes', 0) AS INTEGER),
        'application/pdf', run_id
    FROM steps
    WHERE tool = 'local.markdown_to_pdf' AND json_valid(output) AND length(output ->> '$.artifact') = 77
        AND unhex(substr(output ->> '$.artifact', 14)) IS NOT NULL
        AND tenant_id IN (SELECT id FROM tenants);

INSERT OR IGNORE INTO artifacts (tenant_id, sha256, size_bytes, media_type, run_id)
    SELECT tenant_id, unhex(substr(output ->> '$.replaced', 14)), 0, 'application/octet-stream', run_id
    FROM steps
    WHERE tool = 's3_upload' AND tenant_id = 'default' AND json_valid(output) AND length(output ->> '$.replaced') = 77
        AND unhex(substr(output ->> '$.replaced', 14)) IS NOT NULL
        AND tenant_id IN (SELECT id FROM tenants);

-- Whoever has put a blob owns it. Of the blobs from before, a tenant owns the documents that its steps made. What an
-- upload replaced is the first tenant's: buckets were shared, so what another tenant replaced need not be its own.
INSERT INTO artifacts (tenant_id, sha256, size_bytes, media_type, run_id)
    SELECT tenant_id, decode(substr(output ->> 'artifact', 14), 'hex'),
        CASE WHEN jsonb_typeof(output -> 'bytes') = 'number' THEN (output ->> 'bytes')::bigint ELSE 0 END,
        'application/pdf', run_id
    FROM steps
    WHERE tool = 'local.markdown_to_pdf' AND output ->> 'artifact' ~ '^cas://sha256:[0-9a-f]{64}$'
        AND tenant_id IN (SELECT id FROM tenants)
    ON CONFLICT DO NOTHING;

INSERT INTO artifacts (tenant_id, sha256, size_bytes, media_type, run_id)
    SELECT tenant_id, decode(substr(output ->> 'replaced', 14), 'hex'), 0, 'application/octet-stream', run_id
    FROM steps
    WHERE tool = 's3_upload' AND tenant_id = 'default' AND output ->> 'replaced' ~ '^cas://sha256:[0-9a-f]{64}$'
        AND tenant_id IN (SELECT id FROM tenants)
    ON CONFLICT DO NOTHING;

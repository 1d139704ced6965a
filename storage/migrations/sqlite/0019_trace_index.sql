-- The UNIQUE constraint on trace_id keeps an index of its own. The second one on the same column cost every
-- run a random write and answered nothing. SQLite renames no index: only the text of the schema is rewritten,
-- the pages of the constraint's index stay as they are.
DROP INDEX idx_runs_trace_id;

PRAGMA writable_schema = ON;

UPDATE sqlite_schema SET sql = replace(sql, 'trace_id TEXT NOT NULL UNIQUE', 'trace_id TEXT NOT NULL')
    WHERE type = 'table' AND name = 'runs';
UPDATE sqlite_schema SET name = 'idx_runs_trace_id', sql = 'CREATE UNIQUE INDEX idx_runs_trace_id ON runs(trace_id)'
    WHERE type = 'index' AND name = 'sqlite_autoindex_runs_2';
UPDATE sqlite_schema SET name = 'sqlite_autoindex_runs_2'
    WHERE type = 'index' AND name = 'sqlite_autoindex_runs_3';

PRAGMA writable_schema = RESET;

-- A trigger that may abort makes SQLite copy every page that an insert touches, to undo the statement. This
-- one is raised before anything is written, so there is nothing to undo and the copies are left out.
DROP TRIGGER audit_log_entries_no_replace;

CREATE TRIGGER audit_log_entries_no_replace BEFORE INSERT ON audit_log_entries
    WHEN EXISTS (SELECT 1 FROM audit_log_entries WHERE lane = NEW.lane AND seq = NEW.seq)
    BEGIN SELECT RAISE(FAIL, 'append_only: audit_log_entries (key exists)'); END;

-- What the engine keeps of a run beyond the first design: the drafted plan, the rollback, how deep
-- it stands inside others, when it must have ended; and why a patch was refused or how it is undone.
ALTER TABLE runs ADD COLUMN depth INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN replay_from TEXT;
ALTER TABLE runs ADD COLUMN timeout_at INTEGER;
ALTER TABLE runs ADD COLUMN plan TEXT;
ALTER TABLE runs ADD COLUMN rollback TEXT;
ALTER TABLE run_patches ADD COLUMN inverse TEXT;
ALTER TABLE run_patches ADD COLUMN reason TEXT;

-- What the engine keeps of a run beyond the first design: the drafted plan, the rollback, how deep
-- it stands inside others, when it must have ended; and why a patch was refused or how it is undone.
ALTER TABLE runs ADD COLUMN depth INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN replay_from TEXT;
ALTER TABLE runs ADD COLUMN timeout_at TIMESTAMPTZ;
ALTER TABLE runs ADD COLUMN plan JSONB;
ALTER TABLE runs ADD COLUMN rollback JSONB;
ALTER TABLE run_patches ADD COLUMN inverse JSONB;
ALTER TABLE run_patches ADD COLUMN reason TEXT;

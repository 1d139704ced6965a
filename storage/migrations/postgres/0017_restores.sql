-- What is true of the store as a whole: when it was last resumed after a restore, and why nobody may
-- change it, if so.
CREATE TABLE store_state (
    id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    generation BIGINT NOT NULL DEFAULT 0,
    held_reason TEXT,
    held_at TIMESTAMPTZ,
    held_epoch BIGINT NOT NULL DEFAULT 0
);

INSERT INTO store_state (id) VALUES (1);

-- A run that was under way in a state that was put back: what it did since is not known here.
ALTER TABLE runs ADD COLUMN restored_at TIMESTAMPTZ;

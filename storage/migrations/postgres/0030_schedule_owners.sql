-- What a schedule was made with: the key of its owner, the level of a run that started then, and what the workflow and its
-- child workflows were. Ticks in a row that started no run. The place of a schedule among those of its tenant, which limits
-- how many there are.
ALTER TABLE schedules
    ADD COLUMN owner_key UUID,
    ADD COLUMN owner_key_of TEXT,
    ADD COLUMN level_max TEXT,
    ADD COLUMN confirmed_digest BYTEA CHECK (length(confirmed_digest) = 32),
    ADD COLUMN streak JSONB,
    ADD COLUMN place BIGINT;
UPDATE schedules SET place = (
    SELECT count(*) FROM schedules AS earlier WHERE earlier.tenant_id = schedules.tenant_id AND earlier.id < schedules.id
);
CREATE UNIQUE INDEX idx_schedules_place ON schedules(tenant_id, place);

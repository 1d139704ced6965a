-- What a schedule was made with: the key of its owner, the level of a run that started then, and what the workflow and its
-- child workflows were. Ticks in a row that started no run. The place of a schedule among those of its tenant, which limits
-- how many there are.
ALTER TABLE schedules ADD COLUMN owner_key BLOB CHECK (length(owner_key) = 16);
ALTER TABLE schedules ADD COLUMN owner_key_of TEXT;
ALTER TABLE schedules ADD COLUMN level_max TEXT;
ALTER TABLE schedules ADD COLUMN confirmed_digest BLOB CHECK (length(confirmed_digest) = 32);
ALTER TABLE schedules ADD COLUMN streak TEXT;
ALTER TABLE schedules ADD COLUMN place INTEGER;
UPDATE schedules SET place = (
    SELECT count(*) FROM schedules AS earlier WHERE earlier.tenant_id = schedules.tenant_id AND earlier.id < schedules.id
);
CREATE UNIQUE INDEX idx_schedules_place ON schedules(tenant_id, place);

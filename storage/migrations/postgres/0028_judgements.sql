-- What the judge of a step decided last.
ALTER TABLE steps ADD COLUMN judgement JSONB;

-- Keys and sign-ins belong to a name; the registry's entry for it may be a pattern.
ALTER TABLE actor_keys DROP CONSTRAINT actor_keys_actor_id_fkey;
ALTER TABLE token_families DROP CONSTRAINT token_families_actor_id_fkey;

-- The dry pass of a run has no steps yet; it is found by the run.
CREATE INDEX idx_tool_calls_dry ON tool_calls(run_id) WHERE step_id IS NULL;

-- Keys and sign-ins belong to a name; the registry's entry for it may be a pattern.
ALTER TABLE actor_keys DROP CONSTRAINT actor_keys_actor_id_fkey;
ALTER TABLE token_families DROP CONSTRAINT token_families_actor_id_fkey;

-- What the policy was asked about an intent, as a digest.
ALTER TABLE intent_log ADD COLUMN policy_input_digest BYTEA CHECK (length(policy_input_digest) = 32);

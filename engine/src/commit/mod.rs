//! Group commit: the state machine that forms batches and settles their outcomes.

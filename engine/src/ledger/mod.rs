//! The ledger in motion: checkpoints, the feed, exports, idempotency records.

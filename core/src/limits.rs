//! Every limit of the system, in one place; the reference in `docs/reference/limits.md` is
//! checked against this file.

/// Rows of a page when the caller doesn't say.
pub const PAGE_ROWS_DEFAULT: usize = 50;
/// Rows of a page at the most.
pub const PAGE_ROWS_MAX: usize = 1_000;
/// Rows, steps and entries in one transaction at the most.
pub const TX_ROWS_MAX: usize = 2_000;
/// Transactions that one commit may carry.
pub const BATCH_TXS_MAX: usize = 256;
/// Rows that one commit may carry; a larger single transaction goes alone.
pub const BATCH_ROWS_MAX: usize = 4_000;
/// Transactions that may wait in one lane; more are refused.
pub const LANE_QUEUE_MAX: usize = 8_192;
/// Tries of a batch that the database refuses because of concurrency.
pub const CONTENTION_TRIES_MAX: u32 = 8;
/// Bytes of one ledger entry's data at the most.
pub const ENTRY_DATA_BYTES_MAX: usize = 64 * 1024;
/// Bytes of all other fields of one ledger entry at the most.
pub const ENTRY_TEXT_BYTES_MAX: usize = 16 * 1024;
/// Nesting of a JSON document at the most.
pub const JSON_DEPTH_MAX: usize = 64;
/// Characters of an idempotency key at the most.
pub const IDEMPOTENCY_KEY_CHARS_MAX: usize = 256;
/// Seconds an idempotency record lives by default.
pub const IDEMPOTENCY_TTL_SECONDS: i64 = 86_400;
/// Seconds a lane's lease lasts without a renewal.
pub const LANE_LEASE_SECONDS: i64 = 15;
/// Bytes of an HTTP request head at the most, and of an answer that waits to be taken.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Bytes of an HTTP request's path and query at the most.
pub const TARGET_BYTES_MAX: usize = 8 * 1024;
/// Characters of one text in an error at the most; it may repeat what the caller sent.
pub const ERROR_TEXT_CHARS_MAX: usize = 500;
/// Bytes of an HTTP request body at the most.
pub const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Bytes of one stored blob at the most.
pub const BLOB_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;
/// Seconds a presigned URL may live at the most.
pub const PRESIGN_SECONDS_MAX: u64 = 3_600;
/// Messages a slow subscriber of the bus may be behind before it is told that it missed some.
pub const BUS_BACKLOG_MAX: usize = 1_024;
/// Bytes of one line of a ledger export at the most.
pub const EXPORT_LINE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Entries that one checkpoint may add; the next one takes the rest.
pub const CHECKPOINT_ENTRIES_MAX: i64 = 200_000;
/// Lanes of a ledger at the most.
pub const LANES_MAX: usize = 1_000;
/// Tries to begin a request under an idempotency key that others use at the same time.
pub const IDEMPOTENCY_TRIES_MAX: u32 = 4;
/// Bytes of one bus message at the most; a hint carries ids, not content.
pub const BUS_MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a bus topic's name at the most.
pub const BUS_TOPIC_BYTES_MAX: usize = 256;
/// Topics that one process may listen to at a time.
pub const BUS_TOPICS_MAX: usize = 4_096;
/// Keys that the in-process counters hold at a time; more are refused, never forgotten early.
pub const COUNTER_KEYS_MAX: usize = 100_000;
/// Bytes of a counter key at the most.
pub const COUNTER_KEY_BYTES_MAX: usize = 512;
/// Bytes of a claim's value at the most.
pub const COUNTER_VALUE_BYTES_MAX: usize = 4 * 1024;
/// Seconds a claim may live at the most.
pub const CLAIM_TTL_SECONDS_MAX: u64 = 30 * 86_400;
/// Hits that one rate window may allow at the most.
pub const RATE_HITS_MAX: u32 = 1_000_000;
/// Seconds of one rate window at the most.
pub const RATE_WINDOW_SECONDS_MAX: u32 = 86_400;
/// Characters of a secret's name at the most.
pub const SECRET_NAME_CHARS_MAX: usize = 128;
/// Bytes of a secret's value at the most.
pub const SECRET_BYTES_MAX: usize = 64 * 1024;
/// Bytes a secret must have before its bare value is masked wherever it stands; shorter ones
/// would mask ordinary words.
pub const SECRET_MASK_BYTES_MIN: usize = 6;
/// Faults of one document that are told at the most.
pub const SCHEMA_FAULTS_MAX: usize = 16;
/// Bytes of a workflow document at the most.
pub const WORKFLOW_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Nodes of a workflow at the most.
pub const WORKFLOW_NODES_MAX: usize = 10_000;
/// Edges of a workflow at the most.
pub const WORKFLOW_EDGES_MAX: usize = 50_000;
/// Characters of a workflow's name at the most.
pub const WORKFLOW_ID_CHARS_MAX: usize = 128;
/// Faults of one workflow or patch that are told at the most.
pub const PROBLEMS_MAX: usize = 50;
/// Seconds of a delay, a timeout or an expiry in a workflow at the most.
pub const FLOW_SECONDS_MAX: u32 = 90 * 86_400;
/// Tries of a node after the first at the most.
pub const NODE_RETRIES_MAX: u32 = 3;
/// Approvals that one question may need at the most.
pub const APPROVALS_NEEDED_MAX: u32 = 10;
/// Patterns of approvers that one question may name at the most.
pub const APPROVERS_MAX: usize = 50;
/// Items of a map that run at a time when the author doesn't say.
pub const MAP_PARALLEL_DEFAULT: u32 = 8;
/// Items of a map that run at a time at the most.
pub const MAP_PARALLEL_MAX: u32 = 100;
/// Nodes that one patch may add.
pub const PATCH_NODES_MAX: usize = 100;
/// Edges that one patch may add.
pub const PATCH_EDGES_MAX: usize = 500;
/// Characters of a patch's justification at the most.
pub const JUSTIFICATION_CHARS_MAX: usize = 2_000;
/// Bytes of one expression at the most.
pub const EXPRESSION_BYTES_MAX: usize = 2_048;
/// Terms of one expression at the most.
pub const EXPRESSION_TERMS_MAX: usize = 256;
/// Nesting of one expression at the most.
pub const EXPRESSION_DEPTH_MAX: usize = 64;
/// Items of a list that an expression may walk over.
pub const EXPRESSION_LIST_MAX: usize = 10_000;
/// Work of one rendering at the most, in terms evaluated and 16-byte pieces copied.
pub const EXPRESSION_WORK_MAX: u64 = 1_000_000;
/// Expressions of one template at the most.
pub const TEMPLATE_EXPRESSIONS_MAX: usize = 256;

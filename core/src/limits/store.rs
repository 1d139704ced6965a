//! Limits of everything durable or shared: pages, transactions, databases, Redis, blobs.

// Pages and transactions

/// Rows of a page when the caller doesn't say. The answer has a cursor to the next page.
pub const PAGE_ROWS_DEFAULT: usize = 50;
/// Rows of a page. A request for more is refused with `SCHEMA_INVALID`.
pub const PAGE_ROWS_MAX: usize = 1_000;
/// Rows, steps and entries of one transaction. A larger transaction is refused with `INTERNAL` before it reaches the
/// store.
pub const TX_ROWS_MAX: usize = 2_000;
/// Transactions of one commit. The others go with the next commit.
pub const BATCH_TXS_MAX: usize = 256;
/// Rows of one commit. A transaction that does not fit goes with the next commit, a larger one alone.
pub const BATCH_ROWS_MAX: usize = 4_000;
/// Transactions that wait in one lane. More are refused with `OVERLOADED`.
pub const LANE_QUEUE_MAX: usize = 8_192;
/// Attempts of a transaction that the database refuses because of others. After the last one it fails with
/// `STORE_UNAVAILABLE`.
pub const CONTENTION_TRIES_MAX: u32 = 8;
/// Rows that one count for metrics looks at. Further rows are not counted.
pub const COUNT_ROWS_MAX: usize = 100_000;

// Health of the store

/// Time that a database may take to answer a new session, or a question beside a command. After it the database counts
/// as unavailable.
pub const DATABASE_SILENCE_SECONDS_MAX: u64 = 15;

// Redis and the bus

/// Messages that a slow subscriber of the bus may be behind. It misses the oldest ones and is told so.
pub const BUS_BACKLOG_MAX: usize = 1_024;
/// Bytes of one bus message, which carries ids and not content. A larger one is refused and not sent.
pub const BUS_MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a bus topic's name. A longer one is refused.
pub const BUS_TOPIC_BYTES_MAX: usize = 256;
/// Topics that one process listens to. One more is refused.
pub const BUS_TOPICS_MAX: usize = 4_096;

// Counters

/// Keys that the counters in a process hold at a time. None is forgotten early; requests that need a further one are
/// refused with `STORE_UNAVAILABLE`.
pub const COUNTER_KEYS_MAX: usize = 100_000;
/// Bytes of a counter's key. A longer one is refused.
pub const COUNTER_KEY_BYTES_MAX: usize = 2 * 1024;
/// Bytes of a claim's value. A larger one is refused.
pub const COUNTER_VALUE_BYTES_MAX: usize = 4 * 1024;
/// Lifetime of a claim. A longer one is refused.
pub const CLAIM_TTL_SECONDS_MAX: u64 = 30 * 86_400;

// Blobs

/// Bytes of one stored blob. A larger one is refused with `PAYLOAD_TOO_LARGE`.
pub const BLOB_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;
/// Lifetime of a presigned URL. A longer one is shortened to this.
pub const PRESIGN_SECONDS_MAX: u64 = 3_600;

//! Limits of everything durable or shared: pages, transactions, databases, Redis, blobs.

use std::time::Duration;

// Pages and transactions

/// Rows of a page when the caller doesn't say. The answer has a cursor to the next page.
pub const PAGE_ROWS_DEFAULT: usize = 50;
/// Rows of a page. A request for more is refused with `SCHEMA_INVALID`.
pub const PAGE_ROWS_MAX: usize = 1_000;
/// Bytes of the rows of a page. The page ends before a row that would make it larger, and has a cursor to the rest; a
/// larger row is a page alone.
pub const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;
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
/// First pause before a damaged store is examined again. The pause doubles with each look.
pub const DAMAGE_LOOK_PAUSE_FIRST: Duration = Duration::from_secs(10);
/// Longest such pause. The store is examined at this pace until it is whole.
pub const DAMAGE_LOOK_PAUSE_MAX: Duration = Duration::from_secs(600);
/// Failed reads that one question for readiness repeats. Further ones are repeated by the next question.
pub const READINESS_READS_MAX: usize = 4;
/// Failed changes of different kinds that are kept to be tried again by a probe. The oldest one is dropped.
pub const PROBE_CHANGES_MAX: usize = 16;
/// Bytes that a probe for free space writes, at least. A smaller probe could fit into pages that exist already.
pub const PROBE_BYTES_MIN: u64 = 256 * 1024;
/// Bytes that a probe for free space writes. A change that needs more is tried by itself.
pub const PROBE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Faults of a damaged SQLite file that a message names. Further faults are only counted.
pub const STORE_FAULTS_SHOWN_MAX: usize = 5;

// PostgreSQL

/// Time to open a connection. After it the database counts as unavailable: `STORE_UNAVAILABLE`.
pub const POSTGRES_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without traffic after which a connection is probed. A connection that does not answer the probes is closed.
pub const POSTGRES_KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
/// Time that sent data may stay unacknowledged. After it the connection is closed.
pub const POSTGRES_UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(15);
/// Time that a statement waits for a lock. After it the database cancels the statement.
pub const POSTGRES_LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a probe waits for a lock. After it the probe fails, and the next one tries again.
pub const POSTGRES_PROBE_LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// Time of one statement. After it the database cancels the statement.
pub const POSTGRES_STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);
/// Time that a session may be idle inside a transaction. After it the database ends the session.
pub const POSTGRES_IDLE_IN_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(60);
/// Time of one batch; the statement timeout usually ends it earlier. After it the lane is taken anew, and its row
/// tells whether the batch is durable.
pub const POSTGRES_BATCH_TIMEOUT: Duration = Duration::from_secs(45);
/// Pause before a lane tries again to reach a database that is gone. Changes are refused with `STORE_UNAVAILABLE`
/// meanwhile.
pub const POSTGRES_CLAIM_PAUSE: Duration = Duration::from_millis(200);
/// Rows of a page that are fetched before it is known how large they are. The others are fetched as far as they fit into
/// the page.
pub const POSTGRES_ROWS_FETCHED_FIRST: usize = 64;
/// Reads that run at a time. Further reads wait.
pub const POSTGRES_READS_MAX: usize = 8;
/// Statements that a session for reads keeps prepared. With one more all are prepared anew.
pub const POSTGRES_READ_STATEMENTS_MAX: usize = 256;
/// Statements that the session of a lane keeps prepared. With one more all are prepared anew.
pub const POSTGRES_LANE_STATEMENTS_MAX: usize = 512;
/// Time between two looks of a lane whether the schema is still its own. A change by hand is noticed this much later.
pub const SCHEMA_LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// Time between two looks whether the database is held or behind the marks. A hold is noticed this much later.
pub const HOLD_LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two looks of a node whether the database still has Chimera's own guards, keys and constraints. One that is gone is noticed this
/// much later.
pub const GUARD_LOOK_INTERVAL: Duration = Duration::from_secs(5);

// SQLite

/// Time that a connection waits for the lock of another process. After it the command fails with `STORE_UNAVAILABLE`.
pub const SQLITE_BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Time to wait for another process that migrates the file. After it the start fails.
pub const SQLITE_MIGRATE_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause before the writer tries again to use a store that is down. Changes are refused with `STORE_UNAVAILABLE`
/// meanwhile.
pub const SQLITE_CLAIM_PAUSE: Duration = Duration::from_millis(100);
/// Reads that run at a time. Further reads wait.
pub const SQLITE_READS_MAX: usize = 4;
/// Statements that a connection keeps prepared. The one not used for longest is dropped.
pub const SQLITE_STATEMENTS_MAX: usize = 512;
/// Shapes of statements that the writer keeps between batches. With one more all are spelled anew.
pub const SQLITE_SHAPES_MAX: usize = 256;
/// Memory for the pages of the writer. Further pages are in the cache of the system.
pub const SQLITE_WRITER_CACHE_KIB: i64 = 16_384;
/// Transactions after which the pages of the log are copied into the file. They are copied then.
pub const SQLITE_LOG_TXS_MAX: usize = 2_000;
/// Batches after which the size of the log is looked at. The log is copied if it is large.
pub const SQLITE_LOG_BATCHES_MAX: usize = 64;
/// Bytes of the log that are left alone when its size is looked at. A larger log is copied into the file.
pub const SQLITE_LOG_COPY_BYTES: u64 = 8 * 1024 * 1024;
/// Pages of the log after which it should begin anew. The writer waits for readers, and the log begins anew.
pub const SQLITE_LOG_PAGES_MAX: i64 = 8_192;
/// Bytes that the log keeps on the disk when it begins anew, because a file that grows is slower. The file is cut to
/// this.
pub const SQLITE_LOG_KEPT_BYTES: u32 = 64 * 1024 * 1024;
/// Time that the writer waits for readers when the log begins anew. After it the log grows on, and the writer tries
/// again later.
pub const SQLITE_LOG_READERS_TIMEOUT: Duration = Duration::from_millis(20);
/// Time between two looks after the log when nobody writes. The log is copied this much later.
pub const SQLITE_LOG_LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// Looks at a file and its log while somebody changes them. After the last one they count as belonging together.
pub const SQLITE_FILE_LOOKS_MAX: usize = 8;

// Backups

/// Bytes of a table that a backup reads or sends at a time. The rest follows in further pieces.
pub const COPY_CHUNK_BYTES: usize = 256 * 1024;

// Redis and the bus

/// Time to connect to Redis. After it Redis counts as not reachable.
pub const REDIS_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time that Redis may take for an answer. After it Redis counts as not reachable.
pub const REDIS_ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Time that a Redis server is left alone after it did not answer. Commands fail at once meanwhile.
pub const REDIS_PAUSE: Duration = Duration::from_secs(1);
/// Time between two attempts to restore a lost connection of the bus. Hints are lost meanwhile, and nodes find changes
/// by looking.
pub const BUS_UPKEEP_INTERVAL: Duration = Duration::from_millis(500);
/// Rounds of upkeep between two pings on a quiet connection. A dead connection is noticed this much later.
pub const BUS_ROUNDS_PER_PING: u32 = 10;
/// Requests to listen that may wait for the bus. Further requests wait.
pub const BUS_REQUESTS_MAX: usize = 64;
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
/// Lifetime of a claim, at least. A shorter one is refused.
pub const CLAIM_TTL_MIN: Duration = Duration::from_millis(1);
/// Lifetime of a claim. A longer one is refused.
pub const CLAIM_TTL_SECONDS_MAX: u64 = 30 * 86_400;
/// Time that Redis remembers a question for readiness. The next question after it writes again.
pub const COUNTER_READY_MS: u64 = 1_000;

// Blobs

/// Bytes of one stored blob. A larger one is refused with `PAYLOAD_TOO_LARGE`.
pub const BLOB_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;
/// Lifetime of a presigned URL. A longer one is shortened to this.
pub const PRESIGN_SECONDS_MAX: u64 = 3_600;
/// Bytes of one part of an upload to S3. Larger content is uploaded in several parts.
pub const S3_PART_BYTES: usize = 8 * 1024 * 1024;
/// Time to connect to S3. After it the request is retried.
pub const S3_CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time that S3 may be silent within an answer. After it the request is retried or fails.
pub const S3_SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// Retries of a request to S3. After the last one the request fails.
pub const S3_RETRIES_MAX: usize = 2;
/// Time since its beginning in which a request to S3 is retried. After it the request fails.
pub const S3_RETRY_TIMEOUT: Duration = Duration::from_secs(20);
/// First pause before a request to S3 is retried. The pause doubles with each retry.
pub const S3_RETRY_PAUSE_FIRST: Duration = Duration::from_millis(100);
/// Longest such pause. Each further retry waits this long.
pub const S3_RETRY_PAUSE_MAX: Duration = Duration::from_secs(2);

//! Limits of durable and shared state: pages, transactions, databases, Redis, blobs.

use std::time::Duration;

// Pages and transactions

/// Default number of rows of a page. The response has a cursor to the next page.
pub const PAGE_ROWS_DEFAULT: usize = 50;
/// Rows of a page. A request for more is refused with `SCHEMA_INVALID`.
pub const PAGE_ROWS_MAX: usize = 1_000;
/// Hex digits of a prefix that stands for an id: eight cover 65 seconds. A shorter one is refused with `SCHEMA_INVALID`.
pub const ID_PREFIX_DIGITS_MIN: usize = 8;
/// Bytes of the rows of a page. The page ends before a row that would exceed it, and has a cursor to the rest; a larger
/// row is a page of its own.
pub const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Rows, steps and entries of one transaction. A larger transaction is refused with `INTERNAL` before it reaches the
/// store.
pub const TX_ROWS_MAX: usize = 2_000;
/// Transactions of one batch. The next batch commits the others.
pub const BATCH_TXS_MAX: usize = 256;
/// Rows of one batch. A transaction that does not fit is committed with the next batch, a larger one alone.
pub const BATCH_ROWS_MAX: usize = 4_000;
/// Transactions that wait in one lane. More are refused with `OVERLOADED`.
pub const LANE_QUEUE_MAX: usize = 8_192;
/// Attempts of a transaction that the database aborts because of concurrent ones. After the last one it fails with
/// `STORE_UNAVAILABLE`.
pub const CONTENTION_TRIES_MAX: u32 = 8;
/// Rows that one count for metrics scans. Further rows are not counted.
pub const COUNT_ROWS_MAX: usize = 100_000;

// Health of the store

/// Time that a database may take to answer a new session, or a liveness probe while a command runs. After it the
/// database counts as unavailable.
pub const DATABASE_SILENCE_SECONDS_MAX: u64 = 15;
/// First pause before a damaged store is examined again. The pause doubles with each check.
pub const DAMAGE_CHECK_PAUSE_FIRST: Duration = Duration::from_secs(10);
/// Longest such pause. The store is examined at this pace until it is intact.
pub const DAMAGE_CHECK_PAUSE_MAX: Duration = Duration::from_secs(600);
/// Failed reads that one readiness check repeats. The next check repeats further ones.
pub const READINESS_READS_MAX: usize = 4;
/// Failed changes of different kinds that are kept for a probe to retry. The oldest one is dropped.
pub const PROBE_CHANGES_MAX: usize = 16;
/// Bytes that a probe for free space writes, at least. A smaller probe could fit into pages that exist already.
pub const PROBE_BYTES_MIN: u64 = 256 * 1024;
/// Bytes that a probe for free space writes. A change that needs more is tried by itself.
pub const PROBE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Errors of a damaged SQLite file that a message lists. Further errors are only counted.
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
/// Timeout of one batch; the statement timeout usually ends it earlier. After it the lane is claimed again, and its row
/// tells whether the batch is durable.
pub const POSTGRES_BATCH_TIMEOUT: Duration = Duration::from_secs(45);
/// Pause before a lane tries again to reach an unavailable database. Changes are refused with `STORE_UNAVAILABLE`
/// meanwhile.
pub const POSTGRES_CLAIM_PAUSE: Duration = Duration::from_millis(200);
/// Rows of a page that are fetched before their size is known. The others are fetched as far as they fit into the page.
pub const POSTGRES_ROWS_FETCHED_FIRST: usize = 64;
/// Concurrent reads. Further reads wait.
pub const POSTGRES_READS_MAX: usize = 8;
/// Prepared statements that a read session caches. With one more the cache is cleared.
pub const POSTGRES_READ_STATEMENTS_MAX: usize = 256;
/// Prepared statements that the session of a lane caches. With one more the cache is cleared.
pub const POSTGRES_LANE_STATEMENTS_MAX: usize = 512;
/// Interval between two checks of a lane whether the schema version is still its own. A manual change is noticed this
/// much later.
pub const SCHEMA_CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Interval between two checks whether the database is held or behind the marks. A hold is noticed this much later.
pub const HOLD_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between two checks of a node whether the database still has Chimera's own guards, keys and constraints. A
/// missing one is noticed this much later.
pub const GUARD_CHECK_INTERVAL: Duration = Duration::from_secs(5);

// SQLite

/// Time that a connection waits for the lock of another process. After it the command fails with `STORE_UNAVAILABLE`.
pub const SQLITE_BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of the data file, and of its log, that are read to tell a failing disk from damage. A disk that fails only after
/// them is reported as damage.
pub const SQLITE_READ_PROBE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// How often these files are read then, within that many bytes. A disk that fails more rarely is reported as damage.
pub const SQLITE_READ_PROBE_ROUNDS: usize = 8;
/// Time for which the result of that counts. After it the files are read again when SQLite reports damage.
pub const SQLITE_READ_PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Time to wait for another process that migrates the file. After it the start fails.
pub const SQLITE_MIGRATE_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause before the writer tries again to use an unavailable store. Changes are refused with `STORE_UNAVAILABLE`
/// meanwhile.
pub const SQLITE_CLAIM_PAUSE: Duration = Duration::from_millis(100);
/// Concurrent reads. Further reads wait.
pub const SQLITE_READS_MAX: usize = 4;
/// Prepared statements that a connection caches. The least recently used one is dropped.
pub const SQLITE_STATEMENTS_MAX: usize = 512;
/// Statement shapes that the writer caches between batches. With one more the cache is cleared.
pub const SQLITE_SHAPES_MAX: usize = 256;
/// Page cache of the writer. Further pages are in the cache of the operating system.
pub const SQLITE_WRITER_CACHE_KIB: i64 = 16_384;
/// Transactions after which the write-ahead log is checkpointed into the file. It is checkpointed then.
pub const SQLITE_LOG_TXS_MAX: usize = 2_000;
/// Batches after which the size of the write-ahead log is checked. A large log is checkpointed.
pub const SQLITE_LOG_BATCHES_MAX: usize = 64;
/// Bytes of the write-ahead log that are left alone when its size is checked. A larger log is checkpointed into the
/// file.
pub const SQLITE_LOG_COPY_BYTES: u64 = 8 * 1024 * 1024;
/// Pages of the write-ahead log after which it is reset. The writer waits for readers, and the log restarts.
pub const SQLITE_LOG_PAGES_MAX: i64 = 8_192;
/// Bytes that the write-ahead log keeps on disk when it is reset, because growing a file is slower. The file is
/// truncated to this.
pub const SQLITE_LOG_KEPT_BYTES: u32 = 64 * 1024 * 1024;
/// Time that the writer waits for readers to reset the write-ahead log. After it the log keeps growing, and the writer
/// tries again later.
pub const SQLITE_LOG_READERS_TIMEOUT: Duration = Duration::from_millis(20);
/// Interval between two checks of the write-ahead log when nobody writes. The log is checkpointed this much later.
pub const SQLITE_LOG_CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Reads of a file and its log while another process changes them. After the last one they count as consistent.
pub const SQLITE_FILE_READS_MAX: usize = 8;

// Backups

/// Bytes of a table that a backup reads or sends at a time. The rest follows in further chunks.
pub const COPY_CHUNK_BYTES: usize = 256 * 1024;

// Redis and the bus

/// Time to connect to Redis. After it Redis counts as not reachable.
pub const REDIS_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time that Redis may take to respond. After it Redis counts as not reachable.
pub const REDIS_RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time that a Redis server is not contacted after it did not respond. Commands fail at once meanwhile.
pub const REDIS_PAUSE: Duration = Duration::from_secs(1);
/// Interval between two attempts to restore a lost connection of the bus. Notifications are lost meanwhile, and nodes
/// find changes by polling.
pub const BUS_UPKEEP_INTERVAL: Duration = Duration::from_millis(500);
/// Such intervals between two pings on a quiet connection. A dead connection is noticed this much later.
pub const BUS_ROUNDS_PER_PING: u32 = 10;
/// Queued subscribe requests of the bus. Further requests wait.
pub const BUS_REQUESTS_MAX: usize = 64;
/// Messages that a slow subscriber of the bus may be behind. It misses the oldest ones and is told so.
pub const BUS_BACKLOG_MAX: usize = 1_024;
/// Bytes of one bus message, which carries ids and not content. A larger one is refused and not sent.
pub const BUS_MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a bus topic's name. A longer one is refused.
pub const BUS_TOPIC_BYTES_MAX: usize = 256;
/// Topics that one process subscribes to. One more is refused.
pub const BUS_TOPICS_MAX: usize = 4_096;

// Counters

/// Keys that the in-process counters hold at a time, of claims and of rate limits each. A further claim is refused; a
/// further rate limit window replaces the one that ends first.
pub const COUNTER_KEYS_MAX: usize = 100_000;
/// Bytes of a counter's key. A longer one is refused.
pub const COUNTER_KEY_BYTES_MAX: usize = 2 * 1024;
/// Bytes of a claim's value. A larger one is refused.
pub const COUNTER_VALUE_BYTES_MAX: usize = 4 * 1024;
/// Minimum lifetime of a claim. A shorter one is refused.
pub const CLAIM_TTL_MIN: Duration = Duration::from_millis(1);
/// Lifetime of a claim. A longer one is refused.
pub const CLAIM_TTL_SECONDS_MAX: u64 = 30 * 86_400;
/// Time for which Redis caches a readiness check. The next check after it writes again.
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
/// Total time for a request to S3 and its retries. After it the request fails.
pub const S3_RETRY_TIMEOUT: Duration = Duration::from_secs(20);
/// First backoff before a request to S3 is retried. It doubles with each retry.
pub const S3_RETRY_PAUSE_FIRST: Duration = Duration::from_millis(100);
/// Longest such backoff. Each further retry waits this long.
pub const S3_RETRY_PAUSE_MAX: Duration = Duration::from_secs(2);

//! Limits of HTTP requests and responses.

use std::time::Duration;

// Requests

/// Bytes of an HTTP request head, and of the write buffer of a connection. A request with a larger head is refused and
/// its connection closed.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a request's path and query. A longer one is refused with `SCHEMA_INVALID`.
pub const TARGET_BYTES_MAX: usize = 8 * 1024;
/// Characters of a request's path that an error and its log line repeat. The rest is replaced by `…`.
pub const PATH_SHOWN_CHARS_MAX: usize = 256;
/// Characters of a malformed id that an error repeats. The rest is replaced by `…`.
pub const ID_SHOWN_CHARS_MAX: usize = 64;
/// Bytes of a request body. A larger one is refused with `PAYLOAD_TOO_LARGE`.
pub const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Bytes of an unauthenticated body: to sign in, to refresh a token, or through a link. A larger one is refused with
/// `PAYLOAD_TOO_LARGE`.
pub const UNAUTHENTICATED_BODY_BYTES_MAX: usize = 64 * 1024;
/// Time for a body before the minimum rate applies. A slower one is refused with `BODY_TIMEOUT`. The setting
/// `http.body_timeout_seconds` changes it.
pub const BODY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// Minimum bytes per second of a body that takes longer than that. A slower one is refused with `BODY_TIMEOUT`.
pub const BODY_BYTES_PER_SECOND_MIN: u64 = 128 * 1024;
/// Milliseconds that receiving a body may take before its sender's token is checked again. After them the token is
/// checked a second time.
pub const BODY_RECHECK_MS: i64 = 1_000;
/// Bytes per minute of bodies in refused requests, for one address. Further bodies are refused unread with
/// `RATE_LIMITED`. The setting `http.refused_bytes_per_minute_max` changes it.
pub const REFUSED_BODY_BYTES_DEFAULT: u64 = 8 * 1024 * 1024;
/// Addresses, and actors at an address, whose refused bodies are counted in a minute. Those of others are not counted.
pub const REFUSED_BODY_SENDERS_MAX: usize = 10_000;
/// Nesting of a JSON document. A deeper one is refused with `SCHEMA_INVALID`, or `VALIDATION_FAILED` within a run.
pub const JSON_DEPTH_MAX: usize = 64;
/// Values of a received JSON document, including lists and objects. One with more is refused with `SCHEMA_INVALID`.
pub const JSON_VALUES_MAX: usize = 100_000;
/// Bytes of a body or of a stored run that are processed on a request thread. A larger one is read, decided and
/// rendered on worker threads, a few at a time.
pub const JSON_INLINE_BYTES_MAX: usize = 16_384;
/// Such tasks of one actor that may wait for a worker thread. A further request of the actor is refused at once with
/// `RATE_LIMITED`.
pub const ACTOR_WORK_WAITING_MAX: usize = 64;
/// Such tasks of one tenant that may wait. A further request of the tenant is refused at once with `OVERLOADED`.
pub const TENANT_WORK_WAITING_MAX: usize = 128;
/// Such tasks of all tenants that may wait; of several tenants each has its share. A further request is refused at once
/// with `OVERLOADED`.
pub const WORK_WAITING_MAX: usize = 512;
/// Estimated memory of all work that one process does at a time on the JSON of large requests and on what is read for
/// responses, each counted as often as it is copied. Memory for a page is taken before it is read, memory for a body
/// before it is parsed. Further work waits, each tenant in its turn; what needs more than all of it is done alone.
pub const LARGE_WORK_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Time that a request waits for its share of that memory. After it the request is refused with `OVERLOADED`.
pub const LARGE_WORK_WAIT_MAX: Duration = Duration::from_secs(20);
/// Bytes that a value counts for besides its text when the size of a document is estimated. A document of many small
/// values counts as large.
pub const JSON_VALUE_BYTES: usize = 8;
/// Bytes of memory that a value counts for besides its text. They are used to estimate the memory of runs.
pub const JSON_VALUE_MEMORY_BYTES: usize = 100;
/// Bytes of memory that an object with members counts for besides them. A map allocates its first node whole, however
/// few members it has.
pub const JSON_OBJECT_MEMORY_BYTES: usize = 640;
/// Characters of a correlation id. A longer one is ignored, and the server makes its own.
pub const CORRELATION_CHARS_MAX: usize = 128;
/// Time until the response to a request begins. After it the request fails with `REQUEST_TIMEOUT`. The setting
/// `http.request_timeout_seconds` changes it.
pub const REQUEST_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Percent of a request's time limit that it may wait for its run. Then the response shows the run as it is.
pub const RUN_WAIT_PERCENT_MAX: u32 = 90;
/// Pause when the system has no file handles left for a connection. New connections wait meanwhile.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

// Connections

/// Concurrent connections from one address. Further ones are refused with `RATE_LIMITED`; one connection is always
/// reserved for other addresses. The setting `http.connections_per_address_max` changes it.
pub const CONNECTIONS_PER_ADDRESS_DEFAULT: usize = 1_024;
/// Connections beyond the limit of their address that get a response at a time. Further ones are closed without a
/// response.
pub const CONNECTIONS_REFUSED_AT_ONCE_MAX: usize = 256;
/// Bytes from which on a response to an authenticated client counts as unread until the client has received it. A
/// smaller one is not counted.
pub const UNREAD_BYTES_COUNTED: usize = 64 * 1024;
/// Bytes of such responses that one address may leave unread. Its next request is refused with `RATE_LIMITED` before
/// anything is done; the response to a read is discarded. A trusted proxy has no limit of its own.
pub const UNREAD_BYTES_PER_ADDRESS_MAX: usize = 64 * 1024 * 1024;
/// Bytes of such responses that all clients may leave unread; one tenant leaves a quarter to others. A tenant or an
/// address with unread responses is refused with `OVERLOADED`.
pub const UNREAD_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Bytes of such a response that are handed to the connection at a time. The rest follows when they are received.
pub const UNREAD_PIECE_BYTES: usize = 64 * 1024;
/// Bytes that are still accepted from a client that keeps sending after its response, so that it can read the response.
/// After them the connection is closed.
pub const LINGER_BYTES_MAX: usize = 256 * 1024;
/// Time for which they are accepted, and for which a refused connection may send a request. After it the connection is
/// closed.
pub const LINGER_TIME_MAX: Duration = Duration::from_secs(1);

// Waiting for a run

/// Time that a caller may request a response to wait for a run. A longer one is refused with `VALIDATION_FAILED`; the
/// request timeout may end the wait earlier.
pub const WAIT_SECONDS_MAX: f64 = 3_600.0;
/// Default wait for the result of a called run. After it the response says that the run is still in progress.
pub const RUN_CALL_WAIT_DEFAULT: Duration = Duration::from_secs(30);
/// Default wait of `/act` for a result. After it the response says that the run is still in progress.
pub const ACT_WAIT_DEFAULT: Duration = Duration::from_secs(1);
/// Minimum wait of `/act` for a draft. After it the response says that the draft is being made.
pub const DRAFT_WAIT_MIN: Duration = Duration::from_secs(20);
/// Wait until a run has applied a mark. After it the response is sent without it.
pub const MARK_WAIT: Duration = Duration::from_secs(2);
/// Interval between two reads of the run meanwhile. The response is later by up to this time.
pub const MARK_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Interval between two reads of a run that another process drives. The response is later by up to this time.
pub const RUN_POLL_INTERVAL: Duration = Duration::from_millis(100);

// Streams of events

/// Event streams that one process keeps open. More are refused with `OVERLOADED`.
pub const EVENT_STREAMS_MAX: usize = 256;
/// Event streams that one process keeps open for one actor. More are refused with `OVERLOADED`.
pub const EVENT_STREAMS_PER_ACTOR_MAX: usize = 32;
/// Interval between two reads of new events of a run. An event is shown this much later.
pub const EVENTS_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Interval between two checks whether the reader of a stream is still authorized. The stream of a reader who is not is
/// closed this much later.
pub const STREAM_REAUTHORIZE_INTERVAL: Duration = Duration::from_millis(400);
/// Silence of a stream. After it the server sends a comment as a heartbeat.
pub const STREAM_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);

// Readiness

/// Timeout of the readiness check of one component. After it the component counts as not ready: `NOT_READY`.
pub const READINESS_CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for which a readiness result is cached. The next request after it checks again.
pub const READINESS_CACHED_MS: i64 = 500;
/// Time that a background loop for runs, actors or checkpoints may be without success. After it the node is not ready:
/// `NOT_READY`.
pub const UPKEEP_SILENCE_SECONDS_MAX: i64 = 60;

// Errors

/// Characters of one text in an error that repeats caller input. A longer text is truncated.
pub const ERROR_TEXT_CHARS_MAX: usize = 500;
/// Characters of an error's message, and of each text in its details. A longer text is truncated.
pub const ERROR_MESSAGE_CHARS_MAX: usize = 2_000;
/// Bytes of one detail of an error. The rest is omitted.
pub const ERROR_DETAIL_BYTES_MAX: usize = 32 * 1024;
/// Nesting of one detail of an error, and of an entry's data that is shortened. Deeper values are omitted.
pub const ERROR_DETAIL_DEPTH_MAX: usize = 16;

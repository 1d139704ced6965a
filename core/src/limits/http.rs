//! Limits of what callers send over HTTP, and of what they are answered.

use std::time::Duration;

// Requests

/// Bytes of an HTTP request head, and of an answer that waits to be taken. A request with a larger head is refused and
/// its connection closed.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a request's path and query. A longer one is refused with `SCHEMA_INVALID`.
pub const TARGET_BYTES_MAX: usize = 8 * 1024;
/// Characters of a request's path that an error and its log line repeat. The rest is cut and shown as `…`.
pub const PATH_SHOWN_CHARS_MAX: usize = 256;
/// Bytes of a request body. A larger one is refused with `PAYLOAD_TOO_LARGE`.
pub const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Bytes of a body from somebody without a token: to sign in, to refresh a token, or by a link. A larger one is refused
/// with `PAYLOAD_TOO_LARGE`.
pub const STRANGER_BODY_BYTES_MAX: usize = 64 * 1024;
/// Time for a body before it has to arrive at a rate. A slower one is refused with `BODY_TIMEOUT`. The setting
/// `http.body_timeout_seconds` changes it.
pub const BODY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// Bytes a second of a body that takes longer than that, at least. A slower one is refused with `BODY_TIMEOUT`.
pub const BODY_BYTES_PER_SECOND_MIN: u64 = 128 * 1024;
/// Milliseconds of a body's arrival. After them its sender's token is checked a second time.
pub const BODY_RECHECK_MS: i64 = 1_000;
/// Bytes a minute of bodies in refused requests, for one address. Further bodies are refused unread with
/// `RATE_LIMITED`. The setting `http.refused_bytes_per_minute_max` changes it.
pub const REFUSED_BODY_BYTES_DEFAULT: u64 = 8 * 1024 * 1024;
/// Addresses, and actors at an address, whose refused bodies are counted in a minute. Those of others are not counted.
pub const REFUSED_BODY_SENDERS_MAX: usize = 10_000;
/// Nesting of a JSON document. A deeper one is refused with `SCHEMA_INVALID`, or `VALIDATION_FAILED` within a run.
pub const JSON_DEPTH_MAX: usize = 64;
/// Values of a JSON document that somebody sends, lists and objects among them. One with more is refused with
/// `SCHEMA_INVALID`.
pub const JSON_VALUES_MAX: usize = 100_000;
/// Bytes of a body or of a stored run that are worked on by a thread that answers requests. A larger one is read, decided
/// and shown on threads for such work, a few at a time.
pub const JSON_BYTES_ASIDE: usize = 16_384;
/// Pieces of such work of one actor that may wait for a thread. A further request of the actor is refused at once with
/// `RATE_LIMITED`.
pub const ACTOR_WORK_WAITING_MAX: usize = 64;
/// Pieces of such work of one tenant that may wait. A further request of the tenant is refused at once with
/// `OVERLOADED`.
pub const TENANT_WORK_WAITING_MAX: usize = 128;
/// Pieces of such work of all tenants that may wait; of several tenants each has its share. A further request is refused
/// at once with `OVERLOADED`.
pub const WORK_WAITING_MAX: usize = 512;
/// Bytes that a value counts for besides its text when the size of a document is estimated. A document of many small
/// values counts as large.
pub const JSON_VALUE_BYTES: usize = 8;
/// Bytes of memory that a value counts for besides its text. With them the memory of runs is estimated.
pub const JSON_VALUE_MEMORY_BYTES: usize = 100;
/// Characters of a correlation id. A longer one is ignored, and the server makes its own.
pub const CORRELATION_CHARS_MAX: usize = 128;
/// Time until the answer to a request begins. After it the request fails with `REQUEST_TIMEOUT`. The setting
/// `http.request_timeout_seconds` changes it.
pub const REQUEST_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Pause when the system has no file handles left for a connection. New connections wait meanwhile.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

// Connections

/// Connections from one address at one time. Further ones are refused with `RATE_LIMITED`; one of all connections is left
/// for other addresses in any case. The setting `http.connections_per_address_max` changes it.
pub const CONNECTIONS_PER_ADDRESS_DEFAULT: usize = 1_024;
/// Connections beyond the limit of their address that are answered at a time. Further ones are closed without an answer.
pub const CONNECTIONS_REFUSED_AT_ONCE_MAX: usize = 256;
/// Bytes of an answer to somebody who is known from which on it counts as waiting until the client has taken it. A smaller
/// one is not counted.
pub const UNREAD_BYTES_COUNTED: usize = 64 * 1024;
/// Bytes of such answers that one address may leave unread. Its next request is refused with `RATE_LIMITED` before
/// anything is done; what it asked for without a change is not given. A trusted proxy has no limit of its own.
pub const UNREAD_BYTES_PER_ADDRESS_MAX: usize = 64 * 1024 * 1024;
/// Bytes of such answers that all addresses may leave unread. Whoever has some waiting, or comes through a proxy, is
/// refused with `OVERLOADED`.
pub const UNREAD_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Bytes of such an answer that are handed to the connection at a time. The rest follows when they are taken.
pub const UNREAD_PIECE_BYTES: usize = 64 * 1024;
/// Bytes that are still taken from a client that sends on after its answer, so that it can read the answer. After them
/// the connection is closed.
pub const LINGER_BYTES_MAX: usize = 256 * 1024;
/// Time for which they are taken, and for which a refused connection may ask something. After it the connection is closed.
pub const LINGER_TIME_MAX: Duration = Duration::from_secs(1);

// Waiting for a run

/// Time that a caller may ask an answer to wait for a run. A longer one is refused with `VALIDATION_FAILED`; the
/// timeout of requests may end the wait earlier.
pub const WAIT_SECONDS_MAX: f64 = 3_600.0;
/// Wait for the result of a called run when the caller doesn't say. After it the answer says that the run goes on.
pub const RUN_CALL_WAIT_DEFAULT: Duration = Duration::from_secs(30);
/// Wait of `/act` for a result when the caller doesn't say. After it the answer says that the run goes on.
pub const ACT_WAIT_DEFAULT: Duration = Duration::from_secs(1);
/// Wait of `/act` for a draft, at least. After it the answer says that the draft is being made.
pub const DRAFT_WAIT_MIN: Duration = Duration::from_secs(20);
/// Wait until a run has taken in a mark. After it the answer is given without it.
pub const MARK_WAIT: Duration = Duration::from_secs(2);
/// Time between two looks at the run meanwhile. The answer is later by up to this time.
pub const MARK_LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Time between two looks at a run that another process drives. The answer is later by up to this time.
pub const RUN_LOOK_INTERVAL: Duration = Duration::from_millis(100);

// Streams of events

/// Streams of events that one process keeps open. More are refused with `OVERLOADED`.
pub const EVENT_STREAMS_MAX: usize = 256;
/// Streams of events that one process keeps open for one actor. More are refused with `OVERLOADED`.
pub const EVENT_STREAMS_PER_ACTOR_MAX: usize = 32;
/// Time between two reads of new events of a run. An event is shown this much later.
pub const EVENTS_LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Time between two looks whether the reader of a stream may still see it. A stream whose reader may not is ended this
/// much later.
pub const STREAM_READMIT_INTERVAL: Duration = Duration::from_millis(400);
/// Time that a stream is silent. After it the server sends a comment to show that it lives.
pub const STREAM_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);

// Readiness

/// Time that one part of the server may take to say whether it is ready. After it the part counts as not ready:
/// `NOT_READY`.
pub const READINESS_CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for which an answer about readiness is given again. The next question after it asks the parts again.
pub const READINESS_KEPT_MS: i64 = 500;
/// Time that a loop for runs, actors or checkpoints may be without success. After it the node is not ready:
/// `NOT_READY`.
pub const UPKEEP_SILENCE_SECONDS_MAX: i64 = 60;

// Errors

/// Characters of one text in an error that repeats what the caller sent. A longer text is cut.
pub const ERROR_TEXT_CHARS_MAX: usize = 500;
/// Characters of an error's message, and of each text in its details. A longer text is cut.
pub const ERROR_MESSAGE_CHARS_MAX: usize = 2_000;
/// Bytes of one detail of an error. What follows is left out.
pub const ERROR_DETAIL_BYTES_MAX: usize = 32 * 1024;
/// Nesting of one detail of an error, and of an entry's data that is shortened. What lies deeper is left out.
pub const ERROR_DETAIL_DEPTH_MAX: usize = 16;

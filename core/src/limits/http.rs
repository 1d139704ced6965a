//! Limits of what callers send over HTTP, and of what they are answered.

use std::time::Duration;

// Requests

/// Bytes of an HTTP request head, and of an answer that waits to be taken. A request with a larger head is refused and
/// its connection closed.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a request's path and query. A longer one is refused with `SCHEMA_INVALID`.
pub const TARGET_BYTES_MAX: usize = 8 * 1024;
/// Bytes of a request body. A larger one is refused with `PAYLOAD_TOO_LARGE`.
pub const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Nesting of a JSON document. A deeper one is refused with `SCHEMA_INVALID`, or `VALIDATION_FAILED` within a run.
pub const JSON_DEPTH_MAX: usize = 64;

// Waiting for a run

/// Time that a caller may ask an answer to wait for a run. A longer one is refused with `VALIDATION_FAILED`; the
/// timeout of requests may end the wait earlier.
pub const WAIT_SECONDS_MAX: f64 = 3_600.0;

// Streams of events

/// Streams of events that one process keeps open. More are refused with `OVERLOADED`.
pub const EVENT_STREAMS_MAX: usize = 256;
/// Streams of events that one process keeps open for one actor. More are refused with `OVERLOADED`.
pub const EVENT_STREAMS_PER_ACTOR_MAX: usize = 32;
/// Time between two reads of new events of a run. An event is shown this much later.
pub const EVENTS_LOOK_INTERVAL: Duration = Duration::from_millis(200);

// Readiness

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

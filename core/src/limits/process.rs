//! Limits of the process: its clock, start and stop, telemetry, and the command line.

use std::time::Duration;

// Clocks

/// Difference between the machine's clock and the time that passes. A larger one counts as a jump of the clock.
pub const CLOCK_JUMP_SECONDS: i64 = 5;
/// Time that a jump of the machine's clock must last. Then times follow it.
pub const CLOCK_JUMP_LASTING_SECONDS: i64 = 30;
/// Part by which the time for deadlines runs faster or slower after a jump: one in so many. It goes on until both
/// clocks agree.
pub const CLOCK_SLEW_PARTS: i64 = 10;
/// Time by which the machine's clock may be behind the newest ledger entry, or differ from the database's, at the
/// start. With more the node waits.
pub const CLOCK_DIFFERENCE_SECONDS_MAX: i64 = 60;

// Metrics, logs and spans

/// Time between two counts in the store for metrics. A metric is this old at most.
pub const METRICS_SECONDS: u64 = 5;
/// Time that a timer may be due without anybody taking it up. After it the timer counts as overdue in the metrics.
pub const TIMER_OVERDUE_SECONDS: i64 = 5;
/// Time that a signal may wait for its run. After it the signal counts as overdue in the metrics.
pub const SIGNAL_OVERDUE_SECONDS: i64 = 60;

// Commands

/// Time that a command takes to connect to the server. After it the command fails.
pub const CLIENT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a command waits for an answer of the server. After it the command fails.
pub const CLIENT_ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Time that a stream of events may be silent, longer than the server's heartbeat. After it the command connects
/// again.
pub const CLIENT_SILENCE_TIMEOUT: Duration = Duration::from_secs(45);
/// Bytes of one event that a command reads. With a larger one the stream fails.
pub const CLIENT_EVENT_BYTES_MAX: usize = 4 * 1024 * 1024;

//! Limits of the process: its clock, start and stop, telemetry, and the command line.

use std::time::Duration;

// Clocks

/// Difference between the machine's clock and the elapsed time. A larger one counts as a clock jump.
pub const CLOCK_JUMP_SECONDS: i64 = 5;
/// Time that a jump of the machine's clock must last. Then timestamps follow it.
pub const CLOCK_JUMP_LASTING_SECONDS: i64 = 30;
/// Rate at which the clock for deadlines is slewed after a jump: one part in this many. It continues until both clocks
/// agree.
pub const CLOCK_SLEW_PARTS: i64 = 10;
/// Time by which the machine's clock may be behind the latest ledger entry, or differ from the database's clock, at the
/// start. With more the node waits.
pub const CLOCK_DIFFERENCE_SECONDS_MAX: i64 = 60;
/// Interval between two comparisons of these clocks while a node waits. The node starts this much later.
pub const CLOCK_COMPARE_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between two checks for jumps of the machine's clock. A jump is logged this much later.
pub const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Clock jumps that are queued for logging. Further ones are not logged.
pub const CLOCK_NOTICES_MAX: usize = 16;

// Start and stop

/// Time that opening the store may take before it is logged. After it the log says what the start waits for.
pub const START_SLOW_AFTER: Duration = Duration::from_secs(1);
/// Time that a health request may continue when the node begins to serve. After it its connection is closed.
pub const START_GRACE: Duration = Duration::from_secs(1);
/// Time that background loops, such as message delivery, may take to stop. After it they are dropped.
pub const STOP_LOOPS_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that runs may take to finish their turn. After it another process or the next start continues them.
pub const STOP_TURNS_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval between two checks whether they have. The stop is later by up to this time.
pub const STOP_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Minimum time for requests, stores and spans to finish when calls have used up `shutdown.grace_seconds`. After it
/// they are dropped.
pub const STOP_TIME_MIN: Duration = Duration::from_secs(1);
/// Time that busy threads may take at the end of a stop. After it the process exits.
pub const STOP_THREADS_TIMEOUT: Duration = Duration::from_millis(500);

// Metrics, logs and spans

/// Interval between two counts in the store for metrics. A metric is this old at most.
pub const METRICS_SECONDS: u64 = 5;
/// Time that a timer may be due without being picked up. After it the timer counts as overdue in the metrics.
pub const TIMER_OVERDUE_SECONDS: i64 = 5;
/// Time that a signal may wait for its run. After it the signal counts as overdue in the metrics.
pub const SIGNAL_OVERDUE_SECONDS: i64 = 60;
/// Time that a rollback may take. After it `chimera doctor` warns about it.
pub const ROLLBACK_LONG_SECONDS: i64 = 3_600;
/// Time to send spans to the collector. After it they are dropped.
pub const SPANS_SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// Sources of an error that a log line names. Further ones are omitted.
pub const LOG_SOURCES_MAX: usize = 8;

// Doctor

/// Free bytes on the disk of the data folder below which `chimera doctor` warns. With less it warns.
pub const DISK_BYTES_WARN: u64 = 1024 * 1024 * 1024;
/// Free bytes on the disk of the data folder below which `chimera doctor` fails. With less it fails.
pub const DISK_BYTES_FAIL: u64 = 64 * 1024 * 1024;
/// Clock skew that `chimera doctor` accepts. With more it reports the difference.
pub const DOCTOR_SKEW_SECONDS_MAX: i64 = 5;
/// Time that one service may take to answer `chimera doctor`. After it the service counts as not reachable.
pub const DOCTOR_RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Total time of all checks of `chimera doctor`, without `--deep`. After it the check that timed out is named, and the
/// rest is skipped.
pub const DOCTOR_TIMEOUT: Duration = Duration::from_secs(60);

// Commands

/// Time that a command takes to connect to the server. After it the command fails.
pub const CLIENT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a command waits for a response of the server. After it the command fails.
pub const CLIENT_RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time that an event stream may be silent, longer than the server's heartbeat. After it the command reconnects.
pub const CLIENT_SILENCE_TIMEOUT: Duration = Duration::from_secs(45);
/// Bytes of one event that a command reads. With a larger one the stream fails.
pub const CLIENT_EVENT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Attempts of a command to reconnect to a stream without an event in between. After the last one the command fails.
pub const COMMAND_RECONNECTS_MAX: u32 = 20;
/// Interval between two checks of a command whether a run has applied a signal. The command ends this much later.
pub const COMMAND_SIGNAL_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Such checks of one command. After the last one the command continues without waiting.
pub const COMMAND_SIGNAL_POLLS_MAX: u32 = 600;
/// Time to send the spans of a command. After it they are dropped.
pub const COMMAND_FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between two updates of the times that `runs watch` shows. They are this old at most.
pub const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Columns of command output without a terminal. Longer lines are wrapped.
pub const SHOWN_COLUMNS_DEFAULT: usize = 100;
/// Columns of a list without a terminal, unless the variable COLUMNS says otherwise. Text that does not fit is cut.
pub const LIST_COLUMNS_DEFAULT: usize = 120;
/// Columns of a name or id on a terminal that is too narrow for it. The rest is replaced by `…`.
pub const NAME_COLUMNS_MIN: usize = 8;
/// Ids that an error lists when a prefix is ambiguous. Further ids are omitted.
pub const ID_CANDIDATES_MAX: usize = 10;
/// Characters of an input that `act` prints. A longer one is truncated.
pub const SHOWN_INPUT_CHARS_MAX: usize = 60;
/// Steps of a plan that `act` prints. Further steps are only counted.
pub const SHOWN_STEPS_MAX: usize = 20;
/// Runs that `resume` prints. Further runs are only counted; `--json` has them all.
pub const SHOWN_RUNS_MAX: usize = 50;

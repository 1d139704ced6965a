//! Limits of acting: idempotency keys, goals, plans, risk and schedules.

use std::time::Duration;

// Idempotency keys

/// Recently used idempotency keys that a process caches. Earlier uses are found in the store.
pub const RECENT_KEYS_MAX: usize = 65_536;
/// Interval between two checks whether the caller that claimed a key first has started its run. The response is later
/// by up to this time.
pub const KEY_CLAIM_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time that a claim on a key may last without a run. After it the claim counts as abandoned, and the next caller takes
/// it over.
pub const KEY_CLAIM_ABANDONED_SECONDS: i64 = 5;

// Goals and plans

/// Characters of a natural-language goal. A longer goal is refused with `VALIDATION_FAILED`.
pub const GOAL_CHARS_MAX: usize = 8_000;
/// Characters of a goal that an error quotes. The quote is truncated.
pub const GOAL_QUOTE_CHARS_MAX: usize = 160;
/// Words that an error quotes of the part of a goal without a matching tool. The quote is truncated.
pub const GOAL_QUOTE_WORDS_MAX: usize = 8;
/// Steps of one plan. A plan with more is refused with `VALIDATION_FAILED`.
pub const PLAN_STEPS_MAX: usize = 32;
/// Steps of a plan that may run without approval. A plan with more is drafted for approval.
pub const PLAN_STEPS_FREE_MAX: usize = 10;
/// Tools that the planner considers. Further tools are ignored.
pub const PLAN_TOOLS_MAX: usize = 500;
/// Steps that the planner adds to find the input of one step. Further steps are not added; a goal with missing inputs
/// is refused with `VALIDATION_FAILED`.
pub const PLAN_FILL_DEPTH_MAX: usize = 3;
/// Calls of a workflow that are examined before it runs, including map items and child workflows. A workflow with more
/// counts as high risk.
pub const PLAN_CALLS_MAX: usize = 256;
/// Nodes of a workflow that are examined for these calls. A workflow with more counts as high risk.
pub const PLAN_NODES_MAX: usize = 4_096;
/// Estimated memory of the inputs of these calls: many small values take more than their text. A workflow with more
/// counts as high risk.
pub const PLAN_MEMORY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Work units of all expressions of one plan. A plan with more counts as high risk.
pub const PLAN_WORK_MAX: u64 = 2_000_000;
/// Completed runs of a workflow with child workflows that are searched for an equal one. If there is none, the workflow
/// counts as run for the first time.
pub const FIRST_TIME_RUNS_MAX: usize = 50;

// Risk

/// Reasons of one risk score. A build with weights that could give more does not compile.
pub const RISK_REASONS_MAX: usize = 160;
/// Nested encodings that are decoded while the risk of a text is scored. Anything deeper counts as unreadable.
pub const RISK_LAYERS_MAX: usize = 4;
/// Bytes that are decoded while the risk of one plan is scored. Anything beyond counts as unreadable.
pub const RISK_DECODED_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of a member's name that the pointer of a reason shows. The pointer ends above a member with a longer name.
pub const RISK_NAME_BYTES_MAX: usize = 64;
/// Bytes of an input of normal size. A larger input adds to the risk score.
pub const RISK_LARGE_INPUT_BYTES: usize = 16 * 1024;
/// Bytes of a large input. A larger input adds more to the risk score.
pub const RISK_HUGE_INPUT_BYTES: usize = 256 * 1024;
/// Bytes of a command that are searched for options. Options beyond them add nothing to the risk score.
pub const RISK_COMMAND_BYTES_MAX: usize = 512;
/// Items of a list of texts that are also read as one command. A longer list is read item by item.
pub const RISK_COMMAND_ITEMS_MAX: usize = 64;
/// Bytes of a comment inside a command that are skipped. A longer comment is not skipped.
pub const RISK_COMMENT_BYTES_MAX: usize = 256;

// Schedules

/// Schedules of one tenant. Another one is refused with `VALIDATION_FAILED`.
pub const SCHEDULES_MAX: usize = 1_000;
/// Attempts to find a free place for a new schedule while others take places too. Then the last conflict is returned.
pub const SCHEDULE_PLACE_TRIES_MAX: usize = 8;
/// Characters of a schedule's name. A longer name is refused with `VALIDATION_FAILED`.
pub const SCHEDULE_NAME_CHARS_MAX: usize = 128;
/// Characters of a cron expression. A longer one is refused with `VALIDATION_FAILED`.
pub const CRON_CHARS_MAX: usize = 256;
/// Years that are searched for the next date of a cron expression. An expression without a date in them is refused with
/// `VALIDATION_FAILED`.
pub const CRON_SEARCH_YEARS_MAX: i64 = 9;
/// Changes of the clocks that are crossed while the next tick is searched. A schedule without a tick until then has no
/// further ticks.
pub const SCHEDULE_TRANSITIONS_MAX: usize = 64;
/// Shortest interval of a schedule. A shorter one is refused with `VALIDATION_FAILED`.
pub const SCHEDULE_INTERVAL_SECONDS_MIN: i64 = 1;
/// Longest interval of a schedule. A longer one is refused with `VALIDATION_FAILED`.
pub const SCHEDULE_INTERVAL_SECONDS_MAX: i64 = 366 * 86_400;
/// Lateness of a tick that still counts as on time. A later tick is started if the catch-up policy says so.
pub const SCHEDULE_GRACE_SECONDS: i64 = 15;
/// Longest catch-up window of a schedule. A longer one is refused with `VALIDATION_FAILED`.
pub const SCHEDULE_CATCH_UP_SECONDS_MAX: i64 = 7 * 86_400;
/// Catch-up window of a schedule that names none. Older ticks are not started.
pub const SCHEDULE_CATCH_UP_SECONDS_DEFAULT: i64 = 86_400;
/// Ticks that are started after a downtime, however many the catch-up window holds. Earlier ones are recorded as
/// missed.
pub const SCHEDULE_CATCH_UP_MAX: usize = 100;
/// Missed ticks that are counted for the ledger. More are recorded as this many.
pub const SCHEDULE_MISSED_COUNT_MAX: usize = 10_000;
/// Ticks of a schedule that may wait for a run to end. A larger `queue_max` is refused with `VALIDATION_FAILED`.
pub const SCHEDULE_QUEUE_MAX: u32 = 100;
/// Ticks that may wait for a run to end if the schedule says nothing. Further ticks are skipped.
pub const SCHEDULE_QUEUE_DEFAULT: u32 = 1;
/// Time between two checks whether a queued tick can start. It starts later by up to this time.
pub const SCHEDULE_QUEUE_CHECK_SECONDS: i64 = 1;
/// Unfinished runs of one schedule. Further ticks are skipped.
pub const SCHEDULE_ACTIVE_RUNS_MAX: usize = 32;
/// Longest jitter of a schedule. A longer one is refused with `VALIDATION_FAILED`.
pub const SCHEDULE_JITTER_SECONDS_MAX: i64 = 3_600;
/// Upcoming ticks whose distances a jitter is compared with. Later ones are not compared.
pub const SCHEDULE_JITTER_TICKS_MAX: usize = 50;
/// Upcoming ticks that one request shows. A larger number is refused with `SCHEMA_INVALID`.
pub const SCHEDULE_PREVIEW_MAX: usize = 100;
/// Upcoming ticks that a request shows if it names no number. Further ones need a number.
pub const SCHEDULE_PREVIEW_DEFAULT: usize = 5;
/// Due schedules that are read at once. Further ones are read next.
pub const SCHEDULE_BATCH_MAX: usize = 64;
/// Ticks that one process decides at the same time. Further ones wait; no tenant holds more than three times what it
/// leaves free.
pub const SCHEDULE_TICKS_AT_ONCE_MAX: usize = 8;
/// Longest time until due schedules are looked for again. Only a schedule that another node has created and then left
/// is later by this time.
pub const SCHEDULE_SCAN_INTERVAL: Duration = Duration::from_secs(5);
/// Time until a tick is tried again that could not be started because of load. The run is later by this time.
pub const SCHEDULE_RETRY_SECONDS: i64 = 5;
/// Time that the decision about one tick may take. A longer one is given up and tried again.
pub const SCHEDULE_TICK_TIME_MAX: Duration = Duration::from_secs(60);
/// Schedules that are left alone for a while because they could not be looked at. If there are more, none is looked at
/// for that time.
pub const SCHEDULE_FAILED_MAX: usize = 64;
/// Time between two ledger entries about ticks of a schedule that start no run for the same reason. Those in between are
/// summed up.
pub const SCHEDULE_SUMMARY_SECONDS: i64 = 60;
/// Longest time for which no tick of a schedule is tried after refused ones; it doubles from one second. The ticks in
/// between are dropped.
pub const SCHEDULE_BACKOFF_SECONDS_MAX: i64 = 3_600;
/// Ticks of a schedule that may be refused in a row for the same reason. After them the schedule is paused.
pub const SCHEDULE_REFUSALS_MAX: u32 = 10;

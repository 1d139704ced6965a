//! Endpoints that start, repeat and patch runs, and schedules.

pub(crate) mod act_post;
pub(crate) mod acted;
pub(crate) mod idempotency;
pub(crate) mod run_call;
pub(crate) mod run_patch;
pub(crate) mod run_replay;
pub(crate) mod run_retry;
pub(crate) mod schedule_add;
pub(crate) mod schedule_get;
pub(crate) mod schedule_list;
pub(crate) mod schedule_next;
pub(crate) mod schedule_pause;
pub(crate) mod schedule_put;
pub(crate) mod schedule_remove;
pub(crate) mod schedule_resume;
pub(crate) mod schedule_run;
pub(crate) mod schedule_wire;

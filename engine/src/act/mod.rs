//! Act: a request becomes a decision, and then a run.
//!
//! A goal, a workflow, steps, a replay and a patch all become a proposal: a plan with its tools and inputs. Scopes,
//! risk, level and rules are decided on the proposal. Only then does `flow` start or change a run. A schedule makes such
//! a proposal at every tick.

mod access_policy;
mod actions;
mod assess;
mod call_checks;
mod change;
mod idempotency;
pub mod port;
mod propose;
mod recipients;
mod request;
pub mod rules;
pub mod schedule;
mod start;

pub use access_policy::AccessPolicy;
pub use actions::Actions;
pub use change::{ReplayOutcome, patch, replay, replay_once};
pub(crate) use change::{check_replay, patch_with, replay_as};
pub use idempotency::{DuplicatePolicy, RequestKey};
pub use recipients::DirectoryRecipients;
pub(crate) use request::check;
pub use request::{ActOutcome, ActRequest, ConfirmedWorkflow, LevelCeiling, Objective, StartedAction, act};
pub use schedule::{LastTick, ScheduleDefinition, ScheduleStatus, ScheduleView, Schedules};

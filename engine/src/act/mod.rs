//! Act: a request becomes a decision, and then a run.
//!
//! A goal, a workflow, steps, a replay and a patch all become a proposal: a plan with its tools and inputs. Scopes,
//! risk, level and rules are decided on the proposal. Only then does `flow` start or change a run. A schedule makes such
//! a proposal at every tick.

mod actions;
mod change;
mod guard;
mod idempotency;
mod limit_check;
pub mod port;
mod recipients;
pub mod rules;
mod schedule;

pub use actions::{ActOutcome, ActRequest, Actions, Objective, StartedAction};
pub use guard::Guard;
pub use idempotency::{DuplicatePolicy, RequestKey};
pub use recipients::DirectoryRecipients;
pub use schedule::{LastTick, ScheduleDefinition, ScheduleStatus, ScheduleView, Schedules};

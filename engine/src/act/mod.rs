//! The act room in motion: what somebody asks for becomes a decision, and a run.
//!
//! A goal, a workflow, steps, a replay and a patch all become a proposal: a plan with its tools and inputs. Scopes, risk, level and
//! rules are decided about it, and only then does the flow room start a run or change one.

mod actions;
mod change;
mod guard;
mod idempotency;
pub mod port;
mod recipients;
pub mod rules;

pub use actions::{Act, Acted, Actions, Begun, OnDuplicate, Summary, What};
pub use guard::Guard;
pub use recipients::Deciders;

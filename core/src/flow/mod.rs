//! The flow room: workflows, tool calls and runs, and the state machine that advances a run.

pub mod air;
pub mod approval;
pub mod call;
pub mod cause;
pub mod event;
pub(crate) mod expand;
pub mod judgement;
pub(crate) mod outputs;
pub mod patch;
pub mod pins;
pub mod plan;
pub mod policy;
pub mod projection;
pub mod reservation;
pub mod review;
pub mod risk;
pub mod run;
pub mod status;
pub mod tables;
pub mod title;
pub mod trace;
pub mod work;

pub use chimera_expr as expr;
pub use expand::{Children, expand};

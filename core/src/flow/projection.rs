//! Projections: rows of other rooms that tell of a run's calls.
//!
//! They are a pure function of what happened to a step, and are written in the same turn, so there is no consumer that
//! lags behind and no second writer. Only runs whose workflow asks for them have any; the others pay nothing.

use crate::error::ErrorBody;
use crate::flow::air::ExecutionLogging;
use crate::flow::run::RunHead;
use crate::record::{Insert, Step, Unstorable};
use crate::time::Timestamp;
use serde_json::Value;
use uuid::Uuid;

/// What a projection knows of the run and the step.
#[derive(Clone, Copy, Debug)]
pub struct StepContext<'a> {
    pub head: &'a RunHead,
    /// What the workflow, or that of the parent run, asks for.
    pub logging: &'a ExecutionLogging,
    pub node: &'a str,
    /// The position of the item in its list.
    pub item: Option<u32>,
    pub at: Timestamp,
}

/// What happened to a step.
#[derive(Clone, Copy, Debug)]
pub enum StepChange<'a> {
    /// A call is about to be made.
    CallStarted { call: Uuid, tool: &'a str, attempt: u32, input: &'a Value },
    /// A call has ended.
    CallEnded {
        call: Uuid,
        tool: &'a str,
        attempt: u32,
        input: &'a Value,
        ended: Result<&'a Value, &'a ErrorBody>,
        duration_ms: i64,
        /// Whether the end was recorded before, as unknown: what is recorded now has a record of its own.
        is_late: bool,
        /// A fresh id for what the end of the call needs beside its own row.
        fresh: Uuid,
    },
    /// The rules or the judge of the step refused it.
    Refused { by: Refusal, input: &'a Value, error: &'a ErrorBody, fresh: Uuid },
    /// The step failed for another reason than a call that ended.
    Failed { input: &'a Value, error: &'a ErrorBody, fresh: Uuid },
}

/// Who refused a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Policy,
    Judge,
}

/// A row that is written with the turn.
#[derive(Clone, Debug, PartialEq)]
pub enum ProjectedRow {
    Insert(Insert),
    /// A change of an earlier row. Changes are made in the order in which they are returned.
    Change(Step),
}

/// Derives rows of other rooms from what happens to the steps of a run. Pure: the same change gives the same rows.
pub trait Projection: Send + Sync {
    fn rows(&self, step: &StepContext<'_>, change: &StepChange<'_>) -> Result<Vec<ProjectedRow>, Unstorable>;
}

/// Derives nothing.
pub struct NoProjection;

impl Projection for NoProjection {
    fn rows(&self, _: &StepContext<'_>, _: &StepChange<'_>) -> Result<Vec<ProjectedRow>, Unstorable> {
        Ok(Vec::new())
    }
}

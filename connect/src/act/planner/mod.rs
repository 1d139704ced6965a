//! From a goal in words to a plan, without guessing.
//!
//! The goal is cut into clauses; each clause picks a tool by its verb and by what it speaks of; the
//! tool's schema says which inputs are needed; they come from the clause, from the caller's
//! `inputs`, or from what an earlier step gives. The same goal, inputs and tools always give the
//! same plan. Nothing is made up: an input that is nowhere is told to be missing. Every token of the
//! goal becomes exactly one thing (see [`clause::Use`]); one that becomes nothing refuses the goal. At the end
//! [`ledger::Ledger`] compares what became something with the goal itself, sign by sign, whatever rules there are.

mod account;
mod build;
mod choose;
mod clause;
mod fill;
mod form;
mod joint;
mod label;
mod ledger;
mod lexicon;
mod preposition;
mod qualifier;
mod refer;
mod request;
mod slot;
mod token;
mod wire;

use async_trait::async_trait;
use build::Builder;
use chimera_core::act::PlanError;
use chimera_core::flow::plan::Plan;
use chimera_core::limits::{GOAL_CHARS_MAX, PLAN_TOOLS_MAX};
use chimera_core::tool::Spec;
use chimera_engine::act::port::Planner;
use choose::Profile;
use clause::Split;
use serde_json::Value;
use std::sync::Arc;

/// Plans by the words of a goal and the schemas of the tools, without a model; repeatable.
#[derive(Clone, Copy, Debug, Default)]
pub struct WordPlanner;

#[async_trait]
impl Planner for WordPlanner {
    async fn plan(&self, goal: &str, inputs: &Value, tools: &[Arc<Spec>]) -> Result<Plan, PlanError> {
        plan(goal, inputs, tools)
    }
}

/// Plans a goal with these tools; members of `inputs`, if it is an object, fill inputs of the same
/// name. Past [`PLAN_TOOLS_MAX`], tools are not looked at.
pub fn plan(goal: &str, inputs: &Value, tools: &[Arc<Spec>]) -> Result<Plan, PlanError> {
    if goal.trim().is_empty() {
        return Err(PlanError::Empty);
    }
    if goal.chars().nth(GOAL_CHARS_MAX).is_some() {
        return Err(PlanError::TooLong);
    }
    let tokens = token::read(goal);
    let Split { clauses, joints, stray } = clause::split(goal, &tokens);
    if clauses.is_empty() {
        return Err(PlanError::Empty);
    }
    if let Some(refusal) = request::frequency(goal, &tokens) {
        return Err(refusal);
    }
    if let Some(refusal) = request::open_text(goal, &tokens) {
        return Err(refusal);
    }
    if let Some(refusal) = request::misplaced(goal, &clauses) {
        return Err(refusal);
    }
    let profiles: Vec<Profile> = tools.iter().take(PLAN_TOOLS_MAX).map(Profile::of).collect();
    let mut builder = Builder::new(goal, inputs, &profiles, &joints);
    let mut clauses = clauses.into_iter();
    while let Some(mut clause) = clauses.next() {
        let done = builder.clause(&mut clause).map_err(|error| builder.with_others(error, clauses.as_slice()));
        done.map_err(|error| account::with_stray(goal, error, &stray))?;
    }
    match request::question(goal, &tokens) {
        Some(refusal) => Err(refusal),
        None => builder.plan(),
    }
}

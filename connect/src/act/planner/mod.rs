//! Turns a goal in plain English into a plan, without guessing.
//!
//! The goal is split into clauses. Each clause selects a tool by its verb and its nouns. Inputs come from the clause,
//! from the caller's `inputs`, or from the output of an earlier step. The same goal, inputs and tools always give the
//! same plan. Nothing is invented: a missing input is reported. Every token gets exactly one role (see
//! [`clause::Use`]); a token without a role rejects the goal. Finally [`ledger::Ledger`] checks, byte by byte and
//! independently of all rules, that the plan accounts for the whole goal.

mod build;
mod choose;
mod clause;
mod connective;
mod coverage;
mod fill;
mod function_word;
mod label;
mod lexicon;
mod preposition;
mod qualifier;
mod refer;
mod request;
mod roles;
mod sequence;
mod slot;
mod token;
mod wire;

use async_trait::async_trait;
use build::PlanBuilder;
use chimera_core::act::PlanError;
use chimera_core::flow::plan::Plan;
use chimera_core::limits::{GOAL_CHARS_MAX, PLAN_TOOLS_MAX};
use chimera_core::tool::Spec;
use chimera_engine::act::port::Planner;
use choose::ToolProfile;
use clause::SplitGoal;
use serde_json::Value;
use std::sync::Arc;

/// A deterministic planner that uses only the words of a goal and the schemas of the tools, no model.
#[derive(Clone, Copy, Debug, Default)]
pub struct WordPlanner;

#[async_trait]
impl Planner for WordPlanner {
    async fn plan(&self, goal: &str, inputs: &Value, tools: &[Arc<Spec>]) -> Result<Plan, PlanError> {
        plan(goal, inputs, tools)
    }
}

/// Plans a goal with these tools. Members of `inputs`, if it is an object, fill inputs of the same name. Tools beyond
/// [`PLAN_TOOLS_MAX`] are ignored.
pub fn plan(goal: &str, inputs: &Value, tools: &[Arc<Spec>]) -> Result<Plan, PlanError> {
    if goal.trim().is_empty() {
        return Err(PlanError::Empty);
    }
    if goal.chars().nth(GOAL_CHARS_MAX).is_some() {
        return Err(PlanError::TooLong);
    }
    let tokens = token::read(goal);
    let SplitGoal { clauses, joints, stray, reordered } = clause::split(goal, &tokens);
    if clauses.is_empty() {
        return Err(PlanError::Empty);
    }
    if let Some(refusal) = request::frequency_error(goal, &tokens) {
        return Err(refusal);
    }
    if let Some(refusal) = request::open_text(goal, &tokens) {
        return Err(refusal);
    }
    if let Some(refusal) = request::unfaithful_json(&tokens) {
        return Err(refusal);
    }
    if let Some(refusal) = sequence::misplaced(goal, &tokens, &clauses) {
        return Err(refusal);
    }
    // Whatever else is wrong with the goal is told first.
    let doubt = sequence::order_error(goal, &tokens, reordered && clauses.len() > 2)
        .or_else(|| sequence::colon_error(goal, &clauses, joints.iter().chain(&stray)));
    let profiles: Vec<ToolProfile> = tools.iter().take(PLAN_TOOLS_MAX).map(ToolProfile::of).collect();
    let mut builder = PlanBuilder::new(goal, inputs, &profiles, &joints);
    let mut clauses = clauses.into_iter();
    while let Some(mut clause) = clauses.next() {
        let done = builder.add_clause(&mut clause).map_err(|error| builder.with_others(error, clauses.as_slice()));
        done.map_err(|error| roles::with_stray(goal, error, &stray))?;
    }
    match doubt.or_else(|| request::question_error(goal, &tokens)) {
        Some(refusal) => Err(refusal),
        None => builder.plan(),
    }
}

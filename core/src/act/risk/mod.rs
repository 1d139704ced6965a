//! The risk score of a plan, with its reasons.
//!
//! It counts external calls, what the tools declare, destructive operations and personal data anywhere in the inputs,
//! input sizes, and the shape of the plan. A reason has a factor, a location and points, never the text itself;
//! member names that could be personal data are also left out of pointers.
//!
//! It is a heuristic, not a proof. Quoted, percent-, base64- and hex-encoded text is decoded; what is assembled at
//! run time (`'DR' || 'OP'`) is not detected. Whatever cannot be decoded counts as unreadable.

mod bank;
mod command;
mod decode;
mod destructive;
mod factor_set;
mod input_scanner;
mod national;
mod personal;
mod text;

use crate::flow::plan::Plan;
use crate::flow::risk::{FACTORS, Factor, Reason, Score};
use crate::limits::PLAN_STEPS_FREE_MAX;
use crate::tool::{EffectKind, Risk, Spec};
use input_scanner::InputScanner;
use serde_json::Value;
use std::ops::Deref;

/// The capability that declares a call to an external API.
const EXTERNAL_API: &str = "external_api";

/// Scores a plan with these tools. A tool that is not among them is unknown.
#[must_use]
pub fn score_with(plan: &Plan, tools: &[&Spec]) -> Score {
    score(plan, &|name: &str| tools.iter().find(|tool| tool.name == name).copied())
}

/// Scores a plan. Pointers are relative to the plan.
#[must_use]
pub fn score<S: Deref<Target = Spec>>(plan: &Plan, tools: &dyn Fn(&str) -> Option<S>) -> Score {
    let mut tally = ScoreBuilder::default();
    let mut walk = InputScanner::new(plan.steps.iter().map(|step| node_name(&step.id)));
    for (index, step) in plan.steps.iter().enumerate() {
        let at = format!("/steps/{index}");
        let spec = tools(&step.tool);
        tally.add_tool(spec.as_deref(), &step.input, &at);
        walk.scan_input(index, &step.input, &format!("{at}/input"), &mut tally);
        if walk.sources() > 1 {
            tally.add(Factor::Join, || format!("{at}/input"));
        }
        if walk.sources() > 0 && spec.is_none_or(|spec| spec.effect_of(&step.input) == EffectKind::Write) {
            tally.add(Factor::DataLeaves, || format!("{at}/input"));
        }
    }
    tally.add_step_count(plan.steps.len());
    if plan.more {
        tally.add_times(Factor::Unread, Factor::Unread.times(), || "/steps".to_owned());
    }
    tally.score
}

/// The node name of a step: without its map item and the enclosing workflows.
fn node_name(id: &str) -> &str {
    let own = id.rsplit_once('/').map_or(id, |(_, own)| own);
    own.split_once('[').map_or(own, |(node, _)| node)
}

/// Scores one call. Pointers are relative to `{"tool", "input"}`.
#[must_use]
pub fn score_call(tool: &Spec, input: &Value) -> Score {
    let mut tally = ScoreBuilder::default();
    tally.add_tool(Some(tool), input, "");
    InputScanner::new(std::iter::empty()).scan_input(0, input, "/input", &mut tally);
    tally.score
}

/// Accumulates a score.
#[derive(Default)]
struct ScoreBuilder {
    score: Score,
    counts: [u32; FACTORS],
}

impl ScoreBuilder {
    /// Counts a factor, up to its maximum.
    fn add(&mut self, factor: Factor, pointer: impl FnOnce() -> String) {
        self.add_times(factor, 1, pointer);
    }

    /// Counts a factor several times at one location.
    fn add_times(&mut self, factor: Factor, times: u32, pointer: impl FnOnce() -> String) {
        let count = &mut self.counts[factor as usize];
        let times = times.min(factor.times() - *count);
        if times > 0 {
            *count += times;
            let points = factor.points() * times;
            self.score.score += points;
            self.score.reasons.push(Reason { factor, pointer: pointer(), points });
        }
    }

    /// Adds the factors that a tool declares.
    fn add_tool(&mut self, spec: Option<&Spec>, input: &Value, at: &str) {
        let pointer = || format!("{at}/tool");
        let Some(spec) = spec else { return self.add(Factor::UnknownTool, pointer) };
        match spec.effect_of(input) {
            EffectKind::Read => self.add(Factor::ExternalRead, pointer),
            EffectKind::Write => self.add(Factor::ExternalWrite, pointer),
            EffectKind::Pure if spec.metadata.capabilities.iter().any(|word| word == EXTERNAL_API) => {
                self.add(Factor::ExternalApi, pointer);
            }
            EffectKind::Pure => {}
        }
        match spec.metadata.risk_level {
            Risk::Low => {}
            Risk::Medium => self.add(Factor::MediumTool, pointer),
            Risk::High => self.add(Factor::HighTool, pointer),
        }
    }

    /// Adds the factors of the number of steps.
    fn add_step_count(&mut self, steps: usize) {
        let more = u32::try_from(steps.saturating_sub(1)).unwrap_or(u32::MAX);
        self.add_times(Factor::Steps, more, || "/steps".to_owned());
        if steps > PLAN_STEPS_FREE_MAX {
            self.add(Factor::ManySteps, || "/steps".to_owned());
        }
    }
}

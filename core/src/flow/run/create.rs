//! Creates a run: its first turn, together with its first pure calls.
//!
//! A pure call reaches nothing outside, so it needs no record before it is made. If its tool answers at once, its
//! result is written with the run.

use super::env::Env;
use super::event::{CallMode, Effect, Event, Turn};
use super::turn_builder::TurnContext;
use super::{Call, Run, RunHead, RunRecording, close, consult, step};
use crate::flow::air::Graph;
use crate::flow::call::CallOutcome;
use crate::flow::reservation::Facts;
use crate::record::Unstorable;
use std::sync::Arc;

/// What a run is created with.
#[derive(Clone)]
pub struct NewRun {
    pub head: RunHead,
    pub graph: Arc<Graph>,
    /// The outputs of the run that it replays.
    pub recorded: Option<RunRecording>,
    /// What the limits on its first calls have counted, as far as it was read. A turn that has a `Consult` needs more.
    pub facts: Facts,
}

/// Makes the first turn of a new run, together with its first pure calls.
pub(crate) fn first_turn(
    run: &mut Run,
    facts: Facts,
    env: &mut Env<'_>,
    at_once: &mut dyn FnMut(&Run, &Call) -> Option<CallOutcome>,
) -> Result<Turn, Unstorable> {
    run.budget.count_values(run.tasks.values(), &run.head.inputs);
    let mut cx = TurnContext::new(env, run.row.run_seq());
    cx.limits.learn(facts);
    step::advance(run, vec![Event::Claimed { owns_all_calls: true }], &mut cx)?;
    let mut answered = Vec::new();
    for effect in std::mem::take(&mut cx.turn.effects) {
        match effect {
            Effect::Call(call) if call.mode == CallMode::Execute && run.is_pure_at(call.at) => {
                match at_once(run, &call) {
                    Some(answer) => {
                        answered.push(Event::CallAnswered { at: call.at, call: call.id, answer, took_ms: 0 })
                    }
                    None => cx.turn.effects.push(Effect::Call(call)),
                }
            }
            other => cx.turn.effects.push(other),
        }
    }
    if !answered.is_empty() {
        step::advance(run, answered, &mut cx)?;
    }
    consult::note_counted(run, &mut cx);
    close::finish_turn(run, cx)
}

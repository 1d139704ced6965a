//! One turn: applies all events that have arrived, then advances the run as far as possible.
//!
//! This is the coordinator. It routes each event to the module that handles it, and calls the others in a fixed order:
//! judgements that earlier turns left, rollback, draft, timers, edges and starts, end.

use super::drafting::draft;
use super::drafting::plan;
use super::env::Env;
use super::event::{Effect, Event, Turn};
use super::patches::apply;
use super::rollback::undo;
use super::tasks::edges;
use super::tasks::task::TaskState;
use super::turn_builder::{TurnBuilder, TurnContext};
use super::{
    Run, RunPlace, RunStatus, answer, approve, close, consult, elsewhere, end, judge, map_calls, maps, refused_turn,
    renew, signals, start, waits,
};
use crate::access::Level;
use crate::error::{Code, ErrorBody};
use crate::flow::tables::runs;
use crate::limits;
use crate::record::{Unstorable, Value};
use std::sync::Arc;

/// Applies the events and returns the turn to commit.
pub(crate) fn step(run: &mut Run, events: Vec<Event>, env: &mut Env<'_>) -> Result<Turn, Unstorable> {
    // Nothing is written with a timestamp before the restore.
    env.now = run.row.restored_at().map_or(env.now, |at| at.max(env.now));
    let mut cx = TurnContext::new(env, run.row.run_seq());
    count_work(run);
    advance(run, events, &mut cx)?;
    consult::note_counted(run, &mut cx);
    close::finish_turn(run, cx)
}

/// Adds the work of the previous turn to the run's total. Fails the run if it exceeds the limit.
fn count_work(run: &mut Run) {
    if !run.budget.begin_turn() && !run.stopping.is_stopping() && !run.status.is_final() {
        let message = "the run's expressions exceed the work limit of a run";
        run.stopping.fail_with(ErrorBody::new(Code::ValidationFailed, message));
    }
}

/// Whether the turn has reached its limit of rows or work.
pub(crate) fn is_turn_full(run: &Run, turn: &TurnBuilder) -> bool {
    turn.row_count() >= limits::TURN_ROWS_MAX || run.budget.is_spent()
}

/// Applies events and advances as far as possible. Rows are written by `finish_turn`.
pub(crate) fn advance(run: &mut Run, events: Vec<Event>, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    judge::proceed(run, cx)?;
    for event in events {
        apply_event(run, event, cx)?;
    }
    undo::drive(run, cx)?;
    if !run.stopping.is_stopping() {
        draft::proceed(run, cx)?;
    }
    handle_due(run, cx)?;
    waits::start_lookups(run, cx);
    propagate_and_start(run, cx)?;
    consult::release_unused(run, cx);
    end::conclude(run, cx)
}

fn apply_event(run: &mut Run, event: Event, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    match event {
        Event::Claimed { owns_all_calls } if run.row.is_new() => {
            debug_assert!(owns_all_calls, "a run that is nowhere yet has no other owner");
            begin(run, cx)
        }
        Event::Claimed { owns_all_calls } => resume_claimed(run, owns_all_calls, cx),
        Event::CallAnswered { at, call, answer, took_ms } => {
            cx.turn.took_ms = took_ms;
            answer::apply_answer(run, at, call, answer, cx)
        }
        Event::CacheLookedUp { at, hit } => start::cache_looked_up(run, at, hit, cx),
        Event::EventLookedUp { at, last, found } => waits::looked_up(run, at, last, found, cx),
        Event::Consulted { at, facts } => {
            consult::consulted(run, at, facts, &mut cx.limits);
            Ok(())
        }
        Event::Signalled(signal) => signals::apply(run, signal, cx),
        Event::Tick => Ok(()),
        Event::TurnRefused { answers, then } => refused_turn::reapply_answers(run, answers, then, cx),
    }
}

/// Starts a new run with its root nodes, or with the draft.
fn begin(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    run.status = RunStatus::Running;
    cx.turn.status = Some(RunStatus::Running);
    close::note_started(run, &mut cx.turn);
    if !run.row.is_new() {
        pin(run, &mut cx.turn);
    }
    if let Err(error) = check_inputs(run) {
        run.stopping.fail_with(error);
        return Ok(());
    }
    if run.stopping.is_stopping() {
        return Ok(());
    }
    if map_calls::exceeds_call_limit(run) {
        Arc::make_mut(&mut run.head).level = Level::Draft;
        cx.turn.set_run_column(runs::autonomy_level, Level::Draft.as_str());
    }
    if draft::is_wanted(run) {
        return draft::begin(run, cx);
    }
    run.tasks.queue_roots();
    Ok(())
}

/// Records the workflow version and timeout of a child run. They are fixed when it is first claimed.
fn pin(run: &Run, turn: &mut TurnBuilder) {
    turn.set_run_column(runs::workflow_version, run.head.workflow.version);
    turn.set_run_column(runs::workflow_digest, Value::Bytes(run.tasks.graph().digest.to_vec()));
    turn.set_run_column(runs::timeout_at, run.head.timeout_at);
}

/// Checks that the workflow is supported and accepts these inputs.
fn check_inputs(run: &Run) -> Result<(), ErrorBody> {
    if let Some(problem) = run.tasks.graph().unsupported_problem() {
        return Err(ErrorBody::new(Code::ValidationFailed, problem.reason));
    }
    let Some(schema) = &run.tasks.graph().input_schema else { return Ok(()) };
    schema.check(&run.head.inputs).map_err(|faults| {
        let faults = serde_json::to_value(faults).unwrap_or_default();
        ErrorBody::new(Code::ValidationFailed, "the inputs do not match the workflow's schema").with("faults", faults)
    })
}

/// Resumes a run that was loaded. If `owns_all_calls`, no other process can still be making its calls, so a lost one is
/// settled at once; otherwise at its deadline.
fn resume_claimed(run: &mut Run, owns_all_calls: bool, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    cx.turn.claim = true;
    if owns_all_calls {
        run.rollback.skip_lost_deadlines();
    }
    if run.status == RunStatus::Pending {
        return begin(run, cx);
    }
    if run.status.is_final() {
        return Ok(());
    }
    if run.drafting.is_plan_pending() {
        return renew::renew_plan(run, cx);
    }
    renew::renew_requests(run, cx)?;
    if draft::is_wanted(run) && !run.stopping.is_stopping() {
        return draft::begin(run, cx);
    }
    run.tasks.queue_roots();
    maps::settle_maps(run, cx)?;
    waits::resume(run, cx);
    let lost: Vec<RunPlace> = run.tasks.places().filter(|at| run.tasks.is_lost(*at)).collect();
    for at in lost {
        if owns_all_calls {
            answer::settle_lost(run, at, cx)?;
        }
    }
    Ok(())
}

/// Handles everything that is due.
fn handle_due(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    if run.status.is_final() {
        return Ok(());
    }
    if run.head.timeout_at.is_some_and(|end| end <= cx.env.now) && !run.stopping.is_stopping() {
        run.stopping.fail_with(ErrorBody::new(Code::RequestTimeout, "the run timed out"));
        cx.turn.effects.extend(run.tasks.calls().iter().map(|at| Effect::Cancel(*at)));
    }
    plan::expire(run, cx)?;
    apply::expire(run, cx)?;
    apply::renew(run, cx)?;
    while let Some((due, at)) = run.tasks.take_due(cx.env.now) {
        if cx.turn.row_count() >= limits::TURN_ROWS_MAX {
            run.tasks.put_back_timer((due, at));
            cx.turn.more = true;
            break;
        }
        handle_timer(run, at, cx)?;
    }
    Ok(())
}

fn handle_timer(run: &mut Run, at: RunPlace, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    match run.tasks.state(at) {
        Some(TaskState::Delayed { .. } | TaskState::RetryWait { .. }) => {
            run.tasks.enter(at, TaskState::Ready);
            run.tasks.push_ready(at);
            Ok(())
        }
        Some(TaskState::AwaitingApproval(asked)) => {
            let asked = asked.clone();
            approve::expire(run, at, &asked, cx)
        }
        Some(TaskState::Lost { .. }) => answer::settle_lost(run, at, cx),
        Some(TaskState::Elsewhere { .. }) => elsewhere::deadline_passed(run, at, cx),
        Some(TaskState::Waiting(_)) => waits::time_has_come(run, at, cx),
        _ => Ok(()),
    }
}

/// Decides edges and starts what is ready, up to the limit of a turn.
fn propagate_and_start(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    loop {
        edges::propagate(run, cx)?;
        start::start_ready(run, cx)?;
        let rest = run.tasks.has_undecided();
        if !rest || is_turn_full(run, &cx.turn) {
            cx.turn.more |= rest;
            return Ok(());
        }
    }
}

//! Who counts as a requester.
//!
//! A rule may require that someone other than the requesters decides. Requesters are the actor of the run and of
//! the run that it replays, and everyone who wrote what would run: the authors of the workflow and its child
//! workflows, the editors of a step's input or the plan, and the proposers of patches. Otherwise a person could
//! write an action and approve it too. Every editor counts, because parts of an earlier edit may remain.
//!
//! Later steps use the outputs of earlier ones. So whoever changed a step that has run, or chose its output, becomes a
//! requester of everything that follows: in this run, its parent and its replays. The parent also uses the reason of a
//! cancellation, which a retry ignores, and the outputs of the sink nodes, which depend on every applied patch.

use super::patches::apply::RunPatch;
use super::{Run, RunPlace, map_calls};
use serde_json::Value;
use std::sync::Arc;

/// The member of a child run's request that names the editors and patchers in its ancestors who caused its start.
pub(crate) const ADDED_BY: &str = "added_by";

/// Adds others without duplicates. The order stays: the actor of the run is first.
pub(crate) fn merge_names<'a>(mut requesters: Vec<String>, others: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    for other in others {
        if !requesters.iter().any(|known| known == other) {
            requesters.push(other.to_owned());
        }
    }
    requesters
}

/// The requesters of the call at a place.
pub(crate) fn requesters_of(run: &Run, at: RunPlace) -> Vec<String> {
    let edits = run.drafting.editors_of(run.tasks.name(at));
    let changed = run.tasks.task(at).into_iter().flat_map(|task| task.editors().iter().map(String::as_str));
    let patch = run.patches.of_node(at.node).into_iter().flat_map(RunPatch::writers);
    merge_names(run.head.requesters(), patch.chain(edits).chain(changed))
}

/// The editors and patchers who wrote the call at a place, or who caused this child run in an ancestor. Workflow
/// authors are not among them: workflows outlive their authors.
pub(crate) fn writers_of(run: &Run, at: RunPlace) -> impl Iterator<Item = &str> {
    let edits = run.drafting.editors_of(run.tasks.name(at));
    let changed = run.tasks.task(at).into_iter().flat_map(|task| task.editors().iter().map(String::as_str));
    let patch = run.patches.of_node(at.node).map(RunPatch::proposer);
    let around = map_calls::parent_setting(run, ADDED_BY)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    patch.into_iter().chain(edits).chain(changed).chain(around)
}

/// The requesters of the current plan, with its editors and the writers of its patches.
pub(crate) fn requesters_of_plan(run: &Run) -> Vec<String> {
    let edits = run.drafting.editors();
    let applied = run.patches.applied();
    merge_names(run.head.requesters(), edits.chain(applied.flat_map(RunPatch::writers)))
}

/// Everyone besides the actor who contributed to how the run ended. The parent uses its result.
pub(crate) fn contributors_to_end(run: &Run) -> Vec<String> {
    let applied = run.patches.applied();
    merge_names(
        run.head.co_requesters.clone(),
        applied.flat_map(RunPatch::writers).chain(run.stopping.canceller_with_reason()),
    )
}

/// Adds the writers of an edge that handles a failure: without it the run would have ended.
pub(crate) fn add_edge_writers(run: &mut Run, edge: usize) {
    let drawn = run.patches.of_edge(edge).into_iter().flat_map(RunPatch::writers);
    let drawn: Vec<String> = drawn.map(str::to_owned).collect();
    add_co_requesters(run, drawn.iter().map(String::as_str));
}

/// Adds the requesters of a place that has ended: later steps use its output.
pub(crate) fn add_requesters_of_place(run: &mut Run, at: RunPlace) {
    let own = run.tasks.task(at).is_some_and(|task| !task.editors().is_empty());
    if own || run.drafting.has_edits() || !run.patches.is_empty() {
        let changed = requesters_of(run, at);
        add_co_requesters(run, changed.iter().map(String::as_str));
    }
}

/// Adds co-requesters for everything that follows.
pub(crate) fn add_co_requesters<'a>(run: &mut Run, others: impl IntoIterator<Item = &'a str>) {
    let all = merge_names(run.head.requesters(), others);
    if all.len() > 1 + run.head.co_requesters.len() {
        Arc::make_mut(&mut run.head).co_requesters = all.into_iter().skip(1).collect();
    }
}

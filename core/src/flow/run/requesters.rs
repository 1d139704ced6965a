//! Who counts as having asked for something.
//!
//! A rule may demand that somebody else decides than whoever asked. Those who asked are the actor of the run and
//! whoever asked for the run that it repeats, but also whoever wrote what would run: the version of the workflow, those of
//! the workflows that it starts, an edit of the input of a step or of a line of the plan, or what a patch added to the
//! graph. Otherwise somebody could write what is done and approve it too. Of several edits each counts: nobody can tell
//! whose words are left in the last one.
//!
//! What a step gave is what later steps work with. So whoever changed a step that has run, or chose what it gave, counts
//! as having asked for everything that follows, in this run, in the one around it and in those that repeat it. The run
//! around works with the words that ended a run, of which a retry knows nothing, and with what its last nodes gave: which
//! those are depends on every patch, whether or not what it added has run.

use super::patch::Overlay;
use super::{At, Run};
use serde_json::Value;
use std::sync::Arc;

/// The member of a child run's request that names whoever wrote into the runs around it that it is started.
pub(crate) const ADDED_BY: &str = "added_by";

/// These, and others who are not among them yet. The order stays: the actor of the run is first.
pub(crate) fn also<'a>(mut requesters: Vec<String>, others: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    for other in others {
        if !requesters.iter().any(|known| known == other) {
            requesters.push(other.to_owned());
        }
    }
    requesters
}

impl Run {
    /// Who asked for what would run at a place.
    pub(crate) fn requesters_of(&self, at: At) -> Vec<String> {
        let edits = self.edits.get(self.name(at)).into_iter().flat_map(|edit| edit.by.iter().map(String::as_str));
        let changed = self.task(at).into_iter().flat_map(|task| task.changed_by.iter().map(String::as_str));
        let patch = self.patch_of_node(at.node).into_iter().flat_map(Overlay::writers);
        also(self.head.requesters(), patch.chain(edits).chain(changed))
    }

    /// Who wrote the call at a place into this run, or the run itself into the one around it: editors and patchers. Whoever
    /// wrote a workflow is none of them: workflows outlive their authors.
    pub(crate) fn writers_of(&self, at: At) -> impl Iterator<Item = &str> {
        let edits = self.edits.get(self.name(at)).into_iter().flat_map(|edit| edit.by.iter().map(String::as_str));
        let changed = self.task(at).into_iter().flat_map(|task| task.changed_by.iter().map(String::as_str));
        let patch = self.patch_of_node(at.node).map(|overlay| overlay.by.id.as_str());
        let around = self.said(ADDED_BY).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        patch.into_iter().chain(edits).chain(changed).chain(around)
    }

    /// Who asked for the plan as it stands: every line that was edited and every patch is somebody's.
    pub(crate) fn requesters_of_plan(&self) -> Vec<String> {
        let edits = self.edits.values().flat_map(|edit| edit.by.iter().map(String::as_str));
        let applied = self.overlays.values().filter(|overlay| overlay.before.is_some());
        also(self.head.requesters(), edits.chain(applied.flat_map(Overlay::writers)))
    }

    /// Who had a part in how the run ended, besides its actor: what goes on around it works with that.
    pub(crate) fn requesters_of_end(&self) -> Vec<String> {
        let applied = self.overlays.values().filter(|overlay| overlay.before.is_some());
        also(self.head.co_requesters.clone(), applied.flat_map(Overlay::writers).chain(self.had_the_last_word()))
    }

    /// What follows goes on because an edge led on from a failure; without it the run would have ended.
    pub(crate) fn goes_on_by(&mut self, edge: usize) {
        let drawn = self.patch_of_edge(edge).into_iter().flat_map(Overlay::writers);
        let drawn: Vec<String> = drawn.map(str::to_owned).collect();
        self.goes_on_from(drawn.iter().map(String::as_str));
    }

    /// What follows goes on from what a place gave.
    pub(crate) fn goes_on_behind(&mut self, at: At) {
        let own = self.task(at).is_some_and(|task| !task.changed_by.is_empty());
        if own || !self.edits.is_empty() || !self.overlays.is_empty() {
            let changed = self.requesters_of(at);
            self.goes_on_from(changed.iter().map(String::as_str));
        }
    }

    /// What follows goes on from what these had a part in.
    pub(crate) fn goes_on_from<'a>(&mut self, others: impl IntoIterator<Item = &'a str>) {
        let all = also(self.head.requesters(), others);
        if all.len() > 1 + self.head.co_requesters.len() {
            Arc::make_mut(&mut self.head).co_requesters = all.into_iter().skip(1).collect();
        }
    }
}

impl Overlay {
    /// Whoever proposed the patch, and whoever wrote the workflows that it starts.
    pub(crate) fn writers(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.by.id.as_str()).chain(self.patch.authors.iter().map(String::as_str))
    }
}

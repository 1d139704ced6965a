//! Patches: what was added to the graph of a run, and what is proposed.
//!
//! This machine owns the proposed and applied patches. Nodes and edges are only ever added at the end, so the graph
//! before a patch says which of them are its own.

pub(crate) mod apply;
pub(crate) mod pins;

use crate::flow::air::Graph;
use crate::flow::approval::ApprovalRequest;
use crate::time::Timestamp;
use apply::RunPatch;
use std::collections::BTreeMap;
use uuid::Uuid;

/// The patches of a run.
#[derive(Default)]
pub(crate) struct Patches {
    /// The number of patches that were applied so far.
    count: u32,
    /// Proposed and applied patches, by number.
    by_number: BTreeMap<u32, RunPatch>,
}

impl Patches {
    pub(crate) const fn load(count: u32) -> Self {
        Self { count, by_number: BTreeMap::new() }
    }

    pub(crate) fn load_patch(&mut self, number: u32, patch: RunPatch) {
        self.by_number.insert(number, patch);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    /// The applied patches.
    pub(crate) fn applied(&self) -> impl Iterator<Item = &RunPatch> {
        self.by_number.values().filter(|patch| patch.before.is_some())
    }

    /// The graph without any patch, given the current one.
    pub(crate) fn unpatched<'a>(&'a self, current: &'a Graph) -> &'a Graph {
        let before = self.by_number.values().filter_map(|patch| patch.before.as_deref());
        before.min_by_key(|before| before.nodes.len()).unwrap_or(current)
    }

    /// Whether a patch added the node.
    pub(crate) fn is_patched(&self, node: usize) -> bool {
        self.applied().filter_map(|patch| patch.before.as_ref()).any(|before| node >= before.nodes.len())
    }

    /// The patch that added a node, if one did.
    pub(crate) fn of_node(&self, node: usize) -> Option<&RunPatch> {
        let applied = self.applied().filter_map(|patch| Some((patch.before.as_ref()?.nodes.len(), patch)));
        applied.filter(|(before, _)| node >= *before).max_by_key(|(before, _)| *before).map(|(_, patch)| patch)
    }

    /// The patch that added an edge, if one did.
    pub(crate) fn of_edge(&self, edge: usize) -> Option<&RunPatch> {
        let applied = self.applied().filter_map(|patch| Some((patch.before.as_ref()?.edges.len(), patch)));
        applied.filter(|(first, _)| *first <= edge).max_by_key(|(first, _)| *first).map(|(_, patch)| patch)
    }

    /// When the first request about a proposed patch expires.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.requests().filter_map(ApprovalRequest::deadline).min()
    }

    fn requests(&self) -> impl Iterator<Item = &ApprovalRequest> {
        self.by_number.values().filter_map(|patch| patch.asked.as_ref())
    }

    /// The request about a proposed patch was withdrawn, if it is this one.
    pub(crate) fn withdraw(&mut self, request: Uuid) {
        let asked = self.by_number.values_mut().filter_map(|patch| patch.asked.as_mut());
        asked.filter(|asked| asked.id == request).for_each(ApprovalRequest::withdraw);
    }
}

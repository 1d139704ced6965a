//! Patches: what was added to the graph of a run, and what is proposed.
//!
//! This machine owns the proposed and applied patches. Nodes and edges are only ever added at the end, so the graph
//! before a patch says which of them are its own.

pub(crate) mod apply;
pub(crate) mod pins;

use super::load::StoredPatch;
use crate::flow::air::Graph;
use crate::flow::approval::{ApprovalRequest, RequestState, StoredApproval, current};
use crate::flow::patch;
use crate::json::Digest32;
use crate::time::Timestamp;
use apply::RunPatch;
use std::collections::BTreeMap;
use std::sync::Arc;
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
    /// Loads the patches. `graph` becomes the patched graph.
    pub(crate) fn load(
        count: u32,
        stored: Vec<StoredPatch>,
        approvals: &[StoredApproval],
        graph: &mut Arc<Graph>,
    ) -> Self {
        let mut by_number = BTreeMap::new();
        for stored in stored {
            let StoredPatch { number, patch, by, version, applied, applied_seq, approval } = stored;
            let before = applied.map(|patched| std::mem::replace(graph, patched));
            let asked =
                approval.filter(|_| before.is_none()).and_then(|id| current(approvals, |approval| approval.id == id));
            let request = approvals.iter().find(|request| Some(request.id) == approval);
            let risk = request.and_then(|request| request.data.risk()).cloned();
            let approved_by = match request.map(|request| &request.state) {
                Some(RequestState::Approved { by, .. }) => by.clone(),
                _ => Vec::new(),
            };
            // Older rows have no sequence number; they were applied in the order of their patch numbers.
            let seq = applied_seq.unwrap_or(if before.is_some() { -1 } else { i64::MAX });
            by_number.insert(number, RunPatch { patch, by, version, asked, before, seq, risk, approved_by });
        }
        Self { count, by_number }
    }

    /// The digest that approvals cover: that of the plan with every applied patch.
    pub(crate) fn covered_digest(&self, plan: Digest32) -> Digest32 {
        self.applied().fold(plan, |digest, applied| patch::digest(digest, &applied.patch))
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

//! Rollbacks.

use crate::wire::wire;
use chimera_engine::flow::view;
use uuid::Uuid;

wire! {
    /// The last rollback of a run.
    pub(crate) RollbackDocument from view::RollbackView {
        /// Who asked for it.
        by: String,
        /// Kind of that actor.
        by_kind: Option<String>,
        /// Reason for the rollback.
        reason: Option<String>,
        /// Whether only some steps were to be undone.
        part: bool,
        /// Whether it has ended.
        ended: bool,
        /// Number of the rollback within the run.
        round: u32,
        /// Whether the rollback of the parent run asked for it.
        for_parent: bool,
        /// When it began, in microseconds since the Unix epoch.
        began_at: Option<i64>,
        /// When the store was restored from a backup, in microseconds since the Unix epoch.
        restored_at: Option<i64>,
        /// Steps that were undone.
        undone: Vec<RollbackStepDocument>,
        /// Steps that could not be undone.
        left: Vec<RollbackStepDocument>,
        /// Steps of a rollback in progress.
        steps: Vec<Uuid>,
    }

    /// A step of a rollback.
    pub(crate) RollbackStepDocument from view::RollbackLine {
        /// Id of the node.
        node: String,
        /// Index of the map item.
        item: Option<u64>,
        /// Id of the step.
        step_id: Option<Uuid>,
    } + maybe {
        /// Why it was not undone.
        reason: String,
    }
}

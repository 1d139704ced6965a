//! Whoever lets a tool be called needs its scopes, also when the call undoes or repeats one of somebody else.

use super::{Flow, FlowError, load};
use crate::access::Permit;
use chimera_core::error::Code;
use chimera_core::flow::tables::STEPS;
use chimera_core::flow::tool::{Rollback, Spec};
use chimera_core::limits::UNDO_RUNS_LOOKED_MAX;
use chimera_core::record::{Row, Scope, Select};
use std::sync::Arc;
use uuid::Uuid;

impl Flow {
    /// Refuses whoever may not call the tool of a step themselves.
    pub(super) fn may_call(&self, permit: &Permit, step: &Row) -> Result<(), FlowError> {
        self.tool_of(step).map_or(Ok(()), |tool| covers(permit, &tool))
    }

    /// Refuses whoever may not call the tools that a rollback would call: those of these steps, or of all, and of
    /// the runs inside.
    pub(super) async fn may_undo(&self, permit: &Permit, run: Uuid, only: Option<&[Uuid]>) -> Result<(), FlowError> {
        if permit.may("*") {
            return Ok(());
        }
        let (mut runs, mut looked) = (vec![run], 0);
        while let Some(next) = runs.pop() {
            looked += 1;
            if looked > UNDO_RUNS_LOOKED_MAX {
                let message = format!(
                    "the run has more than {UNDO_RUNS_LOOKED_MAX} runs inside: somebody with the scope * must roll it back"
                );
                return Err(FlowError::refused(Code::RbacForbidden, message));
            }
            let scope = Scope::Tenant(permit.tenant().to_owned());
            let select = Select::from(&STEPS, scope).with("run_id", next);
            for step in load::all(&*self.inner.parts.records, select, chimera_core::limits::RUN_ROWS_MAX).await? {
                if next == run && only.is_some_and(|only| !only.contains(&step.uuid("id"))) {
                    continue;
                }
                let undone = |tool: &Arc<Spec>| tool.rollback != Rollback::Unsupported;
                if let Some(tool) = self.tool_of(&step).filter(undone) {
                    covers(permit, &tool)?;
                }
                runs.extend(step.get("child_run_id").as_uuid());
            }
        }
        Ok(())
    }

    /// Refuses whoever may not call every tool of a run themselves. Runs inside are not looked through: for those it
    /// takes the capability that stands above all.
    pub(super) async fn covers_run(&self, permit: &Permit, run: Uuid, else_: &'static str) -> Result<(), FlowError> {
        let before = self.before(permit, run).await?;
        for node in &before.graph.nodes {
            match &node.tool {
                Some(tool) => covers(permit, tool)?,
                None if ["workflow", "map"].contains(&node.node.body.kind()) => return Err(FlowError::lacking(else_)),
                None => {}
            }
        }
        Ok(())
    }

    /// The tool of a step, if it has one that is set up here.
    fn tool_of(&self, step: &Row) -> Option<Arc<Spec>> {
        let tool = self.inner.parts.registry.get(step.get("tool").as_text()?)?;
        Some(Arc::clone(tool.spec()))
    }
}

fn covers(permit: &Permit, tool: &Spec) -> Result<(), FlowError> {
    permit.covers(tool).map_err(Box::new).map_err(FlowError::Refused)
}

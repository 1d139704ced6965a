//! Whoever lets a tool be called needs its scopes, also when the call undoes or repeats one of somebody else.

use super::{Flow, load};
use crate::access::Permit;
use crate::error::EngineError;
use crate::rows;
use chimera_core::error::Code;
use chimera_core::flow::tables::STEPS;
use chimera_core::limits::{RUN_DEPTH_MAX, UNDO_RUNS_LOOKED_MAX};
use chimera_core::record::{Row, Scope, Select};
use chimera_core::tool::{Rollback, Spec};
use std::sync::Arc;
use uuid::Uuid;

impl Flow {
    /// Refuses whoever may not call the tool of a step themselves.
    pub(super) fn may_call(&self, permit: &Permit, step: &Row) -> Result<(), EngineError> {
        self.tool_of(step).map_or(Ok(()), |tool| covers(permit, &tool))
    }

    /// Refuses whoever may not call the tools that a rollback would call: those of these steps, or of all, and of
    /// the runs inside.
    pub(super) async fn may_undo(&self, permit: &Permit, run: Uuid, only: Option<&[Uuid]>) -> Result<(), EngineError> {
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
                return Err(EngineError::refused(Code::RbacForbidden, message));
            }
            let scope = Scope::Tenant(permit.tenant().to_owned());
            let select = Select::from(&STEPS, scope).with("run_id", next).without(load::STEP_DOCUMENTS);
            for step in rows::all(&*self.inner.parts.records, select, chimera_core::limits::RUN_ROWS_MAX).await? {
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

    /// Refuses a token that is narrower than its actor and could not ask for what goes on behind what it decides: in
    /// this run, in the runs inside and in the runs around. `else_` is the scope that stands above all.
    pub(super) async fn may_let_go_on(
        &self,
        permit: &Permit,
        run: Uuid,
        else_: &'static str,
    ) -> Result<(), EngineError> {
        if !permit.is_narrow() || permit.may(else_) {
            return Ok(());
        }
        self.covers_run(permit, run, else_).await?;
        self.may_end(permit, run, else_).await
    }

    /// The same for what ends a run: the runs around go on when it has ended, also when it did not end well.
    pub(super) async fn may_end(&self, permit: &Permit, run: Uuid, else_: &'static str) -> Result<(), EngineError> {
        if !permit.is_narrow() || permit.may(else_) {
            return Ok(());
        }
        let mut inner = run;
        for _ in 0..=RUN_DEPTH_MAX {
            let row = load::run_row(&*self.inner.parts.records, inner).await?;
            let Some(around) = row.and_then(|row| row.get("parent_run_id").as_uuid()) else { return Ok(()) };
            self.covers_run(permit, around, else_).await?;
            inner = around;
        }
        Err(EngineError::lacking(else_))
    }

    /// Refuses whoever may not call every tool of a run themselves, and every tool of the runs that it may start.
    async fn covers_run(&self, permit: &Permit, run: Uuid, else_: &'static str) -> Result<(), EngineError> {
        let before = self.before(permit, run).await?;
        let inside = self.inner.workflows.inside(permit.tenant(), &before.graph, &before.pins).await?;
        for graph in std::iter::once(&before.graph).chain(inside.children.values()) {
            for node in &graph.nodes {
                match (&node.tool, node.node.child()) {
                    (Some(tool), _) => covers(permit, tool)?,
                    // What nobody can look through, somebody with the wider scope has to answer for.
                    (None, Some(child)) if !inside.has(child) => return Err(EngineError::lacking(else_)),
                    (None, _) => {}
                }
            }
        }
        Ok(())
    }

    /// The tool of a step, if it has one that is set up here.
    pub(super) fn tool_of(&self, step: &Row) -> Option<Arc<Spec>> {
        let tool = self.inner.parts.registry.get(step.get("tool").as_text()?)?;
        Some(Arc::clone(tool.spec()))
    }
}

fn covers(permit: &Permit, tool: &Spec) -> Result<(), EngineError> {
    permit.covers(tool).map_err(Box::new).map_err(EngineError::Refused)
}

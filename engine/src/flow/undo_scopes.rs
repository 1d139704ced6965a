//! Scopes for indirect calls: whoever causes a tool call needs its scopes, also when the call undoes or repeats another
//! actor's.

use super::{Flow, FlowPorts, definitions, load};
use crate::access::Permit;
use crate::error::EngineError;
use crate::rows;
use chimera_core::error::Code;
use chimera_core::flow::tables::{StepBrief, steps};
use chimera_core::limits::{RUN_DEPTH_MAX, RUN_ROWS_MAX, UNDO_RUNS_SEARCHED_MAX};
use chimera_core::record::{Scope, StoredRow};
use chimera_core::tool::{Rollback, Spec};
use std::sync::Arc;
use uuid::Uuid;

impl Flow {
    /// Refuses a caller who may not call the tool of a step directly.
    pub(super) async fn check_call_scopes(&self, permit: &Permit, step: &StepBrief) -> Result<(), EngineError> {
        self.tool_of_step(permit, step).await?.map_or(Ok(()), |tool| check_tool_scopes(permit, &tool))
    }

    /// Refuses a caller who may not call the tools that a rollback would call: those of these steps (or all), and of
    /// the child runs.
    pub(super) async fn check_undo_scopes(
        &self,
        permit: &Permit,
        run: Uuid,
        only: Option<&[Uuid]>,
    ) -> Result<(), EngineError> {
        if permit.may("*") {
            return Ok(());
        }
        let (mut runs, mut looked) = (vec![run], 0);
        while let Some(next) = runs.pop() {
            looked += 1;
            if looked > UNDO_RUNS_SEARCHED_MAX {
                let message = format!(
                    "the run has more than {UNDO_RUNS_SEARCHED_MAX} child runs: only a holder of the scope * can roll it back"
                );
                return Err(EngineError::refused(Code::RbacForbidden, message));
            }
            let scope = Scope::Tenant(permit.tenant().to_owned());
            let select = StepBrief::select(scope).with(steps::run_id, next);
            for step in rows::list::<StepBrief>(&*self.inner.parts.records, select, RUN_ROWS_MAX).await? {
                if next == run && only.is_some_and(|only| !only.contains(&step.id)) {
                    continue;
                }
                let undone = |tool: &Arc<Spec>| tool.rollback != Rollback::Unsupported;
                if let Some(tool) = self.tool_of_step(permit, &step).await?.filter(undone) {
                    check_tool_scopes(permit, &tool)?;
                }
                runs.extend(step.child_run_id);
            }
        }
        Ok(())
    }

    /// Refuses a narrowed token that could not request what continues after its decision: in this run, its child runs
    /// and its parent runs. The scope `else_` overrides this.
    pub(super) async fn check_continue_scopes(
        &self,
        permit: &Permit,
        run: Uuid,
        else_: &'static str,
    ) -> Result<(), EngineError> {
        if !permit.is_narrowed() || permit.may(else_) {
            return Ok(());
        }
        self.check_run_scopes(permit, run, else_).await?;
        self.check_end_scopes(permit, run, else_).await
    }

    /// The same for ending a run: its parent runs continue when it has ended, successfully or not.
    pub(super) async fn check_end_scopes(
        &self,
        permit: &Permit,
        run: Uuid,
        else_: &'static str,
    ) -> Result<(), EngineError> {
        if !permit.is_narrowed() || permit.may(else_) {
            return Ok(());
        }
        let mut inner = run;
        for _ in 0..=RUN_DEPTH_MAX {
            let row = load::find_run(&*self.inner.parts.records, inner).await?;
            let Some(around) = row.and_then(|row| row.parent_run_id) else { return Ok(()) };
            self.check_run_scopes(permit, around, else_).await?;
            inner = around;
        }
        Err(EngineError::missing_scope(else_))
    }

    /// Refuses a caller who may not directly call every tool of a run and of the runs it may start.
    async fn check_run_scopes(&self, permit: &Permit, run: Uuid, else_: &'static str) -> Result<(), EngineError> {
        let before = self.original_run(permit, run).await?;
        let graph = &before.workflow.graph;
        let inside = self.inner.workflows.children_of(permit.tenant(), graph, &before.pins).await?;
        for graph in std::iter::once(graph).chain(inside.children.values()) {
            for node in &graph.nodes {
                match (&node.tool, node.node.child()) {
                    (Some(tool), _) => check_tool_scopes(permit, tool)?,
                    // A child workflow that can't be checked needs the overriding scope.
                    (None, Some(child)) if !inside.has(child) => return Err(EngineError::missing_scope(else_)),
                    (None, _) => {}
                }
            }
        }
        Ok(())
    }

    /// The tool of a step, in the definition that the step began with; the current one if that is unknown.
    pub(super) async fn tool_of_step(
        &self,
        permit: &Permit,
        step: &StepBrief,
    ) -> Result<Option<Arc<Spec>>, EngineError> {
        let Some(name) = step.tool.as_deref() else { return Ok(None) };
        self.definition(permit.tenant(), name, step.tool_version.as_deref()).await
    }

    /// A tool in this version, or else in the current one.
    pub(super) async fn definition(
        &self,
        tenant: &str,
        name: &str,
        version: Option<&str>,
    ) -> Result<Option<Arc<Spec>>, EngineError> {
        let FlowPorts { records, registry, .. } = &self.inner.parts;
        if let Some(version) = version
            && let Some((tool, _)) = definitions::find(&**records, registry, tenant, (name, version)).await?
        {
            return Ok(Some(Arc::clone(tool.spec())));
        }
        Ok(registry.get(tenant, name).map(|tool| Arc::clone(tool.spec())))
    }
}

fn check_tool_scopes(permit: &Permit, tool: &Spec) -> Result<(), EngineError> {
    permit.require_tool(tool).map_err(Box::new).map_err(EngineError::Refused)
}

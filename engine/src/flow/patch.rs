//! Patches of a running graph: proposing one, looking at what it would change, taking it out again.
//!
//! The run itself applies a patch, in its next turn. What can be known before is checked here, so
//! that whoever proposes a patch that can't work is told at once.

use super::start::Before;
use super::{Flow, FlowError, load};
use crate::access::Permit;
use chimera_core::error::Code;
use chimera_core::flow::patch::Patch;
use chimera_core::flow::run::{Env, Event as RunEvent, Gate, Owner, Run, Slot, Told, Unstorable};
use chimera_core::flow::tables::{RUN_PATCHES, RUN_SIGNALS, RUNS};
use chimera_core::json::Digest32;
use chimera_core::limits;
use chimera_core::record::{Compare, Condition, Insert, Json, Row, RowCount, Scope, Select, Step, Tx, Value as Cell};
use serde_json::Value;
use std::sync::Arc;
use uuid::Uuid;

/// The status of a patch that is part of the graph.
const APPLIED: &str = "applied";

struct Shut;

impl Gate for Shut {
    fn enter(&mut self, _: Slot<'_>) -> bool {
        false
    }
}

/// A patch that was proposed.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposed {
    /// Its number; none for a dry run.
    pub number: Option<u32>,
    /// What it changes and how it is taken out again.
    pub preview: Value,
}

impl Flow {
    /// Proposes a patch of a running graph, or shows what it would change.
    pub async fn patch(
        &self,
        permit: &Permit,
        run: Uuid,
        document: Value,
        version: Option<i64>,
        dry_run: bool,
    ) -> Result<Proposed, FlowError> {
        let row = self.unfinished(permit, run).await?;
        if version.is_some_and(|version| version != row.int("state_version")) {
            let message = format!("the run is at version {} by now", row.int("state_version"));
            return Err(FlowError::refused(Code::OccConflict, message));
        }
        let mut patch = Patch::from_value(document).map_err(|problems| FlowError::problems("the patch", &problems))?;
        let records = &*self.inner.parts.records;
        let select = Select::from(&RUN_PATCHES, Scope::Tenant(permit.tenant().to_owned())).with("run_id", run);
        let known = load::all(records, select, limits::RUN_ROWS_MAX).await?;
        if known.len() >= usize::try_from(limits::RUN_PATCHES_MAX).unwrap_or(0) {
            return Err(FlowError::refused(Code::ValidationFailed, "the run has as many patches as it may"));
        }
        for node in &mut patch.add_nodes {
            let Some(child) = node.child() else { continue };
            let found = self.inner.workflows.find(permit.tenant(), &child.workflow_id, child.version).await?;
            let Some((newest, _)) = found else {
                let message = format!("there is no workflow {}", child.workflow_id);
                return Err(FlowError::refused(Code::MalformedArgs, message));
            };
            // What was looked at is what will run.
            node.pin(newest);
        }
        let preview = self.preview(permit, row, &patch).await?;
        not_proposed(&known, &patch)?;
        if dry_run {
            return Ok(Proposed { number: None, preview });
        }
        let number = known.iter().map(|row| row.int("number")).max().unwrap_or(0) + 1;
        let row = self.patch_row(permit, run, number, &patch)?;
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let told = Told::Patch { number, patch: patch.to_value(), by: permit.by() };
        // The run must still be at that version when the patch is written down.
        let is = |column, value: Cell| Condition { column, compare: Compare::Is, value };
        let unchanged = version.map(|version| Step::Lock {
            table: &RUNS,
            conditions: vec![is("id", run.into()), is("state_version", version.into())],
            rows: RowCount::Exactly(1),
        });
        let tx = Tx { inserts: vec![row], steps: unchanged.into_iter().collect(), ..Tx::default() };
        self.tell_with(permit, run, told, tx).await?;
        Ok(Proposed { number: Some(number), preview })
    }

    async fn preview(&self, permit: &Permit, row: Row, patch: &Patch) -> Result<Value, FlowError> {
        let looked = self.on_copy(row, |run, env| {
            let preview = run.preview_patch(patch, env);
            let preview = preview.map_err(|problems| FlowError::problems("the patch", &problems))?;
            let judged = run.judge_patch(patch, permit.actor(), env);
            judged.map_err(|why| FlowError::refused(Code::PolicyDenied, why))?;
            Ok(preview)
        });
        looked.await?
    }

    /// What a run would be to do with a patch on it; none: it can't be put on.
    pub(crate) async fn with_patch(
        &self,
        permit: &Permit,
        run: Uuid,
        patch: &Patch,
    ) -> Result<Option<Before>, FlowError> {
        let row = self.unfinished(permit, run).await?;
        self.on_copy(row, |run, env| {
            let head = run.head();
            let (inputs, workflow, level) = (Arc::clone(&head.inputs), head.workflow.clone(), head.level);
            run.patched(patch, env).map(|graph| Before { graph: Arc::new(graph), inputs, workflow, level })
        })
        .await
    }

    /// Looks at a copy of a run as it stands.
    async fn on_copy<T>(&self, row: Row, look: impl FnOnce(&Run, &Env<'_>) -> T) -> Result<T, FlowError> {
        let mut run = load::load(&*self.inner.parts.records, &self.inner.workflows, row).await?;
        let parts = &self.inner.parts;
        let (now, catalog) = (parts.clock.steady(), self.inner.workflows.running());
        let mut env = Env {
            now,
            ids: &mut || parts.random.row_id(now),
            gate: &mut Shut,
            policy: &*parts.policy,
            catalog: &catalog,
            // Nothing of the copy is written.
            owner: Owner { lane: 0, epoch: 0 },
        };
        // What is under way without a row of its own comes up again in this copy, and goes no further.
        run.step(vec![RunEvent::Begun { alone: false }], &mut env)?;
        Ok(look(&run, &env))
    }

    fn patch_row(&self, permit: &Permit, run: Uuid, number: i64, patch: &Patch) -> Result<Insert, FlowError> {
        let digest = chimera_core::flow::patch::digest(Digest32::ZERO, patch);
        let row = Insert::into(
            &RUN_PATCHES,
            vec![
                ("run_id", run.into()),
                ("number", number.into()),
                ("tenant_id", permit.tenant().into()),
                ("patch", Json::of(&patch.to_value()).map_err(Unstorable::from)?.into()),
                ("digest", Cell::Bytes(digest.to_vec())),
                ("status", "proposed".into()),
                ("actor", permit.actor().into()),
                ("actor_kind", permit.kind().as_str().into()),
                ("justification", patch.justification.as_str().into()),
                ("created_at", self.inner.parts.clock.now().into()),
                ("state_version", 1.into()),
            ],
        );
        Ok(row.map_err(Unstorable::from)?)
    }

    /// Takes the last patch out again, while none of its nodes has begun.
    pub async fn unpatch(&self, permit: &Permit, run: Uuid, number: u32) -> Result<(), FlowError> {
        self.unfinished(permit, run).await?;
        let records = &*self.inner.parts.records;
        let select = Select::from(&RUN_PATCHES, Scope::Tenant(permit.tenant().to_owned())).with("run_id", run);
        let known = load::all(records, select, limits::RUN_ROWS_MAX).await?;
        let row = known.iter().find(|row| row.int("number") == i64::from(number));
        let row = row.ok_or_else(|| FlowError::not_found("patch"))?;
        let refused = |why: String| Err(FlowError::refused(Code::InvalidTransition, why));
        if row.text("status") != APPLIED {
            return refused(format!("patch {number} is {}, so there is nothing to take out", row.text("status")));
        }
        let applied = known.iter().filter(|row| row.text("status") == APPLIED).map(|row| row.int("number"));
        if let Some(last) = applied.max().filter(|last| *last > i64::from(number)) {
            return refused(format!("patch {last} was applied after it and must be taken out first"));
        }
        for node in added(row) {
            if self.step_of(permit, run, &node).await.is_ok() {
                return refused(format!("{node}, a node of it, has begun"));
            }
        }
        let select = Select::from(&RUN_SIGNALS, Scope::Tenant(permit.tenant().to_owned()));
        let told = records.read(select.with("run_id", run).with("kind", "unpatch").take(1)).await?;
        if !told.rows.is_empty() {
            return Err(FlowError::refused(Code::OccConflict, "the last patch is being taken out already"));
        }
        self.tell(permit, run, Told::Unpatch { number, by: permit.by() }).await
    }
}

/// The nodes that a patch adds.
fn added(row: &Row) -> Vec<String> {
    let document = row.get("patch").as_json().map(Json::to_value).unwrap_or_default();
    let nodes = document["add_nodes"].as_array().into_iter().flatten();
    nodes.filter_map(|node| node["id"].as_str().map(str::to_owned)).collect()
}

/// Refuses a patch with a node that one adds which is not applied yet: only one of them could be.
fn not_proposed(known: &[Row], patch: &Patch) -> Result<(), FlowError> {
    for row in known.iter().filter(|row| row.text("status") == "proposed") {
        let twice = added(row).into_iter().find(|id| patch.add_nodes.iter().any(|node| node.id == *id));
        if let Some(id) = twice {
            let message = format!("patch {}, which is not applied yet, adds a node {id} too", row.int("number"));
            return Err(FlowError::refused(Code::OccConflict, message));
        }
    }
    Ok(())
}

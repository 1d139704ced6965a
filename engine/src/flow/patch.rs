//! Patches of a running graph: proposing one, looking at what it would change, taking it out again.
//!
//! The run itself applies a patch, in its next turn. What can be known before is checked here, so
//! that whoever proposes a patch that can't work is told at once.

use super::start::Before;
use super::taken_back::{PATCH, SUPERSEDED, TakenBack};
use super::tell::check_unfinished;
use super::{Flow, load};
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::error::invalid;
use crate::offload::Costly;
use crate::rows;
use chimera_core::error::Code;
use chimera_core::flow::air::Graph;
use chimera_core::flow::patch::Patch;
use chimera_core::flow::pins::Pins;
use chimera_core::flow::run::{Env, Event as RunEvent, Gate, Overlaid, Owner, Run, Slot, Told, request_of_row};
use chimera_core::flow::tables::{RUN_PATCHES, RUN_SIGNALS, RUNS};
use chimera_core::json::Digest32;
use chimera_core::limits;
use chimera_core::record::{
    Compare, Condition, Insert, Json, Row, RowCount, Scope, Select, Step, Tx, Unstorable, Value as Cell,
};
use serde_json::Value;
use std::sync::Arc;
use uuid::Uuid;

/// The status of a patch that is part of the graph.
const APPLIED: &str = "applied";

/// The status of a patch that the run has not taken in yet, or that people must approve.
const PROPOSED: &str = "proposed";

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

/// A patch on a run, as both stood at one look. What was looked at is what is proposed, or nothing is.
pub(crate) struct Look {
    run: Uuid,
    /// The version of the run.
    version: i64,
    number: i64,
    /// The patch, with the node that is current in it and the versions of all workflows that it starts.
    pub(crate) patch: Patch,
    preview: Value,
    /// Why the rules refuse it.
    refused: Option<String>,
    /// What the run would be to do with it, and with all that was proposed before and is not put on yet.
    pub(crate) together: Before,
    /// How many calls the run makes without it, as far as that is known by now.
    pub(crate) calls: usize,
    /// How risky that looks which it adds.
    pub(crate) risk: Option<Value>,
}

impl Look {
    /// The refusal of a patch of a run that goes on faster than anybody can look.
    pub(crate) fn outrun() -> EngineError {
        let message = "the run changes faster than the patch can be looked at; pause it and propose the patch again";
        EngineError::refused(Code::OccConflict, message)
    }
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
    ) -> Result<Proposed, EngineError> {
        for _ in 0..limits::PATCH_TRIES_MAX {
            let look = self.look_at_patch(permit, run, &document, version).await?;
            if let Some(proposed) = self.propose(permit, look, dry_run).await? {
                return Ok(proposed);
            }
        }
        Err(Look::outrun())
    }

    /// Looks at a patch on a run as it stands, and refuses one that can't be put on.
    pub(crate) async fn look_at_patch(
        &self,
        permit: &Permit,
        run: Uuid,
        document: &Value,
        version: Option<i64>,
    ) -> Result<Look, EngineError> {
        let row = self.unfinished(permit, run).await?;
        let (records, costly) = (&*self.inner.parts.records, Costly::default());
        let loaded = load::snapshot(records, &self.inner.workflows, row, &costly);
        let (row, copy) = self.inner.offload.aside_once(&permit.claimant(), &costly, loaded).await?;
        check_unfinished(&row)?;
        let seen = row.int("state_version");
        if version.is_some_and(|version| version != seen) {
            return Err(EngineError::refused(Code::OccConflict, format!("the run is at version {seen} by now")));
        }
        let patch = Patch::from_value(document.clone());
        let mut patch = patch.map_err(|problems| invalid("the patch", &problems))?;
        let select = Select::from(&RUN_PATCHES, Scope::Tenant(permit.tenant().to_owned())).with("run_id", run);
        let known = rows::all(records, select, limits::RUN_ROWS_MAX).await?;
        if known.len() >= usize::try_from(limits::RUN_PATCHES_MAX).unwrap_or(0) {
            return Err(EngineError::refused(Code::ValidationFailed, "the run has as many patches as it may"));
        }
        let counts = |row: &&Row| [APPLIED, PROPOSED].contains(&row.text("status"));
        let kept = load::pinned(&request_of_row(&row).1, known.iter().filter(counts));
        self.pin(permit, &mut patch, &kept).await?;
        let (looked, refused, head, calls) = self.on_copy(copy, |run, env| {
            let (looked, calls) = (run.preview_patch(&patch, env), run.calls_spoken_for());
            (looked, run.judge_patch(&patch, permit.actor(), env).err(), Arc::clone(run.head()), calls)
        })?;
        let looked = looked.map_err(|problems| invalid("the patch", &problems))?;
        let Overlaid { patch, graph, preview } = looked;
        not_proposed(&known, &patch)?;
        let together = Before {
            graph: Arc::new(self.with_proposed(permit.tenant(), graph, &known)?),
            inputs: Arc::clone(&head.inputs),
            workflow: head.workflow.clone(),
            level: head.level,
            pins: kept.and(&patch.pins),
        };
        let number = known.iter().map(|row| row.int("number")).max().unwrap_or(0) + 1;
        Ok(Look { run, version: seen, number, patch, preview, refused, together, calls, risk: None })
    }

    /// Fixes the versions of all workflows that a patch starts: what is looked at is what will run. Within each
    /// other, what the run has looked at before stays.
    async fn pin(&self, permit: &Permit, patch: &mut Patch, kept: &Pins) -> Result<(), EngineError> {
        for node in &mut patch.add_nodes {
            let Some(child) = node.child() else { continue };
            let found = self.inner.workflows.find(permit.tenant(), &child.workflow_id, child.version).await?;
            let Some((newest, _)) = found else {
                let message = format!("there is no workflow {}", child.workflow_id);
                return Err(EngineError::refused(Code::MalformedArgs, message));
            };
            node.pin(newest);
        }
        let inside = self.inner.workflows.inside_stored(permit.tenant(), &patch.add_nodes, kept).await?;
        self.inner.workflows.copy_shared(permit.tenant(), None, &inside).await?;
        patch.authors = self.inner.workflows.authors(permit.tenant(), &inside).await?;
        patch.pins = inside.pins;
        Ok(())
    }

    /// A graph with every patch on it that was proposed and is not put on yet.
    fn with_proposed(&self, tenant: &str, mut graph: Graph, known: &[Row]) -> Result<Graph, EngineError> {
        let catalog = self.inner.workflows.running(tenant);
        for row in known.iter().filter(|row| row.text("status") == PROPOSED) {
            let unfit = || {
                let message = format!("patch {} is not applied yet, and this one does not fit it", row.int("number"));
                EngineError::refused(Code::OccConflict, message)
            };
            let document = row.get("patch").as_json().map(Json::to_value).unwrap_or_default();
            let patch = Patch::from_stored(document).map_err(|_| unfit())?;
            let nodes: Vec<&str> = graph.nodes.iter().map(|node| node.node.id.as_str()).collect();
            // Which node is current does not matter for what is called.
            let current = nodes.get(..1).unwrap_or_default();
            graph = chimera_core::flow::patch::apply(&graph, &patch, current, &nodes, &catalog).map_err(|_| unfit())?;
        }
        Ok(graph)
    }

    /// Proposes a patch as it was looked at; none: the run, or what was proposed for it, has changed since.
    pub(crate) async fn propose(
        &self,
        permit: &Permit,
        look: Look,
        dry_run: bool,
    ) -> Result<Option<Proposed>, EngineError> {
        let Look { run, version, number, patch, preview, refused, risk, .. } = look;
        if let Some(why) = refused {
            return Err(EngineError::refused(Code::PolicyDenied, why));
        }
        if dry_run {
            return Ok(Some(Proposed { number: None, preview }));
        }
        // Of two that are proposed at the same time one has the number.
        let row = self.patch_row(permit, run, number, &patch)?;
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let told = Told::Patch { number, patch: patch.to_value(), by: permit.by(), risk };
        let is = |column, value: Cell| Condition { column, compare: Compare::Is, value };
        let unchanged = Step::Lock {
            table: &RUNS,
            conditions: vec![is("id", run.into()), is("state_version", version.into())],
            rows: RowCount::Exactly(1),
        };
        let tx = Tx { inserts: vec![row], steps: vec![unchanged], ..Tx::default() };
        let told = self.try_tell(permit, run, told, TakenBack::default(), tx).await?;
        Ok(told.then_some(Proposed { number: Some(number), preview }))
    }

    /// Looks at a copy of a run as it stands.
    fn on_copy<T>(&self, mut run: Run, look: impl FnOnce(&Run, &Env<'_>) -> T) -> Result<T, EngineError> {
        let tenant = run.head().tenant.clone();
        let parts = &self.inner.parts;
        let (now, catalog) = (parts.clock.steady(), self.inner.workflows.running(&tenant));
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

    fn patch_row(&self, permit: &Permit, run: Uuid, number: i64, patch: &Patch) -> Result<Insert, EngineError> {
        let digest = chimera_core::flow::patch::digest(Digest32::ZERO, patch);
        let row = Insert::into(
            &RUN_PATCHES,
            vec![
                ("run_id", run.into()),
                ("number", number.into()),
                ("tenant_id", permit.tenant().into()),
                ("patch", Json::of(&patch.to_value()).map_err(Unstorable::from)?.into()),
                ("digest", Cell::Bytes(digest.to_vec())),
                ("status", PROPOSED.into()),
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
    pub async fn unpatch(&self, permit: &Permit, run: Uuid, number: u32) -> Result<(), EngineError> {
        self.unfinished(permit, run).await?;
        let records = &*self.inner.parts.records;
        let select = Select::from(&RUN_PATCHES, Scope::Tenant(permit.tenant().to_owned())).with("run_id", run);
        let known = rows::all(records, select, limits::RUN_ROWS_MAX).await?;
        let row = known.iter().find(|row| row.int("number") == i64::from(number));
        let row = row.ok_or_else(|| EngineError::not_found("patch"))?;
        let refused = |why: String| Err(EngineError::refused(Code::InvalidTransition, why));
        if row.text("status") != APPLIED {
            return refused(format!("patch {number} is {}, so there is nothing to take out", row.text("status")));
        }
        let put_on = |row: &Row| (load::applied_seq(row), row.int("number"));
        let last = known.iter().filter(|row| row.text("status") == APPLIED).max_by_key(|row| put_on(row));
        if let Some(last) = last.map(|row| row.int("number")).filter(|last| *last != i64::from(number)) {
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
            return Err(EngineError::refused(Code::OccConflict, "the last patch is being taken out already"));
        }
        let requests = self.requests_of(permit.tenant(), run).await?;
        not_approved(&known, &requests)?;
        // What the others that wait are about changes with it.
        let void = TakenBack::all(&requests, SUPERSEDED, |row| row.text("action_type") == PATCH);
        self.tell_once(permit, run, Told::Unpatch { number, by: permit.by() }, (&RUN_PATCHES, row), void).await
    }
}

/// The nodes that a patch adds.
fn added(row: &Row) -> Vec<String> {
    let document = row.get("patch").as_json().map(Json::to_value).unwrap_or_default();
    let nodes = document["add_nodes"].as_array().into_iter().flatten();
    nodes.filter_map(|node| node["id"].as_str().map(str::to_owned)).collect()
}

/// Refuses to take a patch out while another one that was approved is about to be put on it.
fn not_approved(known: &[Row], requests: &[Row]) -> Result<(), EngineError> {
    let approved = |row: &&Row| {
        let request = requests
            .iter()
            .find(|asked| Some(asked.uuid("approval_request_id")) == row.get("approval_request_id").as_uuid());
        row.text("status") == PROPOSED && request.is_some_and(|asked| asked.text("status") == "approved")
    };
    let Some(row) = known.iter().find(approved) else { return Ok(()) };
    let message = format!("patch {} was approved and is being applied; take it out first", row.int("number"));
    Err(EngineError::refused(Code::OccConflict, message))
}

/// Refuses a patch with a node that one adds which is not applied yet: only one of them could be.
fn not_proposed(known: &[Row], patch: &Patch) -> Result<(), EngineError> {
    for row in known.iter().filter(|row| row.text("status") == PROPOSED) {
        let twice = added(row).into_iter().find(|id| patch.add_nodes.iter().any(|node| node.id == *id));
        if let Some(id) = twice {
            let message = format!("patch {}, which is not applied yet, adds a node {id} too", row.int("number"));
            return Err(EngineError::refused(Code::OccConflict, message));
        }
    }
    Ok(())
}

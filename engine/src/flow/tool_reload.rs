//! Reloads declared tools while the process runs.
//!
//! What is new is stored before anybody can use it: a run that begins with a definition finds it again after a crash.
//! Every change is in the ledger, once: the row of a definition says whether the change was already recorded, by this
//! node or another.

use super::Flow;
use super::engine::Shutdown;
use super::registry::ToolSet;
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::port::{DeclarationProblem, DeclaredTool};
use crate::ledger::audit::{EventRecord, Writer};
use crate::port::CommitError;
use crate::rows;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::status::DefinitionStatus;
use chimera_core::flow::tables::{TOOL_DEFINITIONS, ToolDefinitionBrief, tool_definitions};
use chimera_core::limits;
use chimera_core::record::{Insert, Json, Scope, StoredRow, Tx, Unstorable, Update};
use chimera_core::time::Timestamp;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// What a reload did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadedTools {
    /// Whether new runs use other tools than before.
    pub is_changed: bool,
    /// How many tools are declared now, those of all tenants together.
    pub declared: usize,
    /// The files that can't be used as they are.
    pub problems: Vec<DeclarationProblem>,
}

/// Reads the declared tools again and uses them from now on. If they can't be recorded, everything stays as it was.
pub async fn reload_tools(flow: &Flow) -> Result<ReloadedTools, EngineError> {
    reload(flow, true).await
}

/// Reloads the declared tools for an operator.
pub async fn request_reload(flow: &Flow, permit: &Permit) -> Result<ReloadedTools, EngineError> {
    if !is_operator(flow, permit) {
        let body = ErrorBody::new(Code::RbacForbidden, "only an operator may reload tools");
        return Err(EngineError::Refused(Box::new(body.with("required_scope", "*"))));
    }
    let mut tx = Tx::default();
    let writer = Writer { random: &*flow.inner.parts.random, clock: &*flow.inner.parts.clock };
    writer.event(&mut tx, permit.event("tools", "tool.reload_requested", json!({})))?;
    permit.add_alongside(&mut tx);
    flow.inner.parts.records.commit(tx).await?;
    reload_tools(flow).await
}

/// The tool files that can't be used as they are. For anybody but an operator there are none.
#[must_use]
pub fn tool_problems(flow: &Flow, permit: &Permit) -> Vec<DeclarationProblem> {
    if is_operator(flow, permit) { flow.inner.parts.registry.problems() } else { Vec::new() }
}

fn is_operator(flow: &Flow, permit: &Permit) -> bool {
    permit.may("*") && !flow.inner.parts.registry.is_guest(permit.tenant())
}

async fn reload(flow: &Flow, at_once: bool) -> Result<ReloadedTools, EngineError> {
    let registry = &flow.inner.parts.registry;
    let Some(declared) = &registry.declared else { return Ok(ReloadedTools::default()) };
    let _only = registry.reloading.lock().await;
    let declarations = declared.source.read(at_once).await;
    let declarations = declarations.map_err(|reason| EngineError::refused(Code::Internal, reason))?;
    let before = registry.snapshot().generation;
    let found = registry.with_declarations(declarations);
    let (mut set, is_new) = match found {
        Some(set) => (set, true),
        None => ((**registry.snapshot()).clone(), false),
    };
    if !set.is_recorded {
        record(flow, &declared.home, &set).await?;
        set.is_recorded = true;
    } else if !is_new {
        return Ok(report(&set, false));
    }
    let known = registry.problems();
    let new_problems = set.problems.iter().filter(|problem| !known.contains(problem));
    for problem in new_problems {
        tracing::warn!(
            file = problem.file,
            in_use = problem.is_in_use,
            "a tool file can't be used: {}",
            problem.reason
        );
    }
    let is_changed = set.generation != before;
    let reloaded = report(&set, is_changed);
    metrics::gauge!("chimera_tool_files_broken").set(reloaded.problems.len() as f64);
    if is_changed {
        metrics::counter!("chimera_tool_reloads_total", "outcome" => "changed").increment(1);
        tracing::info!(tools = reloaded.declared, "the declared tools changed");
    }
    registry.install(set);
    Ok(reloaded)
}

fn report(set: &ToolSet, is_changed: bool) -> ReloadedTools {
    let declared = set.declared.values().map(BTreeMap::len).sum();
    ReloadedTools { is_changed, declared, problems: set.problems.clone() }
}

/// Reloads the declared tools at an interval, until the engine stops.
pub async fn keep_tools(flow: &Flow) {
    let mut stopping = flow.inner.stopping();
    let mut is_failing = false;
    loop {
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stop| *stop != Shutdown::Running) => return,
            () = tokio::time::sleep(limits::TOOLS_RELOAD_INTERVAL) => {}
        }
        // A store that is held accepts nothing until an operator resumes it.
        if flow.inner.parts.records.hold().is_some() {
            continue;
        }
        match reload(flow, false).await {
            Ok(_) => is_failing = false,
            Err(error) => {
                metrics::counter!("chimera_tool_reloads_total", "outcome" => "failed").increment(1);
                if !is_failing {
                    tracing::warn!(error = %error, "changed tools could not be recorded and are not used yet");
                }
                is_failing = true;
            }
        }
    }
}

/// Records every definition of a set that the store does not have, and every change of what is current.
async fn record(flow: &Flow, home: &str, set: &ToolSet) -> Result<(), EngineError> {
    let none = BTreeMap::new();
    let owners: BTreeSet<&str> = set.declared.keys().map(String::as_str).chain([home]).collect();
    let before = flow.inner.parts.registry.snapshot();
    let former = before.declared.keys().map(String::as_str).filter(|owner| !owners.contains(owner));
    for owner in owners.iter().copied().chain(former) {
        let declared = set.declared.get(owner).unwrap_or(&none);
        let mut tries = 0;
        while let Err(error) = record_owner(flow, owner, declared).await {
            tries += 1;
            // Another node records the same change.
            let is_conflict = matches!(error, EngineError::Commit(CommitError::Conflict(_)));
            if !is_conflict || tries >= limits::TOOL_RECORD_TRIES_MAX {
                return Err(error);
            }
        }
    }
    Ok(())
}

/// How many tools of one owner are current at most.
const CURRENT_MAX: usize = limits::DECLARED_FILES_MAX * limits::DECLARED_TOOLS_MAX;

async fn record_owner(flow: &Flow, owner: &str, declared: &BTreeMap<String, DeclaredTool>) -> Result<(), EngineError> {
    let records = &*flow.inner.parts.records;
    let of_owner = || ToolDefinitionBrief::select(Scope::Tenant(owner.to_owned()));
    let current = of_owner().with(tool_definitions::status, DefinitionStatus::Current);
    let rows: Vec<ToolDefinitionBrief> = rows::list(records, current, CURRENT_MAX).await?;
    let mut current: BTreeMap<&str, Vec<&ToolDefinitionBrief>> = BTreeMap::new();
    for row in &rows {
        current.entry(row.name.as_str()).or_default().push(row);
    }
    let names: BTreeSet<&str> = declared.keys().map(String::as_str).chain(current.keys().copied()).collect();
    for name in names {
        let (current, declared) = (current.get(name).map(Vec::as_slice).unwrap_or_default(), declared.get(name));
        let version = declared.map(|declared| declared.tool.spec().version.as_str());
        if current.iter().map(|row| Some(row.version.as_str())).eq(version.map(Some)) {
            continue;
        }
        let stored = match version {
            Some(version) => {
                let select = of_owner().with(tool_definitions::name, name).with(tool_definitions::version, version);
                rows::find::<ToolDefinitionBrief>(records, select).await?
            }
            None => None,
        };
        records.commit(change(flow, (owner, name), current, declared, stored.as_ref())?).await?;
    }
    Ok(())
}

/// What makes the rows of a tool say what is declared now. `stored` is the row of that definition, if there is one.
fn change(
    flow: &Flow,
    (owner, name): (&str, &str),
    current: &[&ToolDefinitionBrief],
    declared: Option<&DeclaredTool>,
    stored: Option<&ToolDefinitionBrief>,
) -> Result<Tx, EngineError> {
    let version = declared.map(|declared| declared.tool.spec().version.as_str());
    let mut tx = Tx::default();
    let now = flow.inner.parts.clock.now();
    let ends = if declared.is_some() { DefinitionStatus::Superseded } else { DefinitionStatus::Removed };
    let update = |row: &ToolDefinitionBrief, status: DefinitionStatus| {
        let key = vec![owner.into(), name.into(), row.version.as_str().into()];
        let set = vec![(tool_definitions::status, status.into()), (tool_definitions::updated_at, now.into())];
        Update::versioned(&TOOL_DEFINITIONS, key, row.state_version, set).map_err(Unstorable::from)
    };
    for row in current.iter().filter(|row| Some(row.version.as_str()) != version) {
        tx.updates.push(update(row, ends)?);
    }
    match (declared, stored) {
        (None, _) => {}
        (Some(_), Some(row)) if row.status == DefinitionStatus::Current => {}
        (Some(_), Some(row)) => tx.updates.push(update(row, DefinitionStatus::Current)?),
        (Some(declared), None) => tx.inserts.push(definition_row(owner, declared, now)?),
    }
    let before = current.first().map(|row| row.version.as_str());
    let what = match (before, version) {
        (_, None) => "tool.removed",
        (None, Some(_)) => "tool.added",
        (Some(_), Some(_)) => "tool.changed",
    };
    let event = EventRecord::by_system(owner, name, what, json!({"version": version, "before": before}));
    let writer = Writer { random: &*flow.inner.parts.random, clock: &*flow.inner.parts.clock };
    writer.event(&mut tx, event)?;
    Ok(tx)
}

fn definition_row(owner: &str, declared: &DeclaredTool, now: Timestamp) -> Result<Insert, Unstorable> {
    let spec = declared.tool.spec();
    let document = Json::encode(&*declared.document)?;
    let cells = vec![
        (tool_definitions::tenant_id, owner.into()),
        (tool_definitions::name, spec.name.as_str().into()),
        (tool_definitions::version, spec.version.as_str().into()),
        (tool_definitions::document, document.into()),
        (tool_definitions::status, DefinitionStatus::Current.into()),
        (tool_definitions::created_at, now.into()),
        (tool_definitions::updated_at, now.into()),
    ];
    Ok(Insert::new(&TOOL_DEFINITIONS, cells)?)
}

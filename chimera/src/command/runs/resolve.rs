//! Turns what a person types for a run, a step or an approval into the id that the server takes.
//!
//! A whole id is taken as it is. A prefix is looked up among the runs that the caller may see, so a run that they may
//! only decide on needs its whole id.

use crate::backend::{Backend, not_a_run_id};
use crate::cli::{RunIds, RunsCommand};
use crate::command::CommandContext;
use crate::compose::Ambient;
use crate::failure::{Failure, Outcome};
use crate::flow::age::age;
use crate::flow::table::text;
use chimera_core::error::Code;
use chimera_core::id::{IdPrefix, InvalidIdPrefix};
use chimera_core::limits::{ID_CANDIDATES_MAX, ID_PREFIX_DIGITS_MIN};
use chimera_engine::flow::RunFilter;
use serde_json::Value;
use std::fmt::Write;
use uuid::Uuid;

/// Replaces the prefixes in a command with whole ids.
pub(super) async fn ids(scene: &CommandContext<'_>, command: &mut RunsCommand) -> Outcome {
    let RunIds { run: Some(run), mut steps, mut approval, acting } = command.ids() else { return Ok(()) };
    steps.retain(|step| may_be_step(step));
    approval = approval.filter(|id| is_prefix(id));
    if !is_prefix(run) && steps.is_empty() && approval.is_none() {
        return Ok(());
    }
    let backend = match acting {
        Some(acting) => scene.write_backend(acting.actor.as_deref())?,
        None => scene.read_backend().await?,
    };
    let id = self::run(&backend, run).await?;
    *run = id.to_string();
    for step in steps {
        if let Some(whole) = find_step(&backend, id, step).await? {
            *step = whole;
        }
    }
    if let Some(approval) = approval {
        let shown = backend.run(id).await?;
        if let Some(whole) = only_match(approval, &shown["approvals"], "approval_id")? {
            *approval = whole;
        }
    }
    Ok(())
}

/// Whether a text is something other than a whole id.
fn is_prefix(text: &str) -> bool {
    Uuid::parse_str(text).is_err()
}

/// Whether a text may be the beginning of a step's id, or an item of a map (`node[3]`).
fn may_be_step(text: &str) -> bool {
    is_prefix(text) && (IdPrefix::parse(text).is_ok() || map_item(text).is_some())
}

fn map_item(text: &str) -> Option<(&str, i64)> {
    let (node, index) = text.strip_suffix(']')?.split_once('[')?;
    Some((node, index.parse().ok()?))
}

/// The run with this id or prefix.
async fn run(backend: &Backend, text: &str) -> Outcome<Uuid> {
    if let Ok(id) = Uuid::parse_str(text) {
        return Ok(id);
    }
    let prefix = IdPrefix::parse(text).map_err(|error| match error {
        InvalidIdPrefix::TooShort => {
            Failure::new(Code::NotFound, format!("`{text}` is not a run id, and too short to begin one"))
                .hint(format!("give at least {ID_PREFIX_DIGITS_MIN} hex digits; chimera runs list shows the ids"))
        }
        InvalidIdPrefix::Malformed => not_a_run_id(text),
    })?;
    let filter = RunFilter { id_prefix: Some(prefix), limit: ID_CANDIDATES_MAX, ..RunFilter::default() };
    let found = backend.runs(filter).await?;
    let items = found["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    match items {
        [] => Err(Failure::new(Code::NotFound, format!("no run `{text}`")).hint("chimera runs list shows all runs")),
        [one] => Uuid::parse_str(one["run_id"].as_str().unwrap_or_default())
            .map_err(|_| Failure::new(Code::Internal, "the server's response has no run id")),
        several => Err(ambiguous(text, several, !found["next_cursor"].is_null())),
    }
}

/// The error for a prefix of several runs; it lists them.
fn ambiguous(text: &str, runs: &[Value], more: bool) -> Failure {
    let now = Ambient::new().clock.now();
    let mut hint = "give more digits of one of these:".to_owned();
    for run in runs {
        let began = run["created_at"].as_str().and_then(|at| at.parse().ok()).map(|at| age(at, now));
        let _ = write!(hint, "\n    {}  {}", self::text(&run["run_id"]), self::text(&run["title"]));
        let _ = write!(hint, "  {}  {}", self::text(&run["status"]), began.unwrap_or_default());
    }
    if more {
        hint.push_str("\n    …");
    }
    let over = if more { "more than " } else { "" };
    Failure::new(Code::NotFound, format!("`{text}` is ambiguous: it begins the ids of {over}{} runs", runs.len()))
        .hint(hint)
}

/// The whole id of a step of a run; `None` for a node's own name, which the server takes as it is.
async fn find_step(backend: &Backend, run: Uuid, text: &str) -> Outcome<Option<String>> {
    let found = backend.steps(run).await?;
    let steps = found["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    if steps.iter().any(|step| step["node_id"] == text) {
        return Ok(None);
    }
    if let Some((node, index)) = map_item(text) {
        let step = steps.iter().find(|step| step["node_id"] == node && step["map_index"] == index);
        return Ok(step.and_then(|step| step["step_id"].as_str()).map(str::to_owned));
    }
    only_match(text, &found["steps"], "step_id")
}

/// The only id in a member of some items that begins so.
fn only_match(text: &str, items: &Value, member: &str) -> Outcome<Option<String>> {
    let Ok(prefix) = IdPrefix::parse(text) else { return Ok(None) };
    let ids = items.as_array().into_iter().flatten().filter_map(|item| item[member].as_str());
    let matching: Vec<&str> = ids.filter(|id| Uuid::parse_str(id).is_ok_and(|id| prefix.matches(id))).collect();
    match matching[..] {
        [] => Ok(None),
        [one] => Ok(Some(one.to_owned())),
        _ => {
            let message = format!("`{text}` is ambiguous: it begins {} ids of this run", matching.len());
            Err(Failure::new(Code::NotFound, message).hint(format!("one of: {}", matching.join(", "))))
        }
    }
}

//! `chimera runs watch`: follows a run until it ends.
//!
//! On a terminal the graph is redrawn in place on every event, and every second for the elapsed times.
//! Elsewhere every event is one line.

use crate::ambient::stdout_size;
use crate::backend::{Backend, Events, parse_run_id};
use crate::command::{CommandContext, print, say};
use crate::compose::Ambient;
use crate::failure::Outcome;
use crate::flow::render::{RenderOptions, RunView, draw, review_lines};
use crate::flow::table::text;
use chimera_core::limits;
use chimera_core::text::escape_invisible_only;
use futures::{FutureExt, StreamExt};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::ExitCode;
use uuid::Uuid;

pub(super) async fn run(scene: &CommandContext<'_>, run: &str, after: i64) -> Outcome<ExitCode> {
    let id = parse_run_id(run)?;
    let backend = scene.read_backend().await?;
    // Check first that the run exists: following would wait.
    backend.run(id).await?;
    follow(scene, &backend, id, after).await
}

/// Shows a run until it ends; the exit status tells whether it failed.
pub(crate) async fn follow(scene: &CommandContext<'_>, backend: &Backend, run: Uuid, after: i64) -> Outcome<ExitCode> {
    let events = backend.follow(run, after);
    if stdout_size().is_some() && !scene.json {
        draw_live(scene, backend, run, events).await?;
    } else {
        print_events(scene, backend, run, events).await?;
    }
    let shown = backend.run(run).await?;
    let status = shown["status"].as_str().unwrap_or_default();
    let why = shown["error_message"].as_str().map_or(String::new(), |why| format!(": {why}"));
    say(&format!("{run} is {status}{why}"));
    let left = super::show::not_undone(&shown);
    if let Some(left) = &left {
        say(left);
    }
    Ok(if matches!(status, "failed" | "cancelled") || left.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn print_events(scene: &CommandContext<'_>, backend: &Backend, run: Uuid, mut events: Events) -> Outcome {
    let mut seen = BTreeSet::new();
    while let Some(event) = events.next().await {
        let event = event?;
        print(&if scene.json { format!("{event}\n") } else { line(&event) })?;
        if !scene.json && event["event_type"] == "approval.requested" {
            print(&new_reviews(&backend.run(run).await?, &mut seen, limits::SHOWN_COLUMNS_DEFAULT))?;
        }
    }
    Ok(())
}

/// Pending approvals that were not shown yet, in full.
fn new_reviews(run: &Value, seen: &mut BTreeSet<String>, columns: usize) -> String {
    let mut shown = String::new();
    for approval in run["approvals"].as_array().into_iter().flatten() {
        if seen.insert(text(&approval["digest"])) {
            review_lines(approval, columns).iter().for_each(|line| {
                shown.push_str(line);
                shown.push('\n');
            });
        }
    }
    shown
}

fn line(event: &Value) -> String {
    let data = if event["data"]["details"].is_object() { &event["data"]["details"] } else { &event["data"] };
    let named = |name: &str| data[name].as_str().map(|word| format!("  {word}")).unwrap_or_default();
    let error = data["error"]["message"].as_str().map(|why| format!("  {why}")).unwrap_or_default();
    let by = event["actor_id"].as_str().map(|actor| format!("  by {actor}")).unwrap_or_default();
    let words = format!("{}{}{}{error}{by}", text(&event["event_type"]), named("node"), named("tool"));
    format!("{:>4}  {}  {}\n", event["run_seq"].as_i64().unwrap_or(0), text(&event["timestamp"]), text(&words.into()))
}

async fn draw_live(scene: &CommandContext<'_>, backend: &Backend, run: Uuid, mut events: Events) -> Outcome {
    let clock = Ambient::new().clock;
    let (mut drawn, mut over, mut seen) = (0, false, BTreeSet::new());
    let mut workflow = Value::Null;
    while !over {
        let shown = backend.run(run).await?;
        let steps = backend.steps(run).await?;
        if workflow.is_null() {
            workflow = workflow_of(backend, &shown).await;
        }
        let steps = steps["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
        let (columns, rows) = stdout_size().unwrap_or((80, 24));
        // Approvals are printed once in full, above the redrawn part, which is cut to the screen.
        let asked = new_reviews(&shown, &mut seen, columns);
        let colors = scene.colors;
        let canvas = RenderOptions { columns, rows: rows.saturating_sub(1), colors, reviews: false };
        let sight = RunView { run: &shown, steps, workflow: &workflow, now: clock.now() };
        let lines = draw(&sight, canvas);
        let up = if drawn > 0 { format!("\u{1b}[{drawn}A\u{1b}[J") } else { String::new() };
        crate::command::print_raw(&format!("{up}{}{}\n", escape_invisible_only(&asked), lines.join("\n")))?;
        drawn = lines.len();
        tokio::select! {
            event = events.next() => over = !drain(event, &mut events)?,
            () = tokio::time::sleep(limits::WATCH_INTERVAL) => {}
        }
    }
    Ok(())
}

/// Drops all events that are available now. Returns false when the stream has ended.
fn drain(first: Option<Outcome<Value>>, events: &mut Events) -> Outcome<bool> {
    let mut next = Some(first);
    while let Some(event) = next {
        match event {
            Some(event) => drop(event?),
            None => return Ok(false),
        }
        next = events.next().now_or_never();
    }
    Ok(true)
}

/// The workflow document of a run; null if it is not available.
pub(super) async fn workflow_of(backend: &Backend, run: &Value) -> Value {
    let (Some(id), version) = (run["workflow_id"].as_str(), run["workflow_version"].as_i64()) else {
        return Value::Null;
    };
    backend.workflow(id, version).await.map(|mut found| found["document"].take()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_is_one_line_that_can_not_steer_a_terminal() {
        let event = json!({
            "run_seq": 7, "timestamp": "2026-01-01T00:00:00Z", "event_type": "step.failed", "actor_id": "user_ann",
            "data": {"node": "send", "tool": "http.request", "error": {"message": "no\u{1b}[2Jway"}},
        });
        assert_eq!(
            line(&event),
            "   7  2026-01-01T00:00:00Z  step.failed  send  http.request  no\\u001b[2Jway  by user_ann\n"
        );
    }
}

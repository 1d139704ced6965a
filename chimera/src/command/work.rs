//! `chimera work list`: calls that workers hold or that wait for one.

use super::listing::{ListView, say_footer};
use super::{CommandContext, print, say};
use crate::backend::Backend;
use crate::cli::{WorkCommand, WorkListArgs};
use crate::failure::Outcome;
use crate::flow::table::{Column, text};
use chimera_core::flow::work::WorkState;
use chimera_engine::flow::work::WorkFilter;
use serde_json::{Value, json};
use std::process::ExitCode;

pub(super) async fn run(scene: &CommandContext<'_>, command: WorkCommand) -> Outcome<ExitCode> {
    let WorkCommand::List(args) = command;
    let backend = scene.read_backend().await?;
    let found = match args.state.as_deref().and_then(WorkState::parse) {
        Some(state) => page(&backend, &args, state).await?,
        None => open_items(&backend, &args).await?,
    };
    if scene.json {
        print(&format!("{found}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let items = found["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let view = ListView::of(scene, &args.page.output);
    let (ids, runs) = (view.ids(items, "item_id"), view.ids(items, "run_id"));
    let rows = items.iter().zip(ids).zip(runs).map(|((item, id), run)| line(item, id, run, &view));
    view.print(COLUMNS, &rows.collect::<Vec<_>>())?;
    if args.state.is_none() && found["more"] == true {
        say("there are more; list them with --state claimed or --state queued");
    }
    let queue = args.queue.as_deref().map_or(String::new(), |queue| format!(" in queue `{queue}`"));
    say_footer(scene, &found, items.is_empty(), &format!("no calls for workers{queue}"));
    Ok(ExitCode::SUCCESS)
}

async fn page(backend: &Backend, args: &WorkListArgs, state: WorkState) -> Outcome<Value> {
    let (queue, limit, cursor) = (args.queue.clone(), args.page.limit, args.page.cursor.clone());
    backend.work(WorkFilter { state, queue, limit, cursor }).await
}

/// What is held, then what waits.
async fn open_items(backend: &Backend, args: &WorkListArgs) -> Outcome<Value> {
    let (mut items, mut more) = (Vec::new(), false);
    for state in [WorkState::Claimed, WorkState::Queued] {
        let mut found = page(backend, args, state).await?;
        more |= found["next_cursor"].is_string();
        items.append(&mut found["items"].as_array_mut().map(std::mem::take).unwrap_or_default());
    }
    Ok(json!({"items": items, "next_cursor": null, "more": more}))
}

const COLUMNS: &[Column] = &[
    Column::whole("ITEM"),
    Column::whole("STATE"),
    Column::whole("QUEUE"),
    Column::droppable("TOOL", 2),
    Column::droppable("RUN", 3),
    Column::cut("WORKER", 12),
    Column::droppable("LEASE", 1),
    Column::whole("QUEUED"),
];

fn line(item: &Value, id: String, run: String, view: &ListView) -> Vec<String> {
    let worker = match (item["claimed_by"].as_str(), item["worker"].as_str()) {
        (Some(actor), Some(name)) => format!("{actor} ({name})"),
        (Some(actor), None) => actor.to_owned(),
        _ => "-".to_owned(),
    };
    let lease = match item["cancel_requested"] == true {
        true => "asked to stop".to_owned(),
        false if item["lease_until"].is_null() => "-".to_owned(),
        false => format!("ends {}", view.time(&item["lease_until"])),
    };
    let [state, queue, tool] = ["state", "queue", "tool"].map(|name| text(&item[name]));
    vec![id, state, queue, tool, run, text(&worker.into()), lease, view.time(&item["created_at"])]
}

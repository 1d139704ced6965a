//! `chimera runs list`: runs, the newest first.

use crate::backend::Backend;
use crate::cli::ListArgs;
use crate::command::listing::{ListView, say_footer};
use crate::command::{CommandContext, print};
use crate::failure::{Failure, Outcome};
use crate::flow::render::{elapsed, status_color};
use crate::flow::table::{Column, text};
use chimera_core::error::Code;
use chimera_core::flow::run::RunStatus;
use chimera_core::limits::PAGE_ROWS_MAX;
use chimera_core::text::did_you_mean;
use chimera_engine::flow::RunFilter;
use serde_json::Value;
use std::process::ExitCode;

const COLUMNS: &[Column] = &[
    Column::whole("RUN"),
    Column::cut("WHAT", 24),
    Column::whole("STATUS").colored(status_color),
    Column::droppable("ACTOR", 1),
    Column::droppable("LEVEL", 3),
    Column::whole("STARTED"),
    Column::droppable("TOOK", 2),
];

const WIDE_COLUMNS: &[Column] = &[
    Column::whole("RUN"),
    Column::whole("WHAT"),
    Column::whole("STATUS").colored(status_color),
    Column::whole("ACTOR"),
    Column::whole("LEVEL"),
    Column::whole("STARTED"),
    Column::whole("ENDED"),
    Column::whole("WORKFLOW"),
];

pub(super) async fn run(scene: &CommandContext<'_>, args: ListArgs) -> Outcome<ExitCode> {
    let backend = scene.read_backend().await?;
    let filter = RunFilter {
        status: args.status.as_deref().map(parse_status).transpose()?,
        actor: args.actor,
        workflow_id: args.workflow,
        in_doubt: args.in_doubt,
        limit: args.page.limit,
        cursor: args.page.cursor,
        ..RunFilter::default()
    };
    let found = backend.runs(filter.clone()).await?;
    if scene.json {
        print(&format!("{found}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let items = found["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let view = ListView::of(scene, &args.page.output);
    let ids = view.ids(items, "run_id");
    let rows: Vec<Vec<String>> = items.iter().zip(ids).map(|(run, id)| row(run, id, &view)).collect();
    view.print(if view.wide { WIDE_COLUMNS } else { COLUMNS }, &rows)?;
    let when_empty = if rows.is_empty() { explain_empty(&backend, &filter).await } else { String::new() };
    say_footer(scene, &found, rows.is_empty(), &when_empty);
    Ok(ExitCode::SUCCESS)
}

fn parse_status(word: &str) -> Outcome<RunStatus> {
    RunStatus::parse(word).ok_or_else(|| {
        let known: Vec<&str> = RunStatus::ALL.iter().map(|status| status.as_str()).collect();
        Failure::new(Code::SchemaInvalid, "unknown run status").hint(format!("one of: {}", known.join(", ")))
    })
}

/// What a person calls a run; a replay also names the run that it repeats.
fn title(run: &Value, view: &ListView) -> String {
    let of = run["replay_of"].as_str().map(|of| view.id(of));
    let replay = of.map(|of| format!("{} of {of}: ", text(&run["replay_mode"]))).unwrap_or_default();
    format!("{replay}{}", text(&run["title"]))
}

fn row(run: &Value, id: String, view: &ListView) -> Vec<String> {
    let held = if run["paused"] == true { " (paused)" } else { "" };
    let doubt = if run["in_doubt_since"].is_null() { "" } else { " (in doubt)" };
    let status = format!("{}{held}{doubt}", text(&run["status"]));
    let level = text(&run["autonomy_level"]);
    let (what, actor, started) = (title(run, view), text(&run["actor"]), view.time(&run["created_at"]));
    if view.wide {
        let workflow = format!("{} v{}", text(&run["workflow_id"]), text(&run["workflow_version"]));
        return vec![id, what, status, actor, level, started, text(&run["completed_at"]), workflow];
    }
    let level = level.split('_').next().unwrap_or_default().to_owned();
    let took = elapsed(&run["created_at"], &run["completed_at"], view.now()).unwrap_or_default();
    vec![id, what, status, actor, level, started, took]
}

/// Why a list is empty: there are no runs, or a name may be mistyped.
async fn explain_empty(backend: &Backend, filter: &RunFilter) -> String {
    if let Some(workflow) = &filter.workflow_id
        && let Err(failure) = backend.workflow(workflow, None).await
        && failure.code == Code::NotFound
    {
        return format!("no runs: {}", failure.message);
    }
    if let Some(actor) = &filter.actor {
        let recent = backend.runs(RunFilter { limit: PAGE_ROWS_MAX, ..RunFilter::default() }).await.unwrap_or_default();
        let names = recent["items"].as_array().into_iter().flatten().filter_map(|run| run["actor"].as_str());
        return format!("no runs of actor `{actor}`{}", did_you_mean(actor, names.filter(|name| name != actor)));
    }
    let is_filtered =
        filter.status.is_some() || filter.in_doubt || filter.cursor.is_some() || filter.workflow_id.is_some();
    match is_filtered {
        true => "no runs match; chimera runs list shows all".to_owned(),
        false => "no runs yet; chimera act 'GOAL' or chimera act --workflow ID starts one".to_owned(),
    }
}

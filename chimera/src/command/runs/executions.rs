//! `chimera runs executions`: the execution records of a run.

use crate::backend::parse_run_id;
use crate::cli::ExecutionsArgs;
use crate::command::listing::{ListView, say_footer};
use crate::command::{CommandContext, print};
use crate::failure::Outcome;
use crate::flow::table::{Column, text};
use serde_json::Value;
use std::process::ExitCode;

const COLUMNS: &[Column] = &[
    Column::whole("STARTED"),
    Column::whole("AGENT"),
    Column::droppable("TYPE", 2),
    Column::whole("STATUS"),
    Column::droppable("TOOL", 1),
    Column::droppable("TOOK", 3),
    Column::cut("ERROR", 20),
];

pub(super) async fn run(scene: &CommandContext<'_>, args: ExecutionsArgs) -> Outcome<ExitCode> {
    let (backend, id) = (scene.read_backend().await?, parse_run_id(&args.run)?);
    let found = backend.executions(id, args.page.limit, args.page.cursor.as_deref()).await?;
    if scene.json {
        print(&format!("{found}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let items = found["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let view = ListView::of(scene, &args.page.output);
    view.print(COLUMNS, &items.iter().map(|item| row(item, &view)).collect::<Vec<_>>())?;
    let when_empty = "no records; a workflow with `log_executions` leaves them";
    say_footer(scene, &found, items.is_empty(), when_empty);
    Ok(ExitCode::SUCCESS)
}

fn row(item: &Value, view: &ListView) -> Vec<String> {
    let has_ended = !item["completed_at"].is_null();
    let status = if has_ended { text(&item["status"]) } else { "running".to_owned() };
    let took = item["execution_duration_ms"].as_i64().filter(|_| has_ended);
    vec![
        view.time(&item["started_at"]),
        text(&item["agent_type"]),
        text(&item["execution_type"]),
        status,
        item["resource_usage"]["tool"].as_str().map_or("-".to_owned(), |_| text(&item["resource_usage"]["tool"])),
        took.map_or("-".to_owned(), |ms| format!("{ms} ms")),
        text(&item["error_data"]["message"]),
    ]
}

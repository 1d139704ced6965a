//! `chimera runs show` and `steps`: one run and its steps.

use crate::ambient::stdout_size;
use crate::backend::parse_run_id;
use crate::cli::OutputArg;
use crate::command::listing::ListView;
use crate::command::{CommandContext, document, print, print_raw, say};
use crate::compose::Ambient;
use crate::failure::Outcome;
use crate::flow::render::{RenderOptions, RunView, draw, elapsed, status_color};
use crate::flow::table::{Column, text};
use chimera_core::flow::review::ApprovalState;
use chimera_core::text::escape_invisible_only;
use serde_json::Value;
use std::process::ExitCode;

/// Output that is not redrawn need not fit the screen.
const UNBOUNDED: usize = 100_000;

pub(super) async fn run(scene: &CommandContext<'_>, run: &str) -> Outcome<ExitCode> {
    let (backend, id) = (scene.read_backend().await?, parse_run_id(run)?);
    let run = backend.run(id).await?;
    if scene.json {
        print(&format!("{run}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let steps = backend.steps(id).await?;
    let workflow = super::watch::workflow_of(&backend, &run).await;
    let steps = steps["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let sight = RunView { run: &run, steps, workflow: &workflow, now: Ambient::new().clock.now() };
    let columns = stdout_size().map_or(UNBOUNDED, |(columns, _)| columns);
    let canvas = RenderOptions { columns, rows: UNBOUNDED, colors: scene.colors, reviews: true };
    print(&format!("{}  {}\n", text(&run["run_id"]), text(&run["actor"])))?;
    let drawn = draw(&sight, canvas).join("\n");
    // Painted lines are escaped already.
    print_raw(&format!("{}\n", if scene.colors { drawn.into() } else { escape_invisible_only(&drawn) }))?;
    for decided in run["decided_approvals"].as_array().into_iter().flatten() {
        if let Ok(standing) = serde_json::from_value::<ApprovalState>(decided["standing"].clone()) {
            let what = decided["node_id"].as_str().map_or("the plan".to_owned(), |_| text(&decided["node_id"]));
            print(&format!("{what}: {}\n", text(&standing.describe().into())))?;
        }
    }
    for (name, value) in [("inputs", &run["inputs"]), ("result", &run["result"]), ("error", &run["error"])] {
        if !value.is_null() {
            print(&format!("\n{name}:\n{}", document(value)))?;
        }
    }
    if let Some(left) = not_undone(&run) {
        print(&format!("\n{left}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What a rollback could not undo, if there is anything.
pub(super) fn not_undone(run: &Value) -> Option<String> {
    let left = run["rollback"]["left"].as_array().filter(|left| !left.is_empty())?;
    let name = |step: &Value| {
        let why = step["reason"].as_str().or(step["error"]["message"].as_str()).map(|why| format!(" ({why})"));
        format!("{}{}", step["node"].as_str().unwrap_or("a step"), why.unwrap_or_default())
    };
    Some(text(&format!("not undone: {}", left.iter().map(name).collect::<Vec<_>>().join(", ")).into()))
}

const COLUMNS: &[Column] = &[
    Column::whole("NODE"),
    Column::whole("STATUS").colored(status_color),
    Column::droppable("TOOL", 1),
    Column::droppable("TRY", 3),
    Column::droppable("CALLS", 4),
    Column::droppable("TOOK", 2),
    Column::cut("ERROR", 20),
];

const WIDE_COLUMNS: &[Column] = &[
    Column::whole("NODE"),
    Column::whole("STATUS").colored(status_color),
    Column::whole("TOOL"),
    Column::whole("TRY"),
    Column::whole("CALLS"),
    Column::whole("STARTED"),
    Column::whole("ENDED"),
    Column::whole("STEP"),
    Column::whole("ERROR"),
];

pub(super) async fn steps(scene: &CommandContext<'_>, run: &str, output: &OutputArg) -> Outcome<ExitCode> {
    let (backend, id) = (scene.read_backend().await?, parse_run_id(run)?);
    let found = backend.steps(id).await?;
    if scene.json {
        print(&format!("{found}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let steps = found["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let view = ListView::of(scene, output);
    let rows: Vec<Vec<String>> = steps.iter().map(|step| row(step, &view)).collect();
    view.print(if view.wide { WIDE_COLUMNS } else { COLUMNS }, &rows)?;
    if rows.is_empty() {
        say("no steps yet");
    }
    Ok(ExitCode::SUCCESS)
}

fn row(step: &Value, view: &ListView) -> Vec<String> {
    let item = step["map_index"].as_i64().map_or(String::new(), |index| format!("[{index}]"));
    let [status, tool, attempt] = ["status", "tool", "attempt"].map(|name| text(&step[name]));
    let calls = step["tool_calls"].as_array().map_or(0, Vec::len).to_string();
    let mut cells = vec![format!("{}{item}", text(&step["node_id"])), status, tool, attempt, calls];
    if view.wide {
        cells.extend(["started_at", "completed_at", "step_id"].map(|name| text(&step[name])));
    } else {
        cells.push(elapsed(&step["started_at"], &step["completed_at"], view.now()).unwrap_or("-".to_owned()));
    }
    cells.push(text(&step["error"]["message"]));
    cells
}

//! `chimera runs show` and `steps`: one run and its steps.

use crate::ambient::stdout_size;
use crate::backend::parse_run_id;
use crate::command::{CommandContext, document, print};
use crate::compose::Ambient;
use crate::failure::Outcome;
use crate::flow::render::{RenderOptions, RunView, draw};
use crate::flow::table::{table, text};
use chimera_core::flow::review::ApprovalState;
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
    let canvas = RenderOptions { columns, rows: UNBOUNDED, colors: false, reviews: true };
    print(&format!("{}  {}\n{}\n", text(&run["run_id"]), text(&run["actor"]), draw(&sight, canvas).join("\n")))?;
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

pub(super) async fn steps(scene: &CommandContext<'_>, run: &str) -> Outcome<ExitCode> {
    let (backend, id) = (scene.read_backend().await?, parse_run_id(run)?);
    let found = backend.steps(id).await?;
    if scene.json {
        print(&format!("{found}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let steps = found["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows: Vec<Vec<String>> = steps.iter().map(row).collect();
    print(&table(&["NODE", "STATUS", "TOOL", "TRY", "CALLS", "STARTED", "ENDED", "STEP", "ERROR"], &rows))?;
    Ok(ExitCode::SUCCESS)
}

fn row(step: &Value) -> Vec<String> {
    let item = step["map_index"].as_i64().map_or(String::new(), |index| format!("[{index}]"));
    vec![
        format!("{}{item}", text(&step["node_id"])),
        text(&step["status"]),
        text(&step["tool"]),
        text(&step["attempt"]),
        step["tool_calls"].as_array().map_or(0, Vec::len).to_string(),
        text(&step["started_at"]),
        text(&step["completed_at"]),
        text(&step["step_id"]),
        text(&step["error"]["message"]),
    ]
}

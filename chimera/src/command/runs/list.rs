//! `chimera runs list`: runs, the newest first.

use crate::cli::ListArgs;
use crate::command::{CommandContext, print, print_page_footer};
use crate::failure::{Failure, Outcome};
use crate::flow::table::{table, text};
use chimera_core::error::Code;
use chimera_core::flow::run::RunStatus;
use chimera_engine::flow::RunFilter;
use serde_json::Value;
use std::process::ExitCode;

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
    let found = backend.runs(filter).await?;
    if scene.json {
        print(&format!("{found}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let items = found["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows: Vec<Vec<String>> = items.iter().map(row).collect();
    print(&table(&["RUN", "WORKFLOW", "STATUS", "LEVEL", "ACTOR", "STARTED", "ENDED"], &rows))?;
    print_page_footer(&found, rows.is_empty(), "runs");
    Ok(ExitCode::SUCCESS)
}

fn parse_status(word: &str) -> Outcome<RunStatus> {
    RunStatus::parse(word).ok_or_else(|| {
        let known: Vec<&str> = RunStatus::ALL.iter().map(|status| status.as_str()).collect();
        Failure::new(Code::SchemaInvalid, "unknown run status").hint(format!("one of: {}", known.join(", ")))
    })
}

fn row(run: &Value) -> Vec<String> {
    let workflow = format!("{} v{}", text(&run["workflow_id"]), text(&run["workflow_version"]));
    let held = if run["paused"] == true { " (paused)" } else { "" };
    let doubt = if run["in_doubt_since"].is_null() { "" } else { " (in doubt)" };
    vec![
        text(&run["run_id"]),
        workflow,
        format!("{}{held}{doubt}", text(&run["status"])),
        text(&run["autonomy_level"]),
        text(&run["actor"]),
        text(&run["created_at"]),
        text(&run["completed_at"]),
    ]
}

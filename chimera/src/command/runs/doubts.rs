//! `chimera runs doubts`: tool calls whose outcome is unknown.

use crate::cli::DoubtsArgs;
use crate::command::{CommandContext, print, print_page_footer};
use crate::compose::Ambient;
use crate::failure::Outcome;
use crate::flow::render::doubt_headline;
use crate::flow::table::text;
use chimera_engine::flow::DoubtFilter;
use serde_json::Value;
use std::process::ExitCode;

pub(super) async fn run(scene: &CommandContext<'_>, args: DoubtsArgs) -> Outcome<ExitCode> {
    let backend = scene.read_backend().await?;
    let filter = DoubtFilter { actor: args.actor, tool: args.tool, limit: args.page.limit, cursor: args.page.cursor };
    let found = backend.doubts(filter).await?;
    if scene.json {
        print(&format!("{found}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let items = found["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let now = Ambient::new().clock.now();
    let shown: Vec<String> = items.iter().map(|item| entry(item, &doubt_headline(item, now))).collect();
    print(&shown.join("\n"))?;
    print_page_footer(&found, items.is_empty(), "calls in doubt");
    Ok(ExitCode::SUCCESS)
}

/// The call, then the commands that resolve it.
fn entry(item: &Value, words: &str) -> String {
    let [run, workflow, actor] = ["run_id", "workflow_id", "actor"].map(|name| text(&item[name]));
    let [step, why] = ["step_id", "reason"].map(|name| text(&item[name]));
    let commands = item["settle_with"].as_array().into_iter().flatten();
    let commands: String = commands.map(|command| format!("    {}\n", text(command))).collect();
    format!("{words}\n{commands}  run {run} of {workflow}, asked for by {actor}\n  step {step}\n  why: {why}\n")
}

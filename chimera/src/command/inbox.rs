//! `chimera inbox`: the actor's notifications for which no other channel is configured.

use super::{CommandContext, print, print_page_footer};
use crate::backend::Backend;
use crate::cli::PageArgs;
use crate::failure::Outcome;
use crate::flow::table::{table, text};
use serde_json::Value;
use std::process::ExitCode;

pub(super) async fn run(scene: &CommandContext<'_>, page: PageArgs) -> Outcome<ExitCode> {
    let backend = Backend::open_for_reading(&scene.loaded.config).await?;
    let found = backend.inbox(page.limit, page.cursor.as_deref()).await?;
    if scene.json {
        print(&format!("{found}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let items = found["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !items.is_empty() {
        let rows: Vec<Vec<String>> = items.iter().map(line).collect();
        print(&table(&["AT", "WHAT", "RUN", "ABOUT"], &rows))?;
    }
    print_page_footer(&found, items.is_empty(), "messages");
    Ok(ExitCode::SUCCESS)
}

fn line(item: &Value) -> Vec<String> {
    let data = &item["data"];
    let about = match item["type"].as_str().unwrap_or_default() {
        "approval.requested" => format!("{} of {} waits for a decision", text(&data["tool"]), text(&data["actor"])),
        "step.outcome_unknown" => format!("nobody knows whether {} happened", text(&data["tool"])),
        _ => match data["error"]["message"].as_str() {
            Some(reason) => reason.replace(char::is_control, " "),
            None => text(&data["workflow_id"]),
        },
    };
    vec![text(&item["at"]), text(&item["type"]), text(&item["run_id"]), about]
}

//! `chimera inbox`: the actor's notifications for which no other channel is configured.

use super::listing::{ListView, say_footer};
use super::{CommandContext, print};
use crate::backend::Backend;
use crate::cli::PageArgs;
use crate::failure::Outcome;
use crate::flow::table::{Column, text};
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
    let view = ListView::of(scene, &page.output);
    let ids = view.ids(items, "run_id");
    let rows: Vec<Vec<String>> = items.iter().zip(ids).map(|(item, run)| line(item, run, &view)).collect();
    view.print(COLUMNS, &rows)?;
    let when_empty = "no messages; what happens to your runs is listed here unless they notify by mail or webhook";
    say_footer(scene, &found, items.is_empty(), when_empty);
    Ok(ExitCode::SUCCESS)
}

const COLUMNS: &[Column] =
    &[Column::whole("RUN"), Column::whole("WHAT"), Column::cut("ABOUT", 20), Column::whole("AT")];

fn line(item: &Value, run: String, view: &ListView) -> Vec<String> {
    let (data, title) = (&item["data"], text(&item["title"]));
    let about = match item["type"].as_str().unwrap_or_default() {
        "approval.requested" => {
            format!("{title}: {} of {} waits for a decision", text(&data["tool"]), text(&data["actor"]))
        }
        "schedule.paused" => format!("schedule {}: {}", text(&data["name"]), text(&data["reason"])),
        "step.outcome_unknown" => format!("{title}: the outcome of {} is unknown", text(&data["tool"])),
        _ => match data["error"]["message"].as_str() {
            Some(reason) => format!("{title}: {}", reason.replace(char::is_control, " ")),
            None => title,
        },
    };
    vec![run, text(&item["type"]), about, view.time(&item["at"])]
}

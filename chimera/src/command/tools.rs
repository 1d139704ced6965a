//! `chimera tools …`: the tools of a server, and the files that declare some of them.

use super::listing::ListView;
use super::{CommandContext, print, say};
use crate::cli::ToolsCommand;
use crate::failure::{Failure, Outcome};
use crate::flow::table::{Column, text};
use chimera_core::error::Code;
use chimera_core::text::did_you_mean;
use serde_json::Value;
use std::process::ExitCode;

pub(crate) async fn run(scene: &CommandContext<'_>, command: ToolsCommand) -> Outcome<ExitCode> {
    match command {
        ToolsCommand::List { output, acting } => {
            let backend = scene.write_backend(acting.actor.as_deref())?;
            let found = backend.request("GET", "tools", None).await?;
            list(scene, &ListView::of(scene, &output), &found)?;
            if !scene.json {
                say_problems(&backend.request("GET", "tools/problems", None).await?["items"]);
            }
        }
        ToolsCommand::Show { name, acting } => {
            let found = scene.write_backend(acting.actor.as_deref())?.request("GET", "tools", None).await?;
            show(scene, &name, &found)?;
        }
        ToolsCommand::Reload { acting } => {
            let backend = scene.write_backend(acting.actor.as_deref())?;
            let reloaded = backend.request("POST", "tools/reload", None).await?;
            if scene.json {
                print(&format!("{reloaded}\n"))?;
            } else {
                let changed = if reloaded["changed"] == true { "The tools changed" } else { "Nothing changed" };
                say(&format!("{changed}; {} tools are declared.", reloaded["declared"]));
                say_problems(&reloaded["problems"]);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

const COLUMNS: &[Column] = &[
    Column::whole("TOOL"),
    Column::whole("VERSION"),
    Column::whole("FROM"),
    Column::droppable("EFFECT", 1),
    Column::droppable("RISK", 2),
    Column::droppable("APPROVAL", 3),
];

fn list(scene: &CommandContext<'_>, view: &ListView, found: &Value) -> Outcome {
    if scene.json {
        return print(&format!("{found}\n"));
    }
    let row = |tool: &Value| {
        let asks = if tool["metadata"]["requires_approval"] == true { "always" } else { "by level" };
        vec![
            text(&tool["name"]),
            short_version(&text(&tool["version"])),
            text(&tool["origin"]).replace('_', "-"),
            text(&tool["effect"]),
            text(&tool["metadata"]["risk_level"]),
            asks.to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = items(found).iter().map(row).collect();
    view.print(COLUMNS, &rows)?;
    if rows.is_empty() {
        say("no tools that you may call; an operator grants scopes with chimera actor put");
    }
    Ok(())
}

fn show(scene: &CommandContext<'_>, name: &str, found: &Value) -> Outcome {
    let Some(tool) = items(found).iter().find(|tool| tool["name"] == name) else {
        let close = did_you_mean(name, items(found).iter().filter_map(|tool| tool["name"].as_str()));
        let failure = Failure::new(Code::NotFound, format!("no tool `{name}`{close}"));
        return Err(failure.hint("chimera tools list shows those that you may call"));
    };
    let shown = if scene.json { tool.to_string() } else { serde_json::to_string_pretty(tool).unwrap_or_default() };
    print(&format!("{shown}\n"))
}

fn items(found: &Value) -> &[Value] {
    found["items"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn say_problems(problems: &Value) {
    for problem in problems.as_array().into_iter().flatten() {
        let state = if problem["is_in_use"] == true { "its last usable content is in use" } else { "it is not in use" };
        say(&format!("{}: {} ({state})", text(&problem["file"]), text(&problem["reason"])));
    }
}

/// `1+3f9a0c51d2e47b86` is `1+3f9a0c51`: enough to tell definitions apart.
fn short_version(version: &str) -> String {
    match version.split_once('+') {
        Some((number, digest)) => format!("{number}+{}", digest.get(..8).unwrap_or(digest)),
        None => version.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_short_enough_for_a_list() {
        assert_eq!(short_version("1+3f9a0c51d2e47b86"), "1+3f9a0c51");
        assert_eq!(short_version("1.2.0"), "1.2.0");
    }
}

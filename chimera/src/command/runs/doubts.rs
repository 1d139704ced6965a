//! `chimera runs doubts`: tool calls whose outcome is unknown.

use crate::backend::Backend;
use crate::cli::DoubtsArgs;
use crate::command::listing::{ListView, say_footer};
use crate::command::{CommandContext, print};
use crate::compose::Ambient;
use crate::failure::Outcome;
use crate::flow::render::doubt_headline;
use crate::flow::table::text;
use chimera_core::limits::PAGE_ROWS_MAX;
use chimera_core::text::did_you_mean;
use chimera_engine::flow::DoubtFilter;
use serde_json::Value;
use std::process::ExitCode;

pub(super) async fn run(scene: &CommandContext<'_>, args: DoubtsArgs) -> Outcome<ExitCode> {
    let backend = scene.read_backend().await?;
    let (limit, cursor) = (args.page.limit, args.page.cursor);
    let filter = DoubtFilter { actor: args.actor.clone(), tool: args.tool.clone(), limit, cursor };
    let found = backend.doubts(filter).await?;
    if scene.json {
        print(&format!("{found}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let items = found["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let now = Ambient::new().clock.now();
    let ids = ListView::of(scene, &args.page.output).ids(items, "run_id");
    let shown = items.iter().zip(&ids).map(|(item, run)| entry(item, run, &doubt_headline(item, now)));
    print(&shown.collect::<Vec<_>>().join("\n"))?;
    let when_empty = match (&args.actor, &args.tool) {
        (None, None) => "no calls in doubt".to_owned(),
        (actor, tool) => explain_empty(&backend, actor.as_deref(), tool.as_deref()).await,
    };
    say_footer(scene, &found, items.is_empty(), &when_empty);
    Ok(ExitCode::SUCCESS)
}

/// The call, then the commands that resolve it.
fn entry(item: &Value, run: &str, words: &str) -> String {
    let [title, actor] = ["title", "actor"].map(|name| text(&item[name]));
    let [step, why] = ["step_id", "reason"].map(|name| text(&item[name]));
    let commands = item["resolve_commands"].as_array().into_iter().flatten();
    let commands: String = commands.map(|command| format!("    {}\n", text(command))).collect();
    format!("{words}\n{commands}  run {run}: {title}, requested by {actor}\n  step {step}\n  why: {why}\n")
}

/// Says that nothing matches, with the names of other calls in doubt that may be meant.
async fn explain_empty(backend: &Backend, actor: Option<&str>, tool: Option<&str>) -> String {
    let all = backend.doubts(DoubtFilter { limit: PAGE_ROWS_MAX, ..DoubtFilter::default() }).await.unwrap_or_default();
    let close = |given: Option<&str>, member: &str| {
        let Some(given) = given else { return String::new() };
        let names = all["items"].as_array().into_iter().flatten().filter_map(|item| item[member].as_str());
        format!(" of {member} `{given}`{}", did_you_mean(given, names.filter(|name| *name != given)))
    };
    format!("no calls in doubt{}{}", close(tool, "tool"), close(actor, "actor"))
}

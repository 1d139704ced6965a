//! `chimera event …`: events that runs wait for.

use super::listing::{ListView, say_footer};
use super::{CommandContext, parse_exact_json, print, read_json, say};
use crate::backend::percent_encode;
use crate::cli::EventCommand;
use crate::failure::Outcome;
use crate::flow::table::{Column, text};
use serde_json::{Map, Value};
use std::path::Path;
use std::process::ExitCode;

pub(crate) async fn run(scene: &CommandContext<'_>, command: EventCommand) -> Outcome<ExitCode> {
    match command {
        EventCommand::Send { name, key, payload, id, ttl, acting } => {
            let mut body = Map::from_iter([("name".to_owned(), name.into()), ("key".to_owned(), key.into())]);
            let payload = payload.as_deref().map(parsed_payload).transpose()?;
            let members =
                [("payload", payload), ("event_id", id.map(Value::from)), ("ttl_seconds", ttl.map(Value::from))];
            body.extend(members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
            let backend = scene.write_backend(acting.actor.as_deref())?;
            let sent = backend.request("POST", "events", Some(Value::Object(body))).await?;
            match scene.json {
                true => print(&format!("{sent}\n"))?,
                false => say(&receipt(&sent)),
            }
        }
        EventCommand::List { name, key, page, acting } => {
            let backend = scene.write_backend(acting.actor.as_deref())?;
            let mut path = format!("events?limit={}", page.limit);
            for (member, value) in [("name", &name), ("key", &key), ("cursor", &page.cursor)] {
                if let Some(value) = value {
                    path = format!("{path}&{member}={}", percent_encode(value));
                }
            }
            list(scene, &ListView::of(scene, &page.output), &backend.request("GET", &path, None).await?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn parsed_payload(given: &str) -> Outcome<Value> {
    match given.strip_prefix('@') {
        Some(file) => read_json(Path::new(file)),
        None => Ok(parse_exact_json(given).unwrap_or_else(|_| given.into())),
    }
}

/// What became of an event, in a sentence.
fn receipt(sent: &Value) -> String {
    let runs = match sent["runs"].as_u64() {
        Some(0) | None => "no run waits for it yet".to_owned(),
        Some(1) => "1 run waited for it".to_owned(),
        Some(runs) => format!("{runs} runs waited for it"),
    };
    format!("Published {} as {}; {runs}.", text(&sent["name"]), text(&sent["event_id"]))
}

const COLUMNS: &[Column] = &[
    Column::whole("EVENT"),
    Column::cut("NAME", 12),
    Column::cut("KEY", 12),
    Column::whole("RUNS"),
    Column::droppable("SENT", 1),
    Column::droppable("BY", 2),
];

fn list(scene: &CommandContext<'_>, view: &ListView, found: &Value) -> Outcome {
    if scene.json {
        return print(&format!("{found}\n"));
    }
    let items = found["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |item: &Value| {
        let columns = ["event_id", "name", "key"].map(|name| text(&item[name]));
        let mut cells = columns.to_vec();
        cells.push(item["runs"].to_string());
        cells.extend([view.time(&item["sent_at"]), text(&item["sent_by"])]);
        cells
    };
    let rows: Vec<Vec<String>> = items.iter().map(row).collect();
    view.print(COLUMNS, &rows)?;
    say_footer(scene, found, rows.is_empty(), "no events; chimera event send publishes one");
    Ok(())
}

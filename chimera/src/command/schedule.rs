//! `chimera schedule …`: workflows that are started by the clock.

use super::listing::{ListView, say_footer};
use super::{CommandContext, print, read_json, say};
use crate::backend::{Backend, percent_encode};
use crate::cli::{ScheduleArgs, ScheduleCommand, ScheduleName};
use crate::failure::{Failure, Outcome};
use crate::flow::table::{Column, text};
use chimera_core::error::Code;
use clap::ValueEnum;
use serde_json::{Map, Value, json};
use std::process::ExitCode;

pub(crate) async fn run(scene: &CommandContext<'_>, command: ScheduleCommand) -> Outcome<ExitCode> {
    match command {
        ScheduleCommand::Add { name, workflow, terms, acting } => {
            let mut body =
                Map::from_iter([("name".to_owned(), name.into()), ("workflow_id".to_owned(), workflow.into())]);
            body.extend(given(terms)?);
            let backend = scene.write_backend(acting.actor.as_deref())?;
            let made = backend.request("POST", "schedules", Some(Value::Object(body))).await?;
            print_schedule(scene, &made)?;
        }
        ScheduleCommand::List { page, acting } => {
            let backend = scene.write_backend(acting.actor.as_deref())?;
            let limit = format!("schedules?limit={}", page.limit);
            let path = page
                .cursor
                .as_deref()
                .map_or(limit.clone(), |cursor| format!("{limit}&cursor={}", percent_encode(cursor)));
            list(scene, &ListView::of(scene, &page.output), &backend.request("GET", &path, None).await?)?;
        }
        ScheduleCommand::Show(which) => print_schedule(scene, &request(scene, &which, ("GET", ""), None).await?)?,
        ScheduleCommand::Edit { name, workflow, terms, acting } => {
            let which = ScheduleName { name, acting };
            let body = merged(&request(scene, &which, ("GET", ""), None).await?, workflow, terms)?;
            print_schedule(scene, &request(scene, &which, ("PUT", ""), Some(body)).await?)?;
        }
        ScheduleCommand::Pause { which, reason } => {
            let body = json!({ "reason": reason });
            print_schedule(scene, &request(scene, &which, ("POST", "/pause"), Some(body)).await?)?;
        }
        ScheduleCommand::Resume(which) => {
            print_schedule(scene, &request(scene, &which, ("POST", "/resume"), None).await?)?;
        }
        ScheduleCommand::Remove(which) => {
            let removed = request(scene, &which, ("DELETE", ""), None).await?;
            match scene.json {
                true => print(&format!("{removed}\n"))?,
                false => say(&format!("Removed {}; runs in progress continue.", which.name)),
            }
        }
        ScheduleCommand::RunNow(which) => {
            let started = request(scene, &which, ("POST", "/run"), Some(json!({}))).await?;
            match scene.json {
                true => print(&format!("{started}\n"))?,
                false => say(&format!("Started run {} ({}).", text(&started["run_id"]), text(&started["status"]))),
            }
        }
        ScheduleCommand::Next { which, count } => {
            let next = request(scene, &which, ("GET", &format!("/next?count={count}")), None).await?;
            if scene.json {
                print(&format!("{next}\n"))?;
            } else {
                let ticks = next["ticks"].as_array().map(Vec::as_slice).unwrap_or_default();
                ticks.iter().try_for_each(|tick| print(&format!("{}\n", short(tick))))?;
                if ticks.is_empty() {
                    say("no further ticks");
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Sends a request about one schedule.
async fn request(
    scene: &CommandContext<'_>,
    which: &ScheduleName,
    (method, rest): (&str, &str),
    body: Option<Value>,
) -> Outcome<Value> {
    let backend: Backend = scene.write_backend(which.acting.actor.as_deref())?;
    let path = format!("schedules/{}{rest}", percent_encode(&which.name));
    backend.request(method, &path, body).await.map_err(|failure| match failure.code {
        Code::NotFound => failure.hint("chimera schedule list shows those you can see"),
        _ => failure,
    })
}

/// The members that were given.
fn given(terms: ScheduleArgs) -> Outcome<Map<String, Value>> {
    let mut inputs = match &terms.inputs {
        Some(file) => read_json(file)?,
        None => json!({}),
    };
    let has_inputs = terms.inputs.is_some() || !terms.input.is_empty();
    match inputs.as_object_mut() {
        Some(members) => members.extend(terms.input),
        None => return Err(Failure::new(Code::MalformedArgs, "the inputs must be a JSON object")),
    }
    let members = [
        ("inputs", has_inputs.then_some(inputs)),
        ("version", terms.version.map(Value::from)),
        ("cron", terms.cron.map(Value::from)),
        ("time_zone", terms.time_zone.map(Value::from)),
        ("every", terms.every.map(Value::from)),
        ("anchor_at", terms.anchor.map(Value::from)),
        ("overlap", terms.overlap.map(word)),
        ("queue_max", terms.queue_max.map(Value::from)),
        ("catch_up", terms.catch_up.map(word)),
        ("catch_up_window_seconds", terms.catch_up_window.map(Value::from)),
        ("jitter_seconds", terms.jitter.map(Value::from)),
        ("starts_at", terms.starts_at.map(time_or_none)),
        ("ends_at", terms.ends_at.map(time_or_none)),
        ("follow_latest", (terms.follow_latest || terms.newest).then_some(terms.follow_latest.into())),
    ];
    Ok(members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
}

/// A time, or null for `none`, which clears it.
fn time_or_none(time: String) -> Value {
    if time == "none" { Value::Null } else { time.into() }
}

fn word(policy: impl ValueEnum) -> Value {
    policy.to_possible_value().map_or(Value::Null, |word| word.get_name().into())
}

/// The definition of a schedule with changes.
fn merged(schedule: &Value, workflow: Option<String>, terms: ScheduleArgs) -> Outcome<Value> {
    const KEPT: [&str; 15] = [
        "workflow_id",
        "version",
        "follow_latest",
        "inputs",
        "cron",
        "time_zone",
        "every",
        "anchor_at",
        "overlap",
        "queue_max",
        "catch_up",
        "catch_up_window_seconds",
        "jitter_seconds",
        "starts_at",
        "ends_at",
    ];
    let mut changes = given(terms)?;
    changes.extend(workflow.map(|id| ("workflow_id".to_owned(), id.into())));
    if changes.is_empty() {
        let failure = Failure::new(Code::ValidationFailed, "no changes given");
        return Err(failure.hint("chimera schedule edit --help lists what can be changed"));
    }
    // A new kind of timing replaces the other one.
    let mut dropped: Vec<&str> = match (changes.contains_key("cron"), changes.contains_key("every")) {
        (true, _) => vec!["every", "anchor_at"],
        (_, true) => vec!["cron", "time_zone"],
        _ => Vec::new(),
    };
    // A version is one of its workflow.
    if ["version", "follow_latest", "workflow_id"].iter().any(|name| changes.contains_key(*name)) {
        dropped.extend(["version", "follow_latest"]);
    }
    note_time_zone(schedule, &changes);
    let kept = KEPT.into_iter().filter(|name| !schedule[*name].is_null() && !dropped.contains(name));
    let mut body: Map<String, Value> = kept.map(|name| (name.to_owned(), schedule[name].clone())).collect();
    body.extend(changes);
    Ok(Value::Object(body))
}

/// Says what a change of the timing does to the time zone.
fn note_time_zone(schedule: &Value, changes: &Map<String, Value>) {
    let zone = schedule["time_zone"].as_str().filter(|zone| *zone != "UTC");
    if let Some(zone) = zone.filter(|_| changes.contains_key("every")) {
        say(&format!("The time zone {zone} goes with --cron and is dropped."));
    }
    if !schedule["every"].is_null() && changes.contains_key("cron") && !changes.contains_key("time_zone") {
        say("The expression is read in UTC; --time-zone names another zone.");
    }
}

const COLUMNS: &[Column] = &[
    Column::whole("SCHEDULE"),
    Column::cut("WORKFLOW", 12),
    Column::cut("WHEN", 12),
    Column::whole("STATUS"),
    Column::droppable("NEXT", 1),
    Column::droppable("LAST", 2),
    Column::droppable("OWNER", 3),
];

fn list(scene: &CommandContext<'_>, view: &ListView, found: &Value) -> Outcome {
    if scene.json {
        return print(&format!("{found}\n"));
    }
    let items = found["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |item: &Value| {
        let last = &item["last_tick"];
        vec![
            text(&item["name"]),
            text(&item["workflow_id"]),
            when(item),
            text(&item["status"]),
            short(&item["next_at"]),
            text(&last["outcome"]),
            text(&item["owner"]),
        ]
    };
    let rows: Vec<Vec<String>> = items.iter().map(row).collect();
    view.print(COLUMNS, &rows)?;
    say_footer(scene, found, rows.is_empty(), "no schedules; chimera schedule add creates one");
    Ok(())
}

fn print_schedule(scene: &CommandContext<'_>, schedule: &Value) -> Outcome {
    if scene.json {
        return print(&format!("{schedule}\n"));
    }
    let workflow = match &schedule["version"] {
        Value::Null => format!("{}, newest version at each tick", text(&schedule["workflow_id"])),
        version => format!("{}, version {version}", text(&schedule["workflow_id"])),
    };
    let mut lines = vec![
        ("schedule", text(&schedule["name"])),
        ("workflow", workflow),
        ("when", when(schedule)),
        ("status", text(&schedule["status"])),
        ("next", short(&schedule["next_at"])),
        ("owner", text(&schedule["owner"])),
        ("overlap", text(&schedule["overlap"])),
        ("catch up", text(&schedule["catch_up"])),
        ("inputs", schedule["inputs"].to_string()),
    ];
    let limits = [("starts", "starts_at"), ("ends", "ends_at")].map(|(name, at)| (name, &schedule[at]));
    for (name, at) in limits.into_iter().filter(|(_, at)| !at.is_null()) {
        lines.push((name, short(at)));
    }
    if let Some(seconds) = schedule["jitter_seconds"].as_i64().filter(|seconds| *seconds > 0) {
        lines.push(("jitter", format!("{seconds} s")));
    }
    if let Some(level) = schedule["autonomy_level_max"].as_str() {
        lines.push(("level", format!("{level} at most")));
    }
    if !schedule["paused_at"].is_null() {
        let reason = schedule["pause_reason"].as_str().map(|reason| format!(": {reason}")).unwrap_or_default();
        let who = text(&schedule["paused_by"]);
        lines.insert(4, ("paused", format!("{} by {who}{reason}", short(&schedule["paused_at"]))));
    }
    let last = &schedule["last_tick"];
    if !last.is_null() {
        let error = last["error"]["message"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
        lines.push(("last tick", format!("{} {}{error}", short(&last["tick_at"]), text(&last["outcome"]))));
        lines.push(("last run", text(&schedule["last_run_id"])));
    }
    let queued = schedule["queued"].as_array().map_or(0, Vec::len);
    if queued > 0 {
        lines.push(("queued", queued.to_string()));
    }
    lines.iter().try_for_each(|(name, value)| print(&format!("{name:<10}{value}\n")))
}

/// The timing in words.
fn when(schedule: &Value) -> String {
    match schedule["every"].as_str() {
        Some(every) => format!("every {every}"),
        None => match schedule["time_zone"].as_str() {
            Some("UTC") | None => text(&schedule["cron"]),
            Some(zone) => format!("{} {zone}", text(&schedule["cron"])),
        },
    }
}

/// A time without its fraction.
fn short(time: &Value) -> String {
    match time.as_str() {
        Some(time) => format!("{}Z", time.split(['.', 'Z']).next().unwrap_or(time)),
        None => "-".to_owned(),
    }
}

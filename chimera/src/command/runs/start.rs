//! `chimera runs start`, `retry` and `replay`: a run begins.

use super::watch;
use crate::cli::{Acting, LevelWord, ReplayMode, StartArgs};
use crate::command::{Scene, json_of, print, say};
use crate::failure::{Failure, Outcome};
use crate::flow::desk::{Desk, run_id};
use chimera_core::access::Level;
use chimera_core::error::Code;
use clap::ValueEnum;
use serde_json::{Map, Value, json};
use std::process::ExitCode;

pub(super) async fn run(scene: &Scene<'_>, args: StartArgs) -> Outcome<ExitCode> {
    let desk = Desk::to_change(&scene.loaded.config, args.acting.actor.as_deref())?;
    let level = args.level.map(|word| match word {
        LevelWord::Ask => Level::Ask,
        LevelWord::Draft => Level::Draft,
        LevelWord::ExecuteNotify => Level::ExecuteNotify,
        LevelWord::ExecuteSilent => Level::ExecuteSilent,
    });
    let mut body = Map::new();
    body.insert("workflow_id".to_owned(), args.workflow.as_str().into());
    body.insert("inputs".to_owned(), inputs(&args)?);
    body.insert("wait".to_owned(), 0.into());
    let given = [
        ("version", args.version.map(Value::from)),
        ("autonomy_level", level.map(|level| level.as_str().into())),
        ("priority", args.priority.map(Value::from)),
        ("dry_run", args.dry_run.then_some(true.into())),
        ("idempotency_key", args.idempotency_key.map(Value::from)),
        ("correlation_id", args.correlation_id.map(Value::from)),
        ("notify", notify(args.notify_webhook, args.notify_email)),
    ];
    body.extend(given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    let started = desk.tell("POST", "act", Some(body.into())).await?;
    finish(scene, &desk, &started, args.wait).await
}

/// Runs a run over again.
pub(super) async fn again(
    scene: &Scene<'_>,
    run: &str,
    (word, mode): (&str, Option<ReplayMode>),
    from: Option<String>,
    wait: bool,
    acting: &Acting,
) -> Outcome<ExitCode> {
    let desk = Desk::to_change(&scene.loaded.config, acting.actor.as_deref())?;
    let mut body = json!({ "from": from });
    if let Some(mode) = mode.and_then(|mode| mode.to_possible_value()) {
        body["mode"] = mode.get_name().into();
    }
    let started = desk.tell("POST", &format!("runs/{}/{word}", run_id(run)?), Some(body)).await?;
    finish(scene, &desk, &started, wait).await
}

async fn finish(scene: &Scene<'_>, desk: &Desk, started: &Value, wait: bool) -> Outcome<ExitCode> {
    let run = started["run_id"].as_str().unwrap_or_default().to_owned();
    if wait {
        say(&format!("started {run}"));
        return watch::follow(scene, desk, run_id(&run)?, 0).await;
    }
    if scene.json {
        print(&format!("{started}\n"))?;
    } else {
        say(&format!("started; chimera runs watch {run}"));
        print(&format!("{run}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The inputs of a file, and those of the command line over them.
fn inputs(args: &StartArgs) -> Outcome<Value> {
    let refused = |what: String| Failure::new(Code::MalformedArgs, what);
    let mut inputs = match &args.inputs {
        Some(file) => json_of(file)?,
        None => json!({}),
    };
    let members = inputs.as_object_mut().ok_or_else(|| refused("the inputs are not a JSON object".to_owned()))?;
    members.extend(args.input.iter().cloned());
    Ok(inputs)
}

fn notify(webhook: Option<String>, email: Option<String>) -> Option<Value> {
    let mut told = Map::new();
    told.extend(webhook.map(|url| ("webhook".to_owned(), url.into())));
    told.extend(email.map(|address| ("email".to_owned(), address.into())));
    (!told.is_empty()).then(|| told.into())
}

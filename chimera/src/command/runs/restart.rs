//! `chimera runs retry` and `replay`: starts a run again.

use super::follow;
use crate::backend::parse_run_id;
use crate::cli::{ActorArg, ReplayArgs, RetryArgs};
use crate::command::{CommandContext, print, say};
use crate::failure::Outcome;
use clap::ValueEnum;
use serde_json::{Value, json};
use std::process::ExitCode;

pub(super) async fn retry(scene: &CommandContext<'_>, args: RetryArgs) -> Outcome<ExitCode> {
    let path = format!("runs/{}/retry", parse_run_id(&args.run)?);
    restart(scene, &args.acting, &path, json!({ "from": args.from }), args.wait).await
}

pub(super) async fn replay(scene: &CommandContext<'_>, args: ReplayArgs) -> Outcome<ExitCode> {
    let path = format!("runs/{}/replay", parse_run_id(&args.run)?);
    let mut body = json!({ "from": args.from });
    if let Some(mode) = args.mode.to_possible_value() {
        body["mode"] = mode.get_name().into();
    }
    restart(scene, &args.acting, &path, body, args.wait).await
}

async fn restart(
    scene: &CommandContext<'_>,
    acting: &ActorArg,
    path: &str,
    body: Value,
    wait: bool,
) -> Outcome<ExitCode> {
    let backend = scene.write_backend(acting.actor.as_deref())?;
    let started = backend.request("POST", path, Some(body)).await?;
    let run = started["run_id"].as_str().unwrap_or_default().to_owned();
    if wait {
        say(&format!("started {run}"));
        return follow(scene, &backend, parse_run_id(&run)?, 0).await;
    }
    if scene.json {
        print(&format!("{started}\n"))?;
    } else {
        say(&format!("started; chimera runs watch {run}"));
        print(&format!("{run}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

//! `chimera runs retry` and `replay`: starts a run again.

use super::follow;
use crate::backend::parse_run_id;
use crate::cli::{ActorArg, ReplayMode};
use crate::command::{CommandContext, print, say};
use crate::failure::Outcome;
use clap::ValueEnum;
use serde_json::json;
use std::process::ExitCode;

pub(super) async fn restart(
    scene: &CommandContext<'_>,
    run: &str,
    (word, mode): (&str, Option<ReplayMode>),
    from: Option<String>,
    wait: bool,
    acting: &ActorArg,
) -> Outcome<ExitCode> {
    let backend = scene.write_backend(acting.actor.as_deref())?;
    let mut body = json!({ "from": from });
    if let Some(mode) = mode.and_then(|mode| mode.to_possible_value()) {
        body["mode"] = mode.get_name().into();
    }
    let started = backend.request("POST", &format!("runs/{}/{word}", parse_run_id(run)?), Some(body)).await?;
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

//! Commands that send a signal to a run: approve, reject, edit, cancel, pause, resume, resolve, roll back, patch.

use super::watch;
use crate::backend::{escaped, run_id};
use crate::cli::{Acting, DecideArgs, PatchArgs, ResolveArgs};
use crate::command::{Scene, document, json_of, print, say};
use crate::failure::Outcome;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::process::ExitCode;

pub(super) async fn decide(scene: &Scene<'_>, args: DecideArgs, decision: &str) -> Outcome<ExitCode> {
    let backend = scene.desk_to_change(args.acting.actor.as_deref())?;
    let given = [
        ("decision", Some(decision.to_owned())),
        ("step_id", args.step),
        ("digest", args.digest),
        ("approval_id", args.approval),
        ("reason", args.reason),
    ];
    let body: Map<String, Value> =
        given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))).collect();
    let told = backend.tell("POST", &format!("runs/{}/approve", run_id(&args.run)?), Some(body.into())).await?;
    if scene.json {
        print(&format!("{told}\n"))?;
    } else if told["approval_status"] == "pending" {
        say(&format!("{} of {} have approved.", told["approvals"], told["approvals_needed"]));
    } else if decision == "request_changes" {
        say("changes requested; this run will not continue.");
    } else {
        say(&format!("{}.", told["approval_status"].as_str().unwrap_or("decided")));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn edit(scene: &Scene<'_>, run: &str, step: &str, input: &Path, acting: &Acting) -> Outcome<ExitCode> {
    let path = format!("runs/{}/steps/{}/edit", run_id(run)?, escaped(step));
    tell(
        scene,
        acting,
        &path,
        Some(json!({"input": json_of(input)?})),
        "input changed; the step waits for approval again",
    )
    .await
}

pub(super) async fn cancel(scene: &Scene<'_>, run: &str, reason: Option<String>, acting: &Acting) -> Outcome<ExitCode> {
    let path = format!("runs/{}/cancel", run_id(run)?);
    tell(scene, acting, &path, Some(json!({ "reason": reason })), "cancellation requested").await
}

pub(super) async fn hold(scene: &Scene<'_>, run: &str, word: &str, acting: &Acting) -> Outcome<ExitCode> {
    let words = if word == "pause" { "pause requested" } else { "resume requested" };
    tell(scene, acting, &format!("runs/{}/{word}", run_id(run)?), None, words).await
}

pub(super) async fn resolve(scene: &Scene<'_>, args: ResolveArgs) -> Outcome<ExitCode> {
    let path = format!("runs/{}/steps/{}/resolve", run_id(&args.run)?, escaped(&args.step));
    let outcome = if args.happened { "happened" } else { "never" };
    let mut body = json!({"outcome": outcome, "notes": args.notes});
    if let Some(file) = &args.output {
        body["output"] = json_of(file)?;
    }
    tell(scene, &args.acting, &path, Some(body), "outcome recorded").await
}

pub(super) async fn rollback(
    scene: &Scene<'_>,
    run: &str,
    steps: Vec<String>,
    reason: Option<String>,
    wait: bool,
    acting: &Acting,
) -> Outcome<ExitCode> {
    let id = run_id(run)?;
    let backend = scene.desk_to_change(acting.actor.as_deref())?;
    let known = backend.run(id).await?["run_seq"].as_i64().unwrap_or(0);
    let steps = if steps.is_empty() { Value::Null } else { steps.into() };
    let body = json!({"step_ids": steps, "reason": reason});
    let told = backend.tell("POST", &format!("runs/{id}/rollback"), Some(body)).await?;
    if wait {
        backend.heard(id, known).await?;
        return watch::follow(scene, &backend, id, known).await;
    }
    answer(scene, &told, "rollback started")
}

/// Marks a run as rolled back by hand.
pub(super) async fn mark(scene: &Scene<'_>, run: &str, reason: Option<String>, acting: &Acting) -> Outcome<ExitCode> {
    let backend = scene.desk_to_change(acting.actor.as_deref())?;
    let body = json!({"status": "rolled_back", "reason": reason});
    let told = backend.tell("PATCH", &format!("runs/{}", run_id(run)?), Some(body)).await?;
    answer(scene, &told, "the run is marked as rolled back")
}

pub(super) async fn patch(scene: &Scene<'_>, args: PatchArgs) -> Outcome<ExitCode> {
    let backend = scene.desk_to_change(args.acting.actor.as_deref())?;
    let run = run_id(&args.run)?;
    if let Some(number) = args.remove {
        let told = backend.tell("DELETE", &format!("runs/{run}/patches/{number}"), None).await?;
        return answer(scene, &told, "patch removal requested");
    }
    let patch = match &args.file {
        Some(file) => json_of(file)?,
        None => Value::Null,
    };
    let body = json!({"patch": patch, "state_version": args.state_version, "dry_run": args.dry_run});
    let told = backend.tell("POST", &format!("runs/{run}/patch"), Some(body)).await?;
    if scene.json {
        print(&format!("{told}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&document(&told["preview"]))?;
    if let Some(number) = told["number"].as_u64() {
        say(&format!("proposed as patch {number}"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn tell(scene: &Scene<'_>, acting: &Acting, path: &str, body: Option<Value>, words: &str) -> Outcome<ExitCode> {
    let backend = scene.desk_to_change(acting.actor.as_deref())?;
    let told = backend.tell("POST", path, body).await?;
    answer(scene, &told, words)
}

fn answer(scene: &Scene<'_>, told: &Value, words: &str) -> Outcome<ExitCode> {
    if scene.json {
        print(&format!("{told}\n"))?;
    } else {
        say(&format!("{words}."));
    }
    Ok(ExitCode::SUCCESS)
}

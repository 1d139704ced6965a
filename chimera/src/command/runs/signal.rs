//! Commands that send a signal to a run: approve, reject, edit, cancel, pause, resume, resolve, roll back, patch.

use super::watch;
use crate::backend::{parse_run_id, percent_encode};
use crate::cli::{ActorArg, DecideArgs, PatchArgs, ResolveArgs, RollbackArgs};
use crate::command::{CommandContext, document, print, read_json, say};
use crate::failure::Outcome;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::process::ExitCode;

pub(super) async fn decide(scene: &CommandContext<'_>, args: DecideArgs, decision: &str) -> Outcome<ExitCode> {
    let backend = scene.write_backend(args.acting.actor.as_deref())?;
    let given = [
        ("decision", Some(decision.to_owned())),
        ("step_id", args.step),
        ("digest", args.digest),
        ("approval_id", args.approval),
        ("reason", args.reason),
    ];
    let body: Map<String, Value> =
        given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))).collect();
    let answer =
        backend.request("POST", &format!("runs/{}/approve", parse_run_id(&args.run)?), Some(body.into())).await?;
    if scene.json {
        print(&format!("{answer}\n"))?;
    } else if answer["approval_status"] == "pending" {
        say(&format!("{} of {} have approved.", answer["approvals"], answer["approvals_needed"]));
    } else if decision == "request_changes" {
        say("changes requested; this run will not continue.");
    } else {
        say(&format!("{}.", answer["approval_status"].as_str().unwrap_or("decided")));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn edit(
    scene: &CommandContext<'_>,
    run: &str,
    step: &str,
    input: &Path,
    acting: &ActorArg,
) -> Outcome<ExitCode> {
    let path = format!("runs/{}/steps/{}/edit", parse_run_id(run)?, percent_encode(step));
    send(
        scene,
        acting,
        &path,
        Some(json!({"input": read_json(input)?})),
        "input changed; the step waits for approval again",
    )
    .await
}

pub(super) async fn cancel(
    scene: &CommandContext<'_>,
    run: &str,
    reason: Option<String>,
    acting: &ActorArg,
) -> Outcome<ExitCode> {
    let path = format!("runs/{}/cancel", parse_run_id(run)?);
    send(scene, acting, &path, Some(json!({ "reason": reason })), "cancellation requested").await
}

pub(super) async fn pause_or_resume(
    scene: &CommandContext<'_>,
    run: &str,
    word: &str,
    acting: &ActorArg,
) -> Outcome<ExitCode> {
    let words = if word == "pause" { "pause requested" } else { "resume requested" };
    send(scene, acting, &format!("runs/{}/{word}", parse_run_id(run)?), None, words).await
}

pub(super) async fn resolve(scene: &CommandContext<'_>, args: ResolveArgs) -> Outcome<ExitCode> {
    let path = format!("runs/{}/steps/{}/resolve", parse_run_id(&args.run)?, percent_encode(&args.step));
    let outcome = if args.happened { "happened" } else { "never" };
    let mut body = json!({"outcome": outcome, "notes": args.notes});
    if let Some(file) = &args.output {
        body["outputs"] = read_json(file)?;
    }
    send(scene, &args.acting, &path, Some(body), "outcome recorded").await
}

pub(super) async fn rollback(scene: &CommandContext<'_>, args: RollbackArgs) -> Outcome<ExitCode> {
    let RollbackArgs { run, steps, reason, wait, acting, .. } = args;
    let id = parse_run_id(&run)?;
    let backend = scene.write_backend(acting.actor.as_deref())?;
    let known = backend.run(id).await?["run_seq"].as_i64().unwrap_or(0);
    let steps = if steps.is_empty() { Value::Null } else { steps.into() };
    let body = json!({"step_ids": steps, "reason": reason});
    let answer = backend.request("POST", &format!("runs/{id}/rollback"), Some(body)).await?;
    if wait {
        backend.wait_for_event(id, known).await?;
        return watch::follow(scene, &backend, id, known).await;
    }
    print_answer(scene, &answer, "rollback started")
}

/// Marks a run as rolled back by hand.
pub(super) async fn mark_rolled_back(scene: &CommandContext<'_>, args: RollbackArgs) -> Outcome<ExitCode> {
    let backend = scene.write_backend(args.acting.actor.as_deref())?;
    let body = json!({"status": "rolled_back", "reason": args.reason});
    let answer = backend.request("PATCH", &format!("runs/{}", parse_run_id(&args.run)?), Some(body)).await?;
    print_answer(scene, &answer, "the run is marked as rolled back")
}

pub(super) async fn patch(scene: &CommandContext<'_>, args: PatchArgs) -> Outcome<ExitCode> {
    let backend = scene.write_backend(args.acting.actor.as_deref())?;
    let run = parse_run_id(&args.run)?;
    if let Some(number) = args.remove {
        let answer = backend.request("DELETE", &format!("runs/{run}/patches/{number}"), None).await?;
        return print_answer(scene, &answer, "patch removal requested");
    }
    let patch = match &args.file {
        Some(file) => read_json(file)?,
        None => Value::Null,
    };
    let body = json!({"patch": patch, "state_version": args.state_version, "dry_run": args.dry_run});
    let answer = backend.request("POST", &format!("runs/{run}/patch"), Some(body)).await?;
    if scene.json {
        print(&format!("{answer}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&document(&answer["preview"]))?;
    if let Some(number) = answer["number"].as_u64() {
        say(&format!("proposed as patch {number}"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn send(
    scene: &CommandContext<'_>,
    acting: &ActorArg,
    path: &str,
    body: Option<Value>,
    words: &str,
) -> Outcome<ExitCode> {
    let backend = scene.write_backend(acting.actor.as_deref())?;
    let answer = backend.request("POST", path, body).await?;
    print_answer(scene, &answer, words)
}

fn print_answer(scene: &CommandContext<'_>, answer: &Value, words: &str) -> Outcome<ExitCode> {
    if scene.json {
        print(&format!("{answer}\n"))?;
    } else {
        say(&format!("{words}."));
    }
    Ok(ExitCode::SUCCESS)
}

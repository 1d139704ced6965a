//! `chimera resume`: resumes a held store; also accepts a clock, or the loss of keys.
//!
//! It first lists what may have happened after the stored state was written, and changes nothing until
//! somebody confirms.

use super::{CommandContext, EXIT_FOUND_WRONG, print, say};
use crate::ambient::{ClockDisagreement, stdin_is_terminal};
use crate::cli::ResumeArgs;
use crate::compose::{self, Ambient};
use crate::failure::{Failure, Outcome};
use crate::flow::table::table;
use chimera_core::error::{Code, io_reason};
use chimera_core::limits;
use chimera_engine::flow::{self, DroppedSignal, RestoreSurvey, RestoredRun, ResumeOptions};
use chimera_engine::port::Hold;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufRead, Write as _};
use std::process::ExitCode;

pub(crate) async fn run(scene: &CommandContext<'_>, args: &ResumeArgs) -> Outcome<ExitCode> {
    let (config, ambient) = (&scene.loaded.config, Ambient::new());
    if args.accept_clock {
        return accept_clock(scene, &ambient).await;
    }
    if args.accept_lost_keys {
        return accept_lost_keys(scene, &ambient).await;
    }
    if !args.after_restore {
        return Err(Failure::new(
            Code::MalformedArgs,
            "one of --after-restore, --accept-clock and --accept-lost-keys is required",
        )
        .hint("to resume a single run, use chimera runs resume"));
    }
    let Some(hold) = compose::store_hold(config, &ambient).await? else {
        if scene.json {
            print(&format!("{}\n", json!({"held": false, "resumed": false})))?;
        } else {
            say("The store is not held: nothing to resume.");
        }
        return Ok(ExitCode::SUCCESS);
    };
    let resumer = compose::resumer(config, &ambient).await?;
    let outcome = resume_store(scene, args, &hold, &resumer).await;
    resumer.close().await;
    let Some(resumed) = outcome? else { return Ok(ExitCode::from(EXIT_FOUND_WRONG)) };
    // A node that knows a newer state may hold the store again at once.
    if let Some(hold) = compose::store_hold(config, &ambient).await? {
        let message = format!("the store was resumed, but is held again: {}", hold.reason);
        return Err(Failure::new(Code::StoreHeld, message).hint("fix the cause, and resume it again"));
    }
    print_summary(scene, args, &hold, &resumed)?;
    Ok(ExitCode::SUCCESS)
}

struct ResumeSummary {
    survey: RestoreSurvey,
    sign_ins_ended: usize,
}

/// Accepts a clock that is behind the ledger.
async fn accept_clock(scene: &CommandContext<'_>, ambient: &Ambient) -> Outcome<ExitCode> {
    let (found, waits) = compose::accept_clock(&scene.loaded.config, ambient).await?;
    if scene.json {
        let accepted = matches!(found, Some(ClockDisagreement::BehindLedger { .. }));
        let document = json!({
            "accepted": accepted, "reason": found.map(|found| found.to_string()), "steps_waiting": waits.steps,
            "waiting_until": waits.until.map(|until| until.to_string()),
        });
        print(&format!("{document}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    match found {
        Some(found @ ClockDisagreement::BehindLedger { .. }) => {
            say(&format!("Accepted, although {found}. Servers can start now."));
            if let Some(until) = waits.until {
                say(&format!("Steps that wait for a future time: {}, the last until {until}.", waits.steps));
                say(
                    "Timers and retries scheduled by the wrong clock wait that much longer; chimera runs show shows when they are due.",
                );
            }
        }
        Some(found) => say(&format!("Nothing was changed: {found}. {}.", found.hint())),
        None => say("The clock is plausible: nothing to accept."),
    }
    Ok(ExitCode::SUCCESS)
}

/// Revokes the actors' keys that can't be decrypted any more.
async fn accept_lost_keys(scene: &CommandContext<'_>, ambient: &Ambient) -> Outcome<ExitCode> {
    let actors = compose::revoke_lost_keys(&scene.loaded.config, ambient).await?;
    if scene.json {
        print(&format!("{}\n", json!({ "revoked": actors })))?;
    } else if actors.is_empty() {
        say("All actors' keys can be decrypted: nothing to revoke.");
    } else {
        say(&format!("Revoked the keys of {}. chimera actor secret NAME creates a new one.", actors.join(", ")));
    }
    Ok(ExitCode::SUCCESS)
}

/// Resumes after confirmation.
async fn resume_store(
    scene: &CommandContext<'_>,
    args: &ResumeArgs,
    hold: &Hold,
    resumer: &compose::Resumer,
) -> Outcome<Option<ResumeSummary>> {
    let survey = flow::survey_restored(&resumer.flow).await?;
    let resumes = args.yes
        || (!scene.json && {
            print(&render_survey(hold, &survey))?;
            confirm()?
        });
    if resumes {
        let resume = ResumeOptions { hold, end_sign_ins: !args.keep_sign_ins };
        let sign_ins_ended = flow::resume_store(&resumer.flow, &compose::operator(), &survey, &resume).await?;
        return Ok(Some(ResumeSummary { survey, sign_ins_ended }));
    }
    if scene.json {
        print(&format!("{}\n", document(hold, &survey, false, 0)))?;
    } else {
        say("Nothing was changed; the store is still held. --yes resumes it without confirmation.");
    }
    Ok(None)
}

fn print_summary(scene: &CommandContext<'_>, args: &ResumeArgs, hold: &Hold, resumed: &ResumeSummary) -> Outcome {
    let ResumeSummary { survey, sign_ins_ended } = resumed;
    if scene.json {
        return print(&format!("{}\n", document(hold, survey, true, *sign_ins_ended)));
    }
    if args.yes {
        print(&render_survey(hold, survey))?;
    }
    let runs = survey.runs.len();
    say(&format!("Resumed. Runs notified: {runs}, sessions ended: {sign_ins_ended}."));
    say("Servers continue now. chimera runs list shows what waits for you.");
    Ok(())
}

/// Asks for confirmation; without a terminal the answer is no.
fn confirm() -> Outcome<bool> {
    if !stdin_is_terminal() {
        say("Stdin is not a terminal, so there is no confirmation prompt; piped answers are not read.");
        return Ok(false);
    }
    let failed = |error: std::io::Error| Failure::new(Code::Internal, format!("no answer: {}", io_reason(&error)));
    let mut stderr = std::io::stderr();
    write!(stderr, "ResumeOptions from this state? Type yes: ").and_then(|()| stderr.flush()).map_err(failed)?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    Ok(answer.trim() == "yes")
}

fn render_survey(hold: &Hold, survey: &RestoreSurvey) -> String {
    let mut text = format!("The store has been held since {}: {}\n\n", hold.since, hold.reason);
    if survey.runs.is_empty() {
        text.push_str("There are no unfinished runs.\n");
    } else {
        text.push_str("These runs are unfinished. What they did after this state was written is not\n");
        text.push_str("known; a step with effects is not repeated until it is known that it did not run.\n\n");
        let rows: Vec<Vec<String>> = survey.runs.iter().take(limits::SHOWN_RUNS_MAX).map(row).collect();
        text.push_str(&table(&["RUN", "WORKFLOW", "STATUS", "WAITS", "IN DOUBT"], &rows));
    }
    if let Some(more) = survey.runs.len().checked_sub(limits::SHOWN_RUNS_MAX).filter(|more| *more > 0) {
        let _ = writeln!(text, "and {more} more; --json lists all");
    }
    let _ = writeln!(text, "\nMessages to send, some possibly for the second time: {}", survey.messages);
    let _ = writeln!(text, "Sessions to end, because later revocations are lost: {}", survey.sign_ins);
    text
}

fn row(run: &RestoredRun) -> Vec<String> {
    let mut waits = Vec::new();
    if run.approvals > 0 {
        waits.push(format!("approvals: {}", run.approvals));
    }
    waits.extend(run.due.map(|due| format!("until {due}")));
    if run.under_way > 0 {
        waits.push(format!("calls under way: {}", run.under_way));
    }
    if run.rolling_back {
        waits.push("rollback".to_owned());
    }
    let dropped = |lapsed: &DroppedSignal| format!("{} by {}", lapsed.kind, lapsed.by);
    if !run.lapsed.is_empty() {
        let all: BTreeSet<String> = run.lapsed.iter().map(dropped).collect();
        waits.push(format!("dropped: {}", all.into_iter().collect::<Vec<_>>().join(", ")));
    }
    let step = |step: &chimera_core::flow::run::UncertainStep| {
        let item = step.item.map(|item| format!("[{item}]")).unwrap_or_default();
        format!("{}{item} ({})", step.node, step.tool.as_deref().unwrap_or("workflow"))
    };
    let unsure: Vec<String> = run.unsure.iter().map(step).collect();
    let unsure = match &run.unreadable {
        Some(why) => format!("can't be read: {why}"),
        None if unsure.is_empty() => "-".to_owned(),
        None => unsure.join(", "),
    };
    let waits = if waits.is_empty() { "-".to_owned() } else { waits.join(", ") };
    vec![run.id.to_string(), run.workflow.clone(), run.status.clone(), waits, unsure]
}

fn document(hold: &Hold, survey: &RestoreSurvey, resumed: bool, ended: usize) -> Value {
    let run = |run: &RestoredRun| {
        let step = |step: &chimera_core::flow::run::UncertainStep| json!({"node": step.node, "item": step.item, "tool": step.tool, "status": step.status});
        let dropped = |lapsed: &DroppedSignal| json!({"kind": lapsed.kind, "by": lapsed.by});
        json!({
            "run_id": run.id, "tenant": run.tenant, "workflow_id": run.workflow, "actor": run.actor,
            "status": run.status, "calls_under_way": run.under_way, "approvals_pending": run.approvals,
            "next_deadline": run.due.map(|due| due.to_string()), "rolling_back": run.rolling_back,
            "unreadable": run.unreadable, "in_doubt": run.unsure.iter().map(step).collect::<Vec<_>>(),
            "dropped": run.lapsed.iter().map(dropped).collect::<Vec<_>>(),
        })
    };
    json!({
        "held": !resumed, "reason": hold.reason, "held_since": hold.since.to_string(), "resumed": resumed,
        "runs": survey.runs.iter().map(run).collect::<Vec<_>>(), "messages_pending": survey.messages,
        "sign_ins": survey.sign_ins, "sign_ins_ended": ended,
    })
}

//! `chimera act`: requests an action and shows the result: the plan, its risk, the level, and what waits
//! for approval or was done.

use super::runs::follow;
use super::{CommandContext, document, print, read_json, say};
use crate::backend::{Backend, parse_run_id};
use crate::cli::{ActArgs, DuplicatePolicyArg};
use crate::failure::{Failure, Outcome};
use crate::flow::render::{is_approvable, review_lines};
use crate::flow::table::text;
use chimera_core::error::Code;
use chimera_core::flow::risk::{HIGH_FROM, MEDIUM_FROM};
use chimera_core::flow::run::RunStatus;
use chimera_core::limits;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::ExitCode;

pub(crate) async fn run(scene: &CommandContext<'_>, args: ActArgs) -> Outcome<ExitCode> {
    let backend = Backend::connect(&scene.loaded.config, args.acting.actor.as_deref())?;
    let (actor, wait) = (args.acting.actor.clone(), args.wait);
    let mut acted = backend.request("POST", "act", Some(body(args)?)).await?;
    let waits = |acted: &Value| acted["approvals"].as_array().is_some_and(|asked| !asked.is_empty());
    if !scene.json && acted["status"] == RunStatus::AwaitingApproval.as_str() && !waits(&acted) {
        // The short response of a silent run doesn't include its approvals.
        let mut shown = backend.run(parse_run_id(acted["run_id"].as_str().unwrap_or_default())?).await?;
        acted["approvals"] = shown["approvals"].take();
    }
    let status = acted["status"].as_str().unwrap_or_default();
    let over = RunStatus::parse(status).is_some_and(RunStatus::is_final);
    if scene.json && (over || !wait) {
        print(&format!("{acted}\n"))?;
    } else if !scene.json {
        print(&render_result(&acted, actor.as_deref()))?;
    }
    if wait && !over {
        let run = acted["run_id"].as_str().unwrap_or_default();
        return follow(scene, &backend, parse_run_id(run)?, 0).await;
    }
    if !scene.json && !over && !waits(&acted) {
        say(&format!("in progress; follow it with chimera runs watch {}", text(&acted["run_id"])));
    }
    Ok(if matches!(status, "failed" | "cancelled") { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The request body.
fn body(args: ActArgs) -> Outcome<Value> {
    let inputs = inputs(&args)?;
    let steps: Vec<Value> = args.steps.iter().map(|(tool, input)| json!({"tool": tool, "input": input})).collect();
    let duplicate = args.on_duplicate.map(|word| match word {
        DuplicatePolicyArg::Conflict => "conflict",
        DuplicatePolicyArg::Return => "return",
    });
    let given = [
        ("goal", args.goal.map(Value::from)),
        ("workflow_id", args.workflow.map(Value::from)),
        ("steps", (!steps.is_empty()).then(|| steps.into())),
        ("inputs", inputs),
        ("version", args.version.map(Value::from)),
        ("autonomy_level", args.level.map(|word| word.level().as_str().into())),
        ("dry_run", args.dry_run.then_some(true.into())),
        ("idempotency_key", args.idempotency_key.map(Value::from)),
        ("on_duplicate", duplicate.map(Value::from)),
        ("notify", notify(args.notify_webhook, args.notify_email)),
        ("priority", args.priority.map(Value::from)),
        ("correlation_id", args.correlation_id.map(Value::from)),
        // `--wait` follows the run's events from the beginning instead.
        ("wait", args.wait.then_some(0.into())),
    ];
    let members = given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Ok(Value::Object(members.collect()))
}

/// Inputs from the file, overridden by those on the command line.
fn inputs(args: &ActArgs) -> Outcome<Option<Value>> {
    check_unique(&args.input)?;
    let mut inputs = match &args.inputs {
        Some(file) => read_json(file)?,
        None if args.input.is_empty() => return Ok(None),
        None => json!({}),
    };
    let refused = || Failure::new(Code::MalformedArgs, "the inputs must be a JSON object");
    inputs.as_object_mut().ok_or_else(refused)?.extend(args.input.iter().cloned());
    Ok(Some(inputs))
}

/// Refuses an input that is given twice: nobody can tell which value is meant.
fn check_unique(given: &[(String, Value)]) -> Outcome {
    let mut seen = BTreeSet::new();
    match given.iter().find(|(name, _)| !seen.insert(name)) {
        None => Ok(()),
        Some((name, _)) => {
            let failure = Failure::new(Code::MalformedArgs, format!("--input {name}=… is given more than once"));
            Err(failure.hint("give each input once; a list is one value, such as --input 'names=[\"a\",\"b\"]'"))
        }
    }
}

pub(super) fn notify(webhook: Option<String>, email: Option<String>) -> Option<Value> {
    let mut targets = Map::new();
    targets.extend(webhook.map(|url| ("webhook".to_owned(), url.into())));
    targets.extend(email.map(|address| ("email".to_owned(), address.into())));
    (!targets.is_empty()).then(|| targets.into())
}

/// The result as text for a person.
fn render_result(acted: &Value, actor: Option<&str>) -> String {
    let run = text(&acted["run_id"]);
    let dry = if acted["dry_run"] == true { "  dry run" } else { "" };
    let mut shown = format!("{run}  {}  {}{dry}\n", text(&acted["autonomy_level"]), text(&acted["status"]));
    let by = actor.map(|actor| format!(" --as {actor}")).unwrap_or_default();
    let asked = acted["approvals"].as_array().map(Vec::as_slice).unwrap_or_default();
    for asked in asked {
        // What a person must decide about is never truncated.
        review_lines(asked, limits::SHOWN_COLUMNS_DEFAULT).iter().for_each(|line| {
            let _ = writeln!(shown, "{line}");
        });
        let what = asked["node_id"].as_str().map_or_else(|| "the plan".to_owned(), |_| text(&asked["node_id"]));
        let (until, digest) = (text(&asked["expires_at"]), text(&asked["digest"]));
        let (waits_for, command) =
            if is_approvable(asked) { ("approval", "approve") } else { ("a decision", "reject") };
        let _ = writeln!(shown, "{what} waits for {waits_for}, until {until}");
        let _ = writeln!(shown, "  chimera runs {command} {run} --digest {digest}{by}");
    }
    if !asked.is_empty() {
        return shown;
    }
    let steps = acted["plan"]["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (at, step) in steps.iter().take(limits::SHOWN_STEPS_MAX).enumerate() {
        let (name, input) = match &step["tool"] {
            Value::Null => (text(&step["node"]), text(&step["type"])),
            tool => (text(tool), abbreviate(&step["input"])),
        };
        let _ = writeln!(shown, "  {}. {name}  {input}", at + 1);
    }
    if steps.len() > limits::SHOWN_STEPS_MAX || acted["plan"]["more"] == true {
        let hidden = steps.len().saturating_sub(limits::SHOWN_STEPS_MAX);
        let over = if acted["plan"]["more"] == true { "at least " } else { "" };
        let _ = writeln!(shown, "  … and {over}{hidden} more; --json shows them");
    }
    if let Some(score) = acted["risk"]["score"].as_u64() {
        let band = match score {
            score if score >= u64::from(HIGH_FROM) => "high",
            score if score >= u64::from(MEDIUM_FROM) => "medium",
            _ => "low",
        };
        let because = acted["risk"]["level_because"].as_str().map(|why| format!("; level by {why}"));
        let _ = writeln!(shown, "risk {score}, {band}{}", because.unwrap_or_default());
        for reason in acted["risk"]["reasons"].as_array().into_iter().flatten() {
            let _ = writeln!(
                shown,
                "  {:>3}  {} at {}",
                text(&reason["points"]),
                text(&reason["factor"]),
                text(&reason["pointer"])
            );
        }
    }
    let tried = acted["dry_run_results"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (at, tried) in tried.iter().enumerate() {
        let head = if at == 0 { "dry run, would execute:\n" } else { "" };
        let what = if tried["would_execute"].is_null() { &tried["warning"] } else { &tried["would_execute"] };
        let _ = writeln!(shown, "{head}  {}. {}", at + 1, text(what));
    }
    let result = if acted["dry_run"] == true { &Value::Null } else { &acted["result"] };
    for (name, value) in [("result", result), ("error", &acted["error"])] {
        if !value.is_null() {
            let _ = write!(shown, "{name}\n{}", document(value));
        }
    }
    shown
}

fn abbreviate(input: &Value) -> String {
    let whole = text(&input.to_string().into());
    match whole.char_indices().nth(limits::SHOWN_INPUT_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &whole[..at]),
        None => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimera_core::flow::review::{ApprovalRecord, Review};

    #[test]
    fn what_waits_is_shown_whole_with_its_risk_and_how_to_approve_it() {
        let line = |item: u32| json!({"node": "m", "item": item, "tool": "github.issues.create", "input": {"title": "x".repeat(80)}});
        let data = json!({"reason": "the plan must be approved as a whole",
            "plan": {"steps": (0..30).map(line).collect::<Vec<_>>()}});
        let risk = json!({"score": 35, "reasons": [{"factor": "many_steps", "pointer": "/steps", "points": 35}]});
        let review = Review::of(&ApprovalRecord {
            approval_id: uuid::Uuid::nil(),
            run_id: uuid::Uuid::nil(),
            workflow_id: "act.x",
            requested_by: "user_ada",
            changed_by: &[],
            autonomy_level: "L1_Draft",
            node_id: None,
            action_type: "plan",
            data: &data,
            digest: Some("ab".to_owned()),
            created_at: None,
            expires_at: None,
            approvals_needed: 1,
            decisions: &json!([]),
            status: "pending",
            reviewed_at: None,
            reviewed_by: None,
            notes: None,
            run_risk: Some(&risk),
            notify: None,
            before: None,
            now: chimera_core::time::Timestamp::from_micros(0),
        });
        let acted = json!({
            "run_id": "R", "autonomy_level": "L1_Draft", "status": "awaiting_approval", "dry_run": false,
            "approvals": [{"node_id": null, "digest": "ab", "expires_at": "2026-01-01T00:00:00Z", "review": review}],
        });
        let shown = render_result(&acted, Some("user_ada"));
        assert_eq!(shown.matches(&format!("title: {}", "x".repeat(80))).count(), 30, "{shown}");
        for part in [
            "May this plan of act.x run?",
            "(30 calls)",
            "m[29] calls github",
            "Risk: medium (35)",
            "More steps than may run",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let last: Vec<&str> = shown.lines().rev().take(2).collect();
        assert_eq!(
            last,
            [
                "  chimera runs approve R --digest ab --as user_ada",
                "the plan waits for approval, until 2026-01-01T00:00:00Z"
            ]
        );
    }

    #[test]
    fn a_plan_whose_dry_run_was_refused_shows_no_command_to_approve_it() {
        let shown = |refusals: Value| {
            let asked = json!({"digest": "ab", "expires_at": "2026-01-01T00:00:00Z", "review": {"refusals": refusals}});
            render_result(&json!({"run_id": "R", "approvals": [asked]}), None)
        };
        assert!(shown(json!([])).ends_with("  chimera runs approve R --digest ab\n"));
        let refused = shown(json!(["step_1: this key is not allowed"]));
        assert!(!refused.contains("runs approve") && refused.ends_with("  chimera runs reject R --digest ab\n"));
    }

    #[test]
    fn an_input_that_is_given_twice_is_refused() {
        let given = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), json!(1))).collect::<Vec<_>>();
        assert!(check_unique(&given(&["title", "body"])).is_ok());
        let refused = check_unique(&given(&["title", "body", "title"])).unwrap_err();
        assert_eq!(refused.code, Code::MalformedArgs);
        assert_eq!(refused.message, "--input title=… is given more than once");
    }

    #[test]
    fn of_a_long_plan_the_beginning_is_shown() {
        let steps = vec![json!({"tool": "local.echo", "input": {}}); 25];
        let shown = |more: bool| render_result(&json!({"run_id": "R", "plan": {"steps": steps, "more": more}}), None);
        let last = |shown: String| shown.lines().last().map(str::to_owned);
        assert_eq!(last(shown(false)).as_deref(), Some("  … and 5 more; --json shows them"));
        assert_eq!(last(shown(true)).as_deref(), Some("  … and at least 5 more; --json shows them"));
    }
}

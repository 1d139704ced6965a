//! Drives every run of golden data to its end.

use super::look_at;
use crate::support::{Workspace, wait_until};
use serde_json::Value;

/// Name of a run in the golden data, how to end it, and its final status.
const ENDS: &[(&str, EndAction, &str)] = &[
    ("completed", EndAction::Ended, "completed"),
    ("failed", EndAction::Ended, "failed"),
    ("cancelled", EndAction::Ended, "cancelled"),
    ("rolled_back", EndAction::Ended, "rolled_back"),
    ("waiting", EndAction::Approve, "completed"),
    ("draft", EndAction::Approve, "completed"),
    ("patched", EndAction::Approve, "completed"),
    ("child", EndAction::Approve, "completed"),
    ("parent", EndAction::ByItself, "completed"),
    ("in_doubt", EndAction::Settle, "completed"),
    ("cut", EndAction::Settle, "completed"),
    ("timer", EndAction::Cancel, "cancelled"),
    ("paused", EndAction::Cancel, "cancelled"),
];

#[derive(Clone, Copy)]
enum EndAction {
    Ended,
    ByItself,
    Approve,
    Settle,
    Cancel,
}

/// The answer that `send` would have got.
const ANSWER: &str = r#"{"status": 200, "headers": {}, "body": {"ok": true}, "truncated": false}"#;

fn until_so(place: &Workspace, run: &str, what: &str, is_so: impl Fn(&Value) -> bool) {
    wait_until(what, || {
        let seen = look_at(place, run);
        (!is_so(&seen)).then(|| seen.to_string())
    });
}

/// Ends every run; a server is at work.
pub(super) fn end(place: &Workspace, runs: &Value) {
    std::fs::write(place.path("answer.json"), ANSWER).unwrap();
    let known: Vec<&String> = runs.as_object().unwrap().keys().collect();
    assert!(known.iter().all(|name| ENDS.iter().any(|(end, ..)| end == name)), "{known:?}");
    for (name, end, status) in ENDS {
        let Some(run) = runs[name]["run_id"].as_str() else { continue };
        match end {
            EndAction::Ended | EndAction::ByItself => {}
            EndAction::Approve => approve(place, run),
            EndAction::Settle => {
                until_so(place, run, name, |seen| seen["steps"]["send"] == "outcome_unknown");
                place.json(&["runs", "resolve", run, "send", "--happened", "--output", "answer.json"]);
            }
            EndAction::Cancel => drop(place.json(&["runs", "cancel", run])),
        }
        until_so(place, run, &format!("{name} is {status}"), |seen| seen["status"] == *status);
    }
    let kept =
        |name: &str| place.path(&format!(".chimera/buckets/notes/{}.txt", runs[name]["run_id"].as_str().unwrap()));
    assert_eq!(std::fs::read_to_string(kept("waiting")).unwrap(), "waiting");
    assert_eq!(std::fs::read_to_string(kept("draft")).unwrap(), "draft");
    assert!(!kept("rolled_back").exists());
    let patched = look_at(place, runs["patched"]["run_id"].as_str().unwrap());
    assert_eq!(patched["steps"]["tell"], "completed", "what a patch added ran too: {patched}");
}

/// Approves whatever waits, until nothing does.
fn approve(place: &Workspace, run: &str) {
    until_so(place, run, "the end of all questions", |seen| {
        if seen["status"] == "awaiting_approval" {
            let digest = place.json(&["runs", "show", run])["approvals"][0]["digest"].as_str().map(str::to_owned);
            // Between two looks the run may have gone on by itself.
            digest.into_iter().for_each(|digest| drop(place.run(&["runs", "approve", run, "--digest", &digest])));
        }
        seen["status"] == "completed"
    });
}

//! Each factor alone changes the score by its points.

use super::given::{note, plan, scored};
use chimera_core::flow::plan::Plan;
use chimera_core::flow::risk::{Factor, HIGH_FROM, MEDIUM_FROM, Score};
use chimera_core::limits::{JSON_DEPTH_MAX, RISK_HUGE_INPUT_BYTES, RISK_LARGE_INPUT_BYTES};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

/// A plan without the factor, and one with it that is otherwise equivalent.
fn pair(factor: Factor) -> (Plan, Plan) {
    let tools = |tool: &str| (plan([("local.note", json!({}))]), plan([(tool, json!({}))]));
    let texts = |without: &str, with: &str| (note(json!({"text": without})), note(json!({"text": with})));
    let words = |bytes: usize| note(json!({"text": "word ".repeat(bytes / 5 + 1)}));
    let parts = |count: usize| {
        let mut whole = note(json!({}));
        whole.steps = vec![whole.steps[0].clone(); count];
        whole
    };
    let taking = |first: &str, second: &str| {
        let third =
            json!({"a": format!("${{nodes.{first}.outputs.x}}"), "b": format!("${{nodes.{second}.outputs.x}}")});
        plan([("local.note", json!({})), ("local.note", json!({})), ("local.note", third)])
    };
    let (said, taken) = (json!({"text": "x"}), json!({"text": "${nodes.s1.outputs.x}"}));
    match factor {
        Factor::ExternalRead => tools("github.issues"),
        Factor::ExternalWrite => tools("store.put"),
        Factor::ExternalApi => tools("local.translate"),
        Factor::MediumTool => tools("local.medium"),
        Factor::HighTool => tools("local.high"),
        Factor::UnknownTool => tools("made.up"),
        Factor::DestructiveOperation => texts("SELECT * FROM users", "DELETE FROM users"),
        Factor::DestructiveWord => texts("please keep the file", "please delete the file"),
        Factor::Email => texts("ana at example.com", "ana@example.com"),
        Factor::Phone => texts("+34 600 123", "+34 600 123 456"),
        Factor::Card => texts("4111111111111112", "4111111111111111"),
        Factor::Iban => texts("DE89370400440532013001", "DE89370400440532013000"),
        Factor::NationalId => texts("12345678A", "12345678Z"),
        Factor::Unread => {
            let deep = |depth: usize| note((0..depth).fold(json!([]), |inner, _| json!([inner])));
            (deep(JSON_DEPTH_MAX - 1), deep(JSON_DEPTH_MAX))
        }
        Factor::LargeInput => (words(RISK_LARGE_INPUT_BYTES / 2), words(RISK_LARGE_INPUT_BYTES)),
        Factor::HugeInput => (words(0), words(RISK_HUGE_INPUT_BYTES)),
        Factor::Steps => (parts(1), parts(2)),
        Factor::ManySteps => (parts(10), parts(11)),
        Factor::DataFlow => {
            let first = ("local.note", json!({}));
            (plan([first.clone(), ("local.note", said)]), plan([first, ("local.note", taken)]))
        }
        Factor::Join => (taking("s1", "s1"), taking("s1", "s2")),
        Factor::DataLeaves => {
            let steps = |sent, kept| plan([("local.note", json!({})), ("store.put", sent), ("local.note", kept)]);
            (steps(said.clone(), taken.clone()), steps(taken, said))
        }
    }
}

fn points(score: &Score) -> BTreeMap<Factor, u32> {
    let mut points = BTreeMap::new();
    score.reasons.iter().for_each(|reason| *points.entry(reason.factor).or_default() += reason.points);
    points
}

/// CORE-042, CORE-043, CORE-044, CORE-045, CORE-046
#[test]
fn each_factor_alone_moves_the_score_by_its_points() {
    for factor in Factor::ALL {
        let (without, with) = pair(*factor);
        let (less, more) = (scored(&without), scored(&with));
        assert_eq!(less.score + factor.points(), more.score, "{factor:?}: {less:?} {more:?}");
        let mut expected = points(&less);
        *expected.entry(*factor).or_default() += factor.points();
        assert_eq!(points(&more), expected, "{factor:?}");
        assert!(factor.points() > 0 && json!(factor) == factor.as_str());
    }
}

/// CORE-043
#[test]
fn every_further_call_to_the_outside_raises_the_score() {
    let fetches = |count: usize| {
        let mut whole = plan([("github.issues", json!({"repo": "acme/site"}))]);
        whole.steps = vec![whole.steps[0].clone(); count];
        scored(&whole).score
    };
    assert!((1..11).all(|count| fetches(count) < fetches(count + 1)));
}

#[test]
fn the_reference_has_every_factor_and_both_thresholds() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/risk.md");
    let page = std::fs::read_to_string(page).unwrap();
    let row = |factor: &Factor| {
        let (word, points, times) = (factor.as_str(), factor.points(), factor.times());
        format!("| `{word}` | {points} | {times} | {} |", factor.meaning())
    };
    let wanted: Vec<String> = Factor::ALL.iter().map(row).collect();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(rows, wanted, "the page wants:\n{}", wanted.join("\n"));
    assert!(page.contains(&format!("from {MEDIUM_FROM} on medium, from {HIGH_FROM} on high")));
}

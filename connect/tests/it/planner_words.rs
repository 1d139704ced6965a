//! No word of a goal is ignored: whatever is added to a goal that can be planned, the plan carries it or the error
//! names it. And goals as typed by people who have read only the guide: the plan is right, or there is none.

use crate::fixtures::every_tool;
use chimera_connect::act::plan;
use chimera_core::act::PlanError;
use chimera_core::flow::plan::Plan;
use chimera_core::tool::Spec;
use chimera_engine::flow::ToolRegistry;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use tempfile::TempDir;

/// What people add to a request.
const CLAUSES: &[&str] = &[
    "created by octocat",
    "by Quentin",
    "except drafts",
    "only if the build is green",
    "unless it rains",
    "from last week",
    "from the last 7 days",
    "before Friday",
    "in an hour",
    "at 10:30",
    "assigned to me",
    "sorted by age",
    "without duplicates",
    "like last time",
    "for Quentin",
    "as Quentin",
    "older than 3 months",
    "twice",
    "later",
    "yesterday",
    "excluding drafts",
    "larger than 5 MB",
    "at least 10",
    "more than 3",
    "modified last week",
    "should I",
];

/// Goals with their inputs that have a plan.
pub(crate) fn planned() -> Vec<(String, Value)> {
    let known: Value = serde_json::from_str(include_str!("../data/goals.json")).unwrap();
    let typed: Value = serde_json::from_str(include_str!("../data/goals_as_typed.json")).unwrap();
    let plain: Value = serde_json::from_str(include_str!("../data/goals_plain.json")).unwrap();
    let misread: Value = serde_json::from_str(include_str!("../data/goals_misread.json")).unwrap();
    let unseen: Value = serde_json::from_str(include_str!("../data/goals_unseen.json")).unwrap();
    let lists = [&known["planned"], &typed, &plain["planned"], &misread["planned"], &unseen];
    let all = lists.into_iter().flat_map(|list| list.as_array().unwrap());
    all.filter(|goal| goal["steps"].is_array())
        .map(|goal| (goal["goal"].as_str().unwrap().to_owned(), goal["inputs"].clone()))
        .collect()
}

pub(crate) async fn tools() -> Vec<Arc<Spec>> {
    let home = TempDir::new().unwrap();
    let mut registry = ToolRegistry::default();
    every_tool(home.path()).await.into_iter().for_each(|tool| registry.add(tool).unwrap());
    registry.specs()
}

/// Where a word can be inserted: at spaces outside of quotes and JSON, and at both ends.
pub(crate) fn gaps(goal: &str) -> Vec<usize> {
    let mut gaps = vec![0];
    let mut closing: Option<char> = None;
    let mut depth = 0_i32;
    let mut before = ' ';
    for (at, sign) in goal.char_indices() {
        match closing {
            Some(close) if sign == close => closing = None,
            Some(_) => {}
            None => match sign {
                '"' | '`' => closing = Some(sign),
                '“' => closing = Some('”'),
                '\'' if before == ' ' => closing = Some('\''),
                '{' => depth += 1,
                '}' => depth -= 1,
                ' ' if depth == 0 => gaps.push(at),
                _ => {}
            },
        }
        before = sign;
    }
    gaps.push(goal.len());
    gaps
}

fn with(goal: &str, gap: usize, words: &str) -> String {
    format!("{} {words} {}", &goal[..gap], &goal[gap..]).trim().to_owned()
}

/// Words of a clause that carry meaning.
fn meant(clause: &str) -> Vec<String> {
    const SMALL: &[&str] = &["by", "the", "is", "it", "from", "in", "an", "at", "to", "for", "as", "than"];
    clause.split(' ').filter(|word| !SMALL.contains(word)).map(str::to_lowercase).collect()
}

/// Why a goal with added words gave neither a plan that holds all of them nor an error that names one.
fn lost(before: &Plan, after: &Result<Plan, PlanError>, words: &[String]) -> Option<String> {
    let holds = |text: &str, word: &String| text.to_lowercase().contains(word.as_str());
    match after {
        Ok(plan) if plan == before => Some("the same plan".to_owned()),
        Ok(plan) => {
            let inputs: String = plan.steps.iter().map(|step| step.input.to_string()).collect();
            let lost = words.iter().find(|word| !holds(&inputs, word));
            lost.map(|word| format!("{word} is not in {inputs}"))
        }
        Err(error) => {
            let text = serde_json::to_string(error).unwrap();
            (!words.iter().any(|word| holds(&text, word))).then(|| format!("{text} names none of {words:?}"))
        }
    }
}

#[tokio::test]
async fn a_clause_that_is_put_into_a_goal_is_carried_or_named() {
    let tools = tools().await;
    let mut wrong = Vec::new();
    for (number, (goal, inputs)) in planned().into_iter().enumerate() {
        let Ok(before) = plan(&goal, &inputs, &tools) else { continue };
        for (place, gap) in gaps(&goal).into_iter().enumerate() {
            // Each goal gets other clauses at other positions; all of them everywhere take a minute.
            for clause in (0..2).map(|at| CLAUSES[(number + 3 * place + 7 * at) % CLAUSES.len()]) {
                let longer = with(&goal, gap, clause);
                let why = lost(&before, &plan(&longer, &inputs, &tools), &meant(clause));
                wrong.extend(why.map(|why| format!("{longer}\n  {why}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn a_word_that_nobody_knows_is_carried_or_named() {
    let tools = tools().await;
    let goals: Vec<(String, Value, Plan)> = planned()
        .into_iter()
        .filter_map(|(goal, inputs)| plan(&goal, &inputs, &tools).ok().map(|plan| (goal, inputs, plan)))
        .collect();
    let places: Vec<(usize, usize)> = goals
        .iter()
        .enumerate()
        .flat_map(|(at, (goal, ..))| gaps(goal).into_iter().map(move |gap| (at, gap)))
        .collect();
    let config = Config { cases: 2_000, failure_persistence: None, rng_seed: RngSeed::Fixed(14), ..Config::default() };
    let cases = (prop::sample::select(places), "[b-df-hj-np-tv-xz][aeiou][kzvx][a-z]{2,6}[kzvx]");
    TestRunner::new(config)
        .run(&cases, |((at, gap), word)| {
            let (goal, inputs, before) = &goals[at];
            let longer = with(goal, gap, &word);
            if let Some(why) = lost(before, &plan(&longer, inputs, &tools), &[word]) {
                prop_assert!(false, "{longer}: {why}");
            }
            Ok(())
        })
        .unwrap();
}

/// The blocks of the guide that begin with this fence.
fn blocks<'a>(guide: &'a str, fence: &str) -> Vec<&'a str> {
    guide.split(fence).skip(1).map(|rest| rest.split("\n```").next().unwrap().trim()).collect()
}

const GUIDE: &str = include_str!("../../../docs/guides/goals.md");

/// The goals that the guide claims to work verbatim.
pub(crate) fn forms() -> Vec<&'static str> {
    blocks(GUIDE, "\n```text\n").into_iter().flat_map(str::lines).collect()
}

/// The positions of the unquoted words of a goal.
pub(crate) fn words(goal: &str) -> Vec<(usize, &str)> {
    let gaps = gaps(goal);
    let ends = gaps.iter().skip(1);
    let spans = gaps.iter().zip(ends).map(|(from, to)| (*from, &goal[*from..*to]));
    spans.map(|(from, text)| (from + text.len() - text.trim_start().len(), text.trim())).collect()
}

#[tokio::test]
async fn every_form_in_the_guide_works() {
    let tools = tools().await;
    let (guide, forms) = (GUIDE, forms());
    assert!(forms.len() >= 20, "{}", forms.len());
    for goal in forms {
        if let Err(error) = plan(goal, &Value::Null, &tools) {
            panic!("{goal}: {error}");
        }
    }
    let (_, table) = guide.split_once("\n| goal | `text` |\n").unwrap();
    let rows: Vec<&str> = table.lines().skip(1).take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() >= 8, "{}", rows.len());
    for cells in rows.iter().map(|row| row.split('|').map(str::trim).collect::<Vec<_>>()) {
        let refused = plan(cells[1], &Value::Null, &tools).expect_err(cells[1]);
        assert_eq!(refused, PlanError::Unplaced { text: cells[2].trim_matches('`').to_owned() }, "{}", cells[1]);
    }
    let json: Vec<Value> =
        blocks(guide, "\n```json\n").iter().map(|block| serde_json::from_str(block).unwrap()).collect();
    let goal = json[0]["goal"].as_str().unwrap();
    let steps = plan(goal, &Value::Null, &tools).unwrap().steps;
    assert_eq!(serde_json::to_value(steps).unwrap(), json[1]["steps"], "{goal}");
    for request in json.iter().filter(|block| block["goal"].is_string()) {
        let goal = request["goal"].as_str().unwrap();
        plan(goal, &request["inputs"], &tools).unwrap_or_else(|error| panic!("{goal}: {error}"));
    }
    let rows = guide.lines().filter(|line| line.starts_with("| `") && !line.starts_with("| `reason`"));
    for cells in rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>()).filter(|cells| cells[3].len() > 2) {
        let (reason, goal) = (cells[1].trim_matches('`'), cells[3].trim_matches('*'));
        let refused = plan(goal, &Value::Null, &tools).expect_err(goal).body();
        assert_eq!(refused.details["reason"], reason, "{goal}");
    }
}

#[tokio::test]
async fn goals_as_people_type_them_have_the_right_plan_or_none() {
    let tools = tools().await;
    let typed: Vec<Value> = serde_json::from_str(include_str!("../data/goals_as_typed.json")).unwrap();
    assert_eq!(typed.len(), 60);
    let (mut right, mut wrong) = (BTreeSet::new(), Vec::new());
    for case in &typed {
        let goal = case["goal"].as_str().unwrap();
        let outcome = plan(goal, &Value::Null, &tools);
        let steps = |plan: &Plan| -> Vec<Value> {
            plan.steps.iter().map(|step| json!({"tool": step.tool, "input": step.input})).collect()
        };
        match (&outcome, case["steps"].as_array()) {
            (Ok(plan), Some(expected)) if steps(plan) == *expected => drop(right.insert(goal)),
            (Ok(plan), _) => wrong.push(format!("{goal}\n  {}", json!(steps(plan)))),
            (Err(_), None) => drop(right.insert(goal)),
            (Err(_), Some(_)) => {}
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(right.len() >= 57, "{} of {}", right.len(), typed.len());
}

#[tokio::test]
async fn several_values_of_one_label_and_ordinals_in_their_place_are_planned() {
    let tools = tools().await;
    let inputs = |goal: &str| -> Vec<Value> {
        let plan = plan(goal, &Value::Null, &tools).unwrap_or_else(|error| panic!("{goal}: {error}"));
        plan.steps.into_iter().map(|step| step.input).collect()
    };
    let mail = r#"Mail ann@acme.example, bcc x@acme.example and y@acme.example, subject "A", saying "c""#;
    let bcc = ["x@acme.example", "y@acme.example"];
    assert_eq!(inputs(mail), [json!({"to": "ann@acme.example", "bcc": bcc, "subject": "A", "body": "c"})]);
    let posts = inputs(r#"First post "x" to #a, second post "y" to #b, finally post "z" to #c"#);
    let post = |channel: &str, text: &str| json!({"channel_alias": channel, "text": text});
    assert_eq!(posts, [post("a", "x"), post("b", "y"), post("c", "z")]);
    assert_eq!(inputs("Find a b c in Notion"), [json!({"query": "a b c"})]);
}

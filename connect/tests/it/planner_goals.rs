//! Properties that hold for every goal.

use crate::fixtures::{object_schema, tool};
use chimera_connect::act::plan;
use chimera_core::act::PlanError;
use chimera_core::error::Code;
use chimera_core::flow::plan::Plan;
use chimera_core::limits::{GOAL_CHARS_MAX, PLAN_STEPS_MAX};
use chimera_core::tool::{EffectKind, Spec};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

/// A few tools, one of which uses words that no table knows.
fn tools() -> Vec<Arc<Spec>> {
    let text = json!({"type": "string"});
    vec![
        tool(
            "local.summarize",
            EffectKind::Pure,
            object_schema(json!({"text": text}), &["text"]),
            object_schema(json!({"summary": text}), &["summary"]),
        ),
        tool(
            "slack_post",
            EffectKind::Write,
            object_schema(json!({"channel_alias": text, "text": text}), &["channel_alias", "text"]),
            object_schema(json!({"ok": {"const": true}}), &["ok"]),
        ),
        tool(
            "page.fetch",
            EffectKind::Read,
            object_schema(json!({"url": text}), &["url"]),
            object_schema(json!({"body": text}), &["body"]),
        ),
        tool(
            "crm.deals.close",
            EffectKind::Write,
            object_schema(json!({"title": text}), &["title"]),
            object_schema(json!({}), &[]),
        ),
    ]
}

/// Ids that an input refers to.
fn references(input: &Value) -> Vec<String> {
    let text = input.to_string();
    let parts = text.split("${nodes.").skip(1);
    // `$${` is only text.
    let expressions = parts.zip(text.split("${nodes.")).filter(|(_, before)| !before.ends_with('$'));
    expressions.filter_map(|(part, _)| part.split_once('.').map(|(id, _)| id.to_owned())).collect()
}

fn holds(plan: &Plan, tools: &[Arc<Spec>]) {
    assert!(!plan.steps.is_empty() && plan.steps.len() <= PLAN_STEPS_MAX);
    for (at, step) in plan.steps.iter().enumerate() {
        assert_eq!(step.id, format!("s{}", at + 1));
        assert!(tools.iter().any(|spec| spec.name == step.tool), "{}", step.tool);
        for id in references(&step.input) {
            assert!(plan.steps[..at].iter().any(|earlier| earlier.id == id), "{id} in {:?}", step.input);
        }
    }
}

/// Goals of random words that the planner knows.
fn goals() -> impl Strategy<Value = String> {
    let words = [
        "summarize",
        "post",
        "fetch",
        "close",
        "it",
        "the",
        "a",
        "summary",
        "of",
        "to",
        "and",
        "then",
        ",",
        ".",
        ";",
        "\n",
        "#ops",
        "#a",
        "https://a.example/x",
        "\"some text\"",
        "'it's'",
        "deal",
        "called",
        "that",
        "before",
        "after",
        "posting",
        "fetching",
        "with",
        "text",
        ":",
        "in",
        "3",
        "sentences",
        "acme/web",
        "ann@a.example",
        "{\"a\": 1}",
        "“",
        "`x`",
        "${nodes.s1.outputs.body}",
        "\"${nodes.s9.outputs.x}\"",
        "channel",
        "é",
        "👋",
        "1.",
        "-",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 0..24).prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn any_text_gives_a_sound_plan_or_a_reason(goal in ".{0,200}", given in ".{0,20}") {
        let (tools, inputs) = (tools(), json!({"text": given}));
        match plan(&goal, &inputs, &tools) {
            Ok(plan) => holds(&plan, &tools),
            Err(error) => prop_assert_eq!(error.body().code, Code::ValidationFailed.as_str()),
        }
    }

    #[test]
    fn known_words_in_any_order_give_a_sound_plan_or_a_reason(goal in goals()) {
        let tools = tools();
        let first = plan(&goal, &Value::Null, &tools);
        prop_assert_eq!(&first, &plan(&goal, &Value::Null, &tools));
        if let Ok(plan) = first {
            holds(&plan, &tools);
        }
    }
}

#[test]
fn a_tool_is_found_by_the_words_of_its_own_name() {
    let plan = plan("Please close the deal \"Acme, 40 seats\"", &Value::Null, &tools()).unwrap();
    assert_eq!(
        (plan.steps[0].tool.as_str(), &plan.steps[0].input),
        ("crm.deals.close", &json!({"title": "Acme, 40 seats"}))
    );
}

/// Openings that are not requests.
const NO_REQUESTS: &[&str] = &[
    "Should I",
    "Should we",
    "Can I",
    "May I",
    "Must we",
    "Shall I",
    "Do I need to",
    "Did you",
    "Have you",
    "Has Ann",
    "Why did you",
    "I could",
    "I might",
    "I should",
    "We have to",
    "You would",
    "They",
    "Nobody may",
    "Later",
    "Tomorrow",
    "Don't",
    "Never",
];

#[test]
fn only_a_request_becomes_a_plan() {
    for lead in NO_REQUESTS {
        for verb in ["post", "posted", "posting", "posts"] {
            let goal = format!("{lead} {verb} \"x\" to #ops");
            let refused = plan(&goal, &Value::Null, &tools()).expect_err(&goal);
            let (PlanError::Unplaced { text } | PlanError::NoTool { wanted: text }) = refused else {
                panic!("{goal}: {refused}");
            };
            let first = lead.split(' ').next().unwrap_or_default();
            assert!(text.to_lowercase().contains(&first.to_lowercase()), "{goal}: {text}");
        }
    }
    for lead in
        ["", "Please", "Could you please", "I want you to", "I'd like you to", "We need to", "Hi! Now", "Go ahead and"]
    {
        let goal = format!("{lead} post \"x\" to #ops");
        assert_eq!(plan(&goal, &Value::Null, &tools()).map(|plan| plan.steps.len()), Ok(1), "{goal}");
    }
}

#[test]
fn an_input_that_no_step_takes_is_told() {
    let inputs = json!({"text": "One.", "cc": "ann@a.example", "url": "https://a.example"});
    let refused = plan("Summarize the text", &inputs, &tools()).expect_err("two inputs are for nothing");
    assert_eq!(refused, PlanError::UnusedInput { inputs: vec!["cc".to_owned(), "url".to_owned()] });
    let body = refused.body();
    assert_eq!((&body.details["reason"], &body.details["field"]), (&json!("unused_input"), &json!("inputs")));
    assert!(body.message.contains("inputs.cc, inputs.url"), "{}", body.message);
}

#[test]
fn what_only_looks_like_an_expression_stays_a_text() {
    let plan = plan("Post \"${nodes.s1.outputs.body}\" to #ops", &Value::Null, &tools()).unwrap();
    assert_eq!(plan.steps[0].input["text"], "$${nodes.s1.outputs.body}");
    let inputs = json!({"text": "${run.secret}"});
    let given = chimera_connect::act::plan("Summarize the text", &inputs, &tools()).unwrap();
    assert_eq!(given.steps[0].input["text"], "$${run.secret}");
}

#[test]
fn what_follows_a_colon_is_never_a_step() {
    let all = [
        tools(),
        vec![tool("note", EffectKind::Write, object_schema(json!({"tag": {"type": "string"}}), &[]), json!({}))],
    ];
    let refused = plan("Note: fetch https://a.example/x", &Value::Null, &all.concat());
    assert_eq!(refused, Err(PlanError::Unplaced { text: ": fetch https://a.example/x".to_owned() }));
    for goal in ["Do the following: fetch https://a.example/x", "In #ops: post \"x\""] {
        assert_eq!(plan(goal, &Value::Null, &all.concat()).map(|plan| plan.steps.len()), Ok(1), "{goal}");
    }
}

#[test]
fn goals_and_plans_have_a_limit() {
    let long = "a".repeat(GOAL_CHARS_MAX + 1);
    assert_eq!(plan(&long, &Value::Null, &tools()), Err(PlanError::TooLong));
    let posts = |count: usize| (0..count).map(|at| format!("post \"x\" to #c{at}")).collect::<Vec<_>>().join("; ");
    assert_eq!(plan(&posts(PLAN_STEPS_MAX), &Value::Null, &tools()).unwrap().steps.len(), PLAN_STEPS_MAX);
    assert_eq!(plan(&posts(PLAN_STEPS_MAX + 1), &Value::Null, &tools()), Err(PlanError::TooLong));
    assert_eq!(plan(" \n", &Value::Null, &tools()), Err(PlanError::Empty));
}

#[test]
fn an_input_that_the_schema_refuses_is_told_with_its_reason() {
    let short = json!({"type": "string", "maxLength": 3});
    let tools = [tool(
        "slack_post",
        EffectKind::Write,
        object_schema(json!({"channel_alias": short, "text": short}), &["channel_alias", "text"]),
        json!({}),
    )];
    let Err(PlanError::MissingInput { tool, input, hint }) = plan("Post \"long text\" to #ops", &Value::Null, &tools)
    else {
        panic!("it was planned");
    };
    assert_eq!((tool.as_str(), input.as_str()), ("slack_post", "text"));
    assert!(hint.contains("longer than 3"), "{hint}");
}

#[test]
fn long_goals_of_one_word_are_read_to_their_end() {
    for word in
        ["and ", "a: ", "to ", "summary ", "post it, ", "it ", "' ", "{ ", "\" ", "then ", "#a ", "saying that "]
    {
        let goal: String = std::iter::repeat_n(word, GOAL_CHARS_MAX / word.len()).collect();
        let _ = plan(&goal, &Value::Null, &tools());
    }
}

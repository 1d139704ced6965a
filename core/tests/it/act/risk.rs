//! Risk scores of the labelled plans, and properties of every score.

use super::given::{cases, note, plan, scored, tool};
use chimera_core::act::risk::score_call;
use chimera_core::flow::plan::Plan;
use chimera_core::flow::risk::{Factor, Score};
use chimera_core::limits::{RISK_DECODED_BYTES_MAX, RISK_LAYERS_MAX, RISK_REASONS_MAX};
use chimera_core::tool::Risk;
use proptest::prelude::*;
use serde_json::{Value, json};

/// The factors and pointers, without points.
fn labels(score: &Score) -> Vec<Value> {
    let mut labels: Vec<_> =
        score.reasons.iter().map(|reason| json!({"factor": reason.factor, "pointer": reason.pointer})).collect();
    labels.sort_by_key(Value::to_string);
    labels
}

/// CORE-042, CORE-043, CORE-044, CORE-045
#[test]
fn every_labelled_plan_has_exactly_its_factors_and_its_risk() {
    let cases = cases("risk.json");
    let near_misses = cases.iter().filter(|case| case["name"].as_str().unwrap().starts_with("near miss")).count();
    assert!(cases.len() >= 60 && near_misses >= 20, "{} with {near_misses}", cases.len());
    let mut wrong = Vec::new();
    for case in cases {
        let plan: Plan = serde_json::from_value(case["plan"].clone()).unwrap();
        let score = scored(&plan);
        let mut expected = case["expected"].as_array().unwrap().clone();
        expected.sort_by_key(Value::to_string);
        if labels(&score) != expected || json!(score.band()) != case["risk"] {
            wrong.push(format!("{}: {:?} {score:?}", case["name"], score.band()));
        }
        holds_for(&plan, &score).unwrap();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_score_is_written_with_its_reasons() {
    let score = scored(&plan([("email_send", json!({"body": {"to": "ana@example.com"}}))]));
    let written = json!({"score": 60, "reasons": [
        {"factor": "external_write", "pointer": "/steps/0/tool", "points": 15},
        {"factor": "high_risk_tool", "pointer": "/steps/0/tool", "points": 35},
        {"factor": "pii_email", "pointer": "/steps/0/input/body/to", "points": 10},
    ]});
    assert_eq!(serde_json::to_value(&score).unwrap(), written);
    assert_eq!(serde_json::from_value::<Score>(written).unwrap(), score);
    assert_eq!(score.band(), Risk::High);
}

#[test]
fn one_call_scores_like_a_plan_of_one_step() {
    let input = json!({"method": "POST", "body": ["x", {"q": "DROP TABLE users"}], "to": "ana@example.com"});
    let (call, whole) = (score_call(&tool("http.request").unwrap(), &input), scored(&plan([("http.request", input)])));
    assert_eq!(call.score, whole.score);
    let under = |pointer: &str| format!("/steps/0{pointer}");
    assert!(call.reasons.iter().zip(&whole.reasons).all(|(one, other)| under(&one.pointer) == other.pointer));
}

/// A call whose input refers to earlier steps must not score higher than the same call with the values in place, or
/// findings in those values would go unnoticed.
#[test]
fn a_reference_adds_nothing_to_one_call() {
    let input = json!({"text": "${nodes.s1.outputs.body} ${nodes.s2.outputs.body}"});
    assert_eq!(score_call(&tool("local.note").unwrap(), &input), Score::default());
}

#[test]
fn what_is_wrapped_too_often_counts_as_unreadable() {
    let wrapped = |times: usize| (0..times).fold("DROP TABLE users".to_owned(), |text, _| json!([text]).to_string());
    let factors = |text: String| labels(&scored(&note(json!({"text": text}))));
    let label = |factor: Factor| vec![json!({"factor": factor, "pointer": "/steps/0/input/text"})];
    let read = factors(wrapped(RISK_LAYERS_MAX));
    assert_eq!(read, label(Factor::DestructiveOperation));
    let unread = factors(wrapped(RISK_LAYERS_MAX + 1).replace("DROP", "D\\\\u0052OP"));
    assert!(unread.contains(&label(Factor::Unread)[0]), "{unread:?}");
}

#[test]
fn what_is_too_long_to_be_decoded_counts_as_unreadable() {
    let long = format!("[\"{}\"]", "word ".repeat(RISK_DECODED_BYTES_MAX / 5 + 1));
    let score = scored(&note(json!({"text": long})));
    assert!(score.reasons.iter().any(|reason| reason.factor == Factor::Unread), "{score:?}");
}

#[test]
fn what_is_too_deep_counts_as_unreadable() {
    let deep = (0..100).fold(json!("DROP TABLE users"), |inner, _| json!([inner]));
    let score = scored(&note(deep));
    assert_eq!(score.reasons.iter().map(|reason| reason.factor).collect::<Vec<_>>(), [Factor::Unread]);
}

#[test]
fn a_thousand_findings_give_few_reasons_and_hide_none_of_another_kind() {
    let mails: Vec<_> = (0..1_000).map(|at| format!("ana{at}@example.com")).collect();
    let score = scored(&note(json!({"a": mails, "b": "DROP TABLE users"})));
    assert!(score.reasons.len() < 10);
    assert!(score.reasons.iter().any(|reason| reason.factor == Factor::DestructiveOperation));
}

#[test]
fn a_name_that_could_be_somebody_is_left_out_of_the_pointer() {
    for name in ["ana@example.com", "+34600123456", "4111111111111111", "a/b", "ñandú", &"x".repeat(65), ""] {
        let score = scored(&note(json!({"people": {name: {"sql": "DROP TABLE users"}}})));
        let last = score.reasons.last().unwrap();
        assert!(score.reasons.iter().all(|reason| reason.pointer == "/steps/0/input/people"), "{score:?}");
        assert!(score.reasons.iter().any(|reason| reason.factor == Factor::DestructiveOperation), "{last:?}");
    }
}

/// Every string of a document, excluding member names.
fn strings<'v>(value: &'v Value, values: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => values.push(text),
        Value::Array(items) => items.iter().for_each(|item| strings(item, values)),
        Value::Object(members) => members.values().for_each(|member| strings(member, values)),
        _ => {}
    }
}

/// Properties of every score.
fn holds_for(plan: &Plan, score: &Score) -> Result<(), TestCaseError> {
    let document = serde_json::to_value(plan).unwrap();
    prop_assert_eq!(score.score, score.reasons.iter().map(|reason| reason.points).sum::<u32>());
    prop_assert!(score.reasons.len() <= RISK_REASONS_MAX);
    let mut values = Vec::new();
    plan.steps.iter().for_each(|step| strings(&step.input, &mut values));
    for reason in &score.reasons {
        prop_assert!(document.pointer(&reason.pointer).is_some(), "{} leads nowhere", reason.pointer);
        // A member name may also occur as a value, so only strings that cannot be names are checked.
        let personal = |text: &&&str| text.len() > 3 && text.chars().any(|c| " @%/".contains(c) || c.is_ascii_digit());
        for text in values.iter().filter(personal) {
            prop_assert!(!reason.pointer.contains(*text), "{} shows a value", reason.pointer);
        }
    }
    prop_assert_eq!(score, &scored(plan));
    Ok(())
}

/// Texts that match, almost match, or are arbitrary.
fn texts() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "ana@example.com",
        "+34 600 123 456",
        "4111 1111 1111 1111",
        "DE89370400440532013000",
        "123-45-6789",
        "DROP",
        "TABLE",
        "/*",
        "*/",
        "--",
        "delete",
        "DELETE FROM",
        "rm",
        "-rf",
        "%44",
        "\\u0044",
        "{\"a\":",
        "[",
        "]",
        "}",
        "REVMRVRF",
        "${nodes.s1.outputs.x}",
        "_",
        "-",
        "é",
        "\u{a0}",
        "truncate",
        "(555)",
        "234-5678",
        "@",
        "+",
        "1",
        "12345678Z",
        "0x",
        "=",
        "\n",
        "drop-",
        "user_delete",
        "GB82 WEST",
        "remove-item",
        "-recurse",
        "> /dev/sda",
    ]);
    prop_oneof![
        prop::collection::vec(pieces, 1..6).prop_map(|pieces| pieces.concat()),
        "\\PC{0,40}",
        "[0-9 .()+-]{1,30}",
        "[A-Za-z0-9+/=_-]{8,60}",
    ]
}

fn documents() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![texts().prop_map(Value::from), any::<u64>().prop_map(Value::from), Just(Value::Null)];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(texts(), inner.clone(), 0..4).prop_map(|members| json!(members)),
            inner.prop_map(|inner| Value::from(inner.to_string())),
        ]
    })
}

proptest! {
    /// CORE-042
    #[test]
    fn no_reason_shows_a_value_and_every_pointer_leads_somewhere(first in documents(), second in documents()) {
        let plan = plan([("local.note", first), ("http.request", second)]);
        holds_for(&plan, &scored(&plan))?;
    }

    /// CORE-044, CORE-045
    #[test]
    fn wrapping_a_text_never_hides_it(
        before in "[a-z ]{0,20}", blank in "[ \t\n]{1,3}", which in 0..5_usize, way in 0..5_usize
    ) {
        let (verb, factor) = [
            ("DROP{}TABLE users", Factor::DestructiveOperation),
            ("dElEtE{}from users", Factor::DestructiveOperation),
            ("rm{}-rf /", Factor::DestructiveOperation),
            (";{}ana@example.com", Factor::Email),
            (";{}GB82 WEST 1234 5698 7654 32", Factor::Iban),
        ][which];
        let text = format!("{before} {}", verb.replace("{}", &blank));
        let bytes = text.as_bytes();
        let wrapped = match way {
            0 => json!({"a": [text]}).to_string(),
            1 => bytes.iter().map(|byte| format!("%{byte:02x}")).collect(),
            2 => base64(bytes, b"+/"),
            3 => base64(bytes, b"-_"),
            _ => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        };
        let score = scored(&note(json!({"q": wrapped})));
        prop_assert!(score.reasons.iter().any(|reason| reason.factor == factor), "{} {:?}", wrapped, score);
    }
}

/// Base64 without padding, with these two last letters.
fn base64(bytes: &[u8], last: &[u8; 2]) -> String {
    let letters: Vec<u8> = (b'A'..=b'Z').chain(b'a'..=b'z').chain(b'0'..=b'9').chain(*last).collect();
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let bits = (0..3).fold(0_usize, |bits, at| (bits << 8) | usize::from(chunk.get(at).copied().unwrap_or(0)));
        (0..=chunk.len()).for_each(|at| out.push(char::from(letters[(bits >> (18 - 6 * at)) & 63])));
    }
    out
}

/// Each of these would take minutes with quadratic scanning.
#[test]
fn texts_made_to_be_slow_are_read_in_one_pass() {
    let slow = [
        "drop/*",
        "drop-- ",
        "x:y@",
        "remove-item ",
        "\"",
        "\" delete",
        "rm -i ",
        "+1 ",
        "1 ",
        "1.1-",
        "DE89 ",
        "nodes.",
        "${nodes.s1 ",
        "alter table ",
        "drop ",
        "[",
        "{\"a\":",
        "%25",
        "\\u0025",
        "REVM",
        "44",
        "a_",
        "-",
        "(555) ",
        "delete/**/",
        "truncate a ",
        "kubectl ",
        "\u{a0}",
        "@",
        "a@b.",
    ];
    for piece in slow {
        let text = piece.repeat(60_000 / piece.len());
        let score = scored(&plan([("local.note", json!({})), ("local.note", json!({"text": text, text.as_str(): 1}))]));
        assert!(score.reasons.len() <= RISK_REASONS_MAX, "{piece}");
    }
}

//! Every word and punctuation mark of a goal matters: adding, removing or swapping one gives an error or another
//! plan, unless a list here says that it is redundant in that position.

use crate::planner_words::{forms, gaps, planned, tools, words};
use chimera_connect::act::plan;
use chimera_core::flow::plan::Plan;
use chimera_core::tool::Spec;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Random words, numbers, quantities, negations, times and punctuation that no fixture goal contains.
const FOREIGN: &[&str] = &[
    "zorgle",
    "Quentin",
    "7",
    "3.5",
    "twelve",
    "all",
    "any",
    "some",
    "both",
    "every",
    "only",
    "half",
    "not",
    "never",
    "no",
    "without",
    "once",
    "twice",
    "again",
    "back",
    "tomorrow",
    "noon",
    "daily",
    "soon",
    "if",
    "or",
    "but",
    "and",
    "then",
    "and then",
    "and and",
    "then then",
    "once then",
    "back upload",
    "upload",
    "draft",
    "also also",
    "maybe",
    "almost",
    "too",
    "now",
    "Quickly",
    "quickly",
    "slowly",
    "immediately",
    "silently",
    "really",
    "urgently",
    "already",
    "together",
    "as well",
    "up",
    "down",
    "know",
    "it",
    "them",
    "this",
    "that",
    "to",
    "from",
    "of",
    "with",
    "by",
    "the the",
    "(",
    ")",
    "\"",
    "'",
    "“",
    ",",
    ";",
    ".",
    ":",
    "–",
    "—",
    "…",
    "!",
    "?",
    "&",
    "+",
    "-",
    "*",
    "/",
    "\"\"",
    "[",
    "}",
    "<",
    "%",
    "1.",
    "2)",
    "#",
    "@",
    "$",
];

/// Punctuation that is put right behind a word.
const GLUED: &[&str] = &[",", ";", ":", ".", "!", "…", ")", "'", "—", "'s", ",,", "?"];

/// Redundant text: the text, how the text before it ends, and how the text behind it begins. An empty list means
/// anywhere, `^` the beginning, `$` the end.
const MEANINGLESS: &[(&[&str], &[&str], &[&str])] = &[
    // A plan runs as soon as it may.
    (&["now"], &[], &[]),
    // List markers.
    (&["-", "*", "1."], &["^", "\n"], &[]),
    // A step that follows another anyway.
    (&["then", "and then", "and"], &[",", ";", ".", "\n", " and"], &[]),
    (&["then", "and then", "and"], &["\n1.", "\n2.", "\n3.", " 2.", " 3."], &[]),
    // One more item of the same list.
    (
        &["and"],
        &[],
        &[
            "titled", "labelled", "labels", "updated", "assigned", "named", "called", "saying", "signed", "cc", "bcc",
            "body", "subject", "the", "a", "since", "changed",
        ],
    ),
    (&["and"], &["file", "open", "closed", "all", "GitHub"], &[]),
    // All there are.
    (
        &["all"],
        &[],
        &[
            "issues",
            "files",
            "pages",
            "the open",
            "the closed",
            "the issues",
            "open",
            "closed",
            "Drive files",
            "databases",
            "Notion",
        ],
    ),
    // No more than the number.
    (&["only", "up"], &[], &["at most", "to", "one", "2", "3", "4", "10", "5", "latest", "two", "ten", "1 ", "20"]),
    (&["up"], &["Look", "files"], &[]),
    (&["to", "with"], &[","], &["at most"]),
    // Where it is read from.
    (
        &["from"],
        &[],
        &[
            "https://",
            "acme/",
            "Notion",
            "the Notion",
            "Google",
            "Drive",
            "my drive",
            "a summary",
            "the summary",
            "issues",
            "the issues",
            "open",
        ],
    ),
    // Whom it is sent to.
    (&["to"], &["Email", "Mail", "email", "mail", "let", "Let", "Tell", "tell", "Notify", "webhook", "Write"], &[]),
    // What a text is for.
    (&["of"], &["subject", "text", "body", "title"], &[]),
    (
        &["of", "with"],
        &[",", " and"],
        &[
            "open",
            "closed",
            "subject",
            "body",
            "the body",
            "the title",
            "the subject",
            "labels",
            "the text",
            "the data",
        ],
    ),
    (&["with"], &[], &["\"", "'", "“", "the subject", "the text", "that"]),
    (&["of"], &["file", "this", "Outlook"], &[]),
    (
        &["that", "this"],
        &[],
        &[
            "\"",
            "'",
            "“",
            "`",
            "{",
            "file",
            "names",
            "body",
            "what it",
            "markdown",
            "PDF",
            "to #",
            "at most",
            "summary",
            "the summary",
            "a summary",
            "on Slack",
        ],
    ),
    (&["with", "to"], &[","], &["cc", "bcc"]),
    (&["it"], &["assigned"], &["to"]),
    (&["to", "with"], &[" and"], &["#", "high", "low"]),
    (&["of"], &[","], &["at most"]),
    (&["of"], &["message", "repository", "repo"], &[]),
];

/// Words that may be dropped from a goal without changing its plan, because something else says the same: a
/// preposition before an address, an article, a noun that an address implies, the label of a required text, a
/// default, a reference to what flows anyway.
const DISPENSABLE: &[&str] = &[
    "a",
    "about",
    "afterwards",
    "all",
    "also",
    "an",
    "and",
    "as",
    "at",
    "below",
    "blog",
    "body",
    "by",
    "called",
    "changed",
    "contain",
    "does",
    "drive",
    "email",
    "fetch",
    "file",
    "files",
    "for",
    "from",
    "github",
    "google",
    "hi",
    "importance",
    "in",
    "into",
    "issue",
    "issues",
    "it",
    "its",
    "know",
    "last",
    "latest",
    "mail",
    "markdown",
    "me",
    "my",
    "newest",
    "notion",
    "of",
    "on",
    "open",
    "our",
    "page",
    "please",
    "post",
    "read",
    "request",
    "results",
    "saying",
    "says",
    "signed",
    "slack",
    "subject",
    "thanks",
    "that",
    "the",
    "them",
    "then",
    "this",
    "titled",
    "to",
    "up",
    "updated",
    "via",
    "webhook",
    "with",
    "you",
];

/// Words that may stand behind, or in front of, a redundant comma.
const AFTER_COMMA: &[&str] = &[
    "about",
    "and",
    "as",
    "assigned",
    "at",
    "bcc",
    "below",
    "by",
    "called",
    "cc",
    "changed",
    "fetching",
    "for",
    "from",
    "in",
    "into",
    "labelled",
    "mail",
    "named",
    "of",
    "on",
    "open",
    "post",
    "posting",
    "saying",
    "signed",
    "since",
    "subject",
    "summarize",
    "that",
    "then",
    "titled",
    "to",
    "turn",
    "under",
    "updated",
    "using",
    "via",
    "with",
    "please",
    "create",
    "you",
    "could",
];

/// Words that mean the same in either order.
const TURNED: &[&str] = &[
    "open issues",
    "closed issues",
    "all issues",
    "notion page",
    "notion pages",
    "notion databases",
    "notion for",
    "google drive",
    "below page",
    "files in",
    "issues in",
    "open and",
    "drive files",
    "drive for",
    "github issue",
    "to send",
    "the file",
    "ten newest",
    "scratch bucket",
    "reply to",
    "pages titled",
    "names to",
    "issues of",
    "in database",
    "in notion,",
    "high importance",
    "for pages",
    "for files",
    "files that",
    "file names",
    "databases titled",
    "databases called",
    "channel marketing",
    "bucket handbooks",
    "blog post",
    "two sentences",
    "markdown into",
];

/// A goal with its inputs and plan.
struct KnownGoal {
    goal: String,
    inputs: Value,
    plan: Plan,
}

fn known(tools: &[Arc<Spec>]) -> Vec<KnownGoal> {
    let forms = forms().into_iter().map(|goal| (goal.to_owned(), Value::Null));
    let mut seen = BTreeSet::new();
    let goals = planned().into_iter().chain(forms).filter(|(goal, _)| seen.insert(goal.clone()));
    goals
        .filter_map(|(goal, inputs)| plan(&goal, &inputs, tools).ok().map(|plan| KnownGoal { goal, inputs, plan }))
        .collect()
}

/// The contents of the steps, in lower case.
fn literals(plan: &Plan) -> String {
    plan.steps.iter().map(|step| step.input.to_string()).collect::<String>().to_lowercase()
}

/// Whether a plan contains a text verbatim.
fn carries(plan: &Plan, before: &Plan, text: &str) -> bool {
    let text = json!(text.to_lowercase()).to_string();
    let text = text.trim_matches('"');
    literals(plan).matches(text).count() > literals(before).matches(text).count()
}

/// Whether the list says that a text is redundant between these two.
fn is_meaningless(text: &str, before: &str, behind: &str) -> bool {
    let (before, behind) = (before.trim_end_matches(' '), behind.trim_start());
    let ends = |end: &&str| if *end == "^" { before.is_empty() } else { before.ends_with(*end) };
    MEANINGLESS.iter().any(|(texts, ending, beginning)| {
        texts.contains(&text)
            && (ending.is_empty() || ending.iter().any(ends))
            && (beginning.is_empty() || beginning.iter().any(|begin| behind.starts_with(begin)))
    })
}

#[tokio::test]
async fn what_is_put_into_a_goal_is_refused_or_carried() {
    let tools = tools().await;
    let (mut wrong, mut tried) = (BTreeSet::new(), 0);
    for (number, KnownGoal { goal, inputs, plan: before }) in known(&tools).into_iter().enumerate() {
        for (place, gap) in gaps(&goal).into_iter().enumerate() {
            // Each goal gets other texts at other positions; all of them everywhere take minutes.
            for text in (0..4).map(|at| FOREIGN[(number + 5 * place + 19 * at) % FOREIGN.len()]) {
                let longer = format!("{} {text} {}", &goal[..gap], goal[gap..].trim_start());
                let longer = longer.trim();
                tried += 1;
                let Ok(after) = plan(longer, &inputs, &tools) else { continue };
                let number = if text == "twelve" { "12" } else { text };
                let carried = after != before && (carries(&after, &before, text) || carries(&after, &before, number));
                let meaningless = after == before && is_meaningless(text, &goal[..gap], &goal[gap..]);
                if !carried && !meaningless {
                    let same = if after == before { "the same plan".to_owned() } else { literals(&after) };
                    wrong.insert(format!("{text}: {longer}\n    {same}"));
                }
            }
        }
    }
    assert!(tried > 5_000, "{tried}");
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.into_iter().collect::<Vec<_>>().join("\n"));
}

#[tokio::test]
async fn a_sign_behind_a_word_is_refused_or_carried() {
    let tools = tools().await;
    let (mut wrong, mut tried) = (BTreeSet::new(), 0);
    for KnownGoal { goal, inputs, plan: before } in known(&tools) {
        for (place, (at, word)) in words(&goal).into_iter().enumerate() {
            let end = at + word.len();
            // Four punctuation marks at each position; all of them take a minute.
            let signs = GLUED.iter().enumerate().filter(|(sign, _)| (sign + place + goal.len()).is_multiple_of(3));
            for (_, sign) in signs.filter(|_| word.ends_with(char::is_alphanumeric)) {
                let changed = format!("{}{sign}{}", &goal[..end], &goal[end..]);
                tried += 1;
                let Ok(after) = plan(&changed, &inputs, &tools) else { continue };
                let next = goal[end..].trim_start();
                let word = next.split([' ', ',', '\n']).next().unwrap_or_default().to_lowercase();
                let meaningless = after == before
                    && match *sign {
                        // The end of a step.
                        "." | "!" | ";" => {
                            next.is_empty()
                                || word == "and"
                                || goal[..end].ends_with("Please")
                                || goal[end..].starts_with('\n')
                                || next.starts_with(['2', '3'])
                        }
                        "," => {
                            AFTER_COMMA.contains(&word.as_str())
                                || goal[at..end].contains('@')
                                || next.starts_with(['@', '#'])
                                || word.contains('@')
                        }
                        ":" => !next.is_empty(),
                        "'s" => matches!(word.as_str(), "open" | "closed" | "issues" | "description"),
                        _ => false,
                    };
                // Behind a colon, everything is text to the end of the goal.
                let told = after != before && (*sign == ":" || carries(&after, &before, sign));
                if !meaningless && !told {
                    let same = if after == before { "the same plan".to_owned() } else { literals(&after) };
                    wrong.insert(format!("{sign}: {changed}\n    {same}"));
                }
            }
        }
    }
    assert!(tried > 1_000, "{tried}");
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.into_iter().collect::<Vec<_>>().join("\n"));
}

#[tokio::test]
async fn a_word_less_is_refused_or_another_plan() {
    let tools = tools().await;
    let (mut wrong, mut tried) = (BTreeSet::new(), 0);
    for KnownGoal { goal, inputs, plan: before } in known(&tools) {
        for (at, word) in words(&goal) {
            let changed = format!("{}{}", &goal[..at], goal[at + word.len()..].trim_start());
            tried += 1;
            let Ok(after) = plan(&changed, &inputs, &tools) else { continue };
            let bare = word.trim_matches(|sign: char| !sign.is_alphanumeric()).to_lowercase();
            if after == before && !DISPENSABLE.contains(&bare.as_str()) {
                wrong.insert(format!("{word}: {changed}"));
            }
        }
    }
    assert!(tried > 500, "{tried}");
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.into_iter().collect::<Vec<_>>().join("\n"));
}

#[tokio::test]
async fn two_words_in_the_other_order_are_refused_or_another_plan() {
    let tools = tools().await;
    let (mut wrong, mut tried) = (BTreeSet::new(), 0);
    for KnownGoal { goal, inputs, plan: before } in known(&tools) {
        let words = words(&goal);
        for pair in words.windows(2).filter(|pair| pair[0].1 != pair[1].1) {
            let [(first, a), (second, b)] = [pair[0], pair[1]];
            let between = &goal[first + a.len()..second];
            let changed = format!("{}{b}{between}{a}{}", &goal[..first], &goal[second + b.len()..]);
            tried += 1;
            let Ok(after) = plan(&changed, &inputs, &tools) else { continue };
            // A value is recognized by shape, on either side of its label.
            let is_word = |text: &str| text.trim_end_matches([',', '.', ';', '!']).chars().all(char::is_alphabetic);
            let pair = format!("{a} {b}").to_lowercase();
            if after == before && is_word(a) && is_word(b) && !TURNED.contains(&pair.as_str()) {
                wrong.insert(format!("{a} {b}: {changed}"));
            }
        }
    }
    assert!(tried > 500, "{tried}");
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.into_iter().collect::<Vec<_>>().join("\n"));
}

/// Goals written from the guide alone, without looking at the planner, with the intended meaning.
#[tokio::test]
async fn unseen_goals_have_the_right_plan_or_none() {
    let tools = tools().await;
    let goals: Vec<Value> = serde_json::from_str(include_str!("../data/goals_unseen.json")).unwrap();
    assert!(goals.len() >= 80, "{}", goals.len());
    let (mut wrong, mut refused) = (Vec::new(), Vec::new());
    for case in &goals {
        let goal = case["goal"].as_str().unwrap();
        let told = |plan: &Plan| -> Vec<Value> {
            plan.steps.iter().map(|step| json!({"tool": step.tool, "input": step.input})).collect()
        };
        match (plan(goal, &Value::Null, &tools), case["steps"].as_array()) {
            (Ok(plan), Some(expected)) if told(&plan) == *expected => {}
            (Ok(plan), _) => wrong.push(format!("{goal}\n  {}", json!(told(&plan)))),
            (Err(_), None) => {}
            (Err(error), Some(_)) => refused.push((case["form"] == true, format!("{goal}: {error}"))),
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    let forms = goals.iter().filter(|case| case["form"] == true).count();
    let lost = refused.iter().filter(|(form, _)| *form).count();
    assert!(lost * 10 <= forms * 4, "{lost} of {forms} forms are refused: {refused:#?}");
}

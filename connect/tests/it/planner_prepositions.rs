//! Prepositions matter: a different one in front of a value means something else, so the goal is rejected, unless
//! people use both for the same.

use crate::planner_words::{planned, tools, words};
use chimera_connect::act::plan;
use std::collections::BTreeSet;

/// Prepositions before values in the goals.
const LEADING: &[&str] =
    &["to", "in", "on", "for", "at", "into", "onto", "of", "about", "under", "below", "as", "inside", "within", "from"];

/// Prepositions that replace them.
const OTHERS: &[&str] =
    &["from", "by", "with", "through", "via", "without", "against", "except", "despite", "beside", "over", "between"];

/// Services, which are both tools and sources.
const SERVICES: &[&str] = &["Google", "Notion", "Drive", "Slack"];

/// Equivalent prepositions: the word, its replacements, and how the following text begins.
const SYNONYMS: &[(&str, &[&str], &[&str])] = &[
    // What is read comes from where it lies, and a service is asked through it.
    ("in", &["from", "with", "through", "via"], SERVICES),
    ("on", &["from", "with", "through", "via"], SERVICES),
    ("in", &["from"], &["acme/", "https://github.com/"]),
    ("of", &["from"], &["acme/", "https://", "the", "open", "a", "\""]),
    ("about", &["from"], &["the", "acme/"]),
    // What is made is made from something, or with it in it.
    ("of", &["with"], &["the summary", "a summary", "\""]),
    ("of", &["from"], &["it"]),
    ("on", &["with"], &["Letter paper"]),
    // A limit.
    ("in", &["with"], &["at most"]),
    ("to", &["with"], &["at most"]),
    // A text goes where the tool needs one.
    ("about", &["with"], &["\""]),
    ("as", &["with"], &["event"]),
];

#[tokio::test]
async fn another_preposition_is_refused_unless_it_means_the_same() {
    let tools = tools().await;
    let (mut wrong, mut tried) = (BTreeSet::new(), 0);
    for (goal, inputs) in planned() {
        let Ok(before) = plan(&goal, &inputs, &tools) else { continue };
        for (at, word) in words(&goal).into_iter().filter(|(_, word)| LEADING.contains(word)) {
            let rest = &goal[at + word.len()..];
            for other in OTHERS.iter().filter(|other| **other != word) {
                let changed = format!("{}{other}{rest}", &goal[..at]);
                tried += 1;
                let Ok(after) = plan(&changed, &inputs, &tools) else { continue };
                let same = SYNONYMS.iter().any(|(known, synonyms, behind)| {
                    *known == word
                        && synonyms.contains(other)
                        && behind.iter().any(|behind| rest.trim_start().starts_with(behind))
                });
                // An unquoted text contains the word verbatim.
                let carried = after.steps.iter().any(|step| step.input.to_string().contains(&format!(" {other} ")));
                if !(same && after == before || carried) {
                    wrong.insert(format!("{word} -> {other}: {changed}"));
                }
            }
        }
    }
    assert!(tried > 500, "{tried}");
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.into_iter().collect::<Vec<_>>().join("\n"));
}

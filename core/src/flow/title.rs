//! What a person calls a run: the goal's words, the tools of a list of steps, or the name of its workflow.
//!
//! A run of a goal or of steps has a plan of its own, whose name is a digest that says nothing to anybody.

use crate::limits::RUN_TITLE_CHARS_MAX;
use serde::Deserialize;

/// The members of a request that name what it is about.
#[derive(Deserialize)]
struct Requested {
    goal: Option<String>,
    steps: Option<Vec<RequestedStep>>,
}

#[derive(Deserialize)]
struct RequestedStep {
    tool: String,
}

/// The title of a run by the text of its request; `None` if the request names only a workflow.
#[must_use]
pub fn title_of_request(request: &str) -> Option<String> {
    let requested: Requested = serde_json::from_str(request).ok()?;
    match requested {
        Requested { goal: Some(goal), .. } => Some(first_words(&goal)),
        Requested { steps: Some(steps), .. } => Some(first_words(&tools(&steps))),
        _ => None,
    }
    .filter(|title| !title.is_empty())
}

/// Each tool once, in the order of its first step, with the number of its steps.
fn tools(steps: &[RequestedStep]) -> String {
    let mut counted: Vec<(&str, usize)> = Vec::new();
    for step in steps {
        match counted.iter_mut().find(|(tool, _)| *tool == step.tool) {
            Some((_, count)) => *count += 1,
            None => counted.push((&step.tool, 1)),
        }
    }
    let named = |(tool, count): (&str, usize)| if count > 1 { format!("{tool} ×{count}") } else { tool.to_owned() };
    counted.into_iter().map(named).collect::<Vec<_>>().join(" · ")
}

/// The text on one line, shortened.
fn first_words(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(RUN_TITLE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_run_is_called_by_its_goal_or_by_the_tools_of_its_steps() {
        let title = |request: serde_json::Value| title_of_request(&request.to_string());
        let step = |tool: &str| json!({"tool": tool, "input": {"goal": "not this"}});
        let steps = [step("local.summarize"), step("s3_upload"), step("s3_upload")];
        assert_eq!(title(json!({"steps": steps})).as_deref(), Some("local.summarize · s3_upload ×2"));
        assert_eq!(title(json!({"goal": " Summarize\n  it "})).as_deref(), Some("Summarize it"));
        let long = title(json!({"goal": "é".repeat(500)})).unwrap();
        assert_eq!(long.chars().count(), RUN_TITLE_CHARS_MAX + 1);
        for other in [json!({"workflow_id": "w"}), json!({"steps": []}), json!({"goal": ""}), json!([1])] {
            assert_eq!(title(other.clone()), None, "{other}");
        }
    }
}

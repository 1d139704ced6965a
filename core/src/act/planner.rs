//! Why a goal cannot be planned.
//!
//! Each error names what is missing, so that the caller can add it and retry.

use crate::error::{Code, ErrorBody};
use crate::limits::{ERROR_TEXT_CHARS_MAX, GOAL_CHARS_MAX, GOAL_QUOTE_CHARS_MAX, PLAN_STEPS_MAX};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PlanError {
    /// No tool matches.
    #[error("there is no tool to {wanted}")]
    NoTool {
        /// In the words of the goal.
        wanted: String,
    },
    /// A tool matches, but the goal lacks an input that it needs.
    #[error("{tool} needs {input}, which neither the goal nor the inputs give: {hint}")]
    MissingInput {
        tool: String,
        input: String,
        /// How to provide it.
        hint: String,
    },
    /// Several tools match equally well.
    #[error("the goal fits several tools equally well: {}", tools.join(", "))]
    Ambiguous { tools: Vec<String> },
    /// A part of the goal would be ignored.
    #[error(
        "{text:?} has no place in the plan: leave it out, put a text in quotes, or write a workflow (docs/guides/goals.md)"
    )]
    Unplaced { text: String },
    /// An input is not used by any step, or contradicts the goal.
    #[error(
        "no step of the plan takes {}: leave it out of the inputs, or say in the goal what it is for",
        inputs.iter().map(|name| format!("inputs.{name}")).collect::<Vec<_>>().join(", ")
    )]
    UnusedInput { inputs: Vec<String> },
    #[error("a goal may have at most {GOAL_CHARS_MAX} characters, and its plan at most {PLAN_STEPS_MAX} steps")]
    TooLong,
    #[error("the goal is empty")]
    Empty,
}

impl PlanError {
    /// The part of the goal that the error quotes.
    #[must_use]
    pub fn into_quote(self) -> Option<String> {
        match self {
            Self::NoTool { wanted: text } | Self::Unplaced { text } => Some(text),
            _ => None,
        }
    }

    #[must_use]
    pub fn body(&self) -> ErrorBody {
        let message = self.to_string().chars().take(ERROR_TEXT_CHARS_MAX).collect::<String>();
        let body = ErrorBody::new(Code::ValidationFailed, message).with("field", "goal");
        match self {
            Self::NoTool { wanted } => body.with("reason", "no_tool").with("wanted", wanted.as_str()),
            Self::MissingInput { tool, input, hint } => body
                .with("reason", "missing_input")
                .with("tool", tool.as_str())
                .with("input", input.as_str())
                .with("hint", hint.as_str()),
            Self::Ambiguous { tools } => body.with("reason", "ambiguous").with("tools", tools.clone()),
            Self::Unplaced { text } => body.with("reason", "unplaced").with("text", text.as_str()),
            Self::UnusedInput { inputs } => {
                body.with("field", "inputs").with("reason", "unused_input").with("inputs", inputs.clone())
            }
            Self::TooLong => {
                body.with("reason", "too_long").with("chars_max", GOAL_CHARS_MAX).with("steps_max", PLAN_STEPS_MAX)
            }
            Self::Empty => body.with("reason", "empty"),
        }
    }
}

/// Truncates a text that an error quotes.
#[must_use]
pub fn excerpt(text: &str) -> String {
    match text.char_indices().nth(GOAL_QUOTE_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

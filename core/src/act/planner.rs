//! Why a goal has no plan.
//!
//! Each reason names what is missing, so that whoever asked can add it and ask again.

use crate::error::{Code, ErrorBody};
use crate::limits::{ERROR_TEXT_CHARS_MAX, GOAL_CHARS_MAX, GOAL_QUOTE_CHARS_MAX, PLAN_STEPS_MAX};
use serde::Serialize;

/// Why a goal has no plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PlanError {
    /// Nothing here does that.
    #[error("there is no tool to {wanted}")]
    NoTool {
        /// What was asked for, in the goal's words.
        wanted: String,
    },
    /// A tool was found, but the goal doesn't say all that it needs.
    #[error("{tool} needs {input}, which neither the goal nor the inputs give: {hint}")]
    MissingInput {
        /// The tool.
        tool: String,
        /// The input's name.
        input: String,
        /// How to say it.
        hint: String,
    },
    /// Several tools fit equally well.
    #[error("the goal fits several tools equally well: {}", tools.join(", "))]
    Ambiguous {
        /// Their names.
        tools: Vec<String>,
    },
    /// A part of the goal would be left out of the plan.
    #[error(
        "{text:?} has no place in the plan: leave it out, put a text in quotes, or write a workflow (docs/guides/goals.md)"
    )]
    Unplaced {
        /// The part.
        text: String,
    },
    /// The caller gave something that no step takes, or that contradicts the goal.
    #[error(
        "no step of the plan takes {}: leave it out of the inputs, or say in the goal what it is for",
        inputs.iter().map(|name| format!("inputs.{name}")).collect::<Vec<_>>().join(", ")
    )]
    UnusedInput {
        /// The names of the inputs.
        inputs: Vec<String>,
    },
    /// The goal or its plan is too long.
    #[error("a goal has at most {GOAL_CHARS_MAX} characters and its plan {PLAN_STEPS_MAX} steps")]
    TooLong,
    /// The goal asks for nothing.
    #[error("the goal is empty")]
    Empty,
}

impl PlanError {
    /// The words of the goal that it names.
    #[must_use]
    pub fn into_text(self) -> Option<String> {
        match self {
            Self::NoTool { wanted: text } | Self::Unplaced { text } => Some(text),
            _ => None,
        }
    }

    /// The error as every surface tells it.
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

/// The beginning of a text that an error repeats.
#[must_use]
pub fn excerpt(text: &str) -> String {
    match text.char_indices().nth(GOAL_QUOTE_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

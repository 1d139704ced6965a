//! What is wrong with a workflow or a patch: a word that stays, a place, a reason.

use crate::limits::PROBLEMS_MAX;
use serde::Serialize;

/// The kind of a fault; scripts may rely on its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemCode {
    /// The text is no acceptable JSON document.
    NotJson,
    /// More bytes, nodes, edges or expressions than allowed.
    TooLarge,
    /// A member that must be there is not.
    MissingMember,
    /// A member that the format doesn't have.
    UnknownMember,
    /// A value of the wrong kind or out of its range.
    InvalidValue,
    /// A name that can't be a node's, or is reserved.
    InvalidId,
    /// Two nodes with one name.
    DuplicateId,
    /// An edge that names a node that is not there.
    UnknownNode,
    /// Two edges between the same nodes.
    DuplicateEdge,
    /// An edge from a node to itself.
    SelfEdge,
    /// Nodes that wait for each other.
    Cycle,
    /// A node that no path leads to.
    Unreachable,
    /// A tool that the registry doesn't have.
    UnknownTool,
    /// A child workflow that is not there.
    UnknownWorkflow,
    /// An expression that names something it can't see.
    UnknownReference,
    /// An input that the tool or workflow demands is not given.
    MissingInput,
    /// An input that the tool or workflow doesn't take.
    UnknownInput,
    /// A constant input that the schema refuses.
    InvalidInput,
    /// A value whose known type can't be right.
    TypeMismatch,
    /// Text between `${` and `}` that is not an acceptable expression.
    InvalidExpression,
    /// A schema that can't be used.
    InvalidSchema,
    /// A cache on a tool that changes something outside.
    NotCacheable,
    /// A node of a kind that can't run yet.
    UnsupportedNode,
    /// An edge that a patch may not add.
    ForbiddenEdge,
    /// `CURRENT_NODE` where not exactly one node is current.
    AmbiguousCurrent,
    /// An added node that has begun, so it can't be taken out again.
    NotPending,
}

impl ProblemCode {
    /// Every kind.
    pub const ALL: &[Self] = &[
        Self::NotJson,
        Self::TooLarge,
        Self::MissingMember,
        Self::UnknownMember,
        Self::InvalidValue,
        Self::InvalidId,
        Self::DuplicateId,
        Self::UnknownNode,
        Self::DuplicateEdge,
        Self::SelfEdge,
        Self::Cycle,
        Self::Unreachable,
        Self::UnknownTool,
        Self::UnknownWorkflow,
        Self::UnknownReference,
        Self::MissingInput,
        Self::UnknownInput,
        Self::InvalidInput,
        Self::TypeMismatch,
        Self::InvalidExpression,
        Self::InvalidSchema,
        Self::NotCacheable,
        Self::UnsupportedNode,
        Self::ForbiddenEdge,
        Self::AmbiguousCurrent,
        Self::NotPending,
    ];

    /// The word on the wire.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::NotJson => "not_json",
            Self::TooLarge => "too_large",
            Self::MissingMember => "missing_member",
            Self::UnknownMember => "unknown_member",
            Self::InvalidValue => "invalid_value",
            Self::InvalidId => "invalid_id",
            Self::DuplicateId => "duplicate_id",
            Self::UnknownNode => "unknown_node",
            Self::DuplicateEdge => "duplicate_edge",
            Self::SelfEdge => "self_edge",
            Self::Cycle => "cycle",
            Self::Unreachable => "unreachable",
            Self::UnknownTool => "unknown_tool",
            Self::UnknownWorkflow => "unknown_workflow",
            Self::UnknownReference => "unknown_reference",
            Self::MissingInput => "missing_input",
            Self::UnknownInput => "unknown_input",
            Self::InvalidInput => "invalid_input",
            Self::TypeMismatch => "type_mismatch",
            Self::InvalidExpression => "invalid_expression",
            Self::InvalidSchema => "invalid_schema",
            Self::NotCacheable => "not_cacheable",
            Self::UnsupportedNode => "unsupported_node",
            Self::ForbiddenEdge => "forbidden_edge",
            Self::AmbiguousCurrent => "ambiguous_current",
            Self::NotPending => "not_pending",
        }
    }
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct Problem {
    /// Its kind.
    pub code: ProblemCode,
    /// JSON pointer into the document that was checked.
    pub path: String,
    /// What is wrong, in a sentence.
    pub reason: String,
}

impl Problem {
    /// A fault at a place.
    pub fn new(code: ProblemCode, path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { code, path: path.into(), reason: reason.into() }
    }
}

/// Faults as they are gathered; past the limit they are counted, not kept.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    kept: Vec<Problem>,
}

impl Problems {
    pub(crate) fn add(&mut self, code: ProblemCode, path: impl Into<String>, reason: impl Into<String>) {
        self.push(Problem::new(code, path, reason));
    }

    pub(crate) fn push(&mut self, problem: Problem) {
        if self.kept.len() < PROBLEMS_MAX {
            self.kept.push(problem);
        }
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.kept.len() >= PROBLEMS_MAX
    }

    /// How many there are, to see later whether any were added.
    pub(crate) const fn count(&self) -> usize {
        self.kept.len()
    }

    /// The value if nothing was wrong.
    pub(crate) fn or<T>(self, value: T) -> Result<T, Vec<Problem>> {
        if self.kept.is_empty() { Ok(value) } else { Err(self.kept) }
    }

    pub(crate) fn into_vec(self) -> Vec<Problem> {
        self.kept
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}

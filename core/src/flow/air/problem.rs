//! A problem in a workflow or a patch: a stable code, a JSON pointer, a reason and, if the text is known, its position.

use crate::json::Position;
use crate::limits::PROBLEMS_MAX;
use serde::Serialize;

/// The kind of a problem. Its wire name is stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemCode {
    /// The text is not valid JSON.
    NotJson,
    /// More bytes, nodes, edges or expressions than allowed.
    TooLarge,
    /// A required member is missing.
    MissingMember,
    /// A member that the format does not define.
    UnknownMember,
    /// A value of the wrong type or out of range.
    InvalidValue,
    /// An invalid or reserved id.
    InvalidId,
    /// Two nodes with the same id.
    DuplicateId,
    /// An edge names a node that does not exist.
    UnknownNode,
    /// Two edges between the same nodes.
    DuplicateEdge,
    /// An edge from a node to itself.
    SelfEdge,
    /// The edges form a cycle.
    Cycle,
    /// A node that no path leads to.
    Unreachable,
    /// A tool that does not exist or is not configured.
    UnknownTool,
    /// A child workflow that does not exist.
    UnknownWorkflow,
    /// An expression names something that does not exist or is not upstream.
    UnknownReference,
    /// A required input of the tool or workflow is missing.
    MissingInput,
    /// An input that the tool or workflow does not accept.
    UnknownInput,
    /// A constant input that does not match the schema.
    InvalidInput,
    /// A value whose type cannot fit.
    TypeMismatch,
    /// Text between `${` and `}` that is not a valid expression.
    InvalidExpression,
    /// An invalid or unsupported JSON Schema.
    InvalidSchema,
    /// A cache on a tool that changes external state.
    NotCacheable,
    /// A node of a type that is not supported yet.
    UnsupportedNode,
    /// An edge that a patch may not add.
    ForbiddenEdge,
    /// `CURRENT_NODE` where not exactly one node is current.
    AmbiguousCurrent,
    /// An added node that has started, so the patch can't be removed.
    NotPending,
}

impl ProblemCode {
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

    /// The wire name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
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

    /// What to do about every problem of this kind.
    const fn hint(self) -> Option<&'static str> {
        Some(match self {
            Self::Cycle => "remove one of the edges of the cycle",
            Self::UnknownTool => "GET /tools lists the tools of this server",
            Self::UnknownWorkflow => "apply that workflow first; `chimera workflow list` shows what there is",
            Self::InvalidExpression => "`$${` writes a literal `${`",
            Self::NotCacheable => "remove the cache",
            _ => return None,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct DocumentProblem {
    pub code: ProblemCode,
    /// A JSON pointer into the checked document.
    pub path: String,
    pub reason: String,
    /// What to do about it, if that is known.
    pub hint: Option<String>,
    /// Where the value is in the text. `None` if only the document is known, not its text.
    pub position: Option<Position>,
}

impl DocumentProblem {
    pub fn new(code: ProblemCode, path: impl Into<String>, reason: impl Into<String>) -> Self {
        let hint = code.hint().map(str::to_owned);
        Self { code, path: path.into(), reason: reason.into(), hint, position: None }
    }

    /// Replaces the hint of the code.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// Collects problems, up to a limit.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    kept: Vec<DocumentProblem>,
    /// Pointers to values that could not be read.
    unreadable: Vec<String>,
}

impl Problems {
    pub(crate) fn add(&mut self, code: ProblemCode, path: impl Into<String>, reason: impl Into<String>) {
        self.push(DocumentProblem::new(code, path, reason));
    }

    /// Adds a problem unless it is known, or follows from one that is.
    pub(crate) fn push(&mut self, problem: DocumentProblem) {
        if self.is_full() || self.is_unreadable(&problem.path) {
            return;
        }
        let is_same = |kept: &DocumentProblem| {
            (kept.code, kept.path.as_str(), kept.reason.as_str()) == (problem.code, &problem.path, &problem.reason)
        };
        if !self.kept.iter().any(is_same) {
            self.kept.push(problem);
        }
    }

    /// Problems from the number `since` on are about values that could not be read: later problems of these, and of
    /// what is inside, only follow from them.
    pub(crate) fn mark_unreadable(&mut self, since: usize) {
        let paths = self.kept.iter().skip(since).map(|problem| problem.path.clone());
        self.unreadable.extend(paths);
    }

    fn is_unreadable(&self, path: &str) -> bool {
        let contains = |outer: &String| {
            path.strip_prefix(outer.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        // A problem of the whole document, such as a missing member, says nothing about its parts.
        self.unreadable.iter().any(|outer| !outer.is_empty() && contains(outer))
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.kept.len() >= PROBLEMS_MAX
    }

    /// The number of problems, to see later whether any were added.
    pub(crate) const fn count(&self) -> usize {
        self.kept.len()
    }

    /// The value, or the problems if there are any.
    pub(crate) fn into_result<T>(self, value: T) -> Result<T, Vec<DocumentProblem>> {
        if self.kept.is_empty() { Ok(value) } else { Err(self.kept) }
    }

    pub(crate) fn into_vec(self) -> Vec<DocumentProblem> {
        self.kept
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}

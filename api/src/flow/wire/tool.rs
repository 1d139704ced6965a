//! Tools.

use crate::wire::{JsonObject, wire, words};
use chimera_core::tool;
use chimera_engine::flow::{self, port, view};
use serde::Serialize;
use utoipa::ToSchema;

words! {
    /// Kind of effect: none outside, reads from another system, or changes one.
    pub(crate) EffectKind from tool::EffectKind {
        Pure = "pure",
        Read = "read",
        Write = "write",
    }

    /// Where a tool comes from: it is part of the program, declared for everybody it is shared with, or declared for this
    /// tenant alone.
    pub(crate) ToolOrigin from flow::ToolOrigin {
        BuiltIn = "built_in",
        Declared = "declared",
        Tenant = "tenant",
    }

    /// Declared risk of a tool.
    pub(crate) RiskLevel from tool::Risk {
        Low = "low",
        Medium = "medium",
        High = "high",
    }
}

wire! {
    /// A tool.
    pub(crate) ToolDocument from view::ToolView {
        /// Name, as used in `fn` of a workflow node.
        name: String,
        /// Changes whenever the same input may have a different effect.
        version: String,
        /// Where it comes from.
        origin: ToolOrigin,
        /// What it does.
        description: String,
        /// Metadata that policies use.
        metadata: ToolMetadata,
        /// Kind of effect.
        effect: EffectKind,
        /// Input member, and its values, for which a call only reads.
        reads_when: Option<ReadsWhenDocument>,
        /// Whether the tool can check if an earlier call took effect.
        checkable: bool,
        /// Whether the tool can undo a call.
        reversible: bool,
        /// Whether undo is idempotent, so that one interrupted by a crash is sent again.
        undo_repeatable: bool,
        /// Default timeout of a call.
        timeout_ms: u64,
        /// JSON Schema of the input.
        input_schema: JsonObject,
        /// JSON Schema of the output.
        output_schema: JsonObject,
    }

    /// Metadata of a tool that policies use.
    pub(crate) ToolMetadata from tool::Metadata {
        /// Every call needs approval by a person.
        requires_approval: bool,
        /// Supports a dry run.
        dry_run_supported: bool,
        /// May be called again with the same inputs.
        idempotent: bool,
        /// Scopes that an actor needs.
        capabilities: Vec<String>,
        /// Declared risk.
        risk_level: RiskLevel,
    }
}

/// Inputs for which a tool that writes only reads.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReadsWhenDocument {
    /// Input member that decides.
    member: String,
    /// Values for which the call only reads; the first one is the default.
    values: Vec<String>,
    /// Values for which the call deletes.
    deletes: Vec<String>,
}

impl crate::wire::IntoWire<ReadsWhenDocument> for tool::ReadOnlyInputs {
    fn into_wire(self) -> ReadsWhenDocument {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        ReadsWhenDocument { member: self.member.to_owned(), values: words(self.values), deletes: words(self.deletes) }
    }
}

wire! {
    /// A file that declares tools and can't be used as it is.
    pub(crate) ToolFileProblem from port::DeclarationProblem {
        /// Name of the file, relative to the folder of tool files.
        file: String,
        /// What is wrong with it.
        reason: String,
        /// Whether the tools that it declared before are still in use.
        is_in_use: bool,
    }
}

/// What a reload found.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolReload {
    /// Whether new runs use other tools than before.
    pub(crate) changed: bool,
    /// Number of declared tools, those of all tenants together.
    pub(crate) declared: usize,
    /// Files that can't be used as they are.
    pub(crate) problems: Vec<ToolFileProblem>,
}

/// All tools.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolPage {
    /// Ordered by name.
    items: Vec<ToolDocument>,
    /// Always null: the list is complete.
    #[schema(required)]
    next_cursor: Option<String>,
}

impl From<Vec<view::ToolView>> for ToolPage {
    fn from(tools: Vec<view::ToolView>) -> Self {
        Self { items: tools.into_iter().map(ToolDocument::from).collect(), next_cursor: None }
    }
}

/// Tool files that can't be used as they are.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolProblemPage {
    /// Ordered by file.
    items: Vec<ToolFileProblem>,
    /// Always null: the list is complete.
    #[schema(required)]
    next_cursor: Option<String>,
}

impl From<Vec<port::DeclarationProblem>> for ToolProblemPage {
    fn from(problems: Vec<port::DeclarationProblem>) -> Self {
        Self { items: problems.into_iter().map(ToolFileProblem::from).collect(), next_cursor: None }
    }
}

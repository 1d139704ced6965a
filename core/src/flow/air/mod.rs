//! AIR, the document format of workflows, and the graph it compiles to.
//!
//! [`Source`] reads a text strictly, checks it against a [`Catalog`] and produces the immutable [`Graph`]
//! that all runs of a version share, or all problems of the text with their positions. [`parse`] and
//! [`compile`] are its two halves, for documents that were accepted before or have no text.

mod catalog;
mod check;
mod compile;
mod document;
mod graph;
mod judge;
mod logging;
mod order;
mod parse;
mod problem;
mod reach;
mod read;
mod references;
mod source;
mod wait;
mod write;

pub use catalog::{Catalog, WorkflowInfo};
pub use compile::compile;
pub(crate) use compile::compile_onto;
pub use document::{
    Approval, Body, Cache, ChildWorkflow, Document, Edge, EventWait, Function, Hitl, Join, MapBody, MapItem, Node,
    NodeKind, Retry, TimeoutPolicy, Wait,
};
pub use graph::{CompiledEdge, CompiledNode, Graph};
pub use judge::{CompiledJudge, Judge, JudgeCheck, OnExhausted, OnFail, SharedJudge};
pub(crate) use judge::{FailedCheck, JudgeScope};
pub use logging::{AgentType, ExecutionLogging};
pub use parse::{CURRENT_NODE, is_node_id};
pub(crate) use parse::{read_edges, read_nodes};
pub(crate) use problem::Problems;
pub use problem::{DocumentProblem, ProblemCode};
pub(crate) use read::Members;
pub use source::{Source, parse};

/// The JSON Schema of an AIR document, for editors and other programs.
pub const SCHEMA: &str = include_str!("air.schema.json");

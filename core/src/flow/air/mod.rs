//! AIR, the document format of workflows, and the graph it compiles to.
//!
//! [`parse`] reads a text strictly and knows nothing of tools. [`compile`] checks the document
//! against a [`Catalog`] and produces the immutable [`Graph`] that all runs of a version share. Both
//! collect all problems instead of stopping at the first.

mod catalog;
mod check;
mod compile;
mod document;
mod graph;
mod order;
mod parse;
mod problem;
mod reach;
mod read;
mod write;

pub use catalog::{Catalog, WorkflowInfo};
pub use compile::compile;
pub(crate) use compile::compile_onto;
pub use document::{
    Approval, Body, Cache, ChildWorkflow, Document, Edge, Function, Hitl, Join, MapBody, MapItem, Node, NodeKind, Retry,
};
pub use graph::{CompiledEdge, CompiledNode, Graph};
pub use parse::{CURRENT_NODE, is_node_id, parse};
pub(crate) use parse::{read_edges, read_nodes};
pub(crate) use problem::Problems;
pub use problem::{DocumentProblem, ProblemCode};
pub(crate) use read::Members;

/// The JSON Schema of an AIR document, for editors and other programs.
pub const SCHEMA: &str = include_str!("air.schema.json");

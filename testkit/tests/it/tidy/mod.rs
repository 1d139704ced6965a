//! The coding rules as tests, one file per rule or small group of rules.
//!
//! Every rule is a pure function from text to findings, with a unit test that shows it failing and one test
//! that runs it over the tree. Exceptions are named lists that may only shrink: an unused exception is itself a
//! finding.

mod actor_kinds;
mod columns;
mod digests;
mod docs;
mod entry_types;
mod errors;
mod finding;
mod folders;
mod functions;
mod identifiers;
mod layers;
mod leftovers;
mod limits;
mod machines;
mod manifests;
mod matrix;
mod names;
mod owned;
mod panics;
mod permits;
mod purity;
mod rooms;
mod rust_file;
mod scan;
mod secrets;
mod sizes;
mod sql;
mod supply_chain;
mod tree;

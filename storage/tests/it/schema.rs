//! The live schema of both stores: against the source documents, against the catalogue, and
//! against statements that it must refuse.

mod catalogue;
mod content_tables;
mod core_tables;
mod guards;
mod invariants;
mod lookups;
mod run_ownership;
mod runtime_tables;
mod seed_statements;
mod shape;
mod store;

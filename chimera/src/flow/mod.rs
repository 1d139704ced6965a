//! Workflows and runs as the command line knows them.

pub(crate) mod examples;
pub(crate) mod picture;
pub(crate) mod table;

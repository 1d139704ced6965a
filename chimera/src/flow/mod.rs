//! Workflows and runs as the command line knows them.

pub(crate) mod examples;

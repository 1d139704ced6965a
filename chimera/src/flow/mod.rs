//! How the command line shows workflows and runs.

pub(crate) mod examples;
pub(crate) mod render;
pub(crate) mod table;

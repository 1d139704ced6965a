//! How the command line shows workflows and runs.

pub(crate) mod examples;
pub(crate) mod picture;
pub(crate) mod table;

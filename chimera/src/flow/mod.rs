//! How the command line shows workflows and runs.

pub(crate) mod age;
pub(crate) mod examples;
pub(crate) mod render;
pub(crate) mod short_id;
pub(crate) mod table;
mod width;

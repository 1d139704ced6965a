//! `chimera work …`.

use super::flow::PageArgs;
use chimera_core::flow::work::WorkState;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};

/// `chimera work …`
#[derive(Debug, Subcommand)]
pub(crate) enum WorkCommand {
    /// List calls that workers hold, then those that wait for one.
    ///
    /// Example: chimera work list --queue thumbnails
    List(WorkListArgs),
}

#[derive(Debug, Args)]
pub(crate) struct WorkListArgs {
    /// Only calls in this state, oldest first.
    #[arg(long, value_parser = PossibleValuesParser::new(WorkState::ALL.iter().map(|state| state.as_str())))]
    pub(crate) state: Option<String>,
    /// Only calls of this queue.
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<String>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

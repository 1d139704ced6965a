//! `chimera tools …`.

use super::OutputArg;
use super::flow::ActorArg;
use clap::Subcommand;

/// `chimera tools …`
#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    /// List the tools that you may call, and the tool files that can't be used.
    List {
        #[command(flatten)]
        output: OutputArg,
        #[command(flatten)]
        acting: ActorArg,
    },
    /// Show a tool: what it does, its risk and the schemas of its input and output.
    ///
    /// Example: chimera tools show http.request
    Show {
        /// Name of the tool.
        name: String,
        #[command(flatten)]
        acting: ActorArg,
    },
    /// Read the files in flow.tools_dir again (operators only). A server also notices changes by itself.
    Reload {
        #[command(flatten)]
        acting: ActorArg,
    },
}

//! `chimera event …`.

use super::flow::{ActorArg, PageArgs};
use clap::Subcommand;

/// `chimera event …`
#[derive(Debug, Subcommand)]
pub(crate) enum EventCommand {
    /// Publish an event to every run that waits for it, now or before it expires.
    ///
    /// Example: chimera event send payment.received order-17 --payload '{"amount": 1200}'
    Send {
        /// Name of the event, as in the wait node.
        name: String,
        /// Key of the event, as in the wait node.
        key: String,
        /// Payload: JSON if possible, else text; `@FILE` reads a JSON file, `@-` stdin.
        #[arg(long, value_name = "JSON")]
        payload: Option<String>,
        /// Id of the event; an event that was published with this id is not published again.
        #[arg(long, value_name = "ID")]
        id: Option<String>,
        /// Seconds for which runs that begin to wait get it; by default 86400.
        #[arg(long, value_name = "SECONDS")]
        ttl: Option<u32>,
        #[command(flatten)]
        acting: ActorArg,
    },
    /// List events that are kept, newest first.
    List {
        /// Only events with this name.
        #[arg(long)]
        name: Option<String>,
        /// Only events with this key.
        #[arg(long)]
        key: Option<String>,
        #[command(flatten)]
        page: PageArgs,
        #[command(flatten)]
        acting: ActorArg,
    },
}

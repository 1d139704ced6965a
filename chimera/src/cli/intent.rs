//! `chimera intent …`.

use super::flow::ActorArg;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `chimera intent …`
#[derive(Debug, Subcommand)]
pub(crate) enum IntentCommand {
    /// Print a signed envelope. Nothing is sent.
    ///
    /// The file has an envelope, or only an intent: {"type","args"}. Members that are missing are filled in.
    #[command(
        after_help = "Example: echo '{\"type\":\"workflow.start\",\"args\":{\"workflow_id\":\"lead_flow\"}}' | chimera intent sign - --private-key ann.pem --as user_ann"
    )]
    Sign(EnvelopeArgs),
    /// Submit an intent. It is signed first if it has no signature.
    Send(EnvelopeArgs),
    /// Check an intent and list everything that is wrong with it. Nothing is done.
    ///
    /// Exits with status 3 if the intent would be refused.
    Lint {
        #[command(flatten)]
        envelope: EnvelopeArgs,
        /// Check only its shape and arguments, without a server.
        #[arg(long)]
        offline: bool,
    },
    /// List the intents that the server accepts.
    List {
        #[command(flatten)]
        acting: ActorArg,
    },
}

/// An envelope, or what one is made of.
#[derive(Debug, Args)]
pub(crate) struct EnvelopeArgs {
    /// File with the envelope or the intent; `-` reads stdin.
    pub(crate) file: PathBuf,
    /// Sign with this private key of `chimera key generate`. Its public key must be registered for the actor.
    #[arg(long, value_name = "FILE")]
    pub(crate) private_key: Option<PathBuf>,
    /// Slug of the actor's tenant.
    #[arg(long, value_name = "SLUG", default_value = "default")]
    pub(crate) tenant: String,
    /// Name only this role; repeatable. By default all roles of the actor count.
    #[arg(long = "role", value_name = "ROLE")]
    pub(crate) roles: Vec<String>,
    /// Name only this capability; repeatable. By default all capabilities of the actor count.
    #[arg(long = "capability", value_name = "CAPABILITY")]
    pub(crate) capabilities: Vec<String>,
    /// Seconds for which the envelope is valid.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub(crate) ttl: u32,
    /// Idempotency key; by default derived from the run and the arguments.
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// Trace id that the answer and the log repeat.
    #[arg(long, value_name = "ID")]
    pub(crate) trace_id: Option<String>,
    #[command(flatten)]
    pub(crate) acting: ActorArg,
}

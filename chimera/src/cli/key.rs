//! `chimera key …`.

use super::OutputArg;
use super::flow::ActorArg;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `chimera key …`
///
/// These commands connect to the server named by `--server` or running on the data folder. Without one, they
/// write to the store directly.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Create a key pair: write the private key to a new file and print the public key.
    ///
    /// The file is a PEM document (PKCS 8) that only you can read. Nothing is sent.
    #[command(after_help = "Example: chimera key generate ann.pem && chimera key add ann.pem")]
    Generate {
        /// File for the private key; it must not exist.
        file: PathBuf,
    },
    /// List the signing keys of an actor.
    List {
        /// Actor; by default the one that acts.
        #[arg(id = "name", value_name = "ACTOR")]
        actor: Option<String>,
        #[command(flatten)]
        output: OutputArg,
        #[command(flatten)]
        acting: ActorArg,
    },
    /// Register a public key of an actor.
    Add {
        #[command(flatten)]
        key: NewKeyArgs,
        /// Actor that the key belongs to; by default the one that acts.
        #[arg(long = "actor", value_name = "ACTOR")]
        holder: Option<String>,
        /// When the key becomes valid (RFC 3339); by default now.
        #[arg(long, value_name = "TIME")]
        not_before: Option<String>,
        #[command(flatten)]
        acting: ActorArg,
    },
    /// Register a public key that replaces another, which expires after an overlap.
    Rotate {
        #[command(flatten)]
        kid: KidArgs,
        #[command(flatten)]
        key: NewKeyArgs,
        /// How long the replaced key stays valid; by default one day.
        #[arg(long, value_name = "SECONDS")]
        overlap: Option<u32>,
        #[command(flatten)]
        acting: ActorArg,
    },
    /// Revoke a key, at once and for good.
    Revoke {
        #[command(flatten)]
        kid: KidArgs,
        /// Why, for the ledger.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        #[command(flatten)]
        acting: ActorArg,
    },
}

/// A key that exists.
#[derive(Debug, Args)]
pub(crate) struct KidArgs {
    /// Key id, or the first characters of one of the actor's keys.
    #[arg(value_name = "KID", allow_hyphen_values = true)]
    pub(crate) kid: String,
    /// Actor that the key belongs to; by default the one that acts. Not needed with a whole key id.
    #[arg(long = "actor", value_name = "ACTOR")]
    pub(crate) holder: Option<String>,
}

/// A key to register.
#[derive(Debug, Args)]
pub(crate) struct NewKeyArgs {
    /// File with the public key, as PEM or Base64; `-` reads stdin. Of a private key file, only the public half is sent.
    pub(crate) file: PathBuf,
    /// What the key is for.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// When the key expires (RFC 3339); by default never.
    #[arg(long, value_name = "TIME")]
    pub(crate) expires_at: Option<String>,
}

impl KeyCommand {
    /// Who acts; `None` for a command that asks nobody.
    pub(crate) const fn acting(&self) -> Option<&ActorArg> {
        match self {
            Self::Generate { .. } => None,
            Self::List { acting, .. }
            | Self::Add { acting, .. }
            | Self::Rotate { acting, .. }
            | Self::Revoke { acting, .. } => Some(acting),
        }
    }
}

//! `chimera backup`, `chimera restore` and `chimera resume`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What to copy, and where to.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Example: chimera backup --out backups/monday --key secret://backup")]
pub(crate) struct BackupArgs {
    #[command(subcommand)]
    pub(crate) command: Option<BackupCommand>,
    /// Folder to write; it must not exist.
    #[arg(long, value_name = "DIR", required = true)]
    pub(crate) out: Option<PathBuf>,
    /// Copy blobs and buckets whole, instead of listing them with their digests.
    #[arg(long)]
    pub(crate) with_blobs: bool,
    /// Secret under which the keys of the data folder are sealed; without it they are left out.
    #[arg(long, value_name = "SECRET")]
    pub(crate) key: Option<String>,
}

/// `chimera backup …`
#[derive(Debug, Subcommand)]
pub(crate) enum BackupCommand {
    /// Check a backup without a server: signature, digests, records.
    Verify {
        /// The backup.
        path: PathBuf,
        /// Trust only this public key (64 hex digits); may be given more than once.
        #[arg(long = "trust", value_name = "HEX")]
        trust: Vec<String>,
    },
}

/// What to put where.
#[derive(Debug, Args)]
#[command(after_help = "Example: chimera restore --from backups/monday --data .chimera --key secret://backup")]
pub(crate) struct RestoreArgs {
    /// The backup.
    #[arg(long, value_name = "DIR")]
    pub(crate) from: PathBuf,
    /// Put what is there aside and restore all the same.
    #[arg(long)]
    pub(crate) force: bool,
    /// Secret under which the keys were sealed; without it the keys that are there stay.
    #[arg(long, value_name = "SECRET")]
    pub(crate) key: Option<String>,
    /// Trust only this public key (64 hex digits); may be given more than once.
    #[arg(long = "trust", value_name = "HEX")]
    pub(crate) trust: Vec<String>,
}

/// How to go on.
#[derive(Debug, Args)]
#[command(after_help = "Example: chimera resume --after-restore")]
pub(crate) struct ResumeArgs {
    /// The store was restored, or is older than what was last known of it.
    #[arg(long)]
    pub(crate) after_restore: bool,
    /// The clock of this machine is right, and was ahead when the newest records were written.
    #[arg(long, conflicts_with = "after_restore")]
    pub(crate) accept_clock: bool,
    /// The key that sealed actors' keys is lost for good: what it sealed is revoked.
    #[arg(long, conflicts_with_all = ["after_restore", "accept_clock"])]
    pub(crate) accept_lost_keys: bool,
    /// Don't ask; needed where the input is not a terminal, an answer that is piped in is not read.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Let sign-ins count on. Tokens that were revoked after the backup count again.
    #[arg(long)]
    pub(crate) keep_sign_ins: bool,
}

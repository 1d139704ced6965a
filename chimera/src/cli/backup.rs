//! `chimera backup`, `chimera restore` and `chimera resume`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Example: chimera backup --out backups/monday --key secret://backup")]
pub(crate) struct BackupArgs {
    #[command(subcommand)]
    pub(crate) command: Option<BackupCommand>,
    /// Folder to create; must not exist yet.
    #[arg(long, value_name = "DIR", required = true)]
    pub(crate) out: Option<PathBuf>,
    /// Copy blobs and buckets, instead of only listing them with their digests.
    #[arg(long)]
    pub(crate) with_blobs: bool,
    /// Secret to encrypt the data folder's keys with; by default keys are left out.
    #[arg(long, value_name = "SECRET")]
    pub(crate) key: Option<String>,
}

/// `chimera backup …`
#[derive(Debug, Subcommand)]
pub(crate) enum BackupCommand {
    /// Verify a backup offline: signature, digests, records.
    Verify {
        /// Backup folder.
        path: PathBuf,
        /// Trust only this public key (64 hex digits); repeatable.
        #[arg(long = "trust", value_name = "HEX")]
        trust: Vec<String>,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Example: chimera restore --from backups/monday --data .chimera --key secret://backup")]
pub(crate) struct RestoreArgs {
    /// Backup folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) from: PathBuf,
    /// Move existing data aside and restore anyway.
    #[arg(long)]
    pub(crate) force: bool,
    /// Secret that the keys were encrypted with; by default the existing keys are kept.
    #[arg(long, value_name = "SECRET")]
    pub(crate) key: Option<String>,
    /// Trust only this public key (64 hex digits); repeatable.
    #[arg(long = "trust", value_name = "HEX")]
    pub(crate) trust: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: chimera resume --after-restore")]
pub(crate) struct ResumeArgs {
    /// Resume after a restore, or when the store is older than expected.
    #[arg(long)]
    pub(crate) after_restore: bool,
    /// Confirm that this machine's clock is right and was ahead when the newest records were written.
    #[arg(long, conflicts_with = "after_restore")]
    pub(crate) accept_clock: bool,
    /// Confirm that the key that encrypted the actors' keys is lost; revokes all keys it encrypted.
    #[arg(long, conflicts_with_all = ["after_restore", "accept_clock"])]
    pub(crate) accept_lost_keys: bool,
    /// Skip the confirmation. Required if stdin is not a terminal; a piped answer is not read.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Keep sessions valid. Tokens revoked after the backup become valid again.
    #[arg(long)]
    pub(crate) keep_sign_ins: bool,
}

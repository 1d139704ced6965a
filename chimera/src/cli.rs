//! The command line.
//!
//! Data goes to stdout, words to stderr. The reference in `docs/reference/cli.md` is made from
//! these types.

mod access;
mod backup;
mod flow;

pub(crate) use access::{
    ActArgs, ActorCommand, AddArgs, DuplicateWord, KindWord, RoleCommand, SignArgs, TenantCommand, TokenArgs,
};
pub(crate) use backup::{BackupArgs, BackupCommand, RestoreArgs, ResumeArgs};
pub(crate) use flow::{
    Acting, DecideArgs, DoubtsArgs, ListArgs, PageOf, PatchArgs, ReplayMode, ResolveArgs, RunsCommand, WorkflowCommand,
};

use crate::config::Flags;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Lets AI agents act, and keeps every act under control.
#[derive(Debug, Parser)]
#[command(name = "chimera", version, disable_help_subcommand = true, max_term_width = 100)]
#[command(
    after_help = "Exit status: 0 done, 1 failed, 2 wrong usage, 3 checked and found wrong, 4 wrong configuration, 5 data folder in use, 130 stopped by a second signal."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags that every command takes.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Folder of everything local.
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Server to speak to, instead of the one that uses the data folder.
    #[arg(long, global = true, value_name = "URL")]
    server: Option<String>,
    /// Configuration file.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// How log lines look.
    #[arg(long, global = true, value_name = "FORMAT")]
    log_format: Option<FormatWord>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatWord {
    /// Human on a terminal, JSON otherwise.
    Auto,
    /// One JSON object per line.
    Json,
    /// For reading.
    Human,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run everything in one process, for trying out.
    ///
    /// Creates the data folder, prints the address when ready, and stops on Ctrl-C. With --json
    /// one line is printed: {"url","token","actors":[…]}.
    Dev(DevArgs),
    /// Run as configured.
    Serve(Listen),
    /// Bring the schema of the record store up to date.
    Migrate {
        /// Change nothing; end with status 3 if something would be applied.
        #[arg(long)]
        check: bool,
    },
    /// Check everything that a server needs, with hints.
    Doctor {
        /// Look at all data too: every page, index and reference, the ledger, every blob. Takes as long as reading it.
        #[arg(long)]
        deep: bool,
    },
    /// Ask for something: a goal in words, a workflow, or steps.
    Act(Box<ActArgs>),
    /// Sign in, and print the access token; with --json all that the server gave.
    Token(TokenArgs),
    /// Print the signature of a body: HMAC-SHA256 over its raw bytes, in hex.
    Sign(SignArgs),
    /// Look after actors and their keys.
    Actor(ForTenant<ActorCommand>),
    /// Look at the roles that actors may have.
    #[command(subcommand)]
    Role(RoleCommand),
    /// Look after tenants, as an operator.
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Apply, list, show, check and share workflows.
    Workflow(ForTenant<WorkflowCommand>),
    /// Watch and steer runs.
    Runs(ForTenant<RunsCommand>),
    /// List what you were told and have no other channel for.
    Inbox(PageOf),
    /// Look at the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Read, export and verify the ledger.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Copy everything that a server needs, beside it while it runs.
    Backup(BackupArgs),
    /// Put a backup in place of what is there. The store is held until it is resumed.
    Restore(RestoreArgs),
    /// Go on with a store that is held after a restore.
    ///
    /// Lists what may have happened since the state in the store was written, and goes on when you
    /// agree: a step that may have been done is asked for or settled by a person, never sent blindly.
    Resume(ResumeArgs),
    /// Measure.
    #[command(subcommand)]
    Bench(BenchCommand),
}

/// Commands that an operator may give for another tenant.
#[derive(Debug, Args)]
pub(crate) struct ForTenant<C: Subcommand> {
    /// Act for another tenant, by its slug, as an operator. A server is asked, and that tenant's ledger says so.
    #[arg(long, global = true, value_name = "SLUG", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) for_tenant: Option<String>,
    #[command(subcommand)]
    pub(crate) command: C,
}

/// How to try it out.
#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    #[command(flatten)]
    listen: Listen,
    /// Begin without the example workflows.
    #[arg(long)]
    pub(crate) no_examples: bool,
}

/// Where to serve.
#[derive(Debug, Args)]
pub(crate) struct Listen {
    /// Address to serve at; port 0 takes a free one.
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
}

/// `chimera config …`
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the settings in force, with secrets masked.
    Print {
        /// Say where each value came from.
        #[arg(long)]
        origins: bool,
    },
}

/// `chimera audit …`
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// List entries of the ledger.
    List(AuditList),
    /// Verify an export, or the ledger itself.
    Verify {
        /// The export; without it the ledger of the configured store.
        path: Option<PathBuf>,
        /// Trust only this public key (64 hex digits); may be given more than once.
        #[arg(long = "key", value_name = "HEX")]
        keys: Vec<String>,
    },
    /// Write the ledger as an export that can be verified offline.
    Export {
        /// Only this tenant's entries, each with its proof; the tenant by its slug or its id.
        #[arg(long)]
        tenant: Option<String>,
        /// File to write; without it stdout.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

/// Which entries to list.
#[derive(Debug, Default, Args)]
pub(crate) struct AuditList {
    /// Only this tenant's, by its slug or its id.
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// Only about this subject.
    #[arg(long, value_name = "ID")]
    pub(crate) subject_id: Option<String>,
    /// Only of this type.
    #[arg(long, value_name = "TYPE")]
    pub(crate) event_type: Option<String>,
    /// Continue behind the page that gave this cursor.
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,
    /// Entries of the page.
    #[arg(long, value_name = "N", default_value_t = chimera_core::limits::PAGE_ROWS_DEFAULT, value_parser = at_least_one)]
    pub(crate) limit: usize,
}

/// `chimera bench …`
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure the record store: transactions per second with 1, 64 and 256 writers.
    Store {
        /// Transactions for each number of writers; a lone writer gets a tenth.
        #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = at_least_one)]
        transactions: usize,
    },
    /// Measure the flow engine: runs of three durable steps, each on disk before the next begins.
    Flow {
        /// Runs in all.
        #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = at_least_one)]
        runs: usize,
        /// Runs that are under way at a time.
        #[arg(long, value_name = "C", default_value_t = 64, value_parser = at_least_one)]
        concurrency: usize,
        /// The store; without it the configured one.
        #[arg(long)]
        store: Option<BenchStore>,
        /// Runs that have ended in the store before the measurement begins.
        #[arg(long, value_name = "N", default_value_t = 0)]
        finished: usize,
        /// Runs that wait for approval meanwhile; what each costs in memory is told.
        #[arg(long, value_name = "N", default_value_t = 0)]
        waiting: usize,
    },
    /// Measure the front door: signed requests that each run one step, beside the flow engine alone.
    Act {
        /// Requests in all, and as many runs of the engine alone.
        #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = at_least_one)]
        runs: usize,
        /// Requests that are under way at a time.
        #[arg(long, value_name = "C", default_value_t = 64, value_parser = at_least_one)]
        concurrency: usize,
        /// The store; without it the configured one.
        #[arg(long)]
        store: Option<BenchStore>,
    },
    /// Serve the workflow of the flow benchmark to one actor, for load from outside, until a signal.
    Door {
        /// Where; port 0 takes a free one.
        #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
        at: std::net::SocketAddr,
        /// The store; without it the configured one.
        #[arg(long)]
        store: Option<BenchStore>,
    },
}

/// A record store that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BenchStore {
    /// The embedded one.
    Sqlite,
    /// The one at `database_url`.
    Postgres,
}

fn at_least_one(text: &str) -> Result<usize, &'static str> {
    text.parse().ok().filter(|number| *number > 0).ok_or("it must be a whole number, at least 1")
}

impl Command {
    /// The tenant for which an operator acts, if it is not their own.
    pub(crate) fn for_tenant(&self) -> Option<&str> {
        match self {
            Self::Actor(ForTenant { for_tenant, .. })
            | Self::Workflow(ForTenant { for_tenant, .. })
            | Self::Runs(ForTenant { for_tenant, .. }) => for_tenant.as_deref(),
            _ => None,
        }
    }
}

impl Cli {
    /// What the command line says about settings.
    pub(crate) fn flags(&self) -> Flags {
        let listen = match &self.command {
            Command::Dev(DevArgs { listen, .. }) | Command::Serve(listen) => listen.listen.clone(),
            _ => None,
        };
        let format =
            self.global.log_format.and_then(|word| word.to_possible_value().map(|word| word.get_name().to_owned()));
        let data = self.global.data.as_ref().map(|path| path.to_string_lossy().into_owned());
        let server = self.global.server.clone();
        let given = [("data_dir", data), ("server", server), ("listen", listen), ("log.format", format)];
        Flags {
            config: self.global.config.clone(),
            values: given.into_iter().filter_map(|(key, value)| Some((key, value?))).collect(),
        }
    }
}

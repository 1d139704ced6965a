//! The command line.
//!
//! Data goes to stdout, messages to stderr. `docs/reference/cli.md` is generated from these types.

mod access;
mod backup;
mod event;
mod flow;
mod intent;
mod key;
mod schedule;
mod tools;
mod work;

pub(crate) use access::{
    ActArgs, ActorArgs, ActorCommand, ActorKindArg, DuplicatePolicyArg, RoleCommand, SignArgs, TenantCommand, TokenArgs,
};
pub(crate) use backup::{BackupArgs, BackupCommand, RestoreArgs, ResumeArgs};
pub(crate) use event::EventCommand;
pub(crate) use flow::{
    ActorArg, DecideArgs, DoubtsArgs, ExecutionsArgs, ListArgs, PageArgs, PatchArgs, ReplayArgs, ResolveArgs,
    RetryArgs, RollbackArgs, RunIds, RunsCommand, WorkflowCommand,
};
pub(crate) use intent::{EnvelopeArgs, IntentCommand};
pub(crate) use key::{KeyCommand, KidArgs, NewKeyArgs};
pub(crate) use schedule::{ScheduleArgs, ScheduleCommand, ScheduleName};
pub(crate) use tools::ToolsCommand;
pub(crate) use work::{WorkCommand, WorkListArgs};

use crate::config::Flags;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Run AI agents' actions under policy, approval and audit.
#[derive(Debug, Parser)]
#[command(name = "chimera", version, disable_help_subcommand = true, max_term_width = 100)]
#[command(
    after_help = "Exit status: 0 success, 1 failure, 2 usage error, 3 check failed, 4 invalid configuration, 5 data folder in use, 130 stopped by a second signal."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The heading of the flags that every command takes.
const GLOBAL: &str = "Global options";

/// Flags that every command takes.
#[derive(Debug, Args)]
pub(crate) struct GlobalArgs {
    /// Data folder.
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Server to connect to; by default the one that uses the data folder.
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "URL")]
    server: Option<String>,
    /// Configuration file.
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON output.
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) json: bool,
    /// When to use colours; by default on a terminal, unless NO_COLOR is set.
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "WHEN")]
    pub(crate) color: Option<ColorArg>,
    /// Log format.
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "FORMAT")]
    log_format: Option<LogFormatArg>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ColorArg {
    Auto,
    Always,
    Never,
}

/// How a list looks.
#[derive(Debug, Default, Args)]
pub(crate) struct OutputArg {
    /// `wide` shows every column, with whole ids and times.
    #[arg(short = 'o', long, value_name = "FORMAT")]
    pub(crate) output: Option<OutputFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OutputFormat {
    Wide,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormatArg {
    /// Human-readable on a terminal, JSON otherwise.
    Auto,
    /// One JSON object per line.
    Json,
    /// Human-readable text.
    Human,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a development server: everything in one process.
    ///
    /// Creates the data folder, prints the address when ready, and stops on Ctrl-C. With --json it prints one line:
    /// {"url","token","actors":[…]}.
    Dev(DevArgs),
    /// Run a server with the configured settings.
    Serve(ListenArgs),
    /// Apply pending schema migrations to the record store.
    Migrate {
        /// Only check; exit with status 3 if migrations are pending.
        #[arg(long)]
        check: bool,
    },
    /// Check everything a server needs and suggest fixes.
    Doctor {
        /// Also verify all data: every page, index and reference, the ledger, every blob. Reads all of it.
        #[arg(long)]
        deep: bool,
    },
    /// Request an action: a goal in plain words, a workflow, or a list of steps.
    Act(Box<ActArgs>),
    /// Sign in and print the access token; with --json, the whole response.
    Token(TokenArgs),
    /// Print the signature of a body: HMAC-SHA256 over its raw bytes, in hex.
    Sign(SignArgs),
    /// Manage actors and their keys.
    Actor(TenantScoped<ActorCommand>),
    /// Manage Ed25519 keys that actors sign with.
    Key(TenantScoped<KeyCommand>),
    /// List the roles that actors can have.
    #[command(subcommand)]
    Role(RoleCommand),
    /// Manage tenants (operators only).
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Apply, list, show, check and share workflows.
    Workflow(TenantScoped<WorkflowCommand>),
    /// List tools, and reload those that files declare.
    Tools(TenantScoped<ToolsCommand>),
    /// Start workflows by the clock: cron or an interval.
    Schedule(TenantScoped<ScheduleCommand>),
    /// Publish events that runs wait for.
    Event(TenantScoped<EventCommand>),
    /// Sign, check and submit intents.
    #[command(subcommand)]
    Intent(IntentCommand),
    /// Watch and control runs.
    ///
    /// The first digits of an id are enough, at least eight, as long as only one id begins so. An item of a map is
    /// `node[3]`.
    Runs(TenantScoped<RunsCommand>),
    /// See the calls that workers outside execute.
    Work(TenantScoped<WorkCommand>),
    /// List notifications that have no other channel.
    Inbox(PageArgs),
    /// Show the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Read, export and verify the ledger.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Back up everything a server needs, while it runs.
    Backup(BackupArgs),
    /// Restore a backup. The store stays held until it is resumed.
    Restore(RestoreArgs),
    /// Resume a store that is held, or accept its clock or the loss of its keys.
    ///
    /// Lists what may have happened after the stored state was written, and resumes once you confirm. A step that may
    /// already have run is checked with the tool or resolved by a person, never blindly repeated.
    Resume(ResumeArgs),
    /// Run benchmarks.
    #[command(subcommand)]
    Bench(BenchCommand),
}

/// Commands that an operator can run for another tenant.
#[derive(Debug, Args)]
pub(crate) struct TenantScoped<C: Subcommand> {
    /// Act for another tenant, by slug (operators only). Needs a server; the tenant's ledger records it.
    #[arg(long, global = true, value_name = "SLUG", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) for_tenant: Option<String>,
    #[command(subcommand)]
    pub(crate) command: C,
}

#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    #[command(flatten)]
    listen: ListenArgs,
    /// Do not install the example workflows.
    #[arg(long)]
    pub(crate) no_examples: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ListenArgs {
    /// Address to listen on; port 0 picks a free port.
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
}

/// `chimera config …`
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the effective settings, with secrets masked.
    Print {
        /// Show where each value came from.
        #[arg(long)]
        origins: bool,
    },
}

/// `chimera audit …`
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// List ledger entries.
    List(AuditListArgs),
    /// Verify an export, or the ledger itself.
    Verify {
        /// Export to verify; by default the ledger of the configured store.
        path: Option<PathBuf>,
        /// Trust only this public key (64 hex digits); repeatable.
        #[arg(long = "key", value_name = "HEX")]
        keys: Vec<String>,
    },
    /// Export the ledger to a file that can be verified offline.
    Export {
        /// Export only this tenant's entries, each with its proof (tenant slug or id).
        #[arg(long)]
        tenant: Option<String>,
        /// Output file; by default stdout.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

#[derive(Debug, Default, Args)]
pub(crate) struct AuditListArgs {
    /// Only this tenant's entries (tenant slug or id).
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// Only entries about this subject: its id, or the first digits of it.
    #[arg(long, value_name = "ID")]
    pub(crate) subject_id: Option<String>,
    /// Only entries of this type.
    #[arg(long, value_name = "TYPE")]
    pub(crate) event_type: Option<String>,
    /// Continue after the page that returned this cursor.
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,
    /// Entries per page.
    #[arg(long, value_name = "N", default_value_t = chimera_core::limits::PAGE_ROWS_DEFAULT, value_parser = at_least_one)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) output: OutputArg,
}

/// `chimera bench …`
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Benchmark the record store: transactions per second with 1, 64 and 256 writers.
    Store {
        /// Transactions per number of writers; a single writer gets a tenth.
        #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = at_least_one)]
        transactions: usize,
    },
    /// Benchmark the flow engine: runs of three durable steps, each on disk before the next starts.
    Flow {
        /// Total runs.
        #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = at_least_one)]
        runs: usize,
        /// Concurrent runs.
        #[arg(long, value_name = "C", default_value_t = 64, value_parser = at_least_one)]
        concurrency: usize,
        /// Record store to use; by default the configured one.
        #[arg(long)]
        store: Option<BenchStore>,
        /// Finished runs to put into the store before measuring.
        #[arg(long, value_name = "N", default_value_t = 0)]
        finished: usize,
        /// Runs that wait for approval while measuring; reports the memory that each takes.
        #[arg(long, value_name = "N", default_value_t = 0)]
        waiting: usize,
        /// Measure again with a limit over time on every step, and report the ratio.
        #[arg(long, value_name = "SUBJECT")]
        limit: Option<BenchLimit>,
    },
    /// Benchmark signed requests that each run one step, compared with the flow engine alone.
    Act {
        /// Total requests, and as many runs of the engine alone.
        #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = at_least_one)]
        runs: usize,
        /// Concurrent requests.
        #[arg(long, value_name = "C", default_value_t = 64, value_parser = at_least_one)]
        concurrency: usize,
        /// Record store to use; by default the configured one.
        #[arg(long)]
        store: Option<BenchStore>,
    },
    /// Serve the benchmark workflow to one actor, for an external load generator, until stopped.
    Door {
        /// Address to listen on; port 0 picks a free port.
        #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
        at: std::net::SocketAddr,
        /// Record store to use; by default the configured one.
        #[arg(long)]
        store: Option<BenchStore>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BenchStore {
    /// The embedded store.
    Sqlite,
    /// The database at `database_url`.
    Postgres,
}

/// What the limit of a benchmark counts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BenchLimit {
    /// The steps of all runs.
    Shared,
    /// The steps of each run on their own.
    Own,
}

fn at_least_one(text: &str) -> Result<usize, &'static str> {
    text.parse().ok().filter(|number| *number > 0).ok_or("must be a whole number, at least 1")
}

impl Command {
    /// The tenant that an operator acts for, if not their own.
    pub(crate) fn for_tenant(&self) -> Option<&str> {
        match self {
            Self::Actor(TenantScoped { for_tenant, .. })
            | Self::Key(TenantScoped { for_tenant, .. })
            | Self::Workflow(TenantScoped { for_tenant, .. })
            | Self::Tools(TenantScoped { for_tenant, .. })
            | Self::Schedule(TenantScoped { for_tenant, .. })
            | Self::Event(TenantScoped { for_tenant, .. })
            | Self::Runs(TenantScoped { for_tenant, .. }) => for_tenant.as_deref(),
            _ => None,
        }
    }
}

impl Cli {
    /// The settings given on the command line.
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

//! `chimera workflow …` and `chimera runs …`.

use super::{OutputArg, at_least_one};
use crate::command::parse_exact_json;
use chimera_core::access::Level;
use chimera_core::flow::run::RunStatus;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;
use std::path::PathBuf;

/// `chimera workflow …`
#[derive(Debug, Subcommand)]
pub(crate) enum WorkflowCommand {
    /// Apply a document as the next version of its workflow.
    Apply {
        /// AIR document; `-` reads stdin.
        file: PathBuf,
        #[command(flatten)]
        acting: ActorArg,
    },
    /// List workflows.
    List(PageArgs),
    /// Show a version of a workflow.
    Show {
        /// Workflow id.
        id: String,
        /// Version; by default the latest.
        #[arg(long, value_name = "N")]
        version: Option<i64>,
    },
    /// Share a workflow with all tenants (operators only).
    ///
    /// Other tenants can read and start it by its name, unless they have a workflow of that name. Their runs use
    /// their own tools, secrets and limits. Only its own tenant can change it.
    Share {
        /// Workflow id.
        id: String,
        #[command(flatten)]
        acting: ActorArg,
    },
    /// Stop sharing a workflow; runs of other tenants that are in progress continue.
    Unshare {
        /// Workflow id.
        id: String,
        #[command(flatten)]
        acting: ActorArg,
    },
    /// Validate a document; exit with status 3 if it is invalid.
    Check {
        /// AIR document; `-` reads stdin.
        file: PathBuf,
    },
}

/// `chimera runs …`
#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// List runs, newest first.
    List(ListArgs),
    /// Show a run and what it is waiting for.
    Show {
        /// Run id.
        run: String,
    },
    /// List a run's steps and their tool calls.
    Steps {
        /// Run id.
        run: String,
        #[command(flatten)]
        output: OutputArg,
    },
    /// List a run's records in the execution log.
    Executions(ExecutionsArgs),
    /// Watch a run until it ends; exit with status 1 if it fails.
    Watch {
        /// Run id.
        run: String,
        /// Only events after this number.
        #[arg(long, value_name = "N", default_value_t = 0)]
        after: i64,
    },
    /// Approve a pending request.
    Approve(DecideArgs),
    /// Reject a pending request.
    Reject {
        #[command(flatten)]
        decide: DecideArgs,
        /// Request changes instead of rejecting.
        #[arg(long)]
        request_changes: bool,
    },
    /// Edit the input of a step that waits for approval.
    Edit {
        /// Run id.
        run: String,
        /// Step id or node id.
        step: String,
        /// JSON file with the new input; `-` reads stdin.
        #[arg(long, value_name = "FILE")]
        input: PathBuf,
        #[command(flatten)]
        acting: ActorArg,
    },
    /// Cancel a run.
    Cancel {
        /// Run id.
        run: String,
        /// Reason, for the record.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        acting: ActorArg,
    },
    /// Pause a run: calls in flight finish, nothing new starts.
    Pause {
        /// Run id.
        run: String,
        #[command(flatten)]
        acting: ActorArg,
    },
    /// Resume a paused run.
    Resume {
        /// Run id.
        run: String,
        #[command(flatten)]
        acting: ActorArg,
    },
    /// List tool calls whose outcome is unknown, with the commands that resolve them.
    Doubts(DoubtsArgs),
    /// Resolve a tool call whose outcome is unknown.
    Resolve(ResolveArgs),
    /// Repeat a run for real, calling its tools again.
    Retry(RetryArgs),
    /// Roll back a finished run.
    Rollback(RollbackArgs),
    /// Replay a run without effects.
    Replay(ReplayArgs),
    /// Patch the graph of a run in progress.
    Patch(PatchArgs),
}

/// The ids in a command, to be replaced with whole ones.
pub(crate) struct RunIds<'a> {
    pub(crate) run: Option<&'a mut String>,
    pub(crate) steps: Vec<&'a mut String>,
    pub(crate) approval: Option<&'a mut String>,
    /// `None` for a command that only reads.
    pub(crate) acting: Option<&'a ActorArg>,
}

impl RunsCommand {
    pub(crate) fn ids(&mut self) -> RunIds<'_> {
        let (run, steps, approval, acting) = match self {
            Self::List(_) | Self::Doubts(_) => (None, Vec::new(), None, None),
            Self::Executions(args) => (Some(&mut args.run), Vec::new(), None, None),
            Self::Show { run } | Self::Steps { run, .. } | Self::Watch { run, .. } => {
                (Some(run), Vec::new(), None, None)
            }
            Self::Approve(args) | Self::Reject { decide: args, .. } => {
                (Some(&mut args.run), args.step.iter_mut().collect(), args.approval.as_mut(), Some(&args.acting))
            }
            Self::Edit { run, step, acting, .. } => (Some(run), vec![step], None, Some(&*acting)),
            Self::Resolve(args) => (Some(&mut args.run), vec![&mut args.step], None, Some(&args.acting)),
            Self::Rollback(args) => (Some(&mut args.run), args.steps.iter_mut().collect(), None, Some(&args.acting)),
            Self::Retry(args) => (Some(&mut args.run), Vec::new(), None, Some(&args.acting)),
            Self::Replay(args) => (Some(&mut args.run), Vec::new(), None, Some(&args.acting)),
            Self::Patch(args) => (Some(&mut args.run), Vec::new(), None, Some(&args.acting)),
            Self::Cancel { run, acting, .. } | Self::Pause { run, acting } | Self::Resume { run, acting } => {
                (Some(run), Vec::new(), None, Some(&*acting))
            }
        };
        RunIds { run, steps, approval, acting }
    }
}

#[derive(Debug, Default, Args)]
pub(crate) struct ActorArg {
    /// Act as this actor, such as `user_ann`; by default `admin`.
    #[arg(long = "as", value_name = "ACTOR")]
    pub(crate) actor: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    /// Rows per page.
    #[arg(long, value_name = "N", default_value_t = chimera_core::limits::PAGE_ROWS_DEFAULT, value_parser = at_least_one)]
    pub(crate) limit: usize,
    /// Continue after the page that returned this cursor.
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArg,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only runs with this status.
    #[arg(long, value_parser = statuses())]
    pub(crate) status: Option<String>,
    /// Only this actor's runs.
    #[arg(long)]
    pub(crate) actor: Option<String>,
    /// Only runs of this workflow.
    #[arg(long, value_name = "ID")]
    pub(crate) workflow: Option<String>,
    /// Only runs with a tool call whose outcome is unknown.
    #[arg(long)]
    pub(crate) in_doubt: bool,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DoubtsArgs {
    /// Only calls in this actor's runs.
    #[arg(long)]
    pub(crate) actor: Option<String>,
    /// Only calls of this tool.
    #[arg(long)]
    pub(crate) tool: Option<String>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExecutionsArgs {
    /// Run id.
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

/// Parses `NAME=VALUE`.
pub(super) fn named_value(pair: &str) -> Result<(String, Value), String> {
    let (name, value) = pair.split_once('=').ok_or("expected NAME=VALUE")?;
    if name.is_empty() {
        return Err("missing input name before the `=`".to_owned());
    }
    // Text that is not JSON is used as a string. A JSON number that would lose precision is rejected.
    let value = match parse_exact_json(value) {
        Ok(value) => value,
        Err(error) if serde_json::from_str::<Value>(value).is_ok() => return Err(format!("{name} is a {error}")),
        Err(_) => value.into(),
    };
    Ok((name.to_owned(), value))
}

fn statuses() -> PossibleValuesParser {
    PossibleValuesParser::new(RunStatus::ALL.iter().map(|status| status.as_str()))
}

/// An autonomy level.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LevelArg {
    /// Every node waits for approval.
    #[value(name = "L0", alias = "L0_Ask", alias = "l0")]
    Ask,
    /// The whole plan runs dry first and waits for one approval.
    #[value(name = "L1", alias = "L1_Draft", alias = "l1")]
    Draft,
    /// Runs without approval and notifies.
    #[value(name = "L2", alias = "L2_ExecuteNotify", alias = "l2")]
    ExecuteNotify,
    /// Runs without approval or notification.
    #[value(name = "L3", alias = "L3_ExecuteSilent", alias = "l3")]
    ExecuteSilent,
}

impl LevelArg {
    pub(crate) const fn level(self) -> Level {
        match self {
            Self::Ask => Level::Ask,
            Self::Draft => Level::Draft,
            Self::ExecuteNotify => Level::ExecuteNotify,
            Self::ExecuteSilent => Level::ExecuteSilent,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ReplayMode {
    /// Use recorded outputs only; call nothing external.
    Freeze,
    /// Run pure and read-only tools, skip writing ones, and report differences.
    Shadow,
}

#[derive(Debug, Args)]
pub(crate) struct DecideArgs {
    /// Run id.
    pub(crate) run: String,
    /// Step id or node id; required unless it is the run's first approval.
    #[arg(long)]
    pub(crate) step: Option<String>,
    /// Digest that you reviewed.
    #[arg(long, value_name = "HEX")]
    pub(crate) digest: Option<String>,
    /// Approval id.
    #[arg(long, value_name = "ID")]
    pub(crate) approval: Option<String>,
    /// Reason, for the record.
    #[arg(long)]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) acting: ActorArg,
}

#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// Run id.
    pub(crate) run: String,
    /// Step id or node id.
    pub(crate) step: String,
    /// The call happened.
    #[arg(long, required_unless_present = "never", conflicts_with = "never")]
    pub(crate) happened: bool,
    /// The call never happened and may be sent again.
    #[arg(long)]
    pub(crate) never: bool,
    /// JSON file with the output of the call; `-` reads stdin.
    #[arg(long, value_name = "FILE", conflicts_with = "never")]
    pub(crate) output: Option<PathBuf>,
    /// How you found out.
    #[arg(long)]
    pub(crate) notes: Option<String>,
    #[command(flatten)]
    pub(crate) acting: ActorArg,
}

#[derive(Debug, Args)]
pub(crate) struct RetryArgs {
    /// Run id.
    pub(crate) run: String,
    /// Start from this node; earlier results are reused.
    #[arg(long, value_name = "NODE")]
    pub(crate) from: Option<String>,
    /// Watch the run until it ends.
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) acting: ActorArg,
}

#[derive(Debug, Args)]
pub(crate) struct RollbackArgs {
    /// Run id.
    pub(crate) run: String,
    /// Roll back only this step (step id or node id); repeatable.
    #[arg(long = "step", value_name = "STEP")]
    pub(crate) steps: Vec<String>,
    /// Only mark the run as rolled back: you have undone it by hand.
    #[arg(long, conflicts_with_all = ["steps", "wait"])]
    pub(crate) by_hand: bool,
    /// Reason, for the record.
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Watch the run until it ends.
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) acting: ActorArg,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Run id.
    pub(crate) run: String,
    /// Replay mode.
    #[arg(long, value_name = "MODE", default_value = "freeze")]
    pub(crate) mode: ReplayMode,
    /// Start from this node.
    #[arg(long, value_name = "NODE")]
    pub(crate) from: Option<String>,
    /// Watch the run until it ends.
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) acting: ActorArg,
}

#[derive(Debug, Args)]
pub(crate) struct PatchArgs {
    /// Run id.
    pub(crate) run: String,
    /// Patch document; `-` reads stdin.
    #[arg(required_unless_present = "remove", conflicts_with = "remove")]
    pub(crate) file: Option<PathBuf>,
    /// Only show what it would change.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Run version that the patch was made for; rejected if the run has moved on.
    #[arg(long, value_name = "N")]
    pub(crate) state_version: Option<i64>,
    /// Remove the patch with this number.
    #[arg(long, value_name = "N", conflicts_with_all = ["dry_run", "state_version"])]
    pub(crate) remove: Option<u32>,
    #[command(flatten)]
    pub(crate) acting: ActorArg,
}

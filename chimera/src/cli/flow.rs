//! `chimera workflow …` and `chimera runs …`.

use super::at_least_one;
use crate::command::exact_json;
use chimera_core::access::Level;
use chimera_core::flow::run::RunStatus;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;
use std::path::PathBuf;

/// `chimera workflow …`
#[derive(Debug, Subcommand)]
pub(crate) enum WorkflowCommand {
    /// Make a document the next version of its workflow.
    Apply {
        /// The AIR document; `-` reads stdin.
        file: PathBuf,
        #[command(flatten)]
        acting: Acting,
    },
    /// List workflows.
    List(PageOf),
    /// Show a version of a workflow.
    Show {
        /// The workflow.
        id: String,
        /// Its version; the newest without it.
        #[arg(long, value_name = "N")]
        version: Option<i64>,
    },
    /// Let every tenant start a workflow, as an operator.
    ///
    /// Other tenants read and start it under its name, unless they have one of their own of that name. Their runs use
    /// their own tools, secrets and limits, and nobody else can change it.
    Share {
        /// The workflow.
        id: String,
        #[command(flatten)]
        acting: Acting,
    },
    /// Let only its own tenant start a workflow again; runs of others that are under way go on.
    Unshare {
        /// The workflow.
        id: String,
        #[command(flatten)]
        acting: Acting,
    },
    /// Say what is wrong with a document; end with status 3 if something is.
    Check {
        /// The AIR document; `-` reads stdin.
        file: PathBuf,
    },
}

/// `chimera runs …`
#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// List runs, the newest first.
    List(ListArgs),
    /// Show a run and what it waits for.
    Show {
        /// The run.
        run: String,
    },
    /// List the steps of a run and their calls.
    Steps {
        /// The run.
        run: String,
    },
    /// Draw a run while it goes on; end with status 1 if it fails.
    Watch {
        /// The run.
        run: String,
        /// Only what comes behind the event with this number.
        #[arg(long, value_name = "N", default_value_t = 0)]
        after: i64,
    },
    /// Approve what waits.
    Approve(DecideArgs),
    /// Reject what waits.
    Reject {
        #[command(flatten)]
        decide: DecideArgs,
        /// Ask for changes instead.
        #[arg(long)]
        request_changes: bool,
    },
    /// Change the input of a step that waits for approval.
    Edit {
        /// The run.
        run: String,
        /// The step, by its id or its node's.
        step: String,
        /// The new input: a JSON file; `-` reads stdin.
        #[arg(long, value_name = "FILE")]
        input: PathBuf,
        #[command(flatten)]
        acting: Acting,
    },
    /// Stop a run.
    Cancel {
        /// The run.
        run: String,
        /// Why.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        acting: Acting,
    },
    /// Hold a run: what is under way ends, nothing new starts.
    Pause {
        /// The run.
        run: String,
        #[command(flatten)]
        acting: Acting,
    },
    /// Let a paused run go on.
    Resume {
        /// The run.
        run: String,
        #[command(flatten)]
        acting: Acting,
    },
    /// List calls of which nobody knows whether they happened, with what settles each.
    Doubts(DoubtsArgs),
    /// Say what became of an effect that nobody can tell of.
    Resolve(ResolveArgs),
    /// Run a run again for real.
    Retry {
        /// The run.
        run: String,
        /// From this node on; what came before is taken over.
        #[arg(long, value_name = "NODE")]
        from: Option<String>,
        /// Watch it to its end.
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        acting: Acting,
    },
    /// Undo a run that has ended.
    Rollback {
        /// The run.
        run: String,
        /// Only this step, by its id or its node's; may be given more than once.
        #[arg(long = "step", value_name = "STEP")]
        steps: Vec<String>,
        /// You have undone it by hand: only mark the run, call nothing.
        #[arg(long, conflicts_with_all = ["steps", "wait"])]
        by_hand: bool,
        /// Why.
        #[arg(long)]
        reason: Option<String>,
        /// Watch it to its end.
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        acting: Acting,
    },
    /// Run a run over again without effects.
    Replay {
        /// The run.
        run: String,
        /// How.
        #[arg(long, value_name = "MODE", default_value = "freeze")]
        mode: ReplayMode,
        /// From this node on.
        #[arg(long, value_name = "NODE")]
        from: Option<String>,
        /// Watch it to its end.
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        acting: Acting,
    },
    /// Change the graph of a run that goes on.
    Patch(PatchArgs),
}

/// As whom a command acts.
#[derive(Debug, Default, Args)]
pub(crate) struct Acting {
    /// Act as this actor, such as `user_ann`; without it as `admin`.
    #[arg(long = "as", value_name = "ACTOR")]
    pub(crate) actor: Option<String>,
}

/// A part of a listing.
#[derive(Debug, Args)]
pub(crate) struct PageOf {
    /// Rows of the page.
    #[arg(long, value_name = "N", default_value_t = chimera_core::limits::PAGE_ROWS_DEFAULT, value_parser = at_least_one)]
    pub(crate) limit: usize,
    /// Continue behind the page that gave this cursor.
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
}

/// Which runs to list.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only with this status.
    #[arg(long, value_parser = statuses())]
    pub(crate) status: Option<String>,
    /// Only of this actor.
    #[arg(long)]
    pub(crate) actor: Option<String>,
    /// Only of this workflow.
    #[arg(long, value_name = "ID")]
    pub(crate) workflow: Option<String>,
    /// Only with a call whose outcome is unknown.
    #[arg(long)]
    pub(crate) in_doubt: bool,
    #[command(flatten)]
    pub(crate) page: PageOf,
}

/// Which calls in doubt to list.
#[derive(Debug, Args)]
pub(crate) struct DoubtsArgs {
    /// Only of this actor's runs.
    #[arg(long)]
    pub(crate) actor: Option<String>,
    /// Only of this tool.
    #[arg(long)]
    pub(crate) tool: Option<String>,
    #[command(flatten)]
    pub(crate) page: PageOf,
}

/// One input of the command line.
pub(super) fn named_value(pair: &str) -> Result<(String, Value), String> {
    let (name, value) = pair.split_once('=').ok_or("an input is written NAME=VALUE")?;
    if name.is_empty() {
        return Err("an input has a name before the `=`".to_owned());
    }
    // What is no JSON is a text; a number that would be another one is neither.
    let value = match exact_json(value) {
        Ok(value) => value,
        Err(error) if serde_json::from_str::<Value>(value).is_ok() => return Err(format!("{name} is a {error}")),
        Err(_) => value.into(),
    };
    Ok((name.to_owned(), value))
}

fn statuses() -> PossibleValuesParser {
    PossibleValuesParser::new(RunStatus::ALL.iter().map(|status| status.as_str()))
}

/// How freely a run may act.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LevelWord {
    /// Every node waits for a person.
    #[value(name = "L0", alias = "L0_Ask", alias = "l0")]
    Ask,
    /// The whole plan is tried dry and waits once.
    #[value(name = "L1", alias = "L1_Draft", alias = "l1")]
    Draft,
    /// It runs, and somebody is told.
    #[value(name = "L2", alias = "L2_ExecuteNotify", alias = "l2")]
    ExecuteNotify,
    /// It runs.
    #[value(name = "L3", alias = "L3_ExecuteSilent", alias = "l3")]
    ExecuteSilent,
}

impl LevelWord {
    /// The level that it stands for.
    pub(crate) const fn level(self) -> Level {
        match self {
            Self::Ask => Level::Ask,
            Self::Draft => Level::Draft,
            Self::ExecuteNotify => Level::ExecuteNotify,
            Self::ExecuteSilent => Level::ExecuteSilent,
        }
    }
}

/// How a run is repeated.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ReplayMode {
    /// With recorded outputs only: nothing outside is called.
    Freeze,
    /// Pure and reading tools run, writing ones don't; the differences are told.
    Shadow,
}

/// What is decided about.
#[derive(Debug, Args)]
pub(crate) struct DecideArgs {
    /// The run.
    pub(crate) run: String,
    /// The step, by its id or its node's; needed when it isn't the run's first approval.
    #[arg(long)]
    pub(crate) step: Option<String>,
    /// The digest that was looked at.
    #[arg(long, value_name = "HEX")]
    pub(crate) digest: Option<String>,
    /// The approval itself.
    #[arg(long, value_name = "ID")]
    pub(crate) approval: Option<String>,
    /// Why.
    #[arg(long)]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) acting: Acting,
}

/// What became of an effect.
#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// The run.
    pub(crate) run: String,
    /// The step, by its id or its node's.
    pub(crate) step: String,
    /// It happened.
    #[arg(long, required_unless_present = "never", conflicts_with = "never")]
    pub(crate) happened: bool,
    /// It never did, and may be sent.
    #[arg(long)]
    pub(crate) never: bool,
    /// What it gave: a JSON file; `-` reads stdin.
    #[arg(long, value_name = "FILE", conflicts_with = "never")]
    pub(crate) output: Option<PathBuf>,
    /// How you know.
    #[arg(long)]
    pub(crate) notes: Option<String>,
    #[command(flatten)]
    pub(crate) acting: Acting,
}

/// A patch.
#[derive(Debug, Args)]
pub(crate) struct PatchArgs {
    /// The run.
    pub(crate) run: String,
    /// The patch document; `-` reads stdin.
    #[arg(required_unless_present = "remove", conflicts_with = "remove")]
    pub(crate) file: Option<PathBuf>,
    /// Only say what it would change.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The version of the run that it was made for; refused if the run is further by now.
    #[arg(long, value_name = "N")]
    pub(crate) state_version: Option<i64>,
    /// Take the patch with this number out again.
    #[arg(long, value_name = "N", conflicts_with_all = ["dry_run", "state_version"])]
    pub(crate) remove: Option<u32>,
    #[command(flatten)]
    pub(crate) acting: Acting,
}

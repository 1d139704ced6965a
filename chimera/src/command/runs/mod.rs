//! `chimera runs …`: shows and controls runs.

mod doubts;
mod executions;
mod list;
mod resolve;
mod restart;
mod show;
mod signal;
mod watch;

pub(super) use watch::follow;

use super::CommandContext;
use crate::cli::RunsCommand;
use crate::failure::Outcome;
use std::process::ExitCode;

pub(crate) async fn run(scene: &CommandContext<'_>, mut command: RunsCommand) -> Outcome<ExitCode> {
    resolve::ids(scene, &mut command).await?;
    match command {
        RunsCommand::List(args) => list::run(scene, args).await,
        RunsCommand::Show { run } => show::run(scene, &run).await,
        RunsCommand::Steps { run, output } => show::steps(scene, &run, &output).await,
        RunsCommand::Executions(args) => executions::run(scene, args).await,
        RunsCommand::Watch { run, after } => watch::run(scene, &run, after).await,
        RunsCommand::Approve(args) => signal::decide(scene, args, "approve").await,
        RunsCommand::Reject { decide, request_changes } => {
            signal::decide(scene, decide, if request_changes { "request_changes" } else { "reject" }).await
        }
        RunsCommand::Edit { run, step, input, acting } => signal::edit(scene, &run, &step, &input, &acting).await,
        RunsCommand::Cancel { run, reason, acting } => signal::cancel(scene, &run, reason, &acting).await,
        RunsCommand::Pause { run, acting } => signal::pause_or_resume(scene, &run, "pause", &acting).await,
        RunsCommand::Resume { run, acting } => signal::pause_or_resume(scene, &run, "resume", &acting).await,
        RunsCommand::Doubts(args) => doubts::run(scene, args).await,
        RunsCommand::Resolve(args) => signal::resolve(scene, args).await,
        RunsCommand::Retry(args) => restart::retry(scene, args).await,
        RunsCommand::Replay(args) => restart::replay(scene, args).await,
        RunsCommand::Rollback(args) if args.by_hand => signal::mark_rolled_back(scene, args).await,
        RunsCommand::Rollback(args) => signal::rollback(scene, args).await,
        RunsCommand::Patch(args) => signal::patch(scene, args).await,
    }
}

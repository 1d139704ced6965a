//! One file per command.

mod audit;
mod bench;
mod config;
mod dev;
mod doctor;
mod migrate;
mod serve;

use crate::ambient::{Environment, stderr_is_terminal};
use crate::cli::{AuditCommand, BenchCommand, Cli, Command, ConfigCommand};
use crate::config::Loaded;
use crate::failure::{Failure, Outcome};
use crate::telemetry::Terminal;
use chimera_core::error::Code;
use std::io::Write;
use std::process::ExitCode;

/// What every command may use.
pub(crate) struct Scene<'a> {
    pub(crate) loaded: &'a Loaded,
    pub(crate) json: bool,
    pub(crate) terminal: Terminal,
}

/// Runs the command.
pub(crate) async fn run(cli: Cli, loaded: &Loaded, environment: &Environment) -> Outcome<ExitCode> {
    let terminal = Terminal { attached: stderr_is_terminal(), no_color: environment.no_color };
    let scene = Scene { loaded, json: cli.global.json, terminal };
    match cli.command {
        Command::Dev(_) => dev::run(&scene).await,
        Command::Serve(_) => serve::run(&scene).await,
        Command::Migrate => migrate::run(&scene).await,
        Command::Doctor => doctor::run(&scene).await,
        Command::Config(ConfigCommand::Print { origins }) => config::print(&scene, origins),
        Command::Audit(AuditCommand::List(list)) => audit::list::run(&scene, &list).await,
        Command::Audit(AuditCommand::Verify { path, keys }) => audit::verify::run(&scene, path.as_deref(), &keys).await,
        Command::Audit(AuditCommand::Export { tenant, out }) => {
            audit::export::run(&scene, tenant.as_deref(), out.as_deref()).await
        }
        Command::Bench(BenchCommand::Store { seconds }) => bench::store(&scene, seconds).await,
    }
}

/// Writes data to stdout. A reader that has gone away is not a failure.
pub(crate) fn print(text: &str) -> Outcome {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Code::Internal, format!("can't write the output: {}", error.kind())))
        }
        _ => Ok(()),
    }
}

/// Writes words to stderr.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

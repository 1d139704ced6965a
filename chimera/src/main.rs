//! The binary: reads the command line and the configuration, runs one command, and turns its end
//! into words and an exit status.

mod access;
mod ambient;
mod backend;
mod backup;
mod bench;
mod cli;
mod command;
mod compose;
mod config;
mod doctor;
mod failure;
mod flow;
mod home;
mod mask;
mod reference;
mod serve;
mod telemetry;

use ambient::Environment;
use chimera_core::limits;
use clap::Parser;
use cli::Cli;
use failure::{Failure, Outcome};
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// A change is made by one thread and dropped by the one that wrote it; this allocator makes that
/// cheap.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let json = cli.global.json;
    match run(cli) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("{}", failure.render(json));
            ExitCode::from(failure.exit())
        }
    }
}

/// A file that has reached the size that the process may write (`ulimit -f`) is to fail the write, not to end the process. The
/// handler stays when nobody listens.
fn outlive_full_files(runtime: &tokio::runtime::Runtime) {
    let _context = runtime.enter();
    let kind = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    if let Err(error) = signal(kind) {
        tracing::warn!(%error, "a file that grows too large will end this process");
    }
}

fn run(cli: Cli) -> Outcome<ExitCode> {
    let environment = Environment::read();
    let loaded = config::load(&cli.flags(), &environment)?;
    // One TLS implementation for every client in the process; a second call only says it is set.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let internal = |error: std::io::Error| {
        Failure::new(
            chimera_core::error::Code::Internal,
            format!("no runtime: {}", chimera_core::error::io_reason(&error)),
        )
    };
    let runtime = runtime.map_err(internal)?;
    outlive_full_files(&runtime);
    let outcome = runtime.block_on(command::run(cli, &loaded, &environment));
    // A thread that hangs on a dead disk must not keep the process from ending.
    runtime.shutdown_timeout(limits::STOP_THREADS_TIMEOUT);
    outcome.map_err(|failure| failure.masked(&loaded.config.mask))
}

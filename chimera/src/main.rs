//! The binary: reads the command line and the configuration, runs one command, and reports its result
//! as a message and an exit status.

mod access;
mod ambient;
mod backend;
mod backup;
mod bench;
mod cli;
mod command;
mod compose;
mod config;
mod data_folder;
mod doctor;
mod failure;
mod flow;
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

/// Transactions are allocated on one thread and freed on another; this allocator makes that cheap.
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

/// Handles SIGXFSZ, so that a write beyond the file size limit (`ulimit -f`) fails instead of killing the process. The
/// handler stays installed after its stream is dropped.
fn ignore_file_size_signal(runtime: &tokio::runtime::Runtime) {
    let _context = runtime.enter();
    let kind = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    if let Err(error) = signal(kind) {
        tracing::warn!(%error, "can't handle SIGXFSZ: a write beyond the file size limit (ulimit -f) will kill this process");
    }
}

fn run(cli: Cli) -> Outcome<ExitCode> {
    let environment = Environment::read();
    let loaded = config::load(&cli.flags(), &environment)?;
    // One TLS implementation for every client in the process. An error only means that it is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let internal = |error: std::io::Error| {
        Failure::new(
            chimera_core::error::Code::Internal,
            format!("can't start the async runtime: {}", chimera_core::error::io_reason(&error)),
        )
    };
    let runtime = runtime.map_err(internal)?;
    ignore_file_size_signal(&runtime);
    let outcome = runtime.block_on(command::run(cli, &loaded, &environment));
    // A thread that hangs on a dead disk must not keep the process from ending.
    runtime.shutdown_timeout(limits::STOP_THREADS_TIMEOUT);
    outcome.map_err(|failure| failure.masked(&loaded.config.mask))
}

//! The commands, one file each, and what they share: output, input files, backends.

mod act;
mod actor;
pub(crate) mod audit;
mod backup;
mod bench;
mod bench_act;
mod bench_door;
mod bench_flow;
mod config;
mod dev;
mod doctor;
mod event;
mod inbox;
mod intent;
mod key;
mod listing;
mod migrate;
mod restore;
mod resume;
mod role;
mod runs;
mod schedule;
mod serve;
mod sign;
mod tenant;
mod token;
mod tools;
mod work;
mod workflow;

use crate::access::registry::ActorRegistry;
use crate::ambient::{Environment, stderr_is_terminal, stdout_is_terminal};
use crate::backend::Backend;
use crate::cli::{AuditCommand, BenchCommand, Cli, ColorArg, Command, ConfigCommand};
use crate::compose::{self, Ambient};
use crate::config::{LoadedConfig, Origin};
use crate::failure::{Failure, Outcome};
use crate::telemetry::{self, Telemetry, Terminal};
use chimera_core::error::{Code, io_reason};
use chimera_core::limits;
use chimera_core::text::escape_invisible_only;
use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

/// Exit status of a failed check.
const EXIT_FOUND_WRONG: u8 = 3;

/// Context shared by all commands.
pub(crate) struct CommandContext<'a> {
    pub(crate) loaded: &'a LoadedConfig,
    pub(crate) json: bool,
    pub(crate) terminal: Terminal,
    /// Whether data is coloured.
    pub(crate) colors: bool,
    /// The width of a list without a terminal, if the user says so.
    pub(crate) columns: Option<usize>,
    /// The words of the command line after the program's name.
    pub(crate) args: &'a [String],
    /// The tenant that an operator acts for, if not their own.
    pub(crate) for_tenant: Option<String>,
}

pub(crate) async fn run(cli: Cli, loaded: &LoadedConfig, environment: &Environment) -> Outcome<ExitCode> {
    let no_color = match cli.global.color.unwrap_or(ColorArg::Auto) {
        ColorArg::Auto => environment.no_color,
        ColorArg::Always => false,
        ColorArg::Never => true,
    };
    let terminal = Terminal { attached: stderr_is_terminal(), no_color };
    let colors = cli.global.color == Some(ColorArg::Always) || (stdout_is_terminal() && !no_color);
    let for_tenant = cli.command.for_tenant().map(str::to_owned);
    let (columns, args) = (environment.columns, environment.args.as_slice());
    let scene = CommandContext { loaded, json: cli.global.json, terminal, colors, columns, args, for_tenant };
    let logs = scene.start_logging(&cli.command)?;
    // Servers and the doctor report an unresponsive database themselves.
    let outcome = match &cli.command {
        Command::Dev(_) | Command::Serve(_) | Command::Doctor { .. } => scene.dispatch(cli.command).await,
        _ => compose::while_responsive(&loaded.config, scene.dispatch(cli.command)).await,
    };
    if let Some(logs) = logs {
        logs.flush(limits::COMMAND_FLUSH_TIMEOUT).await;
    }
    outcome
}

impl CommandContext<'_> {
    /// Sets up logging for a short-lived command: warnings only, unless a level is configured. Servers set
    /// up their own, and `config print` logs nothing.
    fn start_logging(&self, command: &Command) -> Outcome<Option<Telemetry>> {
        if matches!(command, Command::Dev(_) | Command::Serve(_) | Command::Config(_)) {
            return Ok(None);
        }
        let mut config = self.loaded.config.clone();
        if self.loaded.values.get("log.level").is_none_or(|level| level.origin == Origin::Default) {
            "warn".clone_into(&mut config.log_level);
        }
        config.otlp_endpoint = None;
        let clock = Ambient::new().clock;
        telemetry::start(&config, self.terminal, clock).map(Some)
    }

    /// The backend for a command that only reads.
    pub(crate) async fn read_backend(&self) -> Outcome<Backend> {
        match &self.for_tenant {
            // Reading the store directly would leave no entry in that tenant's ledger.
            Some(_) => self.write_backend(None),
            None => Backend::open_for_reading(&self.loaded.config).await,
        }
    }

    /// The backend for a command that changes something.
    pub(crate) fn write_backend(&self, actor: Option<&str>) -> Outcome<Backend> {
        let backend = Backend::connect(&self.loaded.config, actor)?;
        Ok(match &self.for_tenant {
            Some(slug) => backend.for_tenant(slug),
            None => backend,
        })
    }

    /// The actor registry, at a server or in the store.
    pub(crate) async fn actor_registry(&self, actor: Option<&str>) -> Outcome<ActorRegistry> {
        match &self.for_tenant {
            Some(_) => Ok(ActorRegistry::Server(self.write_backend(actor)?)),
            None => ActorRegistry::open(&self.loaded.config, actor).await,
        }
    }

    async fn dispatch(&self, command: Command) -> Outcome<ExitCode> {
        match command {
            Command::Dev(args) => dev::run(self, !args.no_examples).await,
            Command::Serve(_) => serve::run(self).await,
            Command::Migrate { check: true } => migrate::check(self).await,
            Command::Migrate { check: false } => migrate::run(self).await,
            Command::Doctor { deep } => doctor::run(self, deep).await,
            Command::Config(ConfigCommand::Print { origins }) => config::print(self, origins),
            Command::Act(args) => act::run(self, *args).await,
            Command::Token(args) => token::run(self, args).await,
            Command::Sign(args) => sign::run(self, &args),
            Command::Actor(of) => actor::run(self, of.command).await,
            Command::Key(of) => key::run(self, of.command).await,
            Command::Role(command) => role::run(self, command),
            Command::Tenant(command) => tenant::run(self, command).await,
            Command::Workflow(of) => workflow::run(self, of.command).await,
            Command::Tools(of) => tools::run(self, of.command).await,
            Command::Schedule(of) => schedule::run(self, of.command).await,
            Command::Event(of) => event::run(self, of.command).await,
            Command::Intent(command) => intent::run(self, command).await,
            Command::Runs(of) => runs::run(self, of.command).await,
            Command::Work(of) => work::run(self, of.command).await,
            Command::Inbox(page) => inbox::run(self, page).await,
            Command::Audit(AuditCommand::List(list)) => audit::list::run(self, &list).await,
            Command::Audit(AuditCommand::Verify { path, keys }) => {
                audit::verify::run(self, path.as_deref(), &keys).await
            }
            Command::Audit(AuditCommand::Export { tenant, out }) => {
                audit::export::run(self, tenant.as_deref(), out.as_deref()).await
            }
            Command::Backup(args) => backup::run(self, args).await,
            Command::Restore(args) => restore::run(self, &args).await,
            Command::Resume(args) => resume::run(self, &args).await,
            Command::Bench(BenchCommand::Store { transactions }) => bench::store(self, transactions).await,
            Command::Bench(BenchCommand::Act { runs, concurrency, store }) => {
                bench_act::act(self, runs, concurrency, store).await
            }
            Command::Bench(BenchCommand::Door { at, store }) => bench_door::door(self, at, store).await,
            Command::Bench(BenchCommand::Flow { runs, concurrency, store, finished, waiting, limit }) => {
                let load = bench_flow::BenchLoad { runs, concurrency, finished, waiting, limit };
                bench_flow::flow(self, &load, store).await
            }
        }
    }
}

/// Writes data to stdout, with hidden characters escaped. The meaning of a JSON document does not change.
pub(crate) fn print(text: &str) -> Outcome {
    print_raw(&escape_invisible_only(text))
}

/// Writes to stdout without escaping, for terminal control sequences; untrusted text must be escaped before. A
/// closed pipe is not an error.
pub(crate) fn print_raw(text: &str) -> Outcome {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Code::Internal, format!("can't write the output: {}", io_reason(&error))))
        }
        _ => Ok(()),
    }
}

/// Reads a file; `-` is stdin.
pub(crate) fn read_bytes(file: &Path) -> Outcome<Vec<u8>> {
    let read = if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(file)
    };
    read.map_err(|error| read_failure(file, &error))
}

/// Reads a UTF-8 file; `-` is stdin.
pub(crate) fn read_text(file: &Path) -> Outcome<String> {
    let text = String::from_utf8(read_bytes(file)?);
    text.map_err(|_| read_failure(file, &std::io::ErrorKind::InvalidData.into()))
}

fn read_failure(file: &Path, why: &std::io::Error) -> Failure {
    Failure::new(Code::MalformedArgs, format!("{} can't be read: {}", file.display(), io_reason(why)))
}

/// Reads a JSON file; `-` is stdin.
pub(crate) fn read_json(file: &Path) -> Outcome<serde_json::Value> {
    parse_exact_json(&read_text(file)?)
        .map_err(|error| Failure::new(Code::MalformedArgs, format!("{} is not JSON: {error}", file.display())))
}

/// Parses JSON; rejects numbers that would lose precision.
pub(crate) fn parse_exact_json(text: &str) -> Result<serde_json::Value, String> {
    let worded = |error| serde_json::from_str::<serde_json::Value>(text).map_or_else(|why| why.to_string(), |_| error);
    chimera_core::json::parse_exact(text).map_err(|error| worded(error.to_string()))
}

/// Pretty-prints JSON.
pub(crate) fn document(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

/// Writes a message to stderr.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", escape_invisible_only(text));
}

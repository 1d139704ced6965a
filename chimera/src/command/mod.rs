//! One file per command.

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
mod inbox;
mod migrate;
mod restore;
mod resume;
mod role;
mod runs;
mod serve;
mod sign;
mod tenant;
mod token;
mod workflow;

use crate::access::book::Book;
use crate::ambient::{Environment, stderr_is_terminal};
use crate::backend::Backend;
use crate::cli::{AuditCommand, BenchCommand, Cli, Command, ConfigCommand};
use crate::compose::{self, Ambient};
use crate::config::{Loaded, Origin};
use crate::failure::{Failure, Outcome};
use crate::telemetry::{self, Telemetry, Terminal};
use chimera_core::error::{Code, io_reason};
use chimera_core::limits;
use chimera_core::text::escape_invisible_only;
use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

/// The exit status when something was checked and found wrong.
const EXIT_FOUND_WRONG: u8 = 3;

/// What every command may use.
pub(crate) struct Scene<'a> {
    pub(crate) loaded: &'a Loaded,
    pub(crate) json: bool,
    pub(crate) terminal: Terminal,
    /// The tenant for which an operator acts, if it is not their own.
    pub(crate) for_tenant: Option<String>,
}

/// Runs the command.
pub(crate) async fn run(cli: Cli, loaded: &Loaded, environment: &Environment) -> Outcome<ExitCode> {
    let terminal = Terminal { attached: stderr_is_terminal(), no_color: environment.no_color };
    let for_tenant = cli.command.for_tenant().map(str::to_owned);
    let scene = Scene { loaded, json: cli.global.json, terminal, for_tenant };
    let logs = scene.logs(&cli.command)?;
    // Servers and the doctor tell of a silent database themselves.
    let outcome = match &cli.command {
        Command::Dev(_) | Command::Serve(_) | Command::Doctor { .. } => scene.perform(cli.command).await,
        _ => compose::while_answering(&loaded.config, scene.perform(cli.command)).await,
    };
    if let Some(logs) = logs {
        logs.flush(limits::COMMAND_FLUSH_TIMEOUT).await;
    }
    outcome
}

impl Scene<'_> {
    /// Log lines for a command that ends by itself: warnings, unless somebody set a level. Servers
    /// set up their own, and printing settings has nothing to log.
    fn logs(&self, command: &Command) -> Outcome<Option<Telemetry>> {
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

    /// Whom a command asks that only reads.
    pub(crate) async fn desk_to_read(&self) -> Outcome<Backend> {
        match &self.for_tenant {
            // The store alone would show it without a word in that tenant's ledger.
            Some(_) => self.desk_to_change(None),
            None => Backend::to_read(&self.loaded.config).await,
        }
    }

    /// Whom a command asks that changes something.
    pub(crate) fn desk_to_change(&self, actor: Option<&str>) -> Outcome<Backend> {
        let backend = Backend::to_change(&self.loaded.config, actor)?;
        Ok(match &self.for_tenant {
            Some(slug) => backend.for_tenant(slug),
            None => backend,
        })
    }

    /// Where a command looks after actors.
    pub(crate) async fn book(&self, actor: Option<&str>) -> Outcome<Book> {
        match &self.for_tenant {
            Some(_) => Ok(Book::Server(self.desk_to_change(actor)?)),
            None => Book::open(&self.loaded.config, actor).await,
        }
    }

    async fn perform(&self, command: Command) -> Outcome<ExitCode> {
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
            Command::Role(command) => role::run(self, command),
            Command::Tenant(command) => tenant::run(self, command).await,
            Command::Workflow(of) => workflow::run(self, of.command).await,
            Command::Runs(of) => runs::run(self, of.command).await,
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
            Command::Bench(BenchCommand::Flow { runs, concurrency, store, finished, waiting }) => {
                bench_flow::flow(self, &bench_flow::Load { runs, concurrency, finished, waiting }, store).await
            }
        }
    }
}

/// Writes data to stdout. Whatever others wrote hides nothing on a terminal; a JSON document means the same.
pub(crate) fn print(text: &str) -> Outcome {
    paint(&escape_invisible_only(text))
}

/// Writes to stdout what steers the terminal on purpose; texts of others in it were made visible before. A reader that has
/// gone away is not a failure.
pub(crate) fn paint(text: &str) -> Outcome {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Code::Internal, format!("can't write the output: {}", io_reason(&error))))
        }
        _ => Ok(()),
    }
}

/// The bytes of a file that a command names; `-` is stdin.
pub(crate) fn bytes_of(file: &Path) -> Outcome<Vec<u8>> {
    let read = if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(file)
    };
    read.map_err(|error| unreadable(file, &error))
}

/// The text of a file that a command names; `-` is stdin.
pub(crate) fn text_of(file: &Path) -> Outcome<String> {
    let text = String::from_utf8(bytes_of(file)?);
    text.map_err(|_| unreadable(file, &std::io::ErrorKind::InvalidData.into()))
}

fn unreadable(file: &Path, why: &std::io::Error) -> Failure {
    Failure::new(Code::MalformedArgs, format!("{} can't be read: {}", file.display(), io_reason(why)))
}

/// The JSON document of a file that a command names.
pub(crate) fn json_of(file: &Path) -> Outcome<serde_json::Value> {
    exact_json(&text_of(file)?)
        .map_err(|error| Failure::new(Code::MalformedArgs, format!("{} is not JSON: {error}", file.display())))
}

/// The document that a text is, with its numbers as they stand there.
pub(crate) fn exact_json(text: &str) -> Result<serde_json::Value, String> {
    let worded = |error| serde_json::from_str::<serde_json::Value>(text).map_or_else(|why| why.to_string(), |_| error);
    chimera_core::json::parse_exact(text).map_err(|error| worded(error.to_string()))
}

/// A document for reading.
pub(crate) fn document(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

/// Words behind a listing: that there is nothing, or where it goes on.
pub(crate) fn page_words(page: &serde_json::Value, is_empty: bool, what: &str) {
    if is_empty {
        say(&format!("no {what}"));
    }
    if let Some(cursor) = page["next_cursor"].as_str() {
        say(&format!("more: --cursor {cursor}"));
    }
}

/// Writes words to stderr.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", escape_invisible_only(text));
}

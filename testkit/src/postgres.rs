//! A private PostgreSQL server with its own folder and port.
//!
//! The tests of one binary share a server (`shared`), with a fresh database each; a test that stops or
//! kills the server starts its own. It is not tuned.
//!
//! The surprising part is the watchdog. Statics are never dropped, and a test process may be killed. So
//! a small shell waits for the end of a pipe that only this process holds, then stops the server and
//! removes its folder. PR_SET_PDEATHSIG would not work: it fires when the thread that started the
//! server ends, and test threads end before the process does.

use std::io::{BufRead, BufReader, Error, Result};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

const SUPERUSER: &str = "postgres";
/// Another process may take a free port before the server does.
const PORTS_TRIED_MAX: u32 = 5;

/// Stops the server and removes its folder at the end of standard input. `$1` is the folder. The pid
/// file may be stale, so a process counts only while its command line names the folder.
const WATCHDOG: &str = r#"
trap '' INT TERM HUP
cat >/dev/null
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)
ours() { [ -n "$pid" ] && tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF "$1"; }
if ours "$1"; then
  kill -QUIT "$pid"
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do ours "$1" || break; sleep 0.1; done
  ours "$1" && kill -KILL "$pid"
fi
for _ in 1 2 3 4 5; do rm -rf "$1" && break; sleep 0.2; done
"#;

/// Kills the server `$1` and all its processes at once, as a power cut would.
const KILL_ALL: &str = r#"
kill -STOP "$1" || exit 1
kill -KILL $(cat "/proc/$1/task/$1/children" 2>/dev/null) "$1"
while kill -0 "$1" 2>/dev/null && ! grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null; do :; done
"#;

/// Sends signal `$2` to the server `$1` and all its processes. A child may just have exited.
const SIGNAL_ALL: &str = r#"
kill -s "$2" "$1" || exit 1
for child in $(cat "/proc/$1/task/$1/children"); do kill -s "$2" "$child" 2>/dev/null; done
true
"#;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    fsync: bool,
}

impl Options {
    /// Turns fsync off, for tests that do not depend on durability.
    #[must_use]
    pub const fn without_fsync(mut self) -> Self {
        self.fsync = false;
        self
    }

    /// Starts the server and waits until it answers.
    pub fn start(self) -> Result<PrivatePostgres> {
        PrivatePostgres::start_with(self)
    }
}

/// A running server. It stops when this is dropped or when the process ends.
#[derive(Debug)]
pub struct PrivatePostgres {
    programs: PathBuf,
    folder: PathBuf,
    port: u16,
    databases: AtomicU32,
    watchdog: Child,
}

impl PrivatePostgres {
    /// Starts a server with fsync on and waits until it answers.
    pub fn start() -> Result<Self> {
        Self::options().start()
    }

    /// The default options: fsync on.
    #[must_use]
    pub const fn options() -> Options {
        Options { fsync: true }
    }

    /// The server that the tests of this process share, without fsync. Take a `fresh_database`.
    pub fn shared() -> Result<&'static Self> {
        static SHARED: OnceLock<std::result::Result<PrivatePostgres, String>> = OnceLock::new();
        let started = SHARED.get_or_init(|| Self::options().without_fsync().start().map_err(|e| e.to_string()));
        started.as_ref().map_err(|message| Error::other(message.clone()))
    }

    fn start_with(options: Options) -> Result<Self> {
        let programs = find_programs()?;
        let folder = tempfile::Builder::new().prefix("chimera-postgres-").tempdir()?.keep();
        let watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let mut server = Self { programs, folder, port: 0, databases: AtomicU32::new(0), watchdog };
        if is_root()? {
            run(Command::new("chown").arg(SUPERUSER).arg(&server.folder))?;
        }
        // Sort order must not depend on the locale of the server, so the tests use one other than "C".
        let english = ["--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en"];
        if server.initialise(&english).is_err() {
            // Versions before 15 have no ICU provider.
            server.initialise(&["--locale=C"])?;
        }
        server.configure(options)?;
        let mut started = server.start_on_free_port();
        for _ in 1..PORTS_TRIED_MAX {
            if started.is_ok() {
                break;
            }
            started = server.start_on_free_port();
        }
        started.map(|()| server)
    }

    fn initialise(&self, locale: &[&str]) -> Result<()> {
        let common = ["--no-sync", "--auth=trust", "--encoding=UTF8", "-U", SUPERUSER, "-D"];
        run(self.program("initdb").args(locale).args(common).arg(self.data()))
    }

    fn configure(&self, options: Options) -> Result<()> {
        let fsync = if options.fsync { "on" } else { "off" };
        let settings = format!(
            "listen_addresses = '127.0.0.1'\nunix_socket_directories = ''\ntimezone = 'UTC'\nlog_timezone = 'UTC'\n\
             max_connections = 200\nshared_buffers = '64MB'\nfsync = {fsync}\nsynchronous_commit = on\n"
        );
        // The file belongs to the server's user; root may write it too.
        let path = self.data().join("postgresql.conf");
        let before = std::fs::read_to_string(&path)?;
        std::fs::write(&path, before + &settings)
    }

    fn start_on_free_port(&mut self) -> Result<()> {
        self.port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        self.restart()
    }

    /// The URL of the database `postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// Creates an empty database and returns its URL. This copies a few hundred files, so tests that change
    /// nothing should share one.
    pub fn fresh_database(&self) -> Result<String> {
        self.create("template0")
    }

    /// Copies a database that has no open connections. This is faster than migrating a new one.
    pub fn copy_of(&self, url: &str) -> Result<String> {
        self.create(url.rsplit('/').next().unwrap_or_default())
    }

    fn create(&self, template: &str) -> Result<String> {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let mut create = self.program("createdb");
        create.args(["-h", "127.0.0.1", "-U", SUPERUSER, "-T", template, "-p"]).arg(self.port.to_string());
        run(create.arg(&name))?;
        Ok(self.url_of(&name))
    }

    /// Runs SQL in a database of this server.
    pub fn execute(&self, url: &str, sql: &str) -> Result<()> {
        run(Command::new(self.programs.join("psql")).args(["-q", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", sql]))
    }

    /// Dumps a database as SQL, without statements that only this version of PostgreSQL knows.
    pub fn dump(&self, url: &str, file: &Path) -> Result<()> {
        let mut dump = Command::new(self.programs.join("pg_dump"));
        run(dump.args(["--no-owner", "--no-privileges", "-d", url, "-f"]).arg(file))?;
        let own = ["\\restrict", "\\unrestrict", "SET transaction_timeout"];
        let text = std::fs::read_to_string(file)?;
        let kept = text.lines().filter(|line| !own.iter().any(|start| line.starts_with(start)));
        std::fs::write(file, kept.collect::<Vec<_>>().join("\n") + "\n")
    }

    /// Loads a dump into an empty database.
    pub fn load(&self, url: &str, file: &Path) -> Result<()> {
        let mut load = Command::new(self.programs.join("psql"));
        run(load.args(["-q", "-v", "ON_ERROR_STOP=1", "-d", url, "-f"]).arg(file))
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Stops the server cleanly (`fast` mode): closes connections and writes a checkpoint.
    pub fn stop(&self) -> Result<()> {
        self.control(&["stop", "-m", "fast"])
    }

    /// Kills every process of the server at once, without a final write.
    pub fn kill(&self) -> Result<()> {
        run(Command::new("sh").args(["-c", KILL_ALL, "kill", &self.pid()?]))?;
        // If no init process reaps it, the zombie's pid looks alive to the next server.
        std::fs::remove_file(self.data().join("postmaster.pid"))
    }

    /// Suspends every process of the server (SIGSTOP) until the guard is dropped: connections are accepted, but nothing
    /// is answered.
    pub fn freeze(&self) -> Result<FreezeGuard> {
        let pid = self.pid()?;
        run(Command::new("sh").args(["-c", SIGNAL_ALL, "freeze", &pid, "STOP"]))?;
        Ok(FreezeGuard { pid })
    }

    fn pid(&self) -> Result<String> {
        let pid_file = std::fs::read_to_string(self.data().join("postmaster.pid"))?;
        Ok(pid_file.lines().next().unwrap_or_default().to_owned())
    }

    /// Restarts a stopped or killed server with the same port and data, and waits until it answers.
    pub fn restart(&self) -> Result<()> {
        let log = self.folder.join("log");
        let options = format!("-p {}", self.port);
        self.control(&["start", "-o", &options, "-l", &log.to_string_lossy()])
    }

    /// Locks a table in `ACCESS EXCLUSIVE` mode until the guard is dropped.
    pub fn lock(&self, url: &str, table: &str) -> Result<TableLock> {
        let mut psql = self.program("psql");
        psql.args(["-X", "-q", "-t", "-v", "ON_ERROR_STOP=1", url]);
        let mut session = psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let statements = format!("BEGIN;\nLOCK TABLE {table} IN ACCESS EXCLUSIVE MODE;\nSELECT 'locked';\n");
        let mut input = session.stdin.take().ok_or_else(|| Error::other("psql takes no input"))?;
        std::io::Write::write_all(&mut input, statements.as_bytes())?;
        let mut said = String::new();
        let mut output = BufReader::new(session.stdout.take().ok_or_else(|| Error::other("psql has no output"))?);
        while !said.contains("locked") {
            if output.read_line(&mut said)? == 0 {
                return Err(Error::other(format!("cannot lock {table}")));
            }
        }
        Ok(TableLock { session, input: Some(input) })
    }

    fn control(&self, arguments: &[&str]) -> Result<()> {
        let data = self.data();
        run(self.program("pg_ctl").args(arguments).args(["-w", "-s", "-t", "60", "-D"]).arg(data))
    }

    fn url_of(&self, database: &str) -> String {
        format!("postgres://{SUPERUSER}@127.0.0.1:{}/{database}", self.port)
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// A program of the server. PostgreSQL refuses to run as root, so root switches to the user `postgres`.
    fn program(&self, name: &str) -> Command {
        let path = self.programs.join(name);
        let mut command = if is_root().unwrap_or(false) {
            let mut command = Command::new("setpriv");
            command.arg(format!("--reuid={SUPERUSER}")).arg(format!("--regid={SUPERUSER}")).arg("--init-groups");
            command.arg("--").arg(path);
            command
        } else {
            Command::new(path)
        };
        command.current_dir(&self.folder);
        command
    }
}

/// Unlocks the table when dropped.
pub struct TableLock {
    session: Child,
    input: Option<ChildStdin>,
}

impl Drop for TableLock {
    fn drop(&mut self) {
        // The end of input ends the session, which releases the lock.
        self.input = None;
        let _ = self.session.wait();
    }
}

/// Resumes a frozen server when dropped.
pub struct FreezeGuard {
    pid: String,
}

impl Drop for FreezeGuard {
    fn drop(&mut self) {
        let _ = run(Command::new("sh").args(["-c", SIGNAL_ALL, "thaw", &self.pid, "CONT"]));
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

/// Runs a command to its end; its output becomes the error. The output goes to a file, because a server that inherits
/// a pipe keeps it open.
fn run(command: &mut Command) -> Result<()> {
    let said = tempfile::tempfile()?;
    let mut reader = said.try_clone()?;
    let status = command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said).status()?;
    if status.success() {
        return Ok(());
    }
    let mut text = String::new();
    std::io::Seek::rewind(&mut reader)?;
    std::io::Read::read_to_string(&mut reader, &mut text)?;
    let program = Path::new(command.get_program()).display().to_string();
    Err(Error::other(format!("{program} failed: {}", text.trim())))
}

fn is_root() -> Result<bool> {
    Ok(std::fs::metadata("/proc/self")?.uid() == 0)
}

/// The newest installed server, else the one on the path.
fn find_programs() -> Result<PathBuf> {
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = installed
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path().join("bin"))))
        .filter(|(_, folder)| folder.join("initdb").exists())
        .max();
    if let Some((_, folder)) = newest {
        return Ok(folder);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .find(|folder| folder.join("initdb").exists() && folder.join("pg_ctl").exists())
        .ok_or_else(|| Error::other("no PostgreSQL server is installed (Debian: postgresql)"))
}

//! Runs the binary in a private folder with a private environment.

use chimera_core::access::mac;
use chimera_core::secret::Secret;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use tempfile::TempDir;

pub(crate) struct Workspace {
    pub(crate) dir: TempDir,
    env: Vec<(String, String)>,
    server_env: Vec<(String, String)>,
    via: Vec<String>,
}

/// The exit status and output of a finished command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Workspace {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), env: Vec::new(), server_env: Vec::new(), via: Vec::new() }
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn envs(mut self, env: &[(String, String)]) -> Self {
        self.env.extend_from_slice(env);
        self
    }

    /// Sets a variable for `dev` and `serve` only.
    pub(crate) fn server_env(mut self, name: &str, value: &str) -> Self {
        self.server_env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Configures actors: `admin` at L2, and `user_ada`, who may decide approvals of other actors' runs.
    pub(crate) fn with_actors(self) -> Self {
        let actors = r#"
[[tenant]]
domains = ["acme.example", "127.0.0.1"]

[[actor]]
id = "admin"
scopes = ["*"]
quota_per_minute = 10000
autonomy_level = "L2_ExecuteNotify"

[[actor]]
id = "user_ada"
scopes = ["approvals.decide", "runs.*", "workflows.*", "local.*", "s3.*", "s3_upload", "echo"]
quota_per_minute = 10000
autonomy_level = "L2_ExecuteNotify"
"#;
        self.env("CHIMERA_ACCESS__ACTORS_FILE", "actors.toml").file("actors.toml", actors)
    }

    pub(crate) fn file(self, name: &str, text: &str) -> Self {
        std::fs::write(self.dir.path().join(name), text).unwrap();
        self
    }

    /// Prefixes every command with another program, for example one that enters a namespace.
    pub(crate) fn wrapped_in(mut self, program: Vec<String>) -> Self {
        self.via = program;
        self
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let binary = env!("CARGO_BIN_EXE_chimera");
        let mut command = match self.via.split_first() {
            None => Command::new(binary),
            Some((program, rest)) => {
                let mut command = Command::new(program);
                command.args(rest).arg(binary);
                command
            }
        };
        command.args(args).current_dir(self.dir.path()).env_clear().envs(self.env.iter().cloned());
        if matches!(args.first(), Some(&("dev" | "serve"))) {
            command.envs(self.server_env.iter().cloned());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts a command without waiting for its end.
    pub(crate) fn start(&self, args: &[&str]) -> Child {
        self.command(args).spawn().unwrap()
    }

    pub(crate) fn run(&self, args: &[&str]) -> CommandOutput {
        let Output { status, stdout, stderr } = self.command(args).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        CommandOutput { status: status.code().unwrap(), stdout: text(stdout), stderr: text(stderr) }
    }

    /// Runs a command that must succeed, and parses its JSON output.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let said = self.run(&[args, &["--json"]].concat());
        assert_eq!(said.status, 0, "{args:?}: {}{}", said.stdout, said.stderr);
        serde_json::from_str(&said.stdout).unwrap()
    }

    /// Starts `chimera dev --json` on a free port, without examples, and waits until it is ready.
    pub(crate) fn dev(&self, args: &[&str]) -> Server {
        self.dev_with_examples(&[&["--no-examples"], args].concat())
    }

    /// Like [`Workspace::dev`], with the examples.
    pub(crate) fn dev_with_examples(&self, args: &[&str]) -> Server {
        let mut child = self.start(&[&["dev", "--json", "--listen", "127.0.0.1:0"], args].concat());
        let (log, _) = follow_log(&mut child);
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("unexpected output of dev: {line:?}"));
        let address = ready["url"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
        Server { child, log: Some(log), ready, address }
    }

    /// Starts `chimera serve` on a free port and waits until it logs its address.
    pub(crate) fn serve(&self, args: &[&str]) -> Server {
        self.start_serving(&[&["serve", "--listen", "127.0.0.1:0"], args].concat())
    }

    /// Like [`Workspace::serve`], on the configured address.
    pub(crate) fn serve_as_configured(&self) -> Server {
        self.start_serving(&["serve"])
    }

    /// Starts `chimera serve` and waits until it accepts connections, even if it is not ready.
    pub(crate) fn start_listening(&self) -> Server {
        let address = format!("127.0.0.1:{}", chimera_testkit::net::free_port());
        let mut child = self.start(&["serve", "--listen", &address]);
        let (log, _) = follow_log(&mut child);
        wait_until("the listener", || TcpStream::connect(&address).err().map(|error| error.to_string()));
        Server { child, log: Some(log), ready: Value::Null, address }
    }

    fn start_serving(&self, args: &[&str]) -> Server {
        let mut child = self.start(args);
        let (log, address) = follow_log(&mut child);
        let Ok(address) = address.recv() else { panic!("serve did not start: {}", log.join().unwrap()) };
        Server { child, log: Some(log), ready: Value::Null, address }
    }
}

/// Reads a server's log in a thread. Returns the thread and a channel for the address in the log.
fn follow_log(child: &mut Child) -> (JoinHandle<String>, Receiver<String>) {
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let (announce, address) = sync_channel(1);
    let log = std::thread::spawn(move || {
        let mut text = String::new();
        for line in stderr.lines() {
            let line = line.unwrap();
            let fields: Value = serde_json::from_str(&line).unwrap_or_default();
            if fields["message"] == "serving" {
                let _ = announce.try_send(fields["metadata"]["address"].as_str().unwrap().to_owned());
            }
            text += &line;
            text.push('\n');
        }
        text
    });
    (log, address)
}

/// Repeats a check until it returns `None`. Fails after a minute with the last reason.
#[allow(clippy::disallowed_methods, reason = "a wait needs a timeout")]
pub(crate) fn wait_until(what: &str, mut no: impl FnMut() -> Option<String>) {
    let begun = std::time::Instant::now();
    while let Some(instead) = no() {
        assert!(begun.elapsed().as_secs() < 60, "timed out waiting for {what}: {instead}");
    }
}

/// A running server. It is killed when dropped.
pub(crate) struct Server {
    child: Child,
    log: Option<JoinHandle<String>>,
    pub(crate) ready: Value,
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    /// Sends a request line, and reads until the server closes the connection.
    pub(crate) fn ask(&self, head: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(format!("{head}\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// The key of an actor that `chimera dev` created.
    pub(crate) fn key(&self, actor: &str) -> String {
        let actors = self.ready["actors"].as_array().unwrap();
        let found = actors.iter().find(|found| found["actor"] == actor).unwrap();
        found["hmac_key"].as_str().unwrap().to_owned()
    }

    pub(crate) fn signature(&self, actor: &str, body: &str) -> String {
        mac::sign(&Secret::new(self.key(actor)), body.as_bytes())
    }

    /// Status and body of `/readyz`.
    pub(crate) fn readiness(&self) -> (u16, Value) {
        let answer = self.ask("GET /readyz HTTP/1.1");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let kind = if status == 200 { "application/json" } else { "application/problem+json" };
        assert!(head.contains(&format!("content-type: {kind}")), "{answer}");
        (status, serde_json::from_str(body).unwrap())
    }

    /// Waits until `/readyz` fails because of `part`, with a reason that contains `reason`.
    pub(crate) fn wait_until_not_ready(&self, part: &str, reason: &str) {
        let mut said = Value::Null;
        wait_until(&format!("{part}: {reason}"), || {
            let (status, document) = self.readiness();
            said = document;
            let checks = said["error"]["details"]["checks"].as_array().cloned().unwrap_or_default();
            let found = checks.iter().find(|check| check["name"] == part && check["ok"] == false);
            let told = found.is_some_and(|check| check["reason"].as_str().unwrap().contains(reason));
            (status != 503 || !told).then(|| said.to_string())
        });
        assert_eq!(said["error"]["code"], "NOT_READY");
        assert!(said["error"]["message"].as_str().unwrap().contains(part), "{said}");
        assert!(!said.to_string().contains("chimera.db") && !said.to_string().contains("/tmp"), "{said}");
    }

    pub(crate) fn wait_until_ready(&self) {
        wait_until("readiness", || {
            let (status, document) = self.readiness();
            (status != 200).then(|| document.to_string())
        });
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Waits for its end. Returns the exit status and everything written to stderr.
    pub(crate) fn wait(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().unwrap().code();
        (status, self.log.take().unwrap().join().unwrap())
    }

    pub(crate) fn stop(self) -> (Option<i32>, String) {
        self.signal("TERM");
        self.wait()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().unwrap().permissions().mode() & 0o777
}

//! A private Redis server on its own port, without persistence, killed when the test ends.
//!
//! A small shell supervises it. The shell kills the server at the end of its standard input, which comes when
//! the test stops the server and also when the test process dies.

use crate::net::free_port;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

const TRIES: usize = 20;
const KEEPER: &str = r#""$@" & server=$!; read -r _; kill -9 "$server"; wait "$server""#;

pub struct PrivateRedis {
    port: u16,
    options: Vec<String>,
    keeper: Option<Child>,
}

impl PrivateRedis {
    /// Starts a server and waits until it takes connections.
    ///
    /// # Panics
    /// When `redis-server` is missing or does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with further options, such as `["--requirepass", "x"]`.
    ///
    /// # Panics
    /// When `redis-server` is missing or does not start.
    #[must_use]
    pub fn start_with(options: &[&str]) -> Self {
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        for _ in 0..TRIES {
            let port = free_port();
            // Another process may take the port first.
            if let Some(keeper) = launch(port, &options) {
                return Self { port, options, keeper: Some(keeper) };
            }
        }
        panic!("redis-server does not start");
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs a command on a connection of its own. A list is returned as lines.
    ///
    /// # Panics
    /// When it doesn't answer.
    #[must_use]
    pub fn ask(&self, words: &[&str]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        let parts: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        stream.write_all(format!("*{}\r\n{parts}", words.len()).as_bytes()).expect("a question");
        answer(&mut BufReader::new(stream)).join("\n")
    }

    /// Kills the server and waits for its end. Its data is lost.
    pub fn stop(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            let _ = keeper.wait();
        }
    }

    /// Restarts it, empty, on the same port.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart(&mut self) {
        self.stop();
        self.keeper = launch(self.port, &self.options);
        assert!(self.keeper.is_some(), "redis-server does not start again");
    }
}

impl Drop for PrivateRedis {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Reads one RESP reply: the strings in it.
fn answer(from: &mut BufReader<TcpStream>) -> Vec<String> {
    let mut line = String::new();
    from.read_line(&mut line).expect("an answer");
    let (kind, rest) = line.trim_end().split_at(1);
    let count = || rest.parse::<i64>().expect("a length");
    match kind {
        "*" => (0..count()).flat_map(|_| answer(from)).collect(),
        "$" if count() < 0 => vec![String::new()],
        "$" => {
            let mut text = vec![0; usize::try_from(count()).expect("a length") + 2];
            from.read_exact(&mut text).expect("a text");
            vec![String::from_utf8_lossy(&text[..text.len() - 2]).into_owned()]
        }
        _ => vec![rest.to_owned()],
    }
}

/// Starts a server; `None` if it exited before it was ready.
fn launch(port: u16, options: &[String]) -> Option<Child> {
    let mut keeper = Command::new("sh")
        .args(["-c", KEEPER, "sh", "redis-server", "--bind", "127.0.0.1", "--port", &port.to_string()])
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no", "--logfile", ""])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell");
    let output = keeper.stdout.take().expect("a pipe");
    let (announce, ready) = mpsc::channel();
    std::thread::spawn(move || {
        // Reads to the end, so that a full pipe never blocks the server.
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let verdict = if line.contains("eady to accept connections") {
                true
            } else if line.contains("Failed listening") || line.contains("not found") {
                false
            } else {
                continue;
            };
            let _ = announce.send(verdict);
        }
    });
    let up = ready.recv().unwrap_or(false);
    if !up {
        drop(keeper.stdin.take());
        let _ = keeper.wait();
    }
    up.then_some(keeper)
}

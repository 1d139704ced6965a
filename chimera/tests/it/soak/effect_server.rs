//! The external system that runs act on: an HTTP server that logs every request before it responds.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// The timeout of waits for requests.
const PATIENCE: Duration = Duration::from_secs(90);

/// Identifies an effect: root run, node, item.
pub(crate) type EffectId = (String, String, i64);

/// The requests for one effect.
#[derive(Clone, Debug, Default)]
pub(crate) struct EffectRequests {
    pub(crate) keys: BTreeSet<String>,
    pub(crate) requests: usize,
}

impl EffectRequests {
    /// Whether it took effect. The first request of `stubborn` is refused.
    pub(crate) fn is_done(&self, node: &str) -> bool {
        self.requests > usize::from(node == "stubborn")
    }
}

#[derive(Default)]
struct ServerState {
    asked: BTreeMap<EffectId, EffectRequests>,
    notes: BTreeMap<String, Vec<Value>>,
    count: u64,
    /// Settled doubts; they count as progress although they send no request.
    settled: u64,
    connections: usize,
}

/// The server. It lives as long as the process.
pub(crate) struct EffectServer {
    pub(crate) address: SocketAddr,
    noted: Mutex<ServerState>,
    more: Condvar,
}

impl EffectServer {
    pub(crate) fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let outside = Arc::new(Self { address, noted: Mutex::default(), more: Condvar::new() });
        let serving = Arc::clone(&outside);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let outside = Arc::clone(&serving);
                outside.noted().connections += 1;
                std::thread::spawn(move || {
                    // A node that is killed in the middle of a request has not made it.
                    drop(outside.serve(stream.unwrap()));
                    outside.noted().connections -= 1;
                    outside.more.notify_all();
                });
            }
        });
        outside
    }

    fn noted(&self) -> MutexGuard<'_, ServerState> {
        self.noted.lock().unwrap()
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        loop {
            let (mut line, mut key, mut length) = (String::new(), String::new(), 0);
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            loop {
                let mut header = String::new();
                reader.read_line(&mut header)?;
                let Some((name, value)) = header.trim().split_once(": ") else { break };
                match name.to_ascii_lowercase().as_str() {
                    "idempotency-key" => value.clone_into(&mut key),
                    "content-length" => length = value.parse().unwrap(),
                    _ => {}
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            let mut words = line.split(' ');
            let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let (status, answer) = self.note(method, path, key, &body);
            let answer = answer.to_string();
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                answer.len()
            );
            stream.write_all((head + &answer).as_bytes())?;
        }
    }

    /// Records a request, which is its effect, and returns the answer.
    fn note(&self, method: &str, path: &str, key: String, body: &[u8]) -> (u16, Value) {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let mut noted = self.noted();
        noted.count += 1;
        self.more.notify_all();
        if let Some(run) = path.strip_prefix("/notes/") {
            return (200, noted.notes.get(run).cloned().unwrap_or_default().into());
        }
        if method != "GET" {
            let asked = noted.asked.entry(place(&body)).or_default();
            asked.keys.insert(key);
            asked.requests += 1;
            if path == "/stubborn" && asked.requests == 1 {
                return (503, json!({"ok": false}));
            }
            if path == "/notes" {
                noted.notes.entry(place(&body).0).or_default().push(body);
            }
        }
        (200, json!({"ok": true}))
    }

    /// The number of requests so far.
    pub(crate) fn count(&self) -> u64 {
        self.noted().count
    }

    /// Counts a settled doubt.
    pub(crate) fn settled(&self) {
        self.noted().settled += 1;
        self.more.notify_all();
    }

    /// Waits for this many new effects. Repetitions don't count, or a campaign could pass without progress.
    pub(crate) fn wait_for_effects(&self, things: usize) {
        let mut noted = self.noted();
        let wanted = noted.asked.len() + things;
        while noted.asked.len() < wanted {
            let before = (noted.asked.len(), noted.settled);
            let (now, waited) = self
                .more
                .wait_timeout_while(noted, PATIENCE, |noted| (noted.asked.len(), noted.settled) == before)
                .unwrap();
            noted = now;
            assert!(!waited.timed_out(), "no progress outside: {} of {wanted} effects", noted.asked.len());
        }
    }

    /// Waits until `count` requests were made, but at most 200 ms.
    pub(crate) fn wait_briefly(&self, count: u64) {
        let bound = Duration::from_millis(200);
        drop(self.more.wait_timeout_while(self.noted(), bound, |noted| noted.count < count).unwrap());
    }

    /// Waits until every request that killed nodes had sent is recorded.
    pub(crate) fn wait_until_quiet(&self) {
        // Connections are accepted in order: when this one is answered, all earlier ones are counted.
        let mut last = TcpStream::connect(self.address).unwrap();
        last.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        last.read_exact(&mut [0]).unwrap();
        drop(last);
        let (noted, waited) =
            self.more.wait_timeout_while(self.noted(), PATIENCE, |noted| noted.connections > 0).unwrap();
        assert!(!waited.timed_out(), "{} connections are still open", noted.connections);
    }

    pub(crate) fn has_done(&self, place: &EffectId) -> bool {
        self.noted().asked.get(place).is_some_and(|asked| asked.is_done(&place.1))
    }

    pub(crate) fn asked(&self) -> BTreeMap<EffectId, EffectRequests> {
        self.noted().asked.clone()
    }
}

fn place(body: &Value) -> EffectId {
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    (text("run"), text("node"), body["item"].as_i64().unwrap_or(0))
}

//! Clients that start runs over HTTP, retry until they get an answer, and follow every run to its end.
//!
//! They pause during a restore: a client holds a read lock on `pause` from its request until it has recorded the
//! answer.

use super::doubts::SettledDoubts;
use super::effect_server::EffectServer;
use chimera_core::access::token::{Claims, TokenKey};
use chimera_core::secret::Secret;
use chimera_core::time::Timestamp;
use chimera_testkit::access::{signed_with, unix_seconds};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::time::Duration;

/// The HMAC key of `admin` on every node.
pub(crate) const KEY: &str = "the-key-of-admin-on-all-nodes";

/// The key with which all nodes sign access tokens.
pub(crate) const SECRET: &str = "the-secret-of-all-nodes";

/// A token of `admin` that never expires during a campaign.
fn token() -> String {
    let key = TokenKey::Hs256 { secret: Secret::new(SECRET), restricted_to: None };
    let claims = Claims {
        sub: "admin".into(),
        exp: 1 << 40,
        iat: 1,
        nbf: None,
        jti: None,
        fam: None,
        aud: None,
        scopes: None,
        key_of: None,
    };
    key.sign(&claims).unwrap()
}

fn now() -> Timestamp {
    Timestamp::from_micros(i64::try_from(unix_seconds()).unwrap() * 1_000_000)
}

/// Clients that start runs.
const STARTERS: usize = 3;
/// Clients that wait for the end of started runs.
const FOLLOWERS: usize = 2;
/// Maximum number of unfinished runs.
const UNFINISHED_MAX: usize = 60;
/// The read timeout: a suspended node accepts connections but does not answer.
const READ_TIMEOUT: Duration = Duration::from_secs(4);
/// How long no node may be up.
const PATIENCE: Duration = Duration::from_secs(300);

/// The addresses of the nodes that are up.
#[derive(Default)]
pub(crate) struct Nodes {
    up: Mutex<BTreeMap<usize, String>>,
    changed: Condvar,
    turn: AtomicUsize,
}

impl Nodes {
    pub(crate) fn set(&self, node: usize, address: Option<String>) {
        let mut up = self.up.lock().unwrap();
        match address {
            Some(address) => up.insert(node, address),
            None => up.remove(&node),
        };
        self.changed.notify_all();
    }

    /// Waits until a node is up.
    pub(crate) fn wait_until_up(&self) {
        let up = self.up.lock().unwrap();
        let (_up, waited) = self.changed.wait_timeout_while(up, PATIENCE, |up| up.is_empty()).unwrap();
        assert!(!waited.timed_out(), "no node came up");
    }

    /// The address of a node, round-robin.
    fn one(&self) -> Option<String> {
        let up = self.up.lock().unwrap();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        up.values().nth(turn.checked_rem(up.len())?).cloned()
    }
}

/// A run that was acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct AcknowledgedRun {
    pub(crate) run: String,
    /// When it was first requested, as a [`Clients::moment`].
    pub(crate) asked: u64,
    /// When it was acknowledged.
    pub(crate) told: u64,
}

/// A run that was lost in a restore.
#[derive(Clone, Debug)]
pub(crate) struct LostRun {
    /// Its idempotency key, if it was acknowledged.
    pub(crate) key: Option<String>,
    pub(crate) run: String,
}

/// The state shared by all clients.
pub(crate) struct Clients {
    pub(crate) nodes: Nodes,
    pub(crate) outside: Arc<EffectServer>,
    pub(crate) pause: RwLock<()>,
    /// A logical clock that orders requests, acknowledgements and backups.
    moment: AtomicU64,
    /// No more runs are started.
    closing: AtomicBool,
    /// A node is suspended. No outcomes are reported meanwhile, because it may still send a call.
    frozen: AtomicBool,
    pub(crate) unfinished: Mutex<VecDeque<String>>,
    /// Runs that are requested or have not ended.
    pub(crate) count: AtomicUsize,
    starting: AtomicUsize,
    /// Runs that were acknowledged and have not ended.
    pub(crate) open: Mutex<BTreeSet<String>>,
    /// Every acknowledged run that was not lost, by key.
    pub(crate) acknowledged: Mutex<BTreeMap<String, AcknowledgedRun>>,
    /// Every lost run.
    pub(crate) gone: Mutex<Vec<LostRun>>,
    /// Keys of lost runs that have to be requested again.
    pub(crate) retry_keys: Mutex<Vec<String>>,
    /// Every run, including children, that had work left at a restore.
    pub(crate) restored: Mutex<BTreeSet<String>>,
    pub(crate) settled: SettledDoubts,
}

impl Clients {
    pub(crate) fn new(outside: Arc<EffectServer>) -> Self {
        Self {
            nodes: Nodes::default(),
            outside,
            pause: RwLock::default(),
            moment: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            frozen: AtomicBool::new(false),
            unfinished: Mutex::default(),
            count: AtomicUsize::new(0),
            starting: AtomicUsize::new(STARTERS),
            open: Mutex::default(),
            acknowledged: Mutex::default(),
            gone: Mutex::default(),
            retry_keys: Mutex::default(),
            restored: Mutex::default(),
            settled: SettledDoubts::default(),
        }
    }

    /// Runs the clients until `campaign` is over and every run has ended. Returns the runs by key.
    pub(crate) fn work(&self, campaign: impl FnOnce()) -> BTreeMap<String, AcknowledgedRun> {
        std::thread::scope(|scope| {
            // The clients must stop even if the campaign panics.
            let closing = CloseGuard(self);
            (0..STARTERS).for_each(|number| drop(scope.spawn(move || self.start_runs(number))));
            (0..FOLLOWERS).for_each(|_| drop(scope.spawn(|| self.follow_runs())));
            scope.spawn(|| self.settle_doubts());
            campaign();
            drop(closing);
        });
        std::mem::take(&mut self.acknowledged.lock().unwrap())
    }

    pub(crate) fn freeze(&self, frozen: bool) {
        self.frozen.store(frozen, Ordering::SeqCst);
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::SeqCst)
    }

    /// The next tick of the logical clock.
    pub(crate) fn moment(&self) -> u64 {
        self.moment.fetch_add(1, Ordering::SeqCst)
    }

    /// Whether no work is left.
    pub(crate) fn are_done(&self) -> bool {
        self.starting.load(Ordering::SeqCst) == 0 && self.count.load(Ordering::SeqCst) == 0
    }

    /// How many runs were acknowledged so far.
    pub(crate) fn acknowledged_count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    /// Waits until every run that is open now has ended or has a call with unknown outcome.
    pub(crate) fn wait_until_ended(&self) {
        let mut open = self.open.lock().unwrap().clone();
        let over = self.until(|| {
            // One request for all: after a restore there may be a thousand.
            let in_doubt = self.runs_in_doubt();
            open.retain(|run| !in_doubt.contains(run) && !self.has_ended(run));
            open.is_empty()
        });
        if let Some(run) = open.first().filter(|_| !over) {
            let shown = ["", "/steps"].map(|rest| self.ask("GET", &format!("/runs/{run}{rest}"), None));
            panic!("{run} and {} more neither ended nor have an unknown outcome: {shown:#?}", open.len() - 1);
        }
    }

    fn until(&self, mut done: impl FnMut() -> bool) -> bool {
        let bound = PATIENCE.as_millis() / 200 * 2;
        for _ in 0..bound {
            if done() {
                return true;
            }
            // Checks again after the next request outside, or after a short timeout.
            self.outside.wait_briefly(self.outside.count() + 1_000_000);
        }
        false
    }

    fn start_runs(&self, number: usize) {
        // The followers must not wait forever if this client panics.
        let _ended = StarterGuard(&self.starting);
        let mut runs = 0;
        loop {
            let seen = self.outside.count();
            let again = std::mem::take(&mut *self.retry_keys.lock().unwrap());
            if !again.is_empty() {
                // All concurrently: Redis still holds claims of these keys, so each answer takes a while.
                std::thread::scope(|scope| again.into_iter().for_each(|key| drop(scope.spawn(|| self.start_run(key)))));
            } else if self.closing.load(Ordering::SeqCst) {
                return;
            } else if self.count.load(Ordering::SeqCst) < UNFINISHED_MAX {
                runs += 1;
                self.start_run(format!("client {number} run {runs}"));
            }
            self.outside.wait_briefly(seen + 8);
        }
    }

    /// Requests a run under its key until it is acknowledged.
    fn start_run(&self, key: String) {
        self.count.fetch_add(1, Ordering::SeqCst);
        let asked = self.moment();
        loop {
            self.nodes.wait_until_up();
            let _unpaused = self.pause.read().unwrap();
            let Some(run) = self.start_or_find(&key) else { continue };
            let was = |gone: &LostRun| gone.run == run;
            assert!(!self.gone.lock().unwrap().iter().any(was), "{key} is answered with {run}, which was lost");
            self.open.lock().unwrap().insert(run.clone());
            self.unfinished.lock().unwrap().push_back(run.clone());
            let known = AcknowledgedRun { run, asked, told: self.moment() };
            self.acknowledged.lock().unwrap().insert(key, known);
            return;
        }
    }

    /// Starts the run of a key, or finds the existing one. `None` if no node answers with a run.
    pub(crate) fn start_or_find(&self, key: &str) -> Option<String> {
        let body = json!({"workflow_id": "load", "idempotency_key": key, "autonomy_level": "L3_ExecuteSilent"});
        match self.ask("POST", "/act", Some(&body)) {
            Some((200 | 202, said)) => Some(said["run_id"].as_str().unwrap().to_owned()),
            Some((409, said)) => {
                let run = said["error"]["details"]["run_id"].as_str().map(str::to_owned);
                // Without a run id, an earlier attempt that timed out is still in flight.
                assert!(run.is_some() || said["error"]["code"] == "CONFLICT_IDEMPOTENCY", "{said}");
                run
            }
            None | Some((429 | 503, _)) => None,
            Some(other) => panic!("cannot start a run: {other:?}"),
        }
    }

    fn follow_runs(&self) {
        while !self.are_done() {
            self.nodes.wait_until_up();
            let unpaused = self.pause.read().unwrap();
            let next = self.unfinished.lock().unwrap().pop_front();
            let more = match next {
                Some(run) if self.has_ended(&run) => {
                    self.open.lock().unwrap().remove(&run);
                    self.count.fetch_sub(1, Ordering::SeqCst);
                    continue;
                }
                Some(run) => {
                    self.unfinished.lock().unwrap().push_back(run);
                    10
                }
                None => 1,
            };
            drop(unpaused);
            self.outside.wait_briefly(self.outside.count() + more);
        }
    }

    /// Whether a run has completed. Fails the test if it ended in another way.
    fn has_ended(&self, run: &str) -> bool {
        let Some((200, shown)) = self.ask("GET", &format!("/runs/{run}"), None) else { return false };
        let status = shown["status"].as_str().unwrap();
        assert!(!matches!(status, "failed" | "cancelled" | "rolled_back"), "{shown:#}");
        status == "completed"
    }

    /// Sends a request to a node. `None` if no node is up or the answer was incomplete.
    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
        ask_at(&self.nodes.one()?, method, path, body)
    }
}

/// Sends a request to the node at an address.
pub(crate) fn ask_at(address: &str, method: &str, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
    let body = body.map(Value::to_string).unwrap_or_default();
    let signed = signed_with(KEY, "admin", now(), (method, path), body.as_bytes());
    let signed: String = signed.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {}\r\n\
         {signed}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        token(),
        body.len()
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let (status, answer): (u16, Value) = (head.split(' ').nth(1)?.parse().ok()?, serde_json::from_str(body).ok()?);
    // A node with a wrong clock rejects a current signature as stale; the caller retries.
    let stale = status == 401 && answer["error"]["details"]["reason"] == "stale";
    (!stale).then_some((status, answer))
}

/// Decrements the count of starters when dropped, also after a panic.
struct StarterGuard<'a>(&'a AtomicUsize);

impl Drop for StarterGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Tells the clients to finish when dropped, also after a panic.
struct CloseGuard<'a>(&'a Clients);

impl Drop for CloseGuard<'_> {
    fn drop(&mut self) {
        self.0.closing.store(true, Ordering::SeqCst);
    }
}

//! Clients that start runs over HTTP, ask again until they are answered, and see every run to its end.

use super::outside::Outside;
use chimera_core::access::token::{Claims, TokenKey};
use chimera_core::access::{Secret, mac};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// What every node lets in.
pub(crate) const KEY: &str = "the-key-of-admin-on-all-nodes";

/// What all nodes sign access tokens with.
pub(crate) const SECRET: &str = "the-secret-of-all-nodes";

/// A token of admin that outlives every campaign.
fn token() -> String {
    let key = TokenKey::Hs256 { secret: Secret::new(SECRET), only: None };
    let claims =
        Claims { sub: "admin".into(), exp: 1 << 40, iat: 1, nbf: None, jti: None, fam: None, aud: None, scopes: None };
    key.sign(&claims).unwrap()
}

/// Clients that start runs.
const STARTERS: usize = 3;
/// Clients that look after those that were started.
const FOLLOWERS: usize = 2;
/// Runs that may be unfinished at a time.
const UNFINISHED_MAX: usize = 60;
/// A node that stands still takes connections and says nothing.
const SILENCE: Duration = Duration::from_secs(4);
/// How long nobody may be there to be asked.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the nodes are that can be asked.
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

    /// One of them, each in turn.
    fn one(&self) -> String {
        let up = self.up.lock().unwrap();
        let (up, waited) = self.changed.wait_timeout_while(up, PATIENCE, |up| up.is_empty()).unwrap();
        assert!(!waited.timed_out(), "no node came up");
        let at = self.turn.fetch_add(1, Ordering::Relaxed) % up.len();
        up.values().nth(at).unwrap().clone()
    }
}

/// What the clients share.
pub(crate) struct Clients {
    pub(crate) nodes: Nodes,
    outside: Arc<Outside>,
    /// No more runs are started.
    closing: AtomicBool,
    /// People settle nothing while a node stands still: it may yet do what it was about to.
    frozen: AtomicBool,
    unfinished: Mutex<VecDeque<String>>,
    count: AtomicUsize,
    starting: AtomicUsize,
    /// Runs that were acknowledged and have not ended.
    open: Mutex<BTreeSet<String>>,
    /// Every run that was acknowledged, with its key.
    acknowledged: Mutex<BTreeMap<String, String>>,
    settled: AtomicUsize,
}

impl Clients {
    pub(crate) fn new(outside: Arc<Outside>) -> Self {
        Self {
            nodes: Nodes::default(),
            outside,
            closing: AtomicBool::new(false),
            frozen: AtomicBool::new(false),
            unfinished: Mutex::default(),
            count: AtomicUsize::new(0),
            starting: AtomicUsize::new(STARTERS),
            open: Mutex::default(),
            acknowledged: Mutex::default(),
            settled: AtomicUsize::new(0),
        }
    }

    /// Works until `campaign` is over and every run has ended; gives the runs by their key.
    pub(crate) fn work(&self, campaign: impl FnOnce()) -> BTreeMap<String, String> {
        std::thread::scope(|scope| {
            // A campaign that fails must not leave its clients working for ever.
            let closing = Closing(self);
            (0..STARTERS).for_each(|number| drop(scope.spawn(move || self.start_runs(number))));
            (0..FOLLOWERS).for_each(|_| drop(scope.spawn(|| self.follow_runs())));
            campaign();
            drop(closing);
        });
        std::mem::take(&mut self.acknowledged.lock().unwrap())
    }

    pub(crate) fn freeze(&self, frozen: bool) {
        self.frozen.store(frozen, Ordering::SeqCst);
    }

    /// How often a person had to say what became of something.
    pub(crate) fn settled(&self) -> usize {
        self.settled.load(Ordering::SeqCst)
    }

    /// How many runs were acknowledged so far.
    pub(crate) fn so_far(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    /// Waits until every run that is under way now has ended or needs a person.
    pub(crate) fn until_ended(&self) {
        let open = self.open.lock().unwrap().clone();
        for run in open {
            if !self.until(|| self.has_ended(&run) || self.doubted(&run).is_some()) {
                let shown = ["", "/steps"].map(|rest| self.ask("GET", &format!("/runs/{run}{rest}"), None));
                panic!("{run} neither ended nor came into doubt: {shown:#?}");
            }
        }
    }

    fn until(&self, mut done: impl FnMut() -> bool) -> bool {
        let bound = PATIENCE.as_millis() / 200 * 2;
        for _ in 0..bound {
            if done() {
                return true;
            }
            // Whatever it is, requests tell that something goes on; without any it is looked at anyway.
            self.outside.look_up(self.outside.count() + 1_000_000);
        }
        false
    }

    fn start_runs(&self, number: usize) {
        // A client that fails must not leave those waiting who follow its runs.
        let _ended = Ended(&self.starting);
        let mut runs = 0;
        while !self.closing.load(Ordering::SeqCst) {
            let seen = self.outside.count();
            if self.count.load(Ordering::SeqCst) < UNFINISHED_MAX {
                runs += 1;
                self.start_run(format!("client {number} run {runs}"));
            }
            self.outside.look_up(seen + 8);
        }
    }

    /// Asks for a run under its key until somebody says that it is there.
    fn start_run(&self, key: String) {
        self.count.fetch_add(1, Ordering::SeqCst);
        let body = json!({"workflow_id": "load", "idempotency_key": key, "autonomy_level": "L3_ExecuteSilent"});
        let run = loop {
            match self.ask("POST", "/act", Some(&body)) {
                Some((200 | 202, said)) => break said["run_id"].as_str().unwrap().to_owned(),
                Some((409, said)) => match said["error"]["details"]["run_id"].as_str() {
                    Some(run) => break run.to_owned(),
                    // An earlier attempt whose answer was not waited for is still on its way.
                    None => assert_eq!(said["error"]["code"], "CONFLICT_IDEMPOTENCY", "{said}"),
                },
                None | Some((429 | 503, _)) => {}
                Some(other) => panic!("a run can't be started: {other:?}"),
            }
        };
        self.acknowledged.lock().unwrap().insert(key, run.clone());
        self.open.lock().unwrap().insert(run.clone());
        self.unfinished.lock().unwrap().push_back(run);
    }

    fn follow_runs(&self) {
        loop {
            let next = self.unfinished.lock().unwrap().pop_front();
            match next {
                Some(run) if self.has_ended(&run) => {
                    self.open.lock().unwrap().remove(&run);
                    self.count.fetch_sub(1, Ordering::SeqCst);
                }
                Some(run) => {
                    self.settle(&run);
                    self.unfinished.lock().unwrap().push_back(run);
                    self.outside.look_up(self.outside.count() + 10);
                }
                None if self.starting.load(Ordering::SeqCst) == 0 && self.count.load(Ordering::SeqCst) == 0 => return,
                None => self.outside.look_up(self.outside.count() + 1),
            }
        }
    }

    /// Whether a run has ended, which it may do only well.
    fn has_ended(&self, run: &str) -> bool {
        let Some((200, shown)) = self.ask("GET", &format!("/runs/{run}"), None) else { return false };
        let status = shown["status"].as_str().unwrap();
        assert!(!matches!(status, "failed" | "cancelled" | "rolled_back"), "{shown:#}");
        status == "completed"
    }

    /// The step of a run that nobody can tell of; only one of its nodes may come to that.
    fn doubted(&self, run: &str) -> Option<String> {
        let (200, mut said) = self.ask("GET", &format!("/runs/{run}/steps"), None)? else { return None };
        let steps: Vec<Value> = serde_json::from_value(said["steps"].take()).unwrap();
        let step = steps.into_iter().find(|step| step["status"] == "outcome_unknown")?;
        assert_eq!(step["node_id"], "once", "{step:#}");
        Some(step["step_id"].as_str().unwrap().to_owned())
    }

    /// A person looks outside and says what became of it.
    fn settle(&self, run: &str) {
        let Some(step) = self.doubted(run).filter(|_| !self.frozen.load(Ordering::SeqCst)) else { return };
        let happened = self.outside.has(&(run.to_owned(), "once".to_owned(), 0));
        let output = json!({"status": 200, "headers": {}, "body": {"ok": true}, "truncated": false});
        let found =
            if happened { json!({"outcome": "happened", "output": output}) } else { json!({"outcome": "never"}) };
        // Whether it counted shows when the run goes on.
        if let Some((202, _)) = self.ask("POST", &format!("/runs/{run}/steps/{step}/resolve"), Some(&found)) {
            self.settled.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Asks a node. None: it was killed before its answer was whole.
    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
        let address = self.nodes.one();
        let mut stream = TcpStream::connect(&address).ok()?;
        stream.set_read_timeout(Some(SILENCE)).unwrap();
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {}\r\n\
             x-hmac-signature: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            token(),
            mac::sign(&Secret::new(KEY), body.as_bytes()),
            body.len()
        );
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, serde_json::from_str(body).ok()?))
    }
}

/// Counts a client down, however it ended.
struct Ended<'a>(&'a AtomicUsize);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Ends the clients' work, however the campaign ended.
struct Closing<'a>(&'a Clients);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.closing.store(true, Ordering::SeqCst);
    }
}

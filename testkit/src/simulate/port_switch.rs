//! A switch between an engine and its ports, which can freeze or cut them.
//!
//! An engine acts only through its ports. Once they are cut, nothing its tasks still do is visible: that is a
//! crash. Frozen ports are a process that is stopped (SIGSTOP). The deadline of a tool call still drops it while
//! frozen, as if the process had resumed at that moment.

use async_trait::async_trait;
use chimera_core::record::{Page, Select, Tx};
use chimera_core::tool::{EffectKind, Spec, is_dry_run};
use chimera_engine::flow::port::{CallContext, CheckResult, CompletedCall, Tool, ToolError};
use chimera_engine::port::{CommitError, HeldLane, Hold, ReadError, Receipt, Records, Unavailable};
use serde_json::Value;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Notify, watch};

/// The state of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Calls pass.
    Up,
    /// Calls wait until it is up again.
    Frozen,
    /// Calls never return. Final.
    Cut,
}

/// A point at which to cut a wire; numbers start at one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CrashPoint {
    /// The transaction is committed, but its receipt is not delivered.
    AfterCommit(u64),
    /// The call is recorded as dispatched, but not sent.
    BeforeSend(u64),
    /// The call was sent, but its answer is not recorded.
    AfterSend(u64),
}

pub struct PortSwitch {
    link: Mutex<LinkState>,
    /// Notified when the link changes. It wakes waiters in order; a `watch` channel wakes them in random order, and a
    /// seed would not reproduce its simulation.
    link_changed: Notify,
    cut_at: Option<CrashPoint>,
    commits: watch::Sender<u64>,
    sends: AtomicU64,
}

impl Default for PortSwitch {
    fn default() -> Self {
        Self::cut_at(None)
    }
}

impl PortSwitch {
    /// A wire that cuts itself at `moment`.
    #[must_use]
    pub fn cut_at(moment: Option<CrashPoint>) -> Self {
        Self {
            link: Mutex::new(LinkState::Up),
            link_changed: Notify::new(),
            cut_at: moment,
            commits: watch::Sender::new(0),
            sends: AtomicU64::new(0),
        }
    }

    #[must_use]
    pub fn link(&self) -> LinkState {
        *self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Committed transactions and outside calls so far.
    #[must_use]
    pub fn counted(&self) -> (u64, u64) {
        (*self.commits.borrow(), self.sends.load(Ordering::Relaxed))
    }

    /// Changes with every commit.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.commits.subscribe()
    }

    /// Sets the link. A cut link stays cut.
    pub fn set(&self, link: LinkState) {
        let mut now = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        if *now != LinkState::Cut && *now != link {
            *now = link;
            drop(now);
            self.link_changed.notify_waiters();
        }
    }

    /// Returns while the link is up, waits while it is frozen, and never returns once it is cut.
    pub async fn pass(&self) {
        self.wait_for(LinkState::Up).await;
    }

    /// Waits until it is cut.
    pub async fn wait_until_cut(&self) {
        self.wait_for(LinkState::Cut).await;
    }

    async fn wait_for(&self, wanted: LinkState) {
        loop {
            let turned = self.link_changed.notified();
            if self.link() == wanted {
                return;
            }
            turned.await;
        }
    }

    fn reached(&self, moment: CrashPoint) {
        if self.cut_at == Some(moment) {
            self.set(LinkState::Cut);
        }
    }
}

pub struct SwitchedRecords {
    inner: Arc<dyn Records>,
    wire: Arc<PortSwitch>,
}

impl SwitchedRecords {
    #[must_use]
    pub fn new(inner: Arc<dyn Records>, wire: Arc<PortSwitch>) -> Self {
        Self { inner, wire }
    }
}

#[async_trait]
impl Records for SwitchedRecords {
    async fn commit(&self, tx: Tx) -> Result<Receipt, CommitError> {
        self.wire.pass().await;
        let receipt = self.inner.commit(tx).await;
        if receipt.is_ok() {
            self.wire.commits.send_modify(|commits| *commits += 1);
            let count = *self.wire.commits.borrow();
            self.wire.reached(CrashPoint::AfterCommit(count));
        }
        self.wire.pass().await;
        receipt
    }

    async fn read(&self, select: Select) -> Result<Page, ReadError> {
        self.wire.pass().await;
        let page = self.inner.read(select).await;
        self.wire.pass().await;
        page
    }

    fn lane(&self, affinity: u64) -> Option<HeldLane> {
        self.inner.lane(affinity)
    }

    fn hold(&self) -> Option<Hold> {
        self.inner.hold()
    }

    async fn ready(&self) -> Result<(), Unavailable> {
        self.inner.ready().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

pub struct SwitchedTool {
    inner: Arc<dyn Tool>,
    wire: Arc<PortSwitch>,
}

impl SwitchedTool {
    #[must_use]
    pub fn new(inner: Arc<dyn Tool>, wire: Arc<PortSwitch>) -> Self {
        Self { inner, wire }
    }

    /// Waits for the link. Returns the number of the call if it reaches the outside.
    async fn before_call(&self, dry: bool) -> Option<u64> {
        self.wire.pass().await;
        if dry || self.inner.spec().effect == EffectKind::Pure {
            return None;
        }
        let count = self.wire.sends.fetch_add(1, Ordering::Relaxed) + 1;
        self.wire.reached(CrashPoint::BeforeSend(count));
        self.wire.pass().await;
        Some(count)
    }

    async fn after_call(&self, count: Option<u64>) {
        if let Some(count) = count {
            self.wire.reached(CrashPoint::AfterSend(count));
        }
        self.wire.pass().await;
    }
}

#[async_trait]
impl Tool for SwitchedTool {
    fn spec(&self) -> &Arc<Spec> {
        self.inner.spec()
    }

    fn host(&self, input: &Value) -> Option<String> {
        self.inner.host(input)
    }

    fn answers_at_once(&self, input: &Value) -> bool {
        self.inner.answers_at_once(input)
    }

    async fn execute(&self, ctx: &CallContext, input: &Value) -> Result<Value, ToolError> {
        let count = self.before_call(is_dry_run(input)).await;
        let answer = self.inner.execute(ctx, input).await;
        self.after_call(count).await;
        answer
    }

    async fn rollback(&self, ctx: &CallContext, done: &CompletedCall) -> Result<Value, ToolError> {
        let count = self.before_call(false).await;
        let answer = self.inner.rollback(ctx, done).await;
        self.after_call(count).await;
        answer
    }

    async fn check(&self, ctx: &CallContext, input: &Value) -> Result<CheckResult, ToolError> {
        let count = self.before_call(false).await;
        let answer = self.inner.check(ctx, input).await;
        self.after_call(count).await;
        answer
    }
}

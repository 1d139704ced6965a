//! What a tool does when it is called.

use async_trait::async_trait;
use chimera_core::error::Code;
pub use chimera_core::flow::call::{Found, Sent, ToolError};
use chimera_core::time::Timestamp;
use chimera_core::tool::Spec;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::watch;
use uuid::Uuid;

/// A tool.
///
/// **Checked.** `input` has passed the input schema, in real and dry mode alike; what `execute`
/// gives must pass the output schema unless it is the answer of a dry run.
/// **Dry.** With `dry_run: true` in the input nothing outside is touched or changed; only tools
/// whose metadata says `dry_run_supported` are called so, and they answer with `Spec::simulated`.
/// **Bounded.** It answers before `CallContext::deadline` and stops soon after `cancelled`; the
/// caller drops the call a little later in any case. Once the deadline has passed it sends nothing that could
/// have an effect, even if the process stood still in the middle of the call: it reads the clock right before
/// it sends, since another node may have taken the call over.
/// **Honest.** An error says whether anything may have been sent. `Sent::No` is a promise.
/// **Once.** A write under one `idempotency_key` has one effect, as far as the tool can see to it.
#[async_trait]
pub trait Tool: Send + Sync {
    /// What it says of itself.
    fn spec(&self) -> &Arc<Spec>;

    /// The host that a call with this input would reach, as `host` or `host:port`: calls to one host are
    /// bounded, so that one that hangs does not hold up the others. None: no host in particular.
    /// Asked often, answered at once.
    fn host(&self, _input: &Value) -> Option<String> {
        None
    }

    /// Does it.
    async fn execute(&self, ctx: &CallContext, input: &Value) -> Result<Value, ToolError>;

    /// Undoes a call that ended with `output`; gives what was done. One that is
    /// `Rollback::Repeatable` may be asked again under the same key, any other never is by itself.
    async fn rollback(&self, _ctx: &CallContext, _done: &Done) -> Result<Value, ToolError> {
        let message = format!("{} does not support rollback", self.spec().name);
        Err(ToolError::not_sent(Code::InvalidTransition, message))
    }

    /// Finds out whether the call under `ctx.idempotency_key` took effect, without causing one.
    async fn check(&self, _ctx: &CallContext, _input: &Value) -> Result<Found, ToolError> {
        Ok(Found::Unknowable)
    }
}

/// A call that ended well.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// What it was called with.
    pub input: Value,
    /// What it gave.
    pub output: Value,
}

/// For whom and under which identity a call is made.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// Whose run it is.
    pub tenant: String,
    /// Who asked for the run.
    pub actor: String,
    /// The run.
    pub run_id: Uuid,
    /// The step.
    pub step_id: Uuid,
    /// The effect, the same for every attempt.
    pub effect_id: Uuid,
    /// What makes repeated sends one effect.
    pub idempotency_key: String,
    /// Which try this is, from one.
    pub attempt: u32,
    /// When the answer must be there.
    pub deadline: Timestamp,
    /// Time left at the moment of the call.
    pub time_left: std::time::Duration,
    /// W3C trace context to hand on.
    pub traceparent: String,
    /// Says when nobody wants the answer any more.
    pub cancel: Cancel,
}

/// The wish to stop.
#[derive(Clone, Debug)]
pub struct Cancel(watch::Receiver<bool>);

impl Cancel {
    /// A wish and the handle that utters it; dropping the handle utters nothing.
    #[must_use]
    pub fn pair() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    /// Whether it was uttered.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is; for ever if it never is.
    pub async fn cancelled(&mut self) {
        if self.0.wait_for(|cancelled| *cancelled).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

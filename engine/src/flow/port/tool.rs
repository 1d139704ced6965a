//! Tools: what the engine calls to act on the outside world.

use super::CallLog;
use async_trait::async_trait;
use chimera_core::error::Code;
pub use chimera_core::flow::call::{CheckResult, Sent, ToolError};
use chimera_core::time::Timestamp;
use chimera_core::tool::Spec;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::watch;
use uuid::Uuid;

/// What a step of a run calls.
///
/// **Checked.** `input` has passed the input schema, in real and dry mode alike. The result of `execute` must pass the
/// output schema, unless it is the result of a dry run.
/// **Dry.** With `dry_run: true` in the input nothing outside is touched or changed. Only tools whose metadata says
/// `dry_run_supported` are called this way, and they answer with `Spec::simulated`. An input that `execute` rejects before
/// it sends anything is rejected by a dry run too, with the same error: a person approves what a dry run says. Secrets are
/// not resolved, and what only the receiver knows is not asked for.
/// **Bounded.** It returns before `CallContext::deadline` and stops soon after `cancelled`; the caller drops the call a
/// little later in any case. After the deadline it sends nothing that could have an effect, even if the process was
/// suspended during the call: it reads the clock right before sending, since another node may have taken over the call.
/// **Honest.** An error says whether anything may have been sent. `Sent::No` is a guarantee: a limit gives the
/// place of such a call back.
/// **Once.** Writes under one `idempotency_key` have one effect, as far as the tool can ensure it.
#[async_trait]
pub trait Tool: Send + Sync {
    fn spec(&self) -> &Arc<Spec>;

    /// The host that a call with this input would reach, as `host` or `host:port`; `None` for no particular host. Calls
    /// per host are limited, so that one that hangs does not block the others. Called often; must not block.
    fn host(&self, _input: &Value) -> Option<String> {
        None
    }

    /// Whether a call with this input returns when it is polled for the first time, without heavy work. The first turn of
    /// a run makes such a call before its commit if it is pure.
    fn answers_at_once(&self, _input: &Value) -> bool {
        false
    }

    /// Performs the call.
    async fn execute(&self, ctx: &CallContext, input: &Value) -> Result<Value, ToolError>;

    /// Undoes a call that returned `output`; returns what was done. A `Rollback::Repeatable` one may be called again
    /// under the same key; any other is never retried automatically.
    async fn rollback(&self, _ctx: &CallContext, _done: &CompletedCall) -> Result<Value, ToolError> {
        let message = format!("{} does not support rollback", self.spec().name);
        Err(ToolError::not_sent(Code::InvalidTransition, message))
    }

    /// Determines whether the call under `ctx.idempotency_key` took effect, without causing one.
    async fn check(&self, _ctx: &CallContext, _input: &Value) -> Result<CheckResult, ToolError> {
        Ok(CheckResult::Unknown)
    }
}

/// A call that succeeded.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletedCall {
    pub input: Value,
    pub output: Value,
}

/// The identity and limits of one call.
#[derive(Clone, Debug)]
pub struct CallContext {
    pub tenant: String,
    /// Who requested the run.
    pub actor: String,
    pub run_id: Uuid,
    pub step_id: Uuid,
    /// The same for every attempt.
    pub effect_id: Uuid,
    /// The same for every attempt, so that retries have one effect.
    pub idempotency_key: String,
    /// Starts at one.
    pub attempt: u32,
    /// In steady time.
    pub deadline: Timestamp,
    /// Until the deadline, at the moment of the call.
    pub time_left: std::time::Duration,
    /// W3C trace context to propagate.
    pub traceparent: String,
    /// Fires when the result is no longer needed.
    pub cancel: CancelToken,
    /// Takes what the tool has to say about the call.
    pub log: CallLog,
}

/// A cancellation token.
#[derive(Clone, Debug)]
pub struct CancelToken(watch::Receiver<bool>);

impl CancelToken {
    /// The token and its sender. Dropping the sender does not cancel.
    #[must_use]
    pub fn pair() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for cancellation; forever if it never comes.
    pub async fn cancelled(&mut self) {
        if self.0.wait_for(|cancelled| *cancelled).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

//! The outside world that tools act on: effects by idempotency key.
//!
//! It survives every engine that acts on it, so a test can crash one, start another, and compare.

use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// A call that reached the outside.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    pub tool: String,
    /// The idempotency key.
    pub key: String,
    pub input: Value,
}

/// Every call so far, and the effects that exist now.
#[derive(Debug, Default)]
pub struct ExternalSystem {
    sent: Mutex<Vec<Sent>>,
    standing: Mutex<BTreeMap<(String, String), Value>>,
}

impl ExternalSystem {
    /// Records a call and its effect.
    pub fn record(&self, tool: &str, key: &str, input: &Value, made: Value) {
        let sent = Sent { tool: tool.to_owned(), key: key.to_owned(), input: input.clone() };
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).push(sent);
        let key = (tool.to_owned(), key.to_owned());
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).insert(key, made);
    }

    /// Removes an effect. Returns false if there is none, for example because it was undone before.
    pub fn undo(&self, tool: &str, key: &str) -> bool {
        let key = (tool.to_owned(), key.to_owned());
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).remove(&key).is_some()
    }

    #[must_use]
    pub fn find(&self, tool: &str, key: &str) -> Option<Value> {
        let key = (tool.to_owned(), key.to_owned());
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    /// Every call that ever reached the outside, in order.
    #[must_use]
    pub fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of effects that exist now.
    #[must_use]
    pub fn effect_count(&self) -> usize {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

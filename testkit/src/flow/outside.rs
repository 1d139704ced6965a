//! The world outside: what has happened there, by idempotency key.
//!
//! It outlives every engine that acts on it, so a test can crash one, start another, and compare.

use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// One thing that reached the outside.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    /// The tool.
    pub tool: String,
    /// Under which key.
    pub key: String,
    /// What was sent.
    pub input: Value,
}

/// What has happened outside.
#[derive(Debug, Default)]
pub struct Outside {
    sent: Mutex<Vec<Sent>>,
    standing: Mutex<BTreeMap<(String, String), Value>>,
}

impl Outside {
    /// Something reaches the outside; gives what it made.
    pub fn happen(&self, tool: &str, key: &str, input: &Value, made: Value) {
        let sent = Sent { tool: tool.to_owned(), key: key.to_owned(), input: input.clone() };
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).push(sent);
        let key = (tool.to_owned(), key.to_owned());
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).insert(key, made);
    }

    /// Something is undone; false if nothing stands there, because it was undone before.
    pub fn undo(&self, tool: &str, key: &str) -> bool {
        let key = (tool.to_owned(), key.to_owned());
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).remove(&key).is_some()
    }

    /// What stands under a key.
    #[must_use]
    pub fn find(&self, tool: &str, key: &str) -> Option<Value> {
        let key = (tool.to_owned(), key.to_owned());
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    /// Everything that ever reached the outside, in its order.
    #[must_use]
    pub fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many things stand outside now.
    #[must_use]
    pub fn standing(&self) -> usize {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

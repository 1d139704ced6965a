//! Events from outside, which runs wait for by name and key.
//!
//! An event is delivered to every run of its tenant that waits for its name and key when it is published, and to every
//! run that begins such a wait before the event expires. A run gets an event once. Name and key form a *channel*: each
//! wait that begins marks its channel, and a publisher compares the mark, so that neither misses the other.

pub mod rows;

use crate::limits;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An event as a run gets it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReceivedEvent {
    /// Unique in the tenant while the event is kept.
    pub event_id: String,
    pub name: String,
    pub key: String,
    pub payload: Value,
    pub sent_by: String,
    /// An RFC 3339 time.
    pub sent_at: String,
}

/// What came of looking for an event in the store.
#[derive(Clone, Debug, PartialEq)]
pub enum EventLookup {
    Found(Box<ReceivedEvent>),
    NotFound,
    /// The store did not answer.
    Failed,
}

/// Checks the name of an event.
pub fn check_event_name(name: &str) -> Result<(), String> {
    let good = |letter: u8| letter.is_ascii_alphanumeric() || b"._-:/".contains(&letter);
    let starts = name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    if starts && name.len() <= limits::EVENT_NAME_CHARS_MAX && name.bytes().all(good) {
        return Ok(());
    }
    Err(format!(
        "an event's name consists of letters, digits and `.`, `_`, `-`, `:`, `/`, begins with a letter or digit and has at most {} characters",
        limits::EVENT_NAME_CHARS_MAX
    ))
}

/// Checks the key of an event.
pub fn check_event_key(key: &str) -> Result<(), String> {
    check_text("key", key, limits::EVENT_KEY_CHARS_MAX)
}

/// Checks the id that a publisher gives to an event.
pub fn check_event_id(id: &str) -> Result<(), String> {
    check_text("id", id, limits::EVENT_ID_CHARS_MAX)
}

fn check_text(what: &str, text: &str, chars_max: usize) -> Result<(), String> {
    let fits = !text.is_empty() && text.chars().count() <= chars_max && !text.chars().any(char::is_control);
    if fits {
        return Ok(());
    }
    Err(format!("an event's {what} has 1 to {chars_max} characters and no control characters"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_keys_that_can_not_be_told_apart_are_refused() {
        for good in ["payment.received", "a", "github:push/main", "9-lives_x"] {
            assert_eq!(check_event_name(good), Ok(()), "{good}");
        }
        for bad in ["", ".a", "a b", "a\n", "ä", "${x}", &"a".repeat(129)] {
            assert!(check_event_name(bad).is_err(), "{bad}");
        }
        assert!(check_event_key("order 17 / ä").is_ok() && check_event_key("").is_err());
        assert!(check_event_key("a\u{0}").is_err() && check_event_key(&"k".repeat(257)).is_err());
        assert!(check_event_id(&"i".repeat(128)).is_ok() && check_event_id(&"i".repeat(129)).is_err());
    }
}

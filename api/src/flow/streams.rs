//! How many streams of events may be open: so many in all, and so many for each actor, so that one who opens
//! streams without end takes none from the others.

use chimera_core::limits::{EVENT_STREAMS_MAX, EVENT_STREAMS_PER_ACTOR_MAX};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Streams that are open in this process.
#[derive(Clone)]
pub(crate) struct Streams {
    open: Arc<Mutex<Open>>,
    total_max: usize,
    per_actor_max: usize,
}

#[derive(Default)]
struct Open {
    total: usize,
    by_actor: BTreeMap<String, usize>,
}

/// The place of one stream; it is free again when this is dropped.
pub(crate) struct Place {
    open: Arc<Mutex<Open>>,
    actor: String,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// Too many are open.
    All,
    /// The actor has as many as it may.
    Actor(usize),
}

impl Default for Streams {
    fn default() -> Self {
        Self::bounded(EVENT_STREAMS_MAX, EVENT_STREAMS_PER_ACTOR_MAX)
    }
}

impl Streams {
    pub(crate) fn bounded(total_max: usize, per_actor_max: usize) -> Self {
        Self { open: Arc::default(), total_max, per_actor_max }
    }

    /// A place for a stream of an actor.
    pub(crate) fn enter(&self, actor: &str) -> Result<Place, Full> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let held = open.by_actor.get(actor).copied().unwrap_or(0);
        if held >= self.per_actor_max {
            return Err(Full::Actor(held));
        }
        if open.total >= self.total_max {
            return Err(Full::All);
        }
        open.total += 1;
        open.by_actor.insert(actor.to_owned(), held + 1);
        Ok(Place { open: Arc::clone(&self.open), actor: actor.to_owned() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.total = open.total.saturating_sub(1);
        let left = open.by_actor.get(&self.actor).copied().unwrap_or(0).saturating_sub(1);
        match left {
            0 => drop(open.by_actor.remove(&self.actor)),
            left => drop(open.by_actor.insert(self.actor.clone(), left)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_actor_takes_only_its_share_and_gives_back_what_it_had() {
        let streams = Streams::bounded(3, 2);
        let mut ann: Vec<Place> = (0..2).map(|_| streams.enter("user_ann").ok().unwrap()).collect();
        assert_eq!(streams.enter("user_ann").err(), Some(Full::Actor(2)));
        let bob = streams.enter("user_bob").ok().unwrap();
        assert_eq!(streams.enter("user_cat").err(), Some(Full::All));
        drop((ann.pop(), bob));
        assert!(streams.enter("user_ann").is_ok() && streams.enter("user_cat").is_ok());
        drop(ann);
        assert!(streams.open.lock().unwrap().by_actor.is_empty());
    }
}

//! Rows and ledger entries that commit with what a request changes, or not at all.
//!
//! A permit carries them: the nonce of a single-use request, and whatever its caller adds with
//! [`Permit::with_alongside`]. Every use case adds them to the transaction of its change. If one of these rows
//! conflicts, nothing was changed, and [`Permit::is_alongside_conflict`] tells this from a conflict of the change
//! itself, which a use case may retry.
//!
//! [`Permit::with_alongside`]: super::Permit::with_alongside
//! [`Permit::is_alongside_conflict`]: super::Permit::is_alongside_conflict

use crate::port::CommitError;
use chimera_core::ledger::SealedEntry;
use chimera_core::record::{Conflict, Insert, RowKey, Tx, Update};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What commits with a change.
#[derive(Clone, Debug, Default)]
pub(super) struct Alongside {
    inserts: Vec<Insert>,
    updates: Vec<Update>,
    entries: Vec<SealedEntry>,
    /// Whether a transaction has taken it along. Shared by all permits of a request.
    taken: Arc<AtomicBool>,
}

impl Alongside {
    pub(super) fn rows(inserts: Vec<Insert>) -> Self {
        Self { inserts, ..Self::default() }
    }

    /// The same and more. Ordered steps and touches are not taken: a conflict must name its row.
    pub(super) fn with(&self, more: Tx) -> Self {
        let mut all = self.clone();
        all.inserts.extend(more.inserts);
        all.updates.extend(more.updates);
        all.entries.extend(more.entries);
        all
    }

    /// Adds it to a transaction, once.
    pub(super) fn add_to(&self, tx: &mut Tx) {
        self.taken.store(true, Ordering::Relaxed);
        add_new(&mut tx.inserts, &self.inserts);
        add_new(&mut tx.updates, &self.updates);
        add_new(&mut tx.entries, &self.entries);
    }

    pub(super) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether a transaction failed because of one of its rows.
    pub(super) fn is_conflict(&self, error: &CommitError) -> bool {
        let CommitError::Conflict(Conflict::Exists(key) | Conflict::Stale(key) | Conflict::Missing(key)) = error else {
            return false;
        };
        let inserted = |row: &Insert| row.keys().any(|columns| row.key(columns).is_some_and(|own| same(&own, key)));
        self.inserts.iter().any(inserted) || self.updates.iter().any(|row| same(&row.row_key(), key))
    }
}

fn same(own: &RowKey, key: &RowKey) -> bool {
    (own.table, own.columns, &own.values) == (key.table, key.columns, &key.values)
}

fn add_new<T: Clone + PartialEq>(all: &mut Vec<T>, own: &[T]) {
    for item in own {
        if !all.contains(item) {
            all.push(item.clone());
        }
    }
}

//! Ledger entries as rows.

use crate::json::document;
use crate::lanes::ledger;
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::ledger::{ActorType, ChainHead, StoredEntry, StoredLink, SubjectType};
use chimera_core::record::{Row, Value};
use proptest::prelude::*;

fn row(stored: &StoredEntry) -> Row {
    stored.row()
}

/// SWARM-100
#[test]
fn an_entry_has_the_fields_and_words_of_its_document() {
    let subjects = ["task", "worker_run", "worker_result", "judge_decision", "transaction", "publish_event", "other"];
    assert!(SubjectType::ALL.iter().map(|subject| subject.as_str()).eq(subjects));
    assert!(ActorType::ALL.iter().map(|actor| actor.as_str()).eq(["system", "human", "external_node"]));
    let mut row = row(&ledger().lanes[&1][0]);
    let filled =
        ["id", "tenant_id", "subject_type", "subject_id", "event_type", "actor_type", "timestamp", "data_json"];
    for column in filled {
        assert!(!row.get(column).is_null(), "{column}");
        let mut without = row.clone();
        without.cells[AUDIT_LOG_ENTRIES.position(column).unwrap()] = Value::Null;
        assert!(StoredEntry::from_row(&without).is_err(), "{column}");
    }
    for column in ["subject_type", "actor_type"] {
        let mut other = row.clone();
        other.cells[AUDIT_LOG_ENTRIES.position(column).unwrap()] = "robot".into();
        assert!(StoredEntry::from_row(&other).is_err(), "{column}");
    }
    row.cells[AUDIT_LOG_ENTRIES.position("actor_id").unwrap()] = Value::Null;
    assert_eq!(StoredEntry::from_row(&row).unwrap().sealed.entry.actor_id, None);
}

#[test]
fn a_link_continues_its_own_chain_only() {
    let ledger = ledger();
    let link = |at: usize| StoredLink::from_row(&row(&ledger.lanes[&1][at])).unwrap();
    assert!(link(0).continues(ChainHead::EMPTY) && link(1).continues(link(0).link.head()));
    assert!(!link(1).continues(ChainHead::EMPTY) && !link(2).continues(link(0).link.head()));
}

proptest! {
    /// Any data, including fractions and non-Latin scripts, is read back as the bytes that were digested.
    #[test]
    fn an_entry_comes_back_from_its_row_intact(data in document()) {
        let mut entry = ledger().lanes[&1][0].sealed.entry.clone();
        entry.data = data;
        if let Ok(sealed) = entry.seal([1; 16]) {
            let stored = StoredEntry::after(4, ChainHead::EMPTY, sealed);
            let read = StoredEntry::from_row(&row(&stored)).unwrap();
            prop_assert!(read.sealed.is_intact() && read.is_linked());
            prop_assert_eq!(read.sealed.data_json, stored.sealed.data_json);
        }
    }
}

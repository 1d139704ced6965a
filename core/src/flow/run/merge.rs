//! One change per row: what a turn does to a row in several steps is written as one.
//!
//! A turn takes in whatever has arrived, so it may ask for a decision and drop the question again,
//! or settle an effect and send it anew. A store takes one change of a row per transaction.

use crate::record::{Insert, Touch, Update, Value};
use std::collections::BTreeMap;

/// Folds later changes of a row into its insert or its first change.
pub(crate) fn merge(inserts: &mut [Insert], updates: Vec<Update>) -> Vec<Update> {
    let mut places: BTreeMap<u64, usize> = BTreeMap::new();
    let mut kept: Vec<Update> = Vec::with_capacity(updates.len());
    let changed = |insert: &&mut Insert| updates.iter().any(|update| std::ptr::eq(update.table, insert.table));
    let mut added: BTreeMap<u64, &mut Insert> =
        inserts.iter_mut().filter(changed).filter_map(|insert| Some((touch_of_insert(insert)?, insert))).collect();
    for update in updates {
        let touch = touch_of(&update);
        if let Some(insert) = added.get_mut(&touch) {
            overlay(&mut insert.cells, update.set);
            continue;
        }
        match places.get(&touch) {
            // The first change says what the row must look like; the last says what it becomes.
            Some(at) => overlay(&mut kept[*at].set, update.set),
            None => {
                places.insert(touch, kept.len());
                kept.push(update);
            }
        }
    }
    kept
}

fn touch_of(update: &Update) -> u64 {
    let values: Vec<&Value> = update.key.iter().collect();
    Touch::of(update.table, update.table.key, &values).digest
}

fn touch_of_insert(insert: &Insert) -> Option<u64> {
    let values: Vec<&Value> = insert.table.key.iter().map(|column| insert.value(column)).collect();
    values.iter().all(|value| !value.is_null()).then(|| Touch::of(insert.table, insert.table.key, &values).digest)
}

fn overlay(cells: &mut Vec<(usize, Value)>, set: Vec<(usize, Value)>) {
    for (at, value) in set {
        match cells.binary_search_by_key(&at, |(position, _)| *position) {
            Ok(place) => cells[place].1 = value,
            Err(place) => cells.insert(place, (at, value)),
        }
    }
}

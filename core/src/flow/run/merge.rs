//! Merges the changes of a turn to one per row.
//!
//! A turn applies whatever has arrived, so it may request an approval and cancel it again, or settle
//! an effect and resend it. A store accepts one change per row and transaction.

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
            // The first change has the expected values; the last has the new ones.
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
    Touch::new(update.table, update.table.key, &values).digest
}

fn touch_of_insert(insert: &Insert) -> Option<u64> {
    let values: Vec<&Value> = insert.table.key.iter().map(|column| insert.value(column)).collect();
    values.iter().all(|value| !value.is_null()).then(|| Touch::new(insert.table, insert.table.key, &values).digest)
}

fn overlay(cells: &mut Vec<(usize, Value)>, set: Vec<(usize, Value)>) {
    for (at, value) in set {
        match cells.binary_search_by_key(&at, |(position, _)| *position) {
            Ok(place) => cells[place].1 = value,
            Err(place) => cells.insert(place, (at, value)),
        }
    }
}

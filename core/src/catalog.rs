//! Every table and view of every room.
//!
//! Each room describes its own tables (`<room>/tables.rs`). The stores need all of them at once, to compare them with the
//! live schema and to copy them. No room uses this list.

use crate::record::Table;

/// Every table and view, parents first.
#[must_use]
pub fn catalog() -> Vec<&'static Table> {
    let rooms: [&[&'static Table]; 8] = [
        crate::access::tables::ALL,
        crate::intent::tables::ALL,
        crate::flow::tables::ALL,
        crate::flow::event::tables::ALL,
        crate::act::tables::ALL,
        crate::swarm::tables::ALL,
        crate::job::tables::ALL,
        crate::ledger::tables::ALL,
    ];
    let mut all: Vec<_> = rooms.concat();
    all.sort_by_key(|table| table.rank);
    all
}

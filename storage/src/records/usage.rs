//! Which operations are used on which tables, and statements that prove whether they are possible now.
//!
//! Such a statement is only planned, except for those on a single row. Planning it requires the table, every named
//! column, and in PostgreSQL the privilege.

use super::is_probe;
use chimera_core::access::tables as access;
use chimera_core::catalog;
use chimera_core::flow::tables as flow;
use chimera_core::intent::tables as intent;
use chimera_core::ledger::tables as ledger;
use chimera_core::record::{Step, Table, Tx};
use std::collections::BTreeMap;

/// An operation on a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TableOp {
    Select,
    Insert,
    Update,
    Delete,
}

/// A set of table operations.
#[derive(Clone, Debug, Default)]
pub(super) struct TableOps(BTreeMap<(&'static str, TableOp), &'static Table>);

/// Tables with inserts.
static INSERTED: &[&Table] = &[
    &access::TENANTS,
    &access::ACTORS,
    &access::ACTOR_KEYS,
    &access::TOKEN_FAMILIES,
    &access::REFRESH_TOKENS,
    &access::REVOKED_TOKENS,
    &access::NONCES,
    &flow::WORKFLOWS,
    &flow::WORKFLOW_SHARES,
    &flow::RUNS,
    &flow::STEPS,
    &flow::TOOL_CALLS,
    &flow::EFFECTS,
    &flow::RUN_SIGNALS,
    &flow::RUN_PATCHES,
    &flow::CACHE_ENTRIES,
    &flow::NOTIFICATIONS,
    &flow::INBOX_MESSAGES,
    &flow::APPROVAL_REQUESTS,
    &flow::APPROVAL_DETAILS,
    &access::APPROVAL_LINKS,
    &ledger::AUDIT_LOGS,
    &ledger::AUDIT_LOG_ENTRIES,
    &ledger::LEDGER_LANES,
    &ledger::LEDGER_CHECKPOINTS,
    &ledger::LEDGER_NODES,
    &ledger::FEED_CURSORS,
    &ledger::IDEMPOTENCY_RECORDS,
    &ledger::RECORD_SCOPES,
    &ledger::STORE_STATE,
    &access::SIGNING_KEYS,
    &intent::INTENT_LOG,
    &intent::INTENT_SIGHTINGS,
];

/// Tables with updates.
static UPDATED: &[&Table] = &[
    &access::ACTORS,
    &access::ACTOR_KEYS,
    &access::SIGNING_KEYS,
    &access::TOKEN_FAMILIES,
    &access::REFRESH_TOKENS,
    &flow::RUNS,
    &flow::STEPS,
    &flow::TOOL_CALLS,
    &flow::EFFECTS,
    &flow::RUN_PATCHES,
    &flow::NOTIFICATIONS,
    &flow::APPROVAL_REQUESTS,
    &flow::APPROVAL_DETAILS,
    &access::APPROVAL_LINKS,
    &ledger::LEDGER_LANES,
    &ledger::FEED_CURSORS,
    &ledger::IDEMPOTENCY_RECORDS,
    &ledger::STORE_STATE,
];

/// Tables with deletes.
static DELETED: &[&Table] = &[
    &access::ACTORS,
    &access::ACTOR_KEYS,
    &access::NONCES,
    &access::REVOKED_TOKENS,
    &access::REFRESH_TOKENS,
    &access::TOKEN_FAMILIES,
    &flow::WORKFLOW_SHARES,
    &flow::RUN_SIGNALS,
    &flow::CACHE_ENTRIES,
    &intent::INTENT_SIGHTINGS,
    &ledger::IDEMPOTENCY_RECORDS,
];

impl TableOps {
    /// Everything that a server does.
    pub(super) fn all() -> Self {
        let mut all = Self::default();
        catalog().into_iter().for_each(|table| all.add(table, TableOp::Select));
        for (tables, how) in [(INSERTED, TableOp::Insert), (UPDATED, TableOp::Update), (DELETED, TableOp::Delete)] {
            tables.iter().for_each(|table| all.add(table, how));
        }
        all
    }

    /// What a transaction does. Every transaction advances its lane; a probe appends to the ledger and rolls back.
    pub(super) fn of(tx: &Tx) -> Self {
        let mut all = Self::default();
        tx.inserts.iter().for_each(|insert| all.add(insert.table, TableOp::Insert));
        tx.updates.iter().for_each(|update| all.add(update.table, TableOp::Update));
        for step in &tx.steps {
            match step {
                Step::Insert(insert) => all.add(insert.table, TableOp::Insert),
                Step::Lock { table, .. } | Step::Update { table, .. } => all.add(table, TableOp::Update),
                Step::Delete { table, .. } => all.add(table, TableOp::Delete),
            }
        }
        all.add(&ledger::LEDGER_LANES, TableOp::Update);
        if !tx.entries.is_empty() || is_probe(tx) {
            all.add(&ledger::AUDIT_LOG_ENTRIES, TableOp::Insert);
        }
        all
    }

    fn add(&mut self, table: &'static Table, how: TableOp) {
        self.0.insert((table.name, how), table);
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(super) fn remove_all(&mut self, other: &Self) {
        self.0.retain(|used, _| !other.0.contains_key(used));
    }

    /// Whether this is a subset of `others`.
    pub(super) fn is_within(&self, others: &Self) -> bool {
        self.0.keys().all(|used| others.0.contains_key(used))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn tables(&self) -> impl Iterator<Item = &'static Table> {
        let tables: BTreeMap<_, _> = self.0.values().map(|table| (table.name, *table)).collect();
        tables.into_values()
    }

    #[cfg(test)]
    pub(super) fn contains(&self, table: &Table, how: TableOp) -> bool {
        self.0.contains_key(&(table.name, how))
    }

    /// A statement for each operation, to be planned.
    pub(super) fn statements(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|((name, how), table)| {
            // Unquoted: SQLite treats a quoted name that matches no column as text.
            let columns = table.columns.iter().map(|column| column.name).collect::<Vec<_>>().join(", ");
            match how {
                TableOp::Select => format!("SELECT {columns} FROM {name}"),
                TableOp::Insert => format!("INSERT INTO {name} ({columns}) SELECT {columns} FROM {name}"),
                TableOp::Update => update_all(table),
                TableOp::Delete => format!("DELETE FROM {name}"),
            }
        })
    }
}

/// Sets every column to itself.
fn update_all(table: &Table) -> String {
    let set: Vec<String> = table.columns.iter().map(|column| format!("{0} = {0}", column.name)).collect();
    format!("UPDATE {} SET {}", table.name, set.join(", "))
}

/// Updates any one unlocked row without changing it, in PostgreSQL.
pub(super) fn update_one(table: &Table) -> String {
    format!("{} {}", update_all(table), any_one(table))
}

/// Deletes any one unlocked row, in PostgreSQL.
pub(super) fn delete_one(table: &Table) -> String {
    format!("DELETE FROM {} {}", table.name, any_one(table))
}

fn any_one(table: &Table) -> String {
    format!("WHERE ctid = (SELECT ctid FROM {} LIMIT 1 FOR UPDATE SKIP LOCKED)", table.name)
}

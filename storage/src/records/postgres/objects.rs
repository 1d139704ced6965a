//! Chimera's tables and views must carry only what its own migrations created.
//!
//! A foreign trigger, rule or row policy can drop or revert a change, and no statement result shows that. So the
//! catalogue is checked as the last statement of every batch, before its commit. Creating such an object needs a lock
//! that conflicts with a change of the table: what the check does not see has not fired, and does not fire at the
//! commit. Event triggers don't fire for row changes and are not checked.
//!
//! The full check costs about as much as a small batch. A batch runs a quick check of the tables that it changes, by
//! their OIDs, and the full check only if that does not pass.

use crate::migrate;
use chimera_engine::port::{Outage, Unavailable};
use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};

use super::failure::unavailable;

/// Relations and triggers of Chimera's schema, one per line: `r TABLE`, `v VIEW`, `t TABLE NAME TYPE ARGUMENTS`.
const OWN: &str = include_str!("objects.txt");

/// The first foreign object: its kind, its name, and its relation. A trigger is identified by its table, name, type
/// and arguments, and by its function's body.
pub(super) const LOOK: &str = "WITH own AS (SELECT c.oid, c.relname::text AS name, c.relkind::text = n.kind AS made, \
         c.relrowsecurity OR c.relforcerowsecurity AS secured \
         FROM unnest($1::text[], $2::text[]) AS n(name, kind) \
         JOIN pg_catalog.pg_class c ON c.oid = to_regclass(n.name)) \
     SELECT 'trigger', g.tgname::text, own.name FROM own \
         JOIN pg_catalog.pg_trigger g ON g.tgrelid = own.oid JOIN pg_catalog.pg_proc p ON p.oid = g.tgfoid \
         WHERE NOT g.tgisinternal AND (p.prosrc <> $4 OR NOT \
             concat_ws(' ', own.name, g.tgname, g.tgtype, encode(g.tgargs, 'escape')) = ANY ($3::text[])) \
     UNION ALL SELECT 'rule', w.rulename::text, own.name FROM own \
         JOIN pg_catalog.pg_rewrite w ON w.ev_class = own.oid WHERE w.rulename <> '_RETURN' \
     UNION ALL SELECT 'row security', '', own.name FROM own WHERE own.secured \
     UNION ALL SELECT 'relation', '', own.name FROM own WHERE NOT own.made LIMIT 1";

/// What the check compares with.
pub(super) struct OwnObjects {
    names: Vec<&'static str>,
    kinds: Vec<&'static str>,
    triggers: Vec<&'static str>,
    /// The one function that Chimera's triggers call.
    function: &'static str,
}

pub(super) static OWN_OBJECTS: LazyLock<OwnObjects> = LazyLock::new(|| {
    let lines = || OWN.lines().filter_map(|line| line.split_once(' '));
    let (kinds, names) = lines().filter(|(kind, _)| *kind != "t").unzip();
    let triggers = lines().filter(|(kind, _)| *kind == "t").map(|(_, trigger)| trigger).collect();
    OwnObjects { names, kinds, triggers, function: migrate::postgres_guard() }
});

impl OwnObjects {
    pub(super) fn names(&self) -> &[&'static str] {
        &self.names
    }

    pub(super) fn params(&self) -> [&(dyn ToSql + Sync); 4] {
        [&self.names, &self.kinds, &self.triggers, &self.function]
    }
}

/// The OIDs of Chimera's tables, triggers and trigger functions.
const NUMBERS: &str = "WITH own AS (SELECT n.name, to_regclass(n.name)::oid AS oid FROM unnest($1::text[]) AS n(name)) \
     SELECT name, oid, NULL::oid, NULL FROM own WHERE oid IS NOT NULL \
     UNION ALL SELECT NULL, g.oid, p.oid, p.xmin::text FROM own \
         JOIN pg_catalog.pg_trigger g ON g.tgrelid = own.oid JOIN pg_catalog.pg_proc p ON p.oid = g.tgfoid \
         WHERE NOT g.tgisinternal AND p.prosrc = $3 \
         AND concat_ws(' ', own.name, g.tgname, g.tgtype, encode(g.tgargs, 'escape')) = ANY ($2::text[])";

/// The OIDs of Chimera's objects in one database. Never includes foreign objects, whenever it was read.
pub(super) struct OwnOids {
    tables: HashMap<String, u32>,
    triggers: BTreeSet<u32>,
    /// Each with the transaction that last changed it.
    functions: BTreeSet<(u32, String)>,
}

impl OwnOids {
    pub(super) async fn read(client: &Client) -> Result<Self, Error> {
        let OwnObjects { names, triggers, function, .. } = &*OWN_OBJECTS;
        let mut numbers = Self { tables: HashMap::new(), triggers: BTreeSet::new(), functions: BTreeSet::new() };
        for row in client.query(NUMBERS, &[names, triggers, function]).await? {
            let number = row.get(1);
            if let Some(name) = row.get(0) {
                numbers.tables.insert(name, number);
            } else {
                numbers.triggers.insert(number);
                numbers.functions.insert((row.get(2), row.get(3)));
            }
        }
        Ok(numbers)
    }

    /// A statement that fails with a division by zero unless these tables and their triggers are as Chimera created
    /// them. It has no parameters, so that it is planned once. `None` if a table is unknown: then the full check is needed.
    pub(super) fn quick_check_sql(&self, tables: &BTreeSet<&str>) -> Option<String> {
        let numbers: Option<Vec<String>> =
            tables.iter().map(|name| self.tables.get(*name).map(ToString::to_string)).collect();
        let numbers = numbers?.join(", ");
        let names: Vec<_> = tables.iter().copied().collect();
        let triggers: Vec<_> = self.triggers.iter().map(ToString::to_string).collect();
        let functions: Vec<_> =
            self.functions.iter().map(|(oid, xmin)| format!("(oid = {oid} AND xmin = '{xmin}'::xid)")).collect();
        if triggers.is_empty() || functions.is_empty() {
            return None;
        }
        Some(format!(
            "SELECT 1 / ((SELECT count(*) FROM unnest('{{{numbers}}}'::oid[], '{{{}}}'::name[]) AS own(oid, name) CROSS JOIN LATERAL \
                 (SELECT FROM pg_catalog.pg_class c WHERE c.oid = own.oid AND relname = own.name AND relkind = 'r' \
                  AND NOT (relhasrules OR relrowsecurity OR relforcerowsecurity) LIMIT 1) AS made) = {} \
             AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger WHERE tgrelid IN ({numbers}) AND NOT tgisinternal \
                 AND oid NOT IN ({})) \
             AND (SELECT count(*) FROM pg_catalog.pg_proc WHERE {}) = {})::int",
            names.join(", "),
            names.len(),
            triggers.join(", "),
            functions.join(" OR "),
            functions.len(),
        ))
    }
}

/// Rejects a database in which Chimera's tables carry foreign objects.
pub(in super::super) async fn check_objects(client: &Client) -> Result<(), Unavailable> {
    let rows = client.query(LOOK, &OWN_OBJECTS.params()).await.map_err(|error| unavailable(&error))?;
    first_foreign(&rows).map_or(Ok(()), Err)
}

/// The result of the check.
pub(super) fn first_foreign(rows: &[Row]) -> Option<Unavailable> {
    let row = rows.first()?;
    let (kind, name, table): (&str, &str, &str) = (row.get(0), row.get(1), row.get(2));
    let reason = match kind {
        "row security" => format!("row security is on for {table} in the database; switch it off"),
        "relation" => format!("{table} in the database is not the relation that Chimera made; put that back"),
        kind => super::super::foreign_object(kind, name, table, "the database"),
    };
    Some(Unavailable::new(Outage::Unusable, reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimera_core::catalog;
    use chimera_testkit::postgres::PrivatePostgres;

    /// Compares the list with what the migrations create.
    #[tokio::test]
    async fn every_object_of_the_schema_is_known_and_no_other() {
        let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
        let mut client = super::super::connect::Server::parse(&url).unwrap().connect().await.unwrap();
        migrate::postgres(&mut client).await.unwrap();
        let text = "SELECT concat_ws(' ', c.relkind, c.relname) COLLATE \"C\" FROM pg_class c \
                    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind NOT IN ('i', 'S') \
                    UNION SELECT concat_ws(' ', 't', c.relname, g.tgname, g.tgtype, encode(g.tgargs, 'escape')) \
                    FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid WHERE NOT g.tgisinternal ORDER BY 1";
        let found: Vec<String> = client.query(text, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
        assert_eq!(found.join("\n") + "\n", OWN, "write them into objects.txt");
        let known: BTreeSet<_> = OWN_OBJECTS.names.iter().copied().collect();
        assert!(catalog().iter().all(|table| known.contains(table.name)));
        assert_eq!(check_objects(&client).await, Ok(()));
    }
}

//! What Chimera's tables and views carry: nothing but what its own migrations made.
//!
//! A trigger, a rule or a row policy of somebody else can swallow a change, or set it back behind it, and nothing that a
//! statement returns shows that. So the catalogue is looked at as the last statement of every batch, before its commit. Whoever
//! puts such an object on a table needs a lock that a change of that table excludes: what is not seen there has not
//! fired, and does not fire at the commit. Event triggers don't fire for changes of rows and are not looked at.

use crate::migrate;
use chimera_engine::port::{Outage, Unavailable};
use std::sync::LazyLock;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

use super::failure::unavailable;

/// Relations and triggers of Chimera's schema, one a line: `r TABLE`, `v VIEW`, `t TABLE NAME TYPE ARGUMENTS`.
const OWN: &str = include_str!("objects.txt");

/// The first object that is not Chimera's: what it is, its name, and the relation that carries it. A trigger is known by its table, name,
/// type and arguments, and by what its function does.
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

/// What the look compares with.
pub(super) struct Own {
    names: Vec<&'static str>,
    kinds: Vec<&'static str>,
    triggers: Vec<&'static str>,
    /// The one function that Chimera's triggers call.
    function: &'static str,
}

pub(super) static OWN_OBJECTS: LazyLock<Own> = LazyLock::new(|| {
    let lines = || OWN.lines().filter_map(|line| line.split_once(' '));
    let (kinds, names) = lines().filter(|(kind, _)| *kind != "t").unzip();
    let triggers = lines().filter(|(kind, _)| *kind == "t").map(|(_, trigger)| trigger).collect();
    Own { names, kinds, triggers, function: migrate::postgres_guard() }
});

impl Own {
    pub(super) fn params(&self) -> [&(dyn ToSql + Sync); 4] {
        [&self.names, &self.kinds, &self.triggers, &self.function]
    }
}

/// Refuses a database in which Chimera's tables carry what is not Chimera's.
pub(in super::super) async fn look(client: &Client) -> Result<(), Unavailable> {
    let rows = client.query(LOOK, &OWN_OBJECTS.params()).await.map_err(|error| unavailable(&error))?;
    found(&rows).map_or(Ok(()), Err)
}

/// What the look has found.
pub(super) fn found(rows: &[Row]) -> Option<Unavailable> {
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
    use chimera_core::record::catalog;
    use chimera_testkit::postgres::PrivatePostgres;
    use std::collections::BTreeSet;

    /// The list is compared with what the migrations make.
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
        assert_eq!(look(&client).await, Ok(()));
    }
}

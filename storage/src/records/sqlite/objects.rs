//! Chimera's tables and views must carry only what its own migrations created.
//!
//! A foreign trigger can drop or revert a change, and no statement result shows that. Creating one changes the schema
//! cookie in the file header, so every batch compares the cookie, and checks the triggers when it has changed. The
//! batch holds the write lock by then: no trigger can be added after the check.

use super::super::foreign_object;
use super::failure::unavailable;
use super::guards;
use crate::migrate;
use chimera_engine::port::{Outage, Unavailable};
use rusqlite::Connection;
use std::collections::BTreeSet;

/// Temporary triggers of this connection are not in the file, and not foreign.
const TRIGGERS: &str = "SELECT name, tbl_name, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY name";
const RELATIONS: &str = "SELECT type, name FROM sqlite_schema WHERE type IN ('table', 'view')";

/// What the migrations up to a version create.
pub(crate) struct SchemaObjects {
    /// Type and name.
    relations: BTreeSet<(String, String)>,
    /// Name, table and SQL.
    triggers: BTreeSet<(String, String, String)>,
}

impl SchemaObjects {
    /// Built by running them in memory: SQL is compared as SQLite itself stores it.
    pub(crate) fn of_version(version: i64) -> Result<Self, Unavailable> {
        let mut conn = Connection::open_in_memory().map_err(|error| unavailable(&error))?;
        let made = migrate::sqlite_to(&mut conn, version);
        made.map_err(|_| Unavailable::new(Outage::Transient, "the schema can't be compared"))?;
        Self::read(&conn).map_err(|error| unavailable(&error))
    }

    fn read(conn: &Connection) -> rusqlite::Result<Self> {
        let mut relations = conn.prepare(RELATIONS)?;
        let relations = relations.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mut triggers = conn.prepare(TRIGGERS)?;
        let triggers = triggers.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        Ok(Self { relations: relations.collect::<Result<_, _>>()?, triggers: triggers.collect::<Result<_, _>>()? })
    }

    /// Rejects a file in which Chimera's tables carry foreign objects.
    pub(crate) fn check(&self, conn: &Connection) -> Result<(), Unavailable> {
        let found = Self::read(conn).map_err(|error| unavailable(&error))?;
        let carries = |table: &str| self.relations.iter().any(|(_, name)| name.eq_ignore_ascii_case(table));
        let foreign = found.triggers.difference(&self.triggers).find(|(_, table, _)| carries(table));
        let replaced = found.relations.difference(&self.relations).find(|(_, name)| carries(name));
        let reason = match (foreign, replaced) {
            (Some((name, table, _)), _) => foreign_object("trigger", name, table, "the data file"),
            (_, Some((_, name))) => {
                format!("{name} in the data file is not the relation that Chimera made; put that back")
            }
            (None, None) => return Ok(()),
        };
        Err(Unavailable::new(Outage::Unusable, reason))
    }
}

/// Rejects a file whose triggers don't match its schema version. A file without a schema, or with an unknown version,
/// is not compared.
pub(crate) fn check_objects(conn: &Connection) -> Result<(), Unavailable> {
    match migrate::sqlite_version(conn).map_err(|error| unavailable(&error))? {
        version if (1..=migrate::newest()).contains(&version) => SchemaObjects::of_version(version)?.check(conn),
        _ => Ok(()),
    }
}

/// The last check of a file.
pub(super) struct ObjectWatch {
    own: SchemaObjects,
    /// The schema cookie under which no foreign object and no missing guard was found.
    clean: Option<i64>,
}

impl ObjectWatch {
    pub(super) fn new() -> Result<Self, Unavailable> {
        Ok(Self { own: SchemaObjects::of_version(migrate::newest())?, clean: None })
    }

    /// Forces the next check: the file may be another one.
    pub(super) const fn forget(&mut self) {
        self.clean = None;
    }

    /// The same, unless the schema cookie is unchanged since the last check.
    pub(super) fn check_if_changed(&mut self, conn: &Connection) -> Result<(), Unavailable> {
        let number = conn.prepare_cached("PRAGMA schema_version").and_then(|mut s| s.query_row([], |row| row.get(0)));
        let number: i64 = number.map_err(|error| unavailable(&error))?;
        if self.clean != Some(number) {
            self.own.check(conn)?;
            guards::check_guards(conn)?;
            self.clean = Some(number);
        }
        Ok(())
    }
}

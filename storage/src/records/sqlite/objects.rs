//! What Chimera's tables and views carry: nothing but what its own migrations made.
//!
//! A trigger of somebody else can swallow a change, or set it back behind it, and nothing that a statement returns shows that. Whoever
//! makes one changes the number of the schema in the file's header, so every batch compares that number, and looks at the triggers
//! when it is another one. The batch has the write lock by then: no trigger comes behind the look.

use super::super::foreign_object;
use super::failure::unavailable;
use super::guards;
use crate::migrate;
use chimera_engine::port::{Outage, Unavailable};
use rusqlite::Connection;
use std::collections::BTreeSet;

/// A trigger of this connection alone is not in the file, and nobody else's.
const TRIGGERS: &str = "SELECT name, tbl_name, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY name";
const RELATIONS: &str = "SELECT type, name FROM sqlite_schema WHERE type IN ('table', 'view')";

/// What the migrations up to a version make.
pub(crate) struct Objects {
    /// Each with its type.
    relations: BTreeSet<(String, String)>,
    /// Name, table and text.
    triggers: BTreeSet<(String, String, String)>,
}

impl Objects {
    /// Made by running them in memory: texts are compared as SQLite itself keeps them.
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

    /// Refuses a file in which Chimera's tables carry what is not Chimera's.
    pub(crate) fn look(&self, conn: &Connection) -> Result<(), Unavailable> {
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

/// Refuses a file whose triggers are not those of the schema that it has. Nothing is compared in one without a schema, or with
/// one that this binary does not know.
pub(crate) fn look(conn: &Connection) -> Result<(), Unavailable> {
    match migrate::sqlite_version(conn).map_err(|error| unavailable(&error))? {
        version if (1..=migrate::newest()).contains(&version) => Objects::of_version(version)?.look(conn),
        _ => Ok(()),
    }
}

/// What was last seen of a file.
pub(super) struct ObjectWatch {
    own: Objects,
    /// The number of the schema under which nothing foreign was found and no guard was missing.
    clean: Option<i64>,
}

impl ObjectWatch {
    pub(super) fn new() -> Result<Self, Unavailable> {
        Ok(Self { own: Objects::of_version(migrate::newest())?, clean: None })
    }

    /// The file may be another one.
    pub(super) const fn forget(&mut self) {
        self.clean = None;
    }

    /// The same, unless nothing has changed since the last time.
    pub(super) fn look(&mut self, conn: &Connection) -> Result<(), Unavailable> {
        let number = conn.prepare_cached("PRAGMA schema_version").and_then(|mut s| s.query_row([], |row| row.get(0)));
        let number: i64 = number.map_err(|error| unavailable(&error))?;
        if self.clean != Some(number) {
            self.own.look(conn)?;
            guards::look(conn)?;
            self.clean = Some(number);
        }
        Ok(())
    }
}

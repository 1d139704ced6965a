//! The guards of Chimera's own schema: triggers, keys, constraints and types.
//!
//! Somebody may drop one of them. Nothing fails then; changes that were rejected before just succeed. So the file is
//! compared with what the migrations create in memory, by names and columns; a CHECK only by its text. Missing tables
//! and columns are not covered: the statements that need them fail by themselves.

use super::failure::unavailable;
use crate::migrate;
use chimera_engine::port::{Outage, Unavailable};
use rusqlite::{Connection, Row};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

const TEXTS: &str = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL";

/// Unique indexes, each with its table, whether it was created explicitly, whether it is partial, and its columns.
const UNIQUE: &str = "SELECT s.name, i.name, i.origin = 'c', i.partial, \
     (SELECT group_concat(name, ',') FROM (SELECT name FROM pragma_index_info(i.name) ORDER BY seqno)) \
     FROM sqlite_schema s, pragma_index_list(s.name) i WHERE s.type = 'table' AND i.\"unique\"";

const COLUMNS: &str = "SELECT s.name, c.name, c.\"notnull\", c.pk FROM sqlite_schema s, pragma_table_info(s.name) c \
     WHERE s.type = 'table'";

const REFERENCES: &str = "SELECT s.name, f.\"from\", f.\"table\" FROM sqlite_schema s, pragma_foreign_key_list(s.name) f \
     WHERE s.type = 'table'";

const STRICT: &str = "SELECT name, strict FROM pragma_table_list WHERE schema = 'main' AND type = 'table'";

/// The guards of the newest schema.
static OWN: LazyLock<Result<Guards, Unavailable>> = LazyLock::new(|| {
    let mut conn = Connection::open_in_memory().map_err(|error| unavailable(&error))?;
    let made = migrate::sqlite(&mut conn);
    made.map_err(|_| Unavailable::new(Outage::Transient, "the schema can't be compared"))?;
    Guards::read(&conn).map_err(|error| unavailable(&error))
});

/// Declared in the order in which they are reported.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Guard {
    Trigger(String),
    /// An explicitly created index, with its columns and whether it is partial.
    Index(String, String, bool),
    /// A key in a table definition, with its columns.
    Key(String),
    Strict,
    NotNull(String),
    /// A column, and the referenced table.
    Reference(String, String),
    Check(String),
}

#[derive(Default)]
struct Guards {
    guards: BTreeSet<(String, Guard)>,
    /// Tables and their columns.
    columns: BTreeSet<(String, String)>,
    /// SQL of triggers and indexes, by name.
    texts: BTreeMap<String, String>,
}

/// Rejects a file of the newest schema version in which a guard is missing.
pub(crate) fn check_guards(conn: &Connection) -> Result<(), Unavailable> {
    match missing(conn)?.first() {
        None => Ok(()),
        Some((table, guard, text)) => Err(refusal(table, guard, text.is_some())),
    }
}

/// Restores what can be restored, all or nothing, and describes it.
pub(crate) fn restore(conn: &mut Connection) -> Result<Vec<String>, Unavailable> {
    let mut done = Vec::new();
    let tx = conn.transaction().map_err(|error| unavailable(&error))?;
    for (table, guard, text) in missing(&tx)? {
        let Some(text) = text else { return Err(refusal(&table, &guard, false)) };
        let words = words(&table, &guard);
        tx.execute_batch(&text).map_err(|error| {
            let why = unavailable(&error).reason;
            let reason = format!("{words} can't be put back in the data file ({why}); restore a backup");
            Unavailable::new(Outage::Unusable, reason)
        })?;
        done.push(words);
    }
    tx.commit().map_err(|error| unavailable(&error))?;
    Ok(done)
}

/// The missing guards of a file with this binary's schema version, each with the SQL that restores it, if any. Other
/// versions are reported elsewhere.
fn missing(conn: &Connection) -> Result<Vec<(String, Guard, Option<String>)>, Unavailable> {
    if migrate::sqlite_version(conn).map_err(|error| unavailable(&error))? != migrate::newest() {
        return Ok(Vec::new());
    }
    let own = OWN.as_ref().map_err(Clone::clone)?;
    let found = Guards::read(conn).map_err(|error| unavailable(&error))?;
    let missing = own.guards.difference(&found.guards).filter(|(table, guard)| found.concerns(table, guard));
    Ok(missing.map(|(table, guard)| (table.clone(), guard.clone(), own.text(guard))).collect())
}

fn words(table: &str, guard: &Guard) -> String {
    let what = match guard {
        Guard::Trigger(name) => format!("trigger {name}"),
        Guard::Index(name, ..) => format!("unique index {name}"),
        Guard::Key(columns) => format!("key ({columns})"),
        Guard::Strict => "STRICT".to_owned(),
        Guard::NotNull(column) => format!("NOT NULL of {column}"),
        Guard::Reference(column, to) => format!("foreign key {column} to {to}"),
        Guard::Check(_) => "a CHECK".to_owned(),
    };
    format!("{what} on {table}")
}

fn refusal(table: &str, guard: &Guard, by_migrate: bool) -> Unavailable {
    let how = if by_migrate { "`chimera migrate` repairs it" } else { "restore a backup" };
    let reason = format!("{} in the data file is missing; {how}", words(table, guard));
    Unavailable::new(Outage::Unusable, reason)
}

impl Guards {
    fn read(conn: &Connection) -> rusqlite::Result<Self> {
        let mut read = Self::default();
        each(conn, TEXTS, |row| {
            let (kind, name, table, text): (String, String, String, String) =
                (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            match &*kind {
                "trigger" => drop(read.guards.insert((table, Guard::Trigger(name.clone())))),
                "table" => {
                    read.guards.extend(checks(&text).into_iter().map(|check| (table.clone(), Guard::Check(check))))
                }
                _ => {}
            }
            read.texts.insert(name, text);
            Ok(())
        })?;
        each(conn, UNIQUE, |row| {
            let columns: String = row.get::<_, Option<String>>(4)?.unwrap_or_default();
            let guard = if row.get(2)? { Guard::Index(row.get(1)?, columns, row.get(3)?) } else { Guard::Key(columns) };
            read.guards.insert((row.get(0)?, guard));
            Ok(())
        })?;
        each(conn, COLUMNS, |row| {
            let (table, column): (String, String) = (row.get(0)?, row.get(1)?);
            if row.get(2)? {
                read.guards.insert((table.clone(), Guard::NotNull(column.clone())));
            }
            if row.get::<_, i64>(3)? > 0 {
                read.guards.insert((table.clone(), Guard::Key(format!("primary, {column}"))));
            }
            read.columns.insert((table, column));
            Ok(())
        })?;
        each(conn, REFERENCES, |row| {
            read.guards.insert((row.get(0)?, Guard::Reference(row.get(1)?, row.get(2)?)));
            Ok(())
        })?;
        each(conn, STRICT, |row| {
            if row.get(1)? {
                read.guards.insert((row.get(0)?, Guard::Strict));
            }
            Ok(())
        })?;
        Ok(read)
    }

    /// Whether the table, the column and the referenced table exist at all.
    fn concerns(&self, table: &str, guard: &Guard) -> bool {
        let has = |table: &str| self.columns.iter().any(|(name, _)| name == table);
        has(table)
            && match guard {
                Guard::NotNull(column) => self.columns.contains(&(table.to_owned(), column.clone())),
                Guard::Reference(column, to) => self.columns.contains(&(table.to_owned(), column.clone())) && has(to),
                _ => true,
            }
    }

    /// The SQL that restores it, as in the migrations. The names are Chimera's own.
    fn text(&self, guard: &Guard) -> Option<String> {
        match guard {
            Guard::Trigger(name) => self.texts.get(name).cloned(),
            Guard::Index(name, ..) => self.texts.get(name).map(|text| format!("DROP INDEX IF EXISTS {name}; {text}")),
            _ => None,
        }
    }
}

fn each(conn: &Connection, text: &str, mut take: impl FnMut(&Row<'_>) -> rusqlite::Result<()>) -> rusqlite::Result<()> {
    let mut statement = conn.prepare(text)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        take(row)?;
    }
    Ok(())
}

/// The expression of every CHECK in a table definition, without spaces and comments.
fn checks(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let words = strip_sql(text);
    for (at, _) in words.match_indices("CHECK(") {
        let mut depth = 0_usize;
        let mut quoted = false;
        let end = words[at..].find(|it| {
            match it {
                '\'' => quoted = !quoted,
                '(' if !quoted => depth += 1,
                ')' if !quoted => depth = depth.saturating_sub(1),
                _ => return false,
            }
            it == ')' && depth == 0 && !quoted
        });
        found.extend(end.and_then(|end| words.get(at..at + end)).map(str::to_owned));
    }
    found
}

/// SQL without spaces and line comments, except inside quotes.
fn strip_sql(text: &str) -> String {
    let mut quoted = false;
    let mut kept = String::new();
    for line in text.lines() {
        let mut rest = line.chars().peekable();
        while let Some(it) = rest.next() {
            quoted ^= it == '\'';
            if !quoted && it == '-' && rest.peek() == Some(&'-') {
                break;
            }
            if quoted || !it.is_whitespace() {
                kept.push(it);
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checks_of_a_table_are_read_whatever_their_spaces() {
        let text = "CREATE TABLE t (a INT CHECK (a IN (1, 2)), -- don't CHECK (x)\n b TEXT\n  CHECK(b <> ' )(  '))";
        assert_eq!(checks(text), ["CHECK(aIN(1,2)", "CHECK(b<>' )(  '"]);
    }

    #[test]
    fn every_kind_of_guard_is_found_in_the_schema_and_none_is_missing_from_it() {
        let own = OWN.as_ref().unwrap();
        let has = |kind: fn(&Guard) -> bool| own.guards.iter().any(|(_, guard)| kind(guard));
        assert!(has(|it| matches!(it, Guard::Trigger(_))) && has(|it| matches!(it, Guard::Index(..))));
        assert!(has(|it| matches!(it, Guard::Key(_))) && has(|it| matches!(it, Guard::Strict)));
        assert!(has(|it| matches!(it, Guard::NotNull(_))) && has(|it| matches!(it, Guard::Reference(..))));
        let mut conn = Connection::open_in_memory().unwrap();
        migrate::sqlite(&mut conn).unwrap();
        let written = "SELECT sum((length(sql) - length(replace(sql, 'CHECK (', ''))) / 7) FROM sqlite_schema";
        let written: i64 = conn.query_row(written, [], |row| row.get(0)).unwrap();
        let known = own.guards.iter().filter(|(_, guard)| matches!(guard, Guard::Check(_))).count();
        assert_eq!(i64::try_from(known).unwrap(), written, "no CHECK is passed over");
        assert_eq!((check_guards(&conn), restore(&mut conn)), (Ok(()), Ok(Vec::new())));
    }
}

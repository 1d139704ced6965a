//! Foreign rules in the database: triggers, functions and constraints that are not Chimera's.
//!
//! If Chimera's own schema rejects a change, the change is wrong and stays wrong. If a foreign rule rejects it, that
//! says nothing about the change: the rule may be dropped any moment, so the database is unusable while it is there.

use super::guards::constraints;
use chimera_core::catalog;
use tokio_postgres::error::{DbError, SqlState};

/// The server routine that raises errors for functions.
const RAISE: &str = "exec_stmt_raise";

/// The server routine that applies rewrite rules.
const REWRITE: &str = "RewriteQuery";

/// Whether a rewrite rule (`CREATE RULE`) replaces a statement; Chimera's schema has none.
pub(super) fn replaces(db: &DbError) -> bool {
    *db.code() == SqlState::FEATURE_NOT_SUPPORTED && db.routine() == Some(REWRITE)
}

/// The message for such a rule, with its table if the server names it.
pub(super) fn replacing(db: &DbError) -> String {
    let named = catalog().into_iter().find(|table| db.message().contains(&format!("\"{}\"", table.name)));
    let table = named.map(|table| format!(": {}", table.name)).unwrap_or_default();
    format!("a rewrite rule that is not Chimera's replaces changes in the database{table}; see pg_rules and drop it")
}

/// Whether a foreign rule rejected the change. Classes: 22 data, 23 integrity, P0 raised, CH ours.
pub(super) fn refuses(db: &DbError) -> bool {
    match db.code().code().get(..2) {
        Some("CH") => false,
        Some("P0") => true,
        _ if db.routine() == Some(RAISE) => true,
        Some("23") => !is_of_schema(db),
        Some("22") => functions(db).next().is_some(),
        _ => false,
    }
}

/// What rejected the change; contains no statement text and nothing written by the rule's author.
pub(super) fn reason(db: &DbError) -> String {
    let name = functions(db).find_map(name_in);
    let (what, name) = match (db.constraint(), db.table(), db.column()) {
        _ if refuses_by_function(db) => ("a trigger or a function that is not Chimera's refuses changes", name),
        (_, Some(table), Some(column)) => {
            ("a column that Chimera does not fill refuses changes", Some(format!("{table}.{column}")))
        }
        (constraint, ..) => ("a constraint that is not Chimera's refuses changes", constraint.map(str::to_owned)),
    };
    let name = name.map(|name| format!(": {name}")).unwrap_or_default();
    format!("{what} in the database{name}")
}

fn refuses_by_function(db: &DbError) -> bool {
    db.routine() == Some(RAISE) || functions(db).next().is_some()
}

fn is_of_schema(db: &DbError) -> bool {
    if *db.code() == SqlState::NOT_NULL_VIOLATION {
        let table = catalog().into_iter().find(|table| Some(table.name) == db.table());
        let column = table.and_then(|table| table.columns.iter().find(|column| Some(column.name) == db.column()));
        return column.is_some_and(|column| !column.nullable);
    }
    db.constraint().is_some_and(|name| constraints().any(|known| known == name))
}

/// The lines of the server's error context that name functions, innermost first. Other lines may repeat user data.
fn functions(db: &DbError) -> impl Iterator<Item = &str> {
    let lines = db.where_().unwrap_or_default().lines();
    lines.filter(|line| line.starts_with("PL/") || line.starts_with("SQL function"))
}

/// The function name in such a line, as `name()`.
fn name_in(line: &str) -> Option<String> {
    let is_name = |word: &str| word.chars().all(|it| it.is_alphanumeric() || "_.".contains(it)) && !word.is_empty();
    let names = line.split_whitespace().filter_map(|word| word.split_once('('));
    names.map(|(name, _)| name).find(|name| is_name(name)).map(|name| format!("{name}()"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_told_by_its_name_alone() {
        for (line, name) in [
            ("PL/pgSQL function dba_rule() line 1 at RAISE", Some("dba_rule()")),
            ("PL/pgSQL function audit.note(integer,text) line 3 at SQL statement", Some("audit.note()")),
            ("PL/pgSQL function inline_code_block line 1 at RAISE", None),
        ] {
            assert_eq!(name_in(line).as_deref(), name);
        }
    }
}

//! SQL is only in `storage`, and tables without a tenant column are read through their views.
//!
//! Some specifications fix every column of their tables, without a tenant. A SELECT from such a table would see the rows
//! of every tenant; the view of the table adds the tenant.

use super::finding::{Exception, Finding, apply_exceptions, assert_none};
use super::rust_file::RustFile;
use super::tree;

/// Tables without a tenant column, read only through their views.
const SCOPED: &[&str] = &[
    "objectives",
    "plans",
    "tasks",
    "skill_invocations",
    "trends",
    "approval_requests",
    "audit_logs",
    "agent_executions",
    "agents",
    "agent_jobs",
    "agent_outputs",
];

const EXCEPTIONS: &[Exception] = &[];

fn words(text: &str) -> Vec<String> {
    let marks = |c: char| c.is_whitespace() || matches!(c, '"' | '\\' | '(' | ')' | ',' | ';');
    text.split(marks).filter(|word| !word.is_empty()).map(str::to_uppercase).collect()
}

/// Whether a text is a statement, not a sentence that starts with the same verb.
fn is_sql(text: &str) -> bool {
    let words = words(text);
    let word = |at: usize| words.get(at).map(String::as_str).unwrap_or_default();
    match word(0) {
        "SELECT" => words.iter().any(|word| word == "FROM") && text.trim_start().starts_with("SELECT"),
        "INSERT" | "REPLACE" => word(1) == "INTO",
        "UPDATE" => word(2) == "SET",
        "DELETE" => word(1) == "FROM",
        "CREATE" | "ALTER" | "DROP" => ["TABLE", "INDEX", "UNIQUE", "VIEW", "TRIGGER"].contains(&word(1)),
        _ => false,
    }
}

/// The table without a tenant column that a text reads.
fn reads_unscoped(text: &str) -> Option<&'static str> {
    let words = words(text);
    let named = |at: usize| {
        SCOPED.iter().copied().find(|table| words.get(at).is_some_and(|word| word == &table.to_uppercase()))
    };
    (0..words.len()).find_map(|at| match words[at].as_str() {
        "FROM" if at > 0 && words[at - 1] == "DELETE" => None,
        "FROM" | "JOIN" => named(at + 1),
        _ => None,
    })
}

fn outside_storage(file: &RustFile) -> Vec<Finding> {
    if file.layer() == "storage" {
        return Vec::new();
    }
    let strings = file.strings().into_iter().filter(|(line, text)| !file.is_test(*line) && is_sql(text));
    strings.map(|(line, _)| Finding::new(&file.path, line, "SQL outside storage: use Tx or Select")).collect()
}

fn unscoped_in_text(file: &RustFile) -> Vec<Finding> {
    let strings = file.strings().into_iter().filter(|(line, _)| !file.is_test(*line));
    let reads = strings.filter_map(|(line, text)| Some((line, reads_unscoped(text)?)));
    reads.map(|(line, table)| Finding::new(&file.path, line, unscoped_message(table))).collect()
}

/// `Select::from(&tables::TASKS, …)` is a SELECT too.
fn unscoped_in_data(file: &RustFile) -> Vec<Finding> {
    let reads = file.find("Select::from(&").into_iter().filter_map(|at| {
        let path = file.tokens[at + 6..].iter().take_while(|token| token.word != "," && token.word != ")");
        let name = path.last()?;
        let table = SCOPED.iter().find(|table| table.to_uppercase() == name.word)?;
        (!file.is_test(name.line)).then(|| Finding::new(&file.path, name.line, unscoped_message(table)))
    });
    reads.collect()
}

fn unscoped_message(table: &str) -> String {
    format!("{table} has no tenant column: read scoped_{table}")
}

#[test]
fn sql_is_written_in_storage_only() {
    assert_none(&apply_exceptions(tree::rust().iter().flat_map(outside_storage).collect(), EXCEPTIONS));
}

#[test]
fn tables_without_a_tenant_are_read_through_their_views() {
    let rust = tree::rust().iter().flat_map(|file| [unscoped_in_text(file), unscoped_in_data(file)].concat());
    let scripts = tree::files().iter().filter(|file| file.path.ends_with(".sql"));
    let scripts = scripts.filter(|file| !file.path.contains("/migrations/") && !file.path.contains("/tests/"));
    let scripts =
        scripts.filter_map(|file| Some(Finding::new(&file.path, 1, unscoped_message(reads_unscoped(&file.text)?))));
    assert_none(&rust.chain(scripts).collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_told_from_a_sentence() {
        for text in [
            "SELECT id\n  FROM runs",
            "insert into runs (id) values ($1)",
            " UPDATE runs SET x = 1",
            "DELETE FROM runs",
            "CREATE TABLE x (y int)",
            "CREATE UNIQUE INDEX i ON x (y)",
        ] {
            assert!(is_sql(text), "{text}");
        }
        for text in ["select one from the list", "update the row", "delete this", "create a table", "SELECT"] {
            assert!(!is_sql(text), "{text}");
        }
    }

    #[test]
    fn sql_outside_storage_is_found() {
        let text = "const Q: &str = \"DELETE FROM runs\";";
        assert_eq!(outside_storage(&RustFile::new("engine/src/flow/run.rs", text)).len(), 1);
        assert_eq!(outside_storage(&RustFile::new("storage/src/flow.rs", text)), []);
        assert_eq!(outside_storage(&RustFile::new("chimera/tests/it/main.rs", text)), []);
    }

    #[test]
    fn reading_a_table_without_a_tenant_is_found() {
        assert_eq!(reads_unscoped("SELECT * FROM runs r JOIN tasks t ON t.id = r.id"), Some("tasks"));
        assert_eq!(reads_unscoped("select id from \"agents\" where id = $1"), Some("agents"));
        assert_eq!(reads_unscoped("SELECT * FROM (SELECT id FROM audit_logs) x"), Some("audit_logs"));
        assert_eq!(reads_unscoped("SELECT * FROM scoped_tasks"), None);
        assert_eq!(reads_unscoped("DELETE FROM tasks"), None);
        assert_eq!(reads_unscoped("INSERT INTO tasks (id) VALUES ($1)"), None);
    }

    #[test]
    fn reading_it_as_data_is_found_too() {
        let text = "let a = Select::from(&swarm::tables::TASKS, scope);\nlet b = Select::from(&SCOPED_TASKS, scope);";
        let found = unscoped_in_data(&RustFile::new("engine/src/swarm/task.rs", text));
        assert_eq!(found.iter().map(|found| found.line).collect::<Vec<_>>(), [1]);
        assert_eq!(unscoped_in_text(&RustFile::new("storage/src/x.rs", "f(\"SELECT 1 FROM plans\")")).len(), 1);
    }
}

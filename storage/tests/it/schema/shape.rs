//! What PostgreSQL's own catalogue says of a table, as text that is easy to compare.

use tokio_postgres::Client;

/// A table as the database describes it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Name, type, `not null`, default; in the table's order.
    pub(crate) columns: Vec<String>,
    /// Primary key, unique keys, checks, foreign keys; sorted.
    pub(crate) constraints: Vec<String>,
    /// Indexes that belong to no constraint; sorted.
    pub(crate) indexes: Vec<String>,
}

/// Reads the shape of `table`.
pub(crate) async fn shape(client: &Client, table: &str) -> Shape {
    let columns = "SELECT a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
            || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
            || COALESCE(' default ' || pg_get_expr(d.adbin, d.adrelid), '')
        FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = $1::text::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";
    let constraints = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = $1::text::regclass";
    let indexes = "SELECT replace(pg_get_indexdef(indexrelid), ' ON public.', ' ON ') FROM pg_index
        WHERE indrelid = $1::text::regclass
            AND NOT EXISTS (SELECT 1 FROM pg_constraint WHERE conindid = indexrelid AND conrelid = indrelid)";
    Shape {
        columns: texts(client, columns, table).await,
        constraints: in_order(texts(client, constraints, table).await),
        indexes: in_order(texts(client, indexes, table).await),
    }
}

/// Tables outside `table` whose foreign keys point at it.
pub(crate) async fn referenced_by(client: &Client, table: &str) -> Vec<String> {
    let query = "SELECT conrelid::regclass::text FROM pg_constraint
        WHERE confrelid = $1::text::regclass AND contype = 'f' ORDER BY 1";
    texts(client, query, table).await
}

async fn texts(client: &Client, query: &str, table: &str) -> Vec<String> {
    client.query(query, &[&table]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// Fails unless `table` has exactly these columns, constraints and indexes. An index is written
/// as `name (columns)`, with what follows the columns, or as `name USING method (columns)`.
pub(crate) async fn assert_exactly(
    client: &Client,
    table: &str,
    columns: &[&str],
    constraints: &[&str],
    indexes: &[&str],
) {
    let expected = Shape {
        columns: owned(columns),
        constraints: in_order(owned(constraints)),
        indexes: index_texts(table, indexes),
    };
    assert_eq!(shape(client, table).await, expected, "{table}");
}

/// The index definitions that PostgreSQL gives for this short form.
pub(crate) fn index_texts(table: &str, indexes: &[&str]) -> Vec<String> {
    let full = |index: &&str| {
        let (name, rest) = index.split_once(' ').unwrap();
        let using = if rest.starts_with("USING") { "" } else { "USING btree " };
        format!("CREATE INDEX {name} ON {table} {using}{rest}")
    };
    in_order(indexes.iter().map(full).collect())
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn in_order(mut texts: Vec<String>) -> Vec<String> {
    texts.sort();
    texts
}

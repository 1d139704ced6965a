//! Plain text tables.

use chimera_core::text::escape_invisible_line;

/// A table whose columns are as wide as their widest cell; nothing when there are no rows.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let wide = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(head.get(column).map(|word| word.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(wide).collect();
    let line = |cells: Vec<&str>| {
        let padded: Vec<String> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let body = rows.iter().map(|row| line(row.iter().map(String::as_str).collect()));
    std::iter::once(line(head.to_vec())).chain(body).collect()
}

/// The text of a member, or a dash.
pub(crate) fn text(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => "-".to_owned(),
        // Untrusted text must not control the terminal, and different texts must look different.
        serde_json::Value::String(text) => escape_invisible_line(text),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hides_in_a_cell_is_spelled_out() {
        let shown = |cell: &str| text(&cell.into());
        assert_eq!(shown("user_re\u{200b}q"), "user_re\\u200bq");
        assert_eq!(shown("user_app\u{202e}\u{1b}[2J"), "user_app\\u202e\\u001b[2J");
        assert_ne!(shown("a\\nb"), shown("a\nb"));
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows =
            [vec!["a".to_owned(), "long cell".to_owned(), "x".to_owned()], vec!["bcd".to_owned(), "-".to_owned()]];
        assert_eq!(table(&["id", "what", "n"], &rows), "id   what       n\na    long cell  x\nbcd  -\n");
        assert_eq!(table(&["id"], &[]), "");
    }
}

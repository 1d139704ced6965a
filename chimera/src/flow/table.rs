//! Rows under each other, for people.

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
        // Texts of strangers must not steer a terminal.
        serde_json::Value::String(text) => {
            text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows =
            [vec!["a".to_owned(), "long cell".to_owned(), "x".to_owned()], vec!["bcd".to_owned(), "-".to_owned()]];
        assert_eq!(table(&["id", "what", "n"], &rows), "id   what       n\na    long cell  x\nbcd  -\n");
        assert_eq!(table(&["id"], &[]), "");
    }
}

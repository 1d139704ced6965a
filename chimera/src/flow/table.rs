//! Plain text tables that fit the width of a terminal.
//!
//! Columns give way in a fixed order: first those that may be dropped, the highest number first; then free text is
//! cut with `…`. Names and ids are cut last, and only on a terminal: elsewhere a program may read them.

use super::width::{cut, width};
use chimera_core::limits::NAME_COLUMNS_MIN;
use chimera_core::text::{escape_invisible_line, escape_invisible_only};

/// The space between two columns.
const GAP: usize = 2;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    head: &'static str,
    fit: Fit,
    color: Option<fn(&str) -> &'static str>,
}

#[derive(Clone, Copy, Debug)]
enum Fit {
    /// A name, an id or a status.
    Whole,
    /// Free text, cut to no less than so many columns.
    Cut(usize),
    /// Dropped when there is no room; the highest number goes first.
    Droppable(u8),
}

impl Column {
    pub(crate) const fn whole(head: &'static str) -> Self {
        Self { head, fit: Fit::Whole, color: None }
    }

    pub(crate) const fn cut(head: &'static str, columns_min: usize) -> Self {
        Self { head, fit: Fit::Cut(columns_min), color: None }
    }

    pub(crate) const fn droppable(head: &'static str, order: u8) -> Self {
        Self { head, fit: Fit::Droppable(order), color: None }
    }

    /// Colours each cell by its text.
    pub(crate) const fn colored(self, color: fn(&str) -> &'static str) -> Self {
        Self { color: Some(color), ..self }
    }
}

/// How much room a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// Nothing is dropped or cut.
    Unlimited,
    /// Lines of at most so many columns, if names allow it.
    Columns(usize),
    /// Lines of at most so many columns.
    Terminal(usize),
}

/// A table of the columns that fit; nothing when there are no rows.
pub(crate) fn fit(columns: &[Column], rows: &[Vec<String>], room: Room, colors: bool) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let natural: Vec<usize> = (0..columns.len())
        .map(|at| {
            let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| width(cell));
            cells.chain([width(columns[at].head)]).max().unwrap_or(0)
        })
        .collect();
    let kept = layout(columns, &natural, room);
    let line = |cell: &dyn Fn(usize) -> (String, Option<&'static str>)| {
        let mut text = String::new();
        for (nth, (at, room)) in kept.iter().enumerate() {
            let (cell, color) = cell(*at);
            let cell = cut(&escape_invisible_only(&cell), *room);
            let pad = if nth + 1 == kept.len() { 0 } else { room.saturating_sub(width(&cell)) + GAP };
            text.push_str(&match color.filter(|_| colors) {
                Some(color) => format!("\u{1b}[{color}m{cell}\u{1b}[0m"),
                None => cell,
            });
            text.push_str(&" ".repeat(pad));
        }
        format!("{}\n", text.trim_end())
    };
    let head = line(&|at| (columns[at].head.to_owned(), None));
    let body = rows.iter().map(|row| {
        line(&|at| {
            let cell = row.get(at).cloned().unwrap_or_default();
            let color = columns[at].color.map(|color| color(&cell));
            (cell, color)
        })
    });
    std::iter::once(head).chain(body).collect()
}

/// The columns to show and their widths.
fn layout(columns: &[Column], natural: &[usize], room: Room) -> Vec<(usize, usize)> {
    let mut kept: Vec<(usize, usize)> = natural.iter().copied().enumerate().collect();
    let (Room::Columns(room_columns) | Room::Terminal(room_columns)) = room else { return kept };
    for (at, width) in &mut kept {
        if let Fit::Cut(least) = columns[*at].fit {
            *width = (*width).min(least.max(columns[*at].head.len()));
        }
    }
    while total(&kept) > room_columns {
        let order = |(_, (at, _)): &(usize, &(usize, usize))| match columns[*at].fit {
            Fit::Droppable(order) => Some(order),
            _ => None,
        };
        let droppable = kept.iter().enumerate().filter(|place| order(place).is_some());
        let Some((place, _)) = droppable.max_by_key(|place| order(place)) else { break };
        kept.remove(place);
    }
    let mut spare = room_columns.saturating_sub(total(&kept));
    for (at, width) in &mut kept {
        let more = spare.min(natural[*at] - *width);
        *width += more;
        spare -= more;
    }
    while matches!(room, Room::Terminal(_)) && total(&kept) > room_columns {
        let widest = kept.iter_mut().max_by_key(|(_, width)| *width);
        match widest.filter(|(_, width)| *width > NAME_COLUMNS_MIN) {
            Some((_, width)) => *width -= 1,
            None => break,
        }
    }
    kept
}

fn total(kept: &[(usize, usize)]) -> usize {
    kept.iter().map(|(_, width)| width + GAP).sum::<usize>().saturating_sub(GAP)
}

/// A table with every column and cell whole.
pub(crate) fn table(head: &[&'static str], rows: &[Vec<String>]) -> String {
    let columns: Vec<Column> = head.iter().map(|head| Column::whole(head)).collect();
    fit(&columns, rows, Room::Unlimited, false)
}

/// One thing, a line for each of its members.
pub(crate) fn details(members: &[(&str, String)]) -> String {
    let widest = members.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    members.iter().map(|(name, value)| format!("{name:widest$}  {value}\n")).collect()
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

    const COLUMNS: &[Column] = &[
        Column::whole("ID"),
        Column::cut("WHAT", 6),
        Column::droppable("BY", 1),
        Column::whole("STATUS").colored(|_| "32"),
        Column::droppable("LEVEL", 2),
    ];

    fn row(what: &str) -> Vec<Vec<String>> {
        vec![["01a1eea5", what, "admin", "running", "L2"].map(str::to_owned).to_vec()]
    }

    #[test]
    fn columns_are_dropped_and_cut_in_a_fixed_order_until_the_table_fits() {
        let what = "summarize the minutes";
        let widths = [60, 40, 36, 30, 20, 10].map(|columns| {
            let shown = fit(COLUMNS, &row(what), Room::Terminal(columns), false);
            assert!(shown.lines().all(|line| width(line) <= columns.max(28)), "{columns}: {shown}");
            shown.lines().nth(1).unwrap_or_default().to_owned()
        });
        assert_eq!(
            widths,
            [
                "01a1eea5  summarize the minutes  admin  running  L2",
                "01a1eea5  summar…  admin  running  L2",
                "01a1eea5  summarize…  admin  running",
                "01a1eea5  summarize…   running",
                "01a1eea5  summa…  running",
                "01a1eea5  summa…  running",
            ]
        );
    }

    #[test]
    fn without_a_terminal_names_are_whole_and_text_is_cut() {
        let shown = fit(COLUMNS, &row("summarize the minutes"), Room::Columns(10), false);
        assert_eq!(shown, "ID        WHAT    STATUS\n01a1eea5  summa…  running\n");
        let whole = fit(COLUMNS, &row("summarize the minutes"), Room::Unlimited, false);
        assert!(whole.contains("summarize the minutes"), "{whole}");
    }

    #[test]
    fn colours_take_no_room_and_wide_letters_take_two() {
        let plain = fit(COLUMNS, &row("要約する"), Room::Terminal(24), false);
        assert_eq!(plain.lines().nth(1), Some("01a1eea5  要約…   running"));
        let painted = fit(COLUMNS, &row("要約する"), Room::Terminal(24), true);
        assert_eq!(painted.lines().nth(1), Some("01a1eea5  要約…   \u{1b}[32mrunning\u{1b}[0m"));
    }
}

//! What all lists share: `-o wide`, the width of the output, ages, the next page.

use super::{CommandContext, print, print_raw, say};
use crate::ambient::stdout_size;
use crate::cli::{OutputArg, OutputFormat};
use crate::compose::Ambient;
use crate::failure::Outcome;
use crate::flow::age::age;
use crate::flow::short_id::{short_id, short_ids};
use crate::flow::table::{Column, Room, fit, text};
use chimera_core::limits::LIST_COLUMNS_DEFAULT;
use chimera_core::time::Timestamp;
use serde_json::Value;

/// How a list is to look.
pub(crate) struct ListView {
    /// Every column, with whole ids and times.
    pub(crate) wide: bool,
    room: Room,
    colors: bool,
    now: Timestamp,
}

/// Says how to get the next page: the same command with a cursor.
pub(crate) fn say_next_page(scene: &CommandContext<'_>, flag: &str, cursor: &str) {
    let mut given = scene.args.iter();
    let mut kept = vec!["chimera".to_owned()];
    while let Some(word) = given.next() {
        if word == flag {
            given.next();
        } else if !word.strip_prefix(flag).is_some_and(|rest| rest.starts_with('=')) {
            kept.push(shell_word(word));
        }
    }
    say(&format!("next page: {} {flag} {}", kept.join(" "), shell_word(cursor)));
}

/// The footer of a list: what to do when it is empty, or how to get the next page.
pub(crate) fn say_footer(scene: &CommandContext<'_>, page: &Value, is_empty: bool, when_empty: &str) {
    if is_empty {
        say(when_empty);
    }
    if let Some(cursor) = page["next_cursor"].as_str() {
        say_next_page(scene, "--cursor", cursor);
    }
}

/// A word as a shell takes it.
fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

impl ListView {
    pub(crate) fn of(scene: &CommandContext<'_>, output: &OutputArg) -> Self {
        let wide = matches!(output.output, Some(OutputFormat::Wide));
        let room = match stdout_size() {
            _ if wide => Room::Unlimited,
            Some((columns, _)) => Room::Terminal(columns),
            None => Room::Columns(scene.columns.unwrap_or(LIST_COLUMNS_DEFAULT)),
        };
        Self { wide, room, colors: scene.colors, now: Ambient::new().clock.now() }
    }

    /// A list with everything whole.
    #[cfg(test)]
    pub(crate) const fn wide(now: Timestamp) -> Self {
        Self { wide: true, room: Room::Unlimited, colors: false, now }
    }

    /// A time: how long ago, or in full.
    pub(crate) fn time(&self, value: &Value) -> String {
        match value.as_str().and_then(|text| text.parse().ok()) {
            Some(at) if !self.wide => age(at, self.now),
            _ => text(value),
        }
    }

    /// The ids of a list in a member of its items: short, or in full.
    pub(crate) fn ids(&self, items: &[Value], member: &str) -> Vec<String> {
        let ids: Vec<&str> = items.iter().map(|item| item[member].as_str().unwrap_or("-")).collect();
        if self.wide { ids.into_iter().map(str::to_owned).collect() } else { short_ids(&ids) }
    }

    /// One id or name: short if it is an id, or in full.
    pub(crate) fn id(&self, id: &str) -> String {
        if self.wide { id.to_owned() } else { short_id(id) }
    }

    pub(crate) const fn now(&self) -> Timestamp {
        self.now
    }

    pub(crate) fn render(&self, columns: &[Column], rows: &[Vec<String>]) -> String {
        fit(columns, rows, self.room, self.colors)
    }

    pub(crate) fn print(&self, columns: &[Column], rows: &[Vec<String>]) -> Outcome {
        let table = self.render(columns, rows);
        // The cells of a coloured table are escaped already.
        if self.colors { print_raw(&table) } else { print(&table) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_survives_the_shell() {
        assert_eq!(["a-b_c.d", "it's *", ""].map(shell_word), ["a-b_c.d", "'it'\\''s *'", "''"]);
    }
}

//! Suggests the known name closest to a mistyped one.

use crate::limits;

/// ` (did you mean X?)`, or an empty string if no name is close.
#[must_use]
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let wanted: Vec<char> = name.chars().take(limits::SUGGESTION_CHARS_MAX + 1).collect();
    if !(limits::SUGGESTION_CHARS_MIN..=limits::SUGGESTION_CHARS_MAX).contains(&wanted.len()) {
        return String::new();
    }
    let close = (wanted.len() / 3).clamp(1, 3);
    let best = known
        .into_iter()
        .take(limits::SUGGESTION_NAMES_MAX)
        .filter(|known| known.len() <= limits::SUGGESTION_CHARS_MAX)
        .filter_map(|known| {
            let near = known.len().abs_diff(name.len()) <= close * 4;
            let slips = if near { distance(&wanted, known) } else { usize::MAX };
            // A name that was cut short is farther away than any slip.
            let rank = if slips <= close { slips } else { usize::MAX };
            (rank < usize::MAX || continues(known, name)).then_some((rank, known))
        })
        .min();
    best.map_or_else(String::new, |(_, known)| format!(" (did you mean {known}?)"))
}

/// Whether a name is the other one and further words.
fn continues(known: &str, name: &str) -> bool {
    known.strip_prefix(name).is_some_and(|rest| rest.starts_with(['_', '-', '.']))
}

/// Edit distance: insertions, deletions, replacements and swaps of neighbours.
fn distance(one: &[char], other: &str) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=one.len()).collect();
    let mut last = None;
    for (at, letter) in other.chars().enumerate() {
        let mut next = vec![at + 1];
        for (column, wanted) in one.iter().enumerate() {
            let replaced = row[column] + usize::from(*wanted != letter);
            let mut cost = replaced.min(row[column + 1] + 1).min(next[column] + 1);
            if column > 0 && last == Some(*wanted) && one[column - 1] == letter {
                cost = cost.min(before[column - 1] + 1);
            }
            next.push(cost);
        }
        before = std::mem::replace(&mut row, next);
        last = Some(letter);
    }
    row[one.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_guessed_and_a_stranger_is_not() {
        let known = ["fetch_page", "summarize", "notify"];
        assert_eq!(did_you_mean("sumarize", known), " (did you mean summarize?)");
        assert_eq!(did_you_mean("fecth_page", known), " (did you mean fetch_page?)");
        assert_eq!(did_you_mean("upload", known), "");
        assert_eq!(did_you_mean("fetch", known), " (did you mean fetch_page?)");
        assert_eq!(did_you_mean("fet", known), "");
    }
}

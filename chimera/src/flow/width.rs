//! How many columns of a terminal a text takes.
//!
//! Letters of East Asian scripts and emoji take two, combining marks none. Rare cases may be off by one; a line is
//! then a little too long or too short.

/// The columns that a text takes.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

/// The text, cut to so many columns with `…` at the end.
pub(crate) fn cut(text: &str, columns_max: usize) -> String {
    if width(text) <= columns_max {
        return text.to_owned();
    }
    let (mut shown, mut left) = (String::new(), columns_max.saturating_sub(1));
    for c in text.chars() {
        match left.checked_sub(columns(c)) {
            Some(rest) => left = rest,
            None => break,
        }
        shown.push(c);
    }
    format!("{}…", shown.trim_end())
}

const fn columns(c: char) -> usize {
    match c {
        '\u{300}'..='\u{36f}' | '\u{fe00}'..='\u{fe0f}' => 0,
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}'
        | '\u{1f300}'..='\u{1f64f}'
        | '\u{1f680}'..='\u{1f6ff}'
        | '\u{1f900}'..='\u{1f9ff}'
        | '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    }
}

//! Splits a text into sentences.
//!
//! A period ends a sentence unless it is in a number, after an abbreviation or an initial, or before a word in lower
//! case. End marks of scripts without spaces end a sentence at once. A blank line, a heading and a list item end it
//! too.

/// A sentence as it appears in the text, with white space collapsed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sentence {
    pub(super) text: String,
    /// Whether it begins a paragraph.
    pub(super) opens: bool,
}

/// Words whose period does not end a sentence, in lower case and without the period.
const ABBREVIATIONS: &[&str] = &[
    "abb", "al", "art", "bzw", "ca", "cf", "co", "corp", "dept", "dr", "e.g", "ed", "eds", "eg", "est", "etc", "fig",
    "figs", "geb", "gen", "ggf", "gov", "i.e", "ie", "inc", "inkl", "jr", "lt", "ltd", "m", "messrs", "mio", "mlle",
    "mme", "mr", "mrs", "ms", "mt", "nr", "p", "pp", "prof", "rev", "sec", "sen", "sr", "sra", "st", "str", "tel",
    "usw", "vgl", "vol", "vs", "z.b", "d.h", "u.a", "o.ä", "v.a", "n.chr", "v.chr", "м", "г", "гг", "др", "им", "проф",
    "руб", "стр", "т.д", "т.е", "т.п", "тыс", "ул", "κ", "π.χ", "κ.ά", "δηλ",
];

/// End marks in scripts with spaces.
const SPACED_ENDS: &[char] = &['.', '!', '?', '…', '؟', '۔', '।', '॥', '։', '‽'];
/// End marks in scripts without spaces.
const CLOSE_ENDS: &[char] = &['。', '！', '？', '｡', '．'];
/// Closing characters that still belong to the sentence.
const CLOSERS: &[char] = &['"', '\'', '”', '’', '»', '›', ')', ']', '}', '」', '』', '）', '】', '“'];

pub(super) fn split(text: &str) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    for paragraph in paragraphs(text) {
        let chars: Vec<char> = paragraph.chars().collect();
        let (mut from, mut opens) = (0, true);
        for at in 0..chars.len() {
            if let Some(end) = end_of_sentence(&chars, at)
                && at >= from
            {
                opens = !push(&mut sentences, &chars[from..end], opens) && opens;
                from = end;
            }
        }
        push(&mut sentences, &chars[from..], opens);
    }
    sentences
}

/// Adds a sentence unless it is empty; returns whether it was added.
fn push(sentences: &mut Vec<Sentence>, chars: &[char], opens: bool) -> bool {
    let text: String = chars.iter().collect();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let says = text.chars().any(char::is_alphanumeric);
    if says {
        sentences.push(Sentence { text, opens });
    }
    says
}

/// Paragraphs, without the markers of headings and lists.
fn paragraphs(text: &str) -> Vec<String> {
    let mut blocks = vec![String::new()];
    for line in text.lines() {
        let line = line.trim();
        let (marked, heading, words) = strip_marker(line);
        if (line.is_empty() || marked) && blocks.last().is_some_and(|block| !block.is_empty()) {
            blocks.push(String::new());
        }
        if let Some(block) = blocks.last_mut() {
            block.push_str(words);
            block.push(' ');
            if words.is_empty() {
                block.clear();
            }
        }
        if heading {
            blocks.push(String::new());
        }
    }
    blocks
}

/// Whether a line starts a block, whether it is a heading, and its text.
fn strip_marker(line: &str) -> (bool, bool, &str) {
    let words = line.trim_start_matches('#');
    if words.len() < line.len() && (words.is_empty() || words.starts_with(' ')) {
        return (true, true, words.trim());
    }
    for mark in ["- ", "* ", "+ ", "• ", "– ", "> "] {
        if let Some(words) = line.strip_prefix(mark) {
            return (true, false, words.trim());
        }
    }
    let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let item = digits.strip_prefix(". ").or_else(|| digits.strip_prefix(") "));
    match item {
        Some(words) if digits.len() < line.len() => (true, false, words.trim()),
        _ => (false, false, line),
    }
}

/// The position after the sentence that ends with the mark at `at`.
fn end_of_sentence(chars: &[char], at: usize) -> Option<usize> {
    let mark = chars[at];
    let close = CLOSE_ENDS.contains(&mark);
    if !close && !SPACED_ENDS.contains(&mark) {
        return None;
    }
    let is_end = |c: &char| SPACED_ENDS.contains(c) || CLOSE_ENDS.contains(c);
    if chars.get(at + 1).is_some_and(is_end) {
        return None;
    }
    let closers = chars[at + 1..].iter().take_while(|c| CLOSERS.contains(c)).count();
    let end = at + 1 + closers;
    let Some(next) = chars.get(end) else { return Some(end) };
    if close {
        return Some(end);
    }
    if !next.is_whitespace() {
        return None;
    }
    let begin = chars[end..].iter().copied().find(|c| c.is_alphanumeric());
    let goes_on = begin.is_some_and(char::is_lowercase);
    let abbreviated = mark == '.' && closers == 0 && is_abbreviation(&chars[..at]);
    if goes_on || abbreviated { None } else { Some(end) }
}

/// Whether the text before a period ends with an abbreviation.
fn is_abbreviation(before: &[char]) -> bool {
    let word: Vec<char> =
        before.iter().rev().copied().take_while(|c| c.is_alphanumeric() || matches!(c, '.' | '-')).collect();
    let word: String = word.into_iter().rev().collect::<String>().to_lowercase();
    let initial = word.chars().count() == 1 && word.chars().all(char::is_alphabetic);
    let dotted = word.contains('.') && word.split('.').all(|part| part.chars().count() == 1);
    let initials = (initial || dotted) && !word.chars().any(char::is_numeric);
    // "I." closes a sentence more often than it is an initial.
    (initials && word != "i") || ABBREVIATIONS.contains(&word.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        split(text).into_iter().map(|sentence| sentence.text).collect()
    }

    #[test]
    fn abbreviations_numbers_and_initials_do_not_end_a_sentence() {
        for (text, count) in [
            ("Dr. Smith met Mr. J. R. Jones at 3.14 p.m. on Monday. They spoke.", 2),
            ("See e.g. Figure 2. It is clear.", 2),
            ("Das kostet z.B. 3,50 Euro bzw. mehr. Prof. Meier weiß das.", 2),
            ("Вот г. Москва и т.д. и т.п. Это проф. Иванов.", 1),
            ("Version 1.2.3 is out. Get it at example.org today!", 2),
            ("Wait... what? No way!", 2),
            ("He said \"Stop.\" Then he left.", 2),
            ("He asked \"why?\" and left.", 1),
        ] {
            assert_eq!(texts(text).len(), count, "{text}: {:?}", texts(text));
        }
    }

    #[test]
    fn several_scripts_are_split_by_their_own_marks() {
        assert_eq!(texts("今日は晴れです。明日は雨でしょう。").len(), 2);
        assert_eq!(texts("「そうですか。」彼は言った。").len(), 2);
        assert_eq!(texts("你好！你好吗？我很好。").len(), 3);
        assert_eq!(texts("यह एक वाक्य है। यह दूसरा है।").len(), 2);
        assert_eq!(texts("هل أنت بخير؟ نعم أنا بخير.").len(), 2);
        assert_eq!(texts("Καλημέρα σας. Τι κάνετε; Είμαι καλά.").len(), 2);
        assert_eq!(texts("Первое предложение. Второе предложение!").len(), 2);
    }

    #[test]
    fn blank_lines_headings_and_items_end_a_sentence() {
        let found = split("# A heading\nfirst line\nsecond line\n\n- one item\n- another\n1. third");
        let seen: Vec<(&str, bool)> = found.iter().map(|s| (s.text.as_str(), s.opens)).collect();
        let wanted = ["A heading", "first line second line", "one item", "another", "third"];
        assert_eq!(seen, wanted.map(|text| (text, true)));
    }

    #[test]
    fn only_the_first_sentence_of_a_paragraph_opens_it() {
        let found = split("One is here. Two is here.\n\nThree is here.");
        assert_eq!(found.iter().map(|s| s.opens).collect::<Vec<_>>(), [true, false, true]);
    }
}

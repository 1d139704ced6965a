//! A parsed Rust file for the rules: its tokens, its functions, and which lines are tests.

use super::scan::{self, SpanKind, Token};
use std::ops::RangeInclusive;

pub(super) struct RustFile {
    pub(super) path: String,
    pub(super) text: String,
    pub(super) tokens: Vec<Token>,
    tests: Vec<RangeInclusive<usize>>,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) lines: usize,
}

impl RustFile {
    /// Reads `text` as the file at `path`, relative to the root.
    pub(super) fn new(path: &str, text: &str) -> Self {
        let tokens = scan::tokens(text);
        let tests = test_regions(&tokens);
        Self { path: path.to_owned(), text: text.to_owned(), tokens, tests }
    }

    /// The folder of the crate the file belongs to.
    pub(super) fn layer(&self) -> &str {
        self.path.split('/').next().unwrap_or_default()
    }

    /// Whether the whole file is test code.
    pub(super) fn is_test_file(&self) -> bool {
        self.layer() == "testkit"
            || self.path.split('/').any(|part| part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs"))
    }

    /// Whether a line is test code.
    pub(super) fn is_test(&self, line: usize) -> bool {
        self.is_test_file() || self.tests.iter().any(|region| region.contains(&line))
    }

    /// Positions (in `tokens`) where the tokens of `pattern` follow one another.
    pub(super) fn find(&self, pattern: &str) -> Vec<usize> {
        let wanted = scan::tokens(pattern);
        let same = |window: &[Token]| window.iter().zip(&wanted).all(|(found, want)| found.word == want.word);
        self.tokens.windows(wanted.len()).enumerate().filter(|(_, window)| same(window)).map(|(at, _)| at).collect()
    }

    /// Lines of `find` that are not tests.
    pub(super) fn lines_outside_tests(&self, pattern: &str) -> Vec<usize> {
        let lines = self.find(pattern).into_iter().map(|at| self.tokens[at].line);
        lines.filter(|line| !self.is_test(*line)).collect()
    }

    /// Line and content of every string.
    pub(super) fn strings(&self) -> Vec<(usize, &str)> {
        let literals = self.tokens.iter().filter(|token| token.word == scan::LITERAL);
        let mut spans = scan::spans(&self.text).into_iter().filter(|span| span.kind == SpanKind::Literal);
        literals
            .filter_map(|token| {
                let span = spans.find(|span| span.start == token.start)?;
                Some((token.line, scan::content(&self.text[span.start..span.end])))
            })
            .collect()
    }

    /// Line and text of every comment, one item per line.
    pub(super) fn comments(&self) -> Vec<(usize, &str)> {
        let spans = scan::spans(&self.text).into_iter().filter(|span| span.kind == SpanKind::Comment);
        spans
            .flat_map(|span| {
                let first = 1 + self.text[..span.start].matches('\n').count();
                self.text[span.start..span.end].lines().enumerate().map(move |(at, line)| (first + at, line))
            })
            .collect()
    }

    /// Every function with a body, including nested ones.
    pub(super) fn functions(&self) -> Vec<Function> {
        let tokens = &self.tokens;
        let starts = tokens.windows(2).enumerate().filter(|(_, pair)| pair[0].word == "fn" && is_name(&pair[1].word));
        starts
            .filter_map(|(at, pair)| {
                let open = body_start(tokens, at)?;
                let lines = tokens[closing_brace(tokens, open)].line - pair[0].line + 1;
                Some(Function { name: pair[1].word.clone(), line: pair[0].line, lines })
            })
            .collect()
    }
}

/// Whether a token is an identifier.
pub(super) fn is_name(word: &str) -> bool {
    word.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// The brace that closes the one at `open`, or the last token if there is none.
pub(super) fn closing_brace(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.word.as_str() {
            "{" => depth += 1,
            "}" if depth == 1 => return at,
            "}" => depth -= 1,
            _ => {}
        }
    }
    tokens.len() - 1
}

/// The brace that opens the body of the item at `at`; `None` if it has no body.
pub(super) fn body_start(tokens: &[Token], at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(at) {
        match token.word.as_str() {
            "(" | "[" => depth += 1,
            ")" | "]" => depth = depth.saturating_sub(1),
            "{" if depth == 0 => return Some(at),
            ";" if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

fn test_regions(tokens: &[Token]) -> Vec<RangeInclusive<usize>> {
    let mark = scan::tokens("#[cfg(test)]");
    let marks = tokens.windows(mark.len()).enumerate().filter(|(_, window)| {
        let mut pairs = window.iter().zip(&mark);
        pairs.all(|(found, want)| found.word == want.word)
    });
    let regions = marks.filter_map(|(at, window)| {
        let open = body_start(tokens, at + mark.len())?;
        Some(window[0].line..=tokens[closing_brace(tokens, open)].line)
    });
    regions.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured_from_signature_to_closing_brace() {
        let text = "fn one() {}\n\nfn two(\n    a: [u8; 3],\n) -> u8\nwhere\n    u8: Copy,\n{\n    let s = \"}\";\n    fn in_two() {\n    }\n    0\n}\n\ntrait T {\n    fn none(&self);\n    fn pointer(f: fn(u8)) { }\n}\n";
        let file = RustFile::new("core/src/x.rs", text);
        let seen: Vec<(String, usize, usize)> =
            file.functions().into_iter().map(|function| (function.name, function.line, function.lines)).collect();
        let expected = [("one", 1, 1), ("two", 3, 11), ("in_two", 10, 2), ("pointer", 17, 1)];
        assert_eq!(seen, expected.map(|(name, line, lines)| (name.to_owned(), line, lines)));
    }

    #[test]
    fn lines_of_tests_are_told_from_the_rest() {
        let file =
            RustFile::new("core/src/x.rs", "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n");
        let tests: Vec<usize> = (1..=6).filter(|line| file.is_test(*line)).collect();
        assert_eq!(tests, [2, 3, 4, 5]);
        assert!(RustFile::new("storage/tests/it/main.rs", "").is_test(1));
        assert!(RustFile::new("core/src/record/tests.rs", "").is_test(1));
        assert!(!RustFile::new("core/src/record/contests.rs", "").is_test(1));
    }

    #[test]
    fn a_pattern_is_found_across_spaces_and_never_in_text() {
        let file =
            RustFile::new("core/src/x.rs", "a\n    .unwrap\n    ();\n// b.unwrap()\n\"c.unwrap()\"; d.unwrap_or(1)");
        assert_eq!(file.lines_outside_tests(".unwrap()"), [2]);
    }

    #[test]
    fn strings_and_comments_know_their_lines() {
        let file = RustFile::new("core/src/x.rs", "//! one\nlet a = \"two\";\n/* three\nfour */ 'c'; r#\"five\"#;");
        assert_eq!(file.comments(), [(1, "//! one"), (3, "/* three"), (4, "four */")]);
        assert_eq!(file.strings(), [(2, "two"), (4, ""), (4, "five")]);
    }
}

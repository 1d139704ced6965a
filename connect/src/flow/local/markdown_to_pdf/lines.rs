//! Breaks text into lines of a given width.
//!
//! Text becomes cells, one per character, so that a line can end anywhere regardless of where bold text or a link
//! begins. Lines break at spaces and after hyphens; a word wider than the line breaks after punctuation within it, or
//! anywhere.

use super::fonts::{Face, Fonts, Glyph};
use super::parse::{Inline, Style};
use krilla::text::GlyphId;
use std::collections::BTreeSet;
use std::ops::Range;

/// Code is drawn slightly smaller, because its face looks larger than the others.
const CODE_SCALE: f32 = 0.92;
const BREAK: char = '\n';

/// A character with its style.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cell {
    c: char,
    glyph: Glyph,
    style: Style,
}

/// Text of one style on one line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run {
    /// Offset from the beginning of the line.
    pub(super) x: f32,
    pub(super) width: f32,
    pub(super) size: f32,
    pub(super) face: Face,
    pub(super) style: Style,
    pub(super) text: String,
    pub(super) glyphs: Vec<PlacedGlyph>,
}

/// A glyph and the bytes of the text that it represents.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PlacedGlyph {
    pub(super) id: GlyphId,
    /// Width in em.
    pub(super) advance: f32,
    pub(super) bytes: Range<usize>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TextLine {
    pub(super) runs: Vec<Run>,
    pub(super) width: f32,
}

/// Turns text into cells, and collects characters that no face has.
pub(super) struct TextShaper<'f> {
    fonts: &'f Fonts,
    pub(super) missing: BTreeSet<char>,
}

impl<'f> TextShaper<'f> {
    pub(super) const fn new(fonts: &'f Fonts) -> Self {
        Self { fonts, missing: BTreeSet::new() }
    }

    /// The cells of a paragraph; images appear as their alternative text.
    pub(super) fn cells(&mut self, inlines: &[Inline]) -> Vec<Cell> {
        let mut cells = Vec::new();
        for inline in inlines {
            match inline {
                Inline::Text(text, style) | Inline::Image(_, text, style) => self.add(text, *style, &mut cells),
                Inline::Break => cells.push(self.cell(BREAK, Style::default())),
            }
        }
        cells
    }

    pub(super) fn text(&mut self, text: &str, style: Style) -> Vec<Cell> {
        let mut cells = Vec::new();
        self.add(text, style, &mut cells);
        cells
    }

    fn add(&mut self, text: &str, style: Style, cells: &mut Vec<Cell>) {
        for c in text.chars() {
            match c {
                '\t' => cells.extend([self.cell(' ', style); 4]),
                '\n' if style.code => cells.push(self.cell(BREAK, style)),
                c if c.is_whitespace() && c != '\u{a0}' && c != '\u{202f}' => cells.push(self.cell(' ', style)),
                // Characters that only allow a break draw nothing.
                '\u{ad}' | '\u{feff}' => {}
                c if c.is_control() => {}
                c => cells.push(self.cell(c, style)),
            }
        }
    }

    fn cell(&mut self, c: char, style: Style) -> Cell {
        let face = match style {
            Style { code: true, .. } => Face::Mono,
            Style { bold: true, .. } => Face::Bold,
            _ => Face::Sans,
        };
        let drawn = if c == BREAK { ' ' } else { c };
        let mut glyph = self.fonts.glyph(face, drawn);
        if is_joined(c) {
            glyph.advance = 0.0;
        } else if glyph.missing {
            self.missing.insert(c);
        }
        Cell { c, glyph, style }
    }
}

impl Cell {
    fn width(&self, base: f32) -> f32 {
        self.glyph.advance * size(self.style, base)
    }
}

fn size(style: Style, base: f32) -> f32 {
    if style.code { base * CODE_SCALE } else { base }
}

/// Breaks cells into lines of at most `width`; a line holds at least one character.
pub(super) fn wrap(cells: &[Cell], base: f32, width: f32) -> Vec<TextLine> {
    let mut lines = Vec::new();
    for part in cells.split(|cell| cell.c == BREAK) {
        let mut from = 0;
        while from < part.len() {
            let end = line_end(&part[from..], base, width) + from;
            lines.push(build_line(&part[from..end], base));
            // A line does not begin with the space at which the previous one was broken.
            from = end + part[end..].iter().take_while(|cell| cell.c == ' ' && !cell.style.code).count();
        }
        if part.is_empty() {
            lines.push(TextLine::default());
        }
    }
    lines
}

/// The width of the cells on one line, and of their widest word.
pub(super) fn extent(cells: &[Cell], base: f32) -> (f32, f32) {
    let (mut all, mut word) = (0.0_f32, 0.0_f32);
    for part in cells.split(|cell| cell.c == BREAK) {
        all = all.max(part.iter().map(|cell| cell.width(base)).sum());
        for piece in part.split(|cell| cell.c == ' ') {
            word = word.max(piece.iter().map(|cell| cell.width(base)).sum());
        }
    }
    (all, word)
}

/// How many cells the first line takes.
fn line_end(cells: &[Cell], base: f32, width: f32) -> usize {
    let mut used = 0.0;
    let (mut good, mut fair) = (0, 0);
    for (at, cell) in cells.iter().enumerate() {
        used += cell.width(base);
        // Spaces may extend beyond the edge.
        if used > width && cell.c != ' ' && at > 0 && !is_joined(cell.c) {
            let at = (0..=at).rev().find(|at| cells.get(*at).is_none_or(|cell| !is_joined(cell.c))).unwrap_or(at);
            return [good, fair, at].into_iter().find(|end| *end > 0).unwrap_or(1);
        }
        match (cell.c, cells.get(at + 1).map(|next| next.c)) {
            (_, None) => {}
            (' ' | '\u{200b}', _) => good = at + 1,
            ('-' | '\u{2010}' | '\u{2013}' | '\u{2014}', Some(next)) if next.is_alphanumeric() => good = at + 1,
            (c, Some(next)) if is_ideograph(c) && is_ideograph(next) => good = at + 1,
            ('/' | '.' | '_' | '?' | '&' | '=' | ',' | ':' | ';' | '@', _) => fair = at + 1,
            _ => {}
        }
    }
    cells.len()
}

/// One line of these cells, without trailing spaces.
fn build_line(cells: &[Cell], base: f32) -> TextLine {
    let end = cells.iter().rposition(|cell| cell.c != ' ').map_or(0, |last| last + 1);
    let mut line = TextLine::default();
    for cell in &cells[..end] {
        let same = |run: &Run| run.style == cell.style && run.face == cell.glyph.face;
        if !line.runs.last().is_some_and(same) {
            line.runs.push(Run {
                x: line.width,
                width: 0.0,
                size: size(cell.style, base),
                face: cell.glyph.face,
                style: cell.style,
                text: String::new(),
                glyphs: Vec::new(),
            });
        }
        if let Some(run) = line.runs.last_mut() {
            let from = run.text.len();
            run.text.push(cell.c);
            run.glyphs.push(PlacedGlyph {
                id: cell.glyph.id,
                advance: cell.glyph.advance,
                bytes: from..run.text.len(),
            });
            run.width += cell.width(base);
        }
        line.width += cell.width(base);
    }
    line
}

/// Characters that combine with the previous one.
const fn is_joined(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{200b}'..='\u{200d}' | '\u{20d0}'..='\u{20ff}' | '\u{fe00}'..='\u{fe0f}' | '\u{fe20}'..='\u{fe2f}')
}

const fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{2e80}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, width: f32) -> Vec<String> {
        let fonts = Fonts::load().unwrap();
        let mut setter = TextShaper::new(&fonts);
        let cells = setter.cells(&[Inline::Text(text.into(), Style::default())]);
        let lines = wrap(&cells, 10.0, width);
        for line in &lines {
            let letters = line.runs[0].text.chars().filter(|c| !is_joined(*c)).count();
            assert!(line.width <= width || letters == 1, "{line:?}");
        }
        lines.iter().map(|line| line.runs.iter().map(|run| run.text.as_str()).collect()).collect()
    }

    #[test]
    fn lines_break_between_words_and_lose_none() {
        let text = "the quick brown fox jumps over the lazy dog again and again";
        for width in [1.0, 20.0, 60.0, 100.0, 1_000.0] {
            let set = lines(text, width);
            assert_eq!(set.concat().replace(' ', ""), text.replace(' ', ""), "at {width}");
        }
        assert_eq!(lines(text, 60.0)[0], "the quick");
    }

    #[test]
    fn a_word_that_is_too_long_breaks_at_a_mark_or_wherever_it_must() {
        assert_eq!(lines("see https://example.org/path", 100.0)[1], "https://example.");
        assert_eq!(lines("well-known", 45.0), ["well-", "known"]);
        assert!(lines("incomprehensibilities", 40.0).len() > 2);
        assert_eq!(lines("e\u{301}e\u{301}", 1.0), ["e\u{301}", "e\u{301}"]);
    }
}

//! Lays out blocks on pages.
//!
//! The layout keeps a position on the current page and moves down; what no longer fits starts the next page. Space
//! between blocks is pending until something follows on the same page. Backgrounds and bars are drawn per page once
//! the extent of their content is known.

use super::error::{RenderError, too_many};
use super::fonts::{ASCENT, DESCENT, Fonts};
use super::lines::{TextLine, TextShaper, wrap};
use super::page::{Color, DrawOp, Heading, Layout, PaperSize, PdfPage};
use super::parse::{Block, Inline, Item, Style, plain};
use super::picture::Picture;
use super::table::draw_table;
use chimera_core::limits::PDF_PAGES_MAX;

const TEXT: f32 = 10.5;
const HEADINGS: [f32; 6] = [22.0, 17.0, 14.0, 12.0, 11.0, 10.5];
const CODE: f32 = 9.5;
const LEADING: f32 = 1.42;
const GAP: f32 = 8.0;
/// The space between items of a tight list.
const TIGHT: f32 = 2.5;
const PADDING: f32 = 6.0;
/// The minimum column width in nested blocks.
const COLUMN_MIN: f32 = 90.0;
/// Points per pixel at 96 dpi.
const PIXEL: f32 = 0.75;
const BULLETS: [&str; 3] = ["•", "◦", "▪"];

/// A bullet or number beside the first line of an item.
struct ItemMarker {
    line: TextLine,
    right: f32,
}

/// A position on a page.
#[derive(Clone, Copy)]
pub(super) struct PagePosition {
    page: usize,
    y: f32,
}

/// The layout in progress.
pub(super) struct LayoutBuilder<'a> {
    pub(super) setter: TextShaper<'a>,
    pictures: &'a [Picture],
    sheet: PaperSize,
    pages: Vec<PdfPage>,
    headings: Vec<Heading>,
    signs: Vec<ItemMarker>,
    pub(super) y: f32,
    gap: f32,
    pub(super) left: f32,
    pub(super) right: f32,
    color: Color,
    depth: usize,
}

/// Lays out a document.
pub(super) fn layout(
    fonts: &Fonts,
    pictures: &[Picture],
    sheet: PaperSize,
    blocks: &[Block],
) -> Result<Layout, RenderError> {
    let mut flow = LayoutBuilder {
        setter: TextShaper::new(fonts),
        pictures,
        sheet,
        pages: vec![PdfPage::default()],
        headings: Vec::new(),
        signs: Vec::new(),
        y: sheet.top(),
        gap: 0.0,
        left: sheet.left(),
        right: sheet.right(),
        color: Color::TEXT,
        depth: 0,
    };
    flow.blocks(blocks)?;
    Ok(Layout { sheet, pages: flow.pages, headings: flow.headings, missing: flow.setter.missing })
}

impl LayoutBuilder<'_> {
    fn blocks(&mut self, blocks: &[Block]) -> Result<(), RenderError> {
        (1..).zip(blocks).try_for_each(|(next, block)| self.block(block, blocks.get(next)))
    }

    fn block(&mut self, block: &Block, next: Option<&Block>) -> Result<(), RenderError> {
        match block {
            Block::Heading(level, inlines) => self.heading(*level, inlines, next),
            Block::Paragraph(inlines) => self.paragraph(inlines, GAP),
            Block::TightText(inlines) => self.paragraph(inlines, TIGHT),
            Block::Code(text) => self.code(text),
            Block::Quote(blocks) => self.quote(blocks),
            Block::List(start, items) => self.list(*start, items),
            Block::Table(table) => draw_table(self, table),
            Block::Rule => self.rule(),
            Block::PageBreak => self.start_page(),
        }
    }

    fn heading(&mut self, level: u8, inlines: &[Inline], next: Option<&Block>) -> Result<(), RenderError> {
        let base = HEADINGS[usize::from(level.clamp(1, 6)) - 1];
        let cells = self.setter.cells(inlines);
        let lines = wrap(&cells, base, self.right - self.left);
        let height = base * 1.25;
        self.space(base * 0.9);
        // A heading stays with the beginning of its section.
        let below = base * 0.45 + next.map_or(0.0, |next| self.min_height(next));
        self.ensure_space((height * lines.len() as f32 + below).min(self.page_room()))?;
        self.headings.push(Heading { level, text: plain(inlines), page: self.pages.len() - 1, y: self.y });
        for line in &lines {
            self.line(line, self.left, base, height)?;
        }
        self.space(base * 0.45);
        Ok(())
    }

    /// The minimum space that a block needs to begin on a page.
    fn min_height(&self, block: &Block) -> f32 {
        let lines = 2.0 * TEXT * LEADING;
        match block {
            Block::Paragraph(inlines) => match inlines.first() {
                Some(Inline::Image(number, ..)) => self.extent(*number).1 + GAP,
                _ => lines,
            },
            Block::Heading(..) => 2.5 * lines,
            Block::Code(_) | Block::Table(_) => lines + 4.0 * PADDING,
            Block::Rule | Block::PageBreak => 0.0,
            Block::TightText(_) | Block::Quote(_) | Block::List(..) => lines,
        }
    }

    /// Width and height of an image, scaled to fit.
    fn extent(&self, number: usize) -> (f32, f32) {
        let Some(picture) = self.pictures.get(number) else { return (0.0, 0.0) };
        let (width, height) = (picture.width as f32 * PIXEL, picture.height as f32 * PIXEL);
        let scale = ((self.right - self.left) / width).min(self.page_room() / height).min(1.0);
        (width * scale, height * scale)
    }

    fn paragraph(&mut self, inlines: &[Inline], gap: f32) -> Result<(), RenderError> {
        let mut words = Vec::new();
        for inline in inlines {
            if let Inline::Image(number, _, _) = inline {
                self.words(&std::mem::take(&mut words))?;
                self.picture(*number)?;
            } else {
                words.push(inline.clone());
            }
        }
        self.words(&words)?;
        self.space(gap);
        Ok(())
    }

    fn words(&mut self, inlines: &[Inline]) -> Result<(), RenderError> {
        if plain(inlines).trim().is_empty() {
            return Ok(());
        }
        let cells = self.setter.cells(inlines);
        let lines = wrap(&cells, TEXT, self.right - self.left);
        let height = TEXT * LEADING;
        if lines.len() > 1 {
            // A paragraph never leaves its first line alone on a page.
            self.ensure_space(2.0 * height)?;
        }
        lines.iter().try_for_each(|line| self.line(line, self.left, TEXT, height))
    }

    fn picture(&mut self, number: usize) -> Result<(), RenderError> {
        let (width, height) = self.extent(number);
        self.space(GAP / 2.0);
        self.ensure_space(height)?;
        self.draw_markers(self.y + TEXT * LEADING);
        let (x, y) = (self.left, self.y);
        self.draw(DrawOp::Image { number, x, y, width, height });
        self.advance(height);
        self.space(GAP / 2.0);
        Ok(())
    }

    fn code(&mut self, text: &str) -> Result<(), RenderError> {
        let style = Style { code: true, ..Style::default() };
        let cells = self.setter.text(text, style);
        let lines = wrap(&cells, CODE, self.right - self.left - 2.0 * PADDING);
        let height = CODE * 1.35;
        self.ensure_space(height * lines.len().min(2) as f32 + 2.0 * PADDING)?;
        let from = self.place();
        self.advance(PADDING);
        for line in &lines {
            self.line(line, self.left + PADDING, CODE, height)?;
        }
        self.advance(PADDING);
        let (x, width) = (self.left, self.right - self.left);
        self.draw_behind(from, |y, height| DrawOp::Fill { x, y, width, height, color: Color::SHADE });
        self.space(GAP);
        Ok(())
    }

    fn quote(&mut self, blocks: &[Block]) -> Result<(), RenderError> {
        let (left, color) = (self.left, self.color);
        self.ensure_space(TEXT * LEADING)?;
        let from = self.place();
        self.left = self.indented(14.0);
        self.color = Color::MUTED;
        self.blocks(blocks)?;
        (self.left, self.color) = (left, color);
        self.draw_behind(from, |y, height| DrawOp::Fill { x: left, y, width: 2.5, height, color: Color::LINE });
        self.space(GAP);
        Ok(())
    }

    fn list(&mut self, start: Option<u64>, items: &[Item]) -> Result<(), RenderError> {
        let left = self.left;
        let signs: Vec<TextLine> = (0_u64..)
            .zip(items)
            .map(|(at, item)| {
                let sign = match (start, item.done) {
                    (_, Some(true)) => "☑".to_owned(),
                    (_, Some(false)) => "☐".to_owned(),
                    (Some(start), None) => format!("{}.", start.saturating_add(at)),
                    (None, None) => BULLETS[self.depth % BULLETS.len()].to_owned(),
                };
                let cells = self.setter.text(&sign, Style::default());
                wrap(&cells, TEXT, f32::MAX).into_iter().next().unwrap_or_default()
            })
            .collect();
        let widest = signs.iter().map(|sign| sign.width).fold(10.0, f32::max);
        self.left = self.indented(widest + 8.0);
        self.depth += 1;
        for (sign, item) in signs.into_iter().zip(items) {
            self.signs.push(ItemMarker { line: sign, right: self.left - 6.0 });
            self.blocks(&item.blocks)?;
            if !self.signs.is_empty() {
                self.line(&TextLine::default(), self.left, TEXT, TEXT * LEADING)?;
            }
            let loose = item.blocks.iter().any(|block| matches!(block, Block::Paragraph(_)));
            self.gap = if loose { GAP } else { TIGHT };
        }
        self.depth -= 1;
        self.left = left;
        self.space(if self.depth == 0 { GAP } else { TIGHT });
        Ok(())
    }

    fn rule(&mut self) -> Result<(), RenderError> {
        self.space(GAP);
        self.ensure_space(1.0)?;
        let (x, y, width) = (self.left, self.y, self.right - self.left);
        self.draw(DrawOp::Fill { x, y, width, height: 0.8, color: Color::LINE });
        self.advance(1.0);
        self.space(GAP * 1.4);
        Ok(())
    }

    /// Draws a line at `x` and moves below it.
    fn line(&mut self, line: &TextLine, x: f32, base: f32, height: f32) -> Result<(), RenderError> {
        self.ensure_space(height)?;
        let baseline = self.y + (height - (ASCENT + DESCENT) * base) / 2.0 + ASCENT * base;
        self.draw_markers(baseline);
        self.runs(line, x, baseline);
        self.advance(height);
        Ok(())
    }

    /// Draws the pending bullets beside their item's first line.
    pub(super) fn draw_markers(&mut self, baseline: f32) {
        for sign in std::mem::take(&mut self.signs) {
            self.runs(&sign.line, sign.right - sign.line.width, baseline);
        }
    }

    /// Draws the runs of a line with their decorations.
    pub(super) fn runs(&mut self, line: &TextLine, x: f32, baseline: f32) {
        for run in &line.runs {
            let (x, width, size) = (x + run.x, run.width, run.size);
            let fill = |y: f32, height: f32, color| DrawOp::Fill { x, y, width, height, color };
            let color = if run.style.link.is_some() { Color::LINK } else { self.color };
            if let Some(link) = run.style.link {
                let (y, height) = (baseline - size * 0.8, size * 1.1);
                self.draw(fill(baseline + size * 0.12, 0.5, Color::LINK));
                self.draw(DrawOp::Link { x, y, width, height, link });
            }
            if run.style.struck {
                self.draw(fill(baseline - size * 0.28, 0.7, color));
            }
            self.draw(DrawOp::Text { x, y: baseline, color, run: run.clone() });
        }
    }

    /// Ensures that `height` fits on the page; starts the next page if it does not.
    pub(super) fn ensure_space(&mut self, height: f32) -> Result<(), RenderError> {
        let fresh = self.y <= self.sheet.top();
        if !fresh && self.y + self.gap + height > self.sheet.bottom() {
            return self.start_page();
        }
        if !fresh {
            self.y += self.gap;
        }
        self.gap = 0.0;
        Ok(())
    }

    /// Starts a page.
    pub(super) fn start_page(&mut self) -> Result<(), RenderError> {
        if self.pages.len() == PDF_PAGES_MAX {
            return Err(too_many("pages", PDF_PAGES_MAX));
        }
        self.pages.push(PdfPage::default());
        self.y = self.sheet.top();
        self.gap = 0.0;
        Ok(())
    }

    /// Requests space before the next block; the largest request wins.
    pub(super) const fn space(&mut self, space: f32) {
        self.gap = self.gap.max(space);
    }

    pub(super) const fn room(&self) -> f32 {
        self.sheet.bottom() - self.y
    }

    pub(super) const fn page_room(&self) -> f32 {
        self.sheet.bottom() - self.sheet.top()
    }

    pub(super) fn place(&self) -> PagePosition {
        PagePosition { page: self.pages.len() - 1, y: self.y }
    }

    /// Moves down after drawing.
    pub(super) fn advance(&mut self, height: f32) {
        self.y += height;
        if let Some(page) = self.pages.last_mut() {
            page.used = page.used.max(self.y);
        }
    }

    pub(super) fn draw(&mut self, mark: DrawOp) {
        if let Some(page) = self.pages.last_mut() {
            page.over.push(mark);
        }
    }

    /// Draws behind everything laid out since `from`, on each page as far as it reached.
    pub(super) fn draw_behind(&mut self, from: PagePosition, mark: impl Fn(f32, f32) -> DrawOp) {
        let top = self.sheet.top();
        for (at, page) in self.pages.iter_mut().enumerate().skip(from.page) {
            let y = if at == from.page { from.y } else { top };
            if page.used > y {
                page.under.push(mark(y, page.used - y));
            }
        }
    }

    fn indented(&self, by: f32) -> f32 {
        (self.left + by).min((self.right - COLUMN_MIN).max(self.left))
    }
}

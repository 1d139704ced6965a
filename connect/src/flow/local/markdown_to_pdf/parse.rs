//! Parses Markdown into a tree of blocks.
//!
//! CommonMark with tables, task lists and strike-through. Raw HTML is shown verbatim, apart from `<br>` and comments.
//! `\newpage`, `\pagebreak` and `<!-- pagebreak -->`, alone in a paragraph, start a new page. An image from the
//! network becomes a link to it.

use super::error::{RenderError, too_many};
use chimera_core::limits::{MARKDOWN_DEPTH_MAX, PDF_IMAGES_MAX, PDF_TABLE_CELLS_MAX};
use pulldown_cmark::{Alignment, Event, HeadingLevel, Options, Tag, TagEnd};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) bold: bool,
    pub(super) italic: bool,
    pub(super) code: bool,
    pub(super) struck: bool,
    /// Index of the link target.
    pub(super) link: Option<usize>,
}

/// Inline content of a paragraph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Inline {
    Text(String, Style),
    Break,
    /// Index of the image, its alternative text, and its style.
    Image(usize, String, Style),
}

/// A block of a document.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Block {
    Heading(u8, Vec<Inline>),
    Paragraph(Vec<Inline>),
    /// The text of a tight list item, set close to what follows.
    TightText(Vec<Inline>),
    Code(String),
    Quote(Vec<Block>),
    /// Number of the first item if the list is numbered, and the items.
    List(Option<u64>, Vec<Item>),
    Table(Table),
    Rule,
    PageBreak,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Item {
    /// Whether it is checked, if it is a task.
    pub(super) done: Option<bool>,
    pub(super) blocks: Vec<Block>,
}

/// A table; the first row is its header.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Table {
    pub(super) alignments: Vec<Alignment>,
    pub(super) rows: Vec<Vec<Vec<Inline>>>,
}

/// A document, the targets of its links, and the sources of its images.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Document {
    pub(super) blocks: Vec<Block>,
    pub(super) links: Vec<String>,
    pub(super) images: Vec<String>,
}

pub(super) fn parse(markdown: &str) -> Result<Document, RenderError> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let events = pulldown_cmark::Parser::new_ext(markdown, options);
    let mut reader = MarkdownReader { events, document: Document::default(), cells: 0, depth: 0 };
    let item = reader.blocks()?;
    reader.document.blocks = item.blocks;
    Ok(reader.document)
}

/// The text of a paragraph without styles.
pub(super) fn plain(inlines: &[Inline]) -> String {
    let text = |inline: &Inline| match inline {
        Inline::Text(text, _) | Inline::Image(_, text, _) => text.clone(),
        Inline::Break => " ".to_owned(),
    };
    inlines.iter().map(text).collect()
}

struct MarkdownReader<'a> {
    events: pulldown_cmark::Parser<'a>,
    document: Document,
    cells: usize,
    depth: usize,
}

impl<'a> MarkdownReader<'a> {
    /// Blocks up to the end of their container.
    fn blocks(&mut self) -> Result<Item, RenderError> {
        self.depth += 1;
        if self.depth > MARKDOWN_DEPTH_MAX {
            return Err(too_many("nested lists and quotes", MARKDOWN_DEPTH_MAX));
        }
        let (mut item, mut loose) = (Item::default(), Vec::new());
        while let Some(event) = self.events.next() {
            match event {
                Event::End(_) => break,
                Event::TaskListMarker(done) => item.done = Some(done),
                Event::Rule => push(&mut item, &mut loose, Block::Rule),
                Event::Start(tag) if is_block(&tag) => {
                    if let Some(block) = self.block(tag)? {
                        push(&mut item, &mut loose, block);
                    }
                }
                event => self.inline(event, Style::default(), &mut loose)?,
            }
        }
        if !loose.is_empty() {
            item.blocks.push(Block::TightText(loose));
        }
        self.depth -= 1;
        Ok(item)
    }

    fn block(&mut self, tag: Tag<'a>) -> Result<Option<Block>, RenderError> {
        Ok(Some(match tag {
            Tag::Paragraph => {
                let inlines = self.inlines(Style::default())?;
                match plain(&inlines).trim() {
                    "\\newpage" | "\\pagebreak" => Block::PageBreak,
                    _ => Block::Paragraph(inlines),
                }
            }
            Tag::Heading { level, .. } => {
                let style = Style { bold: true, ..Style::default() };
                Block::Heading(rank(level), self.inlines(style)?)
            }
            Tag::BlockQuote(_) => Block::Quote(self.blocks()?.blocks),
            Tag::CodeBlock(_) => Block::Code(self.raw().trim_end_matches('\n').to_owned()),
            Tag::HtmlBlock => return Ok(html(self.raw().trim())),
            Tag::List(start) => {
                let mut items = Vec::new();
                while let Some(Event::Start(Tag::Item)) = self.events.next() {
                    items.push(self.blocks()?);
                }
                Block::List(start, items)
            }
            Tag::Table(alignments) => Block::Table(self.table(alignments)?),
            _ => return Ok(None),
        }))
    }

    fn table(&mut self, alignments: Vec<Alignment>) -> Result<Table, RenderError> {
        let mut table = Table { alignments, rows: Vec::new() };
        loop {
            match self.events.next() {
                Some(Event::Start(Tag::TableHead | Tag::TableRow)) => table.rows.push(Vec::new()),
                Some(Event::Start(Tag::TableCell)) => {
                    self.cells += 1;
                    if self.cells > PDF_TABLE_CELLS_MAX {
                        return Err(too_many("table cells", PDF_TABLE_CELLS_MAX));
                    }
                    let style = Style { bold: table.rows.len() == 1, ..Style::default() };
                    let cell = self.inlines(style)?;
                    if let Some(row) = table.rows.last_mut() {
                        row.push(cell);
                    }
                }
                None | Some(Event::End(TagEnd::Table)) => return Ok(table),
                Some(_) => {}
            }
        }
    }

    /// Text up to the end of its container.
    fn raw(&mut self) -> String {
        let mut text = String::new();
        while let Some(event) = self.events.next() {
            match event {
                Event::End(_) => break,
                Event::Text(part) | Event::Html(part) | Event::Code(part) | Event::InlineHtml(part) => {
                    text.push_str(&part);
                }
                Event::SoftBreak | Event::HardBreak => text.push('\n'),
                Event::Start(_) => text.push_str(&self.raw()),
                _ => {}
            }
        }
        text
    }

    fn inlines(&mut self, style: Style) -> Result<Vec<Inline>, RenderError> {
        let mut out = Vec::new();
        loop {
            match self.events.next() {
                None | Some(Event::End(_)) => return Ok(out),
                Some(event) => self.inline(event, style, &mut out)?,
            }
        }
    }

    fn inline(&mut self, event: Event<'a>, style: Style, out: &mut Vec<Inline>) -> Result<(), RenderError> {
        let text = |out: &mut Vec<Inline>, text: &str, style| out.push(Inline::Text(text.to_owned(), style));
        match event {
            Event::Text(part) => text(out, &part, style),
            Event::Code(part) => text(out, &part, Style { code: true, ..style }),
            Event::SoftBreak => text(out, " ", style),
            Event::HardBreak => out.push(Inline::Break),
            Event::InlineHtml(part) | Event::Html(part) => match part.trim() {
                "<br>" | "<br/>" | "<br />" => out.push(Inline::Break),
                comment if comment.starts_with("<!--") => {}
                other => text(out, other, style),
            },
            Event::Start(tag) => self.span(tag, style, out)?,
            _ => {}
        }
        Ok(())
    }

    /// The content between a tag and its end.
    fn span(&mut self, tag: Tag<'a>, style: Style, out: &mut Vec<Inline>) -> Result<(), RenderError> {
        self.depth += 1;
        if self.depth > 2 * MARKDOWN_DEPTH_MAX {
            return Err(too_many("nested marks", MARKDOWN_DEPTH_MAX));
        }
        let style = match tag {
            Tag::Strong => Style { bold: true, ..style },
            Tag::Emphasis => Style { italic: true, ..style },
            Tag::Strikethrough => Style { struck: true, ..style },
            Tag::Link { dest_url, .. } => {
                self.document.links.push(dest_url.into_string());
                Style { link: Some(self.document.links.len() - 1), ..style }
            }
            Tag::Image { dest_url, .. } => {
                if self.document.images.len() == PDF_IMAGES_MAX {
                    return Err(too_many("images", PDF_IMAGES_MAX));
                }
                let words = self.raw();
                out.push(self.image(dest_url.into_string(), words, style));
                self.depth -= 1;
                return Ok(());
            }
            _ => style,
        };
        out.extend(self.inlines(style)?);
        self.depth -= 1;
        Ok(())
    }
}

impl MarkdownReader<'_> {
    /// An image that is at hand, or a link to one that would have to be fetched, which never happens.
    fn image(&mut self, source: String, words: String, style: Style) -> Inline {
        if source.starts_with("data:") || source.starts_with("cas://") {
            self.document.images.push(source);
            return Inline::Image(self.document.images.len() - 1, words, style);
        }
        let words = if words.is_empty() { source.clone() } else { words };
        self.document.links.push(source);
        Inline::Text(words, Style { link: style.link.or(Some(self.document.links.len() - 1)), ..style })
    }
}

/// Adds a block, after the loose text before it.
fn push(item: &mut Item, loose: &mut Vec<Inline>, block: Block) {
    if !loose.is_empty() {
        item.blocks.push(Block::TightText(std::mem::take(loose)));
    }
    item.blocks.push(block);
}

const fn is_block(tag: &Tag<'_>) -> bool {
    matches!(
        tag,
        Tag::Paragraph
            | Tag::Heading { .. }
            | Tag::BlockQuote(_)
            | Tag::CodeBlock(_)
            | Tag::HtmlBlock
            | Tag::List(_)
            | Tag::Table(_)
    )
}

fn html(text: &str) -> Option<Block> {
    let comment = text.strip_prefix("<!--").and_then(|rest| rest.strip_suffix("-->"));
    match comment.map(str::trim) {
        Some("pagebreak" | "newpage") => Some(Block::PageBreak),
        Some(_) => None,
        None => Some(Block::Code(text.to_owned())),
    }
}

const fn rank(level: HeadingLevel) -> u8 {
    match level {
        HeadingLevel::H1 => 1,
        HeadingLevel::H2 => 2,
        HeadingLevel::H3 => 3,
        HeadingLevel::H4 => 4,
        HeadingLevel::H5 => 5,
        HeadingLevel::H6 => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Inline {
        Inline::Text(text.into(), Style::default())
    }

    #[test]
    fn blocks_are_nested_as_they_are_written() {
        let document = parse("# T\n\n- a\n  1. b\n- [x] c\n\n> q\n\n---\n\n\\newpage\n\n<!-- pagebreak -->\n").unwrap();
        let nested = Block::List(Some(1), vec![Item { done: None, blocks: vec![Block::TightText(vec![text("b")])] }]);
        let items = vec![
            Item { done: None, blocks: vec![Block::TightText(vec![text("a")]), nested] },
            Item { done: Some(true), blocks: vec![Block::TightText(vec![text("c")])] },
        ];
        let bold = Style { bold: true, ..Style::default() };
        assert_eq!(
            document.blocks,
            [
                Block::Heading(1, vec![Inline::Text("T".into(), bold)]),
                Block::List(None, items),
                Block::Quote(vec![Block::Paragraph(vec![text("q")])]),
                Block::Rule,
                Block::PageBreak,
                Block::PageBreak,
            ]
        );
    }

    #[test]
    fn marks_links_and_images_are_kept() {
        let document = parse("a **b *c*** [`d`](https://x.y) ![e](data:,) f  \ng<br>h").unwrap();
        let style = Style::default();
        let both = Style { bold: true, italic: true, ..style };
        let code = Style { code: true, link: Some(0), ..style };
        let Block::Paragraph(inlines) = &document.blocks[0] else { panic!("a paragraph") };
        assert!(inlines.contains(&Inline::Text("c".into(), both)));
        assert!(inlines.contains(&Inline::Text("d".into(), code)));
        assert!(inlines.contains(&Inline::Image(0, "e".into(), style)));
        assert_eq!(inlines.iter().filter(|inline| **inline == Inline::Break).count(), 2);
        assert_eq!((document.links.len(), document.images.len()), (1, 1));
    }

    #[test]
    fn a_document_without_bounds_is_refused() {
        assert!(parse(&"> ".repeat(MARKDOWN_DEPTH_MAX + 1)).is_err());
        assert!(parse(&"![](data:,)".repeat(PDF_IMAGES_MAX + 1)).is_err());
        let row = "|a".repeat(1_000) + "|\n";
        let table = row.clone() + &"|-".repeat(1_000) + "|\n" + &row.repeat(100);
        assert!(parse(&table).is_err());
    }
}

//! Writes pages as a PDF.
//!
//! Uses neither clock nor randomness: the identifiers inside derive from the content, so the same document gives the
//! same bytes.

use super::error::RenderError;
use super::fonts::Fonts;
use super::lines::{PlacedGlyph, Run, TextShaper, wrap};
use super::page::{Color, DrawOp, Heading, Layout, PaperSize, PdfPage};
use super::parse::Style;
use super::picture::Picture;
use krilla::Document;
use krilla::action::LinkAction;
use krilla::annotation::{LinkAnnotation, Target};
use krilla::color::rgb;
use krilla::destination::XyzDestination;
use krilla::error::KrillaError;
use krilla::geom::{PathBuilder, Point, Rect, Size, Transform};
use krilla::metadata::Metadata;
use krilla::num::NormalizedF32;
use krilla::outline::{Outline, OutlineNode};
use krilla::page::PageSettings;
use krilla::paint::{Fill, FillRule};
use krilla::surface::Surface;
use krilla::text::KrillaGlyph;

/// Horizontal slant of italic text per point of height.
const SLANT: f32 = 0.2;
const FOOTER: f32 = 8.5;

/// Document metadata and options.
pub(super) struct DocumentInfo {
    pub(super) title: Option<String>,
    /// A BCP 47 language tag.
    pub(super) language: Option<String>,
    /// Whether pages are numbered.
    pub(super) page_numbers: bool,
}

pub(super) fn write(
    fonts: &Fonts,
    laid: &Layout,
    pictures: &[Picture],
    links: &[String],
    about: &DocumentInfo,
) -> Result<Vec<u8>, RenderError> {
    let mut document = Document::new();
    let mut metadata = Metadata::new().producer("Chimera".to_owned());
    if let Some(title) = &about.title {
        metadata = metadata.title(title.clone());
    }
    if let Some(language) = &about.language {
        metadata = metadata.language(language.clone());
    }
    document.set_metadata(metadata);
    let PaperSize { width, height } = laid.sheet;
    for (at, page) in laid.pages.iter().enumerate() {
        let settings = PageSettings::from_wh(width, height).ok_or(RenderError::Pages("the page has no size"))?;
        let mut sheet = document.start_page_with(settings);
        for annotation in page.over.iter().filter_map(|mark| annotation(mark, links, &laid.headings)) {
            sheet.add_annotation(annotation.into());
        }
        let mut surface = sheet.surface();
        marks(&mut surface, fonts, page, pictures);
        if about.page_numbers {
            number(&mut surface, fonts, laid.sheet, at + 1, laid.pages.len());
        }
        surface.finish();
        sheet.finish();
    }
    document.set_outline(outline(&laid.headings));
    document.finish().map_err(|error| match error {
        KrillaError::Image(image, ..) => {
            let number = pictures.iter().position(|picture| picture.image == image).map_or(0, |at| at + 1);
            RenderError::Image { number, reason: "the file is damaged".to_owned() }
        }
        _ => RenderError::Pages("the document structure is inconsistent"),
    })
}

fn marks(surface: &mut Surface<'_>, fonts: &Fonts, page: &PdfPage, pictures: &[Picture]) {
    for mark in page.under.iter().chain(&page.over) {
        match mark {
            DrawOp::Fill { x, y, width, height, color } => fill(surface, [*x, *y, *width, *height], *color),
            DrawOp::Text { x, y, color, run } => text(surface, fonts, Point::from_xy(*x, *y), *color, run),
            DrawOp::Image { number, x, y, width, height } => {
                if let (Some(picture), Some(size)) = (pictures.get(*number), Size::from_wh(*width, *height)) {
                    surface.push_transform(&Transform::from_translate(*x, *y));
                    surface.draw_image(picture.image.clone(), size);
                    surface.pop();
                }
            }
            DrawOp::Link { .. } => {}
        }
    }
}

fn paint(color: Color) -> Fill {
    Fill {
        paint: rgb::Color::new(color.0, color.1, color.2).into(),
        opacity: NormalizedF32::ONE,
        rule: FillRule::default(),
    }
}

fn fill(surface: &mut Surface<'_>, [x, y, width, height]: [f32; 4], color: Color) {
    let mut path = PathBuilder::new();
    if let Some(rect) = Rect::from_xywh(x, y, width, height) {
        path.push_rect(rect);
    }
    if let Some(path) = path.finish() {
        surface.set_fill(Some(paint(color)));
        surface.draw_path(&path);
    }
}

fn text(surface: &mut Surface<'_>, fonts: &Fonts, at: Point, color: Color, run: &Run) {
    let glyph =
        |placed: &PlacedGlyph| KrillaGlyph::new(placed.id, placed.advance, 0.0, 0.0, 0.0, placed.bytes.clone(), None);
    let glyphs: Vec<KrillaGlyph> = run.glyphs.iter().map(glyph).collect();
    let lean = if run.style.italic { -SLANT } else { 0.0 };
    surface.set_fill(Some(paint(color)));
    surface.push_transform(&Transform::from_row(1.0, 0.0, lean, 1.0, at.x, at.y));
    surface.draw_glyphs(Point::from_xy(0.0, 0.0), &glyphs, fonts.font(run.face), &run.text, run.size, false);
    surface.pop();
}

fn number(surface: &mut Surface<'_>, fonts: &Fonts, sheet: PaperSize, page: usize, pages: usize) {
    let mut setter = TextShaper::new(fonts);
    let cells = setter.text(&format!("{page} / {pages}"), Style::default());
    for line in wrap(&cells, FOOTER, sheet.width) {
        let x = (sheet.width - line.width) / 2.0;
        for run in &line.runs {
            text(surface, fonts, Point::from_xy(x + run.x, sheet.height - 36.0), Color::MUTED, run);
        }
    }
}

/// The clickable area for a link, if its target is allowed.
fn annotation(mark: &DrawOp, links: &[String], headings: &[Heading]) -> Option<LinkAnnotation> {
    let DrawOp::Link { x, y, width, height, link } = mark else { return None };
    let rect = Rect::from_xywh(*x, *y, *width, *height)?;
    let address = links.get(*link)?;
    let target = match address.strip_prefix('#') {
        Some(anchor) => {
            let heading = headings.iter().find(|heading| slug(&heading.text) == anchor.to_lowercase())?;
            Target::Destination(destination(heading).into())
        }
        None => Target::Action(LinkAction::new(uri(address)?).into()),
    };
    Some(LinkAnnotation::new(rect, target))
}

fn destination(heading: &Heading) -> XyzDestination {
    XyzDestination::new(heading.page, Point::from_xy(0.0, (heading.y - 6.0).max(0.0)))
}

/// An address that is safe to open, in ASCII; scripts and local files are not.
fn uri(address: &str) -> Option<String> {
    let scheme = address.split_once(':')?.0.to_ascii_lowercase();
    matches!(scheme.as_str(), "http" | "https" | "mailto").then(|| {
        let mut out = String::new();
        for byte in address.bytes() {
            if byte.is_ascii_graphic() {
                out.push(char::from(byte));
            } else {
                out.push_str(&format!("%{byte:02X}"));
            }
        }
        out
    })
}

/// The anchor of a heading: its words in lower case, joined by hyphens.
fn slug(text: &str) -> String {
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn outline(headings: &[Heading]) -> Outline {
    let mut outline = Outline::new();
    let mut open: Vec<(u8, OutlineNode)> = Vec::new();
    for heading in headings {
        close(&mut open, &mut outline, heading.level);
        open.push((heading.level, OutlineNode::new(heading.text.clone(), destination(heading))));
    }
    close(&mut open, &mut outline, 0);
    outline
}

/// Attaches every open heading of this level or below to its parent.
fn close(open: &mut Vec<(u8, OutlineNode)>, outline: &mut Outline, level: u8) {
    while let Some((_, node)) = open.pop_if(|(above, _)| *above >= level) {
        match open.last_mut() {
            Some((_, parent)) => parent.push_child(node),
            None => outline.push_child(node),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_are_safe_to_open_become_links() {
        assert_eq!(uri("https://example.org/ä b").as_deref(), Some("https://example.org/%C3%A4%20b"));
        assert_eq!(uri("mailto:a@b.example").as_deref(), Some("mailto:a@b.example"));
        for other in ["javascript:alert(1)", "file:///x", "JavaScript:x", "relative/path", ""] {
            assert_eq!(uri(other), None, "{other}");
        }
    }

    #[test]
    fn a_heading_is_found_by_its_words() {
        assert_eq!(slug("Was ist neu? (2)"), "was-ist-neu-2");
    }
}

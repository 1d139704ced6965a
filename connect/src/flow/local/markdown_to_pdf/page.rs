//! Pages as lists of drawing operations, before they are written.

use super::lines::Run;
use std::collections::BTreeSet;

/// A sheet of paper, in points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PaperSize {
    pub(super) width: f32,
    pub(super) height: f32,
}

impl PaperSize {
    /// ISO A4.
    pub(super) const A4: Self = Self { width: 595.28, height: 841.89 };
    /// US Letter.
    pub(super) const LETTER: Self = Self { width: 612.0, height: 792.0 };

    pub(super) const fn left(self) -> f32 {
        64.0
    }

    pub(super) const fn right(self) -> f32 {
        self.width - 64.0
    }

    pub(super) const fn top(self) -> f32 {
        64.0
    }

    pub(super) const fn bottom(self) -> f32 {
        self.height - 72.0
    }
}

/// A colour: red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Color(pub(super) u8, pub(super) u8, pub(super) u8);

impl Color {
    pub(super) const TEXT: Self = Self(0x1f, 0x23, 0x28);
    pub(super) const MUTED: Self = Self(0x57, 0x60, 0x6a);
    pub(super) const LINK: Self = Self(0x09, 0x55, 0xb8);
    pub(super) const LINE: Self = Self(0xc8, 0xcd, 0xd2);
    pub(super) const SHADE: Self = Self(0xf4, 0xf5, 0xf7);
}

/// A drawing operation; `y` counts from the top.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum DrawOp {
    Fill { x: f32, y: f32, width: f32, height: f32, color: Color },
    Text { x: f32, y: f32, color: Color, run: Run },
    Image { number: usize, x: f32, y: f32, width: f32, height: f32 },
    Link { x: f32, y: f32, width: f32, height: f32, link: usize },
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct PdfPage {
    /// Drawn first, behind `over`.
    pub(super) under: Vec<DrawOp>,
    pub(super) over: Vec<DrawOp>,
    /// How far down it is used.
    pub(super) used: f32,
}

/// A heading and its position.
#[derive(Debug, PartialEq)]
pub(super) struct Heading {
    pub(super) level: u8,
    pub(super) text: String,
    pub(super) page: usize,
    pub(super) y: f32,
}

/// A document after layout.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) sheet: PaperSize,
    pub(super) pages: Vec<PdfPage>,
    pub(super) headings: Vec<Heading>,
    /// Characters that no font has.
    pub(super) missing: BTreeSet<char>,
}

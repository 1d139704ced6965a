//! The fonts that every document carries: which glyph a character has, and how wide it is.
//!
//! Italics are the upright letters slanted, as the family's own oblique faces are, so three files
//! serve four styles. A character that one face lacks is taken from another.

use krilla::text::{Font, GlyphId};
use skrifa::charmap::Charmap;
use skrifa::instance::{LocationRef, Size};
use skrifa::metrics::GlyphMetrics;
use skrifa::{FontRef, MetadataProvider};

static SANS: &[u8] = include_bytes!("../../../../assets/fonts/DejaVuSans.ttf");
static BOLD: &[u8] = include_bytes!("../../../../assets/fonts/DejaVuSans-Bold.ttf");
static MONO: &[u8] = include_bytes!("../../../../assets/fonts/DejaVuSansMono.ttf");

/// What stands for a character that no face has.
const BOX: char = '□';
/// Units of the em square of all three faces.
const UNITS_PER_EM: f32 = 2048.0;
/// How far letters reach above and below the baseline, in em.
pub(super) const ASCENT: f32 = 0.928;
/// See [`ASCENT`].
pub(super) const DESCENT: f32 = 0.236;

/// One of the faces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Face {
    /// Text.
    Sans,
    /// Headings and what is stressed.
    Bold,
    /// Code.
    Mono,
}

/// A character as a face draws it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Glyph {
    /// The face that has it.
    pub(super) face: Face,
    /// Its number in the face.
    pub(super) id: GlyphId,
    /// Its width in em.
    pub(super) advance: f32,
    /// Whether no face has it, so that a box stands in its place.
    pub(super) missing: bool,
}

struct Loaded {
    font: Font,
    charmap: Charmap<'static>,
    metrics: GlyphMetrics<'static>,
}

/// All faces, read.
pub(super) struct Fonts {
    sans: Loaded,
    bold: Loaded,
    mono: Loaded,
}

impl Fonts {
    /// Reads the embedded faces; `None` only if they are not fonts.
    pub(super) fn load() -> Option<Self> {
        Some(Self { sans: load(SANS)?, bold: load(BOLD)?, mono: load(MONO)? })
    }

    /// The face as the document embeds it.
    pub(super) fn font(&self, face: Face) -> Font {
        self.loaded(face).font.clone()
    }

    /// The glyph of a character in the face, or in another if this one lacks it.
    pub(super) fn glyph(&self, face: Face, c: char) -> Glyph {
        let find = |c: char| {
            let faces = [face, Face::Sans, Face::Mono, Face::Bold].into_iter();
            faces.map(|face| (face, self.loaded(face).charmap.map(c))).find_map(|(face, id)| Some((face, id?)))
        };
        let found = find(c);
        // A glyph of its own and not the face's glyph for nothing, which no reader can copy.
        let (face, id) = found.or_else(|| find(BOX)).unwrap_or((face, skrifa::GlyphId::NOTDEF));
        let advance = self.loaded(face).metrics.advance_width(id).unwrap_or_default() / UNITS_PER_EM;
        Glyph { face, id: GlyphId::new(id.to_u32()), advance, missing: found.is_none() }
    }

    const fn loaded(&self, face: Face) -> &Loaded {
        match face {
            Face::Sans => &self.sans,
            Face::Bold => &self.bold,
            Face::Mono => &self.mono,
        }
    }
}

fn load(data: &'static [u8]) -> Option<Loaded> {
    let read = FontRef::new(data).ok()?;
    Some(Loaded {
        font: Font::new(data.into(), 0)?,
        charmap: read.charmap(),
        metrics: read.glyph_metrics(Size::unscaled(), LocationRef::default()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_face_knows_latin_greek_and_cyrillic() {
        let fonts = Fonts::load().unwrap();
        for face in [Face::Sans, Face::Bold, Face::Mono] {
            for c in "aäßœŁžΑωάЖяїџ€—“”•☐☑".chars() {
                let glyph = fonts.glyph(face, c);
                assert!(!glyph.missing && glyph.advance > 0.0, "{face:?} {c}");
            }
            assert_eq!(fonts.loaded(face).font.units_per_em(), UNITS_PER_EM);
        }
        assert!(fonts.glyph(Face::Sans, '\u{1f600}').missing || fonts.glyph(Face::Sans, '漢').missing);
    }
}

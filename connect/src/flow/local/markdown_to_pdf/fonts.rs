//! The embedded fonts: the glyph and width of each character.
//!
//! Italics are slanted upright letters, as in the family's own oblique faces, so three files serve four styles. A
//! character missing in one face is taken from another.

use krilla::text::{Font, GlyphId};
use skrifa::charmap::Charmap;
use skrifa::instance::{LocationRef, Size};
use skrifa::metrics::GlyphMetrics;
use skrifa::{FontRef, MetadataProvider};

static SANS: &[u8] = include_bytes!("../../../../assets/fonts/DejaVuSans.ttf");
static BOLD: &[u8] = include_bytes!("../../../../assets/fonts/DejaVuSans-Bold.ttf");
static MONO: &[u8] = include_bytes!("../../../../assets/fonts/DejaVuSansMono.ttf");

/// Stands in for a character that no face has.
const BOX: char = '□';
/// Units per em of all three faces.
const UNITS_PER_EM: f32 = 2048.0;
/// Ascent and descent around the baseline, in em.
pub(super) const ASCENT: f32 = 0.928;
/// See [`ASCENT`].
pub(super) const DESCENT: f32 = 0.236;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Face {
    /// Body text.
    Sans,
    /// Headings and strong text.
    Bold,
    /// Code.
    Mono,
}

/// A character as drawn by a face.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Glyph {
    pub(super) face: Face,
    /// Glyph id in the face.
    pub(super) id: GlyphId,
    /// Width in em.
    pub(super) advance: f32,
    /// No face has it; a box is drawn instead.
    pub(super) missing: bool,
}

struct LoadedFace {
    font: Font,
    charmap: Charmap<'static>,
    metrics: GlyphMetrics<'static>,
}

pub(super) struct Fonts {
    sans: LoadedFace,
    bold: LoadedFace,
    mono: LoadedFace,
}

impl Fonts {
    /// Reads the embedded faces; `None` only if they are not valid fonts.
    pub(super) fn load() -> Option<Self> {
        Some(Self { sans: load(SANS)?, bold: load(BOLD)?, mono: load(MONO)? })
    }

    /// The face as embedded in the document.
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
        // A real glyph rather than `.notdef`, which PDF readers can't copy as text.
        let (face, id) = found.or_else(|| find(BOX)).unwrap_or((face, skrifa::GlyphId::NOTDEF));
        let advance = self.loaded(face).metrics.advance_width(id).unwrap_or_default() / UNITS_PER_EM;
        Glyph { face, id: GlyphId::new(id.to_u32()), advance, missing: found.is_none() }
    }

    const fn loaded(&self, face: Face) -> &LoadedFace {
        match face {
            Face::Sans => &self.sans,
            Face::Bold => &self.bold,
            Face::Mono => &self.mono,
        }
    }
}

fn load(data: &'static [u8]) -> Option<LoadedFace> {
    let read = FontRef::new(data).ok()?;
    Some(LoadedFace {
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

//! Decoded bytes, and where each of them came from in the original text.
//!
//! A decoder turns one view into another. A match in a view is masked in the original text, so every byte of a view
//! knows the part of the text that encodes it, through any number of encodings.

use super::pattern::MaskSpan;
use std::ops::Range;

/// A range of the original text. There is one per byte, so it is compact; no text exceeds what it can address.
#[derive(Clone, Copy)]
pub(super) struct SourceRange {
    start: u32,
    end: u32,
}

impl SourceRange {
    fn of(range: Range<usize>) -> Self {
        let small = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Self { start: small(range.start), end: small(range.end) }
    }

    /// The smallest range that contains both.
    fn and(self, other: Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// Decoded bytes with their origins.
pub(super) struct DecodedView {
    pub(super) bytes: Vec<u8>,
    /// None if each byte is at its own index.
    places: Option<Vec<SourceRange>>,
    /// Number of decoding steps.
    pub(super) depth: usize,
    /// Whether it was joined across separators that may also separate words.
    pub(super) joined: bool,
}

impl DecodedView {
    /// The original text.
    pub(super) fn of(text: &str) -> Self {
        Self { bytes: text.as_bytes().to_vec(), places: None, depth: 0, joined: false }
    }

    /// The text backwards.
    pub(super) fn reversed(text: &str) -> Self {
        let mut made = ViewBuilder::with_capacity(text.len());
        for (at, c) in text.char_indices().rev() {
            made.push(c.encode_utf8(&mut [0; 4]).as_bytes(), SourceRange::of(at..at + c.len_utf8()));
        }
        made.view(1)
    }

    /// The origin of a range of bytes.
    pub(super) fn place(&self, range: &Range<usize>) -> SourceRange {
        let one = |at: usize| match &self.places {
            Some(places) => places[at],
            None => SourceRange::of(at..at + 1),
        };
        one(range.start).and(one(range.end.max(range.start + 1) - 1))
    }

    /// The range of the text to mask if these bytes are a secret.
    pub(super) fn span(&self, range: &Range<usize>, text: &str) -> MaskSpan {
        let SourceRange { start, end } = self.place(range);
        let (mut start, mut end) = (start as usize, (end as usize).min(text.len()));
        while !text.is_char_boundary(start) {
            start -= 1;
        }
        while !text.is_char_boundary(end) {
            end += 1;
        }
        MaskSpan::from(start..end)
    }

    /// Replaces encoded parts: `meant` decodes at the start of a slice and returns the number of bytes consumed and the
    /// result; `may_begin` says at which bytes to try. None if nothing was replaced.
    pub(super) fn rewritten(
        &self,
        may_begin: impl Fn(u8) -> bool,
        meant: impl Fn(&[u8]) -> Option<(usize, Decoded)>,
    ) -> Option<Self> {
        let mut made: Option<ViewBuilder> = None;
        let (mut copied, mut at) = (0, 0);
        while let Some(more) = self.bytes[at..].iter().position(|byte| may_begin(*byte)) {
            at += more;
            let Some((spelled, meant)) = meant(&self.bytes[at..]) else {
                at += 1;
                continue;
            };
            let made = made.get_or_insert_with(|| ViewBuilder::with_capacity(self.bytes.len()));
            made.copy(self, copied..at);
            made.push(meant.bytes(), self.place(&(at..at + spelled)));
            at += spelled;
            copied = at;
        }
        let mut made = made?;
        made.copy(self, copied..self.bytes.len());
        Some(made.view(self.depth + 1))
    }

    /// Concatenates parts of the view.
    pub(super) fn joined(&self, parts: &[Range<usize>]) -> Self {
        let mut made = ViewBuilder::with_capacity(parts.iter().map(Range::len).sum());
        parts.iter().for_each(|part| made.copy(self, part.clone()));
        Self { joined: true, ..made.view(self.depth + 1) }
    }
}

/// Builds a view.
pub(super) struct ViewBuilder {
    bytes: Vec<u8>,
    places: Vec<SourceRange>,
}

impl ViewBuilder {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), places: Vec::with_capacity(bytes) }
    }

    /// Copies bytes of another view.
    fn copy(&mut self, view: &DecodedView, range: Range<usize>) {
        self.bytes.extend_from_slice(&view.bytes[range.clone()]);
        match &view.places {
            Some(places) => self.places.extend_from_slice(&places[range]),
            None => self.places.extend(range.map(|at| SourceRange::of(at..at + 1))),
        }
    }

    /// Adds bytes that one range of the text encodes.
    pub(super) fn push(&mut self, bytes: &[u8], place: SourceRange) {
        self.bytes.extend_from_slice(bytes);
        self.places.extend(bytes.iter().map(|_| place));
    }

    pub(super) fn view(self, depth: usize) -> DecodedView {
        DecodedView { bytes: self.bytes, places: Some(self.places), depth, joined: false }
    }
}

/// The result of decoding: a byte, a character or nothing.
#[derive(Clone, Copy, Default)]
pub(super) struct Decoded {
    bytes: [u8; 4],
    len: usize,
}

impl Decoded {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl From<u8> for Decoded {
    fn from(byte: u8) -> Self {
        Self { bytes: [byte, 0, 0, 0], len: 1 }
    }
}

impl From<char> for Decoded {
    fn from(c: char) -> Self {
        let mut bytes = [0; 4];
        let len = c.encode_utf8(&mut bytes).len();
        Self { bytes, len }
    }
}

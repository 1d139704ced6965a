//! The text that patterns read.
//!
//! Patterns access bytes only through this type, so that a test can count the accesses: redaction must take linear
//! time, whatever is repeated in the text. Outside tests counting costs nothing.

use std::ops::Range;

/// A text that counts byte accesses.
#[derive(Clone, Copy)]
pub(super) struct ScannedText<'a>(&'a [u8]);

impl<'a> ScannedText<'a> {
    pub(super) fn of(text: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self(text.as_ref())
    }

    pub(super) const fn len(self) -> usize {
        self.0.len()
    }

    pub(super) fn byte(self, at: usize) -> Option<u8> {
        looked(1);
        self.0.get(at).copied()
    }

    /// Whether the text has these bytes at `at`.
    pub(super) fn has(self, at: usize, wanted: &[u8]) -> bool {
        let there = self.0.get(at..).unwrap_or_default();
        looked(1 + if cfg!(test) { there.iter().zip(wanted).take_while(|(a, b)| a == b).count() } else { 0 });
        there.starts_with(wanted)
    }

    /// Like `has`, ignoring ASCII case.
    pub(super) fn has_letters(self, at: usize, wanted: &[u8]) -> bool {
        let there = self.0.get(at..at + wanted.len());
        let same = |(a, b): &(&u8, &u8)| a.eq_ignore_ascii_case(b);
        looked(1 + if cfg!(test) { there.into_iter().flatten().zip(wanted).take_while(same).count() } else { 0 });
        there.is_some_and(|there| there.eq_ignore_ascii_case(wanted))
    }

    pub(super) fn bytes(self, range: Range<usize>) -> &'a [u8] {
        looked(range.len());
        &self.0[range]
    }

    /// The bytes of a range, or none if the text is shorter.
    pub(super) fn get_bytes(self, range: Range<usize>) -> Option<&'a [u8]> {
        looked(range.len());
        self.0.get(range)
    }

    /// The end of the run of matching bytes that begins at `from`.
    pub(super) fn run(self, from: usize, is: impl Fn(u8) -> bool) -> usize {
        let rest = self.0.get(from..).unwrap_or_default();
        let len = rest.iter().take_while(|b| is(**b)).count();
        looked(len + 1);
        from + len
    }

    /// The next occurrence at or after `from`.
    pub(super) fn find(self, from: usize, wanted: &[u8]) -> Option<usize> {
        let rest = self.0.get(from..)?;
        let found = rest.windows(wanted.len()).position(|there| there == wanted);
        looked(found.unwrap_or(rest.len()) + wanted.len());
        found.map(|offset| from + offset)
    }

    /// The start of the run of matching bytes that ends at `end`.
    pub(super) fn run_before(self, end: usize, is: impl Fn(u8) -> bool) -> usize {
        self.run_before_within(end, end, is)
    }

    /// Like `run_before`, with at most `bytes_max` bytes.
    pub(super) fn run_before_within(self, end: usize, bytes_max: usize, is: impl Fn(u8) -> bool) -> usize {
        let len = self.0[..end].iter().rev().take(bytes_max).take_while(|b| is(**b)).count();
        looked(len + 1);
        end - len
    }

    /// Whether a word begins at a place.
    pub(super) fn begins_word(self, at: usize) -> bool {
        at == 0 || !self.byte(at - 1).is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_')
    }
}

#[cfg(not(test))]
pub(super) const fn looked(_: usize) {}

#[cfg(test)]
thread_local! {
    /// Bytes accessed on this thread.
    static LOOKED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
pub(super) fn looked(bytes: usize) {
    LOOKED.set(LOOKED.get() + bytes);
}

/// How many bytes `work` accesses.
#[cfg(test)]
pub(super) fn looked_at_by(work: impl FnOnce()) -> usize {
    let before = LOOKED.get();
    work();
    LOOKED.get() - before
}

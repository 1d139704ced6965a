//! An index of many search values.
//!
//! A text is scanned once, however many values there are: two consecutive bytes tell whether a value may begin there,
//! which is rare in most texts.

use super::scanned_text::looked;
use super::spelling::EncodedForm;
use std::collections::BTreeMap;
use std::ops::Range;
use zeroize::Zeroizing;

const WORDS: usize = (1 << 16) / 64;

/// Search values, by their first two bytes.
#[derive(Clone, Default)]
pub(super) struct ValueIndex {
    values: Vec<EncodedForm>,
    /// One bit per pair of bytes that begins a value.
    begins: Option<Box<[u64; WORDS]>>,
    by_begin: BTreeMap<u16, Vec<usize>>,
    /// Matching ignores ASCII case.
    folded: bool,
}

impl ValueIndex {
    /// An index that ignores ASCII case.
    pub(super) fn ignoring_case() -> Self {
        Self { folded: true, ..Self::default() }
    }

    /// Adds a value, forwards and backwards.
    pub(super) fn add(&mut self, value: &[u8]) {
        let backwards = match std::str::from_utf8(value) {
            Ok(text) => text.chars().rev().collect::<String>().into_bytes(),
            Err(_) => value.iter().rev().copied().collect(),
        };
        for form in [value.to_vec(), backwards] {
            self.add_form(EncodedForm { text: Zeroizing::new(form), shares: (false, false) });
        }
    }

    /// Adds one encoded form of a value.
    pub(super) fn add_form(&mut self, value: EncodedForm) {
        let [first, second, ..] = value.text[..] else { return };
        if self.values.iter().any(|known| known.text == value.text) {
            return;
        }
        let cases = |byte: u8| match self.folded {
            true => [byte.to_ascii_lowercase(), byte.to_ascii_uppercase()],
            false => [byte, byte],
        };
        let begins = self.begins.get_or_insert_with(|| Box::new([0; WORDS]));
        for (first, second) in cases(first).into_iter().flat_map(|first| cases(second).map(|second| (first, second))) {
            let begin = u16::from_be_bytes([first, second]);
            begins[usize::from(begin) / 64] |= 1 << (begin % 64);
            let values = self.by_begin.entry(begin).or_default();
            if values.last() != Some(&self.values.len()) {
                values.push(self.values.len());
            }
        }
        self.values.push(value);
    }

    /// Length of the shortest value.
    pub(super) fn shortest(&self) -> Option<usize> {
        self.values.iter().map(|value| value.text.len()).min()
    }

    /// Calls `found` for each occurrence of a value.
    pub(super) fn for_each_match(&self, bytes: &[u8], mut found: impl FnMut(Range<usize>, &EncodedForm)) {
        let Some(begins) = &self.begins else { return };
        looked(bytes.len());
        let mut pair = 0_u16;
        for (end, byte) in bytes.iter().enumerate() {
            pair = pair << 8 | u16::from(*byte);
            if begins[usize::from(pair) / 64] >> (pair % 64) & 1 == 0 || end == 0 {
                continue;
            }
            let at = end - 1;
            for value in self.by_begin.get(&pair).into_iter().flatten().map(|at| &self.values[*at]) {
                let Some(there) = bytes.get(at..at + value.text.len()) else { continue };
                looked(there.len());
                if there == &value.text[..] || (self.folded && there.eq_ignore_ascii_case(&value.text)) {
                    found(at..at + there.len(), value);
                }
            }
        }
    }
}

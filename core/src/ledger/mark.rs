//! Marks: the progress of each lane, recorded outside its store.
//!
//! A store that was restored from a backup or lost its tail is internally consistent; nothing in it shows that there
//! was more. The mark does. It is written after a commit is durable, so it is never ahead of its store. A store that
//! is behind its mark has lost data.

use super::{ChainHead, Digest32};
use sha2::{Digest, Sha256};
use std::fmt;

/// Size of a mark on disk.
pub const MARK_BYTES: usize = 96;

/// Magic bytes at the start of a mark.
const MAGIC: &[u8; 8] = b"CHMARK1\n";

/// Bytes of the digest that serve as checksum.
const CHECKSUM_BYTES: usize = MARK_BYTES - 8 - 4 * 8 - 32;

/// The progress of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub lane: i64,
    /// Incremented by every resume after a restore; zero if there never was one.
    pub generation: i64,
    /// The epoch in which the lane was held.
    pub epoch: i64,
    pub head: ChainHead,
}

/// What a store has for the lane of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredLane {
    pub epoch: i64,
    pub head: ChainHead,
    /// The hash of the entry that the mark names, if it exists.
    pub hash_at_mark: Option<Digest32>,
}

/// How a store is behind a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkMismatch {
    /// The store has an older generation than the mark.
    Generation,
    LaneMissing(Mark),
    /// The lane has a lower epoch than the mark.
    Epoch(Mark, StoredLane),
    /// The lane has fewer entries than the mark.
    Entries(Mark, StoredLane),
    /// The lane has a different entry at the position of the mark.
    EntryMismatch(Mark),
}

impl fmt::Display for MarkMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Generation => f.write_str("it was resumed after a restore, and this is a state from before that"),
            Self::LaneMissing(mark) => {
                write!(f, "lane {} is missing, which had {} entries", mark.lane, mark.head.seq)
            }
            Self::Epoch(mark, row) => {
                write!(f, "lane {} is at epoch {}, and was at {} before", mark.lane, row.epoch, mark.epoch)
            }
            Self::Entries(mark, row) => {
                write!(f, "lane {} has {} entries, and had {} before", mark.lane, row.head.seq, mark.head.seq)
            }
            Self::EntryMismatch(mark) => {
                write!(f, "entry {} of lane {} is not the one that was there before", mark.head.seq, mark.lane)
            }
        }
    }
}

impl Mark {
    /// Compares the store with this mark.
    #[must_use]
    pub fn check(&self, generation: i64, row: Option<StoredLane>) -> Option<MarkMismatch> {
        // An operator has reviewed and resumed that state.
        if generation > self.generation {
            return None;
        }
        if generation < self.generation {
            return Some(MarkMismatch::Generation);
        }
        let Some(row) = row else { return Some(MarkMismatch::LaneMissing(*self)) };
        if row.epoch < self.epoch {
            return Some(MarkMismatch::Epoch(*self, row));
        }
        if row.head.seq < self.head.seq {
            return Some(MarkMismatch::Entries(*self, row));
        }
        (self.head.seq > 0 && row.hash_at_mark != Some(self.head.hash)).then_some(MarkMismatch::EntryMismatch(*self))
    }

    /// Whether this mark is newer than another of its lane.
    #[must_use]
    pub fn is_later_than(&self, other: &Self) -> bool {
        (self.generation, self.epoch, self.head.seq) > (other.generation, other.epoch, other.head.seq)
    }

    /// Encodes the mark with a checksum that detects torn writes.
    #[must_use]
    pub fn encode(&self) -> [u8; MARK_BYTES] {
        let mut bytes = [0; MARK_BYTES];
        let numbers = [self.lane, self.generation, self.epoch, self.head.seq].map(i64::to_be_bytes).concat();
        let parts: [&[u8]; 3] = [MAGIC, &numbers, &self.head.hash.0];
        let payload = parts.concat();
        let digest = Sha256::digest(&payload);
        let all = payload.iter().chain(digest.iter().take(CHECKSUM_BYTES));
        bytes.iter_mut().zip(all).for_each(|(place, byte)| *place = *byte);
        bytes
    }

    /// Decodes a mark, or none if the bytes are incomplete or corrupt.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (payload, checksum) = bytes.get(..MARK_BYTES)?.split_at(MARK_BYTES - CHECKSUM_BYTES);
        if !payload.starts_with(MAGIC) || Sha256::digest(payload).get(..CHECKSUM_BYTES) != Some(checksum) {
            return None;
        }
        let number = |at: usize| {
            let start = MAGIC.len() + at * 8;
            payload.get(start..start + 8)?.try_into().ok().map(i64::from_be_bytes)
        };
        let hash = Digest32::from_slice(payload.get(MAGIC.len() + 32..)?)?;
        Some(Self {
            lane: number(0)?,
            generation: number(1)?,
            epoch: number(2)?,
            head: ChainHead { seq: number(3)?, hash },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> Mark {
        Mark { lane: 1, generation: 7, epoch: 3, head: ChainHead { seq: 9, hash: Digest32([5; 32]) } }
    }

    fn row() -> StoredLane {
        StoredLane { epoch: 3, head: mark().head, hash_at_mark: Some(Digest32([5; 32])) }
    }

    #[test]
    fn a_mark_survives_its_bytes_and_a_torn_one_does_not() {
        assert_eq!(Mark::decode(&mark().encode()), Some(mark()));
        for at in 0..MARK_BYTES {
            let mut torn = mark().encode();
            torn[at] ^= 1;
            assert_eq!(Mark::decode(&torn), None, "byte {at}");
        }
        assert_eq!(Mark::decode(&[0; MARK_BYTES]), None);
        assert_eq!(Mark::decode(&mark().encode()[1..]), None);
    }

    #[test]
    fn a_store_that_went_on_is_not_behind() {
        let grown = StoredLane { epoch: 8, head: ChainHead { seq: 90, hash: Digest32([6; 32]) }, ..row() };
        assert_eq!([mark().check(7, Some(row())), mark().check(7, Some(grown))], [None, None]);
        assert_eq!(mark().check(8, None), None, "it was resumed since, whatever it looks like");
        let empty = Mark { head: ChainHead::EMPTY, ..mark() };
        assert_eq!(empty.check(7, Some(StoredLane { head: ChainHead::EMPTY, hash_at_mark: None, ..row() })), None);
    }

    #[test]
    fn whatever_is_less_or_other_than_the_mark_is_behind() {
        let fewer = StoredLane { head: ChainHead { seq: 8, hash: Digest32([5; 32]) }, ..row() };
        let older = StoredLane { epoch: 2, ..row() };
        let other = StoredLane { hash_at_mark: Some(Digest32([4; 32])), ..row() };
        let hole = StoredLane { hash_at_mark: None, ..row() };
        assert!(matches!(mark().check(6, Some(row())), Some(MarkMismatch::Generation)));
        assert!(matches!(mark().check(7, None), Some(MarkMismatch::LaneMissing(_))));
        assert!(matches!(mark().check(7, Some(fewer)), Some(MarkMismatch::Entries(..))));
        assert!(matches!(mark().check(7, Some(older)), Some(MarkMismatch::Epoch(..))));
        assert!(matches!(mark().check(7, Some(other)), Some(MarkMismatch::EntryMismatch(_))));
        assert!(matches!(mark().check(7, Some(hole)), Some(MarkMismatch::EntryMismatch(_))));
    }

    #[test]
    fn a_later_mark_has_a_later_generation_epoch_or_entry() {
        let next = Mark { head: ChainHead { seq: 10, ..mark().head }, ..mark() };
        assert!(next.is_later_than(&mark()) && !mark().is_later_than(&mark()));
        let resumed = Mark { generation: 8, epoch: 1, head: ChainHead::EMPTY, ..mark() };
        assert!(resumed.is_later_than(&next) && !next.is_later_than(&resumed));
    }
}

//! The hash chain of a lane.
//!
//! `hash = SHA-256(lane ‖ seq ‖ previous hash ‖ content digest)`, with lane and seq as eight bytes, big-endian. A
//! link commits to everything before it in its lane.

use crate::json::Digest32;
use sha2::{Digest, Sha256};

/// The end of a chain: the number and hash of its last entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// Sequence number of the last entry, starting at 1.
    pub seq: i64,
    pub hash: Digest32,
}

impl ChainHead {
    /// The head of an empty lane.
    pub const EMPTY: Self = Self { seq: 0, hash: Digest32::ZERO };
}

/// The position of an entry in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainLink {
    pub seq: i64,
    pub prev_hash: Digest32,
    pub hash: Digest32,
}

/// The next link after `head` in `lane`, for an entry with this content digest.
#[must_use]
pub fn extend(lane: i64, head: ChainHead, content: Digest32) -> ChainLink {
    let seq = head.seq + 1;
    let mut hasher = Sha256::new();
    hasher.update(lane.to_be_bytes());
    hasher.update(seq.to_be_bytes());
    hasher.update(head.hash.0);
    hasher.update(content.0);
    ChainLink { seq, prev_hash: head.hash, hash: Digest32(hasher.finalize().into()) }
}

impl ChainLink {
    /// The head of the chain that ends here.
    #[must_use]
    pub const fn head(&self) -> ChainHead {
        ChainHead { seq: self.seq, hash: self.hash }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_depends_on_lane_position_past_and_content() {
        let base = extend(1, ChainHead::EMPTY, Digest32([1; 32]));
        assert_eq!((base.seq, base.prev_hash), (1, Digest32::ZERO));
        assert_ne!(base.hash, extend(2, ChainHead::EMPTY, Digest32([1; 32])).hash);
        assert_ne!(base.hash, extend(1, ChainHead { seq: 1, ..ChainHead::EMPTY }, Digest32([1; 32])).hash);
        assert_ne!(
            base.hash,
            extend(1, ChainHead { hash: Digest32([9; 32]), ..ChainHead::EMPTY }, Digest32([1; 32])).hash
        );
        assert_ne!(base.hash, extend(1, ChainHead::EMPTY, Digest32([2; 32])).hash);
    }
}

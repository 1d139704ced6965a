//! Merkle trees as in RFC 6962: one root for a lane, short proofs for one entry or one growth.
//!
//! A leaf is an entry's chain hash. A lane's tree is never held whole: the root of every full
//! block of 256 leaves is stored (level 8), of 256 such blocks (level 16), and so on, so that a
//! frontier, a proof or a root in a lane of millions needs some hundred hashes. `Span` says
//! which ones; the caller reads them.

use super::Digest32;
use sha2::{Digest, Sha256};

/// How many levels lie between two that are stored.
pub const LEVEL_STRIDE: u32 = 8;
/// How many hashes of one stored level make one of the next.
pub const FANOUT: u64 = 1 << LEVEL_STRIDE;

/// The root of an empty tree.
#[must_use]
pub fn empty_root() -> Digest32 {
    Digest32(Sha256::digest([]).into())
}

/// The hash of a leaf.
#[must_use]
pub fn leaf_hash(data: &[u8]) -> Digest32 {
    Digest32(Sha256::new().chain_update([0]).chain_update(data).finalize().into())
}

/// The hash of two subtrees side by side.
#[must_use]
pub fn node_hash(left: Digest32, right: Digest32) -> Digest32 {
    Digest32(Sha256::new().chain_update([1]).chain_update(left.0).chain_update(right.0).finalize().into())
}

/// The root above these leaf hashes.
#[must_use]
pub fn root(leaves: &[Digest32]) -> Digest32 {
    match leaves {
        [] => empty_root(),
        [leaf] => *leaf,
        _ => {
            let (left, right) = leaves.split_at(1 << (leaves.len() - 1).ilog2());
            node_hash(root(left), root(right))
        }
    }
}

/// The place of a stored hash: leaves have level 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId {
    /// A multiple of `LEVEL_STRIDE`.
    pub level: u32,
    /// Its number on that level, from the left.
    pub idx: u64,
}

/// A stored hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its place.
    pub id: NodeId,
    /// The hash.
    pub hash: Digest32,
}

/// Stored hashes `from..to` of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The level.
    pub level: u32,
    /// The first.
    pub from: u64,
    /// One behind the last.
    pub to: u64,
}

/// Stored hashes by place: whatever the caller has read.
pub trait Nodes {
    /// The hash at `id`, if it was read.
    fn node(&self, id: NodeId) -> Option<Digest32>;
}

impl<F: Fn(NodeId) -> Option<Digest32>> Nodes for F {
    fn node(&self, id: NodeId) -> Option<Digest32> {
        self(id)
    }
}

/// A hash that a root or proof needs was not there, or the numbers make no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a hash of the tree is missing")]
pub struct MissingNode;

/// The right edge of a growing tree: all it takes to append and to know the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    /// Hashes of each stored level that no stored hash above covers yet, at most 255 each.
    layers: Vec<Vec<Digest32>>,
}

impl Frontier {
    /// The stored hashes that the frontier of a tree of `size` leaves is made of.
    #[must_use]
    pub fn needs(size: u64) -> Vec<Span> {
        let spans = (0..u64::BITS / LEVEL_STRIDE).map(|layer| {
            let to = size >> (layer * LEVEL_STRIDE);
            Span { level: layer * LEVEL_STRIDE, from: to & !(FANOUT - 1), to }
        });
        spans.filter(|span| span.from < span.to).collect()
    }

    /// The frontier of a tree of `size` leaves.
    pub fn load(size: u64, nodes: &impl Nodes) -> Result<Self, MissingNode> {
        let mut frontier = Self { size, layers: Vec::new() };
        for Span { level, from, to } in Self::needs(size) {
            let layer = (level / LEVEL_STRIDE) as usize;
            frontier.layers.resize(layer + 1, Vec::new());
            for idx in from..to {
                frontier.layers[layer].push(nodes.node(NodeId { level, idx }).ok_or(MissingNode)?);
            }
        }
        Ok(frontier)
    }

    /// How many leaves the tree has.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Adds a leaf hash; hashes that must be stored because of it go to `stored`.
    pub fn append(&mut self, leaf: Digest32, stored: &mut Vec<Node>) {
        self.size += 1;
        let mut carry = leaf;
        for layer in 0.. {
            if self.layers.len() == layer {
                self.layers.push(Vec::new());
            }
            self.layers[layer].push(carry);
            if (self.layers[layer].len() as u64) < FANOUT {
                return;
            }
            carry = root(&self.layers[layer]);
            self.layers[layer].clear();
            let level = (layer as u32 + 1) * LEVEL_STRIDE;
            stored.push(Node { id: NodeId { level, idx: (self.size >> level) - 1 }, hash: carry });
        }
    }

    /// The root of the tree.
    #[must_use]
    pub fn root(&self) -> Digest32 {
        // Full subtrees from the smallest, at the right edge, to the largest.
        let mut edge = None;
        for layer in &self.layers {
            let mut rest = layer.as_slice();
            let mut peaks = Vec::new();
            while !rest.is_empty() {
                let (peak, tail) = rest.split_at(1 << rest.len().ilog2());
                peaks.push(root(peak));
                rest = tail;
            }
            for peak in peaks.into_iter().rev() {
                edge = Some(edge.map_or(peak, |right| node_hash(peak, right)));
            }
        }
        edge.unwrap_or_else(empty_root)
    }
}

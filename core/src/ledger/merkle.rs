//! Merkle trees as in RFC 6962: one root per lane, short proofs of inclusion and consistency.
//!
//! A leaf is an entry's chain hash. A lane's tree is never held in memory: the root of every full block of 256 leaves
//! is stored (level 8), of 256 such blocks (level 16), and so on. A frontier, a proof or a root of a lane with
//! millions of entries therefore needs a few hundred hashes. `Span` says which ones; the caller reads them.

use super::Digest32;
use sha2::{Digest, Sha256};

/// Levels between two stored levels.
pub const LEVEL_STRIDE: u32 = 8;
/// Hashes of one stored level per hash of the next.
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

/// The hash of two adjacent subtrees.
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

/// The position of a stored hash. Leaves have level 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TreeNodeId {
    /// A multiple of `LEVEL_STRIDE`.
    pub level: u32,
    /// Index on that level, from the left.
    pub idx: u64,
}

/// A stored hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeNode {
    pub id: TreeNodeId,
    pub hash: Digest32,
}

/// Stored hashes `from..to` of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRange {
    pub level: u32,
    pub from: u64,
    /// Exclusive.
    pub to: u64,
}

/// Access to the stored hashes that the caller has read.
pub trait NodeSource {
    /// The hash at `id`, if it was read.
    fn node(&self, id: TreeNodeId) -> Option<Digest32>;
}

impl<F: Fn(TreeNodeId) -> Option<Digest32>> NodeSource for F {
    fn node(&self, id: TreeNodeId) -> Option<Digest32> {
        self(id)
    }
}

/// A required hash is missing, or the sizes are inconsistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a hash of the tree is missing")]
pub struct MissingNode;

/// The right edge of a growing tree: all that is needed to append and to compute the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    /// Hashes of each stored level that are not yet covered by the level above, at most 255 each.
    layers: Vec<Vec<Digest32>>,
}

impl Frontier {
    /// The stored hashes that are needed to load the frontier of a tree of `size` leaves.
    #[must_use]
    pub fn required_nodes(size: u64) -> Vec<NodeRange> {
        let spans = (0..u64::BITS / LEVEL_STRIDE).map(|layer| {
            let to = size >> (layer * LEVEL_STRIDE);
            NodeRange { level: layer * LEVEL_STRIDE, from: to & !(FANOUT - 1), to }
        });
        spans.filter(|span| span.from < span.to).collect()
    }

    /// Loads the frontier of a tree of `size` leaves.
    pub fn load(size: u64, nodes: &impl NodeSource) -> Result<Self, MissingNode> {
        let mut frontier = Self { size, layers: Vec::new() };
        for NodeRange { level, from, to } in Self::required_nodes(size) {
            let layer = (level / LEVEL_STRIDE) as usize;
            frontier.layers.resize(layer + 1, Vec::new());
            for idx in from..to {
                frontier.layers[layer].push(nodes.node(TreeNodeId { level, idx }).ok_or(MissingNode)?);
            }
        }
        Ok(frontier)
    }

    /// How many leaves the tree has.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Appends a leaf hash. Hashes that must be stored as a result are added to `stored`.
    pub fn append(&mut self, leaf: Digest32, stored: &mut Vec<TreeNode>) {
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
            stored.push(TreeNode { id: TreeNodeId { level, idx: (self.size >> level) - 1 }, hash: carry });
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

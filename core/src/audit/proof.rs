//! Merkle proofs for a lane: inclusion of an entry, consistency of a growing tree.
//!
//! A proof is first computed as a list of subtrees from the sizes alone, then their hashes are looked up. The stored
//! hashes that a proof needs are therefore known before anything is read.

use crate::ledger::Digest32;
use crate::ledger::merkle::{LEVEL_STRIDE, MissingNode, NodeRange, NodeSource, TreeNodeId, node_hash};

/// The leaves `from..to` of a tree, as the RFC splits it.
type Subtree = (u64, u64);

/// The stored hashes that the inclusion proof of leaf `index` in a tree of `size` leaves needs.
#[must_use]
pub fn inclusion_spans(index: u64, size: u64) -> Vec<NodeRange> {
    required_spans(&inclusion_path(index, size))
}

/// The inclusion proof of leaf `index` in a tree of `size` leaves, from the leaf up.
pub fn inclusion(index: u64, size: u64, nodes: &impl NodeSource) -> Result<Vec<Digest32>, MissingNode> {
    if index >= size {
        return Err(MissingNode);
    }
    inclusion_path(index, size).into_iter().map(|tree| hash(tree, nodes)).collect()
}

/// Whether `proof` shows that `leaf` is number `index` of the tree of `size` leaves under `root`.
#[must_use]
pub fn verify_inclusion(leaf: Digest32, index: u64, size: u64, proof: &[Digest32], root: Digest32) -> bool {
    if index >= size {
        return false;
    }
    let (mut at, mut last, mut hash) = (index, size - 1, leaf);
    for sibling in proof {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            hash = node_hash(*sibling, hash);
            while at & 1 == 0 {
                at >>= 1;
                last >>= 1;
            }
        } else {
            hash = node_hash(hash, *sibling);
        }
        at >>= 1;
        last >>= 1;
    }
    last == 0 && hash == root
}

/// The stored hashes that the consistency proof from `old` to `new` leaves needs.
#[must_use]
pub fn consistency_spans(old: u64, new: u64) -> Vec<NodeRange> {
    required_spans(&consistency_path(old, new))
}

/// The proof that the tree of `new` leaves begins with the tree of `old` leaves.
pub fn consistency(old: u64, new: u64, nodes: &impl NodeSource) -> Result<Vec<Digest32>, MissingNode> {
    if old > new {
        return Err(MissingNode);
    }
    consistency_path(old, new).into_iter().map(|tree| hash(tree, nodes)).collect()
}

/// Whether `proof` shows that the tree under `new_root` begins with the tree under `old_root`.
#[must_use]
pub fn verify_consistency(old: u64, new: u64, proof: &[Digest32], old_root: Digest32, new_root: Digest32) -> bool {
    if old > new {
        return false;
    }
    if old == new {
        return proof.is_empty() && old_root == new_root;
    }
    if old == 0 {
        return proof.is_empty() && old_root == crate::ledger::merkle::empty_root();
    }
    // A complete old tree is itself the first hash, which the proof leaves out.
    let (first, rest) = if old.is_power_of_two() {
        (old_root, proof)
    } else {
        match proof.split_first() {
            Some((first, rest)) => (*first, rest),
            None => return false,
        }
    };
    let below = (old - 1).trailing_ones();
    let (mut at, mut last) = ((old - 1) >> below, (new - 1) >> below);
    let (mut old_hash, mut new_hash) = (first, first);
    for sibling in rest {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            old_hash = node_hash(*sibling, old_hash);
            new_hash = node_hash(*sibling, new_hash);
            while at & 1 == 0 && at != 0 {
                at >>= 1;
                last >>= 1;
            }
        } else {
            new_hash = node_hash(new_hash, *sibling);
        }
        at >>= 1;
        last >>= 1;
    }
    last == 0 && old_hash == old_root && new_hash == new_root
}

/// Where a tree of `size` leaves (at least two) splits: the largest power of two below it.
const fn split(size: u64) -> u64 {
    1 << (size - 1).ilog2()
}

fn inclusion_path(index: u64, size: u64) -> Vec<Subtree> {
    let mut path = Vec::new();
    let (mut from, mut to) = (0, size);
    while to - from > 1 {
        let middle = from + split(to - from);
        if index < middle {
            path.push((middle, to));
            to = middle;
        } else {
            path.push((from, middle));
            from = middle;
        }
    }
    path.reverse();
    path
}

fn consistency_path(old: u64, new: u64) -> Vec<Subtree> {
    if old == 0 || old >= new {
        return Vec::new();
    }
    let mut path = Vec::new();
    let (mut from, mut to) = (0, new);
    while old != to {
        let middle = from + split(to - from);
        if old <= middle {
            path.push((middle, to));
            to = middle;
        } else {
            path.push((from, middle));
            from = middle;
        }
    }
    if from != 0 {
        path.push((from, to));
    }
    path.reverse();
    path
}

/// The stored hashes below a subtree, from the left: its own if it is a stored one, else those of
/// its halves.
fn visit<T>(
    (from, to): Subtree,
    stored: &mut impl FnMut(TreeNodeId) -> Result<T, MissingNode>,
    join: &impl Fn(T, T) -> T,
) -> Result<T, MissingNode> {
    let size = to - from;
    if size.is_power_of_two() && size.ilog2().is_multiple_of(LEVEL_STRIDE) {
        let level = size.ilog2();
        return stored(TreeNodeId { level, idx: from >> level });
    }
    let middle = from + split(size);
    let left = visit((from, middle), stored, join)?;
    Ok(join(left, visit((middle, to), stored, join)?))
}

fn hash(tree: Subtree, nodes: &impl NodeSource) -> Result<Digest32, MissingNode> {
    visit(tree, &mut |id| nodes.node(id).ok_or(MissingNode), &node_hash)
}

fn required_spans(path: &[Subtree]) -> Vec<NodeRange> {
    let mut ids = Vec::new();
    for tree in path {
        let collected = visit(
            *tree,
            &mut |id| {
                ids.push(id);
                Ok(())
            },
            &|(), ()| (),
        );
        debug_assert!(collected.is_ok());
    }
    ids.sort_unstable();
    let mut spans: Vec<NodeRange> = Vec::new();
    for TreeNodeId { level, idx } in ids {
        match spans.last_mut() {
            Some(span) if span.level == level && span.to == idx => span.to = idx + 1,
            _ => spans.push(NodeRange { level, from: idx, to: idx + 1 }),
        }
    }
    spans
}

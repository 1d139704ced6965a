//! Merkle trees against the vectors of certificate transparency and against a naive tree.

use chimera_core::audit::proof::{
    consistency, consistency_spans, inclusion, inclusion_spans, verify_consistency, verify_inclusion,
};
use chimera_core::ledger::Digest32;
use chimera_core::ledger::merkle::{
    FANOUT, Frontier, NodeRange, TreeNode, TreeNodeId, empty_root, leaf_hash, node_hash, root,
};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;

const LEAVES: [&str; 8] =
    ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"];

const ROOTS: [&str; 8] = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
];

fn digest(text: &str) -> Digest32 {
    Digest32::from_hex(text).unwrap()
}

fn vector_leaves() -> Vec<Digest32> {
    LEAVES.iter().map(|leaf| leaf_hash(&hex::decode(leaf).unwrap())).collect()
}

/// Leaves and stored nodes of a tree, and which of them were requested.
struct Tree {
    leaves: Vec<Digest32>,
    nodes: BTreeMap<TreeNodeId, Digest32>,
    asked: RefCell<Vec<TreeNodeId>>,
}

impl Tree {
    fn of(leaves: Vec<Digest32>) -> (Self, Frontier) {
        let mut frontier = Frontier::default();
        let mut stored = Vec::new();
        for leaf in &leaves {
            frontier.append(*leaf, &mut stored);
        }
        let nodes = stored.into_iter().map(|TreeNode { id, hash }| (id, hash)).collect();
        (Self { leaves, nodes, asked: RefCell::default() }, frontier)
    }

    fn numbered(size: u64) -> (Self, Frontier) {
        Self::of((0..size).map(|n| leaf_hash(&n.to_be_bytes())).collect())
    }

    fn get(&self, id: TreeNodeId) -> Option<Digest32> {
        self.asked.borrow_mut().push(id);
        match id.level {
            0 => self.leaves.get(usize::try_from(id.idx).unwrap()).copied(),
            _ => self.nodes.get(&id).copied(),
        }
    }
}

fn covers(spans: &[NodeRange], id: TreeNodeId) -> bool {
    spans.iter().any(|span| span.level == id.level && (span.from..span.to).contains(&id.idx))
}

#[test]
fn the_roots_are_those_of_certificate_transparency() {
    assert_eq!(empty_root(), digest("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
    let leaves = vector_leaves();
    for (size, expected) in (1..).zip(ROOTS) {
        assert_eq!(root(&leaves[..size]), digest(expected));
        assert_eq!(Tree::of(leaves[..size].to_vec()).1.root(), digest(expected));
    }
}

#[test]
fn the_proofs_are_those_of_certificate_transparency() {
    let (tree, _) = Tree::of(vector_leaves());
    let get = |id| tree.get(id);
    let first = [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ];
    assert_eq!(inclusion(0, 8, &get).unwrap(), first.map(digest));
    let grown = [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ];
    assert_eq!(consistency(6, 8, &get).unwrap(), grown.map(digest));
    assert!(verify_consistency(6, 8, &grown.map(digest), digest(ROOTS[5]), digest(ROOTS[7])));
}

#[test]
fn every_small_tree_proves_every_leaf_and_every_growth() {
    for size in 0..=70 {
        let (tree, frontier) = Tree::numbered(size);
        let get = |id| tree.get(id);
        let whole = root(&tree.leaves);
        assert_eq!(frontier.root(), whole);
        for index in 0..size {
            let leaf = tree.leaves[usize::try_from(index).unwrap()];
            let proof = inclusion(index, size, &get).unwrap();
            assert!(verify_inclusion(leaf, index, size, &proof, whole));
            assert!(!verify_inclusion(leaf, index + 1, size, &proof, whole));
            assert!(!verify_inclusion(node_hash(leaf, leaf), index, size, &proof, whole));
        }
        for old in 0..=size {
            let before = root(&tree.leaves[..usize::try_from(old).unwrap()]);
            let proof = consistency(old, size, &get).unwrap();
            assert!(verify_consistency(old, size, &proof, before, whole), "{old} {size}");
            if 0 < old && old < size {
                assert!(!verify_consistency(old, size, &proof, leaf_hash(b"other"), whole));
                assert!(!verify_consistency(old, size, &proof, before, leaf_hash(b"other")));
                assert!(!verify_consistency(old, size, &proof[1..], before, whole));
            }
        }
        assert!(inclusion(size, size, &get).is_err());
        assert!(consistency(size + 1, size, &get).is_err());
    }
}

#[test]
fn a_proof_in_a_lane_of_millions_reads_some_hundred_hashes() {
    let size = 50_000_000;
    for index in [0, 1, 255, 256, 65_535, 65_536, 25_000_123, size - 1] {
        let inclusion: u64 = inclusion_spans(index, size).iter().map(|span| span.to - span.from).sum();
        let growth: u64 = consistency_spans(index + 1, size).iter().map(|span| span.to - span.from).sum();
        assert!(inclusion <= 8 * FANOUT && growth <= 8 * FANOUT, "{inclusion} {growth}");
        assert!(inclusion_spans(index, size).len() <= 16);
    }
    let frontier: u64 = Frontier::required_nodes(size).iter().map(|span| span.to - span.from).sum();
    assert!(frontier <= 4 * FANOUT);
}

/// Sizes around block boundaries, and occasionally one with two stored levels.
fn sizes() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 1_u64..2_000, 3 => 250_u64..260, 1 => 65_500_u64..66_200]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_large_tree_agrees_with_the_naive_one(size in sizes(), at in any::<prop::sample::Index>(), cut in any::<prop::sample::Index>()) {
        let (tree, frontier) = Tree::numbered(size);
        let get = |id| tree.get(id);
        let whole = root(&tree.leaves);
        prop_assert_eq!(frontier.root(), whole);

        let index = at.index(tree.leaves.len());
        tree.asked.borrow_mut().clear();
        let proof = inclusion(index as u64, size, &get).unwrap();
        let needs = inclusion_spans(index as u64, size);
        prop_assert!(tree.asked.borrow().iter().all(|id| covers(&needs, *id)));
        prop_assert!(verify_inclusion(tree.leaves[index], index as u64, size, &proof, whole));

        let old = cut.index(tree.leaves.len()) + 1;
        tree.asked.borrow_mut().clear();
        let proof = consistency(old as u64, size, &get).unwrap();
        let needs = consistency_spans(old as u64, size);
        prop_assert!(tree.asked.borrow().iter().all(|id| covers(&needs, *id)));
        prop_assert!(verify_consistency(old as u64, size, &proof, root(&tree.leaves[..old]), whole));
    }

    #[test]
    fn a_frontier_that_was_put_away_goes_on_where_it_was(first in sizes(), more in 0_u64..600) {
        let (tree, straight) = Tree::numbered(first + more);
        let mut resumed = Frontier::load(first, &|id| tree.get(id)).unwrap();
        let mut stored = Vec::new();
        for leaf in &tree.leaves[usize::try_from(first).unwrap()..] {
            resumed.append(*leaf, &mut stored);
        }
        prop_assert_eq!(&resumed, &straight);
        prop_assert!(stored.iter().all(|node| tree.nodes.get(&node.id) == Some(&node.hash)));
    }
}

//! The topological order of nodes, and the cycles that prevent one.

use super::problem::{ProblemCode, Problems};
use crate::limits::{CYCLE_ENDS_SHOWN_MAX, PROBLEMS_MAX};

/// The adjacency lists of a graph. Nodes and edges are positions.
pub(super) struct Adjacency {
    /// The start and end node of every edge.
    pub(super) edges: Vec<(usize, usize)>,
    /// For every node, its incoming edges.
    pub(super) incoming: Vec<Vec<usize>>,
    /// For every node, its outgoing edges.
    pub(super) outgoing: Vec<Vec<usize>>,
}

impl Adjacency {
    pub(super) fn new(nodes: usize, edges: Vec<(usize, usize)>) -> Self {
        let mut incoming = vec![Vec::new(); nodes];
        let mut outgoing = vec![Vec::new(); nodes];
        for (at, (from, to)) in edges.iter().enumerate() {
            outgoing[*from].push(at);
            incoming[*to].push(at);
        }
        Self { edges, incoming, outgoing }
    }

    fn successors(&self, node: usize) -> impl Iterator<Item = usize> {
        self.outgoing[node].iter().map(|edge| self.edges[*edge].1)
    }

    pub(super) fn predecessors(&self, node: usize) -> impl Iterator<Item = usize> {
        self.incoming[node].iter().map(|edge| self.edges[*edge].0)
    }

    /// The topological order. Nodes on a cycle or behind one are left out.
    pub(super) fn topological_order(&self) -> Vec<usize> {
        let mut waits: Vec<usize> = self.incoming.iter().map(Vec::len).collect();
        let mut order: Vec<usize> = (0..waits.len()).filter(|node| waits[*node] == 0).collect();
        let mut at = 0;
        while let Some(node) = order.get(at).copied() {
            for next in self.successors(node) {
                waits[next] -= 1;
                if waits[next] == 0 {
                    order.push(next);
                }
            }
            at += 1;
        }
        order
    }

    /// Reports the cycles, and the nodes that are reachable only through one. Of cycles that share nodes, one is reported.
    pub(super) fn report_cycles(&self, order: &[usize], name: &dyn Fn(usize) -> String, out: &mut Problems) {
        let mut ordered = vec![false; self.incoming.len()];
        order.iter().for_each(|node| ordered[*node] = true);
        let unordered = |node| self.predecessors(node).filter(|before| !ordered[*before]).count();
        let mut waits: Vec<usize> = (0..ordered.len()).map(unordered).collect();
        let mut on_cycle = vec![false; ordered.len()];
        while !out.is_full() {
            let cycle = self.cycle(&ordered);
            let Some(first) = cycle.first() else { break };
            let names: Vec<String> =
                abbreviate(&cycle).into_iter().map(|node| node.map_or_else(|| "…".to_owned(), name)).collect();
            let reason = format!("cycle: {} → {}", names.join(" → "), name(*first));
            out.add(ProblemCode::Cycle, format!("/nodes/{first}"), reason);
            cycle.iter().for_each(|node| on_cycle[*node] = true);
            self.order_without(cycle, &mut waits, &mut ordered);
        }
        let reached = self.reachable();
        let lost = (0..ordered.len()).filter(|node| !reached[*node] && !on_cycle[*node]);
        for node in lost.take(PROBLEMS_MAX) {
            let reason = format!("{} is unreachable: no path leads to it from a start node", name(node));
            out.add(ProblemCode::Unreachable, format!("/nodes/{node}"), reason);
        }
    }

    /// Marks the nodes of a cycle as ordered, and those that only wait for ordered ones. `waits` counts for how many
    /// unordered ones each node waits.
    fn order_without(&self, cycle: Vec<usize>, waits: &mut [usize], ordered: &mut [bool]) {
        cycle.iter().for_each(|node| ordered[*node] = true);
        let mut waiting = cycle;
        while let Some(node) = waiting.pop() {
            for next in self.successors(node) {
                waits[next] -= 1;
                if waits[next] == 0 && !ordered[next] {
                    ordered[next] = true;
                    waiting.push(next);
                }
            }
        }
    }

    /// One cycle among the unordered nodes, in edge direction.
    fn cycle(&self, ordered: &[bool]) -> Vec<usize> {
        let Some(start) = ordered.iter().position(|ordered| !ordered) else {
            return Vec::new();
        };
        // Every unordered node has an unordered predecessor, so walking backwards must find a cycle.
        let mut seen_at = vec![None; ordered.len()];
        let mut walk = Vec::new();
        let mut node = start;
        loop {
            if let Some(from) = seen_at[node] {
                let mut cycle = walk.split_off(from);
                cycle.reverse();
                return cycle;
            }
            seen_at[node] = Some(walk.len());
            walk.push(node);
            match self.predecessors(node).find(|before| !ordered[*before]) {
                Some(before) => node = before,
                None => return Vec::new(),
            }
        }
    }

    /// For every node, whether it is reachable from a start node.
    fn reachable(&self) -> Vec<bool> {
        let mut reached: Vec<bool> = self.incoming.iter().map(Vec::is_empty).collect();
        let mut waiting: Vec<usize> = (0..reached.len()).filter(|node| reached[*node]).collect();
        while let Some(node) = waiting.pop() {
            for next in self.successors(node) {
                if !std::mem::replace(&mut reached[next], true) {
                    waiting.push(next);
                }
            }
        }
        reached
    }
}

/// Both ends of a long cycle. `None` marks the omitted middle.
fn abbreviate(cycle: &[usize]) -> Vec<Option<usize>> {
    if cycle.len() <= 2 * CYCLE_ENDS_SHOWN_MAX {
        return cycle.iter().copied().map(Some).collect();
    }
    let head = cycle[..CYCLE_ENDS_SHOWN_MAX].iter().copied().map(Some);
    let tail = cycle[cycle.len() - CYCLE_ENDS_SHOWN_MAX..].iter().copied().map(Some);
    head.chain([None]).chain(tail).collect()
}

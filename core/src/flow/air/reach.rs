//! Reachability: whether a reference points upstream, i.e. a path leads from its target to its reader.
//!
//! All pairs of a document are answered in one batch. Direct edges and a spanning forest answer nearly
//! all of them in one traversal. The rest is answered 64 targets at a time by propagating bit sets along
//! the edges, only between the first target and the last reader. The number of visited edges is
//! counted, so that a test can check the complexity.

use super::order::Adjacency;

/// The answers, in the order of the pairs.
pub(super) struct UpstreamAnswers {
    pub(super) upstream: Vec<bool>,
    /// The number of edges visited.
    pub(super) work: usize,
}

/// For each (reader, target): whether a path leads from the target to the reader.
pub(super) fn upstream(ways: &Adjacency, order: &[usize], pairs: &[(usize, usize)]) -> UpstreamAnswers {
    let mut answers = UpstreamAnswers { upstream: vec![false; pairs.len()], work: 0 };
    let forest = Forest::new(ways, &mut answers.work);
    let ranked = RankedGraph::new(ways, order);
    let rank = &ranked.rank;
    let mut by_reader: Vec<usize> = (0..pairs.len()).collect();
    by_reader.sort_by_key(|pair| pairs[*pair].0);
    let mut left = Vec::new();
    // For each node, the last reader that has it as a direct predecessor.
    let mut direct = vec![usize::MAX; ways.incoming.len()];
    let mut last = usize::MAX;
    for pair in by_reader {
        let (reader, target) = pairs[pair];
        if reader != last {
            last = reader;
            answers.work += ways.incoming[reader].len();
            ways.predecessors(reader).for_each(|before| direct[before] = reader);
        }
        if direct[target] == reader || forest.is_ancestor(target, reader) {
            answers.upstream[pair] = true;
        } else if rank[target] < rank[reader] {
            left.push(pair);
        }
    }
    left.sort_by_key(|pair| (rank[pairs[*pair].1], rank[pairs[*pair].0]));
    ranked.answer_in_blocks(pairs, &left, &mut answers);
    answers
}

/// A graph in topological order.
struct RankedGraph<'a> {
    ways: &'a Adjacency,
    order: &'a [usize],
    /// The position of every node in the order.
    rank: Vec<usize>,
}

impl<'a> RankedGraph<'a> {
    fn new(ways: &'a Adjacency, order: &'a [usize]) -> Self {
        let mut rank = vec![usize::MAX; ways.incoming.len()];
        order.iter().enumerate().for_each(|(at, node)| rank[*node] = at);
        Self { ways, order, rank }
    }

    /// Answers the pairs in `left`, which must be sorted by target.
    fn answer_in_blocks(&self, pairs: &[(usize, usize)], left: &[usize], answers: &mut UpstreamAnswers) {
        let Self { ways, order, rank } = self;
        let mut bits = vec![0_u64; ways.incoming.len()];
        let mut own = vec![0_u64; ways.incoming.len()];
        let mut rest = left;
        while let Some(first) = rest.first() {
            let mut targets: Vec<usize> = Vec::with_capacity(64);
            let mut count = 0;
            for pair in rest {
                let target = pairs[*pair].1;
                if targets.last() != Some(&target) {
                    if targets.len() == 64 {
                        break;
                    }
                    own[target] = 1 << targets.len();
                    targets.push(target);
                }
                count += 1;
            }
            let (block, others) = rest.split_at(count);
            let from = rank[pairs[*first].1];
            let to = block.iter().map(|pair| rank[pairs[*pair].0]).max().unwrap_or(from);
            for node in &order[from..=to] {
                let incoming = ways.predecessors(*node).filter(|before| rank[*before] >= from);
                bits[*node] = incoming.fold(0, |seen, before| seen | bits[before] | own[before]);
                answers.work += ways.incoming[*node].len();
            }
            for pair in block {
                let (reader, target) = pairs[*pair];
                answers.upstream[*pair] = bits[reader] & own[target] != 0;
            }
            targets.iter().for_each(|target| own[*target] = 0);
            rest = others;
        }
    }
}

/// A spanning forest. A node is a descendant of another exactly if its interval lies inside the other's.
struct Forest {
    enter: Vec<usize>,
    leave: Vec<usize>,
}

impl Forest {
    fn new(ways: &Adjacency, work: &mut usize) -> Self {
        let nodes = ways.incoming.len();
        let mut forest = Self { enter: vec![usize::MAX; nodes], leave: vec![0; nodes] };
        let mut clock = 0;
        for root in (0..nodes).filter(|node| ways.incoming[*node].is_empty()) {
            let mut stack = vec![(root, 0)];
            forest.enter[root] = clock;
            while let Some((node, next)) = stack.last_mut() {
                let (here, edge) = (*node, ways.outgoing[*node].get(*next));
                *next += 1;
                match edge.map(|edge| ways.edges[*edge].1) {
                    Some(child) => {
                        *work += 1;
                        if forest.enter[child] == usize::MAX {
                            clock += 1;
                            forest.enter[child] = clock;
                            stack.push((child, 0));
                        }
                    }
                    None => {
                        clock += 1;
                        forest.leave[here] = clock;
                        stack.pop();
                    }
                }
            }
            clock += 1;
        }
        forest
    }

    fn is_ancestor(&self, from: usize, to: usize) -> bool {
        from != to && self.enter[from] < self.enter[to] && self.leave[to] < self.leave[from]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same answers by a search from every target.
    fn slowly(ways: &Adjacency, pairs: &[(usize, usize)]) -> Vec<bool> {
        let reaches = |from: usize, to: usize| {
            let (mut seen, mut waiting) = (vec![false; ways.incoming.len()], vec![from]);
            while let Some(node) = waiting.pop() {
                for edge in &ways.outgoing[node] {
                    let next = ways.edges[*edge].1;
                    if !std::mem::replace(&mut seen[next], true) {
                        waiting.push(next);
                    }
                }
            }
            seen[to]
        };
        pairs.iter().map(|(reader, target)| reaches(*target, *reader)).collect()
    }

    /// A pseudo-random acyclic graph with pairs to answer.
    fn scrambled(nodes: usize, seed: u64) -> (Adjacency, Vec<(usize, usize)>) {
        let mut state = seed;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % below.max(1)
        };
        let edges = (1..nodes).flat_map(|to| [(next(to), to), (next(to), to)]).filter(|(from, to)| from != to);
        let mut edges: Vec<_> = edges.collect();
        edges.sort_unstable();
        edges.dedup();
        edges.retain(|(from, _)| from % 7 != 3);
        let pairs = (0..nodes).map(|_| (next(nodes), next(nodes))).collect();
        (Adjacency::new(nodes, edges), pairs)
    }

    #[test]
    fn the_quick_answers_are_the_slow_ones() {
        for seed in 0..60 {
            let (ways, pairs) = scrambled(90, seed);
            let answers = upstream(&ways, &ways.topological_order(), &pairs);
            assert_eq!(answers.upstream, slowly(&ways, &pairs), "seed {seed}");
        }
    }

    /// A ladder: two chains with rungs between them. Each node refers to one several steps back.
    fn ladder(steps: usize) -> (Adjacency, Vec<(usize, usize)>) {
        let edges = (0..steps - 1).flat_map(|at| {
            let (left, right) = (2 * at, 2 * at + 1);
            [(left, left + 2), (right, right + 2), (left, right + 2), (right, left + 2)]
        });
        let pairs = (3..steps).flat_map(|at| [(2 * at, 2 * at - 5), (2 * at + 1, 2 * at - 6), (2 * at, 2 * at - 6)]);
        (Adjacency::new(2 * steps, edges.collect()), pairs.collect())
    }

    #[test]
    fn the_work_grows_with_the_graph_and_not_with_its_square() {
        let work = |steps| {
            let (ways, pairs) = ladder(steps);
            let answers = upstream(&ways, &ways.topological_order(), &pairs);
            assert!(answers.upstream.iter().all(|upstream| *upstream));
            answers.work
        };
        let (small, large) = (work(500), work(5_000));
        assert!(large <= 11 * small, "{small} edges for 1,000 nodes, {large} for 10,000");
    }
}

//! Checks that a plan accounts for the whole goal, byte by byte.
//!
//! It knows nothing of clauses and rules, so no rule can drop part of the goal unnoticed. A plan is returned only
//! after `close`: text that belongs to no token with a role, or to two of them, rejects the goal.

use super::clause::Clause;
use super::token::GoalToken;
use chimera_core::act::{PlanError, excerpt};

/// The spans of a goal that are accounted for.
pub(super) struct GoalCoverage<'a> {
    goal: &'a str,
    settled: Vec<(usize, usize)>,
}

impl<'a> GoalCoverage<'a> {
    pub(super) fn new(goal: &'a str) -> Self {
        Self { goal, settled: Vec::new() }
    }

    /// Records tokens that have roles.
    pub(super) fn settle<'t>(&mut self, tokens: impl IntoIterator<Item = &'t GoalToken>) {
        self.settled.extend(tokens.into_iter().map(|token| (token.start, token.end)).filter(|(from, to)| from < to));
    }

    /// Records the tokens of a clause that have roles.
    pub(super) fn settle_clause(&mut self, clause: &Clause) {
        self.settle(clause.tokens.iter().enumerate().filter(|(at, _)| clause.is_used(*at)).map(|(_, token)| token));
    }

    /// Fails with all text of the goal that has no role, or more than one.
    pub(super) fn close(mut self) -> Result<(), PlanError> {
        self.settled.sort_unstable();
        let mut texts: Vec<&str> = Vec::new();
        let mut reached = 0;
        for (from, to) in self.settled.into_iter().chain([(self.goal.len(), self.goal.len())]) {
            let open = if from < reached { self.goal.get(from..to) } else { self.goal.get(reached..from) };
            texts.extend(open.map(str::trim).filter(|text| !text.is_empty()));
            reached = reached.max(to);
        }
        if texts.is_empty() { Ok(()) } else { Err(PlanError::Unplaced { text: excerpt(&texts.join(" … ")) }) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::token::read;
    use super::*;

    fn close(goal: &str, settled: &[usize]) -> Result<(), PlanError> {
        let tokens = read(goal);
        let mut ledger = GoalCoverage::new(goal);
        ledger.settle(settled.iter().map(|at| &tokens[*at]));
        ledger.close()
    }

    #[test]
    fn what_has_become_nothing_or_two_things_is_named() {
        let goal = "post \"x\" once to #ops";
        assert_eq!(close(goal, &[0, 1, 2, 3, 4]), Ok(()));
        let named = |text: &str| Err(PlanError::Unplaced { text: text.to_owned() });
        assert_eq!(close(goal, &[0, 1, 3, 4]), named("once"));
        assert_eq!(close(goal, &[1, 2, 3]), named("post … #ops"));
        assert_eq!(close(goal, &[0, 1, 2, 2, 3, 4]), named("once"));
        assert_eq!(close(goal, &[]), named(goal));
    }
}

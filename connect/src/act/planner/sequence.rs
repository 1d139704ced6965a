//! Whether the order of the steps is beyond doubt.
//!
//! `before …ing` and `after …ing` move one step past one other; with more of either, nobody can tell what they reach
//! to. Ordinals and `finally` must agree with the resulting order. A colon begins a text, never the next step.

use super::clause::{Clause, starts_order};
use super::lexicon;
use super::token::{GoalToken, TokenKind};
use chimera_core::act::{PlanError, excerpt};

/// The words that leave the order of the steps in doubt. `several` says whether a step is moved past more than one.
pub(super) fn order_error(goal: &str, tokens: &[GoalToken], several: bool) -> Option<PlanError> {
    let mut orders = (0..tokens.len()).filter(|at| starts_order(tokens, *at));
    let (first, second) = (orders.next(), orders.next());
    let at = second.or_else(|| first.filter(|_| several))?;
    let text = goal.get(tokens[at].start..tokens.get(at + 1)?.end)?;
    Some(PlanError::Unplaced { text: excerpt(text) })
}

/// A sequence word that contradicts the order of the plan: `post …; first fetch …`.
pub(super) fn misplaced(goal: &str, tokens: &[GoalToken], clauses: &[Clause]) -> Option<PlanError> {
    let wrong = |at: usize, word: &str| match word {
        "first" => at != 0,
        "second" => at != 1,
        "third" => at != 2,
        _ => false,
    };
    let lead = |clause: &'_ Clause| clause.verb.map_or(0, |verb| verb.min(clause.tokens.len()));
    let mut leads = clauses
        .iter()
        .enumerate()
        .flat_map(|(at, clause)| clause.tokens[..lead(clause)].iter().map(move |token| (at, token)));
    let ordinal = leads.find(|(at, token)| token.word().is_some_and(|word| wrong(*at, word))).map(|(_, token)| token);
    // `finally` may stand between two requests: it belongs to the one behind it.
    let last = clauses.last()?;
    let begins = |clause: &Clause| clause.verb.map_or(0, |verb| clause.tokens[verb].start);
    let closes = |token: &GoalToken| {
        let behind = clauses.iter().filter(|clause| begins(clause) > token.start);
        behind.min_by_key(|clause| begins(clause)).is_none_or(|clause| begins(clause) == begins(last))
    };
    let finally = |token: &&GoalToken| token.word().is_some_and(lexicon::is_final) && is_outside(token, clauses);
    let token = ordinal.or_else(|| tokens.iter().filter(finally).find(|token| !closes(token)))?;
    Some(PlanError::Unplaced { text: excerpt(goal.get(token.start..token.end)?) })
}

/// Whether a token is in no unquoted text.
fn is_outside(token: &GoalToken, clauses: &[Clause]) -> bool {
    let texts = clauses.iter().flat_map(|clause| &clause.tokens).filter(|token| token.kind == TokenKind::Text);
    !texts.into_iter().any(|text| text.start <= token.start && token.end <= text.end)
}

/// A colon between two requests. Everything behind a colon is one text, so the second is no request.
pub(super) fn colon_error<'t>(
    goal: &str,
    clauses: &[Clause],
    mut joints: impl Iterator<Item = &'t GoalToken>,
) -> Option<PlanError> {
    let request = |colon: &GoalToken| {
        clauses.iter().find(|clause| {
            let asks = clause.verb.is_some_and(|verb| clause.tokens[verb].start < colon.start);
            asks && clause.tokens.iter().any(|token| token.end == colon.start)
        })
    };
    let colon = joints.find(|token| token.kind == TokenKind::Mark(':') && request(token).is_some())?;
    Some(PlanError::Unplaced { text: excerpt(goal.get(colon.start..)?) })
}

//! What connects the requests of a goal: punctuation, `and`, `then`, greetings and thanks.
//!
//! Each has a closed list of positions. Anywhere else it is kept as stray, so that it rejects the goal instead of
//! being ignored. Parts without a verb are joined to the request they belong to.

use super::clause::{GoalPart, PartOrder, verb};
use super::lexicon;
use super::token::{GoalToken, TokenKind};

/// Whole parts that ask for nothing: before the first request, between two, after the last.
const GREETINGS: &[&str] = &[
    "hi",
    "hello",
    "hey",
    "please",
    "ok",
    "okay",
    "do the following",
    "do the following steps",
    "do these things",
    "please do the following",
    "please do the following steps",
    "please do these things",
    "do this",
    "please do this",
];
const BETWEEN: &[&str] = &["once that's done", "once done", "after that", "after this"];
const THANKS: &[&str] =
    &["thanks", "thank you", "thank you very much", "thank you so much", "thanks very much", "cheers", "please"];

/// Whether a part is one of these phrases, in its position.
fn is_phrase(part: &[GoalToken], first: bool, last: bool) -> bool {
    // The colon of `do the following:`.
    let part = match part.split_last() {
        Some((last, rest)) if last.kind == TokenKind::Mark(':') && rest.len() > 1 => rest,
        _ => part,
    };
    let words: Option<Vec<&str>> = part.iter().map(GoalToken::word).collect();
    let Some(text) = words.map(|words| words.join(" ")) else { return false };
    let known = |phrases: &[&str]| phrases.contains(&text.as_str());
    (first && known(GREETINGS)) || (!first && known(THANKS)) || (!first && !last && known(BETWEEN))
}

/// The tokens between the requests of a goal: those that are only grammar, and the strays.
#[derive(Default)]
pub(super) struct Connectives {
    pub(super) settled: Vec<GoalToken>,
    pub(super) stray: Vec<GoalToken>,
}

impl Connectives {
    fn put(&mut self, joint: Vec<GoalToken>, fits: bool) {
        if fits { self.settled.extend(joint) } else { self.stray.extend(joint) }
    }

    /// Joins parts without a verb to the next part (`In acme/web, …`) or, if they begin with a label, to the previous
    /// one (`… . Subject "x"`).
    pub(super) fn join(&mut self, parts: Vec<GoalPart>) -> Vec<(PartOrder, Vec<GoalToken>)> {
        let last = parts.iter().rposition(|part| !part.tokens.is_empty()).unwrap_or(0);
        let mut joined: Vec<(PartOrder, Vec<GoalToken>)> = Vec::new();
        let mut lead: Option<Vec<GoalToken>> = None;
        let mut greeted = false;
        for (at, GoalPart { order, joint, tokens: part }) in parts.into_iter().enumerate() {
            let is_first = joined.is_empty() && lead.is_none();
            if part.is_empty() {
                self.put_marks(joint);
                continue;
            }
            if is_phrase(&part, is_first, at == last) {
                greeted = true;
                self.put_marks(joint);
                self.settled.extend(part);
                continue;
            }
            let first = part.iter().find_map(GoalToken::word).unwrap_or_default();
            let begins_with_entity = part.first().is_some_and(GoalToken::is_entity);
            let verbless = verb(&part).is_none_or(|at| part[at].word().is_some_and(|w| lexicon::acts(w).is_empty()));
            let labels = lexicon::is_label(first) && !lexicon::is_preposition(first) && !begins_with_entity;
            let leads = lexicon::is_preposition(first) || begins_with_entity || first == "use";
            match joined.last_mut() {
                Some((_, before)) if verbless && labels => {
                    // `with the. Subject`, `an issue. Titled` are broken sentences, not parts to join.
                    let open = before.last().and_then(GoalToken::word).is_some_and(lexicon::is_small);
                    let said = first.ends_with("ed") || first.ends_with("ing") || first == "that";
                    let alone = part.len() < 2 || lexicon::is_thing(first);
                    if open || said || alone {
                        self.put(joint, false)
                    } else {
                        self.put_marks(joint)
                    }
                    before.extend(part);
                }
                _ if verbless && leads => {
                    // A part that continues a request is a line or a phrase of it, not a sentence.
                    let close = |token: &GoalToken| matches!(token.kind, TokenKind::Mark('\n' | ',' | ':'));
                    let greets = is_first && greeted && joint.iter().all(GoalToken::is_mark);
                    let fits = joint.iter().all(close) || greets;
                    self.put(joint, fits);
                    lead.get_or_insert_default().extend(part);
                }
                _ => {
                    let led = lead.is_some();
                    self.put_joint(joint, is_first && order == PartOrder::Next, led || (greeted && joined.is_empty()));
                    joined.push((order, led_by(lead.take(), part)));
                }
            }
        }
        if let Some(lead) = lead {
            match joined.last_mut() {
                Some((_, last)) => last.extend(lead),
                None => joined.push((PartOrder::Next, lead)),
            }
        }
        joined
    }

    /// Punctuation that ends a sentence or a line; words don't count.
    fn put_marks(&mut self, joint: Vec<GoalToken>) {
        for (at, token) in joint.iter().enumerate() {
            let before = at.checked_sub(1).map(|at| &joint[at]);
            let fits = token.is_mark() && ends_well(token, before);
            self.put(vec![token.clone()], fits);
        }
    }

    /// What may stand between two requests: one punctuation mark, new lines, `and`, and one sequence word, in this
    /// order. Nothing may stand in front of the first request.
    fn put_joint(&mut self, joint: Vec<GoalToken>, is_first: bool, led: bool) {
        let mut last: Option<(usize, GoalToken)> = None;
        for token in joint {
            let rank = match token.kind {
                TokenKind::Mark('\n') => 1,
                TokenKind::Mark(_) => 0,
                _ if token.is("and") => 2,
                _ => 3,
            };
            let (before, reached) = (last.as_ref().map(|(_, token)| token), last.as_ref().map_or(0, |(rank, _)| *rank));
            let pair = before.is_some_and(|before| before.is("after"));
            let ordered = rank > reached || (rank == reached && (rank < 2 || pair));
            let fits = ordered && ends_well(&token, before) && !(rank > 1 && is_first) && !(rank == 2 && led);
            self.put(vec![token.clone()], fits);
            last = Some((rank.max(reached), token));
        }
    }
}

/// Whether a punctuation mark directly follows a word, or another mark that ends the same sentence (`?!`).
fn ends_well(token: &GoalToken, before: Option<&GoalToken>) -> bool {
    match (&token.kind, before) {
        (TokenKind::Mark('\n'), _) | (TokenKind::Word(_), _) => true,
        (TokenKind::Mark('.'), Some(before)) if matches!(before.kind, TokenKind::Mark('.')) => {
            before.end == token.start && (before.text == "?") != (token.text == "?")
        }
        (TokenKind::Mark(_), Some(before)) => !before.is_mark() && before.end == token.start,
        (TokenKind::Mark(_), None) => token.glued,
        _ => false,
    }
}

/// A request with the part in front of it prepended.
fn led_by(lead: Option<Vec<GoalToken>>, part: Vec<GoalToken>) -> Vec<GoalToken> {
    let Some(mut lead) = lead else { return part };
    let end = lead.last().map_or(0, |token| token.end);
    lead.push(GoalToken { kind: TokenKind::Mark(','), text: String::new(), start: end, end, glued: true });
    lead.extend(part);
    lead
}

/// The parts in execution order.
pub(super) fn ordered(parts: Vec<(PartOrder, Vec<GoalToken>)>) -> Vec<Vec<GoalToken>> {
    let mut done: Vec<Vec<GoalToken>> = Vec::new();
    let mut later: Vec<Vec<GoalToken>> = Vec::new();
    for (order, part) in parts {
        match order {
            PartOrder::Later => later.push(part),
            PartOrder::Earlier => {
                let at = done.len().saturating_sub(1);
                done.insert(at, part);
            }
            PartOrder::Next => {
                done.push(part);
                done.append(&mut later);
            }
        }
    }
    done.append(&mut later);
    done
}

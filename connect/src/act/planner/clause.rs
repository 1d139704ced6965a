//! Splits a goal into clauses, one per action, in execution order.
//!
//! `and` and a comma split only where a verb follows, so that `ann@a and bob@b` stays together. An unknown word
//! counts as a verb when an article follows: "no tool for `pay the invoice`" is better than ignoring it. `before
//! …ing` and `after …ing` change the order.

use super::connective::{Connectives, ordered};
use super::lexicon;
use super::token::{GoalToken, TokenKind};

/// The maximum number of function words between `and` and a verb.
const FILLERS_MAX: usize = 8;

/// The role of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenRole {
    Act,
    /// The value of an input.
    Value,
    /// One of an input's enum values.
    Choice,
    /// Announces a value.
    Label,
    /// Names the tool, or what the tool is about.
    Thing,
    /// Refers to the output of an earlier step, or to the content to hand on.
    Reference,
    /// Has only a grammatical function.
    Form,
}

/// The word that determines how a token is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Governor<'a> {
    Preposition(&'a str),
    /// A word that is neither a preposition nor the verb, nor a noun that only describes the token.
    Word(&'a str),
    /// The verb, another value, or nothing.
    None,
}

/// One action.
#[derive(Clone, Debug)]
pub(super) struct Clause {
    pub(super) tokens: Vec<GoalToken>,
    /// The index of its verb.
    pub(super) verb: Option<usize>,
    /// The role of each token so far.
    pub(super) uses: Vec<Option<TokenRole>>,
}

impl Clause {
    fn new(goal: &str, mut tokens: Vec<GoalToken>) -> Self {
        let verb = verb(&tokens);
        if let Some(verb) = verb {
            fold_speech(goal, &mut tokens, verb);
        }
        Self { uses: vec![None; tokens.len()], tokens, verb }
    }

    pub(super) fn is_used(&self, at: usize) -> bool {
        self.uses[at].is_some()
    }

    /// Assigns a role to a token. The first role wins.
    pub(super) fn take(&mut self, at: usize, becomes: TokenRole) {
        self.uses[at].get_or_insert(becomes);
    }

    /// The word that determines the role of a token: `to #a` is not `from #a`. All members of a list share the
    /// governor of the first.
    pub(super) fn governor(&self, at: usize) -> Governor<'_> {
        let mut place = at;
        while let Some(before) = place.checked_sub(1).filter(|before| self.verb != Some(*before)) {
            place = before;
            let token = &self.tokens[before];
            let joins = token.is("and") || token.kind == TokenKind::Mark(',');
            match token.word() {
                _ if joins => {
                    let first = (0..before).rev().find(|at| !self.tokens[*at].is_mark());
                    let alike = |first: &usize| {
                        std::mem::discriminant(&self.tokens[*first].kind)
                            == std::mem::discriminant(&self.tokens[at].kind)
                    };
                    return first.filter(alike).map_or(Governor::None, |first| self.governor(first));
                }
                None if token.kind == TokenKind::Mark(':') && self.tokens[at].kind != TokenKind::Text => {}
                None => return Governor::None,
                Some(word) if lexicon::is_preposition(word) => return Governor::Preposition(word),
                Some(word) if lexicon::is_determiner(word) || lexicon::describes(word) => {}
                Some(word) => return Governor::Word(word),
            }
        }
        Governor::None
    }

    pub(super) fn verb_word(&self) -> Option<&str> {
        self.verb.and_then(|at| self.tokens[at].word())
    }

    pub(super) fn unused(&self) -> impl DoubleEndedIterator<Item = (usize, &GoalToken)> {
        self.tokens.iter().enumerate().filter(|(at, _)| !self.is_used(*at))
    }

    pub(super) fn words(&self) -> impl Iterator<Item = (usize, &str)> {
        self.unused().filter_map(|(at, token)| token.word().map(|word| (at, word)))
    }
}

/// The execution order of a part relative to its neighbours.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PartOrder {
    Next,
    /// Runs before the part in front of it.
    Earlier,
    /// Runs after the part behind it.
    Later,
}

/// A piece of a goal between two splits.
pub(super) struct GoalPart {
    pub(super) order: PartOrder,
    /// The tokens that separate it from the previous part.
    pub(super) joint: Vec<GoalToken>,
    pub(super) tokens: Vec<GoalToken>,
}

/// A goal split into clauses. Each token is in exactly one place.
pub(super) struct SplitGoal {
    /// The actions, in execution order.
    pub(super) clauses: Vec<Clause>,
    /// Tokens that only connect clauses, and greetings.
    pub(super) joints: Vec<GoalToken>,
    /// Connecting tokens that connect nothing.
    pub(super) stray: Vec<GoalToken>,
    /// Some action is executed earlier or later than its place in the goal.
    pub(super) reordered: bool,
}

/// Splits a goal into clauses in execution order.
pub(super) fn split(goal: &str, tokens: &[GoalToken]) -> SplitGoal {
    let mut parts: Vec<GoalPart> = vec![GoalPart { order: PartOrder::Next, joint: Vec::new(), tokens: Vec::new() }];
    let mut at = 0;
    while at < tokens.len() {
        let (cut, skip) = clause_break(tokens, at, parts.last().is_none_or(|part| part.tokens.is_empty()));
        let taken = if skip == 0 { Vec::new() } else { tokens[at..at + skip].to_vec() };
        let mut taken = taken;
        if skip > 0 && !tokens[at].is_mark() {
            // `…, then`: the comma connects too.
            let comma = |token: &mut GoalToken| token.kind == TokenKind::Mark(',');
            let comma = parts.last_mut().and_then(|part| part.tokens.pop_if(comma));
            taken.splice(0..0, comma);
        }
        match (cut, parts.last_mut()) {
            (Some(order), Some(part)) if part.tokens.is_empty() => {
                part.order = order;
                part.joint.extend(taken);
            }
            (Some(order), _) => parts.push(GoalPart { order, joint: taken, tokens: Vec::new() }),
            (None, Some(part)) => part.tokens.push(tokens[at].clone()),
            (None, None) => {}
        }
        at += skip.max(1);
    }
    let mut joints = Connectives::default();
    let parts = joints.join(parts);
    let reordered = parts.iter().any(|(order, _)| *order != PartOrder::Next);
    let clauses = ordered(parts).into_iter().map(|tokens| Clause::new(goal, tokens)).collect();
    SplitGoal { clauses, joints: joints.settled, stray: joints.stray, reordered }
}

/// Whether a clause begins at this token, and how many tokens that takes away.
pub(super) fn clause_break(tokens: &[GoalToken], at: usize, is_first: bool) -> (Option<PartOrder>, usize) {
    let next = |ahead: usize| tokens.get(at + ahead);
    match &tokens[at].kind {
        TokenKind::Mark('.' | '\n' | ';') => (Some(PartOrder::Next), 1),
        TokenKind::Mark(_) => {
            let ahead = 1 + tokens[at + 1..]
                .iter()
                .take(FILLERS_MAX)
                .take_while(|t| t.word().is_some_and(lexicon::is_filler))
                .count();
            if !is_first && verb_at(tokens, at + ahead) { (Some(PartOrder::Next), 1) } else { (None, 0) }
        }
        TokenKind::Word(word) => match word.as_str() {
            "then" | "afterwards" | "afterward" | "finally" | "lastly" => (Some(PartOrder::Next), 1),
            "after" if next(1).is_some_and(|t| t.is("that") || t.is("this")) => (Some(PartOrder::Next), 2),
            "after" | "once" if is_gerund(next(1)) && !is_first => (Some(PartOrder::Earlier), 1),
            "before" if is_gerund(next(1)) => (Some(if is_first { PartOrder::Later } else { PartOrder::Next }), 1),
            "and" if at > 1 && tokens[at - 1].is("ahead") && tokens[at - 2].is("go") => (None, 0),
            "and" => {
                let fillers = tokens[at + 1..]
                    .iter()
                    .take(FILLERS_MAX)
                    .take_while(|t| t.word().is_some_and(lexicon::is_filler))
                    .count();
                let then = next(1).is_some_and(|t| t.is("then") || t.is("finally") || t.is("afterwards"));
                // `and to #b` continues with the same verb.
                let cuts = then || verb_at(tokens, at + 1 + fillers);
                if cuts { (Some(PartOrder::Next), 1) } else { (None, 0) }
            }
            _ => (None, 0),
        },
        _ => (None, 0),
    }
}

/// Whether `before …ing` or `after …ing` begins at this token.
pub(super) fn starts_order(tokens: &[GoalToken], at: usize) -> bool {
    matches!(tokens[at].word(), Some("before" | "after" | "once")) && is_gerund(tokens.get(at + 1))
}

fn is_gerund(token: Option<&GoalToken>) -> bool {
    token.and_then(GoalToken::word).is_some_and(|word| word.ends_with("ing"))
}

/// Whether a verb stands here, after `and` or a comma.
fn verb_at(tokens: &[GoalToken], at: usize) -> bool {
    let Some(word) = tokens.get(at).and_then(GoalToken::word) else { return false };
    let next = tokens.get(at + 1);
    let follows = |fits: &dyn Fn(&str) -> bool| next.and_then(GoalToken::word).is_some_and(fits);
    if lexicon::is_label(word) && next.is_none_or(|t| t.is_entity() || t.is_mark()) {
        return false;
    }
    // `…, saying at noon` continues the quoted speech.
    if word.ends_with("ing") && !lexicon::is_act(word) && !lexicon::acts(word).is_empty() {
        return false;
    }
    let article = follows(&|w| lexicon::is_determiner(w) || w == "it" || w == "them");
    if !lexicon::acts(word).is_empty() {
        let object = next.is_some_and(GoalToken::is_entity)
            || follows(&|w| lexicon::is_preposition(w) || lexicon::is_thing(w) || !lexicon::acts(w).is_empty());
        return !lexicon::is_nounish(word) || article || object;
    }
    let small = lexicon::is_filler(word) || lexicon::is_preposition(word) || lexicon::is_determiner(word);
    !small && !lexicon::is_label(word) && !lexicon::is_thing(word) && !lexicon::is_generic(word) && article
}

/// The index of the verb of a clause; it may be an unknown word.
pub(super) fn verb(tokens: &[GoalToken]) -> Option<usize> {
    let mut leading = false;
    for (at, token) in tokens.iter().enumerate() {
        let Some(word) = token.word() else {
            leading &= !token.is_mark();
            continue;
        };
        if word == "use" || (lexicon::is_preposition(word) && word != "to") {
            leading = true;
        } else if lexicon::is_filler(word) {
            // `I need the issues` has no other verb.
            let next = tokens.get(at + 1);
            let noun = next.is_some_and(|t| t.is_entity() || t.word().is_some_and(lexicon::is_determiner));
            if matches!(word, "need" | "want") && noun && !leading {
                return Some(at);
            }
        } else if !leading {
            return Some(at);
        } else {
            let before = at.checked_sub(1).and_then(|at| tokens[at].word()).unwrap_or_default();
            let named = lexicon::is_determiner(before) || (lexicon::is_preposition(before) && before != "to");
            if !lexicon::acts(word).is_empty() && !named {
                return Some(at);
            }
        }
    }
    None
}

/// Folds the words after `that` or `saying` into one text token.
fn fold_speech(goal: &str, tokens: &mut Vec<GoalToken>, verb: usize) {
    let says = tokens[verb].word().is_some_and(lexicon::is_saying);
    let begins = |at: usize| {
        let next = tokens.get(at + 1).and_then(GoalToken::word);
        let speech = next.is_some_and(|word| !lexicon::is_preposition(word) && word != "says" && word != "reads");
        speech && ((says && tokens[at].is("that")) || tokens[at].is("saying"))
    };
    let Some(at) = (verb + 1..tokens.len()).find(|at| begins(*at)) else { return };
    let labels = |at: &usize| {
        let labelled = tokens.get(at + 1).and_then(GoalToken::word).is_some_and(lexicon::is_label);
        tokens[*at].is_mark() && labelled && tokens.get(at + 2).is_some_and(GoalToken::is_entity)
    };
    let mut last = (at + 2..tokens.len()).find(labels).unwrap_or(tokens.len());
    // An address at the end is the destination, not part of the text.
    if last > at + 3
        && matches!(tokens[last - 1].kind, TokenKind::Channel | TokenKind::Email)
        && tokens[last - 2].word().is_some_and(lexicon::is_preposition)
    {
        last -= 2;
    }
    let (start, end) = (tokens[at + 1].start, tokens[last - 1].end);
    let text = goal.get(start..end).unwrap_or_default().to_owned();
    tokens.splice(at + 1..last, [GoalToken { kind: TokenKind::Text, text, start, end, glued: false }]);
}

#[cfg(test)]
mod tests {
    use super::super::token::read;
    use super::*;

    fn clauses(goal: &str) -> Vec<String> {
        let text = |clause: Clause| clause.tokens.iter().map(|t| t.text.clone()).collect::<Vec<_>>().join(" ");
        split(goal, &read(goal)).clauses.into_iter().map(text).collect()
    }

    #[test]
    fn a_verb_behind_and_begins_a_clause_and_a_noun_does_not() {
        assert_eq!(clauses("mail a@b.example and c@d.example").len(), 1);
        assert_eq!(clauses("fetch https://a.example and summarize it"), ["fetch https://a.example", "summarize it"]);
        assert_eq!(clauses("post the titles and file names to #a").len(), 1);
    }

    #[test]
    fn an_unknown_verb_is_not_left_out() {
        assert_eq!(clauses("fetch https://a.example and pay the invoice")[1], "pay the invoice");
    }

    #[test]
    fn before_and_after_say_what_is_done_first() {
        assert_eq!(clauses("before posting it to #a, shorten 'x'"), ["shorten x", "posting it to a"]);
        assert_eq!(clauses("post it to #a after shortening 'x'"), ["shortening x", "post it to a"]);
    }

    #[test]
    fn a_part_without_a_verb_belongs_to_its_neighbour() {
        assert_eq!(clauses("In acme/web, open an issue 'x'"), ["In acme/web  open an issue x"]);
        assert_eq!(clauses("Mail a@b.example. Subject 'x'."), ["Mail a@b.example Subject x"]);
    }

    #[test]
    fn what_is_said_is_one_text() {
        assert_eq!(clauses("tell #a that all is well in #b")[0], "tell a that all is well b".replace(" b", " in b"));
    }
}

//! Where a word or punctuation mark without a meaning of its own may stand.
//!
//! The lists are closed, and each has its positions: `please` at either end of a request, an article before a noun,
//! `and` between two items, a comma behind one. Anywhere else the same word may carry meaning, so it stays unused and
//! rejects the goal.

use super::clause::{Clause, TokenRole};
use super::lexicon;
use super::token::{GoalToken, POSSESSIVE, TokenKind};

/// Verbs after which `to` may precede a web address.
const TELLING: &[&str] =
    &["post", "send", "call", "write", "push", "submit", "forward", "put", "patch", "connect", "go"];

/// Verbs that take their object behind a preposition: `look at`, `check on`.
const LOOKING: &[&str] = &["look", "search", "check", "query", "hunt", "find", "what", "which"];

fn word(clause: &Clause, at: Option<usize>) -> Option<&str> {
    at.and_then(|at| clause.tokens.get(at)).and_then(GoalToken::word)
}

fn used(clause: &Clause, at: Option<usize>) -> Option<TokenRole> {
    at.and_then(|at| clause.uses.get(at).copied().flatten())
}

/// Whether a word in front of the verb only asks, connects or greets: at the beginning, behind punctuation, or right
/// before the verb. `request.rs` decides which of these words form a request.
pub(super) fn is_opening(clause: &Clause, at: usize) -> bool {
    let Some(verb) = clause.verb.filter(|verb| at < *verb) else { return false };
    let asks = |at: usize| clause.tokens[at].word().is_some_and(|word| lexicon::is_filler(word) || word == "use");
    let from_start = || (0..at).rev().take_while(|at| !clause.tokens[*at].is_mark()).all(asks);
    asks(at) && ((at..verb).all(asks) || from_start())
}

/// `please`, `also` and the like at the beginning or end of a request or of a part of it.
pub(super) fn courtesy(clause: &Clause, at: usize, said: &str) -> bool {
    let kind = |word: &str| lexicon::is_courtesy(word);
    let joins = |token: &GoalToken| token.is_mark() || token.is("and");
    let begins = at.checked_sub(1).is_none_or(|before| joins(&clause.tokens[before]));
    let ends = clause.tokens[at + 1..].iter().all(|token| token.is_mark() || token.word().is_some_and(kind));
    kind(said) && (begins || ends)
}

/// `sum it up`, `let #ops know`: once, right behind the verb or at the end of its object.
pub(super) fn particle(clause: &Clause, at: usize, said: &str) -> bool {
    let Some(verb) = clause.verb.filter(|verb| *verb < at) else { return false };
    if !lexicon::is_particle(clause.tokens[verb].word().unwrap_or_default(), said) {
        return false;
    }
    let once = clause.tokens.iter().enumerate().all(|(other, token)| other == at || !token.is(said));
    let small = |place: usize| clause.tokens[place].word().is_some_and(lexicon::is_preposition);
    let close = (verb + 1..at).all(|place| used(clause, Some(place)) == Some(TokenRole::Form));
    let behind = used(clause, at.checked_sub(1)).is_some() || !small(at - 1);
    let ends = clause.tokens.get(at + 1).is_none_or(|next| {
        next.is_mark()
            || next.kind == TokenKind::Text
            || next.word().is_some_and(|w| lexicon::is_preposition(w) || matches!(w, "that" | "what"))
    });
    once && (close || at == verb + 1 || (behind && ends))
}

/// Whether a phrasal verb has its particle: `back` is not `back up`.
pub(super) fn is_whole_verb(clause: &Clause, verb: &str) -> bool {
    let halves = lexicon::required_particles(verb);
    halves.is_empty() || clause.tokens.iter().any(|token| token.word().is_some_and(|word| halves.contains(&word)))
}

/// `and` between two tokens that have roles.
pub(super) fn conjunction(clause: &Clause, at: usize, said: &str) -> bool {
    if said != "and" {
        return false;
    }
    let before = (0..at).rev().find(|before| clause.tokens[*before].kind != TokenKind::Mark(','));
    let whole = match used(clause, before) {
        // A token in front that is settled later is no function word.
        None => before.is_some_and(|before| {
            let value = clause.tokens.get(at + 1).is_some_and(GoalToken::is_entity);
            let word = clause.tokens[before].word().unwrap_or_default();
            let open =
                is_small(&clause.tokens[before]) || lexicon::is_label(word) || (value && lexicon::describes(word));
            !open && clause.verb != Some(before)
        }),
        Some(TokenRole::Value) if before.is_some_and(|at| matches!(clause.tokens[at].kind, TokenKind::Number(_))) => {
            false
        }
        // `the webhook and https://…`: a noun and its value are one item.
        Some(TokenRole::Thing) => !clause.tokens.get(at + 1).is_some_and(GoalToken::is_entity),
        Some(becomes) => matches!(becomes, TokenRole::Value | TokenRole::Choice | TokenRole::Reference),
    };
    let whole = whole && !matches!(word(clause, before), Some("me" | "us"));
    let Some(next) = clause.tokens.get(at + 1) else { return false };
    // `to #a and to #b`: an item behind a different preposition is not in the list.
    let again = |word: &str| clause.tokens[..at].iter().any(|token| token.is(word));
    let joins = match next.word() {
        Some(word) if lexicon::is_preposition(word) && clause.is_used(at + 1) => again(word),
        Some("and" | "that") => false,
        Some(word) if lexicon::is_particle(clause.verb_word().unwrap_or_default(), word) => false,
        _ => !next.is_mark(),
    };
    // A token behind it without a role is reported by itself.
    whole && joins && before.is_some_and(|before| !splits_name(clause, before + 1, at + 1))
}

/// Whether a function word stands within the name of one thing: `Google of Drive`.
pub(super) fn splits_name(clause: &Clause, small: usize, next: usize) -> bool {
    let before = word(clause, small.checked_sub(1)).unwrap_or_default();
    let behind = word(clause, Some(next)).unwrap_or_default();
    let named =
        lexicon::is_thing(behind) || matches!(used(clause, Some(next)), Some(TokenRole::Thing | TokenRole::Choice));
    lexicon::is_service(before) && small + 1 == next && named
}

/// Whether a preposition may follow the token in front of it.
pub(super) fn may_follow(clause: &Clause, at: usize, said: &str) -> bool {
    const ARTICLES: &[&str] = &["the", "a", "an", "my", "our", "your", "its", "their", "every"];
    let Some(before) = at.checked_sub(1) else { return true };
    let token = &clause.tokens[before];
    let verb = clause.verb_word().unwrap_or_default();
    // `the open of issues`.
    let picked = clause.uses[before] == Some(TokenRole::Choice) || matches!(token.kind, TokenKind::Number(_));
    let within = picked && matches!(used(clause, Some(at + 1)), Some(TokenRole::Thing | TokenRole::Reference));
    match token.word() {
        Some(word) if ARTICLES.contains(&word) || word == "use" || within => false,
        Some(word) if lexicon::is_preposition(word) => {
            clause.is_used(before) || (said != "of" && lexicon::is_particle(verb, word)) || clause.verb == Some(before)
        }
        Some(word) => said != "of" || !lexicon::is_particle(verb, word),
        // `of` follows a noun; a value has no parts.
        None => (said != "of" || token.is_mark()) && !within,
    }
}

/// Whether a preposition may directly follow the verb: `read from https://…`, `post to #ops`. `read of https://…` and
/// `send me with a summary` are not idiomatic, so they may mean something else.
pub(super) fn may_follow_verb(clause: &Clause, at: usize, to: usize) -> bool {
    let Some(verb) = clause.verb.filter(|verb| *verb < at) else { return true };
    let act = clause.tokens[verb].word().unwrap_or_default();
    let close = (verb + 1..at).all(|place| {
        word(clause, Some(place)).is_some_and(|word| matches!(word, "me" | "us") || lexicon::is_particle(act, word))
    });
    if !close {
        return true;
    }
    let (said, becomes) = (word(clause, Some(at)).unwrap_or_default(), used(clause, Some(to)));
    let label = word(clause, Some(to)).is_some_and(lexicon::is_label);
    let labelled = (becomes == Some(TokenRole::Label) && label) || matches!(clause.tokens[to].kind, TokenKind::Json(_));
    let particle = lexicon::is_particle(act, said);
    if matches!(act, "what" | "which") && !particle && at > verb + 1 {
        return false;
    }
    match said {
        _ if particle => true,
        "with" | "as" => labelled,
        "of" | "by" => false,
        _ if becomes == Some(TokenRole::Reference) => {
            said == "about" || (LOOKING.contains(&act) && matches!(said, "on" | "for" | "at"))
        }
        "to" | "into" if becomes != Some(TokenRole::Value) => {
            let named = word(clause, Some(to)).is_some_and(lexicon::is_instrument);
            named && !matches!(used(clause, Some(to + 1)), Some(TokenRole::Thing | TokenRole::Reference))
        }
        "to" if matches!(clause.tokens[to].kind, TokenKind::Number(_)) => false,
        "from" if becomes == Some(TokenRole::Thing) => word(clause, Some(to)).is_some_and(lexicon::is_instrument),
        "to" if clause.tokens[to].kind == TokenKind::Url => TELLING.contains(&act),
        "from" => clause.tokens[to].kind != TokenKind::Text,
        _ => may_lead_object(clause, said, to, labelled || LOOKING.contains(&act)),
    }
}

/// Whether a preposition right behind the verb may lead to what the request is about: `search within Notion`, but not
/// `open within an issue`.
fn may_lead_object(clause: &Clause, said: &str, to: usize, expected: bool) -> bool {
    let next = used(clause, Some(to + 1));
    let counted = |at: usize| clause.tokens.get(at).is_some_and(|token| matches!(token.kind, TokenKind::Number(_)));
    match used(clause, Some(to)) {
        Some(TokenRole::Value) => !counted(to) || said == "in",
        Some(TokenRole::Label) => expected || (next == Some(TokenRole::Value) && (!counted(to + 1) || said == "in")),
        Some(TokenRole::Thing) => {
            let named = word(clause, Some(to)).is_some_and(lexicon::is_instrument);
            expected || (named && !matches!(next, Some(TokenRole::Thing | TokenRole::Reference)))
        }
        _ => expected,
    }
}

/// `send me …`, `for us`.
pub(super) fn receiver(clause: &Clause, at: usize, said: &str) -> bool {
    let before = at.checked_sub(1);
    let after_verb = before.is_some() && before == clause.verb;
    matches!(said, "me" | "us") && (after_verb || word(clause, before) == Some("for"))
}

/// `acme/web's issues`.
pub(super) fn ending(clause: &Clause, at: usize, said: &str) -> bool {
    let owner = used(clause, at.checked_sub(1)) == Some(TokenRole::Value);
    let owned = matches!(used(clause, Some(at + 1)), Some(TokenRole::Thing | TokenRole::Choice | TokenRole::Reference));
    said == POSSESSIVE && owner && owned
}

/// Articles before nouns, `all` before plurals.
pub(super) fn determiner(clause: &Clause, at: usize, said: &str, several: &dyn Fn(&str) -> bool) -> bool {
    if !lexicon::is_determiner(said) {
        return false;
    }
    let next = at + 1;
    let Some(token) = clause.tokens.get(next) else { return false };
    // `open the issues` but not `closed the issues`: an article begins its noun phrase.
    let within = at.checked_sub(1).filter(|before| clause.verb != Some(*before)).is_some_and(|before| {
        let noun = |word: &str| lexicon::is_thing(word) || lexicon::is_service(word) || lexicon::announces_text(word);
        let labels = used(clause, Some(before)) == Some(TokenRole::Label) && !is_small(&clause.tokens[before]);
        used(clause, Some(before)) == Some(TokenRole::Choice) || labels || word(clause, Some(before)).is_some_and(noun)
    });
    let relates = said == "that" && used(clause, Some(next)) == Some(TokenRole::Label);
    let again = word(clause, at.checked_sub(1)).is_some_and(|word| lexicon::is_determiner(word) && word != "all");
    if (within && !relates) || again {
        return false;
    }
    let noun = |place: usize| {
        let Some(becomes) = used(clause, Some(place)) else { return false };
        let token = &clause.tokens[place];
        match becomes {
            TokenRole::Thing | TokenRole::Choice | TokenRole::Reference => true,
            TokenRole::Label => !is_small(token) || token.is("at") || token.is("up"),
            TokenRole::Form => token.word().is_some_and(|word| !lexicon::is_small(word)),
            // `the 5 latest issues`, `the reports bucket`, `the #ops channel`.
            TokenRole::Value => {
                token.word().is_some()
                    || matches!(token.kind, TokenKind::Number(_))
                    || matches!(used(clause, Some(place + 1)), Some(TokenRole::Thing | TokenRole::Label))
                    || word(clause, Some(place + 1)) == Some(POSSESSIVE)
            }
            TokenRole::Act => false,
        }
    };
    match said {
        "a" | "an" | "the" => noun(next),
        "all" => {
            let from = next + usize::from(token.word().is_some_and(lexicon::is_determiner));
            let noun = |place: &usize| {
                matches!(used(clause, Some(*place)), Some(TokenRole::Choice | TokenRole::Thing | TokenRole::Reference))
            };
            let chosen = at.checked_sub(1).is_some_and(|before| clause.uses[before] == Some(TokenRole::Choice));
            let mut nouns = (from..clause.tokens.len()).take_while(noun).filter(|_| !chosen);
            nouns.any(|place| word(clause, Some(place)).is_some_and(several))
        }
        // `this text`, `this: "x"`; `this drive` would be a different one.
        _ => match used(clause, Some(next)) {
            Some(TokenRole::Reference) => {
                token.word().is_some_and(|w| !lexicon::is_pronoun(w) && !lexicon::is_possessive(w))
            }
            Some(TokenRole::Form) => token.word().is_some_and(lexicon::describes),
            Some(TokenRole::Thing) => {
                token.word().is_some_and(|w| lexicon::is_outcome(w) || lexicon::apposes(w, &TokenKind::Text))
            }
            // `files that contain "x"`, `this markdown`.
            Some(TokenRole::Label) if said == "that" => token.word().is_some_and(|label| label.starts_with("contain")),
            Some(TokenRole::Label) => token.word().is_some_and(|w| lexicon::apposes(w, &TokenKind::Text)),
            becomes => {
                said != "that" && becomes.is_some() && matches!(token.kind, TokenKind::Text | TokenKind::Json(_))
            }
        },
    }
}

/// Whether the word in front makes a word a noun.
pub(super) fn is_attributed(clause: &Clause, at: usize) -> bool {
    let Some(before) = at.checked_sub(1).filter(|before| clause.verb != Some(*before)) else { return false };
    let token = &clause.tokens[before];
    // `the upload bucket` is a different bucket.
    let next = clause.tokens.get(at + 1);
    let ends = next.is_none_or(|t| t.is_mark() || t.is_entity() || is_small(t));
    ends && token
        .word()
        .is_some_and(|word| lexicon::is_determiner(word) || lexicon::is_thing(word) || lexicon::is_service(word))
        || clause.uses[before] == Some(TokenRole::Choice)
}

/// Whether a pronoun is in object position: behind the verb, a preposition or a label.
pub(super) fn is_object(clause: &Clause, at: usize) -> bool {
    let ends = clause.tokens.get(at + 1).is_none_or(|next| {
        next.is_mark()
            || matches!(next.kind, TokenKind::Text | TokenKind::Json(_))
            || next.word().is_some_and(|next| {
                let verb = clause.verb_word().unwrap_or_default();
                lexicon::is_preposition(next)
                    || matches!(next, "and" | "that")
                    || lexicon::is_particle(verb, next)
                    || lexicon::is_courtesy(next)
                    || lexicon::is_content_question(next)
            })
    });
    let pointer = lexicon::is_determiner(word(clause, Some(at)).unwrap_or_default());
    let next = clause.tokens.get(at + 1);
    let ends = if pointer {
        // `this report`: the noun behind decides.
        let noun = |word: &str| !lexicon::is_pronoun(word) && !lexicon::is_possessive(word);
        let noun = next.and_then(GoalToken::word).is_some_and(noun);
        next.is_none_or(|next| {
            let text = matches!(next.kind, TokenKind::Text | TokenKind::Json(_));
            next.is_mark() || text || next.word().is_some_and(lexicon::is_preposition)
        }) || (noun && used(clause, Some(at + 1)) == Some(TokenRole::Reference))
    } else {
        ends
    };
    let nominal = clause.tokens[at].word().is_some_and(|word| word.len() > 5);
    let Some(before) = at.checked_sub(1).filter(|_| ends || nominal) else { return ends };
    let token = &clause.tokens[before];
    clause.verb == Some(before)
        || token.is("assign")
        || token.word().is_some_and(|word| {
            lexicon::is_preposition(word)
                || (nominal && lexicon::is_determiner(word))
                || matches!(word, "what" | "and" | "me" | "us" | "up" | "down")
        })
}

/// Commas, colons and brackets between complete items.
pub(super) fn mark(clause: &Clause, at: usize) -> bool {
    let token = &clause.tokens[at];
    // The comma behind a joined part.
    if token.start == token.end {
        return true;
    }
    let Some(before) = at.checked_sub(1).filter(|_| token.glued) else { return false };
    let (left, right) = (&clause.tokens[before], clause.tokens.get(at + 1));
    let Some(right) = right.filter(|right| !right.is_mark()) else { return false };
    let colon = token.kind == TokenKind::Mark(':');
    let ends = !left.is_mark() && (!is_small(left) || (colon && left.is("to")));
    match token.kind {
        TokenKind::Mark(':') => ends && (right.is_entity() || clause.verb.is_some_and(|verb| at < verb)),
        TokenKind::Mark(',') => {
            let parted = match used(clause, Some(at + 1)) {
                Some(TokenRole::Thing) => false,
                // `the page, 1f0c…`: a noun and its value are one item.
                Some(TokenRole::Value) => left.is_entity() || used(clause, Some(before)) == Some(TokenRole::Value),
                // A token without a role is reported by itself.
                _ => true,
            };
            ends && parted && !is_broken(clause, at) && !matches!(left.word(), Some("me" | "us"))
        }
        _ => false,
    }
}

fn is_small(token: &GoalToken) -> bool {
    token.word().is_some_and(lexicon::is_small)
}

/// Whether a comma splits what belongs together: `open, issues`, `let #ops, know`.
fn is_broken(clause: &Clause, at: usize) -> bool {
    let (before, next) = (at.checked_sub(1), Some(at + 1));
    let (left, right) = (word(clause, before).unwrap_or_default(), word(clause, next).unwrap_or_default());
    let verb = clause.verb_word().unwrap_or_default();
    let particle = lexicon::is_particle(verb, left) || lexicon::is_particle(verb, right);
    let noun = matches!(used(clause, next), Some(TokenRole::Thing | TokenRole::Reference));
    let picked = used(clause, before) == Some(TokenRole::Choice) && noun;
    let named = lexicon::describes(left) && (lexicon::describes(right) || noun) && !lexicon::is_pronoun(left);
    let asks = lexicon::is_filler(left) && !lexicon::is_courtesy(left) && clause.verb > before;
    clause.verb == before || particle || picked || named || asks || splits_name(clause, at, at + 1)
}

//! Whether a clause is a request, and where an unquoted text may hide another one.
//!
//! Only requests become plans: a verb in the imperative, with or without a polite opening (`could you`, `I want you
//! to`). A question to oneself (`should I`), a report (`I posted`) and a request for another time are not, however
//! similar they look.

use super::choose::ToolProfile;
use super::clause::{Clause, clause_break};
use super::lexicon;
use super::token::{self, GoalToken, TokenKind};
use chimera_core::act::{PlanError, excerpt};

/// Words in front of a verb that only ask, connect or greet.
const MANNERS: &[&str] = &[
    "please",
    "kindly",
    "just",
    "now",
    "first",
    "next",
    "finally",
    "also",
    "then",
    "hey",
    "hi",
    "hello",
    "ok",
    "okay",
    "so",
    "afterwards",
    "afterward",
    "lastly",
    "second",
    "third",
    "let's",
    "lets",
    "help",
    "use",
];

/// Phrases with the same function, the longest first.
const FRAMES: &[&[&str]] = &[
    &["i", "would", "like", "you", "to"],
    &["we", "would", "like", "you", "to"],
    &["i", "do", "want", "you", "to"],
    &["i'd", "like", "you", "to"],
    &["we'd", "like", "you", "to"],
    &["i", "would", "like", "to"],
    &["we", "would", "like", "to"],
    &["i", "want", "you", "to"],
    &["i", "need", "you", "to"],
    &["we", "want", "you", "to"],
    &["we", "need", "you", "to"],
    &["i'd", "like", "to"],
    &["we'd", "like", "to"],
    &["i", "want", "to"],
    &["i", "need", "to"],
    &["we", "want", "to"],
    &["we", "need", "to"],
    &["would", "you", "mind"],
    &["once", "that's", "done"],
    &["help", "me", "to"],
    &["help", "us", "to"],
    &["go", "ahead", "and"],
    &["once", "done"],
    &["after", "that"],
    &["after", "this"],
    &["go", "ahead"],
    &["help", "me"],
    &["help", "us"],
    &["could", "you"],
    &["can", "you"],
    &["would", "you"],
    &["will", "you"],
    &["try", "to"],
    &["i", "need"],
    &["i", "want"],
    &["we", "need"],
    &["we", "want"],
];

/// Words before `you` that make a request.
const ASKING: &[&str] = &["could", "can", "would", "will"];

/// Words before `…ing` that change the order.
const ORDERS: &[&str] = &["before", "after", "once"];

/// Words after which an unquoted text may say when instead of what.
const SOMETIMES: &[&str] = &[
    "if", "unless", "until", "whenever", "every", "tomorrow", "tonight", "later", "twice", "daily", "weekly", "hourly",
    "monthly",
];

/// Other things that a tool can be told besides a text.
const BESIDES: &[&str] = &[
    "importance",
    "priority",
    "label",
    "labels",
    "subject",
    "body",
    "title",
    "attachment",
    "attachments",
    "cc",
    "bcc",
    "copy",
];

/// Words that announce a value and can't continue a sentence.
const ANNOUNCING: &[&str] = &[
    "labelled", "labeled", "tagged", "label", "labels", "assigned", "assign", "cc", "bcc", "titled", "entitled",
    "subject", "body", "title", "signed",
];

/// Words behind which a title stands, quoted or not.
const TITLING: &[&str] = &["titled", "entitled", "called", "named"];

/// The refusal of a clause that asks for nothing.
pub(super) fn not_a_request_error(goal: &str, clause: &Clause, tools: &[ToolProfile]) -> Option<PlanError> {
    let verb = clause.verb?;
    let word = clause.tokens[verb].word()?;
    let gerund = word.ends_with("ing") && !is_base(word, tools);
    let past = word.ends_with("ed") || word.ends_with('s');
    let report = (past && !is_base(word, tools)) || (gerund && !is_ordered(goal));
    let from =
        if report && !lexicon::acts(word).is_empty() { Some(0) } else { first_non_request_word(clause, verb, gerund) }?;
    let text = goal.get(clause.tokens[from].start..clause.tokens[verb].end)?;
    Some(PlanError::Unplaced { text: excerpt(text) })
}

/// Whether a word is a verb in base form.
fn is_base(word: &str, tools: &[ToolProfile]) -> bool {
    lexicon::is_act(word) || tools.iter().any(|tool| tool.spells(word))
}

/// Whether a goal orders its actions with `before` or `after`; then `…ing` is a request too.
fn is_ordered(goal: &str) -> bool {
    let words = goal.split(|sign: char| !sign.is_alphanumeric());
    words.map(str::to_lowercase).any(|word| word == "mind" || ORDERS.contains(&word.as_str()))
}

/// Whether a word follows another that only asks, or nothing.
fn is_asked(clause: &Clause, place: usize) -> bool {
    place.checked_sub(1).is_none_or(|before| {
        clause.tokens[before].is_mark()
            || clause.tokens[before].word().is_some_and(|word| lexicon::is_filler(word) || word == "use")
    })
}

/// The first word in front of the verb that belongs to no request.
fn first_non_request_word(clause: &Clause, verb: usize, gerund: bool) -> Option<usize> {
    // `I need the issues`: the verb itself makes the request.
    let end = if matches!(clause.tokens[verb].word(), Some("need" | "want")) { verb + 1 } else { verb };
    let lead: Vec<(usize, &str)> = clause.tokens[..end]
        .iter()
        .enumerate()
        .filter_map(|(at, token)| token.word().map(|word| (at, word)))
        .filter(|(_, word)| lexicon::is_filler(word))
        .collect();
    let mut at = 0;
    while at < lead.len() {
        let rest = &lead[at..];
        let (place, word) = rest[0];
        let frame = FRAMES.iter().find(|frame| {
            rest.len() >= frame.len() && frame.iter().zip(rest).all(|(wanted, (_, word))| wanted == word)
        });
        let known = MANNERS.contains(&word)
            || (gerund && ORDERS.contains(&word))
            // `Use Outlook to send …`, `in acme/web`.
            || (lexicon::is_preposition(word) && place < verb && (word != "to" || !is_asked(clause, place)))
            || (word == "do" && !rest.get(1).is_some_and(|(_, next)| matches!(*next, "i" | "we" | "you")));
        match frame {
            Some(frame) => at += frame.len(),
            None if known => at += 1,
            None => return Some(place),
        }
    }
    None
}

/// The error for a goal that ends as a question: the author may not want it done. A question that asks for something
/// (`could you …?`, `what does …?`) is a request.
pub(super) fn question_error(goal: &str, tokens: &[GoalToken]) -> Option<PlanError> {
    let mut from = 0;
    for (at, token) in tokens.iter().enumerate() {
        let ends = matches!(token.kind, TokenKind::Mark('.' | '\n' | ';'));
        if ends && token.text == "?" {
            let words: Vec<&str> = tokens[from..at].iter().filter_map(GoalToken::word).collect();
            let asks = words.windows(2).any(|pair| ASKING.contains(&pair[0]) && pair[1] == "you")
                || words
                    .iter()
                    .find(|word| !MANNERS.contains(word))
                    .is_some_and(|word| matches!(*word, "what" | "which"));
            let said = (0..at).rev().find(|at| !tokens[*at].is_mark()).map_or(at, |at| at);
            if !asks {
                let last = tokens[at..].iter().take_while(|token| token.is_mark()).last().unwrap_or(token);
                let text = goal.get(tokens[said].start..last.end).unwrap_or("?");
                return Some(PlanError::Unplaced { text: excerpt(text) });
            }
        }
        // `…!?` is one sentence.
        if ends && !tokens.get(at + 1).is_some_and(GoalToken::is_mark) {
            from = at + 1;
        }
    }
    None
}

/// JSON that would lose a member or round a number.
pub(super) fn unfaithful_json(tokens: &[GoalToken]) -> Option<PlanError> {
    let lost = tokens.iter().find(|token| token.kind == TokenKind::Sign && token.text.starts_with(['{', '[']))?;
    Some(PlanError::Unplaced { text: excerpt(&lost.text) })
}

/// `now and then` as a frequency.
pub(super) fn frequency_error(goal: &str, tokens: &[GoalToken]) -> Option<PlanError> {
    let said = |words: &[GoalToken]| ["now", "and", "then"].iter().zip(words).all(|(word, token)| token.is(word));
    let at = tokens.windows(3).position(said)?;
    let next = tokens.get(at + 3).and_then(GoalToken::word);
    let acts = next.is_some_and(|word| !lexicon::acts(word).is_empty() || lexicon::is_filler(word) && word != "to");
    let text = goal.get(tokens[at].start..tokens[at + 2].end).filter(|_| !acts)?;
    Some(PlanError::Unplaced { text: text.to_owned() })
}

/// An unquoted text of several words with another wish behind it in the same sentence. Nobody can tell where such a text
/// ends: `Tell #ops that nobody may read and delete …` forbids what its second half would do.
pub(super) fn open_text(goal: &str, tokens: &[GoalToken]) -> Option<PlanError> {
    let mut says = false;
    for (at, token) in tokens.iter().enumerate() {
        says = !ends_sentence(token) && (says || token.word().is_some_and(lexicon::is_saying));
        let opens = (says && token.is("that"))
            || token.is("saying")
            || token.word().is_some_and(|word| TITLING.contains(&word));
        let is_prose = |ahead: usize| tokens.get(at + ahead).is_some_and(|next| next.word().is_some());
        let led = |next: &str| lexicon::is_preposition(next) || matches!(next, "says" | "reads");
        if !opens || !is_prose(1) || !is_prose(2) || tokens[at + 1].word().is_some_and(led) {
            continue;
        }
        let rest = &tokens[at + 1..];
        let end = rest.iter().position(ends_sentence).unwrap_or(rest.len());
        let is_cut = |next: usize| clause_break(tokens, at + 1 + next, false).0.is_some();
        if (1..end).any(is_cut) {
            let text = goal.get(rest[0].start..rest[end - 1].end)?;
            return Some(PlanError::Unplaced { text: excerpt(text) });
        }
    }
    None
}

fn ends_sentence(token: &GoalToken) -> bool {
    matches!(token.kind, TokenKind::Mark('.' | '\n' | ';'))
}

/// The end of an unquoted text that may be another wish, or say when: `… and assign it to bob`.
pub(super) fn second_request(text: &str) -> Option<&str> {
    let tokens = token::read(text);
    let word = |at: usize| tokens.get(at).and_then(GoalToken::word).unwrap_or_default();
    let wish = |at: &usize| {
        let here = word(*at);
        if SOMETIMES.contains(&here) {
            return true;
        }
        if here == "with" {
            return (1..4).any(|ahead| BESIDES.contains(&word(at + ahead)));
        }
        let joins = matches!(here, "and" | "then") || matches!(tokens[*at].kind, TokenKind::Mark(','));
        let next = word(at + 1);
        let small = next.is_empty() || lexicon::is_determiner(next) || lexicon::is_preposition(next);
        let object = tokens.get(at + 2).is_some_and(|token| {
            let named = |w: &str| lexicon::is_determiner(w) || lexicon::is_thing(w) || matches!(w, "it" | "them");
            token.is_entity() || token.word().is_some_and(named)
        });
        // `… and #dev that it is not` tells somebody else something else.
        let is_address =
            matches!(tokens.get(at + 1).map(|token| &token.kind), Some(TokenKind::Channel | TokenKind::Email))
                && matches!(word(at + 2), "that" | "saying");
        joins && (is_address || !small && (object || ANNOUNCING.contains(&next)))
    };
    // `signed, at noon subject "…"`: the label ends the text, and what precedes it is ambiguous.
    let labels = |at: &usize| ANNOUNCING.contains(&word(*at)) && tokens.get(at + 1).is_some_and(GoalToken::is_entity);
    let label = (0..tokens.len()).find(labels);
    let lead = label.map(|label| (0..label).rev().find(|at| tokens[*at].is_mark()).map_or(label, |mark| mark + 1));
    let at = (0..tokens.len()).find(wish).into_iter().chain(lead).min()?;
    text.get(tokens[at].start..)
}

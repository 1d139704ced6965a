//! Records the role of each token of a clause.
//!
//! Each token gets exactly one role: a value, a label that announces a value, the noun a tool is about, or a
//! reference to an earlier step. Words that carry no meaning of their own (articles, prepositions, courtesies) get a
//! role only next to a token that has one. They are settled from right to left, so that `from` stays unused when the
//! `last week` behind it does. A token without a role rejects the goal, so a word that the planner does not know is
//! never silently ignored.

use super::choose::ToolProfile;
use super::clause::{Clause, TokenRole};
use super::function_word;
use super::lexicon::{self, stem};
use super::slot::Slot;
use super::token::{GoalToken, TokenKind};
use super::{preposition, qualifier};
use chimera_core::act::{PlanError, excerpt};

/// What the steps of one clause were built from.
#[derive(Default)]
pub(super) struct ClauseFacts<'a> {
    /// The tools of the clause's steps, and of the steps they refer to.
    pub(super) tools: Vec<&'a ToolProfile>,
    /// Labels of the inputs that are filled.
    pub(super) labels: Vec<&'a str>,
    /// An output of an earlier step is wired into one of them.
    pub(super) wired: bool,
    /// Some content comes from the caller's `inputs`.
    pub(super) given: bool,
    /// There is content to hand on, whatever its source.
    pub(super) carried: bool,
}

impl<'a> ClauseFacts<'a> {
    /// Records that an input is filled.
    pub(super) fn fill(&mut self, slot: &Slot<'a>) {
        self.labels.extend(lexicon::labels(slot.name));
        self.labels.extend(slot.name.split('_'));
    }

    fn names(&self, word: &str) -> bool {
        self.tools.iter().any(|tool| tool.has_thing(word) || tool.lists(word) || tool.does(word) || tool.makes(word))
    }

    fn is_thing(&self, word: &str) -> bool {
        self.tools.iter().any(|tool| tool.has_thing(word) || tool.lists(word) || tool.makes(word))
    }

    fn lists(&self, word: &str) -> bool {
        self.tools.iter().any(|tool| tool.lists(word) || (tool.does("list") && tool.has_thing(word)))
    }
}

/// Assigns roles to the remaining tokens of a clause after its steps are built.
pub(super) fn assign_roles(clause: &mut Clause, facts: &ClauseFacts<'_>) {
    for at in (0..clause.tokens.len()).rev() {
        if !clause.is_used(at)
            && let Some(becomes) = role(clause, facts, at)
        {
            clause.take(at, becomes);
        }
    }
    // A repeated word is a typo, or says something that a plan can't express.
    let twice = |at: &usize| {
        let word = clause.tokens[*at].word();
        let is_free = clause.uses[*at] != Some(TokenRole::Value) || clause.uses[at + 1] != Some(TokenRole::Value);
        word.is_some() && word == clause.tokens[at + 1].word() && is_free
    };
    let doubled: Vec<usize> = (0..clause.tokens.len().saturating_sub(1)).filter(twice).collect();
    doubled.into_iter().for_each(|at| clause.uses[at] = None);
}

/// The role of an unused token.
fn role(clause: &Clause, facts: &ClauseFacts<'_>, at: usize) -> Option<TokenRole> {
    let token = &clause.tokens[at];
    if token.is_mark() || token.kind == TokenKind::Sign {
        return function_word::mark(clause, at).then_some(TokenRole::Form);
    }
    let word = token.word()?;
    if clause.verb == Some(at) {
        return function_word::is_whole_verb(clause, word).then_some(TokenRole::Act);
    }
    // A repeated word is a typo, or says something that a plan can't express.
    if lexicon::is_condition(word) || clause.tokens.get(at + 1).is_some_and(|next| next.is(word)) {
        return None;
    }
    let noun = || noun_role(clause, facts, at, word);
    function_word_role(clause, facts, at, word).or_else(noun)
}

/// Function words, each only where it can mean nothing else.
fn function_word_role(clause: &Clause, facts: &ClauseFacts<'_>, at: usize, word: &str) -> Option<TokenRole> {
    let next = next_token(clause, at);
    let before = at.checked_sub(1);
    let possessive = lexicon::is_possessive(word);
    let form = function_word::is_opening(clause, at)
        || function_word::courtesy(clause, at, word)
        || function_word::particle(clause, at, word)
        || function_word::conjunction(clause, at, word)
        || function_word::receiver(clause, at, word)
        || function_word::ending(clause, at, word)
        || (!possessive && function_word::determiner(clause, at, word, &|thing| facts.lists(thing)))
        || (lexicon::is_preposition(word)
            && function_word::may_follow(clause, at, word)
            && next.is_some_and(|next| leads_to(clause, facts, at, next)));
    if form {
        return Some(TokenRole::Form);
    }
    if possessive {
        // `my drive` is where the tool looks anyway; `my issues` would be a subset.
        let own = next.is_some_and(|next| match clause.uses[next] {
            Some(TokenRole::Value | TokenRole::Reference) => true,
            Some(TokenRole::Thing) => !clause.tokens[next].word().is_some_and(|word| facts.lists(word)),
            _ => false,
        });
        let theirs = matches!(word, "its" | "their") && next.is_some_and(|next| clause.is_used(next));
        return (own || theirs).then_some(TokenRole::Reference);
    }
    // `what it says` is the step's output.
    let says = facts.wired && lexicon::is_content_question(word);
    let asks = |ahead: usize, words: &[&str]| {
        clause.tokens.get(at + ahead).and_then(GoalToken::word).is_some_and(|word| words.contains(&word))
    };
    let question =
        (word == "what" && asks(1, &["it", "they"])) || (says && before.is_some_and(|at| clause.tokens[at].is("it")));
    (question && facts.wired).then_some(TokenRole::Reference)
}

/// Whether a preposition may lead to the used token behind it. Prepositions before values were checked when the value
/// was taken.
fn leads_to(clause: &Clause, facts: &ClauseFacts<'_>, from: usize, next: usize) -> bool {
    let word = clause.tokens[from].word().unwrap_or_default();
    let behind_verb = from.checked_sub(1).is_some_and(|before| clause.verb == Some(before));
    let before = from.checked_sub(1).filter(|_| !behind_verb);
    let before = before.and_then(|before| clause.tokens[before].word()).unwrap_or_default();
    let part = !before.is_empty() && !facts.names(before);
    let small = |at: &usize| {
        clause.uses[*at] == Some(TokenRole::Form) && clause.tokens[*at].word().is_some_and(lexicon::is_determiner)
    };
    let Some(at) = (next..clause.tokens.len()).find(|at| !small(at)) else { return clause.is_used(next) };
    if !function_word::may_follow_verb(clause, from, at) || function_word::splits_name(clause, from, at) {
        return false;
    }
    // `of the open issues` refers to the issues.
    let chosen = |at: &usize| clause.uses[*at] != Some(TokenRole::Choice);
    let noun = |at: &usize| matches!(clause.uses[*at], Some(TokenRole::Thing | TokenRole::Reference));
    let thing = (at..clause.tokens.len()).find(chosen).filter(noun).unwrap_or(at);
    // `Drive files` are files.
    let named = |at: &usize| clause.uses[*at] == Some(TokenRole::Thing);
    let thing = (thing..clause.tokens.len()).take_while(named).last().unwrap_or(thing);
    let next = clause.uses.get(thing + 1).copied().flatten();
    match clause.uses[thing] {
        None => false,
        Some(TokenRole::Thing) if next != Some(TokenRole::Value) || lexicon::is_outcome(&clause.tokens[thing].text) => {
            let thing = clause.tokens[thing].word();
            thing.is_none_or(|thing| preposition::names(word, thing, &facts.tools, part))
        }
        Some(TokenRole::Label)
            if !matches!(next, Some(TokenRole::Value | TokenRole::Label | TokenRole::Reference | TokenRole::Form)) =>
        {
            preposition::fills(word)
        }
        Some(TokenRole::Reference) => match clause.tokens[thing].word() {
            Some(thing) if facts.lists(thing) => preposition::names(word, thing, &facts.tools, part),
            // `a summary with it` is not one of it.
            _ => preposition::refers(word) && !(word == "with" && lexicon::is_outcome(before)),
        },
        // `look with pages` does not say which ones.
        Some(TokenRole::Choice) => preposition::chooses(word) && !(word == "with" && behind_verb),
        Some(TokenRole::Act) => false,
        // `with the subject "x"`, and not `from since`.
        Some(TokenRole::Label) => clause.tokens[thing].word().is_none_or(|label| {
            let leads = lexicon::is_preposition(label) && next == Some(TokenRole::Value);
            !leads && label != "assign" && !label.ends_with("ed") && !label.ends_with("ing")
        }),
        Some(TokenRole::Form) => clause.tokens[thing].word().is_some_and(lexicon::describes),
        Some(_) => true,
    }
}

/// Nouns that name what a tool is about, an input, or the content to hand on.
fn noun_role(clause: &Clause, facts: &ClauseFacts<'_>, at: usize, word: &str) -> Option<TokenRole> {
    let next = clause.tokens.get(at + 1).filter(|_| clause.is_used(at + 1));
    let value = |place: usize| {
        matches!(clause.uses.get(place), Some(Some(TokenRole::Value | TokenRole::Choice | TokenRole::Reference)))
    };
    // `the reports bucket`, `high importance`; a label that announces a text stands in front of it.
    let announces = word.ends_with("ed") || word.ends_with("ing") || lexicon::announces_text(word);
    let beside = value(at + 1) || (!announces && at.checked_sub(1).is_some_and(value));
    // A word that selects a subset does not name the whole list.
    if qualifier::is_kind(word) && !facts.tools.iter().any(|tool| tool.does("create")) {
        return None;
    }
    if facts.names(word) {
        // `the upload`, `a POST request`: a verb counts as a noun only behind a word that makes it one.
        let act = !facts.is_thing(word);
        return (!act || function_word::is_attributed(clause, at)).then_some(TokenRole::Thing);
    }
    // `that` announces speech only where the speech begins.
    if word == "that" && !matches!(clause.tokens.get(at + 1).map(|next| &next.kind), Some(TokenKind::Text)) {
        return (facts.carried && function_word::is_object(clause, at)).then_some(TokenRole::Reference);
    }
    let led = at.checked_sub(1).and_then(|before| clause.tokens[before].word());
    let led = led.is_some_and(|word| lexicon::is_determiner(word) || lexicon::is_preposition(word));
    let with = clause.tokens.get(at + 1).is_some_and(|next| next.is("with"));
    let labels = !lexicon::is_preposition(word)
        && facts.labels.iter().any(|label| {
            // `read` is not the `reading` of `reading "x"`.
            *label == word || (stem(label) == stem(word) && !lexicon::is_act(word))
        });
    if labels && (beside || (facts.wired && led && !with)) {
        return Some(TokenRole::Label);
    }
    // `create a repository acme/web` asks for something other than an issue in it.
    if lexicon::is_thing(word) && object_of_verb(clause, at) {
        return None;
    }
    // `the blog post https://…`, `the text "…"`.
    let apposed = next.is_some_and(|next| lexicon::apposes(word, &next.kind) && value(at + 1))
        || next.and_then(GoalToken::word).is_some_and(|next| {
            lexicon::apposes(word, &TokenKind::Url)
                && lexicon::apposes(next, &TokenKind::Url)
                && value_follows(clause, at + 1)
        });
    if apposed {
        return Some(TokenRole::Form);
    }
    let pointed = match word {
        "this" | "these" | "that" | "those" | "following" | "everything" => {
            let sought = facts.tools.iter().any(|tool| tool.does("search")) && !facts.wired && !facts.given;
            facts.carried && !sought
        }
        _ => lexicon::is_pronoun(word) && (facts.wired || facts.given),
    };
    if pointed && function_word::is_object(clause, at) {
        return Some(TokenRole::Reference);
    }
    let definite =
        at.checked_sub(1).is_some_and(|before| clause.tokens[before].is("the") || clause.tokens[before].is("this"));
    let mailed = lexicon::thing(word) == lexicon::thing("mail") && facts.labels.contains(&"subject");
    let is_sent = mailed || (lexicon::is_message_noun(word) && facts.tools.iter().any(|tool| tool.hands_on()));
    let handed = lexicon::is_document(word) && definite && facts.given && object_of_verb(clause, at);
    (is_sent || handed).then_some(TokenRole::Reference)
}

/// Whether only articles stand between the verb and this noun.
fn object_of_verb(clause: &Clause, at: usize) -> bool {
    let Some(verb) = clause.verb.filter(|verb| *verb < at) else { return false };
    clause.tokens[verb + 1..at].iter().all(|token| {
        token.word().is_some_and(|word| lexicon::is_determiner(word) || matches!(word, "up" | "me" | "us"))
    })
}

/// Whether only descriptive nouns stand between here and a value.
fn value_follows(clause: &Clause, at: usize) -> bool {
    let value = |token: &GoalToken| token.is_entity();
    (at..clause.tokens.len()).find(|place| clause.tokens[*place].word().is_none()).is_some_and(|place| {
        value(&clause.tokens[place]) && clause.is_used(place) && (at..place).all(|place| clause.is_used(place))
    })
}

/// The next token, past a colon.
fn next_token(clause: &Clause, at: usize) -> Option<usize> {
    let next = (at + 1..clause.tokens.len()).find(|next| clause.tokens[*next].kind != TokenKind::Mark(':'))?;
    (!clause.tokens[next].is_mark()).then_some(next)
}

/// The error that names the unused tokens of a clause, if any.
pub(super) fn unused_error(goal: &str, clause: &Clause) -> Option<PlanError> {
    named(goal, clause, |_| true)
}

/// The error that names the unknown words of a clause, if any. Tokens that a step could have used are not unknown.
pub(super) fn unknown_words_error(goal: &str, clause: &Clause) -> Option<PlanError> {
    let known = |word: &str| {
        lexicon::is_preposition(word)
            || lexicon::is_determiner(word)
            || lexicon::is_generic(word)
            || lexicon::is_label(word)
            || lexicon::describes(word)
    };
    named(goal, clause, |token| token.word().is_some_and(|word| !known(word)))
}

fn named(goal: &str, clause: &Clause, counts: impl Fn(&GoalToken) -> bool) -> Option<PlanError> {
    let mut spans: Vec<(usize, usize)> = Vec::new();
    let mut last = None;
    for (at, token) in clause.unused().filter(|(_, token)| counts(token)) {
        match spans.last_mut() {
            Some(span) if at > 0 && last == Some(at - 1) && token.start >= span.1 => span.1 = token.end,
            _ => spans.push((token.start, token.end)),
        }
        last = Some(at);
    }
    let texts: Vec<&str> = spans.iter().filter_map(|(start, end)| goal.get(*start..*end)).collect();
    (!texts.is_empty()).then(|| PlanError::Unplaced { text: excerpt(&texts.join(" … ")) })
}

/// Adds the stray tokens between clauses to an error: they may be the reason that something is missing.
pub(super) fn with_stray(goal: &str, error: PlanError, stray: &[GoalToken]) -> PlanError {
    let texts: Vec<&str> = stray.iter().filter_map(|token| goal.get(token.start..token.end)).collect();
    let stray = texts.join(" … ");
    match error {
        error if texts.is_empty() => error,
        PlanError::Unplaced { text } => PlanError::Unplaced { text: excerpt(&format!("{text} … {stray}")) },
        PlanError::NoTool { wanted } => PlanError::Unplaced { text: excerpt(&format!("{stray} … {wanted}")) },
        PlanError::MissingInput { .. } | PlanError::Ambiguous { .. } => PlanError::Unplaced { text: excerpt(&stray) },
        other => other,
    }
}

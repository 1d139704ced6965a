//! Chooses the tool that a clause means.
//!
//! The verb must match an act of the tool, and the clause must mention what the tool is about, by a word or by a
//! value of that shape (an e-mail address, a channel). A word scores higher than a shape. A tie is an error, never a
//! guess.

use super::clause::Clause;
use super::lexicon::{self, stem};
use super::token::{GoalToken, TokenKind};
use chimera_core::act::{PlanError, excerpt};
use chimera_core::limits;
use chimera_core::tool::{EffectKind, Spec};
use std::collections::BTreeSet;
use std::sync::Arc;

const ACT: i32 = 4;
const SAME_ACT: i32 = 1;
const NAMED: i32 = 4;
const LOOKS_LIKE: i32 = 2;
const UNNAMED: i32 = -1;
const HOUSE: i32 = 2;
const DESCRIBED_MAX: i32 = 2;

/// A tool and the words that name it.
pub(super) struct ToolProfile {
    pub(super) spec: Arc<Spec>,
    acts: BTreeSet<String>,
    things: BTreeSet<String>,
    house: Option<String>,
    described: BTreeSet<String>,
    /// Nouns for the items of the lists it returns.
    items: BTreeSet<String>,
    /// Fields of each item.
    members: BTreeSet<String>,
}

impl ToolProfile {
    pub(super) fn of(spec: &Arc<Spec>) -> Self {
        let parts: Vec<&str> = spec.name.split(['.', '_', '-']).filter(|part| !part.is_empty()).collect();
        let mut acts: BTreeSet<String> =
            parts.iter().filter(|part| lexicon::names_act(part)).map(|part| stem(part)).collect();
        if parts.contains(&"to") {
            acts.insert(stem("convert"));
        }
        if acts.is_empty() {
            acts.extend(parts.last().map(|part| stem(part)));
        }
        // `local` is not something that people name.
        let named = parts.iter().filter(|part| !matches!(**part, "local" | "to") && !acts.contains(&stem(part)));
        let things: BTreeSet<String> = named.map(|part| lexicon::thing(part)).collect();
        let house = spec.name.split_once('.').map(|(house, _)| lexicon::thing(house)).filter(|h| things.contains(h));
        let words = spec.description.split(|c: char| !c.is_alphanumeric());
        let described = words.filter(|word| word.len() > 3).map(lexicon::thing).collect();
        let outputs = spec.output.document()["properties"].as_object().into_iter().flatten();
        let lists = outputs.filter(|(_, schema)| schema["items"]["type"] == "object");
        let (mut items, mut members) = (BTreeSet::new(), BTreeSet::new());
        for (name, schema) in lists {
            items.insert(stem(name));
            members.extend(schema["items"]["properties"].as_object().into_iter().flatten().map(|(name, _)| stem(name)));
        }
        Self { spec: Arc::clone(spec), acts, things, house, described, items, members }
    }

    /// Nouns for what it is about and for the items it lists.
    pub(super) fn items(&self) -> BTreeSet<String> {
        self.things.union(&self.items).cloned().chain([stem("result"), stem("item")]).collect()
    }

    /// Whether a noun names a field of the items it lists.
    pub(super) fn tells_of_items(&self, word: &str) -> bool {
        self.members.contains(&stem(word))
    }

    /// Whether a noun names the items it lists.
    pub(super) fn lists(&self, word: &str) -> bool {
        self.items.contains(&stem(word))
    }

    pub(super) fn does(&self, act: &str) -> bool {
        self.acts.contains(&stem(act))
    }

    /// Whether its name contains exactly this word.
    pub(super) fn spells(&self, word: &str) -> bool {
        self.spec.name.split(['.', '_', '-']).any(|part| part == word)
    }

    pub(super) fn has_thing(&self, word: &str) -> bool {
        self.things.contains(&lexicon::thing(word))
    }

    /// Whether it has a mode without side effects.
    pub(super) fn can_ask(&self) -> bool {
        self.spec.effect != EffectKind::Write || self.spec.reads_when.is_some()
    }

    /// Whether a noun names what it produces: a summary, a PDF.
    pub(super) fn makes(&self, word: &str) -> bool {
        let made = match lexicon::nominal(word) {
            Some(act) => self.does(act),
            None => self.does("convert") && lexicon::thing(word) == lexicon::thing("pdf") && self.has_thing(word),
        };
        made && self.can_ask()
    }

    /// Whether it delivers content to somebody.
    pub(super) fn hands_on(&self) -> bool {
        self.does("send") || self.does("post") || self.does("upload")
    }
}

/// What a clause mentions.
struct ClauseMentions {
    words: BTreeSet<String>,
    looks: BTreeSet<String>,
}

impl ClauseMentions {
    fn of(clause: &Clause) -> Self {
        let words = clause.words().map(|(_, word)| lexicon::thing(word)).collect();
        let looks = clause.unused().flat_map(|(_, token)| looks_like(token)).map(lexicon::thing).collect();
        Self { words, looks }
    }

    /// The score for the tool's nouns, and whether any is mentioned.
    fn things(&self, tool: &ToolProfile) -> (i32, bool) {
        let mut score = 0;
        let mut any = tool.things.is_empty();
        for thing in &tool.things {
            let points = if self.words.contains(thing) {
                NAMED + if tool.house.as_ref() == Some(thing) { HOUSE } else { 0 }
            } else if self.looks.contains(thing) {
                // A web address is more often a source.
                if thing == "http" { LOOKS_LIKE - 1 } else { LOOKS_LIKE }
            } else {
                UNNAMED
            };
            any |= points > 0;
            score += points;
        }
        let described = tool.described.intersection(&self.words).count();
        (score + i32::try_from(described).unwrap_or(DESCRIBED_MAX).min(DESCRIBED_MAX), any)
    }
}

/// What the shape of a token suggests.
fn looks_like(token: &GoalToken) -> Vec<&'static str> {
    match token.kind {
        TokenKind::Email => vec!["email"],
        TokenKind::Channel => vec!["slack"],
        TokenKind::Object => vec!["s3"],
        TokenKind::Url if token.repo().is_some() => vec!["http", "github", "repo"],
        TokenKind::Name if token.repo().is_some() => vec!["github", "repo"],
        TokenKind::Url => vec!["http"],
        TokenKind::Secret if token.text.starts_with("secret://webhook") => vec!["webhook"],
        _ => Vec::new(),
    }
}

/// The index of the tool that a clause means.
pub(super) fn choose(tools: &[ToolProfile], goal: &str, clause: &Clause) -> Result<usize, PlanError> {
    let no_tool = || PlanError::NoTool { wanted: wanted(goal, clause) };
    let verb = clause.verb_word().ok_or_else(no_tool)?;
    let evidence = ClauseMentions::of(clause);
    let mut acts: BTreeSet<String> = lexicon::acts(verb).into_iter().map(stem).collect();
    acts.insert(stem(verb));
    let mut fitting: Vec<(i32, usize)> = Vec::new();
    let mut others: Vec<usize> = Vec::new();
    for (at, tool) in tools.iter().enumerate().filter(|(_, tool)| !tool.acts.is_disjoint(&acts)) {
        let (things, any) = evidence.things(tool);
        let same = if tool.does(verb) { SAME_ACT } else { 0 };
        if any {
            fitting.push((ACT + same + things, at));
        } else if !tool.does("request") {
            others.push(at);
        }
    }
    let names = |all: &[usize]| {
        let mut tools: Vec<String> = all.iter().map(|at| tools[*at].spec.name.clone()).collect();
        tools.sort_unstable();
        PlanError::Ambiguous { tools }
    };
    if let Some(best) = fitting.iter().map(|(score, _)| *score).max() {
        let best: Vec<usize> = fitting.iter().filter(|(score, _)| *score == best).map(|(_, at)| *at).collect();
        return if let [only] = best[..] { Ok(only) } else { Err(names(&best)) };
    }
    let makes = ["read", "list", "create", "convert"].iter().any(|act| acts.contains(&stem(act)));
    let maker =
        |(_, word): (usize, &str)| lexicon::is_outcome(word).then(|| tools.iter().position(|tool| tool.makes(word)))?;
    if let Some(maker) = clause.words().find_map(maker).filter(|_| makes) {
        return Ok(maker);
    }
    let open = lexicon::acts(verb).contains(&"search") || object(clause).is_none_or(lexicon::is_generic);
    match others[..] {
        [] => Err(no_tool()),
        _ if !open => Err(no_tool()),
        [only] => Ok(only),
        _ => Err(names(&others)),
    }
}

/// The first noun after the verb.
fn object(clause: &Clause) -> Option<&str> {
    let verb = clause.verb?;
    let words = clause.tokens[verb + 1..].iter().take_while(|token| !token.is_entity()).filter_map(GoalToken::word);
    let pronoun_last = |word: &&str| !lexicon::is_determiner(word) || lexicon::is_pronoun(word);
    let mut words = words.filter(pronoun_last).filter(|word| !lexicon::is_filler(word) || lexicon::is_pronoun(word));
    let first = words.next()?;
    // `this report`: the pronoun points at a noun.
    let second = words.next().filter(|_| lexicon::is_determiner(first));
    Some(second.filter(|word| !lexicon::is_preposition(word)).unwrap_or(first))
}

/// The tool that produces what a clause mentions without asking for it: `the open issues of acme/web` as content for
/// a post.
pub(super) fn producer(tools: &[ToolProfile], clause: &Clause, besides: &[usize]) -> Option<usize> {
    let evidence = ClauseMentions::of(clause);
    let fit = |(at, tool): (usize, &ToolProfile)| {
        let (score, any) = evidence.things(tool);
        // A search must be named explicitly; a text alone may be meant for anything.
        let asked = !tool.does("search") || tool.things.iter().any(|thing| evidence.words.contains(thing));
        let able = any && tool.can_ask() && !tool.things.is_empty() && !besides.contains(&at) && asked;
        able.then_some((score, at))
    };
    let fitting: Vec<(i32, usize)> = tools.iter().enumerate().filter_map(fit).collect();
    let best = fitting.iter().map(|(score, _)| *score).max()?;
    let mut best = fitting.into_iter().filter(|(score, _)| *score == best).map(|(_, at)| at);
    best.next().filter(|_| best.next().is_none())
}

/// The verb and its object, quoted from the goal.
fn wanted(goal: &str, clause: &Clause) -> String {
    let from = clause.verb.unwrap_or(0);
    let words = clause.tokens[from..].iter().take_while(|token| !token.is_mark());
    let mut taken: Vec<&GoalToken> = Vec::new();
    for token in words.take(limits::GOAL_QUOTE_WORDS_MAX) {
        let preposition = token.word().is_some_and(lexicon::is_preposition);
        let said = taken.len() > 1 && taken.iter().any(|token| !token.word().is_some_and(lexicon::is_filler));
        let is_given = said && taken.last().is_some_and(|last| !last.word().is_some_and(lexicon::is_pronoun));
        let number = matches!(token.kind, TokenKind::Number(_));
        if !taken.is_empty() && ((preposition && is_given) || (token.is_entity() && !number)) {
            break;
        }
        taken.push(token);
    }
    let (Some(first), Some(last)) = (taken.first(), taken.last()) else { return "do that".to_owned() };
    let text = goal.get(first.start..last.end).unwrap_or_default();
    let mut letters = text.chars();
    let lower: String = letters.next().into_iter().flat_map(char::to_lowercase).chain(letters).collect();
    excerpt(&lower)
}

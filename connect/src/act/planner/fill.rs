//! Fills a tool's inputs from the words of a clause: values recognized by shape, numbers, enum values, quoted texts.
//!
//! A token fills at most one input, and leftovers are reported. The preposition in front of a value decides which
//! input may take it: `to #a` is a channel to post to, `from #a` is not.

use super::choose::ToolProfile;
use super::clause::{Clause, Governor, TokenRole};
use super::label::{SOUGHT, fill_labelled, fill_search_text};
use super::lexicon::{self, stem};
use super::preposition;
use super::slot::{Slot, SlotKind};
use super::token::{GoalToken, TokenKind};
use chimera_core::tool::EffectKind;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Words around a number that make it a limit.
const LIMITS: &[&str] = &["top", "at", "most", "up", "to", "limit", "only"];
/// The phrases in which they stand before a number.
const LIMITING: &[&str] = &[
    "top",
    "at most",
    "up to",
    "limit",
    "limit to",
    "only",
    "only the",
    "latest",
    "last",
    "newest",
    "recent",
    "most recent",
    "only at most",
    "only latest",
    "only last",
    "only newest",
];
/// Words around a number that make it a maximum.
const AT_MOST: &[&str] = &["at", "most", "up", "to", "only"];
/// Words before a number that make it inexact.
const APART: &[&str] = &["over", "under", "about", "around", "above", "below", "between", "than", "least"];
/// Words around a number that count from the newest item.
const NEWEST: &[&str] = &["latest", "last", "newest", "recent", "most"];
/// Those of them that need no other.
const RANKING: &[&str] = &["latest", "last", "newest", "recent"];
/// Words that introduce a name.
const NAMING: &[&str] = &["named", "called", "titled"];

/// A tool call under construction.
pub(super) struct CallBuilder<'a> {
    pub(super) goal: &'a str,
    pub(super) slots: Vec<Slot<'a>>,
    pub(super) input: Map<String, Value>,
    /// Inputs wired to an output of an earlier step; all others are literals.
    pub(super) wired: BTreeSet<String>,
    pub(super) tool: &'a ToolProfile,
    pub(super) searches: bool,
    pub(super) tells: bool,
    /// The call may only read.
    pub(super) asks: bool,
    /// Inputs whose default value the words name.
    pub(super) settled: BTreeSet<&'a str>,
    /// Positions of the words of an unquoted text.
    pub(super) run_places: Vec<usize>,
    /// Positions of values, and the inputs that hold them.
    pub(super) held: Vec<(usize, &'a str)>,
    /// Inputs that were denied a value because of the preposition in front of it, with the words.
    pub(super) withheld: Vec<(String, String)>,
}

impl<'a> CallBuilder<'a> {
    pub(super) fn open(&self) -> impl Iterator<Item = &Slot<'a>> {
        self.slots.iter().filter(|slot| !self.input.contains_key(slot.name))
    }

    pub(super) fn put(&mut self, name: &str, value: Value) {
        self.input.insert(name.to_owned(), value);
    }

    /// Uses a token as the value, or part of the value, of an input.
    pub(super) fn hold(&mut self, clause: &mut Clause, place: usize, name: &str) {
        clause.take(place, TokenRole::Value);
        self.held.extend(self.slots.iter().find(|slot| slot.name == name).map(|slot| (place, slot.name)));
    }

    /// Whether the preposition in front of a value allows it for an input.
    pub(super) fn may_hold(&self, name: &str, clause: &Clause, at: usize) -> bool {
        match clause.governor(at) {
            Governor::Preposition(word) => {
                let slot = self.slots.iter().find(|slot| slot.name == name);
                slot.is_none_or(|slot| preposition::introduces(word, slot, self.tool, self.changes()))
            }
            Governor::Word(_) | Governor::None => true,
        }
    }

    /// Records that the preposition in front of a value rules it out for an input.
    fn withhold(&mut self, name: &str, clause: &Clause, at: usize) {
        let led = |place: &usize| clause.tokens[*place].word().is_some_and(lexicon::is_preposition);
        let text =
            (0..at).rev().find(led).and_then(|from| self.goal.get(clause.tokens[from].start..clause.tokens[at].end));
        self.withheld.extend(text.map(|text| (name.to_owned(), text.to_owned())));
    }

    /// Words in front of a value that don't fit the input it went to: `from bucket scratch`.
    pub(super) fn misleading_words(&self, clause: &Clause) -> Option<String> {
        // An unquoted text may contain any word.
        let begins = |(at, name): &&(usize, &'a str)| {
            !at.checked_sub(1).is_some_and(|before| self.held.contains(&(before, *name)))
        };
        let mut slots = self.held.iter().filter(begins).filter_map(|(at, name)| {
            let slot = self.slots.iter().find(|slot| slot.name == *name)?;
            let from = preposition::misplaced(clause, *at, slot, self.tool, self.changes())?;
            self.goal.get(clause.tokens[from].start..clause.tokens[*at].end)
        });
        slots.next().map(str::to_owned)
    }

    /// The input that says how something is called, if there is a body and nobody said how to send it. What only asks
    /// carries none.
    pub(super) fn lacks_method(&self) -> Option<&'static str> {
        let reads = self.tool.spec.reads_when.as_ref()?;
        let carries = ["json", "body", "data"].iter().any(|name| self.input.contains_key(*name));
        (carries && self.has(reads.member) && !self.input.contains_key(reads.member)).then_some(reads.member)
    }

    /// Whether the call changes something, as far as is known.
    fn changes(&self) -> bool {
        let spec = &self.tool.spec;
        let asks = spec.reads_when.as_ref().is_some_and(|reads| {
            let said = self.input.get(reads.member).and_then(Value::as_str);
            said.is_none_or(|said| reads.values.contains(&said))
        });
        spec.effect == EffectKind::Write && !asks && !self.asks
    }

    pub(super) fn wire(&mut self, name: &str, value: Value) {
        self.put(name, value);
        self.wired.insert(name.to_owned());
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.slots.iter().any(|slot| slot.name == name)
    }

    pub(super) fn is_content(&self, name: &str) -> bool {
        self.slots.iter().any(|slot| slot.name == name && slot.is_content())
    }

    fn takes(&self, name: &str) -> bool {
        self.has(name) && !self.input.contains_key(name)
    }

    /// Reads every value that the clause states.
    pub(super) fn read(&mut self, clause: &mut Clause) {
        fill_labelled(self, clause);
        self.fill_by_shape(clause);
        self.fill_enums(clause);
        self.fill_numbers(clause);
        fill_search_text(self, clause);
        self.fill_texts(clause);
    }

    fn fill_by_shape(&mut self, clause: &mut Clause) {
        for at in 0..clause.tokens.len() {
            if clause.is_used(at) {
                continue;
            }
            let token = clause.tokens[at].clone();
            if token.kind == TokenKind::Email {
                self.fill_recipients(clause);
                continue;
            }
            let repo = token.repo().filter(|_| self.takes("owner") && self.takes("repo"));
            let text = || Value::from(token.text.as_str());
            let taken: Vec<(&str, Value)> = match (&token.kind, repo) {
                (_, Some((owner, name))) => vec![("owner", owner.into()), ("repo", name.into())],
                (TokenKind::Channel, _) => vec![("channel_alias", text())],
                (TokenKind::Url, _) => vec![("url", text())],
                (TokenKind::Secret, _) => vec![("secret", text())],
                (TokenKind::Artifact, _) => vec![("artifact", text())],
                (TokenKind::Object, _) => object(&token.text),
                (TokenKind::Json(value), _) if self.takes("json") => vec![("json", value.clone())],
                (TokenKind::Json(value), _) => vec![("data", value.clone())],
                (TokenKind::Name, _) => vec![("key", text())],
                (TokenKind::Moment, _) if clause.governor(at) == Governor::Preposition("from") => {
                    vec![("since", text())]
                }
                (TokenKind::Id, _) => self.parent(clause, at).into_iter().map(|name| (name, text())).collect(),
                _ => Vec::new(),
            };
            let source = self.tells && matches!(clause.governor(at), Governor::Preposition("from" | "of" | "in"));
            let fits = |(name, _): &(&str, Value)| {
                self.takes(name) && self.may_hold(name, clause, at) && !(source && *name == "url")
            };
            let fits = taken.iter().all(fits);
            if !fits && let Some((name, _)) = taken.iter().find(|(name, _)| !self.may_hold(name, clause, at)) {
                self.withhold(name, clause, at);
            }
            if !taken.is_empty() && fits {
                for (name, value) in taken {
                    self.put(name, value);
                    self.hold(clause, at, name);
                }
            }
        }
    }

    /// All e-mail addresses without a label that something is sent to.
    fn fill_recipients(&mut self, clause: &mut Clause) {
        let Some(slot) = self.slots.iter().find(|slot| slot.name == "to").filter(|_| self.takes("to")) else { return };
        let sent_to = |(at, token): &(usize, &GoalToken)| {
            token.kind == TokenKind::Email && self.may_hold("to", clause, *at) && !is_otherwise_addressed(clause, *at)
        };
        let (places, texts): (Vec<usize>, Vec<String>) =
            clause.unused().filter(sent_to).map(|(at, token)| (at, token.text.clone())).unzip();
        let value = slot.list(texts);
        let kept = |(at, token): &(usize, &GoalToken)| token.kind == TokenKind::Email && !places.contains(at);
        if let Some(at) = clause.unused().find(kept).map(|(at, _)| at) {
            self.withhold("to", clause, at);
        }
        if let Some(value) = value {
            self.put("to", value);
            places.into_iter().for_each(|place| self.hold(clause, place, "to"));
        }
    }

    /// The input that an id belongs to: the one whose name contains a word in front of the id.
    fn parent(&self, clause: &Clause, at: usize) -> Option<&'a str> {
        let near: Vec<String> =
            clause.tokens[at.saturating_sub(4)..at].iter().rev().filter_map(GoalToken::word).map(stem).collect();
        let ids = || self.slots.iter().filter(|slot| slot.class == SlotKind::Id);
        near.iter()
            .find_map(|word| ids().find(|slot| slot.name.split('_').any(|part| stem(part) == *word && part != "id")))
            .map(|slot| slot.name)
    }

    fn fill_numbers(&mut self, clause: &mut Clause) {
        for at in 0..clause.tokens.len() {
            let TokenKind::Number(number) = clause.tokens[at].kind else { continue };
            let apart = |before: usize| clause.tokens[before].word().is_some_and(|word| APART.contains(&word));
            if clause.is_used(at) || at.checked_sub(1).is_some_and(apart) {
                continue;
            }
            let next = clause.tokens.get(at + 1).and_then(GoalToken::word).unwrap_or_default();
            let named = |slot: &&Slot<'_>| stem(slot.name) == stem(next) || lexicon::labels(slot.name).contains(&next);
            let counts = |slot: &&Slot<'a>| slot.class == SlotKind::Count;
            let counted = self.open().filter(counts).find(named).map(|slot| slot.name);
            let limit = || self.takes("limit").then(|| self.limit(clause, at)).flatten();
            let (name, places) = match counted {
                Some(name) => (name, around(clause, at, AT_MOST).into_iter().chain([at + 1]).collect()),
                None => match limit() {
                    Some(places) => ("limit", places),
                    None => continue,
                },
            };
            self.put(name, Value::from(number));
            self.hold(clause, at, name);
            places.into_iter().for_each(|place| clause.take(place, TokenRole::Label));
        }
    }

    /// The words that make a number a result limit: `at most 10 files`, `the latest 5 open issues`, but not `the last
    /// 7 days`.
    fn limit(&self, clause: &Clause, at: usize) -> Option<Vec<usize>> {
        let items = self.tool.items();
        let counted = |word: &str| {
            let named = items.contains(&stem(word)) || items.contains(&lexicon::thing(word));
            named && (self.tool.lists(word) || !lexicon::is_instrument(word))
        };
        let words = if self.searches { vec![LIMITS] } else { vec![LIMITS, NEWEST] };
        let places = around(clause, at, &words.concat());
        // `all 5 issues` says how many exist, not how many are wanted.
        let first = places.iter().copied().min().unwrap_or(at).min(at);
        if first.checked_sub(1).is_some_and(|before| clause.tokens[before].is("all")) {
            return None;
        }
        let end = places.iter().copied().filter(|place| *place > at).max().unwrap_or(at);
        let item = (end + 1..clause.tokens.len()).find(|place| clause.uses[*place] != Some(TokenRole::Choice));
        let counts = match item.and_then(|place| clause.tokens[place].word()) {
            Some(word) => counted(word),
            None => false,
        };
        let said = places.iter().any(|place| clause.tokens[*place].is("most") || clause.tokens[*place].is("limit"));
        let ends = item.is_none_or(|place| {
            clause.tokens[place]
                .word()
                .map_or(clause.tokens[place].is_mark(), |word| lexicon::is_preposition(word) || word == "and")
        });
        (counts || (said && ends)).then_some(places)
    }

    fn fill_enums(&mut self, clause: &mut Clause) {
        let open: Vec<Slot<'a>> = self.open().filter(|slot| slot.class == SlotKind::Choice).cloned().collect();
        for slot in open {
            let values: Vec<&Value> = slot.schema["enum"].as_array().into_iter().flatten().collect();
            let said = |value: &Value| -> Vec<usize> {
                let text = value.as_str().unwrap_or_default();
                // A blog post is not a POST: a method counts only in capitals, or as the verb.
                let loud = text.bytes().all(|b| b.is_ascii_uppercase());
                let means = |(at, word): &(usize, &str)| {
                    let meant = !loud || clause.verb == Some(*at) || clause.tokens[*at].text == text;
                    // `the names of` asks for names; it is no search mode.
                    meant
                        && !text.is_empty()
                        && !self.tool.tells_of_items(word)
                        && !lexicon::announces_text(word)
                        && !clause.tokens.get(at + 1).is_some_and(|next| next.is("since") || next.is("after"))
                        && (*word == text.to_lowercase() || (stem(word) == stem(text) && !word.ends_with("ed")))
                };
                clause.words().filter(means).map(|(at, _)| at).collect()
            };
            let mut found: Vec<(&Value, Vec<usize>)> =
                values.iter().map(|value| (*value, said(value))).filter(|(_, places)| !places.is_empty()).collect();
            // `all open issues` means the open ones; `open and closed` means all.
            if found.len() > 1 {
                found.retain(|(value, _)| *value != "all");
                let others = values.iter().filter(|value| **value != "all").count();
                if found.len() == others
                    && others > 1
                    && let Some(all) = values.iter().find(|value| **value == "all")
                {
                    let places = std::mem::take(&mut found).into_iter().flat_map(|(_, places)| places);
                    let places = places.chain(said(all)).collect();
                    found.push((*all, places));
                }
            }
            // `open or closed` is ambiguous; both words stay unused.
            if let [(value, places)] = &found[..] {
                if slot.schema.get("default") == Some(*value) {
                    self.settled.insert(slot.name);
                } else {
                    self.put(slot.name, (*value).clone());
                }
                let verb = clause.verb;
                places.iter().filter(|at| Some(**at) != verb).for_each(|at| clause.take(*at, TokenRole::Choice));
            }
        }
    }

    /// Quoted texts without a label fill required text inputs first, then content inputs.
    fn fill_texts(&mut self, clause: &mut Clause) {
        let writes = self.writes();
        let mut unlabelled = false;
        for at in 0..clause.tokens.len() {
            // An address right behind `post` or `send` is itself the content.
            let link = self.tells
                && clause.tokens[at].kind == TokenKind::Url
                && clause.verb.is_some_and(|verb| verb + 1 == at);
            if clause.is_used(at) || !(clause.tokens[at].kind == TokenKind::Text || link) || !self.is_told(clause, at) {
                continue;
            }
            let filled = self.slots.iter().any(|slot| slot.is_content() && self.input.contains_key(slot.name));
            let needed = self.open().find(|slot| slot.required && (slot.is_head() || slot.is_content()) && !link);
            let content = |slot: &&Slot<'_>| {
                slot.is_content() && matches!(slot.class, SlotKind::Text | SlotKind::Texts) && slot.name != "artifact"
            };
            let further = is_further(clause, at) || self.is_called(clause, at);
            let slot = needed.or_else(|| self.open().find(content).filter(|_| !filled && writes));
            let slot = slot.filter(|slot| !further || slot.is_head() && !is_further(clause, at));
            let Some((name, value)) = slot.map(|slot| (slot.name, slot.text(&clause.tokens[at].text))) else {
                continue;
            };
            // `"A" "c"`: nothing says what the second text is for.
            let bare = clause.governor(at) != Governor::Preposition("with");
            if unlabelled && bare {
                let text = self.goal.get(clause.tokens[at].start..clause.tokens[at].end).unwrap_or_default();
                self.withheld.push((name.to_owned(), text.to_owned()));
                continue;
            }
            unlabelled |= bare;
            self.put(name, value);
            self.hold(clause, at, name);
            self.use_announcing_word(clause, at);
        }
    }

    /// Whether an unlabelled quoted text is content for the tool, rather than the name or topic of something else.
    fn is_told(&self, clause: &Clause, at: usize) -> bool {
        match clause.governor(at) {
            Governor::Preposition(word) if self.searches => SOUGHT.contains(&word),
            Governor::Preposition(word) if self.tells => word == "with",
            // An issue from Ann does not say "Ann".
            Governor::Preposition("of" | "from") => !self.slots.iter().any(|slot| slot.required && slot.is_head()),
            Governor::Preposition(word) => word == "with",
            Governor::Word(word) if self.searches => {
                SOUGHT.contains(&word) || !lexicon::is_label(word) || self.by_name(word).is_some()
            }
            Governor::Word(word) => !lexicon::is_label(word),
            Governor::None => true,
        }
    }

    /// Whether a quoted text is the name of the noun right before it.
    fn is_called(&self, clause: &Clause, at: usize) -> bool {
        let before = at.checked_sub(1).filter(|before| clause.verb != Some(*before));
        let named = |before: usize| clause.tokens[before].word().is_some_and(|word| self.tool.has_thing(word));
        self.tool.does("create") && before.is_some_and(named)
    }

    /// The enum value that makes a search match names: `named "…"`.
    fn by_name(&self, word: &str) -> Option<&'a str> {
        let names = |slot: &&Slot<'a>| {
            slot.class == SlotKind::Choice
                && slot.schema["enum"].as_array().is_some_and(|all| all.contains(&"name".into()))
        };
        self.open().filter(|_| NAMING.contains(&word)).find(names).map(|slot| slot.name)
    }

    /// Uses the word that announces a search text.
    fn use_announcing_word(&mut self, clause: &mut Clause, at: usize) {
        let Some(before) = at.checked_sub(1).filter(|_| self.searches) else { return };
        let Some(word) = clause.tokens[before].word().map(str::to_owned) else { return };
        if let Some(choice) = self.by_name(&word) {
            self.put(choice, "name".into());
            clause.take(before, TokenRole::Label);
        } else if SOUGHT.contains(&word.as_str()) {
            clause.take(before, TokenRole::Label);
        }
    }

    /// Whether the call can have a body; GET has none.
    pub(super) fn writes(&self) -> bool {
        !self.asks && (!self.has("method") || self.input.get("method").is_some_and(|method| method != "GET"))
    }
}

/// Whether a quoted text is one more item of a list: `a page "A" and a page "B"`.
fn is_further(clause: &Clause, at: usize) -> bool {
    let is_text = |place: &usize| clause.tokens[*place].kind == TokenKind::Text && clause.is_used(*place);
    let Some(first) = (0..at).rev().find(is_text) else { return false };
    let joins = |token: &GoalToken| token.is("and") || token.kind == TokenKind::Mark(',');
    clause.tokens[first..at].iter().any(joins) && clause.governor(at) != Governor::Preposition("with")
}

/// Whether an e-mail address may belong to another label than `to`: a blind copy must not become a visible recipient.
fn is_otherwise_addressed(clause: &Clause, at: usize) -> bool {
    let labels =
        |token: &GoalToken| token.word().is_some_and(|word| matches!(word, "cc" | "bcc" | "reply" | "reply-to"));
    match clause.governor(at) {
        Governor::Preposition(_) => {
            let led = (0..at).rev().find(|place| clause.tokens[*place].word().is_some_and(lexicon::is_preposition));
            led.and_then(|led| led.checked_sub(1)).is_some_and(|before| labels(&clause.tokens[before]))
        }
        Governor::Word(_) | Governor::None => clause.tokens[..at].iter().any(labels),
    }
}

/// The positions of such words right before and behind a number.
fn around(clause: &Clause, at: usize, words: &[&str]) -> Vec<usize> {
    let is = |place: &usize| {
        !clause.is_used(*place)
            && clause.verb != Some(*place)
            && clause.tokens[*place].word().is_some_and(|word| words.contains(&word))
    };
    let front: Vec<usize> = (0..at).rev().take_while(is).collect();
    // The longest phrase right before it: `at most`, but not `up at`.
    let phrase = |length: &usize| {
        let words: Vec<&str> = (at - length..at).filter_map(|place| clause.tokens[place].word()).collect();
        LIMITING.contains(&words.join(" ").as_str())
    };
    let length = (1..=front.len()).rev().find(phrase).unwrap_or(0);
    let front = front.into_iter().take(length);
    let newest = |place: &usize| is(place) && clause.tokens[*place].word().is_some_and(|word| NEWEST.contains(&word));
    let ranked = front.clone().any(|place| clause.tokens[place].word().is_some_and(|word| RANKING.contains(&word)));
    let back: Vec<usize> = (at + 1..clause.tokens.len()).take_while(newest).collect();
    let said: Vec<&str> = back.iter().filter_map(|place| clause.tokens[*place].word()).collect();
    // `the latest 5 last issues` says it twice.
    let once = !ranked && matches!(said[..], ["latest" | "last" | "newest" | "recent"] | ["most", "recent"]);
    let back = back.into_iter().filter(|_| once);
    let mut places: Vec<usize> = front.chain(back).collect();
    // `to 5 files`, `at 5`: a preposition alone makes no limit.
    if places.iter().all(|place| clause.tokens[*place].word().is_some_and(lexicon::is_preposition)) {
        places.clear();
    }
    places
}

/// Splits `bucket/key`.
fn object(text: &str) -> Vec<(&'static str, Value)> {
    match text.split_once('/') {
        Some((bucket, key)) if !key.is_empty() => vec![("bucket", bucket.into()), ("key", key.into())],
        _ => vec![("bucket", text.trim_end_matches('/').into())],
    }
}

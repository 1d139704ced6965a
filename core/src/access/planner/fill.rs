//! Inputs from the words of a clause: values behind labels, things told by their look, numbers,
//! words of a choice, quoted texts.
//!
//! What is taken is marked as used, so that it can't be taken twice and what is left over shows.
//! A text without quotes is taken only where a label announces it.

use super::clause::Clause;
use super::lexicon::{self, stem};
use super::slot::{Class, Slot};
use super::token::{Kind, Token};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Places that a word without quotes may fill.
const BARE: &[&str] = &["bucket", "channel_alias", "labels", "assignee", "assignees", "event_type", "language"];
/// Words between a label and its value.
const BETWEEN: &[&str] = &["is", "of", "to", "the", "it", "with", "line", "a", "an", "being", "says", "that", "="];
/// Words before a number that say it is a limit.
const AT_MOST: &[&str] = &["first", "top", "latest", "last", "newest", "most", "limit", "recent", "only"];
/// Words that announce what is looked for, the surest first.
const SOUGHT: &[&str] = &["about", "containing", "matching", "mentioning", "for"];

/// A call in the making.
pub(super) struct Fill<'a> {
    pub(super) goal: &'a str,
    pub(super) slots: Vec<Slot<'a>>,
    pub(super) input: Map<String, Value>,
    /// Inputs that hold what an earlier step gives; all others are taken as they are.
    pub(super) wired: BTreeSet<String>,
    pub(super) searches: bool,
    pub(super) tells: bool,
    /// It may only ask.
    pub(super) asks: bool,
}

impl<'a> Fill<'a> {
    pub(super) fn open(&self) -> impl Iterator<Item = &Slot<'a>> {
        self.slots.iter().filter(|slot| !self.input.contains_key(slot.name))
    }

    pub(super) fn put(&mut self, name: &str, value: Value) {
        self.input.insert(name.to_owned(), value);
    }

    pub(super) fn wire(&mut self, name: &str, value: Value) {
        self.put(name, value);
        self.wired.insert(name.to_owned());
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.slots.iter().any(|slot| slot.name == name)
    }

    fn takes(&self, name: &str) -> bool {
        self.has(name) && !self.input.contains_key(name)
    }

    /// Everything that the clause itself says.
    pub(super) fn read(&mut self, clause: &mut Clause) {
        self.labelled(clause);
        self.looks(clause);
        self.numbers(clause);
        self.choices(clause);
        self.sought(clause);
        self.texts(clause);
    }

    fn labelled(&mut self, clause: &mut Clause) {
        let open: Vec<Slot<'a>> = self.open().cloned().collect();
        for slot in open {
            let labels = lexicon::labels(slot.name);
            for at in 0..clause.tokens.len() {
                let said = clause.tokens[at].word().is_some_and(|word| labels.contains(&word));
                if !said || clause.used[at] || clause.verb == Some(at) {
                    continue;
                }
                let taken = self.behind(&slot, clause, at).or_else(|| before(&slot, clause, at));
                if let Some((value, places)) = taken {
                    self.put(slot.name, value);
                    places.into_iter().chain([at]).for_each(|place| clause.used[place] = true);
                    break;
                }
            }
        }
    }

    /// The value behind a label, and the places it takes.
    fn behind(&self, slot: &Slot<'_>, clause: &Clause, at: usize) -> Option<(Value, Vec<usize>)> {
        let skips = |token: &Token| token.word().is_some_and(|w| BETWEEN.contains(&w)) || token.kind == Kind::Mark(':');
        let from = (at + 1..clause.tokens.len()).find(|next| !skips(&clause.tokens[*next]))?;
        let token = &clause.tokens[from];
        if clause.used[from] {
            return None;
        }
        let one = |value: Value| Some((value, vec![from]));
        let bare = BARE.contains(&slot.name) && token.word().is_some_and(|w| !lexicon::is_preposition(w));
        match (slot.class, &token.kind) {
            (Class::Address, Kind::Email) => several(slot, clause, from, &|t| t.kind == Kind::Email),
            (Class::Count, Kind::Number(number)) => one(Value::from(*number)),
            (Class::Texts, Kind::Text) => several(slot, clause, from, &|t| t.kind == Kind::Text),
            (Class::Texts, Kind::Word(_) | Kind::Handle) if bare || token.kind == Kind::Handle => {
                several(slot, clause, from, &|t| matches!(t.kind, Kind::Word(_) | Kind::Handle))
            }
            (Class::Text, Kind::Text) => one(Value::from(token.text.as_str())),
            (Class::Text, Kind::Name) if matches!(slot.name, "key" | "event_type" | "bucket") => {
                one(Value::from(token.text.as_str()))
            }
            (Class::Text, Kind::Moment) if slot.name == "since" => one(Value::from(token.text.as_str())),
            (Class::Text, Kind::Handle) if bare || slot.name == "assignee" => one(Value::from(token.text.as_str())),
            (Class::Text, Kind::Word(_)) if slot.name == "labels" => {
                several(slot, clause, from, &|t| t.word().is_some())
            }
            (Class::Text, Kind::Word(_)) if bare => one(Value::from(token.text.as_str())),
            (Class::Text, Kind::Word(_)) if slot.is_head() && !clause.tokens[at].is(slot.name) => {
                self.run(clause, from).map(|(text, places)| (Value::from(text), places))
            }
            (Class::Open, Kind::Json(value)) => one(value.clone()),
            _ => None,
        }
    }

    /// Words without quotes, up to a mark, a label, or a place such as `in Notion` or `to #ops`.
    fn run(&self, clause: &Clause, from: usize) -> Option<(String, Vec<usize>)> {
        let tokens = &clause.tokens;
        let ends = |at: usize| {
            let token = &tokens[at];
            let next = |ahead: usize| tokens.get(at + ahead);
            let placed = |t: &Token| {
                t.is_entity()
                    || t.word().is_some_and(|w| {
                        lexicon::is_thing(w) || matches!(w, "google" | "notion" | "github" | "outlook")
                    })
            };
            let place = token.word().is_some_and(lexicon::is_preposition)
                && (next(1).is_some_and(placed)
                    || (next(1).and_then(Token::word).is_some_and(lexicon::is_determiner)
                        && next(2).is_some_and(placed)));
            let label = token
                .word()
                .is_some_and(|w| w == "with" || w == "saying" || w == "labelled" || w == "cc" || w == "bcc");
            clause.used[at]
                || token.is_mark()
                || place
                || label
                || (token.is_entity() && !matches!(token.kind, Kind::Number(_) | Kind::Name))
        };
        let end = (from..tokens.len()).find(|at| ends(*at)).unwrap_or(tokens.len());
        if end <= from {
            return None;
        }
        let text = self.goal.get(tokens[from].start..tokens[end - 1].end)?;
        Some((text.to_owned(), (from..end).collect()))
    }

    fn looks(&mut self, clause: &mut Clause) {
        for at in 0..clause.tokens.len() {
            if clause.used[at] {
                continue;
            }
            let token = clause.tokens[at].clone();
            let repo = token.repo().filter(|_| self.takes("owner") && self.takes("repo"));
            let taken: Vec<(&str, Value)> = match (&token.kind, repo) {
                (_, Some((owner, name))) => vec![("owner", owner.into()), ("repo", name.into())],
                (Kind::Email, _) => {
                    let Some(slot) = self.slots.iter().find(|slot| slot.name == "to").cloned() else { continue };
                    if let Some((value, places)) =
                        (!self.input.contains_key("to")).then(|| everyone(&slot, clause)).flatten()
                    {
                        self.put("to", value);
                        places.into_iter().for_each(|place| clause.used[place] = true);
                    }
                    continue;
                }
                (Kind::Channel, _) => vec![("channel_alias", Value::from(token.text.as_str()))],
                (Kind::Url, _) => vec![("url", Value::from(token.text.as_str()))],
                (Kind::Secret, _) => vec![("secret", Value::from(token.text.as_str()))],
                (Kind::Artifact, _) => vec![("artifact", Value::from(token.text.as_str()))],
                (Kind::Object, _) => object(&token.text),
                (Kind::Json(value), _) if self.takes("json") => vec![("json", value.clone())],
                (Kind::Json(value), _) => vec![("data", value.clone())],
                (Kind::Name, _) => vec![("key", Value::from(token.text.as_str()))],
                (Kind::Moment, _) => vec![("since", Value::from(token.text.as_str()))],
                (Kind::Id, _) => self.parent(clause, at).into_iter().map(|n| (n, token.text.as_str().into())).collect(),
                _ => Vec::new(),
            };
            if !taken.is_empty() && taken.iter().all(|(name, _)| self.takes(name)) {
                taken.into_iter().for_each(|(name, value)| self.put(name, value));
                clause.used[at] = true;
            }
        }
    }

    /// The input that an id is meant for: the one whose name holds a word in front of it.
    fn parent(&self, clause: &Clause, at: usize) -> Option<&'a str> {
        let near: Vec<String> =
            clause.tokens[at.saturating_sub(4)..at].iter().rev().filter_map(Token::word).map(stem).collect();
        let ids = || self.slots.iter().filter(|slot| slot.class == Class::Id);
        near.iter()
            .find_map(|word| ids().find(|slot| slot.name.split('_').any(|part| stem(part) == *word && part != "id")))
            .map(|slot| slot.name)
    }

    fn numbers(&mut self, clause: &mut Clause) {
        for at in 0..clause.tokens.len() {
            let Kind::Number(number) = clause.tokens[at].kind else { continue };
            if clause.used[at] {
                continue;
            }
            let next = clause.tokens.get(at + 1).and_then(Token::word).unwrap_or_default().to_owned();
            let before = at.checked_sub(1).and_then(|at| clause.tokens[at].word()).unwrap_or_default();
            let counts = self.open().filter(|slot| slot.class == Class::Count);
            let named = |slot: &&Slot<'_>| {
                stem(slot.name) == stem(&next) || lexicon::labels(slot.name).contains(&next.as_str())
            };
            let counted: Vec<&Slot<'_>> = counts.collect();
            let limit =
                || counted.iter().find(|slot| slot.name == "limit" && (AT_MOST.contains(&before) || !next.is_empty()));
            if let Some(name) = counted.iter().copied().find(named).or_else(|| limit().copied()).map(|slot| slot.name) {
                let labelled = stem(name) == stem(&next) || lexicon::labels(name).contains(&next.as_str());
                self.put(name, Value::from(number));
                clause.used[at] = true;
                if labelled {
                    clause.used[at + 1] = true;
                }
            }
        }
    }

    fn choices(&mut self, clause: &Clause) {
        let open: Vec<Slot<'a>> = self.open().filter(|slot| slot.class == Class::Choice).cloned().collect();
        for slot in open {
            let default = slot.schema.get("default");
            let values = slot.schema["enum"].as_array().into_iter().flatten();
            let said = |value: &&Value| {
                let text = value.as_str().unwrap_or_default();
                // A blog post is not a POST: words in capitals count as such, or as the verb.
                let loud = text.bytes().all(|b| b.is_ascii_uppercase());
                let means = |(at, word): (usize, &str)| {
                    let meant = !loud || clause.verb == Some(at) || clause.tokens[at].text == text;
                    meant && (word == text.to_lowercase() || stem(word) == stem(text))
                };
                Some(*value) != default && !text.is_empty() && clause.words().any(means)
            };
            if let Some(value) = values.clone().find(said) {
                self.put(slot.name, value.clone());
            }
        }
    }

    /// What is looked for, without quotes.
    fn sought(&mut self, clause: &mut Clause) {
        let quoted = clause.unused().any(|(_, token)| token.kind == Kind::Text);
        let open = self.open().find(|slot| slot.required && slot.class == Class::Text).map(|slot| slot.name);
        let (true, false, Some(name)) = (self.searches, quoted, open) else { return };
        for label in SOUGHT {
            let at = clause.words().find(|(_, word)| word == label).map(|(at, _)| at + 1);
            let article = |at: &usize| clause.tokens.get(*at).and_then(Token::word).is_some_and(lexicon::is_determiner);
            let at = at.map(|at| at + usize::from(article(&at)));
            if let Some((text, places)) = at.and_then(|at| self.run(clause, at)) {
                self.put(name, Value::from(text));
                places.into_iter().for_each(|place| clause.used[place] = true);
                return;
            }
        }
        // `find our brand guidelines`: what is looked for stands behind the verb.
        let Some(from) = clause.verb.map(|verb| verb + 1) else { return };
        let small = |token: &Token| token.word().is_some_and(|w| lexicon::is_determiner(w) || lexicon::is_filler(w));
        let from = (from..clause.tokens.len()).find(|at| !small(&clause.tokens[*at])).unwrap_or(from);
        let Some((text, places)) = self.run(clause, from) else { return };
        let says = |place: &usize| {
            let word = clause.tokens[*place].word().unwrap_or_default();
            !lexicon::is_preposition(word) && !lexicon::is_generic(word) && !lexicon::is_thing(word) && word != "pages"
        };
        if places.iter().all(says) {
            self.put(name, Value::from(text));
            places.into_iter().for_each(|place| clause.used[place] = true);
        }
    }

    /// Quoted texts without a label go where a text is needed, then where one is handed on.
    fn texts(&mut self, clause: &mut Clause) {
        let writes = self.writes();
        for at in 0..clause.tokens.len() {
            // An address right behind `post` or `send` is itself what is told.
            let link =
                self.tells && clause.tokens[at].kind == Kind::Url && clause.verb.is_some_and(|verb| verb + 1 == at);
            if clause.used[at] || !(clause.tokens[at].kind == Kind::Text || link) {
                continue;
            }
            let filled = self.slots.iter().any(|slot| slot.is_content() && self.input.contains_key(slot.name));
            let needed = self.open().find(|slot| slot.required && (slot.is_head() || slot.is_content()) && !link);
            let content = |slot: &&Slot<'_>| {
                slot.is_content() && matches!(slot.class, Class::Text | Class::Texts) && slot.name != "artifact"
            };
            let slot = needed.or_else(|| self.open().find(content).filter(|_| !filled && writes));
            if let Some((name, value)) = slot.map(|slot| (slot.name, slot.text(&clause.tokens[at].text))) {
                self.put(name, value);
                clause.used[at] = true;
            }
        }
    }

    /// Whether the call has a body to give; asking with GET has none.
    pub(super) fn writes(&self) -> bool {
        !self.asks && (!self.has("method") || self.input.get("method").is_some_and(|method| method != "GET"))
    }
}

/// A value in front of its label: `the reports bucket`, `the ops channel`.
fn before(slot: &Slot<'_>, clause: &Clause, at: usize) -> Option<(Value, Vec<usize>)> {
    let place = at.checked_sub(1).filter(|_| matches!(slot.name, "bucket" | "channel_alias"))?;
    let token = &clause.tokens[place];
    let word = token.word().filter(|_| !clause.used[place])?;
    let small = lexicon::is_determiner(word) || lexicon::is_preposition(word) || lexicon::is_thing(word);
    (!small && lexicon::acts(word).is_empty()).then(|| (Value::from(token.text.as_str()), vec![place]))
}

/// Values with commas and `and` between them.
fn several(
    slot: &Slot<'_>,
    clause: &Clause,
    from: usize,
    fits: &dyn Fn(&Token) -> bool,
) -> Option<(Value, Vec<usize>)> {
    let mut places = vec![from];
    let mut at = from + 1;
    loop {
        let joins = |t: &Token| t.is("and") || t.kind == Kind::Mark(',');
        let next = (at..clause.tokens.len()).find(|next| !joins(&clause.tokens[*next]));
        match next {
            Some(next) if next > at && fits(&clause.tokens[next]) && !clause.used[next] => {
                if clause.tokens[next].word().is_some_and(lexicon::is_label) {
                    break;
                }
                places.push(next);
                at = next + 1;
            }
            _ => break,
        }
    }
    let values = places.iter().map(|place| clause.tokens[*place].text.clone()).collect();
    slot.list(values).map(|value| (value, places))
}

/// All addresses that no label has taken.
fn everyone(slot: &Slot<'_>, clause: &Clause) -> Option<(Value, Vec<usize>)> {
    let from = |at: usize| at > 0 && clause.tokens[at - 1].is("from");
    let (places, texts): (Vec<usize>, Vec<String>) = clause
        .unused()
        .filter(|(at, token)| token.kind == Kind::Email && !from(*at))
        .map(|(at, token)| (at, token.text.clone()))
        .unzip();
    slot.list(texts).map(|value| (value, places))
}

/// Bucket and key of `bucket/key`.
fn object(text: &str) -> Vec<(&'static str, Value)> {
    match text.split_once('/') {
        Some((bucket, key)) if !key.is_empty() => vec![("bucket", bucket.into()), ("key", key.into())],
        _ => vec![("bucket", text.trim_end_matches('/').into())],
    }
}

//! Which prepositions may stand before a value, before the name of a tool's thing, and before what
//! an earlier step gives.
//!
//! Each input has a closed list: `to #a` is a channel to post to, `from #a` is not, and `by 2
//! sentences` is not `to 2 sentences`. A word that is not on the list refuses the goal.

use super::choose::Profile;
use super::clause::{Clause, Use};
use super::lexicon;
use super::slot::{Class, Slot};
use super::token::{Kind, Token};
use chimera_core::tool::EffectKind;

/// Where something is put.
const TARGETS: &[&str] = &["to", "in", "into", "onto", "at", "on", "under", "inside", "within"];
/// Where something is looked for or read from.
const SOURCES: &[&str] = &["in", "of", "from", "for", "on", "at", "about", "within", "inside"];
/// What is given along.
const GIVEN: &[&str] = &["with", "as", "of"];
/// Words before a value that may be either of a tool's own inputs.
const PLAIN: &[&str] = &["with", "of", "as", "for", "in", "to", "on", "at", "about", "under", "into"];
/// Words before the name of what does it, or of what it is done to.
const NAMING: &[&str] = &["in", "on", "of", "for", "at", "about", "as", "within", "inside", "under"];
/// Words before what an earlier step gives.
const REFERRING: &[&str] = &["of", "with", "from", "in", "as", "about", "to", "into", "for", "on"];
/// Words before one of a few words.
const CHOOSING: &[&str] = &["with", "in", "on", "as", "of", "at", "to", "for", "about"];
/// Words before the name of an input that what is spoken of goes into: `the summary as the body`.
const FILLING: &[&str] = &["as", "in", "into", "to", "for", "under"];

/// Prepositions that may stand before a value of an input, when it changes something and when it only asks.
const PLACES: &[(&[&str], &[&str], &[&str])] = &[
    (&["to"], &["to", "at"], &["to", "at"]),
    (&["cc", "bcc"], &["to"], &["to"]),
    (&["reply_to"], &["to"], &["to"]),
    (&["mailbox"], &["from", "of"], &["from", "of", "in"]),
    (&["channel_alias"], &["to", "in", "on", "into", "onto", "at"], SOURCES),
    (&["owner", "repo"], &["in", "on", "at", "to", "for", "into", "within", "inside"], SOURCES),
    (&["url"], &["to", "at", "on", "into"], &["to", "from", "at", "of", "in", "on"]),
    (&["bucket"], TARGETS, SOURCES),
    (&["key"], &["to", "in", "into", "onto", "at", "on", "under", "inside", "within", "as"], SOURCES),
    (&["since"], &["since", "from"], &["since", "from"]),
    (&["artifact"], &["of", "with"], &["of", "from", "with"]),
    (&["secret"], &["with", "using"], &["with", "using"]),
    (&["assignee", "assignees"], &["to", "of"], &["to", "of"]),
    (&["labels"], &["with", "of"], &["with", "of"]),
    (&["query"], &["for", "about", "of"], &["for", "about", "of"]),
];

/// Whether a preposition may introduce the value of an input.
pub(super) fn introduces(word: &str, slot: &Slot<'_>, tool: &Profile, writes: bool) -> bool {
    if let Some((_, changes, asks)) = PLACES.iter().find(|(inputs, ..)| inputs.contains(&slot.name)) {
        return if writes { changes } else { asks }.contains(&word);
    }
    // The input is itself called so, or announced by this word.
    if lexicon::labels(slot.name).contains(&word) || slot.name.split('_').any(|part| part == word) {
        return true;
    }
    let pure = tool.spec.effect == EffectKind::Pure;
    match slot.class {
        Class::Count => matches!(word, "in" | "to" | "of" | "into" | "within"),
        Class::Id if writes && is_place(slot, tool) => matches!(word, "in" | "under" | "below" | "inside" | "within"),
        Class::Text if tool.does("search") => matches!(word, "for" | "about" | "of" | "with"),
        _ if slot.is_content() || slot.is_head() => GIVEN.contains(&word) || (pure && word == "from"),
        _ => PLAIN.contains(&word),
    }
}

/// The first of the words from a preposition to the value at a place that the input does not take it after.
pub(super) fn misplaced(clause: &Clause, at: usize, slot: &Slot<'_>, tool: &Profile, writes: bool) -> Option<usize> {
    let labels = lexicon::labels(slot.name);
    let limits = slot.class == Class::Count;
    let mut announced = false;
    for place in (0..at).rev().take_while(|place| clause.verb != Some(*place)) {
        let word = clause.tokens[place].word();
        let labelled = clause.uses[place] == Some(Use::Label);
        match word {
            None if clause.tokens[place].kind == Kind::Mark(':') => {}
            None => return None,
            // `at most 5`, `up to 5`.
            Some(word) if labelled && limits && !labels.contains(&word) => announced = true,
            Some(word) if lexicon::is_preposition(word) => {
                // `with the key a.txt`, `with at most 5 files`.
                let with = word == "with" && announced && !is_place(slot, tool) && !clause.tokens[place + 1].is("most");
                if !with && !introduces(word, slot, tool, writes) {
                    return Some(place);
                }
                if !labelled || labels.contains(&word) {
                    return None;
                }
            }
            Some(word) if lexicon::is_determiner(word) => {}
            Some(word) if labelled || describes(word, slot, &clause.tokens[at]) => announced = true,
            Some(_) => return None,
        }
    }
    None
}

/// Whether an input says where something goes.
fn is_place(slot: &Slot<'_>, tool: &Profile) -> bool {
    matches!(slot.name, "bucket" | "channel_alias" | "owner" | "repo" | "url" | "to")
        || (slot.class == Class::Id && tool.does("create"))
}

/// Whether a noun says what the value behind it is, so that what stands before the noun decides.
fn describes(word: &str, slot: &Slot<'_>, value: &Token) -> bool {
    lexicon::apposes(word, &value.kind)
        || lexicon::labels(slot.name).contains(&word)
        || slot.name.split('_').any(|part| lexicon::thing(part) == lexicon::thing(word))
}

/// Whether a preposition may stand before a word that names a tool's thing, or what it makes or lists. `part` says
/// whether it follows something that can be a part of the thing.
pub(super) fn names(word: &str, thing: &str, tools: &[&Profile], part: bool) -> bool {
    let named = || tools.iter().filter(|tool| tool.has_thing(thing) || tool.lists(thing) || tool.makes(thing));
    if lexicon::is_outcome(thing) {
        let said = lexicon::nominal(thing).is_some() && matches!(word, "with" | "from" | "about");
        return said || matches!(word, "into" | "to" | "as" | "of" | "in" | "for");
    }
    if named().any(|tool| tool.lists(thing)) {
        return matches!(word, "of" | "in" | "for" | "about" | "on" | "to") || (word == "from" && part);
    }
    match word {
        "from" => named().any(|tool| tool.can_ask()),
        "to" | "into" | "onto" => named().any(|tool| tool.spec.effect != EffectKind::Read),
        "with" | "via" | "using" | "through" => lexicon::is_instrument(thing),
        "by" | "over" => lexicon::thing(thing) == lexicon::thing("mail"),
        _ => NAMING.contains(&word),
    }
}

/// Whether a preposition may stand before what an earlier step gives.
pub(super) fn refers(word: &str) -> bool {
    REFERRING.contains(&word)
}

/// Whether a preposition may stand before the name of an input, whose value is not named there.
pub(super) fn fills(word: &str) -> bool {
    FILLING.contains(&word)
}

/// Whether a preposition may stand before a word that is chosen among a few.
pub(super) fn chooses(word: &str) -> bool {
    CHOOSING.contains(&word)
}

//! Which prepositions may precede a value, a tool's noun, and the output of an earlier step.
//!
//! Each input has a closed list: `to #a` is a channel to post to, `from #a` is not, and `by 2 sentences` is not `to 2
//! sentences`. A preposition that is not on the list rejects the goal.

use super::choose::ToolProfile;
use super::clause::{Clause, TokenRole};
use super::lexicon;
use super::slot::{Slot, SlotKind};
use super::token::{GoalToken, TokenKind};
use chimera_core::tool::EffectKind;

/// Before a target that is written to.
const TARGETS: &[&str] = &["to", "in", "into", "onto", "at", "on", "under", "inside", "within"];
/// Before a source that is searched or read.
const SOURCES: &[&str] = &["in", "of", "from", "for", "on", "at", "about", "within", "inside"];
/// Before something that is attached.
const GIVEN: &[&str] = &["with", "as", "of"];
/// Before values of inputs that are not listed below.
const PLAIN: &[&str] = &["with", "of", "as", "for", "in", "to", "on", "at", "about", "under", "into"];
/// Before the name of a tool or of what it is about.
const NAMING: &[&str] = &["in", "on", "of", "for", "at", "about", "as", "within", "inside", "under"];
/// Before the output of an earlier step.
const REFERRING: &[&str] = &["of", "with", "from", "in", "as", "about", "to", "into", "for", "on"];
/// Before an enum value.
const CHOOSING: &[&str] = &["with", "in", "on", "as", "of", "at", "to", "for", "about"];
/// Before the name of an input that content goes into: `the summary as the body`.
const FILLING: &[&str] = &["as", "in", "into", "to", "for", "under"];

/// Prepositions that may precede the value of an input: for calls that write, and for calls that read.
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
pub(super) fn introduces(word: &str, slot: &Slot<'_>, tool: &ToolProfile, writes: bool) -> bool {
    if let Some((_, changes, asks)) = PLACES.iter().find(|(inputs, ..)| inputs.contains(&slot.name)) {
        return if writes { changes } else { asks }.contains(&word);
    }
    // The input has this name, or is announced by this word.
    if lexicon::labels(slot.name).contains(&word) || slot.name.split('_').any(|part| part == word) {
        return true;
    }
    let pure = tool.spec.effect == EffectKind::Pure;
    match slot.class {
        SlotKind::Count => matches!(word, "in" | "to" | "of" | "into" | "within"),
        SlotKind::Id if writes && is_place(slot, tool) => {
            matches!(word, "in" | "under" | "below" | "inside" | "within")
        }
        SlotKind::Text if tool.does("search") => matches!(word, "for" | "about" | "of" | "with"),
        _ if slot.is_content() || slot.is_head() => GIVEN.contains(&word) || (pure && word == "from"),
        _ => PLAIN.contains(&word),
    }
}

/// The first word between the preposition and the value that rules the input out.
pub(super) fn misplaced(
    clause: &Clause,
    at: usize,
    slot: &Slot<'_>,
    tool: &ToolProfile,
    writes: bool,
) -> Option<usize> {
    let labels = lexicon::labels(slot.name);
    let limits = slot.class == SlotKind::Count;
    let mut announced = false;
    for place in (0..at).rev().take_while(|place| clause.verb != Some(*place)) {
        let word = clause.tokens[place].word();
        let labelled = clause.uses[place] == Some(TokenRole::Label);
        match word {
            None if clause.tokens[place].kind == TokenKind::Mark(':') => {}
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

/// Whether an input is a destination.
fn is_place(slot: &Slot<'_>, tool: &ToolProfile) -> bool {
    matches!(slot.name, "bucket" | "channel_alias" | "owner" | "repo" | "url" | "to")
        || (slot.class == SlotKind::Id && tool.does("create"))
}

/// Whether a noun describes the value behind it, so that the word before the noun governs.
fn describes(word: &str, slot: &Slot<'_>, value: &GoalToken) -> bool {
    lexicon::apposes(word, &value.kind)
        || lexicon::labels(slot.name).contains(&word)
        || slot.name.split('_').any(|part| lexicon::thing(part) == lexicon::thing(word))
}

/// Whether a preposition may precede a noun of a tool, or of what it makes or lists. `part` says whether it follows
/// something that can be part of the thing.
pub(super) fn names(word: &str, thing: &str, tools: &[&ToolProfile], part: bool) -> bool {
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

/// Whether a preposition may precede the output of an earlier step.
pub(super) fn refers(word: &str) -> bool {
    REFERRING.contains(&word)
}

/// Whether a preposition may precede the name of an input whose value is stated elsewhere.
pub(super) fn fills(word: &str) -> bool {
    FILLING.contains(&word)
}

/// Whether a preposition may precede an enum value.
pub(super) fn chooses(word: &str) -> bool {
    CHOOSING.contains(&word)
}

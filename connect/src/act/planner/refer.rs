//! References to earlier steps: nouns (`the titles`, `its link`) and pronouns (`it`, `them`).
//!
//! A reference means the latest step with an output. One word can't refer to the outputs of several steps, and an
//! output is never replaced by what it was made from. An ambiguous reference is rejected.

use super::build::PlanBuilder;
use super::choose::ToolProfile;
use super::clause::{Clause, TokenRole};
use super::fill::CallBuilder;
use super::lexicon;
use super::slot::{self, Slot, SlotKind};
use super::wire::{self, ListHandling, PlannedStep};
use chimera_core::act::{PlanError, excerpt};
use chimera_core::limits::PLAN_STEPS_MAX;
use serde_json::Value;

/// Words that refer to several things.
const PLURALS: &[&str] = &["them", "these", "those", "results"];

/// Wires the output of one of the last `back` steps, the latest first, into the first content input that can hold
/// it.
pub(super) fn wire_output<'a>(
    plan: &mut PlanBuilder<'a>,
    fill: &mut CallBuilder<'a>,
    tool: &ToolProfile,
    back: usize,
    value: impl Fn(&PlannedStep<'a>, &Slot<'_>) -> Option<Value>,
) -> bool {
    let filled = fill.slots.iter().any(|slot| slot.is_content() && fill.input.contains_key(slot.name));
    if filled || !fill.writes() || tool.does("search") {
        return false;
    }
    let places: Vec<&Slot<'_>> = fill.open().filter(|slot| slot.is_content()).collect();
    let found =
        plan.steps.iter().rev().take(back).find_map(|step| {
            places.iter().find_map(|slot| value(step, slot).map(|value| (slot.name, value, step.tool)))
        });
    match found {
        Some((name, value, tool)) => {
            fill.wire(name, value);
            plan.facts.wired = true;
            plan.facts.tools.push(tool);
            true
        }
        None => false,
    }
}

/// Resolves nouns and pronouns that refer to earlier steps. Returns whether anything is referred to.
pub(super) fn resolve_references<'a>(
    plan: &mut PlanBuilder<'a>,
    fill: &mut CallBuilder<'a>,
    tool: &ToolProfile,
    clause: &mut Clause,
) -> Result<bool, PlanError> {
    let noun = refer_by_noun(plan, fill, tool, clause, PLAN_STEPS_MAX)?;
    let words: Vec<&str> = clause.words().filter(|(at, _)| Some(*at) != clause.verb).map(|(_, word)| word).collect();
    let pronoun = words.iter().copied().find(|word| lexicon::is_pronoun(word));
    // `the text` is what the caller gave under that name.
    let definite = |(at, _): &(usize, &str)| at.checked_sub(1).is_some_and(|at| clause.tokens[at].is("the"));
    let text = |(at, word): (usize, &str)| known_text(plan, word, definite(&(at, word)));
    if !noun && let Some((name, text)) = clause.words().filter(|(at, _)| Some(*at) != clause.verb).find_map(text) {
        flow_literal(plan, fill, tool, name, text);
    }
    if let Some(word) = pronoun.filter(|_| !noun) {
        refer_by_pronoun(plan, fill, tool, word)?;
    }
    if pronoun.is_some() {
        let ids: Vec<Slot<'a>> = fill.open().filter(|slot| slot.class == SlotKind::Id).cloned().collect();
        let found = plan
            .steps
            .iter()
            .rev()
            .find_map(|step| ids.iter().find_map(|slot| wire::id(step, slot).map(|value| (slot.name, value))));
        let lacks = slot::missing(&tool.spec, &fill.input).is_some();
        if let Some((name, value)) = found.filter(|_| lacks) {
            fill.wire(name, value);
            plan.facts.wired = true;
        }
    }
    Ok(words.iter().any(|word| matches!(*word, "it" | "them")))
}

/// Hands on what the latest step produced, received, or the link to where it put it. A file that can't be handed
/// on is not replaced by its source, nor a list by one item.
fn refer_by_pronoun<'a>(
    plan: &mut PlanBuilder<'a>,
    fill: &mut CallBuilder<'a>,
    tool: &ToolProfile,
    word: &str,
) -> Result<(), PlanError> {
    let filled = fill.slots.iter().any(|slot| slot.is_content() && fill.input.contains_key(slot.name));
    if filled || !fill.writes() || tool.does("search") {
        return Ok(());
    }
    let unplaced = || PlanError::Unplaced { text: word.to_owned() };
    let listing = ListHandling::to(tool, word);
    let places: Vec<Slot<'a>> = fill.open().filter(|slot| slot.is_content()).cloned().collect();
    let value = |step: &PlannedStep<'a>| {
        let any = |give: &dyn Fn(&Slot<'a>) -> Option<Value>| {
            places.iter().find_map(|slot| give(slot).map(|value| (slot.name, value)))
        };
        any(&|slot| wire::content_of(step, slot, listing))
            .or_else(|| any(&|slot| wire::input_content(step, slot).filter(|_| !step.makes_file())))
            .or_else(|| any(&|slot| wire::link(step, slot)))
    };
    let ends = |step: &&PlannedStep<'a>| value(step).is_some() || step.makes_file() || step.gives_list();
    let Some(step) = plan.steps.iter().rev().find(ends) else { return Ok(()) };
    let (name, given) = value(step).ok_or_else(unplaced)?;
    let several = given.to_string().contains(".map(") || !given.is_string();
    let others = open_steps(plan).filter(|step| value(step).is_some()).count();
    if step.repeated || (PLURALS.contains(&word) && (others > 1 || !several)) {
        return Err(unplaced());
    }
    plan.facts.wired = true;
    plan.facts.tools.push(step.tool);
    fill.wire(name, given);
    Ok(())
}

/// Steps whose output no later step uses.
fn open_steps<'p, 'a>(plan: &'p PlanBuilder<'a>) -> impl Iterator<Item = &'p PlannedStep<'a>> {
    let used = |at: usize| plan.steps[at + 1..].iter().any(|later| plan.steps[at].feeds(later));
    plan.steps.iter().enumerate().filter(move |(at, _)| !used(*at)).map(|(_, step)| step)
}

/// Hands on what a noun names: `the titles` before `the issues`, because it is more specific.
pub(super) fn refer_by_noun<'a>(
    plan: &mut PlanBuilder<'a>,
    fill: &mut CallBuilder<'a>,
    tool: &ToolProfile,
    clause: &mut Clause,
    back: usize,
) -> Result<bool, PlanError> {
    let small = |word: &str| lexicon::is_pronoun(word) || lexicon::is_preposition(word);
    let verb = clause.verb;
    let named = |(at, word): &(usize, &str)| Some(*at) != verb && !small(word) && !tool.has_thing(word);
    let nouns: Vec<(usize, String)> = clause.words().filter(named).map(|(at, word)| (at, word.to_owned())).collect();
    for of_item in [true, false] {
        for (at, word) in &nouns {
            let listing = ListHandling::to(tool, word);
            let own = at.checked_sub(1).is_some_and(|before| clause.tokens[before].is("its"));
            let several = back > 1 && is_doubtful(plan, fill, word, own, listing);
            if wire_output(plan, fill, tool, back, |step, slot| wire::by_noun(step, slot, word, of_item, listing)) {
                if several {
                    return Err(PlanError::Unplaced { text: excerpt(&clause.tokens[*at].text) });
                }
                clause.take(*at, TokenRole::Reference);
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Whether a noun may refer to the outputs of several earlier steps.
fn is_doubtful<'a>(
    plan: &PlanBuilder<'a>,
    fill: &CallBuilder<'a>,
    word: &str,
    own: bool,
    listing: ListHandling,
) -> bool {
    let places: Vec<&Slot<'_>> = fill.open().filter(|slot| slot.is_content()).collect();
    let plural = word.ends_with('s');
    let names = |step: &PlannedStep<'a>| {
        let called = |of_item| places.iter().any(|slot| wire::by_noun(step, slot, word, of_item, listing).is_some());
        called(true) || called(false)
    };
    let latest = plan.steps.iter().rev().find(|step| names(step)).is_some_and(|step| step.repeated);
    let counts = |step: &&PlannedStep<'a>| names(step) || (plural && step.gives_list());
    latest || (!own && open_steps(plan).filter(counts).count() > 1)
}

/// A text from the caller that no step uses yet, or that is mentioned again.
fn known_text<'a>(plan: &PlanBuilder<'a>, name: &str, definite: bool) -> Option<(&'a str, &'a Value)> {
    let (name, value) = plan.inputs.filter(|_| definite || plan.is_unused_input(name))?.get_key_value(name)?;
    value.is_string().then_some((name.as_str(), value))
}

/// Puts a text from the caller into a content input with a different name.
fn flow_literal<'a>(
    plan: &mut PlanBuilder<'a>,
    fill: &mut CallBuilder<'a>,
    tool: &ToolProfile,
    given: &str,
    text: &Value,
) {
    let filled = fill.slots.iter().any(|slot| slot.is_content() && fill.input.contains_key(slot.name));
    let place = |slot: &&Slot<'_>| slot.is_content() && slot.class == SlotKind::Text && slot.name != "artifact";
    let name = fill.open().find(place).map(|slot| slot.name);
    if let Some(name) = name.filter(|_| !filled && fill.writes() && !tool.does("search")) {
        fill.put(name, text.clone());
        plan.given.insert(given.to_owned());
        plan.facts.given = true;
    }
}

//! Builds steps from clauses, in order.
//!
//! A clause may need more than its own step: `post a summary of https://…` first fetches and summarizes. Only tools
//! without side effects are used for such implied steps.

use super::choose::{ToolProfile, choose, producer};
use super::clause::{Clause, Governor, TokenRole};
use super::coverage::GoalCoverage;
use super::fill::CallBuilder;
use super::label::doubtful;
use super::lexicon::{self, stem};
use super::refer::{refer_by_noun, resolve_references, wire_output};
use super::roles::{self, ClauseFacts};
use super::slot::{self, Slot, SlotKind, slots};
use super::token::{GoalToken, TokenKind};
use super::wire::{self, ListHandling, PlannedStep};
use super::{preposition, request};
use chimera_core::act::{PlanError, excerpt};
use chimera_core::flow::plan::{Plan, PlanStep};
use chimera_core::limits::{PLAN_FILL_DEPTH_MAX, PLAN_STEPS_MAX};
use chimera_core::tool::EffectKind;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Words between list members.
const LISTED: &[&str] = &["in", "to", "of", "for", "on", "into", "at"];
/// Verbs that don't say whether the request reads or writes.
const UNSAID: &[&str] = &["call", "request", "send", "hit", "submit"];
/// Words that end a noun phrase.
const NOUN_ENDS: &[&str] = &["to", "with", "via", "as", "into", "under", "through", "using", "and"];

/// A plan under construction.
pub(super) struct PlanBuilder<'a> {
    goal: &'a str,
    pub(super) inputs: Option<&'a Map<String, Value>>,
    tools: &'a [ToolProfile],
    pub(super) steps: Vec<PlannedStep<'a>>,
    /// Members of `inputs` that some step already uses.
    pub(super) given: BTreeSet<String>,
    /// The repository that was mentioned last.
    repo: Option<(Value, Value)>,
    /// What the steps of the current clause were built from.
    pub(super) facts: ClauseFacts<'a>,
    /// Which characters of the goal are accounted for.
    ledger: GoalCoverage<'a>,
}

impl<'a> PlanBuilder<'a> {
    /// `joints` are the tokens that only connect clauses.
    pub(super) fn new(goal: &'a str, inputs: &'a Value, tools: &'a [ToolProfile], joints: &[GoalToken]) -> Self {
        let mut ledger = GoalCoverage::new(goal);
        ledger.settle(joints);
        Self {
            goal,
            inputs: inputs.as_object(),
            tools,
            steps: Vec::new(),
            given: BTreeSet::new(),
            repo: None,
            facts: ClauseFacts::default(),
            ledger,
        }
    }

    /// The finished plan. Fails if it leaves out part of the goal or of the caller's inputs.
    pub(super) fn plan(self) -> Result<Plan, PlanError> {
        self.ledger.close()?;
        let held = |name: &String, value: &Value| {
            let literal = escaped(value.clone());
            self.given.contains(name) || self.steps.iter().any(|step| step.input.get(name) == Some(&literal))
        };
        let inputs = self.inputs.into_iter().flatten().filter(|(name, value)| !held(name, value));
        let unused: Vec<String> = inputs.map(|(name, _)| excerpt(name)).collect();
        if !unused.is_empty() {
            return Err(PlanError::UnusedInput { inputs: unused });
        }
        let step = |made: PlannedStep<'_>| PlanStep {
            id: made.id,
            tool: made.tool.spec.name.clone(),
            input: Value::Object(made.input),
        };
        Ok(Plan { steps: self.steps.into_iter().map(step).collect(), more: false })
    }

    /// Adds the steps of one clause.
    pub(super) fn add_clause(&mut self, clause: &mut Clause) -> Result<(), PlanError> {
        self.facts = ClauseFacts::default();
        self.check_request(clause)?;
        let tool = choose(self.tools, self.goal, clause)?;
        let made = self.add_step(tool, clause, &[]).and_then(|()| self.repeat_for_others(clause));
        if matches!(made, Err(PlanError::MissingInput { .. })) {
            // Unknown words are reported before missing inputs: they may be the cause.
            self.facts.carried = true;
            self.facts.wired = true;
            self.facts.given = true;
        }
        roles::assign_roles(clause, &self.facts);
        let conditions = self.check_unconditional(clause, clause.tokens.len());
        match made {
            Err(PlanError::Unplaced { text }) => {
                let texts = std::iter::once(text).chain(conditions.err().into_iter().filter_map(PlanError::into_quote));
                Err(PlanError::Unplaced { text: excerpt(&texts.collect::<Vec<_>>().join(" … ")) })
            }
            _ if conditions.is_err() => conditions,
            Err(missing @ PlanError::MissingInput { .. }) => {
                Err(roles::unknown_words_error(self.goal, clause).unwrap_or(missing))
            }
            Err(other) => Err(other),
            Ok(()) => {
                self.ledger.settle_clause(clause);
                roles::unused_error(self.goal, clause).map_or(Ok(()), Err)
            }
        }
    }

    /// Reports clauses that are not requests, or are conditional, before anything else.
    fn check_request(&self, clause: &Clause) -> Result<(), PlanError> {
        self.check_unconditional(clause, clause.verb.map_or(0, |verb| verb + 1))?;
        request::not_a_request_error(self.goal, clause, self.tools).map_or(Ok(()), Err)
    }

    /// Adds the later clauses that no tool can serve to an error.
    pub(super) fn with_others(&self, error: PlanError, later: &[Clause]) -> PlanError {
        let refused = |clause: &Clause| {
            let chosen = self.check_request(clause).and_then(|()| choose(self.tools, self.goal, clause));
            chosen.err().filter(|error| matches!(error, PlanError::Unplaced { .. } | PlanError::NoTool { .. }))
        };
        let mut others = later.iter().filter_map(refused);
        let text = match error {
            PlanError::Unplaced { text } => text,
            PlanError::MissingInput { .. } => return others.next().unwrap_or(error),
            _ => return error,
        };
        let texts: Vec<String> = std::iter::once(text).chain(others.filter_map(PlanError::into_quote)).collect();
        PlanError::Unplaced { text: excerpt(&texts.join(" … ")) }
    }

    /// A conditional or negated request must not become a plan that always acts.
    fn check_unconditional(&self, clause: &Clause, end: usize) -> Result<(), PlanError> {
        let mut words = clause.words().take_while(|(at, _)| *at < end);
        let settled = end == clause.tokens.len();
        let counts = |word: &str| lexicon::is_condition(word) && !(settled && lexicon::is_time(word));
        let Some((at, word)) = words.find(|(_, word)| counts(word)) else { return Ok(()) };
        if lexicon::is_time(word) {
            return Err(PlanError::Unplaced { text: clause.tokens[at].text.clone() });
        }
        let from = clause.unused().map(|(at, _)| at).filter(|first| *first < at && settled);
        let at = from.min().unwrap_or(at);
        let last = clause.tokens.last().map_or(0, |token| token.end);
        let text = self.goal.get(clause.tokens[at].start..last).unwrap_or(&clause.tokens[at].text);
        Err(PlanError::Unplaced { text: excerpt(text) })
    }

    /// Adds a step and the steps it depends on.
    fn add_step(&mut self, at: usize, clause: &mut Clause, above: &[usize]) -> Result<(), PlanError> {
        let tools: &'a [ToolProfile] = self.tools;
        let tool = &tools[at];
        let above: Vec<usize> = above.iter().copied().chain([at]).collect();
        self.facts.tools.push(tool);
        let mut fill = CallBuilder {
            goal: self.goal,
            slots: slots(&tool.spec),
            input: Map::new(),
            wired: BTreeSet::new(),
            tool,
            searches: tool.does("search"),
            tells: tool.does("send") || tool.does("post"),
            asks: above.len() > 1 && tool.spec.reads_when.is_some(),
            settled: BTreeSet::new(),
            run_places: Vec::new(),
            held: Vec::new(),
            withheld: Vec::new(),
        };
        if let Some(reads) = tool.spec.reads_when.as_ref().filter(|_| fill.asks) {
            // The user did not ask for this call explicitly, so it may only read.
            fill.slots.retain(|slot| slot.name != reads.member);
        }
        let outcome = self.build_noun_outcome(&fill, clause, &above)?;
        fill.read(clause);
        if let Some(text) = doubtful(&fill, clause).or_else(|| fill.misleading_words(clause)) {
            return Err(PlanError::Unplaced { text: excerpt(&text) });
        }
        self.remember_repo(&mut fill);
        let listing = ListHandling::to(tool, "");
        if let Some(noun) = outcome
            && !wire_output(self, &mut fill, tool, 1, |step, slot| wire::content_of(step, slot, listing))
        {
            return Err(PlanError::Unplaced { text: excerpt(&clause.tokens[noun].text) });
        }
        let refers = resolve_references(self, &mut fill, tool, clause)?;
        self.take_inputs(&mut fill, clause, false);
        if !refers {
            self.wire_implicitly(&mut fill, tool);
        }
        self.produce(&mut fill, tool, clause, &above)?;
        self.take_inputs(&mut fill, clause, true);
        self.finish(fill, tool, refers)
    }

    /// `a summary of X` is built before the step that uses it, unless it already exists. Returns the position of the
    /// noun.
    fn build_noun_outcome(
        &mut self,
        fill: &CallBuilder<'a>,
        clause: &mut Clause,
        above: &[usize],
    ) -> Result<Option<usize>, PlanError> {
        // A search finds PDFs; it does not create them.
        if above.len() > PLAN_FILL_DEPTH_MAX || fill.searches {
            return Ok(None);
        }
        let found = clause.words().filter(|(place, _)| Some(*place) != clause.verb).find_map(|(place, word)| {
            let at = lexicon::is_outcome(word).then(|| self.tools.iter().position(|tool| tool.makes(word)))??;
            let made = self.steps.iter().any(|step| step.tool.makes(word));
            let definite = place.checked_sub(1).is_some_and(|before| clause.tokens[before].is("the"));
            let handed = fill.slots.iter().any(|slot| slot.is_content() && self.is_unused_input(slot.name));
            let kept = above.contains(&at) || made || (definite && handed);
            (!kept).then_some((place, at))
        });
        let Some((from, at)) = found else { return Ok(None) };
        let ends = |token: &GoalToken| token.is_mark() || token.word().is_some_and(|word| NOUN_ENDS.contains(&word));
        let end =
            (from + 1..clause.tokens.len()).find(|place| ends(&clause.tokens[*place])).unwrap_or(clause.tokens.len());
        // Attributes before the noun belong to it: `a three sentence summary`.
        let attributes = clause.tokens[..from].iter().rev().take_while(|token| {
            matches!(token.kind, TokenKind::Number(_))
                || token.word().is_some_and(|word| stem(word) == stem("sentence"))
        });
        let noun = from;
        let from = from - attributes.count();
        let mut part = clause.clone();
        part.verb = None;
        (0..part.tokens.len())
            .filter(|place| !(from..end).contains(place))
            .for_each(|place| part.take(place, TokenRole::Form));
        part.take(noun, TokenRole::Thing);
        self.add_step(at, &mut part, above)?;
        (from..end).for_each(|place| clause.uses[place] = part.uses[place]);
        Ok(Some(noun))
    }

    /// `its issues`: the last repository stays current until another one is named.
    fn remember_repo(&mut self, fill: &mut CallBuilder<'a>) {
        if let (Some(owner), Some(repo)) = (fill.input.get("owner"), fill.input.get("repo")) {
            self.repo = Some((owner.clone(), repo.clone()));
        } else if fill.has("owner")
            && fill.has("repo")
            && !self.is_unused_input("owner")
            && let Some((owner, repo)) = self.repo.clone()
        {
            fill.put("owner", owner);
            fill.put("repo", repo);
        }
    }

    /// Whether the caller gave this input and no step uses it yet.
    pub(super) fn is_unused_input(&self, name: &str) -> bool {
        self.inputs.is_some_and(|inputs| inputs.contains_key(name)) && !self.given.contains(name)
    }

    /// Fills inputs from members of `inputs` with the same name. Members that a step already uses count only where a
    /// required input would be missing otherwise.
    fn take_inputs(&mut self, fill: &mut CallBuilder<'a>, clause: &Clause, even_used: bool) {
        let Some(inputs) = self.inputs else { return };
        // An explicit verb wins over the caller's method: `fetch` never becomes a DELETE.
        let says_how = clause.verb_word().is_some_and(|verb| !UNSAID.contains(&verb));
        let how = fill.tool.spec.reads_when.as_ref().map(|reads| reads.member).filter(|_| says_how);
        let free = |slot: &&Slot<'_>| !fill.settled.contains(slot.name) && how != Some(slot.name);
        let open: Vec<(&str, bool)> = fill.open().filter(free).map(|slot| (slot.name, slot.required)).collect();
        for (name, required) in open {
            let wanted = if even_used { required } else { !self.given.contains(name) && self.has_room(fill, name) };
            if let Some(value) = inputs.get(name).filter(|_| wanted) {
                fill.put(name, value.clone());
                self.given.insert(name.to_owned());
                self.facts.given |= fill.is_content(name);
            }
        }
    }

    /// Whether another input may be filled: only one of several content inputs is needed.
    fn has_room(&self, fill: &CallBuilder<'a>, name: &str) -> bool {
        let is_content = |wanted: &str| fill.slots.iter().any(|slot| slot.name == wanted && slot.is_content());
        !is_content(name) || (fill.writes() && !fill.input.keys().any(|key| is_content(key)))
    }

    /// `fetch …, post to #ops`: the previous output is handed on implicitly.
    fn wire_implicitly(&mut self, fill: &mut CallBuilder<'a>, tool: &ToolProfile) {
        let needed = fill.open().any(|slot| slot.required && slot.is_content());
        if needed || tool.hands_on() {
            let listing = ListHandling::to(tool, "");
            wire_output(self, fill, tool, 1, |step, slot| wire::content_of(step, slot, listing));
        }
    }

    /// Adds a step that produces a needed input from the rest of the clause.
    fn produce(
        &mut self,
        fill: &mut CallBuilder<'a>,
        tool: &ToolProfile,
        clause: &mut Clause,
        above: &[usize],
    ) -> Result<(), PlanError> {
        // Data is named by words; an address alone is not enough.
        let texts = |slot: &Slot<'_>| slot.class != SlotKind::Open && (slot.required || tool.hands_on());
        let wants = fill.open().any(|slot| slot.is_content() && texts(slot));
        let filled = fill.slots.iter().any(|slot| slot.is_content() && fill.input.contains_key(slot.name));
        if !wants || filled || tool.does("search") || above.len() > PLAN_FILL_DEPTH_MAX {
            return Ok(());
        }
        // The output of an earlier step is not produced again.
        let made = |at: &usize| {
            let tool = &self.tools[*at];
            let done = self.steps.iter().any(|step| std::ptr::eq(step.tool, tool));
            done && clause.words().any(|(_, word)| lexicon::is_outcome(word) && tool.makes(word))
        };
        let besides: Vec<usize> = above.iter().copied().chain((0..self.tools.len()).filter(made)).collect();
        let Some(maker) = producer(self.tools, clause, &besides) else { return Ok(()) };
        // The verb says what to do with the product, not how to produce it.
        let verb = clause.verb.take();
        let before = clause.uses.clone();
        let made = self.add_step(maker, clause, above);
        clause.verb = verb;
        made?;
        let listing =
            ListHandling::to(tool, if clause.words().any(|(_, word)| word == "results") { "results" } else { "" });
        let flows = refer_by_noun(self, fill, tool, clause, 1)?
            || wire_output(self, fill, tool, 1, |step, slot| wire::content_of(step, slot, listing));
        if flows {
            return Ok(());
        }
        // Nobody asked for data that is read and then not used.
        let taken = |at: &usize| before[*at].is_none() && clause.is_used(*at);
        let last = (0..before.len()).rev().find(taken).unwrap_or(0);
        let verb_word = clause.verb_word().unwrap_or_default();
        let part = |at: &usize| {
            let word = clause.tokens[*at].word().filter(|word| !lexicon::is_particle(verb_word, word));
            taken(at) || (word.is_some() && !clause.is_used(*at) && clause.verb != Some(*at))
        };
        let first = (0..=last).rev().take_while(part).last().unwrap_or(last);
        let text = self.goal.get(clause.tokens[first].start..clause.tokens[last].end).unwrap_or_default();
        Err(PlanError::Unplaced { text: excerpt(text) })
    }

    /// Adds the step if no input is missing and every value is valid.
    fn finish(&mut self, mut fill: CallBuilder<'a>, tool: &'a ToolProfile, refers: bool) -> Result<(), PlanError> {
        let spec = &tool.spec;
        let missing = |name: &str, why: Option<String>| PlanError::MissingInput {
            tool: spec.name.clone(),
            input: name.to_owned(),
            hint: why.unwrap_or_else(|| hint(&fill.slots, name)),
        };
        for slot in fill.slots.iter().filter(|slot| fill.input.contains_key(slot.name)) {
            self.facts.fill(slot);
            self.facts.carried |= slot.is_content();
        }
        if let Some(name) = slot::missing(spec, &fill.input) {
            // The value exists, but behind a preposition that means something else.
            if let Some((_, text)) = fill.withheld.iter().find(|(input, _)| input == name) {
                return Err(PlanError::Unplaced { text: excerpt(text) });
            }
            return Err(missing(name, None));
        }
        let content = fill.slots.iter().filter(|slot| slot.is_content());
        let filled = content.clone().any(|slot| fill.input.contains_key(slot.name));
        if let Some(slot) =
            content.clone().next().filter(|_| !filled && ((refers && tool.hands_on()) || tool.does("upload")))
        {
            return Err(missing(slot.name, None));
        }
        if let Some(method) = fill.lacks_method() {
            return Err(missing(method, Some("a call with a body says POST, PUT or PATCH".to_owned())));
        }
        if let Err(faults) = spec.input.check(&Value::Object(fill.input.clone())) {
            let name = |pointer: &str| pointer.split('/').nth(1).unwrap_or("input").to_owned();
            if let Some(fault) = faults.iter().find(|fault| !fill.wired.contains(&name(&fault.pointer))) {
                return Err(missing(&name(&fault.pointer), Some(excerpt(&fault.message))));
            }
        }
        let wired = std::mem::take(&mut fill.wired);
        let literal = |(name, value): (String, Value)| {
            let value = if wired.contains(&name) { value } else { escaped(value) };
            (name, value)
        };
        let input = std::mem::take(&mut fill.input).into_iter().map(literal).collect();
        self.push(tool, input)
    }

    fn push(&mut self, tool: &'a ToolProfile, input: Map<String, Value>) -> Result<(), PlanError> {
        if self.steps.len() >= PLAN_STEPS_MAX {
            return Err(PlanError::TooLong);
        }
        self.steps.push(PlannedStep::new(self.steps.len() + 1, tool, input));
        Ok(())
    }

    /// Repeats the step for each further channel or repository that the clause names.
    fn repeat_for_others(&mut self, clause: &mut Clause) -> Result<(), PlanError> {
        for at in 0..clause.tokens.len() {
            let token = &clause.tokens[at];
            let Some(last) = self.steps.last() else { return Ok(()) };
            let others: Vec<(&str, Value)> = match (&token.kind, token.repo()) {
                (TokenKind::Channel, _) => vec![("channel_alias", Value::from(token.text.as_str()))],
                (_, Some((owner, repo))) => vec![("owner", owner.into()), ("repo", repo.into())],
                _ => continue,
            };
            let (slots, writes) = (slots(&last.tool.spec), last.tool.spec.effect == EffectKind::Write);
            let led = |name: &str| match clause.governor(at) {
                Governor::Preposition(word) => {
                    let slot = slots.iter().find(|slot| slot.name == name);
                    slot.is_none_or(|slot| preposition::introduces(word, slot, last.tool, writes))
                }
                Governor::Word(_) | Governor::None => true,
            };
            let same = |(name, _): &(&str, Value)| last.input.contains_key(*name) && led(name);
            if clause.is_used(at) || !others.iter().all(same) || !is_listed(clause, at, last.tool) {
                continue;
            }
            let (tool, mut input) = (last.tool, last.input.clone());
            others.into_iter().for_each(|(name, value)| drop(input.insert(name.to_owned(), value)));
            clause.take(at, TokenRole::Value);
            self.push(tool, input)?;
            self.steps.iter_mut().rev().take(2).for_each(|step| step.repeated = true);
        }
        Ok(())
    }
}

/// Whether a channel or repository is in a list with one that is used: `in acme/web and in acme/api`, but not `in
/// acme/web about acme/api`.
fn is_listed(clause: &Clause, at: usize, tool: &ToolProfile) -> bool {
    let repeats = |word: &str| lexicon::is_determiner(word) || LISTED.contains(&word) || tool.has_thing(word);
    let mut joined = false;
    for place in (0..at).rev() {
        let token = &clause.tokens[place];
        if token.is("and") || token.kind == TokenKind::Mark(',') {
            joined = true;
        } else if token.is_entity() {
            let alike = std::mem::discriminant(&token.kind) == std::mem::discriminant(&clause.tokens[at].kind);
            return joined && alike && clause.uses[place] == Some(TokenRole::Value);
        } else if !token.word().is_some_and(repeats) {
            return false;
        }
    }
    false
}

/// Escapes a value so that no text in it is read as an expression.
fn escaped(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace("${", "$${")),
        Value::Array(items) => items.into_iter().map(escaped).collect(),
        Value::Object(members) => {
            Value::Object(members.into_iter().map(|(name, value)| (name, escaped(value))).collect())
        }
        other => other,
    }
}

/// How to supply the missing input.
fn hint(slots: &[Slot<'_>], name: &str) -> String {
    let example = match (name, slots.iter().find(|slot| slot.name == name).map(|slot| slot.class)) {
        ("owner" | "repo", _) => "name the repository as owner/name",
        ("channel_alias", _) => "name the channel as #alias",
        ("url", _) => "give an https:// address",
        ("bucket" | "key", _) => "write s3://bucket/key",
        ("secret", _) => "name the secret as secret://…",
        ("to", _) => "give an e-mail address",
        (_, Some(SlotKind::Id)) => "give its id",
        (_, Some(SlotKind::Text | SlotKind::Texts)) => return format!("write {} \"…\"", name.replace('_', " ")),
        _ => "give it in inputs",
    };
    example.to_owned()
}

//! Values that a word announces (`subject "…"`, `labelled bug and urgent`, `the reports bucket`), and search texts.
//!
//! The words between a label and its value are used together with it. An unquoted value is accepted only where one
//! word is enough and its end is clear. Names can't be pronouns.

use super::clause::{Clause, TokenRole};
use super::fill::CallBuilder;
use super::slot::{Slot, SlotKind};
use super::token::{GoalToken, TokenKind};
use super::{lexicon, qualifier, request};
use serde_json::Value;

/// Inputs that an unquoted word may fill.
const BARE: &[&str] = &["bucket", "channel_alias", "labels", "assignee", "assignees", "event_type", "language"];
/// Words between a label and its value.
const BETWEEN: &[&str] = &["is", "of", "to", "the", "it", "with", "line", "a", "an", "being", "says", "that", "="];
/// The phrases they form, by label; any label may stand right before its value.
const PHRASES: &[(&[&str], &[&str])] = &[
    (&["assign", "assigned", "reply"], &["to", "to the", "it to", "it to the"]),
    (&["signed"], &["with", "with the"]),
    (&["saying"], &["that", "the"]),
    (&["subject"], &["line", "line is", "line of"]),
    (&["text", "message", "content", "description"], &["that says", "says"]),
    (&["subject", "title", "body", "text", "message", "content", "query", "labels"], &["is", "of", "="]),
];
/// Words that announce a search text, the most reliable first.
pub(super) const SOUGHT: &[&str] = &["about", "containing", "contain", "contains", "matching", "mentioning", "for"];
/// Words before `since` that add nothing.
const CHANGED: &[&str] = &["changed", "updated", "modified"];

/// A value and the positions of its tokens.
type LabelledValue = Option<(Value, Vec<usize>)>;

/// Reads every labelled value.
pub(super) fn fill_labelled<'a>(call: &mut CallBuilder<'a>, clause: &mut Clause) {
    let open: Vec<Slot<'a>> = call.open().cloned().collect();
    for slot in open {
        let labels = lexicon::labels(slot.name);
        for at in 0..clause.tokens.len() {
            let said = clause.tokens[at].word().is_some_and(|word| labels.contains(&word));
            if !said || clause.is_used(at) || clause.verb == Some(at) || is_other(&slot, clause, at) {
                continue;
            }
            let from = value_at(clause, at, &labels);
            let behind = from.and_then(|from| value_behind(call, &slot, clause, at, from).map(|found| (found, from)));
            if let Some((value, place)) = value_before(&slot, clause, at) {
                // `the reports bucket archive` is ambiguous.
                if behind.is_none() {
                    call.put(slot.name, value);
                    call.hold(clause, place, slot.name);
                    clause.take(at, TokenRole::Label);
                }
                break;
            }
            if let Some(((value, places), from)) = behind {
                call.put(slot.name, value);
                if places.len() > 1 && slot.is_head() {
                    call.run_places.extend(&places);
                }
                places.into_iter().for_each(|place| call.hold(clause, place, slot.name));
                (at..from).for_each(|place| clause.take(place, TokenRole::Label));
                let changed = |place: &usize| clause.tokens[*place].word().is_some_and(|w| CHANGED.contains(&w));
                if let Some(place) = at.checked_sub(1).filter(changed).filter(|_| slot.name == "since") {
                    clause.take(place, TokenRole::Label);
                }
                break;
            }
        }
    }
}

/// The value behind a label, and its positions.
fn value_behind(call: &CallBuilder<'_>, slot: &Slot<'_>, clause: &Clause, at: usize, from: usize) -> LabelledValue {
    let token = &clause.tokens[from];
    let one = |value: Value| Some((value, vec![from]));
    // `assigned today to bob`: a person's name is not followed by a second one.
    let person =
        |place: usize| !has_article(clause, place) && !clause.tokens.get(place + 1).is_some_and(|t| t.is("to"));
    let name = |place: usize| is_name(clause, place) && (!is_person(slot) || person(place));
    let bare = BARE.contains(&slot.name) && name(from);
    // Text that runs from a colon to the end of the goal is not the name of one person or label.
    let is_verbatim =
        token.kind == TokenKind::Text && call.goal.get(token.start..token.end) == Some(token.text.as_str());
    if is_verbatim && BARE.contains(&slot.name) && token.text.contains(char::is_whitespace) {
        return None;
    }
    let further = |place: usize| name(place) && !is_qualifier(call, slot, clause, place);
    match (slot.class, &token.kind) {
        (SlotKind::Address, TokenKind::Email) => {
            list_values(slot, clause, from, &|place| clause.tokens[place].kind == TokenKind::Email)
        }
        (SlotKind::Count, TokenKind::Number(number)) => one(Value::from(*number)),
        (SlotKind::Texts, TokenKind::Text) => {
            list_values(slot, clause, from, &|place| clause.tokens[place].kind == TokenKind::Text)
        }
        (SlotKind::Texts, TokenKind::Word(_) | TokenKind::Handle) if bare || token.kind == TokenKind::Handle => {
            list_values(slot, clause, from, &|place| further(place) || clause.tokens[place].kind == TokenKind::Handle)
        }
        (SlotKind::Text, TokenKind::Text) => one(Value::from(token.text.as_str())),
        (SlotKind::Text, TokenKind::Name) if matches!(slot.name, "key" | "event_type" | "bucket") => {
            one(Value::from(token.text.as_str()))
        }
        (SlotKind::Text, TokenKind::Secret) if slot.name == "secret" => one(Value::from(token.text.as_str())),
        (SlotKind::Text, TokenKind::Moment) if slot.name == "since" => one(Value::from(token.text.as_str())),
        (SlotKind::Text, TokenKind::Handle) if slot.name == "assignee" => one(Value::from(token.text.as_str())),
        (SlotKind::Text, TokenKind::Word(_)) if slot.name == "labels" && bare => {
            list_values(slot, clause, from, &further)
        }
        (SlotKind::Text, TokenKind::Word(_)) if bare => one(Value::from(token.text.as_str())),
        (SlotKind::Text, TokenKind::Word(_))
            if slot.is_head() && !call.searches && !clause.tokens[at].is(slot.name) =>
        {
            // `about the issues of acme/web` refers to them; it is not their title.
            let run = run(call, clause, from, false);
            run.filter(|(_, places)| !places.iter().all(|place| is_thing(clause, *place)))
                .map(|(text, places)| (Value::from(text), places))
        }
        (SlotKind::Open, TokenKind::Json(value)) => one(value.clone()),
        _ => None,
    }
}

/// Unquoted words up to a punctuation mark, a label, a condition, or a target such as `in Notion` or `to #ops`. A
/// search text ends at any preposition: a restriction that the tool can't apply may follow, such as `from last
/// week`.
fn run(call: &CallBuilder<'_>, clause: &Clause, from: usize, sought: bool) -> Option<(String, Vec<usize>)> {
    let tokens = &clause.tokens;
    let ends = |at: usize| {
        let token = &tokens[at];
        let next = |ahead: usize| tokens.get(at + ahead);
        let placed =
            |t: &GoalToken| t.is_entity() || t.word().is_some_and(|w| lexicon::is_thing(w) || lexicon::is_service(w));
        let word = token.word().unwrap_or_default();
        let place = lexicon::is_preposition(word)
            && (next(1).is_some_and(placed)
                || (next(1).and_then(GoalToken::word).is_some_and(lexicon::is_determiner)
                    && next(2).is_some_and(placed))
                || (sought && word != "of"));
        let label = matches!(word, "with" | "saying" | "labelled" | "cc" | "bcc");
        clause.is_used(at)
            || token.is_mark()
            || place
            || label
            || lexicon::is_condition(word)
            || (token.is_entity() && !matches!(token.kind, TokenKind::Number(_) | TokenKind::Name))
    };
    let end = (from..tokens.len()).find(|at| ends(*at)).unwrap_or(tokens.len());
    // A quoted text right behind is the announced value. Any other value there (`Minutes in page 1f0c…`) leaves
    // the end of a title in doubt.
    let cuts =
        |token: &GoalToken| (token.kind == TokenKind::Text && !clause.is_used(end)) || (!sought && token.is_entity());
    if tokens.get(end).is_some_and(cuts) {
        return None;
    }
    let open = |word: &str| lexicon::is_never_a_name(word) || lexicon::is_preposition(word);
    if end <= from || tokens[from].word().is_some_and(open) {
        return None;
    }
    let text = call.goal.get(tokens[from].start..tokens[end - 1].end)?;
    Some((text.to_owned(), (from..end).collect()))
}

/// Whether a word names the items that the tool lists.
fn lists(call: &CallBuilder<'_>, clause: &Clause, place: usize) -> bool {
    clause.tokens[place].word().is_some_and(|word| call.tool.lists(word) && !qualifier::is_filter(word))
}

/// Whether a word behind a label describes a state, rather than being one more label.
fn is_qualifier(call: &CallBuilder<'_>, slot: &Slot<'_>, clause: &Clause, place: usize) -> bool {
    let Some(word) = clause.tokens[place].word() else { return false };
    let choices = call.slots.iter().filter_map(|slot| slot.schema["enum"].as_array()).flatten();
    let choice = choices.filter_map(Value::as_str).any(|choice| choice.eq_ignore_ascii_case(word));
    choice || qualifier::is_state(word) || (is_person(slot) && qualifier::is_rank(word))
}

/// Words of an unquoted text that make its end ambiguous.
pub(super) fn doubtful(call: &CallBuilder<'_>, clause: &Clause) -> Option<String> {
    // Text behind a colon runs to the end, whatever it says; quotes end by themselves.
    let colon = |at: usize| at.checked_sub(1).is_some_and(|at| clause.tokens[at].kind == TokenKind::Mark(':'));
    let texts = clause.tokens.iter().enumerate().filter(|(at, token)| token.kind == TokenKind::Text && !colon(*at));
    let bare = texts.filter_map(|(_, token)| call.goal.get(token.start..token.end).filter(|t| *t == token.text));
    let folded = bare.into_iter().find_map(request::second_request);
    let searched = |at: &usize| {
        let word = clause.tokens[*at].word().unwrap_or_default();
        let before = at.checked_sub(1).is_some_and(|at| call.run_places.contains(&at));
        qualifier::is_filter(word) || (before && word.ends_with("ed"))
    };
    let sought = || call.run_places.iter().copied().filter(|_| call.searches).find(searched);
    let words = || {
        let from = sought()?;
        let last = call.run_places.iter().copied().max()?;
        call.goal.get(clause.tokens[from].start..clause.tokens[last].end)
    };
    let run = || {
        let (first, last) = (call.run_places.iter().min()?, call.run_places.iter().max()?);
        call.goal.get(clause.tokens[*first].start..clause.tokens[*last].end).and_then(request::second_request)
    };
    folded.or_else(words).or_else(run).map(str::to_owned)
}

/// The unquoted search text.
pub(super) fn fill_search_text(call: &mut CallBuilder<'_>, clause: &mut Clause) {
    let quoted = clause.unused().any(|(_, token)| token.kind == TokenKind::Text);
    let open = call.open().find(|slot| slot.required && slot.class == SlotKind::Text).map(|slot| slot.name);
    let (true, false, Some(name)) = (call.searches, quoted, open) else { return };
    for label in SOUGHT {
        let Some((at, _)) = clause.words().find(|(_, word)| word == label) else { continue };
        let from = at + 1;
        // `for files` says where to search, not for what.
        let run = run(call, clause, from, true);
        let run = run
            .filter(|(_, places)| !places.iter().all(|place| is_thing(clause, *place) || lists(call, clause, *place)));
        if let Some((text, places)) = run {
            call.put(name, Value::from(text));
            call.run_places.extend(&places);
            places.into_iter().for_each(|place| clause.take(place, TokenRole::Value));
            (at..from).for_each(|place| clause.take(place, TokenRole::Label));
            return;
        }
    }
    // `find our brand guidelines`: the search text is the object of the verb.
    let Some(verb) = clause.verb.map(|verb| verb + 1) else { return };
    let small = |token: &GoalToken| {
        let article = |w: &str| matches!(w, "the" | "a" | "an" | "my");
        token.word().is_some_and(|w| (lexicon::is_determiner(w) && !article(w)) || lexicon::is_filler(w))
    };
    let from = (verb..clause.tokens.len()).find(|at| !small(&clause.tokens[*at])).unwrap_or(verb);
    let Some((text, places)) = run(call, clause, from, true) else { return };
    let says = |place: &usize| {
        let word = clause.tokens[*place].word().unwrap_or_default();
        let named = lexicon::is_thing(word) || lexicon::is_service(word) || word == "pages";
        !lexicon::is_preposition(word) && !lexicon::is_generic(word) && !named
    };
    if places.iter().all(says) {
        call.put(name, Value::from(text));
        call.run_places.extend(&places);
        places.into_iter().for_each(|place| clause.take(place, TokenRole::Value));
    }
}

/// Whether a label of this input announces something else here: `reply to`, `closed since`.
fn is_other(slot: &Slot<'_>, clause: &Clause, at: usize) -> bool {
    let Some(before) = at.checked_sub(1).and_then(|at| clause.tokens[at].word()) else { return false };
    match slot.name {
        "to" => before == "reply",
        "since" => before == "open" || (before.ends_with("ed") && !CHANGED.contains(&before)),
        _ => false,
    }
}

/// Whether a word names a known noun or a generic one.
fn is_thing(clause: &Clause, place: usize) -> bool {
    clause.tokens[place]
        .word()
        .is_some_and(|word| lexicon::is_thing(word) || lexicon::is_generic(word) || lexicon::is_determiner(word))
}

/// Where the value of a label stands: past function words and further labels of the same input.
fn value_at(clause: &Clause, at: usize, labels: &[&str]) -> Option<usize> {
    let skips = |token: &GoalToken| {
        token.word().is_some_and(|word| BETWEEN.contains(&word) || labels.contains(&word))
            || token.kind == TokenKind::Mark(':')
    };
    let from = (at + 1..clause.tokens.len()).find(|next| !skips(&clause.tokens[*next]))?;
    // Each of them is neutral only in its usual phrase.
    let skipped = &clause.tokens[at + 1..from];
    let colon = |token: &GoalToken| token.kind == TokenKind::Mark(':');
    let stray =
        skipped.iter().enumerate().any(|(place, token)| colon(token) && (!token.glued || place + 1 < skipped.len()));
    let again =
        (at..from).any(|place| clause.tokens[place].word().is_some_and(|word| clause.tokens[place + 1].is(word)));
    let own = |word: &&str| labels.contains(word) && !BETWEEN.contains(word);
    let label = clause.tokens[at..from].iter().filter_map(GoalToken::word).rfind(own);
    let label = label.or_else(|| clause.tokens[at].word()).unwrap_or_default();
    let phrase = skipped.iter().filter_map(GoalToken::word).filter(|word| !own(word)).collect::<Vec<_>>().join(" ");
    let known = |(words, phrases): &(&[&str], &[&str])| words.contains(&label) && phrases.contains(&phrase.as_str());
    let article = matches!(phrase.as_str(), "the" | "a" | "an") && lexicon::is_small(label);
    let twofold = clause.tokens[at].is("that") && from > at + 1;
    if stray || again || twofold || !(phrase.is_empty() || article || PHRASES.iter().any(known)) {
        return None;
    }
    (at + 1..=from).all(|place| !clause.is_used(place)).then_some(from)
}

/// Whether a word can be a name and is complete.
fn is_name(clause: &Clause, place: usize) -> bool {
    let Some(word) = clause.tokens[place].word() else { return false };
    let ends = |token: &GoalToken| match token.word() {
        Some(next) => {
            next == "and" || lexicon::is_preposition(next) || lexicon::is_label(next) || lexicon::is_courtesy(next)
        }
        None => token.is_mark(),
    };
    let small = lexicon::is_small(word)
        || lexicon::is_never_a_name(word)
        || lexicon::is_condition(word)
        || lexicon::is_label(word);
    !small && clause.tokens.get(place + 1).is_none_or(ends)
}

/// Whether an input holds a person's name.
fn is_person(slot: &Slot<'_>) -> bool {
    matches!(slot.name, "assignee" | "assignees")
}

/// `the team` is not a person's name.
fn has_article(clause: &Clause, place: usize) -> bool {
    place.checked_sub(1).and_then(|before| clause.tokens[before].word()).is_some_and(lexicon::is_determiner)
}

/// A value in front of its label: `the reports bucket`, `the ops channel`.
fn value_before(slot: &Slot<'_>, clause: &Clause, at: usize) -> Option<(Value, usize)> {
    let place = at.checked_sub(1).filter(|_| matches!(slot.name, "bucket" | "channel_alias"))?;
    let token = &clause.tokens[place];
    let word = token.word().filter(|_| !clause.is_used(place))?;
    let articled = has_article(clause, place);
    let small = lexicon::is_determiner(word)
        || lexicon::is_preposition(word)
        || lexicon::is_thing(word)
        || lexicon::is_condition(word);
    (!small && articled && lexicon::acts(word).is_empty()).then(|| (Value::from(token.text.as_str()), place))
}

/// Values separated by commas and `and`.
fn list_values(slot: &Slot<'_>, clause: &Clause, from: usize, fits: &dyn Fn(usize) -> bool) -> LabelledValue {
    let mut places = vec![from];
    let mut at = from + 1;
    loop {
        let joins = |t: &GoalToken| t.is("and") || t.kind == TokenKind::Mark(',');
        let next = (at..clause.tokens.len()).find(|next| !joins(&clause.tokens[*next]));
        // A comma, `and`, or both in this order.
        let joined = |next: usize| match &clause.tokens[at..next] {
            [one] => one.glued == one.is_mark(),
            [comma, and] => comma.is_mark() && comma.glued && and.is("and"),
            _ => false,
        };
        match next {
            Some(next) if joined(next) && fits(next) && !clause.is_used(next) => {
                places.push(next);
                at = next + 1;
            }
            _ => break,
        }
    }
    let values = places.iter().map(|place| clause.tokens[*place].text.clone()).collect();
    slot.list(values).map(|value| (value, places))
}

//! How long the patterns of a schema may take on a value, computed before any of them runs.
//!
//! The engine is linear in the text, but each byte may visit every state of a pattern's automaton: `[a-z]{1800}` is
//! short and has 1,800. So the unit is one byte of text times one state, for every time that a pattern is applied. The
//! walk follows the schema like a validator that never stops early.

use crate::json::schema::cost::Subschema;
use crate::limits::{PATTERN_BYTES_MAX, PATTERN_STATE_BYTES_MIN};
use regex_syntax::hir::{Class, Hir, HirKind, Repetition};
use serde_json::Value;

/// States before and after those of the pattern itself: the search for its start, and the match.
const STATES_AROUND: u64 = 3;
/// A member name is matched by `patternProperties`, and again to find out what is left to `additionalProperties`.
const MATCHES_PER_NAME: u64 = 2;

/// The states of a pattern's automaton that one byte of text may visit.
pub(super) fn states(pattern: &str) -> u64 {
    match regex_syntax::parse(pattern) {
        Ok(hir) => states_of(&hir).saturating_add(STATES_AROUND),
        // Some patterns of JSON Schema are rewritten before they are compiled. No automaton has more states than fit.
        Err(_) => (PATTERN_BYTES_MAX / PATTERN_STATE_BYTES_MIN) as u64,
    }
}

/// The parser limits how deep an expression is.
fn states_of(hir: &Hir) -> u64 {
    let sum = |parts: &[Hir]| parts.iter().map(states_of).fold(0, u64::saturating_add);
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len() as u64,
        // Of the states of a class, one text is in one at a time, and a character has up to four bytes.
        HirKind::Class(Class::Bytes(_)) => 1,
        HirKind::Class(Class::Unicode(class)) => class.maximum_len().unwrap_or(1) as u64,
        HirKind::Repetition(Repetition { min, max, sub, .. }) => {
            let copies = u64::from(max.unwrap_or(*min).max(*min).max(1));
            copies.saturating_mul(states_of(sub).saturating_add(1))
        }
        HirKind::Capture(capture) => states_of(&capture.sub).saturating_add(2),
        HirKind::Concat(parts) => sum(parts),
        HirKind::Alternation(parts) => sum(parts).saturating_add(1),
    }
}

/// A subschema, and how often it is applied to one value.
#[derive(Clone, Copy)]
struct Applied<'a> {
    part: &'a Subschema,
    times: u64,
}

/// The subschemas of a schema with patterns.
#[derive(Debug)]
pub(super) struct PatternWork {
    parts: Vec<Subschema>,
    /// Whether a pattern may be applied by the subschema or anything that it leads to.
    leads_to_pattern: Vec<bool>,
}

impl PatternWork {
    pub(super) fn new(parts: Vec<Subschema>) -> Self {
        let mut leads_to_pattern: Vec<bool> = parts.iter().map(Subschema::has_pattern).collect();
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); parts.len()];
        for (at, part) in parts.iter().enumerate() {
            part.below().for_each(|below| users[below].push(at));
        }
        let mut found: Vec<usize> = (0..parts.len()).filter(|at| leads_to_pattern[*at]).collect();
        while let Some(below) = found.pop() {
            for user in &users[below] {
                if !std::mem::replace(&mut leads_to_pattern[*user], true) {
                    found.push(*user);
                }
            }
        }
        Self { parts, leads_to_pattern }
    }

    /// Bytes of text times the states of the patterns that are applied to them; more than `max` is not counted to its
    /// end.
    pub(super) fn on(&self, value: &Value, max: u64) -> u64 {
        let mut count = Count { spent: 0, max };
        self.visit(0, value, 1, &mut count);
        count.spent
    }

    fn visit(&self, at: usize, value: &Value, times: u64, count: &mut Count) {
        if !self.leads_to_pattern[at] || count.is_over() {
            return;
        }
        for (part, times) in self.same_location(at, times) {
            let applied = Applied { part: &self.parts[part], times };
            match value {
                Value::String(text) => count.add(times, applied.part.pattern_states, text),
                Value::Array(items) => self.visit_items(applied, items, count),
                Value::Object(members) => {
                    for (name, value) in members {
                        let matches = times.saturating_mul(MATCHES_PER_NAME);
                        count.add(matches, applied.part.member_pattern_states, name);
                        self.visit_member(applied, name, value, count);
                    }
                }
                _ => {}
            }
        }
    }

    fn visit_items(&self, applied: Applied<'_>, items: &[Value], count: &mut Count) {
        let Applied { part, times } = applied;
        for (n, item) in items.iter().enumerate() {
            for below in part.items.iter().chain(part.tuple.get(n)) {
                self.visit(*below, item, times, count);
            }
        }
    }

    fn visit_member(&self, applied: Applied<'_>, name: &str, value: &Value, count: &mut Count) {
        let Applied { part, times } = applied;
        for below in &part.names {
            for (part, times) in self.same_location(*below, times) {
                count.add(times, self.parts[part].pattern_states, name);
            }
        }
        let named = part.named.binary_search_by(|(known, _)| known.as_str().cmp(name));
        let own = named.map_or(part.rest, |at| Some(part.named[at].1));
        for below in part.members.iter().copied().chain(own) {
            self.visit(below, value, times, count);
        }
    }

    /// The subschemas with patterns that apply where this one does, including itself, and how often. A schema has few
    /// at one location, or it is rejected.
    fn same_location(&self, at: usize, times: u64) -> Vec<(usize, u64)> {
        let mut found = Vec::new();
        let mut open = vec![(at, times)];
        while let Some((at, times)) = open.pop() {
            if self.leads_to_pattern[at] {
                let part = &self.parts[at];
                let times = if part.reevaluates { times.saturating_mul(2) } else { times };
                open.extend(part.same_location.iter().map(|below| (*below, times)));
                found.push((at, times));
            }
        }
        found
    }
}

struct Count {
    spent: u64,
    max: u64,
}

impl Count {
    const fn is_over(&self) -> bool {
        self.spent > self.max
    }

    fn add(&mut self, times: u64, states: u64, text: &str) {
        let work = times.saturating_mul(states).saturating_mul(text.len() as u64);
        self.spent = self.spent.saturating_add(work);
    }
}

#[cfg(test)]
mod tests {
    use super::super::cost;
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn work(document: &Value, value: &Value) -> u64 {
        cost::estimate(document).unwrap().pattern_work.map_or(0, |work| work.on(value, u64::MAX))
    }

    #[test]
    fn a_pattern_has_as_many_states_as_its_repetitions_make() {
        for (pattern, least, most) in [
            ("^[a-z]+$", 3, 10),
            ("[a-q][a-t]{1800}[u-z0-9A-Z]", 1_802, 4_000),
            ("(?:(?:ab){1,30}){40}", 2_400, 6_000),
            ("(?x) ( [ab] c ) { 500 }", 1_000, 3_000),
            ("(a|bc|def){10,}", 60, 150),
            ("\\p{L}{5}", 20, 40),
        ] {
            let states = states(pattern);
            assert!((least..=most).contains(&states), "{pattern}: {states}");
        }
        assert_eq!(states("(?<=a)b"), (PATTERN_BYTES_MAX / PATTERN_STATE_BYTES_MIN) as u64, "not understood");
    }

    #[test]
    fn a_pattern_counts_each_time_that_it_is_applied_and_only_where_it_is() {
        let text = "a".repeat(1_000);
        let one = work(&json!({"properties": {"a": {"pattern": "^b$"}}}), &json!({"a": text, "other": text}));
        assert_eq!(one, 1_000 * states("^b$"), "not for other members");
        let refs: Vec<Value> = (0..20).map(|_| json!({"$ref": "#/$defs/p"})).collect();
        let shared = json!({"$defs": {"p": {"pattern": "^b$"}}, "properties": {"a": {"anyOf": refs}}});
        assert_eq!(work(&shared, &json!({"a": text})), 20 * one);
        let names = json!({"propertyNames": {"pattern": "^b$"}, "patternProperties": {"^b$": {}}});
        assert_eq!(work(&names, &json!({text: 1})), 3 * one);
    }

    fn schema() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            "[ab]{1,3}[cd]{0,2}".prop_map(|pattern| json!({"pattern": pattern})),
            Just(json!({"$ref": "#/$defs/d"})),
            Just(json!({"type": "string"})),
            Just(json!(true)),
        ];
        leaf.prop_recursive(4, 24, 3, |below| {
            let many = proptest::collection::vec(below.clone(), 1..3);
            prop_oneof![
                (prop_oneof![Just("allOf"), Just("anyOf"), Just("oneOf")], many.clone())
                    .prop_map(|(word, parts)| json!({word: parts})),
                (below.clone(), below.clone())
                    .prop_map(|(own, rest)| json!({"properties": {"a": own}, "additionalProperties": rest})),
                (below.clone(), below.clone())
                    .prop_map(|(names, by)| json!({"propertyNames": names, "patternProperties": {"^[ab]{2}": by}})),
                (many, below.clone()).prop_map(|(tuple, rest)| json!({"prefixItems": tuple, "items": rest})),
                (below.clone(), below.clone(), below)
                    .prop_map(|(test, yes, no)| json!({"if": test, "then": yes, "else": {"not": no}})),
            ]
        })
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof!["[abcd]{0,12}".prop_map(Value::from), Just(json!(1))];
        leaf.prop_recursive(4, 24, 4, |below| {
            prop_oneof![
                proptest::collection::vec(below.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[ab]{1,3}", below, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// The work that a validator does which applies what the document says, word by word.
    fn applied(root: &Value, schema: &Value, value: &Value) -> u64 {
        let Value::Object(words) = schema else { return 0 };
        let each = |word: &str, value: &Value| -> u64 {
            let parts = words.get(word).and_then(Value::as_array);
            parts.map_or(0, |parts| parts.iter().map(|part| applied(root, part, value)).sum())
        };
        let one = |word: &str, value: &Value| words.get(word).map_or(0, |part| applied(root, part, value));
        let cost = |pattern: &str, text: &str| states(pattern) * text.len() as u64;
        let mut work: u64 = ["allOf", "anyOf", "oneOf"].map(|word| each(word, value)).iter().sum();
        work += ["if", "then", "else", "not"].map(|word| one(word, value)).iter().sum::<u64>();
        if words.contains_key("$ref") {
            work += applied(root, &root["$defs"]["d"], value);
        }
        match value {
            Value::String(text) => work += words.get("pattern").map_or(0, |p| cost(p.as_str().unwrap(), text)),
            Value::Array(items) => {
                let tuple = words.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                for (n, item) in items.iter().enumerate() {
                    work += match tuple.get(n) {
                        Some(part) => applied(root, part, item),
                        None => one("items", item),
                    };
                }
            }
            Value::Object(members) => {
                for (name, value) in members {
                    work += one("propertyNames", &json!(name));
                    match words.get("properties").and_then(|by| by.get(name)) {
                        Some(part) => work += applied(root, part, value),
                        None => work += one("additionalProperties", value),
                    }
                    for (pattern, part) in
                        words.get("patternProperties").and_then(Value::as_object).into_iter().flatten()
                    {
                        work += cost(pattern, name);
                        if name.starts_with(['a', 'b']) && name.len() >= 2 {
                            work += applied(root, part, value);
                        }
                    }
                }
            }
            _ => {}
        }
        work
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn no_validation_does_more_work_than_was_counted(root in schema(), shared in "[ab]{1,4}", value in value()) {
            let mut document = json!({"$defs": {"d": {"pattern": shared, "items": {"pattern": shared}}}});
            document["allOf"] = json!([root]);
            if let Ok(cost) = cost::estimate(&document) {
                let counted = cost.pattern_work.map_or(0, |work| work.on(&value, u64::MAX));
                let measured = applied(&document, &document, &value);
                prop_assert!(counted >= measured, "{counted} < {measured}: {document} {value}");
            }
        }
    }
}

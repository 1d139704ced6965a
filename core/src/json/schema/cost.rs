//! The cost of a schema, computed before it is compiled: how many subschemas may apply to one location of a value.
//!
//! A schema of a few lines can keep a validator busy for hours: each definition refers twice to the previous one, or
//! a recursive one recurs in two ways. The document size says nothing, so subschemas are counted after expansion,
//! without expanding anything. Subschemas that apply to the same location (`allOf`, `$ref`, …) form a graph that must
//! be acyclic. What applies one level down is followed level by level, to the maximum depth of a value.

use super::InvalidSchema;
use super::pattern::{self, PatternWork};
use crate::limits::{JSON_DEPTH_MAX, SCHEMA_APPLIED_MAX, SCHEMA_NODES_MAX, SCHEMA_PATTERNS_MAX, SCHEMA_STEPS_MAX};
use serde_json::{Map, Value};
use std::cell::Cell;
use std::collections::BTreeMap;

/// Keywords with one schema that applies to the same location.
const SAME_LOCATION: [&str; 4] = ["not", "if", "then", "else"];
/// Keywords with a list of such schemas.
const SAME_LOCATION_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords with such schemas by name.
const SAME_LOCATION_NAMED: [&str; 2] = ["dependentSchemas", "dependencies"];
/// Keywords whose schema applies to every member of an object.
const MEMBERS: [&str; 2] = ["unevaluatedProperties", "propertyNames"];
/// Keywords whose schema applies to every item of a list.
const ITEMS: [&str; 4] = ["items", "additionalItems", "unevaluatedItems", "contains"];
/// Keywords that re-evaluate what adjacent keywords applied.
const UNEVALUATED: [&str; 2] = ["unevaluatedProperties", "unevaluatedItems"];
/// Keywords that only hold definitions.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];
/// Reference keywords.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Names and scalar values that are compared in the time of one subschema.
const SCALARS_PER_SUBSCHEMA: usize = 16;

#[derive(Debug)]
pub(super) struct Cost<'a> {
    /// Maximum number of subschemas that may apply to one location.
    pub(super) applied_max: u64,
    pub(super) patterns: Vec<&'a str>,
    /// What the patterns may take, if there are any.
    pub(super) pattern_work: Option<PatternWork>,
}

/// A subschema.
#[derive(Debug, Default)]
pub(super) struct Subschema {
    /// Its own cost.
    weight: u64,
    /// States of its `pattern`.
    pub(super) pattern_states: u64,
    /// States of the patterns for names of members.
    pub(super) member_pattern_states: u64,
    /// Subschemas that apply to the same location.
    pub(super) same_location: Vec<usize>,
    /// Subschemas for every member of an object.
    pub(super) members: Vec<usize>,
    /// Those of them that apply to the name.
    pub(super) names: Vec<usize>,
    /// Subschema for members without one of their own.
    pub(super) rest: Option<usize>,
    /// Subschemas for the member of this name, in the order of names.
    pub(super) named: Vec<(String, usize)>,
    /// Subschemas for every item of a list.
    pub(super) items: Vec<usize>,
    /// Subschemas for one item each.
    pub(super) tuple: Vec<usize>,
    /// Re-evaluates what adjacent keywords applied.
    pub(super) reevaluates: bool,
}

impl Subschema {
    pub(super) const fn has_pattern(&self) -> bool {
        self.pattern_states > 0 || self.member_pattern_states > 0
    }

    /// The subschemas that it applies, there or further down.
    pub(super) fn below(&self) -> impl Iterator<Item = usize> {
        let named = self.named.iter().map(|(_, below)| below);
        let lists = [&self.same_location, &self.members, &self.items, &self.tuple].into_iter().flatten();
        lists.chain(&self.rest).chain(named).copied()
    }
}

/// Computes the cost of `document`. Rejects schemas with too many subschemas per location, unresolvable or external
/// references, and reference cycles at one location.
pub(super) fn estimate(document: &Value) -> Result<Cost<'_>, InvalidSchema> {
    let mut parts = Subschemas { root: document, known: BTreeMap::new(), all: Vec::new(), patterns: Vec::new() };
    parts.add(document)?;
    let left = Cell::new(SCHEMA_STEPS_MAX);
    let closures = closures(&parts.all, &left)?;
    let applied_max = max_applied(&parts.all, &closures, &left)?;
    let Subschemas { patterns, all, .. } = parts;
    let pattern_work = (!patterns.is_empty()).then(|| PatternWork::new(all));
    Ok(Cost { applied_max, patterns, pattern_work })
}

/// Bounds the work of counting itself.
fn spend_steps(left: &Cell<usize>, steps: usize) -> Result<(), InvalidSchema> {
    let Some(rest) = left.get().checked_sub(steps) else { return reject("its references are too complex") };
    left.set(rest);
    Ok(())
}

fn reject<T>(reason: impl Into<String>) -> Result<T, InvalidSchema> {
    Err(InvalidSchema { reason: reason.into() })
}

fn reject_too_many<T>() -> Result<T, InvalidSchema> {
    reject(format!("more than {SCHEMA_APPLIED_MAX} of its subschemas may apply to one location of a value"))
}

struct Subschemas<'a> {
    root: &'a Value,
    /// Index of each subschema, by its address in the document.
    known: BTreeMap<usize, usize>,
    all: Vec<Subschema>,
    patterns: Vec<&'a str>,
}

impl<'a> Subschemas<'a> {
    /// Adds a subschema and everything reachable from it; returns its index.
    fn add(&mut self, schema: &'a Value) -> Result<usize, InvalidSchema> {
        let mut waiting = vec![schema];
        let first = self.number(schema)?.0;
        while let Some(schema) = waiting.pop() {
            let (at, _) = self.number(schema)?;
            let Value::Object(members) = schema else { continue };
            let mut part = self.part(schema, members, &mut waiting)?;
            part.weight = weight(members);
            self.all[at] = part;
        }
        Ok(first)
    }

    fn number(&mut self, schema: &'a Value) -> Result<(usize, bool), InvalidSchema> {
        let address = std::ptr::from_ref(schema).addr();
        if let Some(at) = self.known.get(&address) {
            return Ok((*at, false));
        }
        if self.all.len() >= SCHEMA_NODES_MAX {
            return reject(format!("it has more than {SCHEMA_NODES_MAX} subschemas"));
        }
        let at = self.all.len();
        self.all.push(Subschema { weight: 1, ..Subschema::default() });
        self.known.insert(address, at);
        Ok((at, true))
    }

    fn part(
        &mut self,
        schema: &'a Value,
        members: &'a Map<String, Value>,
        waiting: &mut Vec<&'a Value>,
    ) -> Result<Subschema, InvalidSchema> {
        let mut part = Subschema {
            reevaluates: UNEVALUATED.iter().any(|word| members.contains_key(*word)),
            ..Subschema::default()
        };
        let is_root = std::ptr::eq(schema, self.root);
        if !is_root && members.get("$id").is_some_and(Value::is_string) {
            return reject("\"$id\" may stand at its top only");
        }
        for (word, value) in members {
            let mut meet = |parts: &mut Self, schema: &'a Value| -> Result<usize, InvalidSchema> {
                let (at, is_new) = parts.number(schema)?;
                if is_new {
                    waiting.push(schema);
                }
                Ok(at)
            };
            match (word.as_str(), value) {
                (word, Value::String(to)) if REFERENCES.contains(&word) => {
                    let target = self.target(to)?;
                    part.same_location.push(meet(self, target)?);
                }
                (word, _) if SAME_LOCATION.contains(&word) => part.same_location.push(meet(self, value)?),
                (word, Value::Array(items)) if SAME_LOCATION_LISTS.contains(&word) => {
                    for item in items {
                        part.same_location.push(meet(self, item)?);
                    }
                }
                (word, Value::Object(by_name)) if SAME_LOCATION_NAMED.contains(&word) => {
                    for schema in by_name.values() {
                        part.same_location.push(meet(self, schema)?);
                    }
                }
                ("prefixItems" | "items", Value::Array(items)) => {
                    for item in items {
                        part.tuple.push(meet(self, item)?);
                    }
                }
                ("additionalProperties", _) => part.rest = Some(meet(self, value)?),
                (word, _) if MEMBERS.contains(&word) => {
                    let below = meet(self, value)?;
                    part.members.push(below);
                    part.names.extend((word == "propertyNames").then_some(below));
                }
                (word, _) if ITEMS.contains(&word) => part.items.push(meet(self, value)?),
                ("properties", Value::Object(by_name)) => {
                    for (name, schema) in by_name {
                        part.named.push((name.clone(), meet(self, schema)?));
                    }
                    part.named.sort_unstable();
                }
                ("patternProperties", Value::Object(by_pattern)) => {
                    for (pattern, schema) in by_pattern {
                        part.members.push(meet(self, schema)?);
                        part.member_pattern_states += self.add_pattern(pattern)?;
                    }
                }
                ("pattern", Value::String(pattern)) => part.pattern_states = self.add_pattern(pattern)?,
                (word, Value::Object(by_name)) if DEFINITIONS.contains(&word) => {
                    for schema in by_name.values() {
                        meet(self, schema)?;
                    }
                }
                _ => {}
            }
        }
        Ok(part)
    }

    /// Adds a pattern; returns the states that a byte of text may visit.
    fn add_pattern(&mut self, pattern: &'a str) -> Result<u64, InvalidSchema> {
        if self.patterns.len() >= SCHEMA_PATTERNS_MAX {
            return reject(format!("it has more than {SCHEMA_PATTERNS_MAX} patterns"));
        }
        self.patterns.push(pattern);
        Ok(pattern::states(pattern))
    }

    /// Resolves a reference.
    fn target(&self, to: &str) -> Result<&'a Value, InvalidSchema> {
        let Some(place) = to.strip_prefix('#') else {
            let reason =
                format!("{to:?} refers to another document; only references such as \"#/$defs/x\" are supported");
            return reject(reason);
        };
        let found = match place {
            "" => Some(self.root),
            pointer if pointer.starts_with('/') => self.root.pointer(&decoded(pointer)),
            anchor => anchored(self.root, anchor),
        };
        found.map_or_else(|| reject(format!("{to:?} does not resolve")), Ok)
    }
}

/// The cost of a subschema itself: names that it looks up and values that it compares.
fn weight(members: &Map<String, Value>) -> u64 {
    let names = ["properties", "patternProperties", "dependentSchemas", "dependentRequired", "dependencies"];
    let names = names.iter().filter_map(|word| members.get(*word)?.as_object()).map(Map::len).sum::<usize>();
    let required = members.get("required").and_then(Value::as_array).map_or(0, Vec::len);
    let values = members.get("enum").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let (whole, plain): (Vec<&Value>, Vec<&Value>) =
        values.iter().chain(members.get("const")).partition(|value| value.is_object() || value.is_array());
    let whole: u64 = whole.into_iter().map(super::count_values).sum();
    let plain = (names + required + plain.len()) / SCALARS_PER_SUBSCHEMA;
    1 + whole + plain as u64
}

/// Decodes a pointer in a reference, which is percent-encoded.
fn decoded(pointer: &str) -> String {
    let mut bytes = Vec::with_capacity(pointer.len());
    let mut rest = pointer.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).filter(|_| *first == b'%').and_then(|pair| std::str::from_utf8(pair).ok());
        match hex.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Finds the subschema with this anchor.
fn anchored<'a>(schema: &'a Value, anchor: &str) -> Option<&'a Value> {
    match schema {
        Value::Object(members) => {
            let is = |word: &str| members.get(word).and_then(Value::as_str) == Some(anchor);
            if is("$anchor") || is("$dynamicAnchor") {
                return Some(schema);
            }
            members.values().find_map(|value| anchored(value, anchor))
        }
        Value::Array(items) => items.iter().find_map(|item| anchored(item, anchor)),
        _ => None,
    }
}

/// All subschemas that apply where a given one does, including itself, with their multiplicity.
type Closure = BTreeMap<usize, u64>;

/// The closures of all subschemas. No closure may contain itself or be deeper than a value: a validator recurses into
/// each.
fn closures(parts: &[Subschema], left: &Cell<usize>) -> Result<Vec<Closure>, InvalidSchema> {
    let mut done: Vec<Option<(Closure, usize)>> = (0..parts.len()).map(|_| None).collect();
    for start in 0..parts.len() {
        let mut path = vec![(start, 0)];
        while let Some((at, next)) = path.pop() {
            if done[at].is_some() {
                continue;
            }
            if let Some(&below) = parts[at].same_location.get(next) {
                path.push((at, next + 1));
                if path.iter().any(|(open, _)| *open == below) {
                    return reject("a subschema refers to itself without descending into the value");
                }
                if path.len() > JSON_DEPTH_MAX {
                    return reject(format!("more than {JSON_DEPTH_MAX} of its subschemas are nested"));
                }
                path.push((below, 0));
                continue;
            }
            done[at] = Some(closure_of(at, parts, &done, left)?);
        }
    }
    Ok(done.into_iter().map(|closure| closure.map(|(closure, _)| closure).unwrap_or_default()).collect())
}

fn closure_of(
    at: usize,
    parts: &[Subschema],
    done: &[Option<(Closure, usize)>],
    left: &Cell<usize>,
) -> Result<(Closure, usize), InvalidSchema> {
    let part = &parts[at];
    let (mut closure, mut depth) = (Closure::from([(at, 1)]), 1);
    for below in &part.same_location {
        let Some((inner, inner_depth)) = &done[*below] else { continue };
        depth = depth.max(inner_depth + 1);
        spend_steps(left, inner.len() + 1)?;
        for (part, times) in inner {
            let known = closure.entry(*part).or_default();
            *known = known.saturating_add(*times);
        }
    }
    if part.reevaluates {
        closure.values_mut().for_each(|times| *times = times.saturating_mul(2));
    }
    if depth > JSON_DEPTH_MAX {
        return reject(format!("more than {JSON_DEPTH_MAX} of its subschemas are nested"));
    }
    if location_cost(parts, &closure) > SCHEMA_APPLIED_MAX { reject_too_many() } else { Ok((closure, depth)) }
}

/// The total cost of the subschemas that apply to one location.
fn location_cost(parts: &[Subschema], closure: &Closure) -> u64 {
    let each = closure.iter().map(|(part, times)| times.saturating_mul(parts[*part].weight));
    each.fold(0, u64::saturating_add)
}

/// Maximum number of subschemas that apply to one location at any depth.
fn max_applied(parts: &[Subschema], closures: &[Closure], left: &Cell<usize>) -> Result<u64, InvalidSchema> {
    let here: Vec<u64> = closures.iter().map(|closure| location_cost(parts, closure)).collect();
    let (mut most, mut deeper) = (here.clone(), here);
    for _ in 0..JSON_DEPTH_MAX {
        let mut next = Vec::with_capacity(closures.len());
        for closure in closures {
            next.push(max_applied_below(parts, closure, &deeper, left)?);
        }
        if next.iter().any(|applied| *applied > SCHEMA_APPLIED_MAX) {
            return reject_too_many();
        }
        let mut grown = false;
        for (most, next) in most.iter_mut().zip(&next) {
            grown |= next > most;
            *most = (*most).max(*next);
        }
        if next == deeper || (!grown && next.iter().all(|applied| *applied == 0)) {
            break;
        }
        deeper = next;
    }
    Ok(most.first().copied().unwrap_or(1))
}

/// Maximum number of subschemas that apply one level below this closure, over all members and items.
fn max_applied_below(
    parts: &[Subschema],
    closure: &Closure,
    deeper: &[u64],
    left: &Cell<usize>,
) -> Result<u64, InvalidSchema> {
    let (mut items, mut members, mut by_name) = (0u64, 0u64, BTreeMap::<&str, (u64, u64)>::new());
    for (part, times) in closure {
        let part = &parts[*part];
        spend_steps(left, 1 + part.items.len() + part.members.len() + part.named.len() + part.tuple.len())?;
        let cost = |below: &usize| times.saturating_mul(deeper[*below]);
        let sum = |all: &[usize]| all.iter().map(cost).fold(0, u64::saturating_add);
        let largest = part.tuple.iter().map(cost).max().unwrap_or(0);
        items = items.saturating_add(sum(&part.items)).saturating_add(largest);
        let rest = part.rest.as_ref().map_or(0, cost);
        members = members.saturating_add(sum(&part.members)).saturating_add(rest);
        for (name, below) in &part.named {
            // `additionalProperties` does not apply to named members.
            let (own, instead_of) = by_name.entry(name).or_default();
            *own = own.saturating_add(cost(below));
            *instead_of = instead_of.saturating_add(rest);
        }
    }
    let named = by_name.into_values().map(|(own, instead_of)| members.saturating_sub(instead_of).saturating_add(own));
    Ok(items.max(members).max(named.max().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn doubling(levels: usize, wrap: impl Fn(Value) -> Value) -> Value {
        let mut defs = Map::from_iter([("d0".to_owned(), json!({"type": "string"}))]);
        for level in 1..=levels {
            let below = json!({"$ref": format!("#/$defs/d{}", level - 1)});
            defs.insert(format!("d{level}"), wrap(below));
        }
        json!({"$ref": format!("#/$defs/d{levels}"), "$defs": defs})
    }

    fn reason(document: &Value) -> String {
        estimate(document).unwrap_err().reason
    }

    #[test]
    fn references_that_double_at_each_level_are_refused_however_short_the_document_is() {
        for word in ["allOf", "anyOf", "oneOf"] {
            let bomb = doubling(26, |below| json!({word: [below.clone(), below]}));
            assert!(reason(&bomb).contains("may apply to one location"), "{word}");
        }
        let below = doubling(26, |below| json!({"properties": {"a": below}, "additionalProperties": below}));
        assert_eq!(estimate(&below).unwrap().applied_max, 2, "a member has one of them");
        let below = doubling(20, |below| json!({"patternProperties": {"a": below, "b": below}}));
        assert!(reason(&below).contains("may apply to one location"));
        let items = doubling(26, |below| json!({"items": below, "contains": below}));
        assert!(reason(&items).contains("may apply to one location"));
    }

    #[test]
    fn a_recursive_schema_may_come_back_in_one_way_for_each_name() {
        let tree = json!({
            "$defs": {"tree": {"properties": {"left": {"$ref": "#/$defs/tree"}, "right": {"$ref": "#/$defs/tree"}}}},
            "$ref": "#/$defs/tree",
        });
        assert_eq!(estimate(&tree).unwrap().applied_max, 2);
        let twice = json!({
            "$defs": {"t": {"anyOf": [
                {"properties": {"c": {"$ref": "#/$defs/t"}}}, {"properties": {"c": {"$ref": "#/$defs/t"}}},
            ]}},
            "$ref": "#/$defs/t",
        });
        assert!(reason(&twice).contains("may apply to one location"));
        let anchored =
            json!({"$dynamicAnchor": "n", "items": {"$dynamicRef": "#n"}, "additionalProperties": {"$ref": "#"}});
        assert_eq!(estimate(&anchored).unwrap().applied_max, 2);
        let tuple: Vec<Value> = (0..300).map(|n| json!({"const": n})).collect();
        assert_eq!(estimate(&json!({"prefixItems": tuple, "items": false})).unwrap().applied_max, 2);
    }

    #[test]
    fn a_part_that_refers_to_itself_at_the_same_place_is_refused() {
        for cycle in [
            json!({"$ref": "#"}),
            json!({"allOf": [{"$ref": "#"}]}),
            json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"not": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}),
        ] {
            assert!(reason(&cycle).contains("refers to itself"), "{cycle}");
        }
        assert!(reason(&doubling(100, |below| below)).contains("are nested"));
    }

    #[test]
    fn references_out_of_the_document_or_to_nothing_are_refused() {
        assert!(reason(&json!({"$ref": "other.json"})).contains("another document"));
        assert!(reason(&json!({"$ref": "#/$defs/x"})).contains("does not resolve"));
        assert!(reason(&json!({"$ref": "#x"})).contains("does not resolve"));
        assert!(reason(&json!({"properties": {"a": {"$id": "x"}}})).contains("$id"));
        assert!(estimate(&json!({"properties": {"$id": {"type": "string"}}})).is_ok(), "a member of that name");
        assert!(estimate(&json!({"const": {"$ref": "other.json"}, "enum": [{"$ref": "#/no"}]})).is_ok(), "data");
        let escaped = json!({"$defs": {"a/b c": {"type": "string"}}, "$ref": "#/$defs/a~1b%20c"});
        assert_eq!(estimate(&escaped).unwrap().applied_max, 2);
    }

    #[test]
    fn ordinary_schemas_cost_what_stands_in_them() {
        assert_eq!(estimate(&json!({})).unwrap().applied_max, 1);
        assert_eq!(estimate(&json!(true)).unwrap().applied_max, 1);
        let variants: Vec<Value> = (0..200).map(|n| json!({"properties": {"kind": {"const": n}}})).collect();
        assert_eq!(estimate(&json!({"oneOf": variants})).unwrap().applied_max, 201);
        let patterns: Map<String, Value> = (0..51).map(|n| (format!("^{n}$"), json!({}))).collect();
        assert!(reason(&json!({"patternProperties": patterns})).contains("patterns"));
    }

    #[test]
    fn what_takes_long_by_itself_counts_as_many_parts() {
        let lists: Vec<Value> = (0..2_000).map(|n| json!([n])).collect();
        assert!(reason(&json!({"items": {"enum": lists}})).contains("may apply to one location"));
        let words: Vec<String> = (0..2_000).map(|n| format!("word {n}")).collect();
        assert_eq!(
            estimate(&json!({"items": {"enum": words}})).unwrap().applied_max,
            126,
            "plain values are quickly compared"
        );
        let names: Map<String, Value> = (0..4_800).map(|n| (format!("n{n}"), json!(true))).collect();
        assert_eq!(estimate(&json!({"items": {"properties": names}})).unwrap().applied_max, 301);
    }

    /// Each of many parts refers to one with many members, and a long cycle keeps the count from settling.
    #[test]
    fn counting_itself_takes_no_longer_than_it_may() {
        let wide: Map<String, Value> = (0..800).map(|n| (format!("n{n}"), json!({"$ref": "#/$defs/l0"}))).collect();
        let mut defs = Map::from_iter([("wide".to_owned(), json!({"properties": wide}))]);
        for link in 0..58 {
            let next = json!({"$ref": format!("#/$defs/l{}", (link + 1) % 58)});
            defs.insert(format!("l{link}"), json!({"properties": {"x": next}}));
        }
        let many = (0..800).map(|n| (format!("m{n}"), json!({"$ref": "#/$defs/wide"})));
        let entangled = json!({"$defs": defs, "properties": Map::from_iter(many)});
        assert!(reason(&entangled).contains("too complex"));
    }
}

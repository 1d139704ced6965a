//! Evaluates terms directly on the run's JSON.
//!
//! Values are borrowed until a new one must be built. Every term and every copied piece is charged
//! to a budget, so no expression can run long or grow large, whatever its data.
//! "Not known yet" propagates like an error but is not one: `false && unknown` is false.

use crate::limits::EXPRESSION_LIST_MAX;
use crate::meter::WorkMeter;
use crate::operators::{as_integer, integer_value, operate, type_name};
use crate::scope::{Lookup, Scope};
use crate::term::{Macro, Root, Step, Term};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::cell::Cell;

/// Why a template could not be rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("${{{expression}}}: {reason}")]
pub struct RenderError {
    /// The source text of the expression.
    pub expression: String,
    pub reason: String,
}

/// Why an evaluation ended without a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// It depends on outputs or on a map's list that are not known yet.
    Unknown,
    Fault(String),
}

impl From<String> for Halt {
    fn from(reason: String) -> Self {
        Self::Fault(reason)
    }
}

/// The work that one rendering may still do. On drop, the work done is charged to the meter.
pub(crate) struct Budget<'a> {
    allowed: u64,
    left: Cell<u64>,
    meter: &'a WorkMeter,
}

impl Drop for Budget<'_> {
    fn drop(&mut self) {
        self.meter.charge(self.allowed.saturating_sub(self.left.get()));
    }
}

impl<'a> Budget<'a> {
    pub(crate) fn of(scope: &'a dyn Scope) -> Self {
        let meter = scope.meter();
        let allowed = meter.allowance();
        Self { allowed, left: Cell::new(allowed), meter }
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.left.get() == 0
    }

    fn spend(&self, work: u64) -> Result<(), String> {
        let left = self.left.get().checked_sub(work);
        self.left.set(left.unwrap_or(0));
        left.map(drop).ok_or_else(|| "the expression takes too much work".to_owned())
    }

    /// Charges for copying a text.
    pub(crate) fn spend_bytes(&self, bytes: usize) -> Result<(), String> {
        self.spend(bytes as u64 / 16)
    }

    /// Charges for copying a value.
    pub(crate) fn spend_value(&self, value: &Value) -> Result<(), String> {
        match value {
            Value::String(text) => self.spend_bytes(text.len() + 16),
            Value::Array(items) => {
                self.spend(1)?;
                items.iter().try_for_each(|item| self.spend_value(item))
            }
            Value::Object(members) => {
                self.spend(1)?;
                members.iter().try_for_each(|(name, value)| {
                    self.spend_bytes(name.len() + 16)?;
                    self.spend_value(value)
                })
            }
            _ => self.spend(1),
        }
    }
}

pub(crate) struct Evaluation<'a> {
    pub(crate) scope: &'a dyn Scope,
    pub(crate) budget: &'a Budget<'a>,
}

type EvalResult<'t> = Result<Cow<'t, Value>, Halt>;

static TRUE: Value = Value::Bool(true);
static NULL: Value = Value::Null;

fn fault<T>(reason: impl Into<String>) -> Result<T, Halt> {
    Err(Halt::Fault(reason.into()))
}

impl Evaluation<'_> {
    /// The value of a term. `variable` is the current item of the enclosing macro.
    pub(crate) fn value<'t>(&'t self, term: &'t Term, variable: Option<&'t Value>) -> EvalResult<'t> {
        self.budget.spend(1)?;
        match term {
            Term::Constant(value) => Ok(Cow::Borrowed(value)),
            Term::Path(root, steps) => self.path(root, steps, variable),
            Term::Has(of, name) => self.has(of, name, variable),
            Term::Member(of, name) => match self.value(of, variable)? {
                Cow::Borrowed(value) => member(value, name).map(Cow::Borrowed),
                Cow::Owned(value) => member(&value, name).cloned().map(Cow::Owned),
            },
            Term::Index(of, at) => self.index(of, at, variable),
            Term::List(terms) => {
                let items = terms.iter().map(|term| self.owned_value(term, variable)).collect::<Result<_, Halt>>()?;
                Ok(Cow::Owned(Value::Array(items)))
            }
            Term::Object(entries) => self.object(entries, variable),
            Term::Not(of) => Ok(Cow::Owned(Value::Bool(!self.bool_value(of, variable)?))),
            Term::Negate(of) => match self.value(of, variable)?.as_ref() {
                Value::Number(number) => match (as_integer(number), number.as_f64()) {
                    (Some(number), _) => Ok(Cow::Owned(integer_value(number.checked_neg())?)),
                    (None, number) => Ok(Cow::Owned(crate::operators::double_value(-number.unwrap_or(f64::NAN))?)),
                },
                other => fault(format!("cannot apply - to {}", type_name(other))),
            },
            Term::And(one, other) => self.short_circuit(one, other, false, variable),
            Term::Or(one, other) => self.short_circuit(one, other, true, variable),
            Term::If(parts) => {
                let [condition, yes, no] = parts.as_ref();
                self.value(if self.bool_value(condition, variable)? { yes } else { no }, variable)
            }
            Term::Binary(operator, sides) => {
                let one = self.value(&sides[0], variable)?;
                let other = self.value(&sides[1], variable)?;
                // Scalars cost nothing extra. Strings and containers are read and perhaps copied.
                if !is_scalar(&one) || !is_scalar(&other) {
                    self.budget.spend_value(&one)?;
                    self.budget.spend_value(&other)?;
                }
                Ok(Cow::Owned(operate(*operator, &one, &other)?))
            }
            Term::Call(call, terms) => {
                let values = terms.iter().map(|term| self.value(term, variable)).collect::<Result<Vec<_>, Halt>>()?;
                let borrowed: Vec<&Value> = values.iter().map(AsRef::as_ref).collect();
                Ok(Cow::Owned(call.apply(&borrowed, self.budget)?))
            }
            Term::Each { kind, over, filter, body } => {
                let over = self.value(over, variable)?;
                self.eval_macro(*kind, &over, filter.as_deref(), body).map(Cow::Owned)
            }
        }
    }

    /// The value of a term, owned. A copy is charged.
    pub(crate) fn owned_value(&self, term: &Term, variable: Option<&Value>) -> Result<Value, Halt> {
        match self.value(term, variable)? {
            Cow::Owned(value) => Ok(value),
            Cow::Borrowed(value) => {
                self.budget.spend_value(value)?;
                Ok(value.clone())
            }
        }
    }

    fn bool_value(&self, term: &Term, variable: Option<&Value>) -> Result<bool, Halt> {
        match self.value(term, variable)?.as_ref() {
            Value::Bool(flag) => Ok(*flag),
            other => fault(format!("expected boolean, found {}", type_name(other))),
        }
    }

    /// `&&` and `||`. A side equal to `by` decides, even if the other side fails or is unknown.
    fn short_circuit<'t>(
        &'t self,
        one: &'t Term,
        other: &'t Term,
        by: bool,
        variable: Option<&'t Value>,
    ) -> EvalResult<'t> {
        let first = self.bool_value(one, variable);
        if first == Ok(by) {
            return Ok(Cow::Owned(Value::Bool(by)));
        }
        let second = self.bool_value(other, variable);
        let flag = match (first, second) {
            (_, Ok(flag)) if flag == by => by,
            (Err(Halt::Unknown), _) | (_, Err(Halt::Unknown)) => return Err(Halt::Unknown),
            (Err(halt), _) | (_, Err(halt)) => return Err(halt),
            _ => !by,
        };
        Ok(Cow::Owned(Value::Bool(flag)))
    }

    fn path<'t>(&'t self, root: &'t Root, steps: &'t [Step], variable: Option<&'t Value>) -> EvalResult<'t> {
        let (value, steps) = match root {
            Root::Inputs => {
                let value = self.input(steps)?;
                return if self.has_deferred_part(value)? { Err(Halt::Unknown) } else { Ok(Cow::Borrowed(value)) };
            }
            Root::Outputs(node) => match self.scope.outputs(node) {
                Lookup::Unknown => return Err(Halt::Unknown),
                Lookup::Known(value) => (value, steps),
                Lookup::Absent if steps.is_empty() => return Ok(Cow::Borrowed(&NULL)),
                Lookup::Absent => return fault(format!("node {node} has no outputs: it did not run")),
            },
            Root::RunId if self.scope.run_id().is_empty() => return Err(Halt::Unknown),
            Root::RunId => return scalar(Value::String(self.scope.run_id().to_owned()), steps),
            Root::Item => match self.scope.item() {
                Some((item, _)) => (item, steps),
                None => return Err(Halt::Unknown),
            },
            Root::Index => match self.scope.item() {
                Some((_, index)) => return scalar(Value::from(index), steps),
                None => return Err(Halt::Unknown),
            },
            Root::StepInput => match self.scope.judged() {
                Some(judged) => (judged.input, steps),
                None => return fault("input is only known in the checks of a judge"),
            },
            Root::StepOutput => match self.scope.judged().and_then(|judged| judged.output) {
                Some(output) => (output, steps),
                None => return fault("output is not known before the step has run"),
            },
            Root::Judge => match self.scope.judge() {
                Some(judge) => (judge, steps),
                None => return fault("judge is only known in the inputs of a node that has a judge"),
            },
            Root::Variable => match variable {
                Some(value) => (value, steps),
                None => return fault("the variable is not known here"),
            },
        };
        if let (Root::Outputs(_), Some((Step::Member(name), rest))) = (root, steps.split_first())
            && let Some(implied) = implied(value, name)
        {
            return walk(implied, rest).map(Cow::Borrowed);
        }
        walk(value, steps).map(Cow::Borrowed)
    }

    /// The value at a path of the inputs. A part of it may be deferred.
    pub(crate) fn input(&self, steps: &[Step]) -> Result<&Value, Halt> {
        let mut value = self.scope.inputs();
        for step in steps {
            if self.scope.has_deferred_inputs() && is_deferred(value) {
                return Err(Halt::Unknown);
            }
            value = walk(value, std::slice::from_ref(step))?;
        }
        Ok(value)
    }

    /// Whether a part of an input is deferred. The search is charged like a copy.
    pub(crate) fn has_deferred_part(&self, input: &Value) -> Result<bool, String> {
        if !self.scope.has_deferred_inputs() {
            return Ok(false);
        }
        self.budget.spend_value(input)?;
        Ok(has_deferred(input))
    }

    fn has<'t>(&'t self, of: &'t Term, name: &str, variable: Option<&'t Value>) -> EvalResult<'t> {
        let absent = |node: &str| matches!(self.scope.outputs(node), Lookup::Absent);
        if let Term::Path(Root::Outputs(node), _) = of
            && absent(node)
        {
            return Ok(Cow::Owned(Value::Bool(false)));
        }
        let value = match of {
            // Presence of a member does not depend on its siblings, which may be deferred.
            Term::Path(Root::Inputs, steps) => Cow::Borrowed(self.input(steps)?),
            of => self.value(of, variable)?,
        };
        if self.scope.has_deferred_inputs() && is_deferred(&value) {
            return Err(Halt::Unknown);
        }
        let outputs = matches!(of, Term::Path(Root::Outputs(_), steps) if steps.is_empty());
        let found = match value.as_ref() {
            Value::Object(members) => members.contains_key(name) || (outputs && implied(&value, name).is_some()),
            Value::Null => false,
            other => return fault(format!("{} has no members", type_name(other))),
        };
        Ok(Cow::Owned(Value::Bool(found)))
    }

    fn index<'t>(&'t self, of: &'t Term, at: &'t Term, variable: Option<&'t Value>) -> EvalResult<'t> {
        let of = self.value(of, variable)?;
        let at = self.value(at, variable)?;
        match of {
            Cow::Borrowed(value) => indexed(value, &at).map(Cow::Borrowed),
            Cow::Owned(value) => indexed(&value, &at).cloned().map(Cow::Owned),
        }
    }

    fn object<'t>(&'t self, entries: &'t [(Term, Term)], variable: Option<&'t Value>) -> EvalResult<'t> {
        let mut members = Map::new();
        for (name, value) in entries {
            let Value::String(name) = self.owned_value(name, variable)? else {
                return fault("a member name must be a string");
            };
            let value = self.owned_value(value, variable)?;
            if members.insert(name, value).is_some() {
                return fault("duplicate member name");
            }
        }
        Ok(Cow::Owned(Value::Object(members)))
    }

    fn eval_macro(&self, kind: Macro, over: &Value, filter: Option<&Term>, body: &Term) -> Result<Value, Halt> {
        let keys: Vec<Value>;
        let items = match over {
            Value::Array(items) => items,
            // As in CEL, a macro over an object iterates over its keys.
            Value::Object(members) if members.len() <= EXPRESSION_LIST_MAX => {
                self.budget.spend_value(over)?;
                keys = members.keys().cloned().map(Value::String).collect();
                &keys
            }
            other => return fault(format!("a macro iterates over a list, not over {}", type_name(other))),
        };
        if items.len() > EXPRESSION_LIST_MAX {
            return fault(format!("the list has {} items, at most {EXPRESSION_LIST_MAX}", items.len()));
        }
        Ok(match kind {
            Macro::Map => {
                let mut made = Vec::new();
                for item in items {
                    if filter.map_or(Ok(true), |filter| self.bool_value(filter, Some(item)))? {
                        made.push(self.owned_value(body, Some(item))?);
                    }
                }
                Value::Array(made)
            }
            Macro::Filter => {
                let mut kept = Vec::new();
                for item in items {
                    if self.bool_value(body, Some(item))? {
                        self.budget.spend_value(item)?;
                        kept.push(item.clone());
                    }
                }
                Value::Array(kept)
            }
            Macro::All => Value::Bool(self.any_item_gives(items, body, false)?.is_none_or(|found| !found)),
            Macro::Exists => Value::Bool(self.any_item_gives(items, body, true)?.unwrap_or(false)),
            Macro::ExistsOne => {
                let mut count = 0_usize;
                for item in items {
                    count += usize::from(self.bool_value(body, Some(item))?);
                }
                Value::Bool(count == 1)
            }
        })
    }

    /// Whether any item gives `wanted`. A failing item matters only if no item does.
    fn any_item_gives(&self, items: &[Value], body: &Term, wanted: bool) -> Result<Option<bool>, Halt> {
        let mut halted = None;
        for item in items {
            match self.bool_value(body, Some(item)) {
                Ok(flag) if flag == wanted => return Ok(Some(true)),
                Ok(_) => {}
                Err(Halt::Unknown) => halted = Some(Halt::Unknown),
                Err(halt) => halted = halted.or(Some(halt)),
            }
        }
        halted.map_or(Ok(None), Err)
    }
}

/// The member that marks a value that is not known yet.
pub(crate) const DEFERRED: &str = "$deferred";

/// Whether a value is not known yet.
pub fn is_deferred(value: &Value) -> bool {
    value.as_object().is_some_and(|members| members.contains_key(DEFERRED))
}

fn has_deferred(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_deferred),
        Value::Object(members) => is_deferred(value) || members.values().any(has_deferred),
        _ => false,
    }
}

const fn is_scalar(value: &Value) -> bool {
    matches!(value, Value::Null | Value::Bool(_) | Value::Number(_))
}

/// The default `success` and `error` of outputs that omit them.
fn implied(outputs: &Value, name: &str) -> Option<&'static Value> {
    let implied = match name {
        "success" => &TRUE,
        "error" => &NULL,
        _ => return None,
    };
    outputs.get(name).is_none().then_some(implied)
}

fn scalar<'t>(value: Value, steps: &[Step]) -> EvalResult<'t> {
    walk(&value, steps)?;
    Ok(Cow::Owned(value))
}

fn walk<'t>(mut value: &'t Value, steps: &[Step]) -> Result<&'t Value, Halt> {
    for step in steps {
        value = match step {
            Step::Member(name) => member(value, name)?,
            Step::At(at) => item(value, *at)?,
        };
    }
    Ok(value)
}

fn member<'t>(value: &'t Value, name: &str) -> Result<&'t Value, Halt> {
    match value {
        Value::Object(members) => match members.get(name) {
            Some(value) => Ok(value),
            None => fault(format!("there is no member {name}")),
        },
        other => fault(format!("{} has no member {name}", type_name(other))),
    }
}

fn item(value: &Value, at: usize) -> Result<&Value, Halt> {
    match value {
        Value::Array(items) => match items.get(at) {
            Some(item) => Ok(item),
            None => fault(format!("index {at} is out of range for a list of {}", items.len())),
        },
        other => fault(format!("{} has no items", type_name(other))),
    }
}

fn indexed<'t>(value: &'t Value, at: &Value) -> Result<&'t Value, Halt> {
    match at {
        // The error must not quote a computed name: it may be user data, and errors go into the ledger.
        Value::String(name) if value.is_object() => match value.get(name) {
            Some(value) => Ok(value),
            None => fault("no member has the computed name"),
        },
        Value::String(_) => fault(format!("{} has no members", type_name(value))),
        Value::Number(number) => match number.as_i64().and_then(|at| usize::try_from(at).ok()) {
            Some(at) => item(value, at),
            None => fault("a list index must be a non-negative integer"),
        },
        other => fault(format!("cannot index by {}", type_name(other))),
    }
}

//! The type checker: finds all type errors and unknown references of an expression before a run.

use crate::limits::{KNOWN_NAMES_MAX, SUGGESTION_CHARS_MAX, SUGGESTION_NAMES_MAX};
use crate::operators::type_name;
use crate::suggest::did_you_mean;
use crate::term::{Macro, Operator, Root, Step, Term};
use crate::types::{Shape, Type};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The types of an expression's variables.
pub trait TypeScope {
    fn inputs(&self) -> Type;
    /// The type of a node's outputs. The caller checks that the node exists.
    fn outputs(&self, node: &str) -> Type;
    /// The type of the `error` that a node's outputs have unless their own type declares one.
    fn error(&self) -> Type;
    /// The type of `item`. `None` outside a map.
    fn item(&self) -> Option<Type>;
    /// The type of `input`. `None` outside the checks of a judge.
    fn step_input(&self) -> Option<Type> {
        None
    }
    /// The type of `output`, or why it is not known here.
    fn step_output(&self) -> Result<Type, String> {
        Err("output is only known in the checks of a judge".to_owned())
    }
    /// The type of `judge`. `None` outside the inputs of a node that has a judge.
    fn judge(&self) -> Option<Type> {
        None
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    UnknownReference {
        reason: String,
        /// Some of the names that exist in its place, sorted.
        known: Vec<String>,
    },
    Type(String),
}

/// Infers the types of one expression. After a mismatch, the type is `Any`, which fits everything: one mistake is
/// reported once.
pub(crate) struct Inference<'a> {
    pub(crate) types: &'a dyn TypeScope,
    pub(crate) found: &'a mut Vec<Mismatch>,
}

impl Inference<'_> {
    fn mismatch(&mut self, reason: impl Into<String>) -> Type {
        self.found.push(Mismatch::Type(reason.into()));
        Type::Any
    }

    fn unknown(&mut self, reason: impl Into<String>) -> Type {
        self.found.push(Mismatch::UnknownReference { reason: reason.into(), known: Vec::new() });
        Type::Any
    }

    /// The type of a term. `variable` is the type of the enclosing macro's variable.
    pub(crate) fn term(&mut self, term: &Term, variable: Option<&Type>) -> Type {
        match term {
            Term::Constant(value) => Type::from_value(value),
            Term::Path(root, steps) => self.path(root, steps, variable),
            Term::Has(of, name) => {
                // `has` on an open object is legitimate; only a member that cannot exist is an error.
                let outputs = matches!(&**of, Term::Path(Root::Outputs(_), steps) if steps.is_empty());
                match self.term(of, variable) {
                    Type::Null => {}
                    found => drop(self.member(&found, name, outputs)),
                }
                Type::Bool
            }
            Term::Member(inner, name) => {
                let inner = self.term(inner, variable);
                self.member(&inner, name, false)
            }
            Term::Index(inner, at) => {
                let (inner, at) = (self.term(inner, variable), self.term(at, variable));
                self.indexed(&inner, &at)
            }
            Term::List(terms) => Type::List(Arc::new(self.union(terms, variable))),
            Term::Object(entries) => self.object(entries, variable),
            Term::Not(inner) => self.needs(inner, variable, "!"),
            Term::Negate(inner) => match self.term(inner, variable) {
                known @ (Type::Int | Type::Number | Type::Any) => known,
                other => self.mismatch(format!("cannot apply - to {other}")),
            },
            Term::And(one, other) => {
                self.needs(one, variable, "&&");
                self.needs(other, variable, "&&")
            }
            Term::Or(one, other) => {
                self.needs(one, variable, "||");
                self.needs(other, variable, "||")
            }
            Term::If(parts) => {
                let [condition, yes, no] = parts.as_ref();
                self.needs(condition, variable, "?");
                self.term(yes, variable).union(self.term(no, variable))
            }
            Term::Binary(operator, sides) => {
                let (one, other) = (self.term(&sides[0], variable), self.term(&sides[1], variable));
                binary(*operator, &one, &other).unwrap_or_else(|reason| self.mismatch(reason))
            }
            Term::Call(call, terms) => {
                let known: Vec<Type> = terms.iter().map(|term| self.term(term, variable)).collect();
                call.infer(&known).unwrap_or_else(|reason| self.mismatch(reason))
            }
            Term::Each { kind, over, filter, body } => {
                let over = self.term(over, variable);
                self.each(*kind, &over, filter.as_deref(), body)
            }
        }
    }

    fn union(&mut self, terms: &[Term], variable: Option<&Type>) -> Type {
        let mut known = terms.iter().map(|term| self.term(term, variable));
        let first = known.next().unwrap_or(Type::Any);
        known.fold(first, Type::union)
    }

    /// Checks that a term is a boolean.
    fn needs(&mut self, term: &Term, variable: Option<&Type>, place: &str) -> Type {
        match self.term(term, variable) {
            Type::Any | Type::Bool => {}
            found => drop(self.mismatch(format!("{place} needs a {}, not {found}", Type::Bool))),
        }
        Type::Bool
    }

    fn path(&mut self, root: &Root, steps: &[Step], variable: Option<&Type>) -> Type {
        let mut known = match root {
            Root::Inputs => self.types.inputs(),
            Root::Outputs(node) => self.types.outputs(node),
            Root::RunId => Type::Text,
            Root::Item => match self.types.item() {
                Some(known) => known,
                None => return self.unknown("item is only known inside a map"),
            },
            Root::Index if self.types.item().is_none() => return self.unknown("index is only known inside a map"),
            Root::Index => Type::Int,
            Root::StepInput => match self.types.step_input() {
                Some(known) => known,
                None => return self.unknown("input is only known in the checks of a judge; did you mean inputs?"),
            },
            Root::StepOutput => match self.types.step_output() {
                Ok(known) => known,
                Err(reason) => return self.unknown(reason),
            },
            Root::Judge => match self.types.judge() {
                Some(known) => known,
                None => return self.unknown("judge is only known in the inputs of a node that has a judge"),
            },
            Root::Variable => variable.cloned().unwrap_or(Type::Any),
        };
        for (at, step) in steps.iter().enumerate() {
            known = match step {
                Step::Member(name) => self.member(&known, name, at == 0 && matches!(root, Root::Outputs(_))),
                Step::At(_) => self.indexed(&known, &Type::Int),
            };
        }
        known
    }

    /// The type of a member. A node's outputs always have `success` and `error`.
    fn member(&mut self, of: &Type, name: &str, outputs: bool) -> Type {
        match of {
            Type::Any => match name {
                "success" if outputs => Type::Bool,
                _ => Type::Any,
            },
            Type::Object(shape) => match shape.named.get(name) {
                Some(known) => known.clone(),
                None if outputs && name == "success" => Type::Bool,
                None if shape.open => Type::Any,
                None if outputs && name == "error" => self.types.error(),
                None => self.no_member(shape, name, outputs),
            },
            other => self.mismatch(format!("{other} has no member {name}")),
        }
    }

    fn no_member(&mut self, shape: &Shape, name: &str, outputs: bool) -> Type {
        let implied = ["error", "success"].into_iter().filter(|_| outputs);
        let names = || shape.named.keys().map(String::as_str).chain(implied.clone());
        let reason = format!("there is no member {name}{}", did_you_mean(name, names()));
        let known: BTreeSet<&str> =
            names().take(SUGGESTION_NAMES_MAX).filter(|name| name.len() <= SUGGESTION_CHARS_MAX).collect();
        let known = known.into_iter().take(KNOWN_NAMES_MAX).map(str::to_owned).collect();
        self.found.push(Mismatch::UnknownReference { reason, known });
        Type::Any
    }

    fn indexed(&mut self, of: &Type, at: &Type) -> Type {
        match (of, at) {
            (Type::Any, Type::Any | Type::Int | Type::Number | Type::Text) => Type::Any,
            (Type::List(item), Type::Any | Type::Int | Type::Number) => (**item).clone(),
            (Type::Object(_), Type::Any | Type::Text) => Type::Any,
            (of, at) => self.mismatch(format!("{of} can't be indexed by {at}")),
        }
    }

    fn object(&mut self, entries: &[(Term, Term)], variable: Option<&Type>) -> Type {
        let mut shape = Shape::default();
        for (name, value) in entries {
            let known = self.term(value, variable);
            match name {
                Term::Constant(serde_json::Value::String(name)) => {
                    shape.required.insert(name.clone());
                    shape.named.insert(name.clone(), known);
                }
                Term::Constant(other) => {
                    self.mismatch(format!("a member name must be a string, not {}", type_name(other)));
                }
                dynamic => {
                    shape.open = true;
                    match self.term(dynamic, variable) {
                        Type::Any | Type::Text => {}
                        found => {
                            self.mismatch(format!("the name of a member needs a {}, not {found}", Type::Text));
                        }
                    }
                }
            }
        }
        Type::Object(Arc::new(shape))
    }

    fn each(&mut self, kind: Macro, over: &Type, filter: Option<&Term>, body: &Term) -> Type {
        let item = match over {
            Type::Any => Type::Any,
            Type::List(item) => (**item).clone(),
            Type::Object(_) => Type::Text,
            other => self.mismatch(format!("a macro iterates over a list, not over {other}")),
        };
        if let Some(filter) = filter {
            self.needs(filter, Some(&item), "the filter");
        }
        match kind {
            Macro::Map => Type::List(Arc::new(self.term(body, Some(&item)))),
            Macro::Filter => {
                self.needs(body, Some(&item), "filter");
                Type::List(Arc::new(item))
            }
            Macro::All | Macro::Exists | Macro::ExistsOne => self.needs(body, Some(&item), "the macro"),
        }
    }
}

fn binary(operator: Operator, one: &Type, other: &Type) -> Result<Type, String> {
    let refused = || Err(format!("cannot apply {} to {one} and {other}", operator.sign()));
    match operator {
        Operator::Equal | Operator::NotEqual => {
            if one.overlaps(other) {
                Ok(Type::Bool)
            } else {
                Err(format!("{one} {} {other}: the two types are never equal", operator.sign()))
            }
        }
        Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual => {
            let ordered =
                |known: &Type| matches!(known, Type::Any | Type::Int | Type::Number | Type::Text | Type::Bool);
            if ordered(one) && ordered(other) && one.overlaps(other) { Ok(Type::Bool) } else { refused() }
        }
        Operator::In => match other {
            Type::Any => Ok(Type::Bool),
            Type::List(item) if one.overlaps(item) => Ok(Type::Bool),
            Type::Object(_) if one.overlaps(&Type::Text) => Ok(Type::Bool),
            _ => refused(),
        },
        Operator::Add => match (one, other) {
            (Type::Text, Type::Text | Type::Any) | (Type::Any, Type::Text) => Ok(Type::Text),
            (Type::List(a), Type::List(b)) => Ok(Type::List(Arc::new((**a).clone().union((**b).clone())))),
            (Type::List(_), Type::Any) | (Type::Any, Type::List(_)) => Ok(Type::List(Arc::new(Type::Any))),
            (Type::Any, Type::Any) => Ok(Type::Any),
            _ => arithmetic(one, other).map_or_else(refused, Ok),
        },
        Operator::Modulo
            if matches!((one, other), (Type::Int | Type::Any | Type::Number, Type::Int | Type::Any | Type::Number)) =>
        {
            Ok(Type::Int)
        }
        _ => arithmetic(one, other).map_or_else(refused, Ok),
    }
}

fn arithmetic(one: &Type, other: &Type) -> Option<Type> {
    match (one, other) {
        (Type::Int, Type::Int) => Some(Type::Int),
        (Type::Int | Type::Number | Type::Any, Type::Int | Type::Number | Type::Any) => Some(Type::Number),
        _ => None,
    }
}

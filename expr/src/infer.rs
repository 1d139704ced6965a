//! The type checker: finds type errors and unknown references before a run.

use crate::operators::type_name;
use crate::suggest::did_you_mean;
use crate::term::{Macro, Operator, Root, Step, Term};
use crate::types::Type;
use std::sync::Arc;

/// The types of an expression's variables.
pub trait TypeScope {
    fn inputs(&self) -> Type;
    /// The type of a node's outputs. The caller checks that the node exists.
    fn outputs(&self, node: &str) -> Type;
    /// The type of `item`. `None` outside a map.
    fn item(&self) -> Option<Type>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    UnknownReference(String),
    Type(String),
}

type Inferred = Result<Type, Mismatch>;

fn type_error<T>(reason: impl Into<String>) -> Result<T, Mismatch> {
    Err(Mismatch::Type(reason.into()))
}

fn unknown<T>(reason: impl Into<String>) -> Result<T, Mismatch> {
    Err(Mismatch::UnknownReference(reason.into()))
}

/// The type of a term. `variable` is the type of the enclosing macro's variable.
pub(crate) fn infer(term: &Term, types: &dyn TypeScope, variable: Option<&Type>) -> Inferred {
    let of = |term: &Term| infer(term, types, variable);
    match term {
        Term::Constant(value) => Ok(Type::from_value(value)),
        Term::Path(root, steps) => path(root, steps, types, variable),
        Term::Has(of, name) => {
            // `has` on an open object is legitimate; only a member that cannot exist is an error.
            match infer(of, types, variable)? {
                Type::Null => {}
                found => drop(member(
                    &found,
                    name,
                    matches!(&**of, Term::Path(Root::Outputs(_), steps) if steps.is_empty()),
                )?),
            }
            Ok(Type::Bool)
        }
        Term::Member(inner, name) => member(&of(inner)?, name, false),
        Term::Index(inner, at) => indexed(&of(inner)?, &of(at)?),
        Term::List(terms) => {
            let mut known = terms.iter().map(of).collect::<Result<Vec<_>, _>>()?.into_iter();
            let first = known.next().unwrap_or(Type::Any);
            Ok(Type::List(Arc::new(known.fold(first, Type::union))))
        }
        Term::Object(entries) => object(entries, &of),
        Term::Not(inner) => needs(&of(inner)?, &Type::Bool, "!").map(|()| Type::Bool),
        Term::Negate(inner) => match of(inner)? {
            known @ (Type::Int | Type::Number | Type::Any) => Ok(known),
            other => type_error(format!("cannot apply - to {other}")),
        },
        Term::And(one, other) => {
            needs(&of(one)?, &Type::Bool, "&&")?;
            needs(&of(other)?, &Type::Bool, "&&").map(|()| Type::Bool)
        }
        Term::Or(one, other) => {
            needs(&of(one)?, &Type::Bool, "||")?;
            needs(&of(other)?, &Type::Bool, "||").map(|()| Type::Bool)
        }
        Term::If(parts) => {
            let [condition, yes, no] = parts.as_ref();
            needs(&of(condition)?, &Type::Bool, "?")?;
            Ok(of(yes)?.union(of(no)?))
        }
        Term::Binary(operator, sides) => binary(*operator, &of(&sides[0])?, &of(&sides[1])?),
        Term::Call(call, terms) => {
            let known = terms.iter().map(of).collect::<Result<Vec<_>, _>>()?;
            call.infer(&known).map_err(Mismatch::Type)
        }
        Term::Each { kind, over, filter, body } => each(*kind, &of(over)?, filter.as_deref(), body, types),
    }
}

fn needs(found: &Type, wanted: &Type, place: &str) -> Result<(), Mismatch> {
    match found {
        Type::Any => Ok(()),
        found if found == wanted => Ok(()),
        found => type_error(format!("{place} needs a {wanted}, not {found}")),
    }
}

fn path(root: &Root, steps: &[Step], types: &dyn TypeScope, variable: Option<&Type>) -> Inferred {
    let mut known = match root {
        Root::Inputs => types.inputs(),
        Root::Outputs(node) => types.outputs(node),
        Root::RunId => Type::Text,
        Root::Item => match types.item() {
            Some(known) => known,
            None => return unknown("item is only known inside a map"),
        },
        Root::Index if types.item().is_none() => return unknown("index is only known inside a map"),
        Root::Index => Type::Int,
        Root::Variable => variable.cloned().unwrap_or(Type::Any),
    };
    for (at, step) in steps.iter().enumerate() {
        known = match step {
            Step::Member(name) => member(&known, name, at == 0 && matches!(root, Root::Outputs(_)))?,
            Step::At(_) => indexed(&known, &Type::Int)?,
        };
    }
    Ok(known)
}

/// The type of a member. A node's outputs always have `success` and `error`.
fn member(of: &Type, name: &str, outputs: bool) -> Inferred {
    match of {
        Type::Any => Ok(match name {
            "success" if outputs => Type::Bool,
            _ => Type::Any,
        }),
        Type::Object(shape) => match shape.named.get(name) {
            Some(known) => Ok(known.clone()),
            None if outputs && name == "success" => Ok(Type::Bool),
            None if shape.open || (outputs && name == "error") => Ok(Type::Any),
            None => {
                let guess = did_you_mean(name, shape.named.keys().map(String::as_str));
                unknown(format!("there is no member {name}{guess}"))
            }
        },
        other => type_error(format!("{other} has no member {name}")),
    }
}

fn indexed(of: &Type, at: &Type) -> Inferred {
    match (of, at) {
        (Type::Any, Type::Any | Type::Int | Type::Number | Type::Text) => Ok(Type::Any),
        (Type::List(item), Type::Any | Type::Int | Type::Number) => Ok((**item).clone()),
        (Type::Object(_), Type::Any | Type::Text) => Ok(Type::Any),
        (of, at) => type_error(format!("{of} can't be indexed by {at}")),
    }
}

fn object(entries: &[(Term, Term)], of: &dyn Fn(&Term) -> Inferred) -> Inferred {
    let mut shape = crate::types::Shape::default();
    for (name, value) in entries {
        let known = of(value)?;
        match name {
            Term::Constant(serde_json::Value::String(name)) => {
                shape.required.insert(name.clone());
                shape.named.insert(name.clone(), known);
            }
            Term::Constant(other) => {
                return type_error(format!("a member name must be a string, not {}", type_name(other)));
            }
            dynamic => {
                needs(&of(dynamic)?, &Type::Text, "the name of a member")?;
                shape.open = true;
            }
        }
    }
    Ok(Type::Object(Arc::new(shape)))
}

fn binary(operator: Operator, one: &Type, other: &Type) -> Inferred {
    let refused = || type_error(format!("cannot apply {} to {one} and {other}", operator.sign()));
    match operator {
        Operator::Equal | Operator::NotEqual => {
            if one.overlaps(other) {
                Ok(Type::Bool)
            } else {
                type_error(format!("{one} {} {other}: the two types are never equal", operator.sign()))
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

fn each(kind: Macro, over: &Type, filter: Option<&Term>, body: &Term, types: &dyn TypeScope) -> Inferred {
    let item = match over {
        Type::Any => Type::Any,
        Type::List(item) => (**item).clone(),
        Type::Object(_) => Type::Text,
        other => return type_error(format!("a macro iterates over a list, not over {other}")),
    };
    if let Some(filter) = filter {
        needs(&infer(filter, types, Some(&item))?, &Type::Bool, "the filter")?;
    }
    let body = infer(body, types, Some(&item))?;
    match kind {
        Macro::Map => Ok(Type::List(Arc::new(body))),
        Macro::Filter => needs(&body, &Type::Bool, "filter").map(|()| Type::List(Arc::new(item))),
        Macro::All | Macro::Exists | Macro::ExistsOne => needs(&body, &Type::Bool, "the macro").map(|()| Type::Bool),
    }
}

//! Lowers the syntax tree to terms: names become paths, calls become functions and macros.
//!
//! A chain of names and constant indexes becomes one path, which makes most expressions cheap.
//! Macros iterate over a list and cannot be nested.

use crate::functions::Function;
use crate::limits::{EXPRESSION_BYTES_MAX, EXPRESSION_DEPTH_MAX};
use crate::suggest::did_you_mean;
use crate::syntax::{Syntax, parse};
use crate::term::{Macro, Root, Step, Term};
use serde_json::Value;

const VARIABLES: &[&str] = &["inputs", "nodes", "run_id", "item", "index"];

/// Variables that exist only around a judge. A macro may use their names for its own variable.
const JUDGE_VARIABLES: &[&str] = &["input", "output", "judge"];

/// Why an expression can't be compiled: it is invalid, or it names something that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LowerError {
    Invalid(String),
    UnknownReference(String),
}

type LowerResult<T = Term> = Result<T, LowerError>;

fn invalid<T>(reason: impl Into<String>) -> LowerResult<T> {
    Err(LowerError::Invalid(reason.into()))
}

pub(crate) fn lower(source: &str) -> LowerResult {
    if source.len() > EXPRESSION_BYTES_MAX {
        return invalid(format!("the expression has {} bytes, at most {EXPRESSION_BYTES_MAX}", source.len()));
    }
    if source.is_empty() {
        return invalid("the expression is empty");
    }
    let tree = parse(source).map_err(LowerError::Invalid)?;
    Lowering::default().term(&tree, EXPRESSION_DEPTH_MAX)
}

#[derive(Default)]
struct Lowering {
    /// The variable of the enclosing macro while its body is lowered.
    variable: Option<String>,
}

impl Lowering {
    fn term(&mut self, tree: &Syntax<'_>, depth: usize) -> LowerResult {
        let Some(depth) = depth.checked_sub(1) else {
            return invalid(format!("the expression is nested more than {EXPRESSION_DEPTH_MAX} levels deep"));
        };
        let mut part = |tree: &Syntax<'_>| self.term(tree, depth).map(Box::new);
        Ok(match tree {
            Syntax::Literal(value) => Term::Constant(value.clone()),
            Syntax::Name(_) | Syntax::Member(..) | Syntax::Index(..) => return self.path(tree, depth),
            Syntax::Call(on, name, arguments) => return self.call(on.as_deref(), name, arguments, depth),
            Syntax::List(items) => {
                Term::List(items.iter().map(|item| self.term(item, depth)).collect::<LowerResult<_>>()?)
            }
            Syntax::Object(entries) => {
                let entry =
                    |(name, value): &(Syntax<'_>, Syntax<'_>)| Ok((self.term(name, depth)?, self.term(value, depth)?));
                Term::Object(entries.iter().map(entry).collect::<LowerResult<_>>()?)
            }
            Syntax::Not(inner) => Term::Not(part(inner)?),
            Syntax::Negate(inner) => Term::Negate(part(inner)?),
            Syntax::And(sides) => Term::And(part(&sides[0])?, part(&sides[1])?),
            Syntax::Or(sides) => Term::Or(part(&sides[0])?, part(&sides[1])?),
            Syntax::If(parts) => Term::If(Box::new([*part(&parts[0])?, *part(&parts[1])?, *part(&parts[2])?])),
            Syntax::Binary(operator, sides) => {
                Term::Binary(*operator, Box::new([*part(&sides[0])?, *part(&sides[1])?]))
            }
        })
    }

    /// Member accesses and constant indexes on a variable become one path. On anything else they stay
    /// terms.
    fn path(&mut self, tree: &Syntax<'_>, depth: usize) -> LowerResult {
        let mut steps = Vec::new();
        let mut at = tree;
        loop {
            match at {
                Syntax::Name(name) => {
                    steps.reverse();
                    return self.chain(name, steps);
                }
                Syntax::Member(of, name) => {
                    steps.push(Step::Member((*name).to_owned()));
                    at = of;
                }
                Syntax::Index(of, place) => {
                    match constant_step(place) {
                        Some(step) => steps.push(step),
                        None => break,
                    }
                    at = of;
                }
                _ => break,
            }
        }
        match tree {
            Syntax::Member(of, name) => Ok(Term::Member(Box::new(self.term(of, depth)?), (*name).to_owned())),
            Syntax::Index(of, place) => {
                let of = self.term(of, depth)?;
                Ok(Term::Index(Box::new(of), Box::new(self.term(place, depth)?)))
            }
            _ => invalid("not an expression"),
        }
    }

    fn chain(&self, name: &str, steps: Vec<Step>) -> LowerResult {
        if self.variable.as_deref() == Some(name) {
            return Ok(Term::Path(Root::Variable, steps));
        }
        let mut steps = steps.into_iter();
        let root = match name {
            "inputs" => Root::Inputs,
            "run_id" => Root::RunId,
            "item" => Root::Item,
            "index" => Root::Index,
            "input" => Root::StepInput,
            "output" => Root::StepOutput,
            "judge" => Root::Judge,
            "nodes" => match (steps.next(), steps.next()) {
                (Some(Step::Member(id)), Some(Step::Member(outputs))) if outputs == "outputs" => Root::Outputs(id),
                _ => {
                    let reason = "nodes are read as nodes.NAME.outputs, and NAME cannot be computed";
                    return Err(LowerError::UnknownReference(reason.to_owned()));
                }
            },
            unknown => {
                let known = VARIABLES.iter().copied().chain(self.variable.as_deref());
                let guess = match did_you_mean(unknown, known) {
                    none if none.is_empty() => did_you_mean(unknown, JUDGE_VARIABLES.iter().copied()),
                    guess => guess,
                };
                let reason = format!("unknown variable {unknown}{guess}; available: {}", VARIABLES.join(", "));
                return Err(LowerError::UnknownReference(reason));
            }
        };
        Ok(Term::Path(root, steps.collect()))
    }

    fn call(&mut self, on: Option<&Syntax<'_>>, name: &str, arguments: &[Syntax<'_>], depth: usize) -> LowerResult {
        if name == "has" && on.is_none() {
            return match arguments {
                [Syntax::Member(of, member)] => Ok(Term::Has(Box::new(self.term(of, depth)?), (*member).to_owned())),
                _ => invalid("has() takes a member, as in has(inputs.name)"),
            };
        }
        if let (Some(over), Some(kind)) = (on, find_macro(name)) {
            return self.each(kind, over, arguments, depth);
        }
        let known = Function::find(name, on.is_some()).map_err(LowerError::Invalid)?;
        let all = on.into_iter().chain(arguments);
        let all = all.map(|argument| self.term(argument, depth)).collect::<LowerResult<Vec<_>>>()?;
        known.check_arity(all.len()).map_err(LowerError::Invalid)?;
        Ok(Term::Call(known, all))
    }

    fn each(&mut self, kind: Macro, over: &Syntax<'_>, arguments: &[Syntax<'_>], depth: usize) -> LowerResult {
        let (variable, filter, body) = match arguments {
            [Syntax::Name(name), body] => (*name, None, body),
            [Syntax::Name(name), filter, body] if kind == Macro::Map => (*name, Some(filter), body),
            _ => return invalid("a macro takes a variable and an expression, as in list.map(x, x.name)"),
        };
        if VARIABLES.contains(&variable) {
            return invalid(format!("the macro variable {variable} shadows the run's own; choose another name"));
        }
        let over = Box::new(self.term(over, depth)?);
        if self.variable.is_some() {
            return invalid("macros cannot be nested: the work would grow with the square of the list");
        }
        self.variable = Some(variable.to_owned());
        let filter = filter.map(|filter| self.term(filter, depth).map(Box::new)).transpose();
        let body = filter.and_then(|filter| Ok((filter, self.term(body, depth)?)));
        self.variable = None;
        let (filter, body) = body?;
        Ok(Term::Each { kind, over, filter, body: Box::new(body) })
    }
}

fn constant_step(place: &Syntax<'_>) -> Option<Step> {
    match place {
        Syntax::Literal(Value::String(name)) => Some(Step::Member(name.clone())),
        Syntax::Literal(Value::Number(at)) => at.as_i64().and_then(|at| usize::try_from(at).ok()).map(Step::At),
        _ => None,
    }
}

fn find_macro(name: &str) -> Option<Macro> {
    Some(match name {
        "all" => Macro::All,
        "exists" => Macro::Exists,
        "exists_one" | "existsOne" => Macro::ExistsOne,
        "map" => Macro::Map,
        "filter" => Macro::Filter,
        _ => return None,
    })
}

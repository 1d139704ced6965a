//! From the CEL library's syntax tree to terms, within limits.
//!
//! Simple paths, by far the most frequent, don't need the library's parser at all. The library is
//! asked for the tree without macros, so that the macros are seen as they were written: they may
//! walk over a list, but not stand inside each other.

use super::call::Call;
use super::term::{Macro, Operator, Root, Step, Term};
use crate::flow::air::did_you_mean;
use crate::limits::{EXPRESSION_BYTES_MAX, EXPRESSION_DEPTH_MAX, EXPRESSION_TERMS_MAX};
use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use serde_json::{Number, Value};

const VARIABLES: &[&str] = &["inputs", "nodes", "run_id", "item", "index"];

/// Whether an expression is unreadable, or readable but names what is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    Invalid(String),
    UnknownReference(String),
}

type Lowered<T = Term> = Result<T, Unusable>;

fn invalid<T>(reason: impl Into<String>) -> Lowered<T> {
    Err(Unusable::Invalid(reason.into()))
}

/// Compiles one expression.
pub(super) fn lower(source: &str) -> Lowered {
    if source.len() > EXPRESSION_BYTES_MAX {
        return invalid(format!("the expression has {} bytes, at most {EXPRESSION_BYTES_MAX}", source.len()));
    }
    if source.is_empty() {
        return invalid("the expression is empty");
    }
    if let Some(names) = simple_path(source) {
        return Lowering::default().chain(names.map(|name| Step::Member(name.to_owned())).collect());
    }
    // The library's parser recurses; brackets and signs in a row are what makes it go deep.
    if nesting(source) > EXPRESSION_DEPTH_MAX {
        return invalid(format!("the expression is nested more than {EXPRESSION_DEPTH_MAX} levels deep"));
    }
    let parser = cel::Env::default().with_optional_support(false).parser();
    let tree = parser.parse(source).map_err(|errors| {
        let first = errors.errors.first().map_or("it is not an expression", |error| error.msg.as_str());
        Unusable::Invalid(format!("not an expression: {}", first.chars().take(200).collect::<String>()))
    })?;
    Lowering::default().term(&tree, EXPRESSION_DEPTH_MAX)
}

/// The names of `a.b.c`, if it is nothing but that.
fn simple_path(source: &str) -> Option<impl Iterator<Item = &str>> {
    const WORDS: &[&str] = &["true", "false", "null", "in"];
    let is_name = |name: &str| {
        let mut letters = name.bytes();
        letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
            && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
            && !WORDS.contains(&name)
    };
    (source.bytes().filter(|byte| *byte == b'.').count() < EXPRESSION_TERMS_MAX && source.split('.').all(is_name))
        .then(|| source.split('.'))
}

/// How deep brackets, signs and branches nest, at the least.
fn nesting(source: &str) -> usize {
    let (mut depth, mut deepest, mut signs) = (0_usize, 0, 0_usize);
    for byte in source.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        signs = if matches!(byte, b'-' | b'!') { signs + 1 } else { 0 };
        deepest = deepest.max(depth + signs);
    }
    deepest.max(source.bytes().filter(|byte| *byte == b'?').count())
}

#[derive(Default)]
struct Lowering {
    terms: usize,
    /// The macro's variable while its body is lowered.
    variable: Option<String>,
}

impl Lowering {
    fn term(&mut self, tree: &IdedExpr, depth: usize) -> Lowered {
        let Some(depth) = depth.checked_sub(1) else {
            return invalid(format!("the expression is nested more than {EXPRESSION_DEPTH_MAX} levels deep"));
        };
        self.terms += 1;
        if self.terms > EXPRESSION_TERMS_MAX {
            return invalid(format!("the expression has more than {EXPRESSION_TERMS_MAX} terms"));
        }
        match &tree.expr {
            Expr::Literal(literal) => constant(literal),
            Expr::Ident(_) | Expr::Select(_) => self.path(tree, depth),
            Expr::Call(call) if call.func_name == operators::INDEX => self.path(tree, depth),
            Expr::Call(call) => self.call(call, depth),
            Expr::List(list) => {
                Ok(Term::List(list.elements.iter().map(|item| self.term(item, depth)).collect::<Lowered<_>>()?))
            }
            Expr::Map(map) => {
                let entry = |entry: &cel::common::ast::IdedEntryExpr| match &entry.expr {
                    EntryExpr::MapEntry(entry) => Ok((self.term(&entry.key, depth)?, self.term(&entry.value, depth)?)),
                    EntryExpr::StructField(_) => invalid("messages have no use here"),
                };
                Ok(Term::Object(map.entries.iter().map(entry).collect::<Lowered<_>>()?))
            }
            Expr::Struct(_) => invalid("messages have no use here"),
            Expr::Comprehension(_) | Expr::Unspecified => invalid("not an expression"),
        }
    }

    /// Selections and constant indexes down to a variable become one path; on anything else they
    /// stay terms.
    fn path(&mut self, tree: &IdedExpr, depth: usize) -> Lowered {
        let mut steps = Vec::new();
        let mut at = tree;
        loop {
            match &at.expr {
                Expr::Ident(name) => {
                    steps.push(Step::Member(name.clone()));
                    steps.reverse();
                    return self.chain(steps);
                }
                Expr::Select(select) if !select.test => {
                    steps.push(Step::Member(select.field.clone()));
                    at = &select.operand;
                }
                Expr::Call(call) if call.func_name == operators::INDEX && call.args.len() == 2 => {
                    match constant_step(&call.args[1]) {
                        Some(step) => steps.push(step),
                        None => break,
                    }
                    at = &call.args[0];
                }
                _ => break,
            }
            self.terms += 1;
            if steps.len() > EXPRESSION_TERMS_MAX {
                return invalid(format!("the expression has more than {EXPRESSION_TERMS_MAX} terms"));
            }
        }
        match &tree.expr {
            Expr::Select(select) if !select.test => {
                Ok(Term::Member(Box::new(self.term(&select.operand, depth)?), select.field.clone()))
            }
            Expr::Call(call) if call.args.len() == 2 => {
                let of = self.term(&call.args[0], depth)?;
                Ok(Term::Index(Box::new(of), Box::new(self.term(&call.args[1], depth)?)))
            }
            _ => invalid("not an expression"),
        }
    }

    /// A path whose first step is the variable.
    fn chain(&mut self, steps: Vec<Step>) -> Lowered {
        let mut steps = steps.into_iter();
        let Some(Step::Member(name)) = steps.next() else {
            return invalid("not an expression");
        };
        if self.variable.as_ref() == Some(&name) {
            return Ok(Term::Path(Root::Variable, steps.collect()));
        }
        let root = match name.trim_start_matches('.') {
            "inputs" => Root::Inputs,
            "run_id" => Root::RunId,
            "item" => Root::Item,
            "index" => Root::Index,
            "nodes" => match (steps.next(), steps.next()) {
                (Some(Step::Member(id)), Some(Step::Member(outputs))) if outputs == "outputs" => Root::Outputs(id),
                _ => {
                    let reason = "nodes are read as nodes.NAME.outputs, with a name that stands in the document";
                    return Err(Unusable::UnknownReference(reason.to_owned()));
                }
            },
            unknown => {
                let known = VARIABLES.iter().copied().chain(self.variable.as_deref());
                let guess = did_you_mean(unknown, known);
                let reason = format!("there is no variable {unknown}{guess}; there are {}", VARIABLES.join(", "));
                return Err(Unusable::UnknownReference(reason));
            }
        };
        Ok(Term::Path(root, steps.collect()))
    }

    fn call(&mut self, call: &CallExpr, depth: usize) -> Lowered {
        if let Some(term) = self.operator(call, depth)? {
            return Ok(term);
        }
        if call.func_name == operators::HAS && call.target.is_none() {
            return self.has(call, depth);
        }
        if let (Some(over), Some(kind)) = (&call.target, macro_named(&call.func_name)) {
            return self.each(kind, over, &call.args, depth);
        }
        let known = Call::named(&call.func_name, call.target.is_some()).map_err(Unusable::Invalid)?;
        let arguments = call.target.as_deref().into_iter().chain(&call.args);
        let arguments = arguments.map(|argument| self.term(argument, depth)).collect::<Lowered<Vec<_>>>()?;
        known.takes(arguments.len()).map_err(Unusable::Invalid)?;
        Ok(Term::Call(known, arguments))
    }

    fn operator(&mut self, call: &CallExpr, depth: usize) -> Lowered<Option<Term>> {
        let mut part = |at: usize| match call.args.get(at) {
            Some(argument) => self.term(argument, depth).map(Box::new),
            None => invalid("not an expression"),
        };
        Ok(Some(match call.func_name.as_str() {
            operators::CONDITIONAL => Term::If(Box::new([*part(0)?, *part(1)?, *part(2)?])),
            operators::LOGICAL_AND => Term::And(part(0)?, part(1)?),
            operators::LOGICAL_OR => Term::Or(part(0)?, part(1)?),
            operators::LOGICAL_NOT => Term::Not(part(0)?),
            operators::NEGATE => Term::Negate(part(0)?),
            name => match binary(name) {
                Some(operator) => Term::Binary(operator, Box::new([*part(0)?, *part(1)?])),
                None => return Ok(None),
            },
        }))
    }

    fn has(&mut self, call: &CallExpr, depth: usize) -> Lowered {
        match call.args.as_slice() {
            [IdedExpr { expr: Expr::Select(select), .. }] => {
                // `nodes.a.outputs` itself is always there; what is asked is a member of it.
                let of = self.term(&select.operand, depth)?;
                Ok(Term::Has(Box::new(of), select.field.clone()))
            }
            _ => invalid("has() takes a member, as in has(inputs.name)"),
        }
    }

    fn each(&mut self, kind: Macro, over: &IdedExpr, args: &[IdedExpr], depth: usize) -> Lowered {
        let (variable, filter, body) = match args {
            [IdedExpr { expr: Expr::Ident(name), .. }, body] => (name, None, body),
            [IdedExpr { expr: Expr::Ident(name), .. }, filter, body] if kind == Macro::Map => {
                (name, Some(filter), body)
            }
            _ => return invalid("a macro takes a variable and an expression, as in list.map(x, x.name)"),
        };
        if VARIABLES.contains(&variable.as_str()) {
            return invalid(format!("the variable {variable} would hide the run's own"));
        }
        let over = Box::new(self.term(over, depth)?);
        if self.variable.is_some() {
            return invalid("a macro can't stand inside another: its work would grow with the square of the list");
        }
        self.variable = Some(variable.clone());
        let filter = filter.map(|filter| self.term(filter, depth).map(Box::new)).transpose();
        let body = filter.and_then(|filter| Ok((filter, self.term(body, depth)?)));
        self.variable = None;
        let (filter, body) = body?;
        Ok(Term::Each { kind, over, filter, body: Box::new(body) })
    }
}

fn constant_step(tree: &IdedExpr) -> Option<Step> {
    match &tree.expr {
        Expr::Literal(LiteralValue::String(name)) => Some(Step::Member(name.inner().to_owned())),
        Expr::Literal(LiteralValue::Int(at)) => usize::try_from(*at.inner()).ok().map(Step::At),
        _ => None,
    }
}

fn constant(literal: &LiteralValue) -> Lowered {
    Ok(Term::Constant(match literal {
        LiteralValue::Boolean(flag) => Value::Bool(*flag.inner()),
        LiteralValue::Int(number) => Value::from(*number.inner()),
        LiteralValue::Double(number) => match Number::from_f64(*number.inner()) {
            Some(number) => Value::Number(number),
            None => return invalid("a number is out of range"),
        },
        LiteralValue::String(text) => Value::String(text.inner().to_owned()),
        LiteralValue::Null => Value::Null,
        LiteralValue::UInt(_) => return invalid("numbers have no u here: JSON knows one kind"),
        LiteralValue::Bytes(_) => return invalid("bytes have no use here: JSON knows texts"),
    }))
}

fn macro_named(name: &str) -> Option<Macro> {
    Some(match name {
        operators::ALL => Macro::All,
        operators::EXISTS => Macro::Exists,
        operators::EXISTS_ONE | "existsOne" => Macro::ExistsOne,
        operators::MAP => Macro::Map,
        operators::FILTER => Macro::Filter,
        _ => return None,
    })
}

fn binary(name: &str) -> Option<Operator> {
    Some(match name {
        operators::ADD => Operator::Add,
        operators::SUBSTRACT => Operator::Subtract,
        operators::MULTIPLY => Operator::Multiply,
        operators::DIVIDE => Operator::Divide,
        operators::MODULO => Operator::Modulo,
        operators::EQUALS => Operator::Equal,
        operators::NOT_EQUALS => Operator::NotEqual,
        operators::LESS => Operator::Less,
        operators::LESS_EQUALS => Operator::LessOrEqual,
        operators::GREATER => Operator::Greater,
        operators::GREATER_EQUALS => Operator::GreaterOrEqual,
        operators::IN => Operator::In,
        _ => return None,
    })
}

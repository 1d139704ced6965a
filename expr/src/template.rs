//! A JSON value with expressions in its strings, compiled once and rendered for every run.
//!
//! A string that is a single `${…}` keeps the type of its value; with text around it, it becomes a
//! string. Member names are never expressions. Constant expressions are evaluated at compile time.

use crate::eval::{Budget, DEFERRED, Evaluation, Halt, RenderError};
use crate::functions::to_plain_text;
use crate::infer::{Mismatch, TypeScope, infer};
use crate::limits::{CONSTANT_WORK_MAX, TEMPLATE_EXPRESSIONS_MAX};
use crate::lower::{LowerError, lower};
use crate::meter::WorkMeter;
use crate::pointer_token;
use crate::scan::{Piece, scan};
use crate::scope::{EmptyScope, Lookup, Scope};
use crate::term::{Root, Term};
use crate::types::Type;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A compiled template. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Template {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: TemplatePart,
    references: BTreeSet<String>,
    loops: bool,
}

/// Why a value is not a valid template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// An expression can't be parsed.
    #[error("{reason}")]
    Invalid {
        /// A JSON pointer into the value.
        path: String,
        reason: String,
    },
    /// An expression names something that does not exist.
    #[error("{reason}")]
    UnknownReference {
        /// A JSON pointer into the value.
        path: String,
        reason: String,
    },
    #[error("more than {TEMPLATE_EXPRESSIONS_MAX} expressions")]
    TooMany,
}

/// What a template would render to, as far as known.
#[derive(Clone, Debug, PartialEq)]
pub enum Preview {
    Exact(Value),
    /// Depends on outputs that are not known yet.
    Deferred {
        /// The value, with `{"$deferred": {"expression", "from"}}` where it is not known.
        shown: Value,
        /// The nodes it waits for. Empty if it waits only for the list of the enclosing map.
        from: BTreeSet<String>,
    },
}

/// The source text of an expression and its compiled form.
#[derive(Debug)]
pub struct Expression {
    source: String,
    term: Term,
}

#[derive(Debug)]
pub enum TemplatePart {
    Constant(Value),
    /// A string that is a single expression.
    Single(Expression),
    /// A string that mixes text and expressions.
    Mixed {
        source: String,
        pieces: Vec<MixedPiece>,
    },
    List(Vec<TemplatePart>),
    Object(Vec<(String, TemplatePart)>),
}

#[derive(Debug)]
pub enum MixedPiece {
    Text(String),
    Expression(Expression),
}

impl Template {
    pub fn compile(value: &Value) -> Result<Self, TemplateError> {
        let mut left = TEMPLATE_EXPRESSIONS_MAX;
        let root = compile(value, &mut String::new(), &mut left)?;
        let (mut references, mut loops) = (BTreeSet::new(), false);
        root.expressions(&mut String::new(), &mut |_, expression| {
            references.extend(expression.term.references());
            loops |= expression.term.has_loop();
        });
        Ok(Self { inner: Arc::new(Inner { root, references, loops }) })
    }

    /// Whether its work depends on the length of lists in the data.
    #[must_use]
    pub fn loops(&self) -> bool {
        self.inner.loops
    }

    pub fn render(&self, scope: &dyn Scope) -> Result<Value, RenderError> {
        let budget = Budget::of(scope);
        let evaluation = Evaluation { scope, budget: &budget };
        let value = render(&self.inner.root, &evaluation)?;
        self.check(scope, &value)?;
        Ok(value)
    }

    /// Reports a value that the scope refuses as an error of the expression.
    fn check(&self, scope: &dyn Scope, value: &Value) -> Result<(), RenderError> {
        let refused = |reason| RenderError { expression: self.inner.root.first_source().to_owned(), reason };
        scope.refusal(value).map_or(Ok(()), |reason| Err(refused(reason)))
    }

    /// The nodes whose outputs it reads.
    #[must_use]
    pub fn references(&self) -> &BTreeSet<String> {
        &self.inner.references
    }

    /// Whether it is the same for every run.
    #[must_use]
    pub fn is_constant(&self) -> bool {
        matches!(self.inner.root, TemplatePart::Constant(_))
    }

    /// Renders what is known and defers what depends on unknown outputs.
    pub fn preview(&self, scope: &dyn Scope) -> Result<Preview, RenderError> {
        let budget = Budget::of(scope);
        let evaluation = Evaluation { scope, budget: &budget };
        let mut waits = PreviewDependencies::default();
        let shown = preview(&self.inner.root, &evaluation, &mut waits)?;
        self.check(scope, &shown)?;
        Ok(if waits.deferred { Preview::Deferred { shown, from: waits.from } } else { Preview::Exact(shown) })
    }

    /// Whether it is a single expression and nothing else.
    pub fn is_single_expression(&self) -> bool {
        matches!(self.inner.root, TemplatePart::Single(_))
    }

    /// Whether it is a constant `true` or `false`.
    pub fn is_constant_bool(&self) -> bool {
        matches!(self.inner.root, TemplatePart::Constant(Value::Bool(_)))
    }

    /// The member names, empty unless it is an object.
    pub fn members(&self) -> Vec<&str> {
        match &self.inner.root {
            TemplatePart::Object(members) => members.iter().map(|(name, _)| name.as_str()).collect(),
            TemplatePart::Constant(Value::Object(members)) => members.keys().map(String::as_str).collect(),
            _ => Vec::new(),
        }
    }

    pub fn root(&self) -> &TemplatePart {
        &self.inner.root
    }

    /// A JSON pointer to the first expression that reads the outputs of `node`.
    pub fn pointer_to(&self, node: &str) -> String {
        let mut place = None;
        self.inner.root.expressions(&mut String::new(), &mut |path, expression| {
            if place.is_none() && expression.term.references().contains(node) {
                place = Some(path.to_owned());
            }
        });
        place.unwrap_or_default()
    }

    /// Whether it reads `item` or `index`.
    #[must_use]
    pub fn needs_item(&self) -> bool {
        let mut needs = false;
        self.inner.root.expressions(&mut String::new(), &mut |_, expression| needs |= expression.term.needs_item());
        needs
    }
}

impl TemplatePart {
    /// Calls `see` with every expression and its JSON pointer.
    fn expressions(&self, path: &mut String, see: &mut dyn FnMut(&str, &Expression)) {
        match self {
            Self::Constant(_) => {}
            Self::Single(expression) => see(path, expression),
            Self::Mixed { pieces, .. } => pieces.iter().for_each(|piece| {
                if let MixedPiece::Expression(expression) = piece {
                    see(path, expression);
                }
            }),
            Self::List(parts) => parts.iter().enumerate().for_each(|(at, part)| {
                with_segment(path, &at.to_string(), |path| part.expressions(path, see));
            }),
            Self::Object(members) => members.iter().for_each(|(name, part)| {
                with_segment(path, name, |path| part.expressions(path, see));
            }),
        }
    }

    fn first_source(&self) -> &str {
        match self {
            Self::Constant(_) => "",
            Self::Single(expression) => &expression.source,
            Self::Mixed { source, .. } => source,
            Self::List(parts) => parts.iter().map(Self::first_source).find(|source| !source.is_empty()).unwrap_or(""),
            Self::Object(members) => {
                members.iter().map(|(_, part)| part.first_source()).find(|source| !source.is_empty()).unwrap_or("")
            }
        }
    }

    /// The type of the rendered part, or the first mismatch.
    pub fn infer(&self, types: &dyn TypeScope) -> Result<Type, Mismatch> {
        match self {
            Self::Constant(value) => Ok(Type::from_value(value)),
            Self::Single(expression) => infer(&expression.term, types, None),
            Self::Mixed { pieces, .. } => {
                for piece in pieces {
                    if let MixedPiece::Expression(expression) = piece {
                        infer(&expression.term, types, None)?;
                    }
                }
                Ok(Type::Text)
            }
            // The caller walks lists and objects: it knows the expected type of each member.
            Self::List(_) => Ok(Type::List(Arc::new(Type::Any))),
            Self::Object(_) => Ok(Type::Any),
        }
    }
}

fn with_segment<T>(path: &mut String, name: &str, act: impl FnOnce(&mut String) -> T) -> T {
    let length = path.len();
    path.push('/');
    path.push_str(&pointer_token(name));
    let made = act(path);
    path.truncate(length);
    made
}

fn compile(value: &Value, path: &mut String, left: &mut usize) -> Result<TemplatePart, TemplateError> {
    match value {
        Value::String(text) if text.contains("${") => compile_text(text, path, left),
        Value::Array(items) => {
            let mut parts = Vec::with_capacity(items.len());
            for (at, item) in items.iter().enumerate() {
                parts.push(with_segment(path, &at.to_string(), |path| compile(item, path, left))?);
            }
            let constant = parts.iter().all(|part| matches!(part, TemplatePart::Constant(_)));
            if !constant {
                return Ok(TemplatePart::List(parts));
            }
            Ok(TemplatePart::Constant(Value::Array(
                parts.into_iter().filter_map(TemplatePart::into_constant).collect(),
            )))
        }
        Value::Object(members) => {
            let mut parts = Vec::with_capacity(members.len());
            for (name, value) in members {
                if name.contains("${") || name == DEFERRED {
                    let reason = "a member name cannot contain an expression or be $deferred".to_owned();
                    return with_segment(path, name, |path| Err(TemplateError::Invalid { path: path.clone(), reason }));
                }
                parts.push((name.clone(), with_segment(path, name, |path| compile(value, path, left))?));
            }
            if parts.iter().any(|(_, part)| !matches!(part, TemplatePart::Constant(_))) {
                return Ok(TemplatePart::Object(parts));
            }
            let constants = parts.into_iter().filter_map(|(name, part)| Some((name, part.into_constant()?)));
            Ok(TemplatePart::Constant(Value::Object(constants.collect())))
        }
        other => Ok(TemplatePart::Constant(other.clone())),
    }
}

impl TemplatePart {
    fn into_constant(self) -> Option<Value> {
        match self {
            Self::Constant(value) => Some(value),
            _ => None,
        }
    }
}

fn compile_text(text: &str, path: &str, left: &mut usize) -> Result<TemplatePart, TemplateError> {
    let invalid = |reason: String| TemplateError::Invalid { path: path.to_owned(), reason };
    let mut pieces = Vec::new();
    for piece in scan(text).map_err(invalid)? {
        pieces.push(match piece {
            Piece::Text(text) => MixedPiece::Text(text),
            Piece::Expression(source) => {
                *left = left.checked_sub(1).ok_or(TemplateError::TooMany)?;
                let term = lower(source).map_err(|unusable| match unusable {
                    LowerError::Invalid(reason) => invalid(reason),
                    LowerError::UnknownReference(reason) => {
                        TemplateError::UnknownReference { path: path.to_owned(), reason }
                    }
                })?;
                MixedPiece::Expression(Expression { source: source.to_owned(), term })
            }
        });
    }
    let free = pieces.iter().all(|piece| match piece {
        MixedPiece::Text(_) => true,
        MixedPiece::Expression(expression) => expression.term.is_constant(),
    });
    let part = match pieces.as_mut_slice() {
        [MixedPiece::Expression(_)] => match pieces.pop() {
            Some(MixedPiece::Expression(expression)) => TemplatePart::Single(expression),
            _ => TemplatePart::Constant(Value::Null),
        },
        _ => TemplatePart::Mixed { source: text.to_owned(), pieces },
    };
    if !free {
        return Ok(part);
    }
    let nothing = EmptyScope(WorkMeter::strict(CONSTANT_WORK_MAX));
    let budget = Budget::of(&nothing);
    match render(&part, &Evaluation { scope: &nothing, budget: &budget }) {
        Ok(value) => Ok(TemplatePart::Constant(value)),
        // Too expensive to fold at compile time: every run evaluates it.
        Err(_) if budget.is_spent() => Ok(part),
        Err(error) => Err(invalid(error.to_string())),
    }
}

/// The value, or `None` if it is not known yet.
fn evaluate(expression: &Expression, evaluation: &Evaluation<'_>) -> Result<Option<Value>, RenderError> {
    match evaluation.owned_value(&expression.term, None) {
        Ok(value) => Ok(Some(value)),
        Err(Halt::Unknown) => Ok(None),
        Err(Halt::Fault(reason)) => Err(RenderError { expression: expression.source.clone(), reason }),
    }
}

fn render_mixed(pieces: &[MixedPiece], evaluation: &Evaluation<'_>) -> Result<Option<String>, RenderError> {
    let mut out = String::new();
    for piece in pieces {
        match piece {
            MixedPiece::Text(text) => out.push_str(text),
            MixedPiece::Expression(expression) => match evaluate(expression, evaluation)? {
                Some(Value::String(text)) => out.push_str(&text),
                Some(value) => {
                    let text = to_plain_text(&value);
                    let fault = |reason| RenderError { expression: expression.source.clone(), reason };
                    out.push_str(&text.map_err(fault)?);
                }
                None => return Ok(None),
            },
        }
    }
    Ok(Some(out))
}

fn render(part: &TemplatePart, evaluation: &Evaluation<'_>) -> Result<Value, RenderError> {
    let unknown = |source: &str| RenderError {
        expression: source.to_owned(),
        reason: "it depends on values that are not known yet".to_owned(),
    };
    match part {
        TemplatePart::Constant(value) => Ok(value.clone()),
        TemplatePart::Single(expression) => {
            evaluate(expression, evaluation)?.ok_or_else(|| unknown(&expression.source))
        }
        TemplatePart::Mixed { source, pieces } => {
            render_mixed(pieces, evaluation)?.map(Value::String).ok_or_else(|| unknown(source))
        }
        TemplatePart::List(parts) => parts.iter().map(|part| render(part, evaluation)).collect(),
        TemplatePart::Object(members) => {
            let made = members.iter().map(|(name, part)| Ok((name.clone(), render(part, evaluation)?)));
            Ok(Value::Object(made.collect::<Result<Map<_, _>, RenderError>>()?))
        }
    }
}

/// What a preview waits for.
#[derive(Default)]
struct PreviewDependencies {
    deferred: bool,
    from: BTreeSet<String>,
}

fn preview(
    part: &TemplatePart,
    evaluation: &Evaluation<'_>,
    waits: &mut PreviewDependencies,
) -> Result<Value, RenderError> {
    let mut defer = |source: &str, terms: &mut dyn Iterator<Item = &Term>| {
        let references = terms.flat_map(Term::references);
        let unknown: BTreeSet<String> =
            references.filter(|node| matches!(evaluation.scope.outputs(node), Lookup::Unknown)).collect();
        waits.deferred = true;
        waits.from.extend(unknown.iter().cloned());
        json!({ DEFERRED: {"expression": source, "from": unknown} })
    };
    match part {
        TemplatePart::Constant(value) => Ok(value.clone()),
        TemplatePart::Single(expression) => match passed_through_input(expression, evaluation)? {
            // Keeps the parent run's `$deferred` marker.
            Some(value) => {
                waits.deferred = true;
                Ok(value)
            }
            None => {
                let value = evaluate(expression, evaluation)?;
                Ok(value.unwrap_or_else(|| defer(&expression.source, &mut std::iter::once(&expression.term))))
            }
        },
        TemplatePart::Mixed { source, pieces } => {
            let value = render_mixed(pieces, evaluation)?;
            let mut terms = pieces.iter().filter_map(|piece| match piece {
                MixedPiece::Expression(expression) => Some(&expression.term),
                MixedPiece::Text(_) => None,
            });
            Ok(value.map_or_else(|| defer(source, &mut terms), Value::String))
        }
        TemplatePart::List(parts) => parts.iter().map(|part| preview(part, evaluation, waits)).collect(),
        TemplatePart::Object(members) => {
            let mut shown = Map::new();
            for (name, part) in members {
                shown.insert(name.clone(), preview(part, evaluation, waits)?);
            }
            Ok(Value::Object(shown))
        }
    }
}

/// An input that is passed on unchanged and partly deferred: its known parts stay known.
fn passed_through_input(expression: &Expression, evaluation: &Evaluation<'_>) -> Result<Option<Value>, RenderError> {
    let Term::Path(Root::Inputs, steps) = &expression.term else { return Ok(None) };
    let Ok(value) = evaluation.input(steps) else { return Ok(None) };
    let fault = |reason| RenderError { expression: expression.source.clone(), reason };
    Ok(evaluation.has_deferred_part(value).map_err(fault)?.then(|| value.clone()))
}

/// Defers every string with an expression, for a document that could not be previewed.
pub fn defer_expressions(written: &Value) -> Value {
    match written {
        Value::String(text) if text.contains("${") => json!({ DEFERRED: {"expression": text, "from": []} }),
        Value::Array(items) => items.iter().map(defer_expressions).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), defer_expressions(value))).collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}

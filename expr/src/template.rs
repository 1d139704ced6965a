//! A JSON value with expressions in its strings, compiled once and rendered for every run.
//!
//! A string that is a single `${…}` keeps the type of its value; with text around it, it becomes a
//! string. Member names are never expressions. Constant expressions are evaluated at compile time.

use crate::eval::{Budget, DEFERRED, Evaluation, Halt, RenderError};
use crate::functions::to_plain_text;
use crate::infer::{Inference, Mismatch, TypeScope};
use crate::limits::{CONSTANT_WORK_MAX, TEMPLATE_ERRORS_MAX, TEMPLATE_EXPRESSIONS_MAX};
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
    /// A part that can't be compiled. Only in a template with errors, which is checked but never rendered.
    Invalid,
}

#[derive(Debug)]
pub enum MixedPiece {
    Text(String),
    Expression(Expression),
}

impl Template {
    pub fn compile(value: &Value) -> Result<Self, TemplateError> {
        let (template, errors) = Self::compile_all(value);
        errors.into_iter().next().map_or(Ok(template), Err)
    }

    /// The template and all its errors. Parts with errors are invalid, the others can be checked.
    #[must_use]
    pub fn compile_all(value: &Value) -> (Self, Vec<TemplateError>) {
        let mut compiler = Compiler { left: Some(TEMPLATE_EXPRESSIONS_MAX), errors: Vec::new() };
        let root = compiler.part(value, &mut String::new());
        let (mut references, mut loops) = (BTreeSet::new(), false);
        root.expressions(&mut String::new(), &mut |_, expression| {
            references.extend(expression.term.references());
            loops |= expression.term.has_loop();
        });
        (Self { inner: Arc::new(Inner { root, references, loops }) }, compiler.errors)
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

    /// Whether it has the form of a condition: a single expression and nothing else, or a constant boolean. The errors
    /// of an invalid one are known.
    pub fn can_be_condition(&self) -> bool {
        use TemplatePart::{Constant, Invalid, Single};
        matches!(self.inner.root, Single(_) | Constant(Value::Bool(_)) | Invalid)
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

    /// Whether it reads `judge`.
    #[must_use]
    pub fn reads_judge(&self) -> bool {
        let mut reads = false;
        self.inner.root.expressions(&mut String::new(), &mut |_, expression| reads |= expression.term.reads_judge());
        reads
    }

    /// The source of the first expression, or of the text around it.
    #[must_use]
    pub fn source(&self) -> &str {
        self.inner.root.first_source()
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
            Self::Constant(_) | Self::Invalid => {}
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

    /// Whether the value that a JSON pointer names is, contains or is part of one that only a run knows.
    pub fn is_unknown_at(&self, pointer: &str) -> bool {
        let mut part = self;
        for token in pointer.split('/').skip(1) {
            let name = token.replace("~1", "/").replace("~0", "~");
            let next = match part {
                Self::List(parts) => name.parse().ok().and_then(|at: usize| parts.get(at)),
                Self::Object(members) => members.iter().find(|(member, _)| *member == name).map(|(_, part)| part),
                _ => break,
            };
            match next {
                Some(next) => part = next,
                None => return false,
            }
        }
        !matches!(part, Self::Constant(_))
    }

    fn first_source(&self) -> &str {
        match self {
            Self::Constant(_) | Self::Invalid => "",
            Self::Single(expression) => &expression.source,
            Self::Mixed { source, .. } => source,
            Self::List(parts) => parts.iter().map(Self::first_source).find(|source| !source.is_empty()).unwrap_or(""),
            Self::Object(members) => {
                members.iter().map(|(_, part)| part.first_source()).find(|source| !source.is_empty()).unwrap_or("")
            }
        }
    }

    /// The type of the rendered part. Mismatches are added to `found`.
    pub fn infer(&self, types: &dyn TypeScope, found: &mut Vec<Mismatch>) -> Type {
        match self {
            Self::Constant(value) => Type::from_value(value),
            Self::Single(expression) => Inference { types, found }.term(&expression.term, None),
            Self::Mixed { pieces, .. } => {
                for piece in pieces {
                    if let MixedPiece::Expression(expression) = piece {
                        Inference { types, found: &mut *found }.term(&expression.term, None);
                    }
                }
                Type::Text
            }
            Self::List(parts) => {
                let mut known = parts.iter().map(|part| part.infer(types, found));
                let first = known.next().unwrap_or(Type::Any);
                Type::List(Arc::new(known.fold(first, Type::union)))
            }
            Self::Object(members) => {
                let known = members.iter().map(|(name, part)| (name.clone(), part.infer(types, found)));
                Type::closed_object(known)
            }
            Self::Invalid => Type::Any,
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

/// Compiles the parts of one template and collects their errors.
struct Compiler {
    /// Remaining number of expressions. `None` once there were too many.
    left: Option<usize>,
    errors: Vec<TemplateError>,
}

impl Compiler {
    fn invalid(&mut self, error: TemplateError) -> TemplatePart {
        if self.errors.len() < TEMPLATE_ERRORS_MAX {
            self.errors.push(error);
        }
        TemplatePart::Invalid
    }

    fn part(&mut self, value: &Value, path: &mut String) -> TemplatePart {
        match value {
            Value::String(text) if text.contains("${") => {
                let made = compile_text(text, path, &mut self.left);
                made.unwrap_or_else(|error| error.map_or(TemplatePart::Invalid, |error| self.invalid(error)))
            }
            Value::Array(items) => {
                let part =
                    |(at, item): (usize, &Value)| with_segment(path, &at.to_string(), |path| self.part(item, path));
                let parts: Vec<TemplatePart> = items.iter().enumerate().map(part).collect();
                if parts.iter().any(|part| !matches!(part, TemplatePart::Constant(_))) {
                    return TemplatePart::List(parts);
                }
                TemplatePart::Constant(Value::Array(
                    parts.into_iter().filter_map(TemplatePart::into_constant).collect(),
                ))
            }
            Value::Object(members) => {
                let part = |(name, value): (&String, &Value)| {
                    (name.clone(), with_segment(path, name, |path| self.member(name, value, path)))
                };
                let parts: Vec<(String, TemplatePart)> = members.iter().map(part).collect();
                if parts.iter().any(|(_, part)| !matches!(part, TemplatePart::Constant(_))) {
                    return TemplatePart::Object(parts);
                }
                let constants = parts.into_iter().filter_map(|(name, part)| Some((name, part.into_constant()?)));
                TemplatePart::Constant(Value::Object(constants.collect()))
            }
            other => TemplatePart::Constant(other.clone()),
        }
    }

    fn member(&mut self, name: &str, value: &Value, path: &mut String) -> TemplatePart {
        if name.contains("${") || name == DEFERRED {
            let reason = "a member name cannot contain an expression or be $deferred".to_owned();
            return self.invalid(TemplateError::Invalid { path: path.clone(), reason });
        }
        self.part(value, path)
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

/// `Err(None)`: there were too many expressions before, which is reported once.
fn compile_text(text: &str, path: &str, left: &mut Option<usize>) -> Result<TemplatePart, Option<TemplateError>> {
    let invalid = |reason: String| Some(TemplateError::Invalid { path: path.to_owned(), reason });
    let mut pieces = Vec::new();
    for piece in scan(text).map_err(invalid)? {
        pieces.push(match piece {
            Piece::Text(text) => MixedPiece::Text(text),
            Piece::Expression(source) => {
                let had = left.ok_or(None)?;
                *left = had.checked_sub(1);
                left.ok_or(Some(TemplateError::TooMany))?;
                let term = lower(source).map_err(|unusable| match unusable {
                    LowerError::Invalid(reason) => invalid(reason),
                    LowerError::UnknownReference(reason) => {
                        Some(TemplateError::UnknownReference { path: path.to_owned(), reason })
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
        TemplatePart::Invalid => Err(invalid_part()),
        TemplatePart::List(parts) => parts.iter().map(|part| render(part, evaluation)).collect(),
        TemplatePart::Object(members) => {
            let made = members.iter().map(|(name, part)| Ok((name.clone(), render(part, evaluation)?)));
            Ok(Value::Object(made.collect::<Result<Map<_, _>, RenderError>>()?))
        }
    }
}

fn invalid_part() -> RenderError {
    RenderError { expression: String::new(), reason: "the expression was never compiled".to_owned() }
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
        TemplatePart::Invalid => Err(invalid_part()),
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

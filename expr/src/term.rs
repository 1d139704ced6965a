//! An expression after lowering: paths are resolved to their root, operators are enums.

use crate::functions::Function;
use serde_json::Value;
use std::collections::BTreeSet;

/// Where a path begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    Inputs,
    /// `nodes.<id>.outputs`.
    Outputs(String),
    RunId,
    Item,
    Index,
    /// The resolved input of the step that a judge decides on.
    StepInput,
    /// The output of that step.
    StepOutput,
    /// What earlier judgements of the step say.
    Judge,
    /// The variable of the enclosing macro.
    Variable,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Member(String),
    At(usize),
}

/// Binary operators that always evaluate both operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}

impl Operator {
    pub(crate) const fn sign(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Modulo => "%",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::In => "in",
        }
    }
}

/// A CEL macro over a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Macro {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Term {
    Constant(Value),
    Path(Root, Vec<Step>),
    /// `has(path.member)`.
    Has(Box<Term>, String),
    Member(Box<Term>, String),
    Index(Box<Term>, Box<Term>),
    List(Vec<Term>),
    Object(Vec<(Term, Term)>),
    Not(Box<Term>),
    Negate(Box<Term>),
    And(Box<Term>, Box<Term>),
    Or(Box<Term>, Box<Term>),
    If(Box<[Term; 3]>),
    Binary(Operator, Box<[Term; 2]>),
    Call(Function, Vec<Term>),
    /// A macro over a list. Only the three-argument `map` has a filter.
    Each {
        kind: Macro,
        over: Box<Term>,
        filter: Option<Box<Term>>,
        body: Box<Term>,
    },
}

impl Term {
    /// Calls `see` with the root of every path.
    pub(crate) fn visit_roots(&self, see: &mut dyn FnMut(&Root)) {
        match self {
            Self::Constant(_) => {}
            Self::Path(root, _) => see(root),
            Self::Has(of, _) | Self::Member(of, _) | Self::Not(of) | Self::Negate(of) => of.visit_roots(see),
            Self::Index(of, at) => {
                of.visit_roots(see);
                at.visit_roots(see);
            }
            Self::And(one, other) | Self::Or(one, other) => {
                one.visit_roots(see);
                other.visit_roots(see);
            }
            Self::List(terms) | Self::Call(_, terms) => terms.iter().for_each(|term| term.visit_roots(see)),
            Self::Object(entries) => entries.iter().for_each(|(name, value)| {
                name.visit_roots(see);
                value.visit_roots(see);
            }),
            Self::If(parts) => parts.iter().for_each(|term| term.visit_roots(see)),
            Self::Binary(_, sides) => sides.iter().for_each(|term| term.visit_roots(see)),
            Self::Each { over, filter, body, .. } => {
                over.visit_roots(see);
                filter.iter().for_each(|term| term.visit_roots(see));
                body.visit_roots(see);
            }
        }
    }

    /// The nodes whose outputs it reads.
    pub(crate) fn references(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        self.visit_roots(&mut |root| {
            if let Root::Outputs(node) = root {
                found.insert(node.clone());
            }
        });
        found
    }

    /// Whether it iterates over a list, so that its work depends on the data.
    pub(crate) fn has_loop(&self) -> bool {
        match self {
            Self::Each { .. } => true,
            Self::Constant(_) | Self::Path(..) => false,
            Self::Has(of, _) | Self::Member(of, _) | Self::Not(of) | Self::Negate(of) => of.has_loop(),
            Self::Index(one, other) | Self::And(one, other) | Self::Or(one, other) => {
                one.has_loop() || other.has_loop()
            }
            Self::List(terms) | Self::Call(_, terms) => terms.iter().any(Self::has_loop),
            Self::Object(entries) => entries.iter().any(|(name, value)| name.has_loop() || value.has_loop()),
            Self::If(parts) => parts.iter().any(Self::has_loop),
            Self::Binary(_, sides) => sides.iter().any(Self::has_loop),
        }
    }

    /// Whether it reads nothing of a run.
    pub(crate) fn is_constant(&self) -> bool {
        let mut free = true;
        self.visit_roots(&mut |root| free &= *root == Root::Variable);
        free
    }

    /// Whether it reads `judge`.
    pub(crate) fn reads_judge(&self) -> bool {
        let mut reads = false;
        self.visit_roots(&mut |root| reads |= *root == Root::Judge);
        reads
    }

    /// Whether it reads `item` or `index`.
    pub(crate) fn needs_item(&self) -> bool {
        let mut needs = false;
        self.visit_roots(&mut |root| needs |= matches!(root, Root::Item | Root::Index));
        needs
    }
}

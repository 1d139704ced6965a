//! The expression language of workflows: `${…}`, CEL over a run's inputs and outputs.
//!
//! An expression is parsed once and lowered to small terms. Terms are type-checked before a run and
//! evaluated directly on the run's JSON during it. Nothing is converted up front: an expression
//! touches only the paths it names. Parsing, checking and evaluation are bounded and deterministic,
//! and distinguish "not known yet" from an error.
//!
//! One difference from CEL: JSON has one number type, so integers and fractions mix in arithmetic.

mod canonical;
mod eval;
mod functions;
mod infer;
mod lex;
pub mod limits;
mod literal;
mod lower;
mod meter;
mod operators;
mod scan;
mod scope;
mod suggest;
mod syntax;
mod template;
mod term;
mod types;

pub use canonical::{canonical, number_text, write_integer, write_text};
pub use eval::{RenderError, is_deferred};
pub use infer::{Mismatch, TypeScope};
pub use meter::WorkMeter;
pub use scope::{Judged, Lookup, Scope};
pub use suggest::did_you_mean;
pub use template::{Preview, Template, TemplateError};
pub use template::{TemplatePart, defer_expressions};
pub use types::{Shape, Type};

/// Escapes a member name for use in a JSON pointer.
pub fn pointer_token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

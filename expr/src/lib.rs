//! `${…}`: the expressions in workflows, which are CEL over a run's inputs and outputs.
//!
//! An expression is read once and lowered to small terms, which are type-checked before a run and
//! evaluated straight on the run's JSON during it. Nothing is converted ahead: an expression
//! touches only the paths it names. Reading, checking and evaluating all have limits, know no
//! clock and no randomness, and can tell "not known yet" from an error.
//!
//! One thing differs from CEL: JSON has one kind of number, so whole numbers and fractions mix in
//! arithmetic.

mod call;
mod canonical;
mod eval;
mod infer;
mod lex;
pub mod limits;
mod literal;
mod lower;
mod meter;
mod nearest;
mod operate;
mod scan;
mod scope;
mod syntax;
mod template;
mod term;
mod types;

pub use canonical::{canonical, number_text, write_integer, write_text};
pub use eval::RenderError;
pub use infer::{Mismatch, Types};
pub use meter::WorkMeter;
pub use nearest::did_you_mean;
pub use scope::{Lookup, Scope};
pub use template::{Part, deferred_texts};
pub use template::{Preview, Template, TemplateError};
pub use types::{Shape, Type};

/// A member's name as a token of a JSON pointer.
pub fn pointer_token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

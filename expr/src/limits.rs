//! The limits of the language. `core::limits` carries them on, and the reference lists them with all others.

// Reading and computing

/// Bytes of one expression. A workflow with a longer one is refused with `VALIDATION_FAILED`.
pub const EXPRESSION_BYTES_MAX: usize = 2_048;
/// Terms of one expression. A workflow with a longer one is refused with `VALIDATION_FAILED`.
pub const EXPRESSION_TERMS_MAX: usize = 256;
/// Nesting of one expression. A workflow with a deeper one is refused with `VALIDATION_FAILED`.
pub const EXPRESSION_DEPTH_MAX: usize = 64;
/// Items of a list that an expression may go through or make. With more the step fails with `VALIDATION_FAILED`.
pub const EXPRESSION_LIST_MAX: usize = 10_000;
/// Expressions of one template. A workflow with more is refused with `VALIDATION_FAILED`.
pub const TEMPLATE_EXPRESSIONS_MAX: usize = 256;
/// Errors of one template that are reported together. Further ones are omitted.
pub const TEMPLATE_ERRORS_MAX: usize = 50;
/// Work of one rendering, in terms evaluated and 16-byte pieces copied. With more the step fails with
/// `VALIDATION_FAILED`.
pub const EXPRESSION_WORK_MAX: u64 = 1_000_000;
/// Work of an expression without variables when its workflow is compiled. One that takes more is evaluated by each
/// run.
pub const CONSTANT_WORK_MAX: u64 = 10_000;

// Types

/// Nesting of a JSON Schema that types of expressions are read from. What is deeper may have any type.
pub const SCHEMA_TYPES_DEPTH_MAX: usize = 16;
/// Types that are read from one JSON Schema. Further parts may have any type.
pub const SCHEMA_TYPES_MAX: usize = 2_000;

// Suggestions

/// Known names that a mistyped one is compared with. Further names are not suggested.
pub const SUGGESTION_NAMES_MAX: usize = 2_000;
/// Characters of a name that is compared. For a longer name nothing is suggested.
pub const SUGGESTION_CHARS_MAX: usize = 64;
/// Characters of a name that is compared, at least. For a shorter name nothing is suggested.
pub const SUGGESTION_CHARS_MIN: usize = 3;
/// Known names that are listed where a name is unknown. Further names are omitted.
pub const KNOWN_NAMES_MAX: usize = 20;

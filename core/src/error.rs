//! Errors as clients see them: one table of stable codes, one body, one context.
//!
//! Every error that leaves the system has a [`Code`], is rendered as an [`ErrorBody`] and, over HTTP, wrapped in a
//! [`ProblemDetails`]. It never contains a path, SQL or a stack trace. Codes are stable; each has a page in `docs/errors/`.

mod body;
mod code;
mod context;
mod os;

pub use body::{ErrorBody, ProblemDetails};
pub use code::{Code, EQUIVALENTS, EquivalentCodes, ErrorType};
pub use context::{ErrorContext, ErrorReport, ErrorTimestamps};
pub use os::io_reason;

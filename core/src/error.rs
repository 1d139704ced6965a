//! Errors as the world sees them: one table of stable codes, one body, one context.
//!
//! Every error that leaves the system is one row of [`Code`], spelled as an [`ErrorBody`] and, over
//! HTTP, wrapped in a [`Problem`]. Nothing here says how an error came about inside: no path, no
//! SQL, no stack trace. A code is a promise; its page stands in `docs/errors/`.

mod body;
mod code;
mod context;
mod os;

pub use body::{ErrorBody, Problem};
pub use code::{Code, EQUIVALENTS, Equivalent, ErrorType};
pub use context::{ErrorContext, ErrorReport, Timestamps};
pub use os::io_reason;

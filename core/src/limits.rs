//! Every limit of the system by its name: `limits::BODY_BYTES_MAX`.
//!
//! One file per room, then what the rooms share; a room without limits has none. The expression language brings its own. The first sentence of a comment says
//! what is bounded, the rest what happens beyond it. `docs/reference/limits.md` is made from these files, and a test
//! finds limits that stand elsewhere.

mod access;
mod flow;
mod tool;

mod ledger;

mod http;
mod process;
mod store;

pub use access::*;
pub use chimera_expr::limits::*;
pub use flow::*;
pub use http::*;
pub use ledger::*;
pub use process::*;
pub use store::*;
pub use tool::*;

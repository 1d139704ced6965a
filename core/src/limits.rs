//! Every limit of the system by name: `limits::BODY_BYTES_MAX`.
//!
//! One file per room, then what the rooms share. A room without limits has no file, and the expression language defines
//! its own limits in `expr/src/limits.rs`. The first sentence of a comment says what is bounded, the rest what happens
//! beyond it. `docs/reference/limits.md` is generated from these files, and a test finds limits that are defined
//! elsewhere.

mod ledger;

mod access;

mod flow;

mod act;

mod intent;

mod http;
mod process;
mod store;
mod tool;

pub use access::*;
pub use act::*;
pub use chimera_expr::limits::*;
pub use flow::*;
pub use http::*;
pub use intent::*;
pub use ledger::*;
pub use process::*;
pub use store::*;
pub use tool::*;

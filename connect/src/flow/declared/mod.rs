//! Tools that are a file: method, address, schemas, and how to undo, look up and page.
//!
//! [`load`] reads and checks a file; [`HttpTool`] makes its calls. Nothing in a file is code: what
//! it can't say needs a tool of its own.

mod auth;
mod exchange;
mod file;
mod load;
mod mapping;
mod paging;
mod plan;
mod template;
mod tool;

pub use load::{DeclareError, load};
pub use plan::Declaration;
pub use tool::{HttpTool, tools};

//! The HTTP API.
//!
//! A handler returns a response or an [`ApiError`]. The request layer gives every request a trace, a span
//! and metrics, and renders every error as a problem document, whether a handler or a library made it.
//! The route table is `routes.rs`; connections and their limits are `server.rs`. No domain rules live here.

mod access;
mod act;
mod audit;
mod caller;
mod edge;
mod extract;
mod flow;
mod gate;
mod json;
mod ops;
mod page;
mod place;
mod problem;
mod refusals;
mod request;
mod route;
mod routes;
mod server;
mod trace;

pub use edge::{ReadinessCheck, Edge, TraceLink};
pub use extract::ApiJson;
pub use ops::errors::{index as error_index, page as error_page};
pub use problem::ApiError;
pub use route::{Freshness, RateClass, Route, RouteRules, Signed};
pub use routes::{document, router, route_table, waiting_router, with_routes};
pub use server::{InProcessClient, ShutdownReport, ServerLimits, serve, serve_until};
pub use trace::{Origin, TraceContext};

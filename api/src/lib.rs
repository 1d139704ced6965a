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
mod error_responses;
mod extract;
mod flow;
mod gate;
mod json;
mod ops;
mod page;
mod params;
mod problem;
mod request;
mod route;
mod routes;
mod server;
mod trace;

pub use edge::{Edge, ReadinessCheck, TraceLink};
pub use extract::ApiJson;
pub use ops::errors::{index as error_index, page as error_page};
pub use problem::ApiError;
pub use route::{Freshness, RateClass, Route, RouteRules, Signed};
pub use routes::{document, route_table, router, waiting_router, with_routes};
pub use server::{InProcessClient, ServerLimits, ShutdownReport, serve, serve_until};
pub use trace::{Origin, TraceContext};

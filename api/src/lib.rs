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
mod examples;
mod extract;
mod flow;
mod gate;
mod intent;
mod job;
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
mod wire;

pub use edge::{Edge, ReadinessCheck, TraceLink};
pub use extract::ApiJson;
pub use ops::errors::{index as error_index, page as error_page};
pub use problem::ApiError;
pub use route::{Freshness, RateClass, Route, RouteRules, Signed};
pub use routes::{document, route_table, router, waiting_router, with_routes};
pub use server::{InProcessClient, ServerLimits, ShutdownReport, serve, serve_until};
pub use trace::{Origin, TraceContext};

/// The bodies of answers. The command line writes the same ones when it reads a store without a server.
pub mod answer {
    pub use crate::access::actor_get::ActorDocument;
    pub use crate::access::signing_key_list::SigningKeyDocument;
    pub use crate::access::signing_key_rotate::RotationDocument;
    pub use crate::access::tenant_list::TenantDocument;
    pub use crate::audit::audit_list::EntryPage;
    pub use crate::flow::wire::{
        DoubtPage, EventDocument, InboxPage, RunDocument, RunPage, StepList, WorkItemPage, WorkflowDocument,
        WorkflowPage,
    };
    pub use crate::job::execution_list::ExecutionPage;
}

//! Somebody who was let in. A handler that takes a [`Caller`] can't be reached without a permit.

use crate::edge::Edge;
use crate::problem::ApiError;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use chimera_core::error::Code;
use chimera_engine::access::Permit;
use chimera_engine::flow::Flow;

/// Somebody who was let in, and the room they came to.
pub(crate) struct Caller {
    pub(crate) permit: Permit,
    pub(crate) flow: Flow,
}

impl FromRequestParts<Edge> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, edge: &Edge) -> Result<Self, ApiError> {
        // A route without the gate before it is a fault of ours, not of the caller.
        let permit = parts.extensions.get::<Permit>().cloned().ok_or_else(ApiError::internal)?;
        let flow = edge.flow.clone().ok_or_else(|| ApiError::new(Code::NotFound, "no workflows run here"))?;
        Ok(Self { permit, flow })
    }
}

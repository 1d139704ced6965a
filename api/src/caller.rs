//! The authenticated caller of a request. A handler that takes a [`Caller`] can't be reached without a permit.

use crate::edge::Edge;
use crate::problem::ApiError;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use chimera_core::error::Code;
use chimera_engine::access::Permit;
use chimera_engine::flow::Flow;

pub(crate) struct Caller {
    pub(crate) permit: Permit,
    pub(crate) flow: Flow,
}

impl FromRequestParts<Edge> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, edge: &Edge) -> Result<Self, ApiError> {
        // A route without the gate in front of it is a bug here, not a fault of the caller.
        let permit = parts.extensions.get::<Permit>().cloned().ok_or_else(ApiError::internal)?;
        let flow = edge
            .flow
            .clone()
            .ok_or_else(|| ApiError::new(Code::NotFound, "workflows are not configured on this server"))?;
        Ok(Self { permit, flow })
    }
}

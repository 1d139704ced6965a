//! The authenticated caller of a request. A handler that takes a [`Caller`] can't be reached without a permit.

use crate::edge::Edge;
use crate::gate::memory::{self, MemoryShare};
use crate::problem::ApiError;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use chimera_core::error::Code;
use chimera_engine::access::Permit;
use chimera_engine::flow::view::RunDetails;
use chimera_engine::flow::{self, Flow, SizeBudget};
use uuid::Uuid;

pub(crate) struct Caller {
    pub(crate) permit: Permit,
    pub(crate) flow: Flow,
    /// `None` if the request needs little memory.
    memory: Option<MemoryShare>,
}

impl Caller {
    /// A run as `render` writes it.
    pub(crate) async fn show_run<T>(&self, run: Uuid, render: impl FnOnce(RunDetails) -> T) -> Result<T, ApiError> {
        let room = self.page_share().await?;
        Ok(flow::show_run_as(&self.flow, &self.permit, run, room, render).await?)
    }

    /// Memory to read a page with. What the request had is given back, unless it is more.
    pub(crate) async fn page_share(&self) -> Result<SizeBudget, ApiError> {
        let held = self.memory.as_ref().map(MemoryShare::take).unwrap_or_default();
        memory::reserve_page(&self.flow, &self.permit.claimant(), held).await
    }

    /// Gives back what work on so many bytes does not need.
    pub(crate) fn shrink_memory(&self, bytes: usize) {
        if let Some(share) = &self.memory {
            share.shrink(bytes);
        }
    }

    /// Gives back the memory of the request, whose body has been dealt with.
    pub(crate) fn release_memory(&self) {
        if let Some(share) = &self.memory {
            share.release();
        }
    }
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
        Ok(Self { permit, flow, memory: MemoryShare::of(&parts.extensions) })
    }
}

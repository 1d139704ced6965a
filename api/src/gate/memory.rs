//! The memory that a request may use, taken before its handler runs.
//!
//! All requests share one budget ([`LARGE_WORK_BYTES_MAX`](chimera_core::limits::LARGE_WORK_BYTES_MAX)), and tenants take
//! turns. A read takes what a page may need before any row is read, a request with a body what its JSON needs once it is
//! parsed. A request waits for its turn only for so long. A handler that waits for something else, or asks for memory by
//! another measure, gives its share back first: two requests that hold some and wait for more would wait forever.

use super::received::ReceivedRequest;
use crate::edge::Edge;
use crate::problem::ApiError;
use crate::route::RateClass;
use axum::http::Extensions;
use chimera_core::access::Claimant;
use chimera_core::error::Code;
use chimera_core::json::weight_of_text;
use chimera_core::limits::LARGE_WORK_WAIT_MAX;
use chimera_engine::flow::{Flow, SizeBudget};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::timeout;

/// The share of one request. Its handler may give it back early.
#[derive(Clone)]
pub(crate) struct MemoryShare(Arc<Mutex<SizeBudget>>);

impl MemoryShare {
    /// Waits for the share of a request; `None` if it needs little.
    pub(super) async fn reserve(
        edge: &Edge,
        who: &Claimant,
        received: &ReceivedRequest,
    ) -> Result<Option<Self>, ApiError> {
        let Some(flow) = &edge.flow else { return Ok(None) };
        let held = match received.rules.limit {
            RateClass::Reads => reserve_page(flow, who, SizeBudget::default()).await?,
            RateClass::Writes | RateClass::Free => {
                let weight = weight_of_text(&received.body);
                in_time(flow.reserve_memory(who, weight)).await??
            }
        };
        Ok((!held.is_empty()).then(|| Self(Arc::new(Mutex::new(held)))))
    }

    /// The share of the request with these extensions; `None` if it needs little.
    pub(crate) fn of(extensions: &Extensions) -> Option<Self> {
        extensions.get::<Self>().cloned()
    }

    /// Takes the share. Dropping it gives it back.
    pub(crate) fn take(&self) -> SizeBudget {
        std::mem::take(&mut *self.held())
    }

    /// Gives back what work on so many bytes does not need.
    pub(crate) fn shrink(&self, bytes: usize) {
        self.held().shrink(bytes);
    }

    /// Gives back everything but the place in the queue.
    pub(crate) fn release(&self) {
        self.held().release();
    }

    fn held(&self) -> std::sync::MutexGuard<'_, SizeBudget> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory to read a page with, in exchange for what the request has.
pub(crate) async fn reserve_page(flow: &Flow, who: &Claimant, held: SizeBudget) -> Result<SizeBudget, ApiError> {
    in_time(flow.reserve_page(who, held)).await
}

/// Waits for memory as long as a request may.
async fn in_time<T>(waits: impl Future<Output = T>) -> Result<T, ApiError> {
    let overloaded = |_| {
        let what = "the server works on too many large requests; try again later";
        ApiError::new(Code::Overloaded, what).retry_after(1)
    };
    timeout(LARGE_WORK_WAIT_MAX, waits).await.map_err(overloaded)
}

//! Requests without a socket, for benchmarks: everything but the connection handling.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, header};
use bytes::Bytes;
use chimera_core::limits::BODY_BYTES_MAX;
use tower::ServiceExt;

#[derive(Clone)]
pub struct InProcessClient(Router);

impl InProcessClient {
    #[must_use]
    pub const fn new(router: Router) -> Self {
        Self(router)
    }

    /// Posts a signed JSON body and returns status and body; `None` if the request could not be built or the response not read.
    pub async fn post(&self, path: &str, token: &str, signature: &str, body: Bytes) -> Option<(u16, Bytes)> {
        let request = Request::post(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .header(crate::gate::headers::SIGNATURE, signature)
            .body(Body::from(body))
            .ok()?;
        let answer = self.0.clone().oneshot(request).await.ok()?;
        let status = answer.status().as_u16();
        let body = axum::body::to_bytes(answer.into_body(), BODY_BYTES_MAX).await.ok()?;
        Some((status, body))
    }
}

//! Requests without a socket: everything of the edge but connections, for measuring what it costs.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, header};
use bytes::Bytes;
use chimera_core::limits::BODY_BYTES_MAX;
use tower::ServiceExt;

/// The edge, to be asked directly.
#[derive(Clone)]
pub struct Direct(Router);

impl Direct {
    /// Asks this router.
    #[must_use]
    pub const fn new(router: Router) -> Self {
        Self(router)
    }

    /// Posts a signed JSON body: status and body of the answer; none if it could not be made or read.
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

//! Limits how many response bytes wait in memory for slow clients.
//!
//! A response is held in memory until the client reads it, and a slow client may take as long as it needs. So the unread
//! bytes are bounded, per address and in total. A client with too much unread is refused before its request is processed.
//! A GET that was admitted earlier may lose its response to the limit; the response to a change is always sent.

use crate::problem::ApiError;
use crate::server::Peer;
use axum::Extension;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::{Buf, Bytes};
use chimera_core::access::address;
use chimera_core::error::Code;
use chimera_core::limits::{UNREAD_BYTES_COUNTED, UNREAD_BYTES_MAX, UNREAD_BYTES_PER_ADDRESS_MAX, UNREAD_PIECE_BYTES};
use hyper::body::{Frame, SizeHint};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

/// Unread bytes per address. Only addresses with unread bytes have an entry, so it is bounded by the connections.
#[derive(Debug, Default)]
pub(crate) struct UnreadResponses {
    waiting: Mutex<UnreadCounts>,
}

#[derive(Debug, Default)]
struct UnreadCounts {
    bytes: usize,
    addresses: BTreeMap<IpAddr, usize>,
}

impl UnreadResponses {
    fn waiting(&self) -> MutexGuard<'_, UnreadCounts> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error for an address that is over a limit. `None` as address means a proxy, which has no limit of its own.
    fn refusal(&self, address: Option<IpAddr>) -> Option<ApiError> {
        let waiting = self.waiting();
        let own = address.and_then(|address| waiting.addresses.get(&address).copied()).unwrap_or(0);
        if own >= UNREAD_BYTES_PER_ADDRESS_MAX {
            let message = format!("this address has {own} bytes of unread responses; read them first");
            let error = ApiError::new(Code::RateLimited, message);
            return Some(error.with("unread_bytes_max", UNREAD_BYTES_PER_ADDRESS_MAX).retry_after(1));
        }
        let full = waiting.bytes >= UNREAD_BYTES_MAX && (own > 0 || address.is_none());
        full.then(|| ApiError::new(Code::Overloaded, "too many response bytes are unread; retry later").retry_after(1))
    }

    fn reserve(self: &Arc<Self>, address: Option<IpAddr>, bytes: usize) -> UnreadReservation {
        let mut waiting = self.waiting();
        waiting.bytes += bytes;
        if let Some(address) = address {
            *waiting.addresses.entry(address).or_default() += bytes;
        }
        UnreadReservation { unread: Arc::clone(self), address, bytes }
    }
}

/// Unread bytes of one response, released on drop.
struct UnreadReservation {
    unread: Arc<UnreadResponses>,
    address: Option<IpAddr>,
    bytes: usize,
}

impl UnreadReservation {
    fn release(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        let mut waiting = self.unread.waiting();
        waiting.bytes -= bytes;
        let Some(address) = self.address else { return };
        if let Some(own) = waiting.addresses.get_mut(&address) {
            *own -= bytes;
            if *own == 0 {
                waiting.addresses.remove(&address);
            }
        }
    }
}

impl Drop for UnreadReservation {
    fn drop(&mut self) {
        self.release(self.bytes);
    }
}

/// Middleware: counts the unread bytes of responses, and refuses requests of an address that has too many.
pub(crate) async fn limit_unread(
    State(unread): State<Arc<UnreadResponses>>,
    peer: Option<Extension<Peer>>,
    request: Request,
    next: Next,
) -> Response {
    let address = peer.filter(|peer| !peer.is_proxy).map(|peer| address::counted(peer.address));
    if let Some(refusal) = unread.refusal(address) {
        return refusal.into_response();
    }
    let changes_nothing = matches!(*request.method(), Method::GET | Method::HEAD);
    let response = next.run(request).await;
    let exact = response.body().size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let Some(bytes) = exact.filter(|bytes| *bytes >= UNREAD_BYTES_COUNTED) else { return response };
    if let Some(refusal) = unread.refusal(address).filter(|_| changes_nothing) {
        return refusal.into_response();
    }
    let held = unread.reserve(address, bytes);
    response.map(|body| Body::new(MeteredBody { body, left: Bytes::new(), held }))
}

/// A response body that is sent in pieces, so that the unread rest is known.
struct MeteredBody {
    body: Body,
    left: Bytes,
    held: UnreadReservation,
}

impl HttpBody for MeteredBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if self.left.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.left = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                end => return Poll::Ready(end),
            }
        }
        let bytes = self.left.len().min(UNREAD_PIECE_BYTES);
        let piece = self.left.split_to(bytes);
        self.held.release(bytes);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        !self.left.has_remaining() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.body.size_hint().exact() {
            Some(rest) => SizeHint::with_exact(rest + self.left.len() as u64),
            None => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use tower::ServiceExt;

    const LARGE: usize = 8 * 1024 * 1024;

    fn router(unread: &Arc<UnreadResponses>) -> Router {
        let large = || async { vec![b'x'; LARGE] };
        let routes = get(large).post(large);
        Router::new().route("/large", routes).layer(from_fn_with_state(Arc::clone(unread), limit_unread))
    }

    async fn ask(router: &Router, method: Method, from: &str, is_proxy: bool) -> Response {
        let peer = Peer { address: from.parse().unwrap(), is_proxy };
        let request = Request::builder().method(method).uri("/large").extension(peer).body(Body::empty());
        router.clone().oneshot(request.unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn an_address_that_reads_nothing_is_given_no_more_and_others_are() {
        let unread = Arc::default();
        let router = router(&unread);
        let mut kept = Vec::new();
        let refused = loop {
            let answer = ask(&router, Method::GET, "192.0.2.1", false).await;
            if answer.status() != 200 {
                break answer;
            }
            kept.push(answer);
            assert!(kept.len() < 100, "{} MB wait", kept.len() * 8);
        };
        assert_eq!((refused.status().as_u16(), kept.len()), (429, UNREAD_BYTES_PER_ADDRESS_MAX / LARGE));
        assert_eq!(ask(&router, Method::POST, "192.0.2.1", false).await.status(), 429, "and nothing is begun");
        let other = ask(&router, Method::GET, "192.0.2.2", false).await;
        assert_eq!(other.body().size_hint().exact(), Some(LARGE as u64));
        let read = axum::body::to_bytes(other.into_body(), usize::MAX).await.unwrap();
        assert!(read.len() == LARGE && read.iter().all(|byte| *byte == b'x'));
        drop(kept.pop());
        assert_eq!(ask(&router, Method::GET, "192.0.2.1", false).await.status(), 200);
        drop(kept);
        assert!(unread.waiting().bytes == 0 && unread.waiting().addresses.is_empty());
    }

    #[tokio::test]
    async fn all_together_leave_so_much_unread_and_whoever_has_nothing_waiting_is_answered() {
        let unread = Arc::default();
        let router = router(&unread);
        let mut kept = Vec::new();
        for _ in 0..UNREAD_BYTES_MAX / LARGE {
            kept.push(ask(&router, Method::GET, "192.0.2.1", true).await);
        }
        assert_eq!(ask(&router, Method::GET, "192.0.2.1", true).await.status(), 503);
        assert_eq!(ask(&router, Method::GET, "192.0.2.2", false).await.status(), 200);
        kept.clear();
        assert_eq!(ask(&router, Method::GET, "192.0.2.1", true).await.status(), 200);
    }
}

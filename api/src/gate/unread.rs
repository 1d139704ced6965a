//! Limits how many response bytes wait in memory for slow clients.
//!
//! A response stays in memory until the client has read it. Unread bytes are limited per address, per tenant and in
//! total. A client over its limit is refused before any work is done. If the limit is reached while a request runs, the
//! response to a read is dropped; the response to a change is always sent.

use crate::problem::ApiError;
use crate::server::Peer;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::{Buf, Bytes};
use chimera_core::access::{Pool, address};
use chimera_core::error::Code;
use chimera_core::limits::{UNREAD_BYTES_COUNTED, UNREAD_BYTES_MAX, UNREAD_BYTES_PER_ADDRESS_MAX, UNREAD_PIECE_BYTES};
use chimera_engine::access::Permit;
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
    tenants: BTreeMap<Arc<str>, usize>,
}

/// The tenant that an answer is for.
#[derive(Clone)]
struct TenantOf(Arc<str>);

/// Who an answer waits for.
#[derive(Clone, Default)]
struct Reader {
    /// `None`: a proxy, behind which are many.
    address: Option<IpAddr>,
    /// `None`: not known.
    tenant: Option<Arc<str>>,
}

impl UnreadResponses {
    fn waiting(&self) -> MutexGuard<'_, UnreadCounts> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What keeps a reader from being given so many bytes more, if something does.
    fn refusal(&self, reader: &Reader, bytes: usize) -> Option<ApiError> {
        let waiting = self.waiting();
        let own = reader.address.and_then(|address| waiting.addresses.get(&address).copied()).unwrap_or(0);
        if own >= UNREAD_BYTES_PER_ADDRESS_MAX {
            let message = format!("this address has {own} bytes of unread responses; read them first");
            let error = ApiError::new(Code::RateLimited, message);
            return Some(error.with("unread_bytes_max", UNREAD_BYTES_PER_ADDRESS_MAX).retry_after(1));
        }
        if let Some(tenant) = &reader.tenant {
            let held = waiting.tenants.get(tenant).copied().unwrap_or(0);
            let pool = Pool {
                total: UNREAD_BYTES_MAX,
                taken: waiting.bytes.saturating_add(bytes),
                held: held.saturating_add(bytes),
            };
            // Whoever has nothing waiting is answered.
            let full = held > 0 && !pool.may_take_slot(true);
            let message =
                format!("{held} bytes of earlier answers wait to be read by tenant {tenant}; read them first");
            return full.then(|| ApiError::new(Code::Overloaded, message).with("tenant", &**tenant).retry_after(1));
        }
        let full = waiting.bytes >= UNREAD_BYTES_MAX && own > 0;
        full.then(|| {
            ApiError::new(Code::Overloaded, "too many responses wait to be read; read them or close their connections")
                .retry_after(1)
        })
    }

    fn reserve(self: &Arc<Self>, reader: Reader, bytes: usize) -> UnreadReservation {
        let mut waiting = self.waiting();
        waiting.bytes += bytes;
        if let Some(address) = reader.address {
            *waiting.addresses.entry(address).or_default() += bytes;
        }
        if let Some(tenant) = &reader.tenant {
            *waiting.tenants.entry(Arc::clone(tenant)).or_default() += bytes;
        }
        UnreadReservation { unread: Arc::clone(self), reader, bytes }
    }
}

/// Unread bytes of one response, released on drop.
struct UnreadReservation {
    unread: Arc<UnreadResponses>,
    reader: Reader,
    bytes: usize,
}

impl UnreadReservation {
    fn release(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        let mut waiting = self.unread.waiting();
        waiting.bytes -= bytes;
        if let Some(address) = &self.reader.address {
            take(&mut waiting.addresses, address, bytes);
        }
        if let Some(tenant) = &self.reader.tenant {
            take(&mut waiting.tenants, tenant, bytes);
        }
    }
}

fn take<K: Ord>(of: &mut BTreeMap<K, usize>, key: &K, bytes: usize) {
    if let Some(own) = of.get_mut(key) {
        *own -= bytes;
        if *own == 0 {
            of.remove(key);
        }
    }
}

impl Drop for UnreadReservation {
    fn drop(&mut self) {
        self.release(self.bytes);
    }
}

/// Runs a request and counts the unread bytes of its response. Requests of an address that has too many are refused.
pub(crate) async fn limit_unread<F>(
    unread: &Arc<UnreadResponses>,
    request: Request,
    run: impl FnOnce(Request) -> F,
) -> Response
where
    F: Future<Output = Response>,
{
    let peer = request.extensions().get::<Peer>().filter(|peer| !peer.is_proxy);
    let mut reader = Reader { address: peer.map(|peer| address::counted(peer.address)), tenant: None };
    if let Some(refusal) = unread.refusal(&reader, 0) {
        return refusal.into_response();
    }
    let changes_nothing = matches!(*request.method(), Method::GET | Method::HEAD);
    let mut response = run(request).await;
    reader.tenant = response.extensions_mut().remove::<TenantOf>().map(|TenantOf(tenant)| tenant);
    let exact = response.body().size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let Some(bytes) = exact.filter(|bytes| *bytes >= UNREAD_BYTES_COUNTED) else { return response };
    if let Some(refusal) = unread.refusal(&reader, bytes).filter(|_| changes_nothing) {
        return refusal.into_response();
    }
    let held = unread.reserve(reader, bytes);
    response.map(|body| Body::new(MeteredBody { body, left: Bytes::new(), held }))
}

/// Refuses requests of a tenant that has too much waiting, and says whom an answer is for.
pub(crate) async fn bound_tenant(unread: &Arc<UnreadResponses>, request: Request, next: Next) -> Response {
    let Some(permit) = request.extensions().get::<Permit>() else { return next.run(request).await };
    let tenant = permit.claimant().tenant;
    let reader = Reader { address: None, tenant: Some(Arc::clone(&tenant)) };
    if let Some(refusal) = unread.refusal(&reader, 0) {
        return refusal.into_response();
    }
    let mut response = next.run(request).await;
    response.extensions_mut().insert(TenantOf(tenant));
    response
}

/// A body that is given piece by piece, so that what was not asked for yet is known.
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
    use axum::extract::State;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use tower::ServiceExt;

    const LARGE: usize = 8 * 1024 * 1024;

    async fn guard(State(unread): State<Arc<UnreadResponses>>, request: Request, next: Next) -> Response {
        limit_unread(&unread, request, |request| bound_tenant(&unread, request, next)).await
    }

    fn router(unread: &Arc<UnreadResponses>) -> Router {
        let large = || async { vec![b'x'; LARGE] };
        let routes = get(large).post(large);
        Router::new().route("/large", routes).layer(from_fn_with_state(Arc::clone(unread), guard))
    }

    /// Behind a proxy.
    async fn ask_of(router: &Router, tenant: &str) -> Response {
        let permit = chimera_testkit::flow::full_permit(tenant, "ann");
        let peer = Peer { address: "192.0.2.1".parse().unwrap(), is_proxy: true };
        let request = Request::builder().uri("/large").extension(peer).extension(permit).body(Body::empty());
        router.clone().oneshot(request.unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn behind_a_proxy_a_tenant_that_reads_nothing_leaves_room_for_others() {
        let unread = Arc::default();
        let router = router(&unread);
        let mut kept = Vec::new();
        let refused = loop {
            let answer = ask_of(&router, "bob").await;
            if answer.status() != 200 {
                break answer;
            }
            kept.push(answer);
            assert!(kept.len() * LARGE < UNREAD_BYTES_MAX, "one tenant takes everything");
        };
        assert_eq!(refused.status(), 503);
        for tenant in ["acme", "carol", "acme"] {
            let answer = ask_of(&router, tenant).await;
            assert_eq!(answer.status(), 200, "{tenant}");
            kept.push(answer);
        }
        assert_eq!(ask_of(&router, "bob").await.status(), 503);
        kept.clear();
        assert_eq!(ask_of(&router, "bob").await.status(), 200);
        assert!(unread.waiting().bytes == 0 && unread.waiting().tenants.is_empty());
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
        for n in 0..=UNREAD_BYTES_MAX / LARGE {
            kept.push(ask(&router, Method::GET, &format!("192.0.2.{n}"), false).await);
        }
        assert_eq!(ask(&router, Method::GET, "192.0.2.1", false).await.status(), 503);
        assert_eq!(ask(&router, Method::GET, "192.0.2.200", false).await.status(), 200);
        kept.clear();
        assert_eq!(ask(&router, Method::GET, "192.0.2.1", false).await.status(), 200);
    }
}

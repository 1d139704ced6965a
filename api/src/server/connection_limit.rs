//! Limits connections per address. One address never gets the last connection.

use super::write_timeout::WriteTimeoutStream;
use crate::problem::ApiError;
use chimera_core::access::address::{self, Network};
use chimera_core::error::Code;
use chimera_core::limits::{CONNECTIONS_REFUSED_AT_ONCE_MAX, LINGER_TIME_MAX};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The trace id of a response without a trace.
const NO_TRACE: &str = "00000000000000000000000000000000";

/// Open connections per address. Only addresses with a connection have an entry, so it is bounded.
pub(super) struct ConnectionLimiter {
    max: usize,
    proxies: Arc<[Network]>,
    taken: Mutex<BTreeMap<IpAddr, usize>>,
    /// The complete response to a connection beyond the limit.
    refusal: Vec<u8>,
    refusing: Semaphore,
}

/// The slot of one connection, released on drop.
pub(super) struct ConnectionSlot {
    places: Arc<ConnectionLimiter>,
    /// `None` for a proxy, which is not counted.
    address: Option<IpAddr>,
}

impl ConnectionSlot {
    pub(super) const fn is_proxy(&self) -> bool {
        self.address.is_none()
    }
}

impl ConnectionLimiter {
    /// At most `max` of `total` connections per address; one is left for others if `total` is more than one.
    pub(super) fn new(max: usize, total: usize, proxies: Arc<[Network]>) -> Self {
        let max = max.min(total.saturating_sub(1)).max(1);
        let refusing = Semaphore::new(CONNECTIONS_REFUSED_AT_ONCE_MAX);
        Self { max, proxies, taken: Mutex::default(), refusal: refusal_response(max), refusing }
    }

    /// Takes a slot; `None` if the address has too many connections.
    pub(super) fn take(self: &Arc<Self>, from: IpAddr) -> Option<ConnectionSlot> {
        if self.proxies.iter().any(|proxy| proxy.contains(from)) {
            return Some(ConnectionSlot { places: Arc::clone(self), address: None });
        }
        let address = address::counted(from);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let open = taken.entry(address).or_default();
        if *open >= self.max {
            return None;
        }
        *open += 1;
        Some(ConnectionSlot { places: Arc::clone(self), address: Some(address) })
    }

    /// Sends the refusal and closes the connection; only closes it if too many are being refused at once.
    pub(super) async fn refuse(self: Arc<Self>, stream: TcpStream) {
        metrics::counter!("chimera_http_connections_refused_total").increment(1);
        let Ok(_turn) = self.refusing.try_acquire() else { return };
        // Clients read a response only after sending their request.
        let _ = timeout(LINGER_TIME_MAX, stream.readable()).await;
        let mut stream = WriteTimeoutStream::new(stream, LINGER_TIME_MAX);
        if stream.write_all(&self.refusal).await.is_ok() {
            let _ = stream.shutdown().await;
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let Some(address) = self.address else { return };
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = taken.get_mut(&address) {
            *open -= 1;
            if *open == 0 {
                taken.remove(&address);
            }
        }
    }
}

fn refusal_response(max: usize) -> Vec<u8> {
    let message = format!("too many connections from this address: the limit is {max}");
    let error = ApiError::new(Code::RateLimited, message).with("connections_per_address_max", max).retry_after(1);
    let body = serde_json::to_string(&error.problem("", NO_TRACE)).unwrap_or_default();
    let head = "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/problem+json\r\ncache-control: no-store\r\n\
                retry-after: 1\r\nconnection: close";
    format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(max: usize, total: usize) -> Arc<ConnectionLimiter> {
        Arc::new(ConnectionLimiter::new(max, total, Arc::new(["192.0.2.0/24".parse().unwrap()])))
    }

    #[test]
    fn an_address_gets_so_many_places_and_gets_them_back() {
        let places = places(2, 10);
        let (one, other) = ("2001:db8::1".parse().unwrap(), "2001:db8:0:1::1".parse().unwrap());
        let held = (places.take(one).unwrap(), places.take("2001:db8::2".parse().unwrap()).unwrap());
        assert!(places.take(one).is_none() && places.take(other).is_some());
        drop(held.0);
        assert!(places.take(one).is_some());
        drop(held.1);
        assert!(places.taken.lock().unwrap().is_empty(), "nothing is kept of whoever is gone");
    }

    #[test]
    fn one_place_is_left_for_others_and_a_proxy_is_not_counted() {
        let all = places(100, 3);
        let taken: Vec<ConnectionSlot> =
            std::iter::from_fn(|| all.take("198.51.100.1".parse().unwrap())).take(100).collect();
        assert_eq!(taken.len(), 2);
        assert!((0..100).all(|_| all.take("192.0.2.1".parse().unwrap()).is_some_and(|place| place.is_proxy())));
        assert!(places(0, 1).take("198.51.100.1".parse().unwrap()).is_some());
    }
}

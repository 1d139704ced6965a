//! Ports for private servers.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ephemeral port range, so that a server that restarts finds its port still free.
const FIRST: u16 = 15_000;
const COUNT: u16 = 16_000;

/// A free port of the loopback interface.
///
/// # Panics
/// When every port is taken.
#[must_use]
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Concurrent test processes start at different ports.
    let offset = (std::process::id().wrapping_mul(7_919) % u32::from(COUNT)) as u16;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = FIRST + (offset + step) % COUNT;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port on the loopback interface");
}

//! The listen address: a host (name or IP address) and a port.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

pub(super) const EXPECTED: &str = "a host and a port, such as `127.0.0.1:8080` or `localhost:8080` (this machine \
     alone), `[::1]:8080`, or `0.0.0.0:8080` (every network)";

/// A host and a port; a name is resolved when the server starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenAddress {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// The text is not `HOST:PORT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidListenAddress;

impl FromStr for ListenAddress {
    type Err = InvalidListenAddress;

    fn from_str(text: &str) -> Result<Self, InvalidListenAddress> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(address.into());
        }
        let (host, port) = text.rsplit_once(':').ok_or(InvalidListenAddress)?;
        let letters = |c: u8| c.is_ascii_alphanumeric() || b"-._".contains(&c);
        // Digits and dots alone look like an IP address, and a valid one was parsed above.
        let is_name = host.bytes().all(letters) && host.bytes().any(|c| c.is_ascii_alphabetic());
        match port.parse() {
            Ok(port) if is_name => Ok(Self { host: host.to_owned(), port }),
            _ => Err(InvalidListenAddress),
        }
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port() }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.parse::<IpAddr>() {
            Ok(ip) => write!(f, "{}", SocketAddr::new(ip, self.port)),
            Err(_) => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_of_both_kinds_are_read_and_shown_alike() {
        for text in ["127.0.0.1:8080", "localhost:8081", "[::1]:0", "[::]:443", "chimera.internal:80", "node-1:9"] {
            assert_eq!(text.parse::<ListenAddress>().map(|listen| listen.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn what_lacks_a_host_or_a_port_is_refused() {
        for text in [
            "",
            ":8080",
            "8080",
            "localhost",
            "::1:8080",
            "localhost:http",
            "localhost:99999",
            "http://localhost:80",
            "*:80",
            "256.0.0.1:80",
            "local host:80",
            "127.0.0.1",
        ] {
            assert_eq!(text.parse::<ListenAddress>(), Err(InvalidListenAddress), "{text}");
        }
    }
}

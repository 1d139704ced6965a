//! Network addresses as rate limits count them, and address ranges.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::str::FromStr;

/// Prefix length of an IPv6 network. The owner of such a network can use any address in it.
const IPV6_NETWORK_BITS: u8 = 64;

/// The unit that limits count: an IPv4 address, or the /64 of an IPv6 address.
#[must_use]
pub fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask(128, IPV6_NETWORK_BITS))),
        address => address,
    }
}

/// A mask of the first `bits` of an address with `width` bits.
const fn mask(width: u8, bits: u8) -> u128 {
    let all = u128::MAX >> (128 - width);
    match width - bits {
        128 => 0,
        rest => all >> rest << rest,
    }
}

/// An address range in CIDR notation. A single address is a range of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an IP address, or a range such as 10.0.0.0/8")]
pub struct InvalidNetwork;

impl Network {
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                u128::from(own.to_bits() ^ other.to_bits()) & mask(32, self.bits) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits() ^ other.to_bits()) & mask(128, self.bits) == 0,
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| InvalidNetwork)?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| InvalidNetwork)?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(width);
        if bits > width {
            return Err(InvalidNetwork);
        }
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_ipv6_network_counts_as_one_address_and_so_does_an_ipv4_address_however_it_is_written() {
        assert_eq!(counted(address("2001:db8::1")), counted(address("2001:db8::ffff:ffff:ffff:ffff")));
        assert_ne!(counted(address("2001:db8::1")), counted(address("2001:db8:0:1::1")));
        assert_eq!(counted(address("::ffff:192.0.2.1")), address("192.0.2.1"));
        assert_ne!(counted(address("192.0.2.1")), counted(address("192.0.2.2")));
    }

    #[test]
    fn a_range_contains_its_addresses_and_no_others() {
        for (range, inside, outside) in [
            ("10.0.0.0/8", "10.255.1.2", "11.0.0.1"),
            ("192.0.2.7", "::ffff:192.0.2.7", "192.0.2.8"),
            ("2001:db8::/32", "2001:db8:1::1", "2001:db9::1"),
            ("0.0.0.0/0", "203.0.113.1", "::1"),
            ("::/0", "2001:db8::1", "127.0.0.1"),
        ] {
            let range: Network = range.parse().unwrap();
            assert!(range.contains(address(inside)) && !range.contains(address(outside)), "{range}");
        }
        for wrong in ["", "host", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1", "10.0.0/8"] {
            assert_eq!(wrong.parse::<Network>(), Err(InvalidNetwork), "{wrong}");
        }
    }
}

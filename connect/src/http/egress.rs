//! Which hosts tools may call.
//!
//! With an empty list every public address is allowed. A list restricts that to its entries, and an entry that names
//! a host exactly also allows its private addresses. A pattern (`*.example.com`, `*`) never does: whoever owns a name
//! below it could point it anywhere. The link-local range, where clouds serve credentials, must be listed as an
//! address; no name may resolve to it.

use chimera_core::error::Code;
use chimera_engine::flow::port::ToolError;
use reqwest::Url;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The egress rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Egress {
    entries: Vec<EgressEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct EgressEntry {
    host: HostPattern,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostPattern {
    Any,
    Under(String),
    Exact(String),
}

/// An entry that is neither a host, nor `host:port`, nor a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{entry:?} is not a host, host:port, *.domain or *")]
pub struct InvalidEgress {
    pub entry: String,
}

/// Why a call may not go out. Safe to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EgressDenied {
    /// A scheme other than http and https.
    #[error("only http and https URLs are allowed")]
    Scheme,
    /// Credentials in the address.
    #[error("a URL must not contain a user name or password")]
    Userinfo,
    #[error("the host is not on the egress allow-list")]
    NotListed,
    /// The host is, or resolves to, an address that is not public.
    #[error("the host resolves to an address that is neither public nor on the egress allow-list")]
    NotPublic,
    /// A redirect from https to http.
    #[error("a redirect leads from https to http")]
    Downgrade,
}

/// The rule that allows a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EgressRule {
    /// Public addresses only.
    Public,
    /// The host is listed exactly, so its private addresses are allowed.
    Listed,
}

/// The reachability of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressScope {
    Public,
    /// On this machine or this network.
    Private,
    /// Link-local, multicast and other addresses that no server has.
    Special,
}

impl Egress {
    /// Parses the entries of the setting.
    pub fn new<S: AsRef<str>>(entries: impl IntoIterator<Item = S>) -> Result<Self, InvalidEgress> {
        let entries = entries.into_iter().map(|entry| {
            let entry = entry.as_ref().trim();
            parse(entry).ok_or_else(|| InvalidEgress { entry: entry.to_owned() })
        });
        Ok(Self { entries: entries.collect::<Result<_, _>>()? })
    }

    /// Whether `url` may be called, before its name is resolved.
    pub fn check(&self, url: &Url) -> Result<EgressRule, EgressDenied> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(EgressDenied::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EgressDenied::Userinfo);
        }
        let (Some(host), Some(port)) = (host_of(url), url.port_or_known_default()) else {
            return Err(EgressDenied::Scheme);
        };
        let matching = || self.entries.iter().filter(|entry| entry.port.is_none_or(|listed| listed == port));
        if matching().any(|entry| entry.host == HostPattern::Exact(host.clone())) {
            return Ok(EgressRule::Listed);
        }
        if !self.entries.is_empty() && !matching().any(|entry| entry.host.covers(&host)) {
            return Err(EgressDenied::NotListed);
        }
        match address_of(&host) {
            Some(address) if scope(address) != AddressScope::Public => Err(EgressDenied::NotPublic),
            _ => Ok(EgressRule::Public),
        }
    }
}

impl HostPattern {
    fn covers(&self, host: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Under(domain) => host.strip_suffix(domain.as_str()).is_some_and(|left| left.ends_with('.')),
            Self::Exact(exact) => exact == host,
        }
    }
}

/// The host in the form that rules compare: lower case, no root dot, numeric forms as an address.
pub(crate) fn host_of(url: &Url) -> Option<String> {
    url.host_str().map(|host| host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase())
}

/// Parses a URL that a caller chose. Control characters are refused: the parser would drop some of them, and what is
/// sent would differ from what was judged and approved.
pub(crate) fn parse_url(text: &str) -> Result<Url, ToolError> {
    let malformed = |what: &str| ToolError::not_sent(Code::MalformedArgs, what);
    if text.contains(|sign: char| sign.is_control()) {
        return Err(malformed("the url contains a control character; percent-encode it"));
    }
    Url::parse(text).map_err(|error| malformed(&format!("the url is not valid: {error}")))
}

/// The host of a URL, with its port if not the default: the key of concurrency limits.
pub(crate) fn authority_of(url: &Url) -> Option<String> {
    let host = host_of(url)?;
    Some(url.port().map_or_else(|| host.clone(), |port| format!("{host}:{port}")))
}

fn address_of(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

fn parse(entry: &str) -> Option<EgressEntry> {
    let bare_v6 = entry.parse::<Ipv6Addr>().is_ok();
    let (host, port) = match entry.rsplit_once(':') {
        Some((host, port)) if !bare_v6 && !entry.ends_with(']') => (host, Some(port.parse().ok().filter(|p| *p > 0)?)),
        _ => (entry, None),
    };
    let exact = |host: &str| {
        let host = if bare_v6 { format!("[{host}]") } else { host.to_owned() };
        let url = Url::parse(&format!("http://{host}/")).ok()?;
        let plain =
            url.path() == "/" && url.username().is_empty() && url.port().is_none() && !host.contains(['/', '*']);
        host_of(&url).filter(|host| plain && !host.is_empty())
    };
    let host = match host.strip_prefix("*.") {
        Some(domain) => HostPattern::Under(exact(domain).filter(|domain| address_of(domain).is_none())?),
        None if host == "*" => HostPattern::Any,
        None => HostPattern::Exact(exact(host)?),
    };
    Some(EgressEntry { host, port })
}

/// The scope of an address, including IPv4 embedded in IPv6.
pub(super) fn scope(address: IpAddr) -> AddressScope {
    match address {
        IpAddr::V4(v4) => scope_v4(v4),
        IpAddr::V6(v6) => scope_v6(v6),
    }
}

fn scope_v4(address: Ipv4Addr) -> AddressScope {
    match address.octets() {
        [10 | 127, ..] | [192, 168, ..] | [198, 18 | 19, ..] => AddressScope::Private,
        [172, 16..=31, ..] | [100, 64..=127, ..] => AddressScope::Private,
        [0 | 224..=255, ..] | [169, 254, ..] | [192, 0, 0 | 2, _] | [192, 88, 99, _] => AddressScope::Special,
        [198, 51, 100, _] | [203, 0, 113, _] => AddressScope::Special,
        _ => AddressScope::Public,
    }
}

fn scope_v6(address: Ipv6Addr) -> AddressScope {
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        scope_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressScope::Private,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0x2002, high, low, ..] => embedded(high, low),
        [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => AddressScope::Private,
        // Teredo embeds an address that can't be extracted here; the others are documentation ranges.
        [0x2001, 0 | 0xdb8, ..] | [0x3fff, ..] => AddressScope::Special,
        [0x2000..=0x3fff, ..] => AddressScope::Public,
        _ => AddressScope::Special,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(entries: &[&str], url: &str) -> Result<EgressRule, EgressDenied> {
        Egress::new(entries).unwrap().check(&Url::parse(url).unwrap())
    }

    #[test]
    fn without_a_list_public_hosts_pass_and_private_ones_do_not_in_any_spelling() {
        for url in ["https://example.com/x", "http://93.184.216.34", "http://[2606:2800:220:1::1]:8080/"] {
            assert_eq!(judge(&[], url), Ok(EgressRule::Public), "{url}");
        }
        for url in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0177.0.0.1/",
            "http://127.0.0.1./",
            "http://①②⑦.⓪.⓪.①/",
            "http://0.0.0.0/",
            "http://10.1.2.3/",
            "http://172.31.0.1/",
            "http://192.168.1.1/",
            "http://100.64.0.1/",
            "http://169.254.169.254/latest/meta-data",
            "http://224.0.0.1/",
            "http://255.255.255.255/",
            "http://[::1]/",
            "http://[::]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:a9fe:a9fe]/",
            "http://[::127.0.0.1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://[2002:7f00:1::]/",
            "http://[2001::1]/",
            "http://[fe80::1]/",
            "http://[fd00::1]/",
            "http://[fec0::1]/",
            "http://[ff02::1]/",
        ] {
            assert_eq!(judge(&[], url), Err(EgressDenied::NotPublic), "{url}");
        }
    }

    #[test]
    fn an_address_has_the_same_scope_however_it_is_carried() {
        for bits in (0..=u32::MAX).step_by(65_521) {
            let v4 = Ipv4Addr::from(bits);
            let [high, low] = [(bits >> 16) as u16, bits as u16];
            for v6 in [
                v4.to_ipv6_mapped(),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
            ] {
                assert_eq!(scope(v6.into()), scope(v4.into()), "{v6}");
            }
            let std_private = v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_multicast();
            assert!(!std_private || scope(v4.into()) != AddressScope::Public, "{v4}");
        }
    }

    #[test]
    fn a_list_narrows_to_its_entries_and_ports() {
        let list = ["api.example.com", "Mail.Example.org:8443", "*.trusted.net"];
        assert_eq!(judge(&list, "https://API.example.com./v1"), Ok(EgressRule::Listed));
        assert_eq!(judge(&list, "https://mail.example.org:8443/"), Ok(EgressRule::Listed));
        assert_eq!(judge(&list, "https://mail.example.org/"), Err(EgressDenied::NotListed));
        assert_eq!(judge(&list, "https://a.b.trusted.net/"), Ok(EgressRule::Public));
        assert_eq!(judge(&list, "https://trusted.net/"), Err(EgressDenied::NotListed));
        assert_eq!(judge(&list, "https://untrusted.net/"), Err(EgressDenied::NotListed));
        assert_eq!(judge(&list, "http://api.example.com.evil.org/"), Err(EgressDenied::NotListed));
    }

    #[test]
    fn only_a_spelled_out_entry_opens_a_private_address() {
        assert_eq!(judge(&["127.0.0.1:9000"], "http://127.0.0.1:9000/"), Ok(EgressRule::Listed));
        assert_eq!(judge(&["127.0.0.1:9000"], "http://127.0.0.1:9001/"), Err(EgressDenied::NotListed));
        assert_eq!(judge(&["127.0.0.1:80"], "http://0x7f.1/"), Ok(EgressRule::Listed));
        assert_eq!(judge(&["::1"], "http://[::1]:5/"), Ok(EgressRule::Listed));
        assert_eq!(judge(&["[::1]:5"], "http://[::1]:6/"), Err(EgressDenied::NotListed));
        assert_eq!(judge(&["169.254.169.254"], "http://169.254.169.254/"), Ok(EgressRule::Listed));
        assert_eq!(judge(&["127.0.0.1"], "http://[::ffff:127.0.0.1]/"), Err(EgressDenied::NotListed));
        assert_eq!(judge(&["*"], "http://127.0.0.1/"), Err(EgressDenied::NotPublic));
        assert_eq!(judge(&["*", "10.0.0.1"], "http://10.0.0.1/"), Ok(EgressRule::Listed));
    }

    #[test]
    fn other_schemes_and_credentials_in_the_address_are_refused() {
        assert_eq!(judge(&[], "ftp://example.com/"), Err(EgressDenied::Scheme));
        assert_eq!(judge(&[], "file:///etc/passwd"), Err(EgressDenied::Scheme));
        assert_eq!(judge(&["*"], "https://me:pw@example.com/"), Err(EgressDenied::Userinfo));
    }

    #[test]
    fn an_entry_that_makes_no_sense_is_refused() {
        for entry in ["", "a b", "http://x", "x/y", "x:0", "x:99999", "x:y", "u@x", "*.*", "a*.b", "*.1.2.3.4"] {
            assert_eq!(Egress::new([entry]), Err(InvalidEgress { entry: entry.to_owned() }), "{entry}");
        }
    }
}

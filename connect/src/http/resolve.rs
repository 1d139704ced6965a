//! Resolves names to addresses, and checks them before anything connects.
//!
//! The client connects to exactly these addresses without resolving again, so a name can't be checked with one answer
//! and called with another. One forbidden address rejects the whole answer: a name that resolves to both kinds is a
//! mistake or an attack.

use super::egress::{AddressScope, EgressDenied, EgressRule, scope};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A resolver under one rule.
pub(super) struct CheckedResolver {
    pass: EgressRule,
    fixed: Arc<BTreeMap<String, Vec<IpAddr>>>,
}

impl CheckedResolver {
    pub(super) const fn new(pass: EgressRule, fixed: Arc<BTreeMap<String, Vec<IpAddr>>>) -> Self {
        Self { pass, fixed }
    }
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (pass, fixed) = (self.pass, Arc::clone(&self.fixed));
        Box::pin(async move {
            let found: Vec<SocketAddr> = match fixed.get(name.as_str()) {
                Some(addresses) => addresses.iter().map(|address| SocketAddr::new(*address, 0)).collect(),
                None => tokio::net::lookup_host((name.as_str(), 0)).await?.collect(),
            };
            if found.is_empty() {
                return Err(io::Error::from(io::ErrorKind::NotFound).into());
            }
            if found.iter().any(|address| !allows(pass, address.ip())) {
                return Err(EgressDenied::NotPublic.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

fn allows(pass: EgressRule, address: IpAddr) -> bool {
    match scope(address) {
        AddressScope::Public => true,
        AddressScope::Private => pass == EgressRule::Listed,
        AddressScope::Special => false,
    }
}

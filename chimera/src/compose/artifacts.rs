//! The blobs that the records refer to, and which of them are missing.

use super::{Ambient, flow as composed};
use crate::config::Config;
use crate::failure::{Failure, Outcome};
use chimera_core::error::Code;
use chimera_core::id::BlobId;
use chimera_engine::flow;
use chimera_engine::flow::port::Blobs;
use std::collections::BTreeSet;

pub(crate) async fn referenced_blobs(config: &Config, ambient: &Ambient) -> Outcome<BTreeSet<BlobId>> {
    let (flow, _) = composed::reader(config, ambient).await?;
    Ok(flow::referenced_blobs(&flow).await?)
}

pub(crate) async fn find_missing(blobs: &dyn Blobs, named: &BTreeSet<BlobId>) -> Outcome<Vec<BlobId>> {
    let mut missing = Vec::new();
    for id in named {
        let found = blobs.stat(*id).await;
        let found = found.map_err(|error| Failure::new(Code::StoreUnavailable, format!("the blobs: {error}")))?;
        missing.extend(found.is_none().then_some(*id));
    }
    Ok(missing)
}

pub(crate) fn missing_message(missing: &[BlobId], named: usize) -> String {
    let first = missing.first().map(BlobId::to_string).unwrap_or_default();
    format!("missing: {} of {named} that the records refer to, first: {first}", missing.len())
}

//! A ledger entry with its position in a lane, as stored in a row.
//!
//! The row is authoritative: the content digest is verified against the stored bytes, not against a document that was
//! parsed and serialized again.

use super::tables::AUDIT_LOG_ENTRIES;
use super::{ActorType, ChainHead, ChainLink, Digest32, Entry, SealedEntry, SubjectType, extend};
use crate::json;
use crate::record::{Cell, Row, Value};

#[derive(Clone, Debug, PartialEq)]
pub struct StoredEntry {
    pub lane: i64,
    pub link: ChainLink,
    pub sealed: SealedEntry,
}

/// The chain data of an entry, for readers that do not need the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredLink {
    pub lane: i64,
    pub link: ChainLink,
    pub content_digest: Digest32,
}

impl StoredLink {
    /// Decodes the link of a row of `audit_log_entries`.
    pub fn from_row(row: &Row) -> Result<Self, DamagedRow> {
        let int = |column| row.get(column).as_int().ok_or(DamagedRow { column });
        let digest = |column| row.get(column).as_bytes().and_then(Digest32::from_slice).ok_or(DamagedRow { column });
        let link = ChainLink { seq: int("seq")?, prev_hash: digest("prev_hash")?, hash: digest("hash")? };
        Ok(Self { lane: int("lane")?, link, content_digest: digest("content_digest")? })
    }

    /// Whether it is the next link after `head`.
    #[must_use]
    pub fn continues(&self, head: ChainHead) -> bool {
        extend(self.lane, head, self.content_digest) == self.link
    }
}

/// A row that Chimera did not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ledger row is damaged in {column}")]
pub struct DamagedRow {
    /// The first column that cannot be decoded.
    pub column: &'static str,
}

impl StoredEntry {
    /// Decodes a row of `audit_log_entries`.
    pub fn from_row(row: &Row) -> Result<Self, DamagedRow> {
        let text = |column| row.get(column).as_text().map(str::to_owned).ok_or(DamagedRow { column });
        let optional = |column| match row.get(column) {
            Value::Null => Ok(None),
            _ => text(column).map(Some),
        };
        let bytes = |column| row.get(column).as_bytes().ok_or(DamagedRow { column });
        let StoredLink { lane, link, content_digest } = StoredLink::from_row(row)?;
        let data_json = row.get("data_json").as_json().ok_or(DamagedRow { column: "data_json" })?.as_str().to_owned();
        let data = json::parse(&data_json).map_err(|_| DamagedRow { column: "data_json" })?;
        let entry = Entry {
            id: text("id")?,
            tenant_id: text("tenant_id")?,
            subject_type: SubjectType::parse(row.text("subject_type")).ok_or(DamagedRow { column: "subject_type" })?,
            subject_id: text("subject_id")?,
            event_type: text("event_type")?,
            actor_type: ActorType::parse(row.text("actor_type")).ok_or(DamagedRow { column: "actor_type" })?,
            actor_id: optional("actor_id")?,
            timestamp: row.get("timestamp").as_time().ok_or(DamagedRow { column: "timestamp" })?,
            data,
            run_id: row.get("run_id").as_uuid(),
            run_seq: row.get("run_seq").as_int(),
            trace_id: optional("trace_id")?,
        };
        let salt = bytes("salt")?.try_into().map_err(|_| DamagedRow { column: "salt" })?;
        Ok(Self { lane, link, sealed: SealedEntry { entry, data_json, salt, content_digest } })
    }

    #[must_use]
    pub fn row(&self) -> Row {
        self.sealed.row(self.lane, &self.link)
    }

    /// Places the entry after `head`.
    #[must_use]
    pub fn after(lane: i64, head: ChainHead, sealed: SealedEntry) -> Self {
        Self { lane, link: extend(lane, head, sealed.content_digest), sealed }
    }

    /// Whether its hash matches its lane, number, previous hash and content digest.
    #[must_use]
    pub fn is_linked(&self) -> bool {
        let before = ChainHead { seq: self.link.seq.saturating_sub(1), hash: self.link.prev_hash };
        let (link, content_digest) = (self.link, self.sealed.content_digest);
        StoredLink { lane: self.lane, link, content_digest }.continues(before)
    }
}

impl SealedEntry {
    /// The row at `link` in `lane`, with cells in column order.
    #[must_use]
    pub fn row(&self, lane: i64, link: &ChainLink) -> Row {
        Row { table: &AUDIT_LOG_ENTRIES, cells: self.cells(lane, link).map(Value::from).into() }
    }

    /// The borrowed cells of that row: a committer adds many rows and copies none.
    #[must_use]
    pub fn cells<'a>(&'a self, lane: i64, link: &'a ChainLink) -> [Cell<'a>; 18] {
        let entry = &self.entry;
        [
            Cell::Int(Some(lane)),
            Cell::Int(Some(link.seq)),
            Cell::Text(Some(&entry.id)),
            Cell::Text(Some(&entry.tenant_id)),
            Cell::Text(Some(entry.subject_type.as_str())),
            Cell::Text(Some(&entry.subject_id)),
            Cell::Text(Some(&entry.event_type)),
            Cell::Text(Some(entry.actor_type.as_str())),
            Cell::Text(entry.actor_id.as_deref()),
            Cell::Time(entry.timestamp),
            Cell::Json(&self.data_json),
            Cell::Uuid(entry.run_id),
            Cell::Int(entry.run_seq),
            Cell::Text(entry.trace_id.as_deref()),
            Cell::Bytes(&self.salt),
            Cell::Bytes(&self.content_digest.0),
            Cell::Bytes(&link.prev_hash.0),
            Cell::Bytes(&link.hash.0),
        ]
    }
}

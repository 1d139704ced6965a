//! A ledger entry with its position in a lane, as stored in a row.
//!
//! The row is authoritative: the content digest is verified against the stored bytes, not against a document that was
//! parsed and serialized again.

use super::tables::{AUDIT_LOG_ENTRIES, EntryRow, LinkRow, audit_log_entries};
use super::{ChainHead, ChainLink, Digest32, Entry, SealedEntry, content_digest, extend};
use crate::json;
use crate::record::{Cell, Row, RowError, StoredRow, Value};

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
    pub fn from_row(row: &Row) -> Result<Self, RowError> {
        let LinkRow { lane, seq, content_digest, prev_hash, hash } = LinkRow::peek(row)?;
        Ok(Self { lane, link: ChainLink { seq, prev_hash, hash }, content_digest })
    }

    /// Whether it is the next link after `head`.
    #[must_use]
    pub fn continues(&self, head: ChainHead) -> bool {
        extend(self.lane, head, self.content_digest) == self.link
    }
}

impl StoredEntry {
    /// Decodes a row of `audit_log_entries`.
    pub fn from_row(row: &Row) -> Result<Self, RowError> {
        let row = EntryRow::peek(row)?;
        let data_json = row.data_json.as_str().to_owned();
        let unreadable = RowError::Unreadable { table: AUDIT_LOG_ENTRIES.name, column: audit_log_entries::data_json };
        let data = json::parse(&data_json).map_err(|_| unreadable)?;
        let entry = Entry {
            id: row.id,
            tenant_id: row.tenant_id,
            subject_type: row.subject_type,
            subject_id: row.subject_id,
            event_type: row.event_type,
            actor_type: row.actor_type,
            actor_id: row.actor_id,
            timestamp: row.timestamp,
            data,
            run_id: row.run_id,
            run_seq: row.run_seq,
            trace_id: row.trace_id,
        };
        let link = ChainLink { seq: row.seq, prev_hash: row.prev_hash, hash: row.hash };
        let sealed = SealedEntry { entry, data_json, salt: row.salt, content_digest: row.content_digest };
        Ok(Self { lane: row.lane, link, sealed })
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
    /// Whether the stored bytes still match the digest.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        content_digest(self.salt, &self.entry.content_with(&self.data_json)) == self.content_digest
    }

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

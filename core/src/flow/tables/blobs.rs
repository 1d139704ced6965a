//! The table that says who may read which blob.

use crate::json::Digest32;
use crate::record::table;
use crate::time::Timestamp;
use uuid::Uuid;

table! {
    /// Who may read which blob.
    ARTIFACTS = artifacts -> ArtifactRow {
        tenant_id: String,
        sha256: Digest32,
        size_bytes: i64,
        media_type: String,
        created_by: Option<String>,
        run_id: Option<Uuid>,
        created_at: Timestamp [default],
    }
    key: [tenant_id, sha256],
    tenant: tenant_id,
    rank: 203,
}

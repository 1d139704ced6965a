//! Views over tables without a tenant column, and column defaults.

use crate::build::NOON;
use crate::seeded::Seeded;
use chimera_core::flow::tables::{APPROVAL_DETAILS, APPROVAL_REQUESTS, SCOPED_APPROVALS};
use chimera_core::ledger::tables::RECORD_SCOPES;
use chimera_core::record::{Insert, Json, Row, Scope, Select, Tx, Value};
use chimera_engine::port::{Random, Records};
use uuid::Uuid;

fn request(id: Uuid) -> Insert {
    let cells = vec![
        ("approval_request_id", id.into()),
        ("action_type", "content_publication".into()),
        ("action_data", Json::parse("{}").unwrap().into()),
        ("requester_agent_id", id.into()),
        ("workflow_type", "single".into()),
        ("policy_references", Value::Texts(Vec::new())),
        ("created_at", NOON.into()),
    ];
    Insert::new(&APPROVAL_REQUESTS, cells).unwrap()
}

fn details(id: Uuid, tenant: &str) -> Insert {
    let cells = vec![
        ("approval_request_id", id.into()),
        ("tenant_id", tenant.into()),
        ("action_digest", vec![1_u8; 32].into()),
        ("requester_actor", "user_1".into()),
    ];
    Insert::new(&APPROVAL_DETAILS, cells).unwrap()
}

fn scope(id: Uuid, tenant: &str) -> Insert {
    let cells = vec![
        ("record_kind", "approval_request".into()),
        ("record_id", id.into()),
        ("tenant_id", tenant.into()),
        ("task_id", "task-1".into()),
    ];
    Insert::new(&RECORD_SCOPES, cells).unwrap()
}

async fn seen(store: &dyn Records, scope: Scope, id: Uuid) -> Option<Row> {
    let select = Select::from(&SCOPED_APPROVALS, scope).with("approval_request_id", id);
    store.read(select).await.expect("a read").rows.pop()
}

/// A row is shown with its scope and details, to its tenant only. A row without a scope is not visible.
pub async fn a_scoped_row_is_shown_whole_and_to_its_tenant_only(store: &dyn Records, s: &Seeded) {
    let (ours, theirs) = (s.opaque_id(), s.opaque_id());
    let (whole, unscoped, torn) = (s.row_id(NOON), s.row_id(NOON), s.row_id(NOON));
    let mut inserts = vec![request(whole), scope(whole, &ours), details(whole, &ours)];
    inserts.extend([request(unscoped), details(unscoped, &ours)]);
    inserts.extend([request(torn), scope(torn, &ours), details(torn, &theirs)]);
    store.commit(Tx { inserts, ..Tx::default() }).await.expect("requests commit");
    let row = seen(store, Scope::Tenant(ours.clone()), whole).await.expect("the tenant's own");
    assert_eq!((row.text("tenant_id"), row.text("swarm_task_id")), (ours.as_str(), "task-1"));
    assert_eq!((row.text("requester_actor"), row.get("campaign_id")), ("user_1", &Value::Null));
    assert_eq!(seen(store, Scope::Tenant(theirs), whole).await, None);
    for id in [unscoped, torn] {
        assert_eq!(seen(store, Scope::System, id).await, None, "a row that belongs to nobody is not shown");
    }
    let filled = (row.text("status"), row.int("approvals_needed"), row.int("state_version"));
    assert_eq!(filled, ("pending", 1, 1), "columns left out take their default");
    assert_eq!(row.get("decisions").as_json().map(Json::as_str), Some("[]"));
}

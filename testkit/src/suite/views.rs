//! Views over tables without a tenant column, and column defaults.

use crate::build::NOON;
use crate::seeded::Seeded;
use chimera_core::flow::status::RequestStatus;
use chimera_core::flow::tables::{
    APPROVAL_DETAILS, APPROVAL_REQUESTS, ApprovalRow, approval_details, approval_requests, scoped_approvals,
};
use chimera_core::ledger::tables::{RECORD_SCOPES, record_scopes};
use chimera_core::record::{Insert, Json, Scope, StoredRow, Tx, Value};
use chimera_engine::port::{Random, Records};
use uuid::Uuid;

fn request(id: Uuid) -> Insert {
    let cells = vec![
        (approval_requests::approval_request_id, id.into()),
        (approval_requests::action_type, "content_publication".into()),
        (approval_requests::action_data, Json::parse("{}").unwrap().into()),
        (approval_requests::requester_agent_id, id.into()),
        (approval_requests::workflow_type, "single".into()),
        (approval_requests::policy_references, Value::Texts(Vec::new())),
        (approval_requests::created_at, NOON.into()),
    ];
    Insert::new(&APPROVAL_REQUESTS, cells).unwrap()
}

fn details(id: Uuid, tenant: &str) -> Insert {
    let cells = vec![
        (approval_details::approval_request_id, id.into()),
        (approval_details::tenant_id, tenant.into()),
        (approval_details::action_digest, vec![1_u8; 32].into()),
        (approval_details::requester_actor, "user_1".into()),
    ];
    Insert::new(&APPROVAL_DETAILS, cells).unwrap()
}

fn scope(id: Uuid, tenant: &str) -> Insert {
    let cells = vec![
        (record_scopes::record_kind, "approval_request".into()),
        (record_scopes::record_id, id.into()),
        (record_scopes::tenant_id, tenant.into()),
        (record_scopes::task_id, "task-1".into()),
    ];
    Insert::new(&RECORD_SCOPES, cells).unwrap()
}

async fn seen(store: &dyn Records, scope: Scope, id: Uuid) -> Option<ApprovalRow> {
    let select = ApprovalRow::select(scope).with(scoped_approvals::approval_request_id, id);
    let row = store.read(select).await.expect("a read").rows.pop();
    row.map(|row| ApprovalRow::decode(row).expect("a row that can be read"))
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
    assert_eq!((row.tenant_id.as_str(), row.swarm_task_id.as_deref()), (ours.as_str(), Some("task-1")));
    assert_eq!((row.requester_actor.as_str(), row.campaign_id), ("user_1", None));
    assert_eq!(seen(store, Scope::Tenant(theirs), whole).await, None);
    for id in [unscoped, torn] {
        assert_eq!(seen(store, Scope::System, id).await, None, "a row that belongs to nobody is not shown");
    }
    let filled = (row.status, row.approvals_needed, row.state_version);
    assert_eq!(filled, (RequestStatus::Pending, 1, 1), "columns left out take their default");
    assert_eq!(row.decisions.as_str(), "[]");
}

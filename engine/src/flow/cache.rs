//! Deletes cached outputs of a tenant, by workflow, key or prefix, and counts them exactly.

use super::{Flow, lookup, signals, suggest};
use crate::access::{Permit, WORKFLOWS_WRITE, missing_scope_error};
use crate::error::EngineError;
use crate::port::CommitError;
use chimera_core::error::Code;
use chimera_core::flow::tables::{CACHE_ENTRIES, cache_entries};
use chimera_core::limits::{CACHE_DELETED_MAX, DECIDE_TRIES_MAX};
use chimera_core::record::{Comparison, Condition, Conflict, CountQuery, RowCount, Scope, Select, Step, Tx};
use serde_json::json;

/// Which cached outputs of a tenant.
#[derive(Clone, Copy, Debug)]
pub struct CacheSelection<'a> {
    /// `None`: of every workflow.
    pub workflow: Option<&'a str>,
    pub keys: CacheKeys<'a>,
}

#[derive(Clone, Copy, Debug)]
pub enum CacheKeys<'a> {
    All,
    One(&'a str),
    Prefix(&'a str),
}

impl CacheSelection<'_> {
    fn conditions(&self, permit: &Permit) -> Vec<Condition> {
        let condition = |column, compare, value: &str| Condition { column, compare, value: value.into() };
        let mut all = vec![condition(cache_entries::tenant_id, Comparison::Is, permit.tenant())];
        all.extend(self.workflow.map(|id| condition(cache_entries::workflow_id, Comparison::Is, id)));
        match self.keys {
            CacheKeys::All => {}
            CacheKeys::One(key) => all.push(condition(cache_entries::cache_key, Comparison::Is, key)),
            CacheKeys::Prefix(prefix) => {
                all.push(condition(cache_entries::cache_key, Comparison::AtLeast, prefix));
                let end = end_of_prefix(prefix);
                all.extend(end.map(|end| condition(cache_entries::cache_key, Comparison::Below, &end)));
            }
        }
        all
    }
}

/// The first text behind all that begin with a prefix; `None` if there is none.
fn end_of_prefix(prefix: &str) -> Option<String> {
    let mut letters: Vec<char> = prefix.chars().collect();
    while let Some(last) = letters.pop() {
        if let Some(next) = (last..=char::MAX).nth(1) {
            letters.push(next);
            return Some(letters.into_iter().collect());
        }
    }
    None
}

/// Deletes cached outputs and returns their number. `permit_for` makes the permit for deleting so many.
pub async fn invalidate_cache(
    flow: &Flow,
    permit: &Permit,
    selection: &CacheSelection<'_>,
    permit_for: &(dyn Fn(u64) -> Result<Permit, EngineError> + Sync),
) -> Result<u64, EngineError> {
    for _ in 1..DECIDE_TRIES_MAX {
        match try_invalidate(flow, permit, selection, permit_for).await {
            // An output was cached or has expired meanwhile: count again.
            Err(EngineError::Commit(CommitError::Conflict(Conflict::Rows { .. }))) => {}
            counted => return counted,
        }
    }
    try_invalidate(flow, permit, selection, permit_for).await
}

async fn try_invalidate(
    flow: &Flow,
    permit: &Permit,
    selection: &CacheSelection<'_>,
    permit_for: &(dyn Fn(u64) -> Result<Permit, EngineError> + Sync),
) -> Result<u64, EngineError> {
    let count = count_cached(flow, permit, selection).await?;
    let permit = permit_for(count)?;
    let conditions = selection.conditions(&permit);
    let rows = RowCount::Exactly(count);
    let mut tx = Tx { steps: vec![Step::Delete { table: &CACHE_ENTRIES, conditions, rows }], ..Tx::default() };
    let (key, prefix) = match selection.keys {
        CacheKeys::All => (None, None),
        CacheKeys::One(key) => (Some(key), None),
        CacheKeys::Prefix(prefix) => (None, Some(prefix)),
    };
    let data = json!({"workflow_id": selection.workflow, "key": key, "prefix": prefix, "count": count});
    let subject = selection.workflow.unwrap_or_else(|| permit.tenant()).to_owned();
    signals::record(flow, &mut tx, &permit, permit.event(subject, "cache.invalidated", data))?;
    flow.inner.parts.records.commit(tx).await?;
    Ok(count)
}

/// The number of cached outputs that a selection fits, for a caller who may delete them.
pub async fn count_cached(flow: &Flow, permit: &Permit, selection: &CacheSelection<'_>) -> Result<u64, EngineError> {
    let capability = format!("cache:invalidate@workflow/{}", selection.workflow.unwrap_or("*"));
    if !permit.may(&capability) && !permit.may(WORKFLOWS_WRITE) {
        return Err(missing_scope_error(&capability).into());
    }
    if let Some(workflow) = selection.workflow {
        let workflows = &flow.inner.workflows;
        let is_own = workflows.row(permit.tenant(), workflow, None).await?.is_some();
        if !is_own && lookup::find_workflow(workflows, permit.tenant(), workflow, None).await?.is_none() {
            return Err(suggest::unknown_workflow(workflows, permit, workflow, None).await);
        }
    }
    let mut select = Select::from(&CACHE_ENTRIES, Scope::Tenant(permit.tenant().to_owned()));
    for Condition { column, compare, value } in selection.conditions(permit) {
        select = select.filter(column, compare, value);
    }
    let (by, oldest) = (cache_entries::workflow_id, cache_entries::created_at);
    let count = CountQuery { select, by, oldest, rows_max: CACHE_DELETED_MAX + 1 };
    let count = flow.inner.parts.records.count(count).await?.iter().map(|group| group.rows).sum();
    if usize::try_from(count).is_ok_and(|count| count <= CACHE_DELETED_MAX) {
        return Ok(count);
    }
    let message = format!("more than {CACHE_DELETED_MAX} outputs fit: name a workflow or a longer prefix");
    Err(EngineError::refused(Code::MalformedArgs, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_the_next_letter_begins() {
        assert_eq!(end_of_prefix("enrich_A:").as_deref(), Some("enrich_A;"));
        assert_eq!(end_of_prefix("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(end_of_prefix("\u{d7ff}").as_deref(), Some("\u{e000}"));
        assert_eq!(end_of_prefix("\u{10ffff}"), None);
    }
}

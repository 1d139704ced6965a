//! `chimera audit list`: entries of the ledger, a page at a time.

use super::tenant_id;
use crate::backend::shown;
use crate::cli::AuditListArgs;
use crate::command::{CommandContext, print, say};
use crate::compose::{self, Ambient};
use crate::failure::{Failure, Outcome};
use chimera_api::answer::EntryPage;
use chimera_core::error::Code;
use chimera_core::ledger::tables::{AUDIT_LOG_ENTRIES, EntryHead, audit_log_entries};
use chimera_core::record::{Cursor, Page, Scope, Select, StoredRow};
use chimera_engine::EngineError;
use chimera_engine::audit::EntryView;
use chimera_engine::flow::view;
use chimera_engine::port::Records;
use std::fmt::Write;
use std::process::ExitCode;

pub(crate) async fn run(scene: &CommandContext<'_>, list: &AuditListArgs) -> Outcome<ExitCode> {
    let records = compose::records_to_read(&scene.loaded.config, &Ambient::new()).await?;
    let page = read_page(&*records, list).await?;
    print(&render(&page, scene.json)?)?;
    if let Some(next) = page.next.filter(|_| !scene.json) {
        say(&format!("more: --after {}", next.encode()));
    }
    Ok(ExitCode::SUCCESS)
}

async fn read_page(records: &dyn Records, list: &AuditListArgs) -> Outcome<Page> {
    let scope = match &list.tenant {
        Some(named) => Scope::Tenant(tenant_id(records, named).await?),
        None => Scope::System,
    };
    let mut select = Select::from(&AUDIT_LOG_ENTRIES, scope).take(list.limit);
    if let Some(subject) = &list.subject_id {
        select = select.with(audit_log_entries::subject_id, subject.as_str());
    }
    if let Some(event) = &list.event_type {
        select = select.with(audit_log_entries::event_type, event.as_str());
    }
    if let Some(cursor) = &list.after {
        select = select.continue_at(cursor).map_err(|error| {
            Failure::new(Code::SchemaInvalid, error.to_string())
                .hint("a cursor is only valid for the listing that returned it")
        })?;
    }
    Ok(records.read(select).await?)
}

fn render(page: &Page, as_json: bool) -> Outcome<String> {
    if !as_json {
        return table(page);
    }
    let items = page.rows.iter().map(EntryView::of).collect::<Result<_, _>>().map_err(EngineError::from)?;
    let page = view::ListPage { items, next_cursor: page.next.as_ref().map(Cursor::encode), bytes: 0 };
    Ok(format!("{}\n", shown(EntryPage::from(page))?))
}

fn table(page: &Page) -> Outcome<String> {
    let mut text = String::new();
    for row in &page.rows {
        let entry = EntryHead::peek(row).map_err(EngineError::from)?;
        let _ = writeln!(
            text,
            "{}/{}  {}  {}  {} {}  by {} {}",
            entry.lane,
            entry.seq,
            entry.timestamp,
            entry.event_type,
            entry.subject_type.as_str(),
            entry.subject_id,
            entry.actor_type.as_str(),
            entry.actor_id.unwrap_or_default(),
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimera_core::access::tables::TENANTS;
    use chimera_core::record::{ColumnType, Json, Row, Tx, Value};
    use chimera_core::time::Timestamp;
    use chimera_engine::port::{CommitError, ReadError, Receipt, Unavailable};

    /// A store with two entries that answers like a real one.
    struct TwoEntries;

    fn row(seq: i64) -> Row {
        let cell = |name: &str, kind: ColumnType| match (name, kind) {
            (audit_log_entries::seq, _) => Value::Int(seq),
            (audit_log_entries::actor_id | audit_log_entries::run_id | audit_log_entries::run_seq, _) => Value::Null,
            (audit_log_entries::subject_type, _) => Value::Text("other".to_owned()),
            (audit_log_entries::actor_type, _) => Value::Text("system".to_owned()),
            (_, ColumnType::Int) => Value::Int(1),
            (_, ColumnType::Time) => Value::Time(Timestamp::from_micros(seq)),
            (_, ColumnType::ExactJson) => Value::Json(Json::from_stored("{}".to_owned())),
            (audit_log_entries::salt, _) => Value::Bytes(vec![0xab; 16]),
            (_, ColumnType::Bytes) => Value::Bytes(vec![0xab; 32]),
            (name, _) => Value::Text(name.to_owned()),
        };
        let cells = AUDIT_LOG_ENTRIES.columns.iter().map(|column| cell(column.name, column.kind)).collect();
        Row { table: &AUDIT_LOG_ENTRIES, cells }
    }

    #[async_trait::async_trait]
    impl Records for TwoEntries {
        async fn commit(&self, _: Tx) -> Result<Receipt, CommitError> {
            Err(CommitError::Overloaded)
        }

        async fn read(&self, select: Select) -> Result<Page, ReadError> {
            if select.table == &TENANTS {
                // It has no slug: it is an id.
                return Ok(select.page(Vec::new()));
            }
            assert_eq!(select.scope, Scope::Tenant("acme".to_owned()));
            assert_eq!(select.conditions.len(), 2);
            Ok(select.page(vec![row(1), row(2)]))
        }

        fn lane(&self, _: u64) -> Option<chimera_engine::port::HeldLane> {
            None
        }

        fn hold(&self) -> Option<chimera_engine::port::Hold> {
            None
        }

        async fn ready(&self) -> Result<(), Unavailable> {
            Ok(())
        }

        async fn close(&self) {}
    }

    fn asked(after: Option<&str>) -> AuditListArgs {
        AuditListArgs {
            tenant: Some("acme".to_owned()),
            subject_id: Some("s".to_owned()),
            event_type: Some("e".to_owned()),
            after: after.map(str::to_owned),
            limit: 1,
        }
    }

    #[tokio::test]
    async fn a_page_is_shown_for_reading_and_as_json_with_its_cursor() {
        let page = read_page(&TwoEntries, &asked(None)).await.unwrap();
        insta::assert_snapshot!(render(&page, false).unwrap());
        insta::assert_snapshot!(render(&page, true).unwrap());
    }

    #[tokio::test]
    async fn a_cursor_of_another_listing_is_refused() {
        let failure = read_page(&TwoEntries, &asked(Some("nonsense"))).await.unwrap_err();
        assert_eq!(failure.code, Code::SchemaInvalid);
    }
}

//! `chimera audit list`: entries of the ledger, a page at a time.

use super::tenant_id;
use crate::backend::shown;
use crate::cli::AuditListArgs;
use crate::command::listing::{ListView, say_next_page};
use crate::command::{CommandContext, print, say};
use crate::compose::{self, Ambient};
use crate::failure::{Failure, Outcome};
use crate::flow::table::Column;
use chimera_api::answer::EntryPage;
use chimera_core::access::tables::TenantRow;
use chimera_core::error::Code;
use chimera_core::id::IdPrefix;
use chimera_core::ledger::tables::{AUDIT_LOG_ENTRIES, EntryHead, audit_log_entries};
use chimera_core::ledger::{SubjectType, stored_names};
use chimera_core::limits::PAGE_ROWS_MAX;
use chimera_core::record::{Comparison, Cursor, Page, Row, Scope, Select, StoredRow};
use chimera_core::text::{did_you_mean, escape_invisible_line};
use chimera_engine::EngineError;
use chimera_engine::audit::EntryView;
use chimera_engine::flow::view;
use chimera_engine::port::Records;
use std::process::ExitCode;
use uuid::Uuid;

pub(crate) async fn run(scene: &CommandContext<'_>, list: &AuditListArgs) -> Outcome<ExitCode> {
    let records = compose::records_to_read(&scene.loaded.config, &Ambient::new()).await?;
    let page = read_page(&*records, list).await?;
    if scene.json {
        print(&document(&page)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let view = ListView::of(scene, &list.output);
    view.print(COLUMNS, &rows(&page, &view)?)?;
    if page.rows.is_empty() {
        say(&explain_empty(&*records, list).await?);
    }
    if let Some(next) = page.next {
        say_next_page(scene, "--after", &next.encode());
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
        select = about(select, subject);
    }
    if let Some(event) = &list.event_type {
        select = select.one_of(audit_log_entries::event_type, stored_names(event));
    }
    if let Some(cursor) = &list.after {
        select = select.continue_at(cursor).map_err(|error| {
            Failure::new(Code::SchemaInvalid, error.to_string())
                .hint("a cursor is only valid for the listing that returned it")
        })?;
    }
    Ok(records.read(select).await?)
}

/// Restricts a query to a subject: by its id, or by the beginning of a UUID.
fn about(select: Select, subject: &str) -> Select {
    match IdPrefix::parse(subject) {
        Ok(prefix) if Uuid::parse_str(subject).is_err() => {
            let (lowest, highest) = prefix.range();
            let select = select.filter(audit_log_entries::subject_id, Comparison::AtLeast, lowest.to_string());
            select.filter(audit_log_entries::subject_id, Comparison::AtMost, highest.to_string())
        }
        _ => select.with(audit_log_entries::subject_id, subject),
    }
}

/// Why a list is empty; a mistyped tenant gets a suggestion.
async fn explain_empty(records: &dyn Records, list: &AuditListArgs) -> Outcome<String> {
    if let Some(named) = &list.tenant {
        let rows = records.read(TenantRow::select(Scope::System).take(PAGE_ROWS_MAX)).await?.rows;
        let known =
            rows.into_iter().map(TenantRow::decode).collect::<Result<Vec<_>, _>>().map_err(EngineError::from)?;
        if !known.iter().any(|tenant| tenant.slug == *named || tenant.id == *named) {
            let close = did_you_mean(named, known.iter().map(|tenant| tenant.slug.as_str()));
            return Ok(format!("no entries: no tenant `{named}`{close}"));
        }
    }
    let is_filtered = list.tenant.is_some() || list.subject_id.is_some() || list.event_type.is_some();
    Ok(if is_filtered { "no entries match; chimera audit list shows all" } else { "no entries" }.to_owned())
}

fn document(page: &Page) -> Outcome<String> {
    let items = page.rows.iter().map(EntryView::of).collect::<Result<_, _>>().map_err(EngineError::from)?;
    let page = view::ListPage { items, next_cursor: page.next.as_ref().map(Cursor::encode), bytes: 0 };
    Ok(format!("{}\n", shown(EntryPage::from(page))?))
}

const COLUMNS: &[Column] = &[
    Column::whole("ENTRY"),
    Column::whole("EVENT"),
    Column::cut("SUBJECT", 20),
    Column::droppable("BY", 1),
    Column::whole("AT"),
];

fn rows(page: &Page, view: &ListView) -> Outcome<Vec<Vec<String>>> {
    let row = |row: &Row| {
        let entry = EntryHead::peek(row).map_err(EngineError::from)?;
        let kind = match entry.subject_type {
            SubjectType::Other => String::new(),
            kind => format!("{} ", kind.as_str()),
        };
        let subject = escape_invisible_line(&format!("{kind}{}", view.id(&entry.subject_id)));
        let by = entry.actor_id.unwrap_or_else(|| entry.actor_type.as_str().to_owned());
        let at = view.time(&entry.timestamp.to_string().into());
        let event = escape_invisible_line(&entry.event_type);
        Ok(vec![format!("{}/{}", entry.lane, entry.seq), event, subject, escape_invisible_line(&by), at])
    };
    page.rows.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::OutputArg;
    use chimera_core::access::tables::TENANTS;
    use chimera_core::record::{ColumnType, Json, Tx, Value};
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
            output: OutputArg::default(),
        }
    }

    #[tokio::test]
    async fn a_page_is_shown_for_reading_and_as_json_with_its_cursor() {
        let page = read_page(&TwoEntries, &asked(None)).await.unwrap();
        let view = ListView::wide(Timestamp::from_micros(3));
        insta::assert_snapshot!(view.render(COLUMNS, &rows(&page, &view).unwrap()));
        insta::assert_snapshot!(document(&page).unwrap());
    }

    #[tokio::test]
    async fn a_cursor_of_another_listing_is_refused() {
        let failure = read_page(&TwoEntries, &asked(Some("nonsense"))).await.unwrap_err();
        assert_eq!(failure.code, Code::SchemaInvalid);
    }
}

//! `chimera audit list`: entries of the ledger, a page at a time.

use crate::cli::AuditList;
use crate::command::{Scene, print, say};
use crate::compose::{self, Ambient};
use crate::failure::{Failure, Outcome};
use chimera_core::error::Code;
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::record::{Page, Row, Scope, Select, Value};
use chimera_engine::port::Records;
use serde_json::json;
use std::fmt::Write;
use std::process::ExitCode;

pub(crate) async fn run(scene: &Scene<'_>, list: &AuditList) -> Outcome<ExitCode> {
    let records = compose::records(&scene.loaded.config, &Ambient::new()).await?;
    let page = page(&*records, list).await?;
    let next = page.next.as_ref().map(chimera_core::record::Cursor::encode);
    if scene.json {
        let items: Vec<serde_json::Value> = page.rows.iter().map(entry).collect();
        print(&format!("{}\n", json!({"items": items, "next_cursor": next})))?;
    } else {
        print(&table(&page))?;
        if let Some(next) = next {
            say(&format!("more: --after {next}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn page(records: &dyn Records, list: &AuditList) -> Outcome<Page> {
    let scope = list.tenant.clone().map_or(Scope::System, Scope::Tenant);
    let mut select = Select::from(&AUDIT_LOG_ENTRIES, scope).take(list.limit);
    if let Some(subject) = &list.subject_id {
        select = select.with("subject_id", subject.as_str());
    }
    if let Some(event) = &list.event_type {
        select = select.with("event_type", event.as_str());
    }
    if let Some(cursor) = &list.after {
        select = select.continue_at(cursor).map_err(|error| {
            Failure::new(Code::SchemaInvalid, error.to_string()).hint("a cursor belongs to the listing that gave it")
        })?;
    }
    Ok(records.read(select).await?)
}

fn entry(row: &Row) -> serde_json::Value {
    let columns = row.table.columns.iter().filter(|column| column.name != "salt");
    columns
        .map(|column| (column.name.to_owned(), value(row.get(column.name))))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn value(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(flag) => (*flag).into(),
        Value::Int(number) => (*number).into(),
        Value::Text(text) => text.as_str().into(),
        Value::Uuid(id) => id.to_string().into(),
        Value::Time(at) => at.to_string().into(),
        Value::Bytes(bytes) => hex::encode(bytes).into(),
        Value::Json(document) => document.to_value(),
        other => format!("{other:?}").into(),
    }
}

fn table(page: &Page) -> String {
    page.rows.iter().fold(String::new(), |mut text, row| {
        let at = value(row.get("timestamp"));
        let _ = writeln!(
            text,
            "{}/{}  {}  {}  {} {}  by {} {}",
            row.int("lane"),
            row.int("seq"),
            at.as_str().unwrap_or_default(),
            row.text("event_type"),
            row.text("subject_type"),
            row.text("subject_id"),
            row.text("actor_type"),
            row.text("actor_id"),
        );
        text
    })
}

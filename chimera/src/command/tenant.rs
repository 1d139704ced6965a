//! `chimera tenant …`: manages tenants.

use super::{CommandContext, print, say};
use crate::access::registry::ActorRegistry;
use crate::cli::{ActorArg, TenantCommand};
use crate::failure::{Failure, Outcome};
use crate::flow::table::{table, text};
use chimera_core::error::Code;
use chimera_core::text::did_you_mean;
use serde_json::{Value, json};
use std::process::ExitCode;

pub(crate) async fn run(scene: &CommandContext<'_>, command: TenantCommand) -> Outcome<ExitCode> {
    let acting: &ActorArg = match &command {
        TenantCommand::List { acting }
        | TenantCommand::Show { acting, .. }
        | TenantCommand::Add { acting, .. }
        | TenantCommand::Disable { acting, .. }
        | TenantCommand::Enable { acting, .. } => acting,
    };
    let book = ActorRegistry::open(&scene.loaded.config, acting.actor.as_deref()).await?;
    let outcome = execute(scene, &book, command).await;
    book.close().await;
    outcome.map(|()| ExitCode::SUCCESS)
}

async fn execute(scene: &CommandContext<'_>, book: &ActorRegistry, command: TenantCommand) -> Outcome {
    match command {
        TenantCommand::List { .. } => list(scene, book).await,
        TenantCommand::Show { slug, .. } => print_tenant(scene, &find_tenant(book, &slug).await?),
        TenantCommand::Add { slug, name, .. } => {
            print_tenant(scene, &book.add_tenant(&slug, name.as_deref()).await?)?;
            if !scene.json {
                say(&format!(
                    "Nothing is shared with it yet. Add its actors with chimera actor add '{slug}_*' --tenant {slug}, and \
                     grant tools, buckets and secrets with a [[tenant]] section in access.actors_file."
                ));
            }
            Ok(())
        }
        TenantCommand::Disable { slug, .. } => {
            find_tenant(book, &slug).await?;
            print_tenant(scene, &book.set_tenant(&slug, true).await?)
        }
        TenantCommand::Enable { slug, .. } => {
            find_tenant(book, &slug).await?;
            print_tenant(scene, &book.set_tenant(&slug, false).await?)
        }
    }
}

/// A tenant by its slug; a mistyped one gets a suggestion.
async fn find_tenant(book: &ActorRegistry, slug: &str) -> Outcome<Value> {
    let items = book.tenants().await?;
    if let Some(item) = items.iter().find(|item| item["slug"] == slug) {
        return Ok(item.clone());
    }
    let close = did_you_mean(slug, items.iter().filter_map(|item| item["slug"].as_str()));
    let failure = Failure::new(Code::NotFound, format!("there is no tenant {slug}{close}"));
    Err(failure.hint("chimera tenant list shows all tenants; chimera tenant add creates one"))
}

const HEADINGS: &[&str] = &["TENANT", "NAME", "STATUS", "SINCE", "ID"];

fn print_tenant(scene: &CommandContext<'_>, tenant: &Value) -> Outcome {
    if scene.json {
        return print(&format!("{tenant}\n"));
    }
    print(&table(HEADINGS, &[row(tenant)]))
}

async fn list(scene: &CommandContext<'_>, book: &ActorRegistry) -> Outcome {
    let items = book.tenants().await?;
    if scene.json {
        return print(&format!("{}\n", json!({ "items": items })));
    }
    print(&table(HEADINGS, &items.iter().map(row).collect::<Vec<_>>()))
}

fn row(tenant: &Value) -> Vec<String> {
    let status = if tenant["disabled"] == true { "disabled" } else { "active" };
    let [slug, name, since, id] = ["slug", "name", "created_at", "id"].map(|member| text(&tenant[member]));
    vec![slug, name, status.to_owned(), since, id]
}

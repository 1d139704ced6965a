//! `chimera tenant …`: manages tenants.

use super::listing::ListView;
use super::{CommandContext, print, say};
use crate::access::registry::ActorRegistry;
use crate::cli::{ActorArg, OutputArg, TenantCommand};
use crate::failure::{Failure, Outcome};
use crate::flow::table::{Column, details, text};
use chimera_core::error::Code;
use chimera_core::text::did_you_mean;
use serde_json::{Value, json};
use std::process::ExitCode;

pub(crate) async fn run(scene: &CommandContext<'_>, command: TenantCommand) -> Outcome<ExitCode> {
    let acting: &ActorArg = match &command {
        TenantCommand::List { acting, .. }
        | TenantCommand::Show { acting, .. }
        | TenantCommand::Add { acting, .. }
        | TenantCommand::Disable { acting, .. }
        | TenantCommand::Enable { acting, .. } => acting,
    };
    let registry = ActorRegistry::open(&scene.loaded.config, acting.actor.as_deref()).await?;
    let outcome = execute(scene, &registry, command).await;
    registry.close().await;
    outcome.map(|()| ExitCode::SUCCESS)
}

async fn execute(scene: &CommandContext<'_>, registry: &ActorRegistry, command: TenantCommand) -> Outcome {
    match command {
        TenantCommand::List { output, .. } => list(scene, registry, &output).await,
        TenantCommand::Show { slug, .. } => print_tenant(scene, &find_tenant(registry, &slug).await?),
        TenantCommand::Add { slug, name, .. } => {
            print_tenant(scene, &registry.add_tenant(&slug, name.as_deref()).await?)?;
            if !scene.json {
                say(&format!(
                    "Nothing is shared with it yet. Add its actors with chimera actor add '{slug}_*' --tenant {slug}, and \
                     grant tools, buckets and secrets with a [[tenant]] section in access.actors_file."
                ));
            }
            Ok(())
        }
        TenantCommand::Disable { slug, .. } => {
            find_tenant(registry, &slug).await?;
            print_tenant(scene, &registry.set_tenant(&slug, true).await?)
        }
        TenantCommand::Enable { slug, .. } => {
            find_tenant(registry, &slug).await?;
            print_tenant(scene, &registry.set_tenant(&slug, false).await?)
        }
    }
}

/// A tenant by its slug; a mistyped one gets a suggestion.
async fn find_tenant(registry: &ActorRegistry, slug: &str) -> Outcome<Value> {
    let items = registry.tenants().await?;
    if let Some(item) = items.iter().find(|item| item["slug"] == slug) {
        return Ok(item.clone());
    }
    let close = did_you_mean(slug, items.iter().filter_map(|item| item["slug"].as_str()));
    let failure = Failure::new(Code::NotFound, format!("no tenant `{slug}`{close}"));
    Err(failure.hint("chimera tenant list shows all tenants; chimera tenant add creates one"))
}

const COLUMNS: &[Column] =
    &[Column::whole("TENANT"), Column::cut("NAME", 16), Column::whole("STATUS"), Column::droppable("SINCE", 1)];

const WIDE_COLUMNS: &[Column] = &[
    Column::whole("TENANT"),
    Column::whole("NAME"),
    Column::whole("STATUS"),
    Column::whole("SINCE"),
    Column::whole("ID"),
];

fn print_tenant(scene: &CommandContext<'_>, tenant: &Value) -> Outcome {
    if scene.json {
        return print(&format!("{tenant}\n"));
    }
    let [name, since, id] = ["name", "created_at", "id"].map(|member| text(&tenant[member]));
    let members = [("tenant", text(&tenant["slug"])), ("name", name), ("status", status(tenant).to_owned())];
    print(&details(&[&members[..], &[("since", since), ("id", id)]].concat()))
}

async fn list(scene: &CommandContext<'_>, registry: &ActorRegistry, output: &OutputArg) -> Outcome {
    let items = registry.tenants().await?;
    if scene.json {
        return print(&format!("{}\n", json!({ "items": items })));
    }
    let view = ListView::of(scene, output);
    let rows: Vec<Vec<String>> = items.iter().map(|tenant| row(tenant, &view)).collect();
    view.print(if view.wide { WIDE_COLUMNS } else { COLUMNS }, &rows)
}

fn status(tenant: &Value) -> &'static str {
    if tenant["disabled"] == true { "disabled" } else { "active" }
}

fn row(tenant: &Value, view: &ListView) -> Vec<String> {
    let [slug, name, id] = ["slug", "name", "id"].map(|member| text(&tenant[member]));
    vec![slug, name, status(tenant).to_owned(), view.time(&tenant["created_at"]), id]
}

//! `chimera role …`: the configured roles.

use super::listing::ListView;
use super::{CommandContext, print, say};
use crate::cli::RoleCommand;
use crate::compose;
use crate::failure::{Failure, Outcome};
use crate::flow::table::Column;
use chimera_core::access::Role;
use chimera_core::error::Code;
use chimera_core::text::did_you_mean;
use serde_json::{Value, json};
use std::process::ExitCode;

const COLUMNS: &[Column] = &[Column::whole("ROLE"), Column::droppable("TENANT", 1), Column::cut("SCOPES", 20)];

pub(crate) fn run(scene: &CommandContext<'_>, command: RoleCommand) -> Outcome<ExitCode> {
    let RoleCommand::List { tenant, output } = command;
    let mut roles = compose::roles(&scene.loaded.config)?;
    if let Some(tenant) = tenant {
        check_tenant(&roles, &tenant)?;
        roles.retain(|role| role.tenant == tenant);
    }
    if scene.json {
        print(&format!("{}\n", json!({ "items": roles.iter().map(document).collect::<Vec<_>>() })))?;
    } else if roles.is_empty() {
        say("no roles; define one with a [[role]] section in the file named by access.actors_file");
    } else {
        ListView::of(scene, &output).print(COLUMNS, &roles.iter().map(row).collect::<Vec<_>>())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Rejects a tenant without roles if others have some: it may be a typo.
fn check_tenant(roles: &[Role], tenant: &str) -> Outcome {
    if roles.is_empty() || roles.iter().any(|role| role.tenant == tenant) {
        return Ok(());
    }
    let close = did_you_mean(tenant, roles.iter().map(|role| role.tenant.as_str()));
    let failure = Failure::new(Code::NotFound, format!("tenant `{tenant}` has no roles{close}"));
    Err(failure.hint("chimera role list shows the roles of every tenant"))
}

fn document(role: &Role) -> Value {
    json!({"name": role.name, "tenant": role.tenant, "scopes": role.scopes})
}

fn row(role: &Role) -> Vec<String> {
    vec![role.name.clone(), role.tenant.clone(), role.scopes.join(", ")]
}

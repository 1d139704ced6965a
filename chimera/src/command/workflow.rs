//! `chimera workflow …`: manages workflow documents.

use super::listing::{ListView, say_footer};
use super::{CommandContext, EXIT_FOUND_WRONG, document, print, say};
use crate::backend::{Backend, percent_encode};
use crate::cli::{PageArgs, WorkflowCommand};
use crate::failure::{Failure, Outcome};
use crate::flow::table::{Column, text};
use chimera_core::error::Code;
use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;

pub(crate) async fn run(scene: &CommandContext<'_>, command: WorkflowCommand) -> Outcome<ExitCode> {
    match command {
        WorkflowCommand::Apply { file, acting } => apply(scene, &file, acting.actor.as_deref()).await,
        WorkflowCommand::List(page) => list(scene, &page).await,
        WorkflowCommand::Show { id, version } => show(scene, &id, version).await,
        WorkflowCommand::Share { id, acting } => share(scene, &id, true, acting.actor.as_deref()).await,
        WorkflowCommand::Unshare { id, acting } => share(scene, &id, false, acting.actor.as_deref()).await,
        WorkflowCommand::Check { file } => check(scene, &file).await,
    }
}

/// The text of a document and the id of its workflow.
fn read(file: &Path) -> Outcome<(String, String)> {
    let text = super::read_text(file)?;
    let id = serde_json::from_str::<Value>(&text).ok().and_then(|d| d["workflow_id"].as_str().map(str::to_owned));
    // Validation rejects a document without a workflow id.
    Ok((text, id.filter(|id| !id.is_empty()).unwrap_or_else(|| "unnamed".to_owned())))
}

async fn apply(scene: &CommandContext<'_>, file: &Path, actor: Option<&str>) -> Outcome<ExitCode> {
    let (text, id) = read(file)?;
    let Backend::Server(server) = scene.write_backend(actor)? else {
        return Err(Failure::new(Code::Internal, "this command needs a server"));
    };
    let applied = server.ask("PUT", &format!("workflows/{}", percent_encode(&id)), Some(text)).await;
    let applied = applied.map_err(|failure| failure.in_file(file))?;
    if scene.json {
        print(&format!("{applied}\n"))?;
    } else {
        let what = if applied["created"] == true { "is" } else { "was there already as" };
        say(&format!("{} {what} version {}.", applied["workflow_id"].as_str().unwrap_or(&id), applied["version"]));
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts or stops sharing a workflow with all tenants.
async fn share(scene: &CommandContext<'_>, id: &str, shared: bool, actor: Option<&str>) -> Outcome<ExitCode> {
    let method = if shared { "PUT" } else { "DELETE" };
    let backend = scene.write_backend(actor)?;
    let answer = backend.request(method, &format!("workflows/{}/share", percent_encode(id)), None).await?;
    if scene.json {
        print(&format!("{answer}\n"))?;
    } else if shared {
        say(&format!("All tenants can start {id} now."));
    } else {
        say(&format!("Only its own tenant can start {id} now; runs of other tenants that are in progress continue."));
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(scene: &CommandContext<'_>, page: &PageArgs) -> Outcome<ExitCode> {
    let backend = scene.read_backend().await?;
    let found = backend.workflows(page.limit, page.cursor.as_deref()).await?;
    if scene.json {
        print(&format!("{found}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let items = found["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let view = ListView::of(scene, &page.output);
    let row = |item: &Value| {
        let shared = if item["shared"] == true { "yes" } else { "-" }.to_owned();
        let [id, version, by, what] =
            ["workflow_id", "version", "created_by", "description"].map(|name| text(&item[name]));
        vec![id, what, version, view.time(&item["created_at"]), by, shared]
    };
    let rows: Vec<Vec<String>> = items.iter().map(row).collect();
    view.print(COLUMNS, &rows)?;
    say_footer(scene, &found, rows.is_empty(), "no workflows; chimera workflow apply FILE adds one");
    Ok(ExitCode::SUCCESS)
}

const COLUMNS: &[Column] = &[
    Column::whole("WORKFLOW"),
    Column::cut("WHAT IT DOES", 30),
    Column::droppable("VERSION", 2),
    Column::droppable("APPLIED", 1),
    Column::droppable("BY", 3),
    Column::droppable("SHARED", 4),
];

async fn show(scene: &CommandContext<'_>, id: &str, version: Option<i64>) -> Outcome<ExitCode> {
    let backend = scene.read_backend().await?;
    let found = backend.workflow(id, version).await?;
    if scene.json {
        print(&format!("{found}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!(
        "{} version {}, applied {} by {}, digest {}",
        text(&found["workflow_id"]),
        found["version"],
        text(&found["created_at"]),
        text(&found["created_by"]),
        text(&found["digest"])
    ));
    print(&document(&found["document"]))?;
    Ok(ExitCode::SUCCESS)
}

async fn check(scene: &CommandContext<'_>, file: &Path) -> Outcome<ExitCode> {
    let (text, id) = read(file)?;
    let backend = scene.read_backend().await?;
    match backend.check(&id, &text).await {
        Ok(found) if scene.json => print(&format!("{found}\n"))?,
        Ok(found) => {
            let unstartable = found["not_startable"].as_str();
            let but = unstartable.map_or(String::new(), |why| format!(" It can't be started yet: {why}."));
            say(&format!("{id} is valid: {} nodes, {} edges.{but}", found["nodes"], found["edges"]));
        }
        Err(failure) if matches!(failure.code, Code::ValidationFailed | Code::SchemaInvalid | Code::MalformedArgs) => {
            say(&failure.in_file(file).render(scene.json));
            return Ok(ExitCode::from(EXIT_FOUND_WRONG));
        }
        Err(failure) => return Err(failure),
    }
    Ok(ExitCode::SUCCESS)
}

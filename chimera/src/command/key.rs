//! `chimera key …`: Ed25519 keys that actors sign with.
//!
//! A private key is made here and stays in its file: no command sends one.

use super::listing::ListView;
use super::{CommandContext, print, read_text, say};
use crate::access::registry::ActorRegistry;
use crate::access::signing_keys::{self, KeyToRegister};
use crate::cli::{KeyCommand, KidArgs, NewKeyArgs, OutputArg};
use crate::compose::Ambient;
use crate::failure::{Failure, Outcome};
use crate::flow::table::{Column, details, text};
use chimera_core::access::{ADMIN, Ed25519PrivateKey, Ed25519PublicKey, is_kid};
use chimera_core::error::{Code, io_reason};
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

/// Characters of a key id in a list.
const SHORT: usize = 12;

pub(crate) async fn run(scene: &CommandContext<'_>, command: KeyCommand) -> Outcome<ExitCode> {
    let acting = match (&command, command.acting()) {
        (_, Some(acting)) => acting.actor.clone(),
        (KeyCommand::Generate { file }, None) => return generate(scene, file).map(|()| ExitCode::SUCCESS),
        _ => None,
    };
    let registry = scene.actor_registry(acting.as_deref()).await?;
    let own = acting.or_else(|| scene.loaded.config.actor.clone()).unwrap_or_else(|| ADMIN.to_owned());
    let outcome = execute(scene, &registry, &own, command).await;
    registry.close().await;
    outcome.map(|()| ExitCode::SUCCESS)
}

async fn execute(scene: &CommandContext<'_>, registry: &ActorRegistry, own: &str, command: KeyCommand) -> Outcome {
    match command {
        KeyCommand::Generate { file } => generate(scene, &file),
        KeyCommand::List { actor, output, .. } => list(scene, registry, actor.as_deref().unwrap_or(own), &output).await,
        KeyCommand::Add { key, holder, not_before, .. } => {
            let key = KeyToRegister { not_before, ..to_register(key)? };
            let added = signing_keys::add(registry, holder.as_deref().unwrap_or(own), &key).await?;
            print_key(scene, &added)
        }
        KeyCommand::Rotate { kid, key, overlap, .. } => {
            let kid = find_kid(registry, own, &kid).await?;
            let rotated = signing_keys::rotate(registry, &kid, &to_register(key)?, overlap).await?;
            if scene.json {
                return print(&format!("{rotated}\n"));
            }
            print_key(scene, &rotated["added"])?;
            say(&format!("It replaces {kid}, which is valid until {}.", text(&rotated["replaced"]["expires_at"])));
            Ok(())
        }
        KeyCommand::Revoke { kid, reason, .. } => {
            let kid = find_kid(registry, own, &kid).await?;
            print_key(scene, &signing_keys::revoke(registry, &kid, reason.as_deref()).await?)
        }
    }
}

/// Writes a new private key and prints its public key.
fn generate(scene: &CommandContext<'_>, file: &Path) -> Outcome {
    let key = Ed25519PrivateKey::generate(|bytes| Ambient::new().random.fill(bytes));
    let refused = |error: std::io::Error| {
        let message = format!("{} can't be written: {}", file.display(), io_reason(&error));
        Failure::new(Code::MalformedArgs, message).hint("choose a file that does not exist yet")
    };
    let options = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    let mut target = options.map_err(refused)?;
    target.write_all(key.to_pem().as_bytes()).and_then(|()| target.sync_all()).map_err(refused)?;
    let public = key.public();
    if scene.json {
        let shown = json!({"kid": public.kid(), "x": public.x(), "private_key_file": file.display().to_string()});
        return print(&format!("{shown}\n"));
    }
    print(&format!("{}\n", public.x()))?;
    say(&format!("The private key is in {}; only you can read it.", file.display()));
    Ok(())
}

/// The key of a file. Only the public half of a private key leaves this process.
fn to_register(args: NewKeyArgs) -> Outcome<KeyToRegister> {
    let NewKeyArgs { file, label, expires_at } = args;
    let given = read_text(&file)?;
    let public = match Ed25519PrivateKey::parse(&given) {
        Ok(private) => private.public(),
        Err(_) => Ed25519PublicKey::parse(&given)
            .map_err(|why| Failure::new(Code::ValidationFailed, format!("{}: {why}", file.display())))?,
    };
    Ok(KeyToRegister { public_key: public.x(), label, not_before: None, expires_at })
}

/// A whole key id, or the one of the actor's keys that begins so.
async fn find_kid(registry: &ActorRegistry, own: &str, args: &KidArgs) -> Outcome<String> {
    if is_kid(&args.kid) {
        return Ok(args.kid.clone());
    }
    let actor = args.holder.as_deref().unwrap_or(own);
    let keys = signing_keys::list(registry, actor).await?;
    let ids: Vec<&str> = keys.iter().filter_map(|key| key["kid"].as_str()).collect();
    let found: Vec<&&str> = ids.iter().filter(|kid| !args.kid.is_empty() && kid.starts_with(&args.kid)).collect();
    match found[..] {
        [kid] => Ok((*kid).to_owned()),
        [] => {
            let failure =
                Failure::new(Code::NotFound, format!("{actor} has no signing key that begins with `{}`", args.kid));
            Err(failure.hint(format!("chimera key list {actor} shows all of them")))
        }
        _ => {
            Err(Failure::new(Code::MalformedArgs, format!("{} keys of {actor} begin with `{}`", found.len(), args.kid)))
        }
    }
}

fn print_key(scene: &CommandContext<'_>, key: &Value) -> Outcome {
    if scene.json {
        return print(&format!("{key}\n"));
    }
    let names = ["kid", "actor", "status", "label", "x", "created_by", "created_at", "not_before", "expires_at"];
    let mut members: Vec<_> = names.into_iter().map(|name| (name, text(&key[name]))).collect();
    if !key["revoked_at"].is_null() {
        members.extend(["revoked_at", "revoked_by", "reason"].map(|name| (name, text(&key[name]))));
    }
    print(&details(&members))
}

const COLUMNS: &[Column] = &[
    Column::whole("KEY"),
    Column::whole("STATUS"),
    Column::cut("LABEL", 12),
    Column::droppable("ADDED", 1),
    Column::droppable("EXPIRES", 2),
    Column::droppable("BY", 3),
    Column::droppable("REASON", 4),
];

async fn list(scene: &CommandContext<'_>, registry: &ActorRegistry, actor: &str, output: &OutputArg) -> Outcome {
    let items = signing_keys::list(registry, actor).await?;
    if scene.json {
        return print(&format!("{}\n", json!({ "items": items })));
    }
    let view = ListView::of(scene, output);
    let rows: Vec<Vec<String>> = items.iter().map(|key| row(key, &view, &items)).collect();
    view.print(COLUMNS, &rows)?;
    if rows.is_empty() {
        say(&format!(
            "{actor} has no signing keys; chimera key generate FILE creates one, chimera key add FILE registers it"
        ));
    }
    Ok(())
}

fn row(key: &Value, view: &ListView, all: &[Value]) -> Vec<String> {
    let kid = key["kid"].as_str().unwrap_or_default();
    let short = kid.get(..SHORT).unwrap_or(kid);
    let shared = all.iter().filter(|other| other["kid"].as_str().is_some_and(|other| other.starts_with(short))).count();
    let [label, by, reason] = ["label", "created_by", "reason"].map(|name| text(&key[name]));
    vec![
        if view.wide || shared > 1 { kid } else { short }.to_owned(),
        text(&key["status"]).replace('_', " "),
        label,
        view.time(&key["created_at"]),
        text(&key["expires_at"]),
        by,
        reason,
    ]
}

//! `chimera actor …`: the registry of actors and their keys.

use super::act::notify;
use super::{Scene, print, say};
use crate::access::book::Book;
use crate::cli::{Acting, ActorCommand, AddArgs, KindWord};
use crate::failure::{Failure, Outcome};
use crate::flow::table::{table, text};
use chimera_core::error::Code;
use serde_json::{Map, Value, json};
use std::process::ExitCode;

pub(crate) async fn run(scene: &Scene<'_>, command: ActorCommand) -> Outcome<ExitCode> {
    let acting: &Acting = match &command {
        ActorCommand::List { acting } | ActorCommand::Secret { acting, .. } => acting,
        ActorCommand::Add(args) => &args.acting,
    };
    let book = Book::open(&scene.loaded.config, acting.actor.as_deref()).await?;
    let outcome = match command {
        ActorCommand::List { .. } => list(scene, &book).await,
        ActorCommand::Add(args) => add(scene, &book, args).await,
        ActorCommand::Secret { actor, overlap, revoke_old, .. } => {
            let made = book.add_key(&actor, if revoke_old { Some(0) } else { overlap }).await;
            made.and_then(|made| tell(scene, &made))
        }
    };
    book.close().await;
    outcome.map(|()| ExitCode::SUCCESS)
}

async fn list(scene: &Scene<'_>, book: &Book) -> Outcome {
    let items = book.list().await?;
    if scene.json {
        return print(&format!("{}\n", json!({ "items": items })));
    }
    let rows: Vec<Vec<String>> = items.iter().map(row).collect();
    print(&table(&["ACTOR", "KIND", "TENANT", "LEVEL", "QUOTA", "KEYS", "FROM", "SCOPES"], &rows))
}

fn row(actor: &Value) -> Vec<String> {
    let scopes = actor["scopes"].as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(" ");
    let disabled = if actor["disabled"] == true { " (disabled)" } else { "" };
    vec![
        format!("{}{disabled}", text(&actor["id"])),
        text(&actor["kind"]),
        text(&actor["tenant"]),
        text(&actor["autonomy_level"]),
        text(&actor["quota_per_minute"]),
        text(&actor["keys"]),
        text(&actor["source"]),
        if scopes.is_empty() { "-".to_owned() } else { scopes },
    ]
}

async fn add(scene: &Scene<'_>, book: &Book, args: AddArgs) -> Outcome {
    let actor = args.actor.clone();
    if book.show(&actor).await?["keys"].as_u64().is_some_and(|keys| keys > 0) {
        let failure = Failure::new(Code::OccConflict, format!("{actor} has a key already"));
        return Err(failure.hint(format!("chimera actor secret {actor} makes another")));
    }
    let over = entry(args);
    if !over.is_empty() {
        book.put(&actor, over).await?;
    }
    let mut made = book.add_key(&actor, None).await?;
    // It is the first one.
    made["keys_before_until"] = Value::Null;
    tell(scene, &made)
}

/// The members of an entry that were given.
fn entry(args: AddArgs) -> Map<String, Value> {
    let kind = args.kind.map(|kind| match kind {
        KindWord::Human => "human",
        KindWord::Service => "service",
    });
    let given = [
        ("scopes", args.scopes.map(Value::from)),
        ("quota_per_minute", args.quota.map(Value::from)),
        ("autonomy_level", args.level.map(|word| word.level().as_str().into())),
        ("kind", kind.map(Value::from)),
        ("tenant", args.tenant.map(Value::from)),
        ("notify", notify(args.notify_webhook, args.notify_email)),
    ];
    given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Tells a new key, once.
fn tell(scene: &Scene<'_>, made: &Value) -> Outcome {
    if scene.json {
        return print(&format!("{made}\n"));
    }
    say(&format!("The key of {}; keep it, nobody can read it again:", text(&made["actor"])));
    print(&format!("{}\n", made["hmac_key"].as_str().unwrap_or_default()))?;
    if let Some(until) = made["keys_before_until"].as_str() {
        say(&format!("Keys before it count until {until}."));
    }
    Ok(())
}

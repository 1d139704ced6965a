//! `chimera actor …`: the registry of actors and their keys.

use super::act::notify;
use super::{Scene, print, say};
use crate::access::book::Book;
use crate::cli::{Acting, ActorCommand, AddArgs, KindWord};
use crate::failure::{Failure, Outcome};
use crate::flow::table::{table, text};
use chimera_core::access::scope::check_scope;
use chimera_core::error::Code;
use chimera_core::text::did_you_mean;
use serde_json::{Map, Value, json};
use std::process::ExitCode;

pub(crate) async fn run(scene: &Scene<'_>, command: ActorCommand) -> Outcome<ExitCode> {
    let acting: &Acting = match &command {
        ActorCommand::List { acting }
        | ActorCommand::Show { acting, .. }
        | ActorCommand::Secret { acting, .. }
        | ActorCommand::Disable { acting, .. }
        | ActorCommand::Remove { acting, .. } => acting,
        ActorCommand::Add(args) | ActorCommand::Edit { args, .. } => &args.acting,
    };
    let book = scene.book(acting.actor.as_deref()).await?;
    let outcome = carry_out(scene, &book, command).await;
    book.close().await;
    outcome.map(|()| ExitCode::SUCCESS)
}

async fn carry_out(scene: &Scene<'_>, book: &Book, command: ActorCommand) -> Outcome {
    match command {
        ActorCommand::List { .. } => list(scene, book).await,
        ActorCommand::Show { actor, .. } => shown(scene, &known(book, &actor).await?),
        ActorCommand::Add(args) => add(scene, book, args).await,
        ActorCommand::Secret { actor, overlap, revoke_old, new, .. } => {
            if !new {
                known(book, &actor).await.map_err(|failure| {
                    failure.hint(format!("chimera actor secret {actor} --new makes a key for a new actor"))
                })?;
            }
            let made = book.add_key(&actor, if revoke_old { Some(0) } else { overlap }).await?;
            tell(scene, &made)
        }
        ActorCommand::Edit { args, enable } => {
            let actor = args.actor.clone();
            known(book, &actor).await?;
            known_scopes(book, &args).await?;
            let mut over = entry(args);
            if enable {
                over.insert("disabled".to_owned(), false.into());
            }
            if over.is_empty() {
                let failure = Failure::new(Code::ValidationFailed, format!("nothing is to be changed of {actor}"));
                return Err(failure.hint("chimera actor edit --help lists what can be"));
            }
            shown(scene, &book.put(&actor, over).await?)
        }
        ActorCommand::Disable { actor, .. } => {
            known(book, &actor).await?;
            let over = Map::from_iter([("disabled".to_owned(), true.into())]);
            shown(scene, &book.put(&actor, over).await?)
        }
        ActorCommand::Remove { actor, .. } => {
            known(book, &actor).await?;
            removed(scene, &actor, &book.remove(&actor).await?)
        }
    }
}

/// What counts for an actor that has an entry or a key; a name that only fits a pattern may be a typo.
async fn known(book: &Book, actor: &str) -> Outcome<Value> {
    let items = book.list().await?;
    if let Some(item) = items.iter().find(|item| item["id"] == actor) {
        return Ok(item.clone());
    }
    let names = items.iter().filter_map(|item| item["id"].as_str());
    let close = did_you_mean(actor, names);
    let failure = Failure::new(Code::NotFound, format!("{actor} has neither an entry nor a key{close}"));
    Err(failure.hint("chimera actor list shows everybody; chimera actor add makes an actor"))
}

/// Refuses scopes that nothing asks for, which are typos more often than plans.
async fn known_scopes(book: &Book, args: &AddArgs) -> Outcome {
    let wanted = args.scopes.as_deref().unwrap_or_default();
    if wanted.is_empty() || args.allow_unknown_scope {
        return Ok(());
    }
    let known = book.scopes().await?;
    let Some(unknown) = wanted.iter().find(|scope| !is_known(scope, &known)) else { return Ok(()) };
    let close = did_you_mean(unknown, known.iter().map(String::as_str));
    let message = format!("no tool and no part of Chimera asks for the scope {unknown}{close}");
    Err(Failure::new(Code::ValidationFailed, message).hint("--allow-unknown-scope takes it as it is"))
}

/// Whether a scope gives anything that is asked for, also in the short form `notion.read`.
fn is_known(scope: &str, known: &[String]) -> bool {
    let short = |name: &str| {
        let ends = name.split_once('.').zip(name.rsplit_once('.'));
        ends.is_some_and(|((house, _), (_, act))| scope.split_once('.') == Some((house, act)))
    };
    known.iter().any(|name| check_scope(&[scope], name) || short(name))
}

/// One actor.
fn shown(scene: &Scene<'_>, actor: &Value) -> Outcome {
    if scene.json {
        return print(&format!("{actor}\n"));
    }
    print(&table(HEADINGS, &[row(actor)]))?;
    if actor["roles"].as_array().is_some_and(|roles| !roles.is_empty()) {
        say(&format!("With its roles it may do: {}", joined(actor, "effective_scopes")));
    }
    let source = match actor["source"].as_str() {
        Some("config") => "Its entry is the configuration's: edit writes another over it; only the file removes it.",
        Some("shipped") if actor["matched"] == actor["id"] => "Its entry is shipped: edit writes another over it.",
        Some("shipped" | "none") => "It has no entry of its own: what fits its name counts.",
        _ => return Ok(()),
    };
    say(source);
    Ok(())
}

/// What is left of an actor that was removed.
fn removed(scene: &Scene<'_>, actor: &str, left: &Value) -> Outcome {
    if scene.json {
        return print(&format!("{left}\n"));
    }
    say(&match left["matched"].as_str() {
        None => format!("Removed {actor}: its entry is gone, its keys and sign-ins have ended."),
        Some(matched) => format!(
            "Removed {actor}: its keys and sign-ins have ended. The entry {matched} ({}) counts for the name now.",
            text(&left["source"])
        ),
    });
    Ok(())
}

const HEADINGS: &[&str] = &["ACTOR", "KIND", "TENANT", "LEVEL", "QUOTA", "KEYS", "FROM", "ROLES", "SCOPES"];

async fn list(scene: &Scene<'_>, book: &Book) -> Outcome {
    let items = book.list().await?;
    if scene.json {
        return print(&format!("{}\n", json!({ "items": items })));
    }
    let rows: Vec<Vec<String>> = items.iter().map(row).collect();
    print(&table(HEADINGS, &rows))
}

fn row(actor: &Value) -> Vec<String> {
    let joined = |name: &str| {
        let all = joined(actor, name);
        if all.is_empty() { "-".to_owned() } else { all }
    };
    let disabled = if actor["disabled"] == true { " (disabled)" } else { "" };
    vec![
        format!("{}{disabled}", text(&actor["id"])),
        text(&actor["kind"]),
        text(&actor["tenant"]),
        text(&actor["autonomy_level"]),
        text(&actor["quota_per_minute"]),
        text(&actor["keys"]),
        text(&actor["source"]),
        joined("roles"),
        joined("scopes"),
    ]
}

/// The texts of a member, in one line.
fn joined(actor: &Value, name: &str) -> String {
    actor[name].as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(" ")
}

async fn add(scene: &Scene<'_>, book: &Book, args: AddArgs) -> Outcome {
    let actor = args.actor.clone();
    if book.show(&actor).await?["keys"].as_u64().is_some_and(|keys| keys > 0) {
        let failure = Failure::new(Code::OccConflict, format!("{actor} has a key already"));
        return Err(failure.hint(format!("chimera actor secret {actor} makes another")));
    }
    known_scopes(book, &args).await?;
    let over = entry(args);
    if actor.contains('*') {
        return pattern(scene, book, &actor, over).await;
    }
    if !over.is_empty() {
        book.put(&actor, over).await?;
    }
    let mut made = book.add_key(&actor, None).await?;
    // It is the first one.
    made["keys_before_until"] = Value::Null;
    tell(scene, &made)
}

/// A pattern gets an entry, and no key: every actor that fits it has its own.
async fn pattern(scene: &Scene<'_>, book: &Book, pattern: &str, over: Map<String, Value>) -> Outcome {
    if over.is_empty() {
        let message = format!("{pattern} is a pattern: it has no key, and nothing is said about what fits it");
        return Err(Failure::new(Code::ValidationFailed, message).hint("say what may be done, such as --scopes"));
    }
    let entry = book.put(pattern, over).await?;
    if !scene.json {
        say(&format!("{pattern} is a pattern and has no key; chimera actor add makes one for an actor that fits it."));
    }
    shown(scene, &entry)
}

/// The members of an entry that were given.
fn entry(args: AddArgs) -> Map<String, Value> {
    let kind = args.kind.map(|kind| match kind {
        KindWord::Human => "human",
        KindWord::Service => "service",
    });
    let roles = if args.no_roles { Some(Vec::new()) } else { args.roles };
    let given = [
        ("roles", roles.map(Value::from)),
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

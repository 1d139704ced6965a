//! `chimera actor …`: the registry of actors and their keys.

use super::act::notify;
use super::listing::ListView;
use super::{CommandContext, print, say};
use crate::access::registry::ActorRegistry;
use crate::cli::{ActorArg, ActorArgs, ActorCommand, ActorKindArg, OutputArg};
use crate::failure::{Failure, Outcome};
use crate::flow::table::{Column, details, text};
use chimera_core::access::registry::{InvalidActorEntry, is_actor_name};
use chimera_core::access::scope::check_scope;
use chimera_core::error::Code;
use chimera_core::text::did_you_mean;
use chimera_engine::access::WORK_CLAIM;
use serde_json::{Map, Value, json};
use std::process::ExitCode;

pub(crate) async fn run(scene: &CommandContext<'_>, command: ActorCommand) -> Outcome<ExitCode> {
    let acting: &ActorArg = match &command {
        ActorCommand::List { acting, .. }
        | ActorCommand::Show { acting, .. }
        | ActorCommand::Secret { acting, .. }
        | ActorCommand::Disable { acting, .. }
        | ActorCommand::Remove { acting, .. } => acting,
        ActorCommand::Add(args) | ActorCommand::Edit { args, .. } => &args.acting,
    };
    let registry = scene.actor_registry(acting.actor.as_deref()).await?;
    let outcome = execute(scene, &registry, command).await;
    registry.close().await;
    outcome.map(|()| ExitCode::SUCCESS)
}

async fn execute(scene: &CommandContext<'_>, registry: &ActorRegistry, command: ActorCommand) -> Outcome {
    match command {
        ActorCommand::List { output, .. } => list(scene, registry, &output).await,
        ActorCommand::Show { actor, .. } => print_actor(scene, &find_actor(registry, &actor).await?),
        ActorCommand::Add(args) => add(scene, registry, args).await,
        ActorCommand::Secret { actor, overlap, revoke_old, new, .. } => {
            if !new {
                find_actor(registry, &actor).await.map_err(|failure| {
                    failure.hint(format!("chimera actor secret {actor} --new creates a key for a new actor"))
                })?;
            }
            let made = registry.add_key(&actor, if revoke_old { Some(0) } else { overlap }).await?;
            print_key(scene, &made)
        }
        ActorCommand::Edit { args, enable } => {
            let actor = args.actor.clone();
            find_actor(registry, &actor).await?;
            check_scopes(registry, &args).await?;
            let mut over = entry(args);
            if enable {
                over.insert("disabled".to_owned(), false.into());
            }
            if over.is_empty() {
                let failure = Failure::new(Code::ValidationFailed, format!("no changes given for {actor}"));
                return Err(failure.hint("chimera actor edit --help lists what can be changed"));
            }
            print_actor(scene, &registry.put(&actor, over).await?)
        }
        ActorCommand::Disable { actor, .. } => {
            find_actor(registry, &actor).await?;
            let over = Map::from_iter([("disabled".to_owned(), true.into())]);
            print_actor(scene, &registry.put(&actor, over).await?)
        }
        ActorCommand::Remove { actor, .. } => {
            find_actor(registry, &actor).await?;
            print_removal(scene, &actor, &registry.remove(&actor).await?)
        }
    }
}

/// The effective entry of an actor that has an entry or a key. A name that only matches a pattern may be a typo.
async fn find_actor(registry: &ActorRegistry, actor: &str) -> Outcome<Value> {
    let items = registry.list().await?;
    if let Some(item) = items.iter().find(|item| item["id"] == actor) {
        return Ok(item.clone());
    }
    let names = items.iter().filter_map(|item| item["id"].as_str());
    let close = did_you_mean(actor, names);
    let failure = Failure::new(Code::NotFound, format!("no actor `{actor}`: it has neither an entry nor a key{close}"));
    Err(failure.hint("chimera actor list shows all actors; chimera actor add creates one"))
}

/// Rejects scopes that nothing uses: they are usually typos.
async fn check_scopes(registry: &ActorRegistry, args: &ActorArgs) -> Outcome {
    let wanted = args.scopes.as_deref().unwrap_or_default();
    if wanted.is_empty() || args.allow_unknown_scope {
        return Ok(());
    }
    let known = registry.scopes().await?;
    let Some(unknown) = wanted.iter().find(|scope| !is_known(scope, &known)) else { return Ok(()) };
    let close = did_you_mean(unknown, known.iter().map(String::as_str));
    let message = format!("unknown scope {unknown}: no tool and no part of Chimera uses it{close}");
    Err(Failure::new(Code::ValidationFailed, message).hint("--allow-unknown-scope accepts it"))
}

/// Whether a scope grants anything in use, also in the short form `notion.read`.
fn is_known(scope: &str, known: &[String]) -> bool {
    let short = |name: &str| {
        let ends = name.split_once('.').zip(name.rsplit_once('.'));
        ends.is_some_and(|((house, _), (_, act))| scope.split_once('.') == Some((house, act)))
    };
    let is_queue = scope.strip_prefix(WORK_CLAIM).is_some_and(|queue| queue.starts_with('.'));
    is_queue || known.iter().any(|name| check_scope(&[scope], name) || short(name))
}

fn print_actor(scene: &CommandContext<'_>, actor: &Value) -> Outcome {
    if scene.json {
        return print(&format!("{actor}\n"));
    }
    let names = ["actor", "roles", "scopes", "tenant", "level", "keys", "kind", "quota", "from"];
    print(&details(&names.into_iter().zip(row(actor, true)).collect::<Vec<_>>()))?;
    if actor["roles"].as_array().is_some_and(|roles| !roles.is_empty()) {
        say(&format!("Effective scopes, including its roles: {}", joined(actor, "effective_scopes")));
    }
    let source = match actor["source"].as_str() {
        Some("config") => {
            "Its entry comes from the configuration file: edit overrides it, only the file can remove it."
        }
        Some("shipped") if actor["matched"] == actor["id"] => "Its entry is built in: edit overrides it.",
        Some("shipped" | "none") => "It has no entry of its own: the pattern that matches its name applies.",
        _ => return Ok(()),
    };
    say(source);
    Ok(())
}

/// Reports a removal, and which entry applies to the name now.
fn print_removal(scene: &CommandContext<'_>, actor: &str, left: &Value) -> Outcome {
    if scene.json {
        return print(&format!("{left}\n"));
    }
    say(&match left["matched"].as_str() {
        None => format!("Removed {actor}: its keys and sign-ins have ended, and its name is retired."),
        Some(matched) => format!(
            "Removed {actor} and revoked its keys and sessions. The entry {matched} ({}) now applies to this name.",
            text(&left["source"])
        ),
    });
    Ok(())
}

const COLUMNS: &[Column] = &[
    Column::whole("ACTOR"),
    Column::cut("ROLES", 10),
    Column::cut("SCOPES", 16),
    Column::droppable("TENANT", 1),
    Column::droppable("LEVEL", 2),
    Column::droppable("KEYS", 3),
    Column::droppable("KIND", 4),
    Column::droppable("QUOTA", 5),
    Column::droppable("FROM", 6),
];

async fn list(scene: &CommandContext<'_>, registry: &ActorRegistry, output: &OutputArg) -> Outcome {
    let items = registry.list().await?;
    if scene.json {
        return print(&format!("{}\n", json!({ "items": items })));
    }
    let view = ListView::of(scene, output);
    let rows: Vec<Vec<String>> = items.iter().map(|actor| row(actor, view.wide)).collect();
    view.print(COLUMNS, &rows)?;
    if rows.is_empty() {
        say("no actors; chimera actor add ACTOR creates one");
    }
    Ok(())
}

fn row(actor: &Value, wide: bool) -> Vec<String> {
    let joined = |name: &str| {
        let all = joined(actor, name);
        if all.is_empty() { "-".to_owned() } else { all }
    };
    let disabled = if actor["disabled"] == true { " (disabled)" } else { "" };
    let level = text(&actor["autonomy_level"]);
    let level = if wide { level.as_str() } else { level.split('_').next().unwrap_or_default() };
    vec![
        format!("{}{disabled}", text(&actor["id"])),
        joined("roles"),
        joined("scopes"),
        text(&actor["tenant"]),
        level.to_owned(),
        text(&actor["keys"]),
        text(&actor["kind"]),
        text(&actor["quota_per_minute"]),
        text(&actor["source"]),
    ]
}

fn joined(actor: &Value, name: &str) -> String {
    actor[name].as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(" ")
}

async fn add(scene: &CommandContext<'_>, registry: &ActorRegistry, args: ActorArgs) -> Outcome {
    let actor = args.actor.clone();
    // A server takes a name that can't exist for an unknown one.
    if !is_actor_name(&actor) {
        return Err(Failure::new(Code::ValidationFailed, InvalidActorEntry::Name.to_string()));
    }
    let shown = match registry.show(&actor).await {
        // The refusal of the key says why the name can't be registered: it was removed, or is another tenant's.
        Err(failure) if failure.code == Code::NotFound => {
            return print_key(scene, &registry.add_key(&actor, None).await?);
        }
        shown => shown?,
    };
    if shown["keys"].as_u64().is_some_and(|keys| keys > 0) {
        let failure = Failure::new(Code::OccConflict, format!("{actor} already has a key"));
        return Err(failure.hint(format!("chimera actor secret {actor} creates another")));
    }
    check_scopes(registry, &args).await?;
    let over = entry(args);
    if actor.contains('*') {
        return add_pattern(scene, registry, &actor, over).await;
    }
    if !over.is_empty() {
        registry.put(&actor, over).await?;
    }
    let mut made = registry.add_key(&actor, None).await?;
    // The first key has no predecessors.
    made["keys_before_until"] = Value::Null;
    print_key(scene, &made)
}

/// A pattern gets an entry but no key: each actor that matches it has its own.
async fn add_pattern(
    scene: &CommandContext<'_>,
    registry: &ActorRegistry,
    pattern: &str,
    over: Map<String, Value>,
) -> Outcome {
    if over.is_empty() {
        let message =
            format!("{pattern} is a pattern, which has no key: give at least one setting for the actors that match it");
        return Err(Failure::new(Code::ValidationFailed, message).hint("for example --scopes"));
    }
    let entry = registry.put(pattern, over).await?;
    if !scene.json {
        say(&format!(
            "{pattern} is a pattern and has no key; chimera actor add creates one for an actor that matches it."
        ));
    }
    print_actor(scene, &entry)
}

/// The entry fields given on the command line.
fn entry(args: ActorArgs) -> Map<String, Value> {
    let kind = args.kind.map(|kind| match kind {
        ActorKindArg::Human => "human",
        ActorKindArg::Service => "service",
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

/// Shows a new key. It can't be shown again.
fn print_key(scene: &CommandContext<'_>, made: &Value) -> Outcome {
    if scene.json {
        return print(&format!("{made}\n"));
    }
    say(&format!("Key of {} (store it now, it can't be shown again):", text(&made["actor"])));
    print(&format!("{}\n", made["hmac_key"].as_str().unwrap_or_default()))?;
    if let Some(until) = made["keys_before_until"].as_str() {
        say(&format!("Older keys stay valid until {until}."));
    }
    Ok(())
}

//! `chimera act`, `token`, `sign` and `actor …`.

use super::flow::{Acting, LevelWord, named_value};
use crate::command::exact_json;
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use serde_json::Value;
use std::path::PathBuf;

/// What is asked for.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["goal", "workflow", "steps"]))]
pub(crate) struct ActArgs {
    /// What is wanted, in words.
    pub(crate) goal: Option<String>,
    /// A workflow instead.
    #[arg(long, value_name = "ID")]
    pub(crate) workflow: Option<String>,
    /// A call of a tool instead, its input in JSON; may be given more than once, and they run in order.
    #[arg(long = "step", value_name = "TOOL[=JSON]", value_parser = step)]
    pub(crate) steps: Vec<(String, Value)>,
    /// One input; the value is JSON if it reads as such, else text. May be given more than once.
    #[arg(long = "input", value_name = "NAME=VALUE", value_parser = named_value, conflicts_with = "steps")]
    pub(crate) input: Vec<(String, Value)>,
    /// All inputs: a JSON file; `-` reads stdin.
    #[arg(long, value_name = "FILE", conflicts_with = "steps")]
    pub(crate) inputs: Option<PathBuf>,
    /// The workflow's version; the newest without it.
    #[arg(long, value_name = "N", requires = "workflow")]
    pub(crate) version: Option<i64>,
    /// How freely it may act; a freer level than it would get needs the scope `autonomy.override`.
    #[arg(long)]
    pub(crate) level: Option<LevelWord>,
    /// Only say what it would do.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// A second request under this key starts nothing.
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// What to answer when the key was used before.
    #[arg(long, value_name = "WORD", requires = "idempotency_key")]
    pub(crate) on_duplicate: Option<DuplicateWord>,
    /// Webhook to tell when it waits and when it ends.
    #[arg(long, value_name = "URL")]
    pub(crate) notify_webhook: Option<String>,
    /// Address to mail when it waits and when it ends.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) notify_email: Option<String>,
    /// One is most urgent, ten least.
    #[arg(long, value_name = "N")]
    pub(crate) priority: Option<i32>,
    /// Your own id for it.
    #[arg(long, value_name = "ID")]
    pub(crate) correlation_id: Option<String>,
    /// Watch it to its end.
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) acting: Acting,
}

/// One call of the command line.
fn step(text: &str) -> Result<(String, Value), String> {
    let (tool, input) = text.split_once('=').unwrap_or((text, "{}"));
    if tool.is_empty() {
        return Err("a step is written TOOL={…}".to_owned());
    }
    let input: Value = exact_json(input).map_err(|error| format!("its input is not JSON: {error}"))?;
    if input.is_object() { Ok((tool.to_owned(), input)) } else { Err("its input is not a JSON object".to_owned()) }
}

/// What is answered when a key was used before.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DuplicateWord {
    /// A conflict that names the run.
    Conflict,
    /// The run.
    Return,
}

/// Which token is wanted.
#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    #[command(flatten)]
    pub(crate) acting: Acting,
    /// Narrow it to these scopes, separated by commas.
    #[arg(long, value_name = "SCOPES", value_delimiter = ',')]
    pub(crate) scopes: Option<Vec<String>>,
}

/// What is signed.
#[derive(Debug, Args)]
pub(crate) struct SignArgs {
    /// The body; `-` reads stdin. Every byte counts, a newline at the end too.
    #[arg(default_value = "-")]
    pub(crate) file: PathBuf,
    /// The request that is signed, such as `'POST /runs/ID/approve'`: gives the headers of an HTTP message
    /// signature. Without it the body alone is signed, as `/act` and `/auth` demand it.
    #[arg(long, value_name = "METHOD PATH")]
    pub(crate) request: Option<String>,
    /// The request has no body.
    #[arg(long, requires = "request", conflicts_with = "file")]
    pub(crate) no_body: bool,
    /// The key; without it the actor's of the settings or of the data folder.
    #[arg(long)]
    pub(crate) key: Option<String>,
    #[command(flatten)]
    pub(crate) acting: Acting,
}

/// `chimera actor …`
///
/// They speak to the server that `--server` names or that uses the data folder. Where none does, they
/// write to the store itself, so that whoever may read it can make the first key.
#[derive(Debug, Subcommand)]
pub(crate) enum ActorCommand {
    /// List everybody who has an entry or a key.
    List {
        #[command(flatten)]
        acting: Acting,
    },
    /// Show what counts for an actor, and where it comes from.
    Show {
        /// The actor, or the pattern of an entry.
        #[arg(id = "name", value_name = "ACTOR")]
        actor: String,
        #[command(flatten)]
        acting: Acting,
    },
    /// Make the first key of an actor, and print it once.
    ///
    /// Without further flags the entry that fits its name counts, such as `user_*`. With any of them an
    /// entry of its own is written; what they leave open stays as it counted before.
    Add(AddArgs),
    /// Make another key for an actor, and print it once.
    Secret {
        /// The actor.
        #[arg(id = "name", value_name = "ACTOR")]
        actor: String,
        /// How long the keys before it still count: a day without it.
        #[arg(long, value_name = "SECONDS", conflicts_with = "revoke_old")]
        overlap: Option<u32>,
        /// The keys before it end now.
        #[arg(long)]
        revoke_old: bool,
        /// The actor has neither an entry nor a key yet.
        #[arg(long)]
        new: bool,
        #[command(flatten)]
        acting: Acting,
    },
    /// Change the entry of an actor; what the flags leave open stays.
    ///
    /// An entry of the configuration is not changed: another one is written over it.
    Edit {
        #[command(flatten)]
        args: AddArgs,
        /// Let a disabled actor in again.
        #[arg(long)]
        enable: bool,
    },
    /// Let an actor in no more; its entry and keys stay.
    Disable {
        /// The actor.
        #[arg(id = "name", value_name = "ACTOR")]
        actor: String,
        #[command(flatten)]
        acting: Acting,
    },
    /// Remove the entry of an actor, and end its keys and sign-ins.
    ///
    /// What was beneath the entry counts again: one of the configuration, or a pattern that fits the name.
    /// To keep somebody out whatever fits the name, use `disable`.
    Remove {
        /// The actor, or the pattern of an entry.
        #[arg(id = "name", value_name = "ACTOR")]
        actor: String,
        #[command(flatten)]
        acting: Acting,
    },
}

/// `chimera role …`
///
/// Roles stand in the configuration: each is a [[role]] in the file of access.actors_file.
#[derive(Debug, Subcommand)]
pub(crate) enum RoleCommand {
    /// List the roles of the configuration and the scopes that they give.
    List {
        /// Only those of this tenant, by its slug.
        #[arg(long, value_name = "SLUG")]
        tenant: Option<String>,
    },
}

/// `chimera tenant …`
///
/// Only an operator looks after tenants. The commands speak to a server, or to the store where none runs.
#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// List every tenant.
    List {
        #[command(flatten)]
        acting: Acting,
    },
    /// Show a tenant.
    Show {
        /// The tenant's slug.
        slug: String,
        #[command(flatten)]
        acting: Acting,
    },
    /// Add a tenant; its id is a new, random one.
    ///
    /// Nothing is shared with a new tenant but tools that only compute. What else it may use says a [[tenant]] in
    /// the file of access.actors_file.
    Add {
        /// What people call it, such as `acme`: lower-case letters, digits and hyphens.
        slug: String,
        /// Its name in full; the slug without it.
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        acting: Acting,
    },
    /// Let the actors of a tenant in no more; everything that it has stays.
    Disable {
        /// The tenant's slug.
        slug: String,
        #[command(flatten)]
        acting: Acting,
    },
    /// Let the actors of a disabled tenant in again.
    Enable {
        /// The tenant's slug.
        slug: String,
        #[command(flatten)]
        acting: Acting,
    },
}

/// Who is added.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// The actor, such as `user_ann` or `service_billing`.
    #[arg(id = "name", value_name = "ACTOR")]
    pub(crate) actor: String,
    /// What it may do, separated by commas, such as `notion.*,github.read`.
    #[arg(long, value_name = "SCOPES", value_delimiter = ',')]
    pub(crate) scopes: Option<Vec<String>>,
    /// Take scopes that no tool and no part of Chimera asks for.
    #[arg(long, requires = "scopes")]
    pub(crate) allow_unknown_scope: bool,
    /// A role of its tenant, whose scopes it has too; may be given more than once. Replaces the roles from before.
    #[arg(long = "role", value_name = "ROLE", value_delimiter = ',')]
    pub(crate) roles: Option<Vec<String>>,
    /// Take all roles away.
    #[arg(long, conflicts_with = "roles")]
    pub(crate) no_roles: bool,
    /// Requests a minute.
    #[arg(long, value_name = "N")]
    pub(crate) quota: Option<u32>,
    /// How freely it acts when nobody says otherwise.
    #[arg(long)]
    pub(crate) level: Option<LevelWord>,
    /// A person or not; without it what the name stands for.
    #[arg(long)]
    pub(crate) kind: Option<KindWord>,
    /// The tenant that it belongs to, by its slug.
    #[arg(long, value_name = "SLUG")]
    pub(crate) tenant: Option<String>,
    /// Webhook that is told about its runs.
    #[arg(long, value_name = "URL")]
    pub(crate) notify_webhook: Option<String>,
    /// Address that is mailed about its runs.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) notify_email: Option<String>,
    #[command(flatten)]
    pub(crate) acting: Acting,
}

/// What somebody is.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum KindWord {
    /// A person.
    Human,
    /// A workflow or a service.
    Service,
}

//! `chimera act`, `token`, `sign` and `actor …`.

use super::OutputArg;
use super::flow::{ActorArg, LevelArg, named_value};
use crate::command::parse_exact_json;
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use serde_json::Value;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["goal", "workflow", "steps"]))]
pub(crate) struct ActArgs {
    /// What to achieve, in plain words.
    pub(crate) goal: Option<String>,
    /// Run this workflow.
    #[arg(long, value_name = "ID")]
    pub(crate) workflow: Option<String>,
    /// Call this tool, with its input as JSON; repeatable, steps run in order.
    #[arg(long = "step", value_name = "TOOL[=JSON]", value_parser = step)]
    pub(crate) steps: Vec<(String, Value)>,
    /// An input; the value is parsed as JSON if possible, else used as text; repeatable.
    #[arg(long = "input", value_name = "NAME=VALUE", value_parser = named_value, conflicts_with = "steps")]
    pub(crate) input: Vec<(String, Value)>,
    /// JSON file with all inputs; `-` reads stdin.
    #[arg(long, value_name = "FILE", conflicts_with = "steps")]
    pub(crate) inputs: Option<PathBuf>,
    /// Workflow version; by default the latest.
    #[arg(long, value_name = "N", requires = "workflow")]
    pub(crate) version: Option<i64>,
    /// Autonomy level; raising it above what the request would get requires the scope `autonomy.override`.
    #[arg(long)]
    pub(crate) level: Option<LevelArg>,
    /// Only show what it would do.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Idempotency key: a second request with the same key starts nothing.
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// What to return when the key was already used.
    #[arg(long, value_name = "WORD", requires = "idempotency_key")]
    pub(crate) on_duplicate: Option<DuplicatePolicyArg>,
    /// Webhook to call when the run waits and when it ends.
    #[arg(long, value_name = "URL")]
    pub(crate) notify_webhook: Option<String>,
    /// Email address to notify when the run waits and when it ends.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) notify_email: Option<String>,
    /// Priority: 1 is the most urgent, 10 the least.
    #[arg(long, value_name = "N")]
    pub(crate) priority: Option<i32>,
    /// Your own id for the request.
    #[arg(long, value_name = "ID")]
    pub(crate) correlation_id: Option<String>,
    /// Watch the run until it ends.
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) acting: ActorArg,
}

/// Parses `TOOL[=JSON]`.
fn step(text: &str) -> Result<(String, Value), String> {
    let (tool, input) = text.split_once('=').unwrap_or((text, "{}"));
    if tool.is_empty() {
        return Err("expected TOOL or TOOL={…}".to_owned());
    }
    let input: Value = parse_exact_json(input).map_err(|error| format!("the input is not valid JSON: {error}"))?;
    if input.is_object() { Ok((tool.to_owned(), input)) } else { Err("the input must be a JSON object".to_owned()) }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DuplicatePolicyArg {
    /// A conflict error that names the run.
    Conflict,
    /// The existing run.
    Return,
}

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    #[command(flatten)]
    pub(crate) acting: ActorArg,
    /// Limit the token to these scopes, separated by commas.
    #[arg(long, value_name = "SCOPES", value_delimiter = ',')]
    pub(crate) scopes: Option<Vec<String>>,
}

#[derive(Debug, Args)]
pub(crate) struct SignArgs {
    /// File with the body; `-` reads stdin. Every byte is signed, including a trailing newline.
    #[arg(default_value = "-")]
    pub(crate) file: PathBuf,
    /// Request to sign, such as `'POST /runs/ID/approve'`: prints the headers of an HTTP message signature. By
    /// default only the body is signed, as `/act` and `/auth` require.
    #[arg(long, value_name = "METHOD PATH")]
    pub(crate) request: Option<String>,
    /// The request has no body.
    #[arg(long, requires = "request", conflicts_with = "file")]
    pub(crate) no_body: bool,
    /// Key to sign with; by default the actor's key from the settings or the data folder.
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Sign with this private key of `chimera key generate` instead. Its public key must be registered for the actor.
    #[arg(long, value_name = "FILE", requires = "request", conflicts_with = "key")]
    pub(crate) private_key: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) acting: ActorArg,
}

/// `chimera actor …`
///
/// These commands connect to the server named by `--server` or running on the data folder. Without one, they
/// write to the store directly, so that whoever has access to it can create the first key.
#[derive(Debug, Subcommand)]
pub(crate) enum ActorCommand {
    /// List all actors that have an entry or a key.
    List {
        #[command(flatten)]
        output: OutputArg,
        #[command(flatten)]
        acting: ActorArg,
    },
    /// Show an actor's effective entry and its source.
    Show {
        /// Actor, or the pattern of an entry.
        #[arg(id = "name", value_name = "ACTOR")]
        actor: String,
        #[command(flatten)]
        acting: ActorArg,
    },
    /// Create an actor's first key and print it once.
    ///
    /// Without further flags, the entry that matches the name applies, such as `user_*`. With any flag, the actor
    /// gets an entry of its own; fields that are not given keep their effective values.
    Add(ActorArgs),
    /// Create another key for an actor and print it once.
    Secret {
        /// Actor.
        #[arg(id = "name", value_name = "ACTOR")]
        actor: String,
        /// How long older keys stay valid; by default one day.
        #[arg(long, value_name = "SECONDS", conflicts_with = "revoke_old")]
        overlap: Option<u32>,
        /// Revoke older keys immediately.
        #[arg(long)]
        revoke_old: bool,
        /// Allow an actor that has neither an entry nor a key yet.
        #[arg(long)]
        new: bool,
        #[command(flatten)]
        acting: ActorArg,
    },
    /// Change an actor's entry; fields that are not given stay as they are.
    ///
    /// An entry from the configuration is not modified; the new entry overrides it.
    Edit {
        #[command(flatten)]
        args: ActorArgs,
        /// Re-enable a disabled actor.
        #[arg(long)]
        enable: bool,
    },
    /// Disable an actor; its entry and keys are kept.
    Disable {
        /// Actor.
        #[arg(id = "name", value_name = "ACTOR")]
        actor: String,
        #[command(flatten)]
        acting: ActorArg,
    },
    /// Remove an actor: end its keys and sign-ins, and retire its name.
    ///
    /// Nobody can be registered under the name again. If the configuration has an entry of that name, only the
    /// entry in the store is removed, and the configured one counts again.
    Remove {
        /// Actor, or the pattern of an entry.
        #[arg(id = "name", value_name = "ACTOR")]
        actor: String,
        #[command(flatten)]
        acting: ActorArg,
    },
}

/// `chimera role …`
///
/// Roles are configured: each is a [[role]] section in the file named by access.actors_file.
#[derive(Debug, Subcommand)]
pub(crate) enum RoleCommand {
    /// List the configured roles and the scopes they grant.
    List {
        /// Only this tenant's roles (tenant slug).
        #[arg(long, value_name = "SLUG")]
        tenant: Option<String>,
        #[command(flatten)]
        output: OutputArg,
    },
}

/// `chimera tenant …`
///
/// Only operators manage tenants. The commands connect to a server, or to the store if none is running.
#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// List all tenants.
    List {
        #[command(flatten)]
        output: OutputArg,
        #[command(flatten)]
        acting: ActorArg,
    },
    /// Show a tenant.
    Show {
        /// Tenant slug.
        slug: String,
        #[command(flatten)]
        acting: ActorArg,
    },
    /// Add a tenant with a new, random id.
    ///
    /// A new tenant can only use tools that compute without side effects. Grant it more with a [[tenant]] section in
    /// the file named by access.actors_file.
    Add {
        /// Short name, such as `acme`: lower-case letters, digits and hyphens.
        slug: String,
        /// Full name; by default the slug.
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        acting: ActorArg,
    },
    /// Disable a tenant: its actors can no longer sign in; its data is kept.
    Disable {
        /// Tenant slug.
        slug: String,
        #[command(flatten)]
        acting: ActorArg,
    },
    /// Re-enable a disabled tenant.
    Enable {
        /// Tenant slug.
        slug: String,
        #[command(flatten)]
        acting: ActorArg,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ActorArgs {
    /// Actor, such as `user_ann` or `service_billing`.
    #[arg(id = "name", value_name = "ACTOR")]
    pub(crate) actor: String,
    /// Scopes to grant, separated by commas, such as `notion.*,github.read`.
    #[arg(long, value_name = "SCOPES", value_delimiter = ',')]
    pub(crate) scopes: Option<Vec<String>>,
    /// Accept scopes that no tool and no part of Chimera uses.
    #[arg(long, requires = "scopes")]
    pub(crate) allow_unknown_scope: bool,
    /// Role of its tenant to grant; repeatable. Replaces the current roles.
    #[arg(long = "role", value_name = "ROLE", value_delimiter = ',')]
    pub(crate) roles: Option<Vec<String>>,
    /// Remove all roles.
    #[arg(long, conflicts_with = "roles")]
    pub(crate) no_roles: bool,
    /// Requests per minute.
    #[arg(long, value_name = "N")]
    pub(crate) quota: Option<u32>,
    /// Default autonomy level.
    #[arg(long)]
    pub(crate) level: Option<LevelArg>,
    /// Person or service; by default derived from the name.
    #[arg(long)]
    pub(crate) kind: Option<ActorKindArg>,
    /// Tenant that it belongs to (tenant slug).
    #[arg(long, value_name = "SLUG")]
    pub(crate) tenant: Option<String>,
    /// Webhook to notify about its runs.
    #[arg(long, value_name = "URL")]
    pub(crate) notify_webhook: Option<String>,
    /// Email address to notify about its runs.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) notify_email: Option<String>,
    #[command(flatten)]
    pub(crate) acting: ActorArg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ActorKindArg {
    /// A person.
    Human,
    /// A workflow or a service.
    Service,
}

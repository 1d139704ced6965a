//! `chimera intent …`: signed intents.
//!
//! The private key stays in its file: only the signature leaves this process.

use super::listing::ListView;
use super::{CommandContext, EXIT_FOUND_WRONG, document, print, read_bytes, read_text, say};
use crate::cli::{EnvelopeArgs, IntentCommand, OutputArg};
use crate::compose::Ambient;
use crate::failure::{Failure, Outcome};
use crate::flow::table::{Column, text};
use chimera_core::access::{ADMIN, Ed25519PrivateKey};
use chimera_core::error::Code;
use chimera_core::intent::{EnvelopeReader, IntentCatalog, idempotency_key, sign};
use chimera_core::json;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::process::ExitCode;

pub(crate) async fn run(scene: &CommandContext<'_>, command: IntentCommand) -> Outcome<ExitCode> {
    match command {
        IntentCommand::Sign(args) => print(&document(&signed(scene, &args)?))?,
        IntentCommand::Send(args) => {
            let backend = scene.write_backend(args.acting.actor.as_deref())?;
            let answer = backend.request("POST", "intents", Some(signed(scene, &args)?)).await?;
            print(&if scene.json { format!("{answer}\n") } else { document(&answer["result"]) })?;
        }
        IntentCommand::Lint { envelope, offline } => return lint(scene, &envelope, offline).await,
        IntentCommand::List { acting } => {
            let backend = scene.write_backend(acting.actor.as_deref())?;
            list(scene, &backend.request("GET", "intents/catalog", None).await?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The envelope of a file, signed unless it was signed already.
fn signed(scene: &CommandContext<'_>, args: &EnvelopeArgs) -> Outcome<Value> {
    let envelope = completed(scene, args)?;
    if envelope.get("sig").is_some() {
        return Ok(envelope);
    }
    let file = args.private_key.as_deref().ok_or_else(|| {
        Failure::new(Code::MalformedArgs, "the envelope is not signed")
            .hint("pass --private-key FILE; chimera key generate makes one, chimera key add registers it")
    })?;
    let key = private_key(file)?;
    let mut envelope = envelope;
    envelope["kid"] = key.public().kid().into();
    let signed = sign(envelope, &key).map_err(|error| Failure::new(Code::SchemaInvalid, error.to_string()))?;
    let found = shape_findings(&signed)?;
    match found.first() {
        None => Ok(signed),
        Some(first) => Err(Failure::new(Code::SchemaInvalid, first.clone())),
    }
}

fn private_key(file: &Path) -> Outcome<Ed25519PrivateKey> {
    let refused =
        |error: &dyn std::fmt::Display| Failure::new(Code::MalformedArgs, format!("{}: {error}", file.display()));
    Ed25519PrivateKey::parse(&read_text(file)?).map_err(|error| refused(&error))
}

/// The document of the file with the members that it leaves out, without a signature of this command.
fn completed(scene: &CommandContext<'_>, args: &EnvelopeArgs) -> Outcome<Value> {
    let bytes = read_bytes(&args.file)?;
    let refused = |error: &dyn std::fmt::Display| {
        Failure::new(Code::MalformedArgs, format!("{} is not an intent: {error}", args.file.display()))
    };
    let given = json::parse_exact(&bytes).map_err(|error| refused(&error))?;
    let Value::Object(mut envelope) = given else { return Err(refused(&"it is no JSON object")) };
    if envelope.contains_key("sig") {
        return Ok(Value::Object(envelope));
    }
    if !envelope.contains_key("intent") {
        envelope = Map::from_iter([("intent".to_owned(), Value::Object(envelope))]);
    }
    let ambient = Ambient::new();
    let actor = args.acting.actor.as_deref().or(scene.loaded.config.actor.as_deref()).unwrap_or(ADMIN);
    let mut envelope = Value::Object(envelope);
    let intent = envelope["intent"]["args"].clone();
    let subject = intent["run_id"].as_str().map_or_else(|| ambient.random.opaque_id(), str::to_owned);
    let key = args.idempotency_key.clone().unwrap_or_else(|| idempotency_key(&subject, &intent));
    let list = |given: &[String]| if given.is_empty() { Value::Null } else { json!(given) };
    for (pointer, value) in [
        ("/version", json!("1.0")),
        ("/actor/user_id", json!(actor)),
        ("/actor/tenant", json!(args.tenant)),
        ("/actor/roles", list(&args.roles)),
        ("/constraints/ttl_sec", json!(args.ttl)),
        ("/constraints/idempotency_key", json!(key)),
        ("/constraints/capabilities", list(&args.capabilities)),
        ("/issued_at", json!(ambient.clock.now())),
        ("/trace_id", json!(args.trace_id)),
    ] {
        fill(&mut envelope, pointer, value);
    }
    Ok(envelope)
}

/// Sets a member that the envelope leaves out. Null sets nothing.
fn fill(envelope: &mut Value, pointer: &str, value: Value) {
    if value.is_null() {
        return;
    }
    let mut place = envelope;
    let mut names = pointer.split('/').skip(1).peekable();
    while let Some(name) = names.next() {
        let Some(members) = place.as_object_mut() else { return };
        if names.peek().is_none() {
            members.entry(name).or_insert(value);
            return;
        }
        place = members.entry(name).or_insert_with(|| json!({}));
    }
}

/// What is wrong with the shape of an envelope and its arguments, as far as that can be said without a server.
fn shape_findings(envelope: &Value) -> Outcome<Vec<String>> {
    let broken = |error: chimera_core::json::schema::InvalidSchema| Failure::new(Code::Internal, error.to_string());
    let line = |base: &str, pointer: &str, message: &str| format!("{base}{pointer}: {message}");
    let reader = EnvelopeReader::new().map_err(broken)?;
    let read = match reader.read(envelope.to_string().as_bytes()) {
        Ok(read) => read,
        Err(found) => return Ok(found.iter().map(|one| line("", &one.pointer, &one.message)).collect()),
    };
    let catalog = IntentCatalog::built_in().map_err(broken)?;
    let Some(definition) = catalog.get(&read.intent_type) else { return Ok(Vec::new()) };
    let found = definition.schema.check(read.args.value()).err().unwrap_or_default();
    Ok(found.iter().map(|one| line("/intent/args", &one.pointer, &one.message)).collect())
}

async fn lint(scene: &CommandContext<'_>, args: &EnvelopeArgs, offline: bool) -> Outcome<ExitCode> {
    let (lines, report) = if offline {
        let mut envelope = completed(scene, args)?;
        if envelope.get("sig").is_none() {
            envelope["sig"] = "".into();
        }
        let lines = shape_findings(&envelope)?;
        let findings: Vec<Value> = lines
            .iter()
            .map(|line| json!({"stage": "shape", "error": {"code": "SCHEMA_INVALID", "message": line}}))
            .collect();
        let report = json!({"valid": findings.is_empty(), "findings": findings});
        (lines.iter().map(|line| format!("SCHEMA_INVALID  {line}")).collect(), report)
    } else {
        let backend = scene.write_backend(args.acting.actor.as_deref())?;
        let report = backend.request("POST", "intents/validate", Some(signed(scene, args)?)).await?;
        let findings = report["findings"].as_array().cloned().unwrap_or_default();
        let line = |found: &Value| format!("{}  {}", text(&found["error"]["code"]), text(&found["error"]["message"]));
        (findings.iter().map(line).collect::<Vec<String>>(), report)
    };
    if scene.json {
        print(&format!("{report}\n"))?;
    } else if lines.is_empty() {
        say("The intent would be accepted now.");
    } else {
        print(&lines.iter().map(|line| format!("{line}\n")).collect::<String>())?;
    }
    Ok(if report["valid"] == true { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FOUND_WRONG) })
}

const COLUMNS: &[Column] = &[Column::whole("TYPE"), Column::cut("NEEDS", 12), Column::droppable("TITLE", 1)];

fn list(scene: &CommandContext<'_>, found: &Value) -> Outcome {
    if scene.json {
        return print(&format!("{found}\n"));
    }
    let items = found["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows: Vec<Vec<String>> =
        items.iter().map(|item| ["type", "capability", "title"].map(|name| text(&item[name])).to_vec()).collect();
    ListView::of(scene, &OutputArg::default()).print(COLUMNS, &rows)
}

//! Signing keys from the command line, against a server and against the store.

use crate::support::{Server, Workspace, mode};
use chimera_core::access::Ed25519PrivateKey;
use serde_json::{Value, json};

fn kid(made: &Value) -> String {
    made["kid"].as_str().unwrap().to_owned()
}

/// Sends a request with a token and the headers that `chimera sign` printed; returns the status line and the body.
fn send(
    place: &Workspace,
    server: &Server,
    (method, path, body): (&str, &str, &str),
    headers: &Value,
) -> (String, Value) {
    let token = place.run(&["token", "--as", "user_ada"]).stdout.trim().to_owned();
    let signed: String = headers
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| format!("{name}: {}\r\n", value.as_str().unwrap()))
        .collect();
    let answer = server.ask(&format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n{signed}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), serde_json::from_str(body).unwrap_or_default())
}

#[test]
fn a_private_key_is_written_for_its_owner_alone_and_never_over_another_file() {
    let place = Workspace::new();
    let made = place.run(&["key", "generate", "ada.pem"]);
    assert_eq!(made.status, 0, "{}", made.stderr);
    let file = place.path("ada.pem");
    assert_eq!(mode(&file), 0o600);
    let private = std::fs::read_to_string(&file).unwrap();
    let key = Ed25519PrivateKey::parse(&private).unwrap();
    assert_eq!(made.stdout, format!("{}\n", key.public().x()));
    let again = place.run(&["key", "generate", "ada.pem"]);
    assert!(again.status == 1 && again.stderr.contains("can't be written"), "{}", again.stderr);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), private);
    let other = place.json(&["key", "generate", "other.pem"]);
    assert!(other["kid"] != json!(key.public().kid()) && other["private_key_file"] == "other.pem", "{other}");
    assert!(!other.to_string().contains("PRIVATE"), "{other}");
}

#[test]
fn a_request_is_signed_with_a_registered_key_until_the_key_is_revoked() {
    let place = Workspace::new();
    let server = place.dev(&[]);
    let made = place.json(&["key", "generate", "ada.pem"]);
    let added = place.json(&["key", "add", "ada.pem", "--as", "user_ada", "--label", "laptop"]);
    assert_eq!((kid(&added), &added["actor"], &added["label"]), (kid(&made), &json!("user_ada"), &json!("laptop")));
    let published = server.ask("GET /.well-known/intent-keys.json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(published.contains(&kid(&made)) && !published.contains("user_ada"), "{published}");
    let body = r#"{"token":"x"}"#;
    let place = place.file("body.json", body);
    let sign = || {
        let args =
            ["sign", "body.json", "--as", "user_ada", "--request", "POST /auth/revoke", "--private-key", "ada.pem"];
        place.json(&args)["headers"].clone()
    };
    let request = ("POST", "/auth/revoke", body);
    let headers = sign();
    assert!(headers["Signature-Input"].as_str().unwrap().contains("alg=\"ed25519\""), "{headers}");
    assert_eq!(send(&place, &server, request, &headers).0, "HTTP/1.1 200 OK");
    let (status, replayed) = send(&place, &server, request, &headers);
    assert!(status.contains("401") && replayed["error"]["details"]["reason"] == "nonce_used", "{replayed}");
    let (status, changed) = send(&place, &server, ("POST", "/auth/revoke", r#"{"token":"y"}"#), &sign());
    assert!(status.contains("401") && changed["error"]["details"]["reason"] == "content_digest", "{changed}");
    let revoked = place.run(&["key", "revoke", &kid(&made)[..8], "--as", "user_ada", "--reason", "it was lost"]);
    assert!(revoked.status == 0 && revoked.stdout.contains("it was lost"), "{} {}", revoked.stdout, revoked.stderr);
    let (status, refused) = send(&place, &server, request, &sign());
    assert!(status.contains("401") && refused["error"]["details"]["reason"] == "key_revoked", "{refused}");
    server.stop();
}

#[test]
fn keys_are_listed_rotated_and_found_by_their_first_characters() {
    let place = Workspace::new();
    let server = place.dev(&[]);
    let empty = place.run(&["key", "list", "--as", "user_ada"]);
    assert!(
        empty.status == 0 && empty.stdout.is_empty() && empty.stderr.contains("chimera key generate"),
        "{}",
        empty.stderr
    );
    let [one, two] = ["one.pem", "two.pem"].map(|file| kid(&place.json(&["key", "generate", file])));
    assert_eq!(place.run(&["key", "add", "one.pem", "--actor", "user_ada"]).status, 0, "by admin");
    let rotated = place.json(&["key", "rotate", &one, "two.pem", "--as", "user_ada", "--overlap", "60"]);
    assert_eq!((kid(&rotated["added"]), kid(&rotated["replaced"])), (two.clone(), one.clone()));
    assert!(rotated["replaced"]["expires_at"].is_string(), "{rotated}");
    let listed = place.run(&["key", "list", "user_ada"]);
    let lines: Vec<&str> = listed.stdout.lines().collect();
    assert!(lines.len() == 3 && lines[1].starts_with(&one[..12]) && lines[2].starts_with(&two[..12]), "{lines:?}");
    assert!(lines.iter().all(|line| line.chars().count() <= 120), "{lines:?}");
    let wide = place.run(&["key", "list", "user_ada", "-o", "wide"]).stdout;
    assert!(wide.contains(&one) && wide.contains(&two), "{wide}");
    let items = place.json(&["key", "list", "user_ada"])["items"].clone();
    assert_eq!((kid(&items[0]), &items[0]["created_by"]), (one, &json!("admin")));
    let unknown = place.run(&["key", "revoke", "zzzz", "--as", "user_ada"]);
    assert!(unknown.status == 1 && unknown.stderr.contains("chimera key list user_ada"), "{}", unknown.stderr);
    let private = place.file("none.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let refused = private.run(&["key", "add", "none.pem"]);
    assert!(
        refused.status == 1 && refused.stderr.contains("none.pem: the public key can't be read"),
        "{}",
        refused.stderr
    );
    server.stop();
}

#[test]
fn keys_are_managed_in_the_store_when_no_server_runs() {
    let place = Workspace::new();
    let made = place.json(&["key", "generate", "k.pem"]);
    let public = Ed25519PrivateKey::parse(&std::fs::read_to_string(place.path("k.pem")).unwrap()).unwrap().public();
    let place = place.file("k.pub", &public.to_pem());
    let added = place.json(&["key", "add", "k.pub", "--actor", "user_ada"]);
    assert_eq!((kid(&added), &added["created_by"]), (kid(&made), &json!("admin")));
    assert_eq!(kid(&place.json(&["key", "list", "user_ada"])["items"][0]), kid(&made));
    let revoked = place.json(&["key", "revoke", &kid(&made), "--reason", "lost"]);
    assert_eq!((&revoked["status"], &revoked["reason"]), (&json!("revoked"), &json!("lost")));
    let again = place.run(&["key", "add", "k.pub", "--actor", "user_ada"]);
    assert!(again.status == 1 && again.stderr.contains("was revoked"), "{}", again.stderr);
    let late = place.run(&["key", "add", "k.pub", "--expires-at", "tomorrow"]);
    assert!(late.status == 1 && late.stderr.contains("--expires-at must be an RFC 3339 time"), "{}", late.stderr);
}

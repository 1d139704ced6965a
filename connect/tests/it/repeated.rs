//! A secret that the other side echoes never appears in a tool's result, whichever tool it is.
//!
//! Every tool that uses a secret meets servers that put it wherever a server can put text: into an answer, an error,
//! a field name, a header, the host name of a redirect.

use crate::server::{FixedSecrets, ReceivedRequest, Reply, Server, call, ctx, local, toolbox};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chimera_connect::flow::HttpRequest;
use chimera_connect::flow::declared::tools;
use chimera_connect::flow::slack::SlackPost;
use chimera_connect::flow::webhook::{WebhookSend, WebhookSender};
use chimera_connect::flow::{MailSettings, MailTls, mail_tool};
use chimera_core::secret::SecretName;
use chimera_engine::flow::port::{CompletedCall, Tool, ToolError};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

/// Valid in a header, in a path and in a host name.
const SECRET: &str = "Hunter2-Hunter2";
const CRM: &str = include_str!("../data/crm.toml");

fn answers(seen: &[ReceivedRequest]) -> Reply {
    let last = seen.last().unwrap();
    let all = format!("{last:?} {SECRET} {}", STANDARD.encode(SECRET));
    let echo = json!({
        "ok": true, "ts": all, "error": all, "data": {"id": 5, "name": all, SECRET: all}, "message": all, SECRET: all,
    });
    let way = last.header("x-way").to_owned() + &last.target;
    match way.as_str() {
        way if way.contains("refuse") => Reply::json(400, &echo),
        way if way.contains("break") => Reply::json(500, &echo),
        way if way.contains("away") => Reply::to(302, format!("http://{SECRET}.example/{SECRET}")),
        way if way.contains("text") => Reply::Answer(200, Vec::new(), all.into_bytes()),
        _ => Reply::json(200, &echo).with("location", all),
    }
}

fn clean(what: &str, told: &Result<Value, ToolError>) {
    let shown = match told {
        Ok(output) => output.to_string(),
        Err(error) => format!("{error} {:?} {}", error.body, json!(error.body)),
    };
    for spelled in [SECRET, &SECRET.to_ascii_lowercase(), &STANDARD.encode(SECRET), &hex::encode(SECRET)] {
        assert!(!shown.contains(spelled), "{what}: {spelled} in {shown}");
    }
}

/// The tools that use HTTP with a secret, each with an input that leads to `way`.
fn speakers(server: &Server, way: &str) -> Vec<(String, Arc<dyn Tool>, Value)> {
    let hook = server.url(&format!("/{way}/{SECRET}"));
    let bot = json!({"token": SECRET, "channel": "C1"}).to_string();
    let account = json!({"client_id": "c", "client_secret": SECRET, "token_url": server.url(&format!("/{way}"))});
    let secrets = [
        ("http.127.0.0.1", SECRET),
        ("slack.hook", &hook),
        ("slack.bot", &bot),
        ("webhook.crm", &format!("whsec_{}", STANDARD.encode(SECRET))),
        ("crm", SECRET),
        ("crm_tag", SECRET),
        ("account", &account.to_string()),
    ];
    let known = || FixedSecrets::of(&secrets);
    let slack =
        || Arc::new(SlackPost::new(local(), known(), server.url(&format!("/{way}/")).parse().unwrap()).unwrap());
    let post = |alias: &str| json!({"channel_alias": alias, "text": "x"});
    let header = |prefix: &str| format!("{prefix}secret://http.127.0.0.1");
    let ask = json!({"url": server.url("/"), "headers": {"X-Way": way, "Authorization": header("Bearer ")}});
    let sender = WebhookSender::new(local(), known());
    let message = json!({"url": server.url(&format!("/{way}")), "event_type": "a", "secret": "secret://webhook.crm"});
    let lead = json!({"name": "Ada", "list": way});
    let basic = tools(CRM, "crm.toml", &toolbox(&secrets, &["crm"], server)).unwrap().remove(0);
    let auth = "auth = { kind = \"oauth2\", secret = \"secret://account\", token_url = \"https://t.example/token\" }";
    let oauth = CRM.replace("auth = { kind = \"basic\", username = \"chimera\", secret = \"secret://crm\" }", auth);
    let oauth = tools(&oauth, "crm.toml", &toolbox(&secrets, &["crm"], server)).unwrap().remove(0);
    vec![
        ("http.request".into(), Arc::new(HttpRequest::new(local(), known()).unwrap()), ask),
        ("slack hook".into(), slack(), post("hook")),
        ("slack bot".into(), slack(), post("bot")),
        ("webhook_send".into(), Arc::new(WebhookSend::new(sender).unwrap()), message),
        ("declared".into(), Arc::new(basic), lead.clone()),
        ("declared with a token".into(), Arc::new(oauth), lead),
    ]
}

#[tokio::test]
async fn a_secret_that_a_server_repeats_is_masked_by_every_tool() {
    let server = Server::start(answers).await;
    for way in ["fine", "text", "refuse", "break", "away"] {
        for (name, tool, input) in speakers(&server, way) {
            let what = format!("{name}, {way}");
            clean(&what, &call(&*tool, input.clone()).await);
            let done = CompletedCall { input, output: json!({"id": way}) };
            clean(&what, &tool.rollback(&ctx(), &done).await);
        }
    }
}

/// An SMTP server that echoes what it was sent in its `reply` to the command that begins with `refuses`.
async fn smtp(refuses: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let (read, mut write) = stream.into_split();
        let mut lines = BufReader::new(read).lines();
        write.write_all(b"220 here\r\n").await.unwrap();
        let mut shown = String::new();
        while let Ok(Some(line)) = lines.next_line().await {
            if line.starts_with("AUTH") {
                shown = line.rsplit(' ').next().unwrap().to_owned();
            }
            let reply = match line.as_str() {
                line if line.starts_with(refuses) => format!("535 '{SECRET}' of {shown} is wrong\r\n"),
                line if line.starts_with("EHLO") => "250-here\r\n250 AUTH PLAIN\r\n".to_owned(),
                line if line.starts_with("AUTH") => "235 welcome\r\n".to_owned(),
                _ => "250 fine\r\n".to_owned(),
            };
            write.write_all(reply.as_bytes()).await.unwrap();
        }
    });
    port
}

#[tokio::test]
async fn a_mail_password_that_a_server_repeats_is_masked() {
    for refuses in ["AUTH", "MAIL", "RCPT"] {
        let settings = MailSettings {
            server: "127.0.0.1".into(),
            port: smtp(refuses).await,
            tls: MailTls::None,
            user: Some("bot".into()),
            password: Some(SecretName::new("smtp").unwrap()),
            from: "bot@acme.example".into(),
            roots_pem: None,
        };
        let mail = mail_tool(settings, FixedSecrets::of(&[("smtp", SECRET)])).unwrap();
        let told = call(&*mail, json!({"to": "a@b.example", "subject": "s"})).await;
        let reply = told.as_ref().unwrap_err().body.details["reply"].as_str().unwrap().to_owned();
        assert!(reply.contains("is wrong"), "{reply}");
        clean(refuses, &told);
        let pair = STANDARD.encode(format!("\0bot\0{SECRET}"));
        assert!(!reply.contains(&pair), "{reply}");
    }
}

/// A list, a number or another case is how a program writes a text that it was given.
#[tokio::test]
async fn a_secret_that_a_server_spells_is_masked() {
    let (key, number) = ("sk-Hunter2-Hunter2", "8412345678901234");
    let bytes: Vec<u8> = key.bytes().collect();
    let among = [&[1, 2, 3], &bytes[..], &[4]].concat();
    let letters: Vec<String> = key.chars().map(String::from).collect();
    let indexed: serde_json::Map<_, _> = bytes.iter().enumerate().map(|(at, b)| (at.to_string(), json!(b))).collect();
    let hexes: Vec<String> = bytes.iter().map(|b| format!("0x{b:02x}")).collect();
    let pieces: Vec<&str> = key.as_bytes().chunks(5).map(|piece| std::str::from_utf8(piece).unwrap()).collect();
    let members: Vec<Value> = pieces.iter().map(|piece| json!({"piece": piece})).collect();
    let whole: i64 = number.parse().unwrap();
    for (what, secret, document) in [
        ("a number", number, json!({"n": whole, "kept": 17})),
        ("a float", number, json!({"n": whole as f64, "kept": 17})),
        ("a number in a list", number, json!({"n": [1, whole, 2], "kept": 17})),
        ("bytes", key, json!({"n": bytes, "kept": 17})),
        ("bytes among others", key, json!({"n": among, "kept": 17})),
        ("a buffer", key, json!({"n": {"type": "Buffer", "data": bytes}, "kept": 17})),
        ("an array of bytes", key, json!({"n": indexed, "kept": 17})),
        ("bytes in hex", key, json!({"n": hexes, "kept": 17})),
        ("letters", key, json!({"n": letters, "kept": 17})),
        ("pieces", key, json!({"n": pieces, "kept": 17})),
        ("lists of pieces", key, json!({"n": [pieces[..2], pieces[2..]], "kept": 17})),
        ("members", key, json!({"n": members, "kept": 17})),
        ("capitals", key, json!({"n": key.to_uppercase(), "kept": 17})),
    ] {
        let server = Server::with_answer(200, document).await;
        let tool = HttpRequest::new(local(), FixedSecrets::of(&[("http.127.0.0.1", secret)])).unwrap();
        let headers = json!({"Authorization": "Bearer secret://http.127.0.0.1"});
        let told = call(&tool, json!({"url": server.url("/"), "headers": headers})).await.unwrap();
        let body = &told["body"];
        assert_eq!(body["kept"], 17, "{what}: {told}");
        let shown = body["n"].to_string();
        assert!(shown.contains("[redacted]"), "{what}: {told}");
        assert!(!shown.contains("115,107") && !shown.contains("Hunt") && !shown.contains("8412"), "{what}: {told}");
        assert!(!shown.contains(r#""n","t""#) && !shown.contains("0x6b"), "{what}: {told}");
    }
}

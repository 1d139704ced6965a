//! Callers who may not decide are told the actual reason.

use async_trait::async_trait;
use chimera_core::access::{ActorEntry, DeciderRefusal, Kind, Level};
use chimera_core::flow::run::RunHead;
use chimera_core::flow::tables::NOTIFICATIONS;
use chimera_core::json::Digest32;
use chimera_engine::access::Permit;
use chimera_engine::flow::port::{Recipient, Recipients};
use chimera_engine::flow::{self, Asking, Decide, Decision};
use chimera_testkit::flow::{EngineFixture, TENANT, approval_link, asking, chain, stage};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use uuid::Uuid;

fn permit(actor: &str, kind: Kind, scopes: &[&str]) -> Permit {
    let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
    Permit::for_entry(ActorEntry { kind, scopes, ..ActorEntry::default_for(actor, TENANT) })
}

/// A run of `user_ann`, with a workflow by `user_wes`, that waits for this kind of approval.
async fn waiting(stage: &EngineFixture, approval: Value) -> (Uuid, Value) {
    stage.apply_as("user_wes", &chain("w", &[("a", "again")]).with_node_member("requires_approval", approval)).await;
    let ask = chimera_engine::flow::StartRun::of("w", json!({}));
    let run = stage.start(chimera_engine::flow::StartRun { level: Level::ExecuteNotify, ..ask }).await;
    let asked = stage.asks(run).await.remove(0);
    (run, asked)
}

/// Every reason that follows from the request and the permit, for every decision.
#[tokio::test(start_paused = true)]
async fn a_refusal_names_the_reason() {
    let four_eyes = json!({"other_than_requester": true});
    let named = json!({"approvers": ["user_boss", "user_vice*"]});
    let both = json!({"approvers": ["user_boss", "user_ann"], "other_than_requester": true});
    let decides: &[&str] = &["approvals.decide"];
    let cases = [
        (permit("service_bot", Kind::Service, decides), json!({}), "not_a_person", "only people can decide"),
        (permit("user_bot", Kind::Service, decides), json!({}), "not_a_person", "only people can decide"),
        (permit("user_bob", Kind::Human, &[]), json!({}), "lacks_scope", "lacks the scope approvals.decide"),
        (
            permit("user_bob", Kind::Human, &["runs.manage"]),
            json!({}),
            "lacks_scope",
            "lacks the scope approvals.decide",
        ),
        (permit("user_ann", Kind::Human, decides), four_eyes.clone(), "requester", "somebody else must decide"),
        (permit("user_wes", Kind::Human, decides), four_eyes.clone(), "requester", "somebody else must decide"),
        (permit("user_ann", Kind::Human, decides), both.clone(), "requester", "somebody else must decide"),
        (permit("user_ann", Kind::Human, decides), named.clone(), "not_named", "user_boss, user_vice*"),
        (permit("user_bob", Kind::Human, decides), named.clone(), "not_named", "user_boss, user_vice*"),
        (permit("user_bob", Kind::Human, decides), both, "not_named", "user_boss, user_ann"),
        // Somebody who is not named could not decide, even if others had requested it too.
        (permit("user_wes", Kind::Human, decides), named, "not_named", "user_boss, user_vice*"),
    ];
    for (who, approval, reason, words) in cases {
        let stage = stage(1).open().await;
        let (run, asked) = waiting(&stage, approval.clone()).await;
        for decision in [Decision::Approve, Decision::Reject, Decision::RequestChanges] {
            let digest = Digest32::from_hex(asked["digest"].as_str().unwrap());
            let ask = Decide { run, decision, approval: None, step: None, digest, reason: None };
            let refused = flow::decide(&stage.flow, &who, ask).await.unwrap_err().body();
            let told = (refused.code.as_str(), refused.details["reason"].as_str().unwrap_or_default());
            assert_eq!(told, ("RBAC_FORBIDDEN", reason), "{} {approval}: {}", who.actor(), refused.message);
            assert!(refused.message.contains(words), "{}: {}", who.actor(), refused.message);
        }
        assert_eq!(stage.show(run).await["status"], "awaiting_approval");
    }
}

/// The recipient of a link, about whom the registry has changed.
struct LinkRecipients(Mutex<Option<DeciderRefusal>>);

#[async_trait]
impl Recipients for LinkRecipients {
    async fn of(&self, _: &RunHead) -> Vec<Recipient> {
        let (channel, target) = ("email".to_owned(), "bob@example.com".to_owned());
        vec![Recipient { channel, target, person: Some("user_bob".to_owned()) }]
    }

    fn not_decider(&self, _: &str, _: &str, _: &str) -> Option<DeciderRefusal> {
        self.0.lock().unwrap().clone()
    }
}

/// A link belongs to one person, whose registry entry may have changed when it is used.
#[tokio::test(start_paused = true)]
async fn whoever_holds_a_link_is_told_what_has_changed() {
    let people = Arc::new(LinkRecipients(Mutex::new(None)));
    let stage = stage(1).asking(Asking { recipients: Arc::clone(&people) as _, ..asking() }).open().await;
    let (run, asked) = waiting(&stage, json!({})).await;
    let mail = stage.rows_of(&NOTIFICATIONS, run).remove(0);
    let token = approval_link(&mail).unwrap().rsplit('/').next().unwrap().to_owned();
    let digest = Digest32::from_hex(asked["digest"].as_str().unwrap()).unwrap();
    for reason in
        [DeciderRefusal::NotAPerson, DeciderRefusal::Disabled, DeciderRefusal::OtherTenant, DeciderRefusal::LacksScope]
    {
        *people.0.lock().unwrap() = Some(reason.clone());
        let opened = flow::open_link(&stage.flow, &token).await.unwrap_err().body();
        let decided =
            flow::decide_by_link(&stage.flow, &token, Decision::Approve, digest, None).await.unwrap_err().body();
        for refused in [opened, decided] {
            let told = (refused.code.as_str(), &refused.details["reason"], refused.message.as_str());
            assert_eq!(told, ("RBAC_FORBIDDEN", &json!(reason.as_str()), reason.message().as_str()));
        }
    }
    *people.0.lock().unwrap() = None;
    flow::decide_by_link(&stage.flow, &token, Decision::Approve, digest, None).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

//! Events on the command line: a run that waits goes on when its event is sent, also after its server was killed.

use crate::support::{Workspace, wait_until};
use serde_json::json;

#[test]
fn an_event_ends_the_wait_of_a_run_whose_server_was_killed_meanwhile() {
    let place = Workspace::new().with_actors().env("CHIMERA_LISTEN", "127.0.0.1:9");
    let server = place.dev_with_examples(&[]);
    let act = ["act", "--workflow", "order-with-payment", "--input", "order=o-17"];
    let run = place.json(&act)["run_id"].as_str().unwrap().to_owned();
    let shown = || place.json(&["runs", "show", &run]);
    wait_until("the run waits", || {
        let steps = place.json(&["runs", "steps", &run]);
        (steps["steps"][0]["status"] != "waiting").then(|| steps.to_string())
    });
    server.signal("KILL");
    server.wait();
    let server = place.dev(&[]);
    let send = ["event", "send", "payment.received", "o-17", "--payload", r#"{"amount": 1200}"#, "--id", "evt_1"];
    let sent = place.run(&send);
    assert_eq!(sent.stderr, "Published payment.received as evt_1; 1 run waited for it.\n");
    wait_until("the run ends", || (shown()["status"] != "completed").then(|| shown().to_string()));
    let value = json!({"amount": 1200});
    assert_eq!(shown()["result"]["confirm"]["value"], value, "{}", shown());
    let again = place.json(&send);
    assert_eq!((&again["event_id"], &again["runs"]), (&json!("evt_1"), &json!(1)), "published once");
    let listed = place.run(&["event", "list", "--key", "o-17"]);
    assert!(listed.stdout.contains("evt_1") && listed.stdout.contains("payment.received"), "{}", listed.stdout);
    let none = place.run(&["event", "list", "--key", "o-18"]);
    assert_eq!(none.stderr, "no events; chimera event send publishes one\n");
    assert_eq!(server.stop().0, Some(0));
}

//! The allowlist and its schemas.

use super::given::server;
use serde_json::Value;

/// INTENT-047, INTENT-053, INTENT-055, INTENT-056
#[tokio::test]
async fn the_catalog_lists_every_intent_and_each_schema_is_published() {
    let server = server().await;
    let catalog = server.porch.get("user_ann", "/intents/catalog").await;
    let items = catalog.body["items"].as_array().unwrap();
    assert_eq!((catalog.status, items.len()), (200, 8));
    for item in items {
        let name = item["type"].as_str().unwrap();
        let schema = server.porch.get("user_ann", item["schema_path"].as_str().unwrap()).await;
        assert_eq!((schema.status, &schema.body), (200, &item["schema"]), "{name}");
        assert_eq!(schema.body["$id"], format!("https://aob.dev/schemas/intents/{name}.json"));
    }
    let envelope = server.porch.get("user_ann", "/schemas/envelope.json").await;
    assert_eq!(envelope.body["$id"], "https://aob.dev/schemas/envelope.json");
    let absent = server.porch.get("user_ann", "/schemas/shell.run.json").await;
    assert_eq!((absent.status, absent.code()), (404, "NOT_FOUND"));
    assert_eq!(catalog.body["next_cursor"], Value::Null);
}

//! Prints what compiled expressions cost. It asserts no times, because the machine may be busy.
//!
//! `cargo test -p chimera-expr --release --test it cost -- --nocapture` prints the numbers.

use chimera_expr::limits::EXPRESSION_WORK_MAX;
use chimera_expr::{Lookup, Scope, Template, WorkMeter};
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: u32 = 5_000;

struct Wide {
    inputs: Value,
    outputs: Value,
}

static METER: WorkMeter = WorkMeter::lenient(EXPRESSION_WORK_MAX);

impl Scope for Wide {
    fn run_id(&self) -> &str {
        "0198c0de0198c0de0198c0de0198c0de"
    }

    fn inputs(&self) -> &Value {
        &self.inputs
    }

    fn outputs(&self, _: &str) -> Lookup<'_> {
        Lookup::Known(&self.outputs)
    }

    fn item(&self) -> Option<(&Value, usize)> {
        None
    }

    fn meter(&self) -> &WorkMeter {
        &METER
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the time is printed and decides nothing")]
fn expressions_over_a_large_run_give_what_they_name() {
    let rows: Vec<Value> = (0..10_000).map(|at| json!({"id": at, "name": "x".repeat(80)})).collect();
    // About a megabyte, of which no expression reads more than a number.
    let outputs = json!({"status": 200, "count": 3, "body": {"rows": rows}});
    let run = Wide { inputs: json!({"limit": 10, "name": "Ada"}), outputs };
    for (text, expected) in [
        ("${inputs.limit}", json!(10)),
        ("${nodes.fetch.outputs.success == true}", json!(true)),
        ("${nodes.fetch.outputs.status == 200 && nodes.fetch.outputs.count < inputs.limit}", json!(true)),
        ("${nodes.fetch.outputs.body.rows[9999].id}", json!(9_999)),
        ("${nodes.fetch.outputs.body.rows.size() > inputs.limit}", json!(true)),
        ("uploads/${run_id}.bin", json!("uploads/0198c0de0198c0de0198c0de0198c0de.bin")),
    ] {
        let template = Template::compile(&json!(text)).unwrap();
        let start = Instant::now();
        for _ in 0..ROUNDS {
            black_box(template.render(black_box(&run)).unwrap());
        }
        println!("{:>6} ns  {text}", start.elapsed().as_nanos() / u128::from(ROUNDS));
        assert_eq!(template.render(&run).unwrap(), expected);
    }
}

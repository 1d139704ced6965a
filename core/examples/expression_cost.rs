//! Prints what it costs to evaluate compiled expressions: `cargo run --release --example expression_cost`.
//!
//! It asserts no time, because a machine may be busy; the numbers are for people.
#![allow(clippy::expect_used, clippy::disallowed_methods)]

use chimera_core::flow::expr::{Lookup, Scope, Template};
use serde_json::{Value, json};
use std::hint::black_box;
use std::io::Write as _;
use std::time::Instant;

const ROUNDS: u32 = 200_000;

struct Run {
    inputs: Value,
    outputs: Value,
}

impl Scope for Run {
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
}

fn main() -> std::io::Result<()> {
    let rows: Vec<Value> = (0..10_000).map(|at| json!({"id": at, "name": "x".repeat(80)})).collect();
    // Nearly a megabyte that no expression below looks at.
    let outputs = json!({"status": 200, "count": 3, "body": {"rows": rows}});
    let run = Run { inputs: json!({"limit": 10, "name": "Ada"}), outputs };
    let mut out = std::io::stdout();
    for text in [
        "${inputs.limit}",
        "${nodes.fetch.outputs.success == true}",
        "${nodes.fetch.outputs.status == 200 && nodes.fetch.outputs.count < inputs.limit}",
        "${nodes.fetch.outputs.body.rows[9999].id}",
        "uploads/${run_id}.bin",
    ] {
        let template = Template::compile(&json!(text)).expect("the template is good");
        let start = Instant::now();
        for _ in 0..ROUNDS {
            black_box(template.render(black_box(&run)).expect("it renders"));
        }
        let each = start.elapsed().as_nanos() / u128::from(ROUNDS);
        writeln!(out, "{each:>6} ns  {text}")?;
    }
    Ok(())
}

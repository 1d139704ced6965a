//! Our evaluator agrees with the CEL library's interpreter wherever both give a value.

use crate::run_scope::Run;
use chimera_expr::Template;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::{Value, json};

fn inputs() -> Value {
    json!({"n": 3, "f": 2.5, "t": "text", "b": true, "z": null, "l": [1, 2, 3], "s": ["a", "bc"], "o": {"k": 1}, "m": {"x": "y"}})
}

/// Expressions that are often, but not always, well typed.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "1",
        "2",
        "0",
        "-4",
        "2.0",
        "0.5",
        "'a'",
        "'text'",
        "''",
        "true",
        "false",
        "null",
        "inputs.n",
        "inputs.f",
        "inputs.t",
        "inputs.b",
        "inputs.z",
        "inputs.l",
        "inputs.s",
        "inputs.o",
        "inputs.o.k",
        "inputs.m.x",
        "inputs.gone",
        "[1, 2]",
        "[]",
        "['a']",
        "{'k': 1}",
    ]);
    leaf.prop_map(str::to_owned).prop_recursive(4, 24, 3, |inner| {
        let operators = vec!["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in"];
        let calls = vec![
            "size(X)",
            "X.contains('a')",
            "X.startsWith('t')",
            "X.endsWith('t')",
            "string(X)",
            "int(X)",
            "double(X)",
            "!X",
            "-(X)",
            "X.map(v, v)",
            "X.filter(v, v == 1)",
            "X.all(v, v > 0)",
            "X.exists(v, v == 'a')",
            "X.exists_one(v, v == 2)",
            "X[0]",
            "X['k']",
            "has(inputs.o.k) && X",
        ];
        prop_oneof![
            (inner.clone(), prop::sample::select(operators), inner.clone())
                .prop_map(|(a, o, b)| format!("({a} {o} {b})")),
            (prop::sample::select(calls), inner.clone()).prop_map(|(call, x)| call.replace('X', &format!("({x})"))),
            (inner.clone(), inner.clone(), inner).prop_map(|(c, a, b)| format!("({c} ? {a} : {b})")),
        ]
    })
}

/// The library's result.
fn library(expression: &str) -> Option<cel::Value> {
    let program = cel::Program::compile(expression).ok()?;
    let mut context = cel::Context::default();
    context.add_variable("inputs", cel::to_value(inputs()).unwrap()).unwrap();
    program.execute(&context).ok()
}

fn same(one: &Value, other: &cel::Value) -> bool {
    match (one, other) {
        (Value::Null, cel::Value::Null) => true,
        (Value::Bool(one), cel::Value::Bool(other)) => one == other,
        (Value::Number(one), cel::Value::Int(other)) => one.as_i64() == Some(*other),
        (Value::Number(one), cel::Value::UInt(other)) => one.as_u64() == Some(*other),
        (Value::Number(one), cel::Value::Float(other)) => one.as_f64() == Some(*other),
        (Value::String(one), cel::Value::String(other)) => one == other.as_str(),
        (Value::Array(one), cel::Value::List(other)) => {
            one.len() == other.len() && one.iter().zip(other.iter()).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), cel::Value::Map(other)) => one.len() == other.map.len(),
        _ => false,
    }
}

/// Whether JSON can represent it.
fn finite(value: &cel::Value) -> bool {
    match value {
        cel::Value::Float(number) => number.is_finite(),
        cel::Value::List(items) => items.iter().all(finite),
        _ => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn two_interpreters_give_one_value(expression in expression()) {
        let ours = Template::compile(&json!(format!("${{{expression}}}"))).ok().and_then(|template| template.render(&Run::of(inputs())).ok());
        let theirs = library(&expression);
        match (&ours, &theirs) {
            (Some(ours), Some(theirs)) => prop_assert!(same(ours, theirs), "{expression}: {ours} and {theirs:?}"),
            // Values that JSON can't represent are errors here, and so is the sum of a list and an object.
            (None, Some(theirs)) => prop_assert!(!finite(theirs) || expression.contains('+'), "{expression}: only the library gives {theirs:?}"),
            // Integers and fractions mix here but not in the library.
            _ => {}
        }
    }
}

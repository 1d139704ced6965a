//! Templates: what they render to, what they refuse, and what their preview shows.

use crate::run_scope::Run;
use chimera_expr::{Preview, Template, TemplateError};
use serde_json::{Value, json};

fn run() -> Run {
    let inputs = json!({"name": "Ada", "count": 3, "price": 2.5, "tags": ["a", "b"], "deep": {"er": {"x": [1, {"y": "z"}]}}, "nothing": null, "flag": true});
    Run::of(inputs)
        .node("fetch", json!({"status": 200, "body": {"items": [{"id": 1, "ok": true}, {"id": 2, "ok": false}]}}))
}

fn value(expression: &str) -> Value {
    run().render(json!(format!("${{{expression}}}"))).unwrap()
}

fn fault(expression: &str) -> String {
    run().render(json!(format!("${{{expression}}}"))).unwrap_err().reason
}

fn refused(template: Value) -> String {
    Template::compile(&template).unwrap_err().to_string()
}

#[test]
fn a_lone_expression_keeps_its_type_and_text_around_it_makes_a_string() {
    assert_eq!(value("inputs.count"), json!(3));
    assert_eq!(value("inputs.deep.er.x[1].y"), json!("z"));
    assert_eq!(value("inputs.tags"), json!(["a", "b"]));
    assert_eq!(value("nodes.fetch.outputs.body.items[0]"), json!({"id": 1, "ok": true}));
    let mixed = json!("${inputs.name}: ${inputs.count} of ${inputs.price}, ${inputs.tags} ${inputs.nothing} ${1.0}");
    assert_eq!(run().render(mixed).unwrap(), json!("Ada: 3 of 2.5, [\"a\",\"b\"] null 1"));
}

/// INTENT-033
#[test]
fn the_run_id_stands_where_a_template_names_it() {
    let inputs = json!({"key": "uploads/${run_id}.bin", "subject": "Upload OK ${run_id}", "n": [1, "${run_id}"]});
    let expected = json!({"key": "uploads/7f3a.bin", "subject": "Upload OK 7f3a", "n": [1, "7f3a"]});
    assert_eq!(run().render(inputs).unwrap(), expected);
}

#[test]
fn a_doubled_dollar_is_a_literal_one() {
    assert_eq!(run().render(json!("$${inputs.name} $5 ${inputs.name}$")).unwrap(), json!("${inputs.name} $5 Ada$"));
    let template = Template::compile(&json!({"a": "$${x}", "b": [1, null]})).unwrap();
    assert!(template.is_constant() && template.references().is_empty());
}

#[test]
fn operators_do_what_cel_says() {
    for (expression, expected) in [
        ("1 + 2 * 3", json!(7)),
        ("7 / 2", json!(3)),
        ("-7 / 2", json!(-3)),
        ("-7 % 3", json!(-1)),
        ("inputs.count * inputs.price", json!(7.5)),
        ("inputs.name + '!'", json!("Ada!")),
        ("inputs.tags + ['c']", json!(["a", "b", "c"])),
        ("inputs.count > 2 && inputs.flag", json!(true)),
        ("inputs.count == 3.0", json!(true)),
        ("inputs.name == 'ada'", json!(false)),
        ("inputs.nothing == null", json!(true)),
        ("'b' in inputs.tags", json!(true)),
        ("'name' in inputs", json!(true)),
        ("inputs.count > 5 ? 'many' : 'few'", json!("few")),
        ("has(inputs.name) && !has(inputs.surname)", json!(true)),
        ("has(inputs.nothing.x)", json!(false)),
        ("size(inputs.tags) + inputs.name.size()", json!(5)),
        ("inputs.name.lowerAscii().startsWith('ad')", json!(true)),
        ("'a,b'.split(',').join('-')", json!("a-b")),
        ("'  x '.trim().replace('x', 'yy').substring(1)", json!("y")),
        ("int('12') + int(2.9)", json!(14)),
        ("string(inputs.price) + string(true)", json!("2.5true")),
        ("double('0.5') * 2", json!(1.0)),
        ("{'a': inputs.count, 'b': [inputs.name]}", json!({"a": 3, "b": ["Ada"]})),
        ("{'a': {'b': 4}}.a.b", json!(4)),
        ("inputs.tags[inputs.count - 2]", json!("b")),
        ("inputs.deep['er'].x[0]", json!(1)),
    ] {
        assert_eq!(value(expression), expected, "{expression}");
    }
}

#[test]
fn macros_walk_over_lists() {
    for (expression, expected) in [
        ("nodes.fetch.outputs.body.items.map(i, i.id)", json!([1, 2])),
        ("nodes.fetch.outputs.body.items.filter(i, i.ok).map(j, j.id * 10)", json!([10])),
        ("nodes.fetch.outputs.body.items.map(i, !i.ok, i.id)", json!([2])),
        ("nodes.fetch.outputs.body.items.all(i, i.id > 0)", json!(true)),
        ("nodes.fetch.outputs.body.items.exists(i, i.id == 2)", json!(true)),
        ("nodes.fetch.outputs.body.items.exists_one(i, i.id > 0)", json!(false)),
        ("[1, 'x'].exists(i, i == 1 || i > 0)", json!(true)),
        ("{'k': 1}.map(name, name)", json!(["k"])),
        ("[].all(i, false)", json!(true)),
    ] {
        assert_eq!(value(expression), expected, "{expression}");
    }
}

#[test]
fn one_side_that_decides_is_enough() {
    assert_eq!(value("inputs.missing == 1 || true"), json!(true));
    assert_eq!(value("false && inputs.missing == 1"), json!(false));
    assert_eq!(value("inputs.missing == 1 && false"), json!(false));
    assert_eq!(fault("inputs.missing == 1 && true"), "there is no member missing");
}

#[test]
fn what_can_not_be_evaluated_says_why() {
    for (expression, reason) in [
        ("inputs.missing", "there is no member missing"),
        ("inputs.nothing.x", "null has no member x"),
        ("inputs.tags[5]", "index 5 is out of range for a list of 2"),
        ("inputs.name + inputs.count", "cannot apply + to string and integer"),
        ("inputs.count / (inputs.count - 3)", "division by zero"),
        ("inputs.name ? 1 : 2", "expected boolean, found string"),
        ("nodes.other.outputs.x", "node other has no outputs: it did not run"),
        ("inputs.count * 18446744073709551615", "integer overflow: the result does not fit 64 bits"),
        ("int(inputs.name)", "the string is not an integer"),
        ("inputs.name < inputs.count", "cannot apply < to string and integer"),
        ("inputs.count.map(x, x)", "a macro iterates over a list, not over integer"),
    ] {
        assert_eq!(fault(expression), reason, "{expression}");
    }
    for expression in ["inputs[inputs.name]", "inputs.tags[inputs.name]", "inputs.deep[inputs.name + inputs.name]"] {
        assert!(!fault(expression).contains("Ada"), "an error goes into the ledger and must not quote user data");
    }
    let error = run().render(json!({"a": ["x ${ inputs.missing }"]})).unwrap_err();
    assert_eq!(error.to_string(), "${inputs.missing}: there is no member missing");
}

#[test]
fn what_can_not_be_compiled_says_why() {
    for (expression, reason) in [
        ("", "the expression is empty"),
        ("1 +", "not an expression"),
        ("inputz.x", "unknown variable inputz (did you mean inputs?)"),
        ("nodes", "nodes are read as nodes.NAME.outputs"),
        ("nodes.a", "nodes are read as nodes.NAME.outputs"),
        ("nodes[inputs.x].outputs", "nodes are read as nodes.NAME.outputs"),
        ("siez(inputs)", "unknown function siez (did you mean size?)"),
        ("inputs.x.matches('a')", "unknown function matches"),
        ("contains(inputs.x, 'a')", "contains is called on a value"),
        ("inputs.x.contains()", "contains can't take 1 arguments"),
        ("1u", "unsigned numbers"),
        ("b'x'", "bytes literals are not supported"),
        ("inputs.x.map(a, a.map(b, b))", "macros cannot be nested"),
        ("inputs.x.map(inputs, 1)", "the macro variable inputs shadows"),
        ("inputs.x.map(1, 1)", "a macro takes a variable"),
        ("has(inputs)", "has() takes a member"),
        ("1 / 0", "division by zero"),
        ("inputs.?x", "not an expression"),
        ("Message{a: 1}", "message literals are not supported"),
        ("now()", "unknown function now"),
    ] {
        let told = refused(json!(format!("${{{expression}}}")));
        assert!(told.contains(reason), "{expression}: {told}");
    }
}

#[test]
fn a_fault_is_told_with_its_place() {
    let told = Template::compile(&json!({"a": [0, {"b/c": "${1 +}"}]})).unwrap_err();
    assert!(matches!(told, TemplateError::Invalid { path, .. } if path == "/a/1/b~1c"));
}

#[test]
fn all_faults_of_a_template_are_told_and_the_rest_of_it_can_be_checked() {
    let value = json!({"a": "${1 +}", "b": ["${inputs.x}", "${nope}"], "${c}": 1, "d": 2});
    let (template, told) = Template::compile_all(&value);
    let places: Vec<&str> = told
        .iter()
        .map(|error| match error {
            TemplateError::Invalid { path, .. } | TemplateError::UnknownReference { path, .. } => path.as_str(),
            TemplateError::TooMany => "",
        })
        .collect();
    assert_eq!(places, ["/${c}", "/a", "/b/1"]);
    assert!(template.render(&run()).is_err());
    let known = ["", "/a", "/b", "/b/0", "/b/1/x", "/d", "/none"].map(|pointer| template.root().is_unknown_at(pointer));
    assert_eq!(known, [true, true, true, true, true, false, false]);
    let many: Vec<String> = (0..300).map(|_| "${inputs.x}".to_owned()).collect();
    assert_eq!(Template::compile_all(&json!(many)).1, [TemplateError::TooMany]);
}

/// Every limit applies before anything grows.
#[test]
fn expressions_are_bounded_in_size_depth_and_work() {
    let long = format!("${{'{}'}}", "x".repeat(3_000));
    assert!(refused(json!(long)).contains("bytes, at most"));
    let deep = format!("${{{}1{}}}", "(".repeat(200), ")".repeat(200));
    assert!(refused(json!(deep)).contains("nested more than"));
    let wide = format!("${{[{}1]}}", "1,".repeat(400));
    assert!(refused(json!(wide)).contains("more than 256 terms"));
    let many: Vec<String> = (0..300).map(|_| "${inputs.x}".to_owned()).collect();
    assert!(refused(json!(many)).contains("more than 256 expressions"));
    let big = Run::of(json!({"list": vec![1; 10_001], "text": "x".repeat(100_000), "thousand": vec![0; 1_000]}));
    let reason = |template: &str| big.render(json!(template)).unwrap_err().reason;
    assert_eq!(reason("${inputs.list.map(x, x)}"), "the list has 10001 items, at most 10000");
    assert_eq!(reason("${inputs.thousand.map(x, inputs.text)}"), "the expression takes too much work");
    assert_eq!(
        reason("${inputs.thousand.map(x, inputs.text.replace('', inputs.text))}"),
        "the expression takes too much work"
    );
    // Whatever a function does with a text, it may read all of it.
    let digits = Run::of(json!({"text": "0".repeat(100_000), "thousand": vec![0; 1_000]}));
    for call in ["int(inputs.text)", "double(inputs.text)", "size(inputs.text)", "inputs.text.size()"] {
        let template = format!("${{inputs.thousand.exists(x, {call} == -1)}}");
        assert_eq!(digits.render(json!(template)).unwrap_err().reason, "the expression takes too much work", "{call}");
    }
}

#[test]
fn success_and_error_are_always_there() {
    let run = run().node("failed", json!({"success": false, "error": {"code": "TIMEOUT"}}));
    for (expression, expected) in [
        ("nodes.fetch.outputs.success == true", json!(true)),
        ("nodes.fetch.outputs.error == null", json!(true)),
        ("has(nodes.fetch.outputs.success)", json!(true)),
        ("nodes.failed.outputs.success", json!(false)),
        ("nodes.failed.outputs.error.code", json!("TIMEOUT")),
        ("nodes.skipped.outputs == null", json!(true)),
        ("has(nodes.skipped.outputs.success)", json!(false)),
    ] {
        assert_eq!(run.render(json!(format!("${{{expression}}}"))).unwrap(), expected, "{expression}");
    }
}

#[test]
fn inside_a_map_the_item_and_its_index_are_known() {
    let run = Run { item: Some((json!({"url": "u"}), 4)), ..Run::default() };
    assert_eq!(run.render(json!("${item.url}-${index + 1}")).unwrap(), json!("u-5"));
    assert!(Template::compile(&json!("${index}")).unwrap().needs_item());
    let Preview::Deferred { shown, from } = Run::default().preview(json!({"u": "${item.url}", "r": "${run_id}"}))
    else {
        panic!("the item is not known yet")
    };
    assert!(from.is_empty());
    assert_eq!(shown, json!({"u": {"$deferred": {"expression": "item.url", "from": []}}, "r": "7f3a"}));
}

#[test]
fn what_lies_behind_a_mock_is_deferred_and_the_rest_is_exact() {
    let run = run().unknown("upload");
    let template = json!({"to": "${inputs.name}", "key": "${nodes.upload.outputs.key}", "text": "at ${nodes.upload.outputs.key}!"});
    let Preview::Deferred { shown, from } = run.preview(template) else { panic!("something is deferred") };
    assert_eq!(from.into_iter().collect::<Vec<_>>(), ["upload"]);
    let expected = json!({
        "to": "Ada",
        "key": {"$deferred": {"expression": "nodes.upload.outputs.key", "from": ["upload"]}},
        "text": {"$deferred": {"expression": "at ${nodes.upload.outputs.key}!", "from": ["upload"]}},
    });
    assert_eq!(shown, expected);
    assert_eq!(run.preview(json!("${inputs.count}")), Preview::Exact(json!(3)));
    assert_eq!(run.preview(json!("${nodes.upload.outputs.success || true}")), Preview::Exact(json!(true)));
    assert_eq!(run.preview(json!("${inputs.flag ? 1 : nodes.upload.outputs.key}")), Preview::Exact(json!(1)));
    let reason = run.render(json!("${nodes.upload.outputs.key}")).unwrap_err().reason;
    assert_eq!(reason, "it depends on values that are not known yet");
    assert!(Template::compile(&json!({"$deferred": 1})).is_err());
}

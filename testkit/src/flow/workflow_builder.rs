//! A builder for workflow documents (AIR).

use serde_json::{Value, json};

/// A workflow document under construction.
#[derive(Clone, Debug)]
pub struct Air(Value);

#[must_use]
pub fn workflow(id: &str) -> Air {
    Air(json!({"air_version": "1.0", "workflow_id": id, "nodes": [], "edges": []}))
}

/// A chain of function nodes: (node, tool).
#[must_use]
pub fn chain(id: &str, nodes: &[(&str, &str)]) -> Air {
    let air = nodes.iter().fold(workflow(id), |air, (node, tool)| air.function(node, tool, json!({"n": node})));
    nodes.windows(2).fold(air, |air, pair| air.edge(pair[0].0, pair[1].0))
}

impl Air {
    /// Adds a node in its wire form.
    #[must_use]
    pub fn node(mut self, node: Value) -> Self {
        self.0["nodes"].as_array_mut().expect("nodes").push(node);
        self
    }

    /// Adds a function node.
    #[must_use]
    pub fn function(self, id: &str, tool: &str, inputs: Value) -> Self {
        self.node(json!({"id": id, "type": "function", "fn": tool, "inputs": inputs}))
    }

    /// Adds a node that starts a child run.
    #[must_use]
    pub fn child(self, id: &str, workflow: &str, inputs: Value) -> Self {
        self.node(json!({"id": id, "type": "workflow", "workflow_id": workflow, "inputs": inputs}))
    }

    /// Adds a node that maps a tool over a list, one item at a time.
    #[must_use]
    pub fn map(self, id: &str, over: Value, tool: &str, inputs: Value) -> Self {
        let each = json!({"type": "function", "fn": tool, "inputs": inputs});
        self.node(json!({"id": id, "type": "map", "over": over, "max_parallel": 1, "do": each}))
    }

    /// Sets how many items of the map that was added last run at the same time.
    #[must_use]
    pub fn in_parallel(self, items: u32) -> Self {
        self.with_node_member("max_parallel", json!(items))
    }

    #[must_use]
    pub fn edge(mut self, from: &str, to: &str) -> Self {
        self.0["edges"].as_array_mut().expect("edges").push(json!({"from": from, "to": to}));
        self
    }

    #[must_use]
    pub fn edge_if(mut self, from: &str, to: &str, condition: &str) -> Self {
        let edge = json!({"from": from, "to": to, "condition": condition});
        self.0["edges"].as_array_mut().expect("edges").push(edge);
        self
    }

    /// Sets a member of the document.
    #[must_use]
    pub fn with(mut self, member: &str, value: Value) -> Self {
        self.0[member] = value;
        self
    }

    /// Sets a member of the node that was added last.
    #[must_use]
    pub fn with_node_member(mut self, member: &str, value: Value) -> Self {
        let node = self.0["nodes"].as_array_mut().and_then(|nodes| nodes.last_mut()).expect("a node");
        node[member] = value;
        self
    }

    #[must_use]
    pub fn id(&self) -> String {
        self.0["workflow_id"].as_str().unwrap_or_default().to_owned()
    }

    #[must_use]
    pub fn document(&self) -> &Value {
        &self.0
    }
}

//! Gives every node of an ONNX model a unique name, because the tract library rejects models with
//! duplicate names.

use std::collections::HashSet;

use tract_onnx::pb::ModelProto;

use super::graph::each_graph_mut;

/// Renames nodes whose name is already used.
pub(crate) fn make_names_unique(model: &mut ModelProto) {
    let mut known: HashSet<String> = HashSet::new();
    each_graph_mut(model, &mut |graph| {
        let stored = graph.initializer.iter().map(|tensor| tensor.name.clone());
        let given = graph.input.iter().map(|input| input.name.clone());
        known.extend(stored.chain(given));
    });
    each_graph_mut(model, &mut |graph| {
        for node in &mut graph.node {
            let made = node.output.iter().find(|output| !output.is_empty());
            let mut name = if node.name.is_empty() {
                made.unwrap_or(&node.op_type).clone()
            } else {
                node.name.clone()
            };
            let mut count = 1;
            while known.contains(&name) {
                count += 1;
                let base = made.unwrap_or(&node.name);
                name = format!("{base}.{count}");
            }
            known.insert(name.clone());
            node.name = name;
        }
    });
}

#[cfg(test)]
mod tests {
    use tract_onnx::pb::{GraphProto, NodeProto, TensorProto};

    use super::*;

    #[test]
    fn no_two_nodes_have_one_name() {
        let node = |name: &str, output: &str| NodeProto {
            name: name.to_owned(),
            output: vec![output.to_owned()],
            ..NodeProto::default()
        };
        let mut model = ModelProto {
            graph: Some(GraphProto {
                node: vec![node("a", "x"), node("a", "y"), node("", "w"), node("", "z")],
                initializer: vec![TensorProto {
                    name: "w".to_owned(),
                    ..TensorProto::default()
                }],
                ..GraphProto::default()
            }),
            ..ModelProto::default()
        };
        make_names_unique(&mut model);
        let graph = model.graph.expect("it is still there");
        let names: Vec<&str> = graph.node.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["a", "y.2", "w.2", "z"]);
    }
}

//! QNN context binaries (`.bin`) that stand by themselves: graphs compiled for a processor of Qualcomm's.
//!
//! `executorch/qnn` reads their description, as in the payloads of delegates; here it becomes a [`ModelInfo`].
//! Recognised by first bytes alone: anything may be called `.bin`.

use std::path::Path;

use super::executorch::body::ByteRange;
use super::executorch::qnn::{self, Context, Graph};
use super::{Method, ModelError, ModelFormat, ModelInfo, Segment, Value, ValueKind};
use crate::source::ReadAt;

/// What the one graph of a binary is called here; its own name is most often one that a compiler made up.
const METHOD: &str = "forward";

/// The format of QNN's context binaries.
#[derive(Debug)]
pub struct Qnn;

impl ModelFormat for Qnn {
    fn name(&self) -> &'static str {
        "qnn"
    }

    /// Anything may be called `.bin`.
    fn is_named(&self, _path: &Path) -> bool {
        false
    }

    fn is_marked(&self, first_bytes: &[u8]) -> bool {
        qnn::begins(first_bytes)
    }

    fn inspect(&self, source: &dyn ReadAt) -> Result<ModelInfo, ModelError> {
        let whole = ByteRange {
            offset: 0,
            size: source.len(),
        };
        let context = Context::read(source, whole)?;
        let mut metadata = vec![("backend".to_owned(), context.backend)];
        metadata.extend(context.chip.map(|chip| ("chip".to_owned(), chip)));
        let names_methods = context.graphs.len() > 1;
        if let [graph] = context.graphs.as_slice() {
            metadata.push(("graph".to_owned(), graph.name.clone()));
        }
        let unread = "operators and weights: the compiled graphs have no public form".to_owned();
        metadata.push(("not read".to_owned(), unread));
        let segment = |name: &str, range: ByteRange| Segment {
            name: name.to_owned(),
            offset: range.offset,
            size: range.size,
        };
        Ok(ModelInfo {
            format: self.name(),
            named_as: None,
            format_version: "context binary, description 3".to_owned(),
            producer: context.build.map(|build| format!("QNN {build}")),
            names_methods,
            methods: methods(context.graphs),
            segments: vec![
                segment("description", context.description),
                segment("compiled graphs", context.compiled),
            ],
            metadata,
            ..ModelInfo::default()
        })
    }
}

fn methods(graphs: Vec<Graph>) -> Vec<Method> {
    let alone = graphs.len() == 1;
    let graphs = graphs.into_iter().map(|graph| Method {
        name: if alone { METHOD.to_owned() } else { graph.name },
        inputs: graph.inputs.into_iter().map(value).collect(),
        outputs: graph.outputs.into_iter().map(value).collect(),
        ..Method::default()
    });
    graphs.collect()
}

fn value(port: super::executorch::Port) -> Value {
    let kind = match port.tensor {
        Some(info) => ValueKind::Tensor { info, data: None },
        None => ValueKind::None,
    };
    Value {
        name: port.name,
        kind,
    }
}

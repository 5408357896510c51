//! A model read once and kept without its weights, from which the library's graph can be built again
//! and again.
//!
//! Weights are in memory only in the graphs built here. A small model's graph is kept, since each plan
//! is made from a copy of it that shares the weights; a large model's is built anew from the file.

use std::path::Path;
use std::sync::Arc;

use tract_onnx::Onnx;
use tract_onnx::pb::{ModelProto, TensorProto};
use tract_onnx::prelude::{Framework, InferenceModel, TractError};
use tract_onnx::tensor::load_tensor;

use super::exact;
use super::graph::{node_name, operator, opset};
use super::guard::{Failure, guarded};
use super::repair::repair;
use super::slim::slim;
use super::weights::Weights;
use super::{checks, failed, functions, names, operators, quantised, scaled};
use crate::engine::EngineError;
use crate::source::FileSource;

/// A graph whose weights are smaller than this is kept to make more plans of.
const KEPT_BYTES: u64 = 256 << 20;

/// A model the library can build.
pub(super) struct Source {
    library: Onnx,
    proto: ModelProto,
    folder: String,
    /// Size of the model with its external data, as an estimate of its weights.
    bytes: u64,
    built: Option<InferenceModel>,
}

impl Source {
    /// Reads and checks the model at `path`, whose external data are `external` bytes.
    pub(super) fn open(path: &Path, external: u64) -> Result<Self, EngineError> {
        let load = |reason: String| failed(&Failure::new(reason));
        let folder =
            folder_of(path).ok_or_else(|| load("its folder's path is not UTF-8".to_owned()))?;
        let file = FileSource::open(path).map_err(|error| load(error.to_string()))?;
        let bytes = crate::source::ReadAt::len(&file).saturating_add(external);
        let slimmed = slim(&file).map_err(|failure| failed(&failure))?;
        let mut library = operators::reader()
            .with_ignore_value_info(true)
            .with_ignore_output_types(true);
        exact::register(&mut library);
        quantised::register(&mut library);
        library.provider = Arc::new(Weights {
            model: path.to_owned(),
        });
        let mut proto = guarded(|| {
            let mut bytes = slimmed.as_slice();
            library.proto_model_for_read(&mut bytes)
        })
        .map_err(|failure| failed(&failure))?;
        drop(slimmed);
        functions::expand(&mut proto);
        let load = |tensor: &TensorProto| {
            guarded(|| load_tensor(library.provider.as_ref(), tensor, Some(&folder))).ok()
        };
        quantised::unfold(&mut proto, &load);
        checks::check(&mut proto, &library)?;
        quantised::fuse(&mut proto, &load);
        repair(&mut proto);
        scaled::spell_out(&mut proto);
        names::tell_apart(&mut proto);
        Ok(Self {
            library,
            proto,
            folder,
            bytes,
            built: None,
        })
    }

    /// About how many bytes the weights take.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The library's graph, with weights, to look at.
    pub(super) fn graph(&mut self) -> Result<&InferenceModel, Failure> {
        let built = match self.built.take() {
            Some(built) => built,
            None => self.build()?,
        };
        Ok(self.built.insert(built))
    }

    /// The library's graph, with weights, to make a plan of. It shares weights with the graph kept
    /// here; of a large model none is kept, since planning copies weights one by one.
    pub(super) fn give_graph(&mut self) -> Result<InferenceModel, Failure> {
        self.graph()?;
        let is_kept = self.bytes < KEPT_BYTES;
        let given = if is_kept {
            self.built.clone()
        } else {
            self.built.take()
        };
        Ok(given.expect("it was just built"))
    }

    /// Lets go of the kept graph: no more plans are expected.
    pub(super) fn forget(&mut self) {
        self.built = None;
    }

    /// Returns the name and the ONNX operator of the model's node that a node of a plan was made from: the
    /// one whose name is the longest beginning of the plan's. Nodes that only repairs add are nobody's.
    pub(super) fn origin(&self, node: &str) -> Option<(String, String)> {
        let nodes = self.proto.graph.iter().flat_map(|graph| &graph.node);
        let named = nodes.filter_map(|found| Some((node_name(found)?, operator(found))));
        named
            .filter(|(name, operator)| node.starts_with(name) && !operator.starts_with("pkgtool"))
            .max_by_key(|(name, _)| name.len())
            .map(|(name, operator)| (name.to_owned(), operator))
    }

    fn build(&self) -> Result<InferenceModel, Failure> {
        guarded(|| {
            let parsed = self.library.parse(&self.proto, Some(&self.folder))?;
            if parsed.unresolved_inputs.is_empty() {
                Ok(parsed.model)
            } else {
                let names = parsed.unresolved_inputs.join(", ");
                Err(TractError::msg(format!(
                    "nothing in the graph makes {names}"
                )))
            }
        })
        .map_err(|failure| failure.at(self.culprit()))
    }

    /// The first node that the library cannot even build; looked for only when the whole failed.
    fn culprit(&self) -> Option<String> {
        let context = tract_onnx::model::ParsingContext {
            onnx_operator_set_version: opset(&self.proto),
            framework: &self.library,
            model: &self.proto,
            parent_graphs: self.proto.graph.iter().collect(),
            model_dir: Some(&self.folder),
            template: InferenceModel::default(),
        };
        let mut nodes = self.proto.graph.iter().flat_map(|graph| &graph.node);
        nodes
            .find(|node| {
                let builder = self.library.op_register.0.get(&node.op_type);
                builder.is_some_and(|builder| guarded(|| builder(&context, node)).is_err())
            })
            .map(operator)
    }
}

fn folder_of(model: &Path) -> Option<String> {
    model.parent()?.to_str().map(str::to_owned)
}

//! A model that is read once and kept without its weights; the library's graph is built from it for
//! each plan.
//!
//! Only the graphs contain the weights. The graph of a small model is kept, and each plan is made
//! from a copy that shares the weights. The graph of a large model is built again from the file.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use tract_onnx::Onnx;
use tract_onnx::pb::{ModelProto, TensorProto};
use tract_onnx::prelude::{Framework, InferenceModel, TractError};
use tract_onnx::tensor::load_tensor;

use super::exact;
use super::graph::{node_name, operator, opset};
use super::located::locate;
use super::repair::repair;
use super::slim::slim;
use super::weights::OnnxWeights;
use super::{checks, functions, fused, names, narrow, operators, quantised, scaled, sequences};
use crate::EngineError;
use crate::graph::failed;
use crate::graph::guard::{LibraryFailure, guarded};
use pkgtool_base::source::FileSource;

/// Maximum size of the weights of a graph that is kept for further plans, in bytes.
const MAX_KEPT_BYTES: u64 = 256 << 20;

/// Maximum size of a model without its weights whose gaps are determined, in bytes.
const MAX_JUDGED_BYTES: usize = 64 << 20;

/// Returns the library's reader with the operators of this crate.
pub(crate) fn reader() -> Onnx {
    let mut library = operators::reader()
        .with_ignore_value_info(true)
        .with_ignore_output_types(true);
    exact::register(&mut library);
    quantised::register(&mut library);
    library
}

/// Returns the reader for the model at `path`.
fn reader_of(path: &Path) -> Onnx {
    let mut library = reader();
    library.provider = Arc::new(OnnxWeights {
        model: path.to_owned(),
    });
    library
}

/// Returns the operators of the model at `path` that are not supported, and why. Both are empty if
/// there are none. `None` for a file that cannot be read, or whose graph is too large.
pub(crate) fn gaps(path: &Path) -> Option<(BTreeSet<String>, String)> {
    let folder = folder_of(path)?;
    let file = FileSource::open(path).ok()?;
    let slimmed = slim(&file).ok().filter(|it| it.len() <= MAX_JUDGED_BYTES)?;
    let library = reader_of(path);
    let mut proto = guarded(|| library.proto_model_for_read(&mut slimmed.as_slice())).ok()?;
    functions::expand(&mut proto);
    let folder = locate(&mut proto, path, folder);
    sequences::spell_out(&mut proto);
    fused::spell_out(&mut proto);
    quantised::unfold(&mut proto, &|tensor| {
        guarded(|| load_tensor(library.provider.as_ref(), tensor, Some(&folder))).ok()
    });
    Some(checks::gaps(&proto, &library).unwrap_or_default())
}

/// A model that the library can build.
pub(crate) struct ModelSource {
    library: Onnx,
    proto: ModelProto,
    folder: String,
    /// Size of the model with its external data in bytes, as an estimate of its weights.
    bytes: u64,
    built: Option<InferenceModel>,
}

impl ModelSource {
    /// Reads and checks the model at `path`, whose external data has `external` bytes.
    pub(crate) fn open(path: &Path, external: u64) -> Result<Self, EngineError> {
        let load = |reason: String| failed(&LibraryFailure::new(reason));
        let folder = folder_of(path)
            .ok_or_else(|| load("the path of its folder is not UTF-8".to_owned()))?;
        let file = FileSource::open(path).map_err(|error| load(error.to_string()))?;
        let bytes = pkgtool_base::source::ReadAt::len(&file).saturating_add(external);
        let slimmed = slim(&file).map_err(|failure| failed(&failure))?;
        let library = reader_of(path);
        let mut proto = guarded(|| {
            let mut bytes = slimmed.as_slice();
            library.proto_model_for_read(&mut bytes)
        })
        .map_err(|failure| failed(&failure))?;
        drop(slimmed);
        functions::expand(&mut proto);
        let folder = locate(&mut proto, path, folder);
        let load = |tensor: &TensorProto| {
            guarded(|| load_tensor(library.provider.as_ref(), tensor, Some(&folder))).ok()
        };
        sequences::spell_out(&mut proto);
        narrow::widen(&mut proto, &load);
        fused::spell_out(&mut proto);
        quantised::unfold(&mut proto, &load);
        checks::check(&mut proto, &library)?;
        quantised::fuse(&mut proto, &load);
        repair(&mut proto);
        scaled::expand_attributes(&mut proto);
        operators::packed::hold_weights(&mut proto);
        names::make_names_unique(&mut proto);
        Ok(Self {
            library,
            proto,
            folder,
            bytes,
            built: None,
        })
    }

    /// Returns the estimated size of the weights, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the library's graph, with weights, for inspection.
    pub(crate) fn graph(&mut self) -> Result<&InferenceModel, LibraryFailure> {
        let built = match self.built.take() {
            Some(built) => built,
            None => self.build()?,
        };
        Ok(self.built.insert(built))
    }

    /// Returns the library's graph, with weights, for making a plan. It shares the weights with the
    /// kept graph. The graph of a large model is not kept, because planning copies weights one by
    /// one.
    pub(crate) fn graph_for_plan(&mut self) -> Result<InferenceModel, LibraryFailure> {
        self.graph()?;
        let is_kept = self.bytes < MAX_KEPT_BYTES;
        let given = if is_kept {
            self.built.clone()
        } else {
            self.built.take()
        };
        Ok(given.expect("it was just built"))
    }

    /// Drops the kept graph when no more plans are expected.
    pub(crate) fn forget(&mut self) {
        self.built = None;
    }

    /// Returns the name and the ONNX operator of the model's node from which a node of a plan was
    /// made: the one whose name is the longest prefix of the plan's name. Nodes added by repairs
    /// have no origin.
    pub(crate) fn origin(&self, node: &str) -> Option<(String, String)> {
        let nodes = self.proto.graph.iter().flat_map(|graph| &graph.node);
        let named = nodes.filter_map(|found| Some((node_name(found)?, operator(found))));
        named
            .filter(|(name, operator)| node.starts_with(name) && !operator.starts_with("pkgtool"))
            .max_by_key(|(name, _)| name.len())
            .map(|(name, operator)| (name.to_owned(), operator))
    }

    fn build(&self) -> Result<InferenceModel, LibraryFailure> {
        guarded(|| {
            let parsed = self.library.parse(&self.proto, Some(&self.folder))?;
            if parsed.unresolved_inputs.is_empty() {
                Ok(parsed.model)
            } else {
                let names = parsed.unresolved_inputs.join(", ");
                Err(TractError::msg(format!(
                    "no node of the graph computes {names}"
                )))
            }
        })
        .map_err(|failure| failure.at(self.first_unbuildable()))
    }

    /// Returns the first node that the library cannot build; called only after building the model
    /// failed.
    fn first_unbuildable(&self) -> Option<String> {
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

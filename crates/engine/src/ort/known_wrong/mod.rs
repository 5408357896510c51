//! Finds parts of a model that ONNX Runtime, or one of its providers, computes wrongly without
//! reporting an error.
//!
//! One walk over the model collects all facts. Nodes that are always computed wrongly ([`nodes`],
//! [`resize`], [`reduction`]) are rejected, and another engine or provider runs the model.
//! Optimiser passes that break a valid graph ([`rewrites`]) are disabled only for models with the
//! pattern that they break, so other models stay fast. [`bytes`] finds sums that are exact on some
//! processors only. Errors that depend on values alone are invisible here and listed in
//! `tests/conformance/known.json`.

mod bytes;
mod nodes;
mod reduction;
mod resize;
mod rewrites;

use std::collections::{BTreeMap, HashMap};

use super::NAME;
use crate::tensor::Signature;
use crate::{EngineError, LoadRequest, Provider};
use pkgtool_base::source::{FileSource, Pages};
use pkgtool_model::Dim;
use pkgtool_model::onnx::{ModelItem, OnnxNode, StoredTensor, each_item};

pub(super) use bytes::ByteNeeds;
pub(super) use reduction::InputReduction;

/// The settings and checks that a model needs for correct results.
#[derive(Debug, Default)]
pub(super) struct Workarounds {
    /// Names of the optimiser passes to disable.
    pub(super) without: Vec<String>,
    /// Inputs that must not be empty.
    pub(super) empty_checks: Vec<InputReduction>,
    /// The needs of products of bytes.
    pub(super) bytes: ByteNeeds,
}

/// Small tensors that the model stores, by name.
type StoredValues = HashMap<String, StoredTensor>;

/// Operators that are computed wrongly, with the cause.
type WrongOperators = BTreeMap<String, &'static str>;

/// The facts that the walk collects. Names are resolved at the end, because a file may list them in
/// any order.
#[derive(Default)]
struct ModelWalk {
    values: StoredValues,
    found: WrongOperators,
    resizes: Vec<resize::Resize>,
    reductions: Vec<reduction::Reduction>,
    rewrites: rewrites::BrokenPasses,
    bytes: bytes::ByteFacts,
}

/// Checks a model. Rejects it if the provider is known to compute one of its nodes wrongly.
pub(super) fn check(request: &LoadRequest) -> Result<Workarounds, EngineError> {
    let Ok(source) = FileSource::open(&request.model) else {
        // Loading will report the error.
        return Ok(Workarounds::default());
    };
    let provider = request.options.provider;
    let mut walk = ModelWalk::default();
    walk.rewrites.start(&request.signature);
    walk.bytes.start(&request.signature);
    let walked = each_item(&Pages::new(&source), &mut |part| walk.part(part, provider));
    if let Err(error) = walked {
        return Err(EngineError::Load {
            engine: NAME.to_owned(),
            reason: error.to_string(),
        });
    }
    walk.finish(&request.signature, provider)
}

impl ModelWalk {
    fn part(&mut self, part: ModelItem<'_>, provider: Provider) {
        match part {
            ModelItem::Node(node) => self.node(node, provider),
            ModelItem::Stored(name, stored) => self.store(name, stored),
            ModelItem::Output(name) => {
                self.bytes.output(&name);
                self.rewrites.output(name);
            }
            ModelItem::Input(name) => self.bytes.input(name),
            ModelItem::Ir(version) => self.bytes.ir(version),
            ModelItem::Opset(version) => self.bytes.opset(version),
        }
    }

    fn store(&mut self, name: String, stored: StoredTensor) {
        self.bytes.store(&name, &stored);
        if stored.ints.is_some() || stored.floats.is_some() {
            self.values.insert(name, stored);
        }
    }

    fn node(&mut self, node: &OnnxNode, provider: Provider) {
        if node.operator == "Constant" {
            let tensor = node.attribute("value").and_then(|one| one.tensor.clone());
            if let (Some(tensor), Some(name)) = (tensor, node.outputs.first()) {
                self.store(name.clone(), tensor);
            }
            return;
        }
        nodes::check_node(node, provider, &mut self.found);
        // All other providers include the CPU's code or fall back to it.
        if provider != Provider::Qnn {
            self.resizes.extend(resize::Resize::of(node));
            self.reductions.extend(reduction::Reduction::of(node));
        }
        self.rewrites.node(node);
        self.bytes.node(node);
        if node.operator == "LogSoftmax"
            && provider != Provider::Qnn
            && self.rewrites.is_double(node)
        {
            let cause = "the maximum and the sum of float64 lose infinities and NaN";
            self.found.insert(node.operator.clone(), cause);
        }
    }

    fn finish(
        mut self,
        signature: &Signature,
        provider: Provider,
    ) -> Result<Workarounds, EngineError> {
        for resize in &self.resizes {
            if let Some(cause) = resize.cause(&self.values, signature) {
                self.found.insert("Resize".to_owned(), cause);
            }
        }
        let mut direct = Vec::new();
        for reduction in self.reductions {
            if let Some(one) = reduction.over_input(&self.values, signature) {
                if one.axes.is_none() && is_empty(signature, one.input) {
                    self.found.insert(one.operator, reduction::CAUSE);
                } else {
                    direct.push(one);
                }
            }
        }
        if let Some((_, cause)) = self.found.first_key_value() {
            let reason = format!("on the {provider} provider {cause}");
            return Err(refused(self.found.into_keys().collect(), reason));
        }
        Ok(Workarounds {
            bytes: self.bytes.needs(),
            without: self.rewrites.wrong(&self.values, provider),
            empty_checks: direct,
        })
    }
}

/// Returns `true` if an input is always empty.
fn is_empty(signature: &Signature, input: usize) -> bool {
    let dims = signature.inputs[input].dims.as_deref();
    dims.is_some_and(|dims| dims.iter().any(|dim| matches!(dim, Dim::Fixed(0))))
}

/// The error that rejects operators.
fn refused(operators: Vec<String>, reason: String) -> EngineError {
    EngineError::Unsupported {
        engine: NAME.to_owned(),
        operators,
        reason,
    }
}

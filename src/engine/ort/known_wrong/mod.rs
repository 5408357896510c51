//! What ONNX Runtime, or one of its providers, computes wrongly without an error, as far as a file shows it.
//!
//! One walk over the model tells all of it. Nodes that it computes wrongly ([`nodes`], [`resize`],
//! [`reduction`]) are refused, and then another candidate runs the model. Rewrites that make a right
//! graph wrong ([`rewrites`]) are switched off where the model has what they get wrong, so that no other
//! model is slower. What depends on values alone cannot be seen here and is in
//! `tests/conformance/known.json`. Sums that are right on some processors only are in [`bytes`].

mod bytes;
mod nodes;
mod reduction;
mod resize;
mod rewrites;

use std::collections::{BTreeMap, HashMap};

use super::NAME;
use crate::engine::{EngineError, LoadRequest, Provider};
use crate::model::Dim;
use crate::model::onnx::{Node, Part, Stored, each_part};
use crate::source::{FileSource, Pages};
use crate::tensor::Signature;

pub(super) use bytes::ByteNeeds;
pub(super) use reduction::Direct;

/// What has to be done so that a model is answered rightly.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Names of rewrites to leave out.
    pub(super) without: Vec<String>,
    /// Inputs that must not be empty.
    pub(super) direct: Vec<Direct>,
    /// What products of bytes need.
    pub(super) bytes: ByteNeeds,
}

/// Small tensors that the model stores, by name.
type Values = HashMap<String, Stored>;

/// Operators that are computed wrongly, with the cause.
type Found = BTreeMap<String, &'static str>;

/// What the walk gathers; names are resolved when it is over, as a file may have them in any order.
#[derive(Default)]
struct Walk {
    values: Values,
    found: Found,
    resizes: Vec<resize::Resize>,
    reductions: Vec<reduction::Reduction>,
    rewrites: rewrites::Rewrites,
    bytes: bytes::Bytes,
}

/// Looks at a model. It is refused if it has a node that the provider is known to compute wrongly.
pub(super) fn check(request: &LoadRequest) -> Result<Verdict, EngineError> {
    let Ok(source) = FileSource::open(&request.model) else {
        // Loading will say why.
        return Ok(Verdict::default());
    };
    let provider = request.options.provider;
    let mut walk = Walk::default();
    walk.rewrites.start(&request.signature);
    walk.bytes.start(&request.signature);
    let walked = each_part(&Pages::new(&source), &mut |part| walk.part(part, provider));
    if let Err(error) = walked {
        return Err(EngineError::Load {
            engine: NAME.to_owned(),
            reason: error.to_string(),
        });
    }
    walk.finish(&request.signature, provider)
}

impl Walk {
    fn part(&mut self, part: Part<'_>, provider: Provider) {
        match part {
            Part::Node(node) => self.node(node, provider),
            Part::Stored(name, stored) => self.store(name, stored),
            Part::Output(name) => {
                self.bytes.output(&name);
                self.rewrites.output(name);
            }
            Part::Input(name) => self.bytes.input(name),
            Part::Ir(version) => self.bytes.ir(version),
            Part::Opset(version) => self.bytes.opset(version),
        }
    }

    fn store(&mut self, name: String, stored: Stored) {
        self.bytes.store(&name, &stored);
        if stored.ints.is_some() || stored.floats.is_some() {
            self.values.insert(name, stored);
        }
    }

    fn node(&mut self, node: &Node, provider: Provider) {
        if node.operator == "Constant" {
            let tensor = node.attribute("value").and_then(|one| one.tensor.clone());
            if let (Some(tensor), Some(name)) = (tensor, node.outputs.first()) {
                self.store(name.clone(), tensor);
            }
            return;
        }
        nodes::look(node, provider, &mut self.found);
        // Every provider but this one has the CPU's code beside it or in it.
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
            let cause = "what is not finite is lost between the maximum and the sum of float64";
            self.found.insert(node.operator.clone(), cause);
        }
    }

    fn finish(mut self, signature: &Signature, provider: Provider) -> Result<Verdict, EngineError> {
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
        Ok(Verdict {
            bytes: self.bytes.needs(),
            without: self.rewrites.wrong(&self.values, provider),
            direct,
        })
    }
}

/// Whether an input is always empty.
fn is_empty(signature: &Signature, input: usize) -> bool {
    let dims = signature.inputs[input].dims.as_deref();
    dims.is_some_and(|dims| dims.iter().any(|dim| matches!(dim, Dim::Fixed(0))))
}

/// The refusal of operators.
fn refused(operators: Vec<String>, reason: String) -> EngineError {
    EngineError::Unsupported {
        engine: NAME.to_owned(),
        operators,
        reason,
    }
}

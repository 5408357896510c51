//! Derives likely sizes for the open dimensions of an ONNX model from its graph.
//!
//! Dimensions are followed from the inputs through nodes that keep them, up to the first weights,
//! target shapes and strides. Invariant: a suggestion is only a candidate for a trial. Unreadable
//! or unsupported nodes yield no suggestion. The cost is one walk over the nodes.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use super::Axis;
use pkgtool_base::source::{FileSource, Pages};
use pkgtool_model::onnx::{OnnxNode, StoredTensor, each_initializer};

/// Larger sizes are never suggested.
const MAX_SUGGESTED_SIZE: u64 = 1 << 20;

/// A suggested size, and the evidence for it in the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeSuggestion {
    /// The size.
    pub size: u64,
    /// The evidence: ``the weights of `MatMul` have 6 rows``.
    pub why: String,
}

/// Suggestions for the open dimensions, by label.
#[derive(Debug, Default)]
pub struct SizeEvidence {
    /// The first size that the graph requires.
    pub exact: BTreeMap<String, SizeSuggestion>,
    /// A divisor of the size, where strides divide the dimension.
    pub divisor: BTreeMap<String, SizeSuggestion>,
}

/// The dimension at one axis of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
enum AxisDim {
    Size(u64),
    /// An open dimension, with the product of the strides that divided it.
    Open(String, u64),
    /// Several axes merged into one.
    Merged(Vec<AxisDim>),
    Unknown,
}

/// Follows the open dimensions of the inputs; `inputs` holds their names and axes.
pub(super) fn of_onnx(model: &Path, inputs: &[(String, Option<Vec<Axis>>)]) -> SizeEvidence {
    let mut walk = EvidenceWalk::default();
    for (name, axes) in inputs {
        let Some(axes) = axes else { continue };
        let axes = axes.iter().map(|axis| match axis {
            Axis::Fixed(size) => AxisDim::Size(*size),
            Axis::Open(label) => AxisDim::Open(label.clone(), 1),
        });
        walk.tensors.insert(name.clone(), axes.collect());
    }
    let Ok(file) = FileSource::open(model) else {
        return walk.evidence;
    };
    let pages = Pages::new(&file);
    // Loading the model reports broken files, so errors are ignored here.
    let stored = each_initializer(&pages, &mut |name, stored| {
        walk.stored.insert(name, stored);
    });
    if stored.is_ok() {
        let pages = Pages::new(&file);
        let _ = pkgtool_model::onnx::each_node(&pages, &mut |node| walk.node(node));
    }
    walk.evidence
}

#[derive(Default)]
struct EvidenceWalk {
    tensors: HashMap<String, Vec<AxisDim>>,
    stored: HashMap<String, StoredTensor>,
    evidence: SizeEvidence,
}

impl EvidenceWalk {
    fn node(&mut self, node: &OnnxNode) {
        if node.operator == "Constant" {
            let tensor = node.attribute("value").and_then(|it| it.tensor.clone());
            if let (Some(tensor), Some(output)) = (tensor, node.outputs.first()) {
                self.stored.insert(output.clone(), tensor);
            }
            return;
        }
        let made = match node.operator.as_str() {
            "MatMul" => self.mat_mul(node),
            "Gemm" => self.gemm(node),
            "Conv" => self.convolution(node),
            "MaxPool" | "AveragePool" | "LpPool" => self.pool(node),
            "Reshape" => self.reshape(node),
            "Flatten" => self.flatten(node),
            "Transpose" => self.transpose(node),
            "Unsqueeze" => self.unsqueeze(node),
            "Add" | "Sub" | "Mul" | "Div" | "Max" | "Min" | "Pow" | "Where" => self.joined(node),
            "Concat" => self.concat(node),
            "LSTM" | "GRU" | "RNN" => self.recurrent(node),
            "GlobalAveragePool" | "GlobalMaxPool" => self.global(node),
            "BatchNormalization" | "InstanceNormalization" => self.channels(node),
            "Relu" | "LeakyRelu" | "Sigmoid" | "Tanh" | "Cast" | "Identity" | "Clip"
            | "Dropout" | "Softmax" | "LogSoftmax" | "LayerNormalization" | "Gelu" | "Erf"
            | "Exp" | "Log" | "Sqrt" | "Abs" | "Neg" | "HardSwish" | "HardSigmoid" | "Elu"
            | "PRelu" | "Selu" | "QuantizeLinear" | "DequantizeLinear" => self.first(node).cloned(),
            _ => None,
        };
        if let (Some(made), Some(output)) = (made, node.outputs.first()) {
            self.tensors.insert(output.clone(), made);
        }
    }

    fn first(&self, node: &OnnxNode) -> Option<&Vec<AxisDim>> {
        self.tensors.get(node.inputs.first()?)
    }

    fn stored_at(&self, node: &OnnxNode, place: usize) -> Option<&StoredTensor> {
        self.stored.get(node.inputs.get(place)?)
    }

    /// Records that the axis must have the size `size`.
    fn require(&mut self, at: &AxisDim, size: u64, why: impl FnOnce() -> String) {
        let axes = match at {
            AxisDim::Merged(axes) => axes.as_slice(),
            one => std::slice::from_ref(one),
        };
        let why = why();
        for (label, size) in split_product(axes, size) {
            if size > 1 && size <= MAX_SUGGESTED_SIZE && !self.evidence.exact.contains_key(&label) {
                let why = why.clone();
                self.evidence
                    .exact
                    .insert(label, SizeSuggestion { size, why });
            }
        }
    }

    fn mat_mul(&mut self, node: &OnnxNode) -> Option<Vec<AxisDim>> {
        let mut axes = self.first(node)?.clone();
        let weights = self.stored_at(node, 1)?.dims.clone();
        let [.., rows, columns] = weights[..] else {
            return None;
        };
        let last = axes.pop()?;
        self.require(&last, rows, || {
            format!("the weights of a `MatMul` have {rows} rows")
        });
        axes.push(AxisDim::Size(columns));
        Some(axes)
    }

    fn gemm(&mut self, node: &OnnxNode) -> Option<Vec<AxisDim>> {
        let [batch, last] = <[AxisDim; 2]>::try_from(self.first(node)?.clone()).ok()?;
        let [mut rows, mut columns] = self.stored_at(node, 1)?.dims[..] else {
            return None;
        };
        if node.int("transB") != 0 {
            std::mem::swap(&mut rows, &mut columns);
        }
        let (inner, kept) = if node.int("transA") == 0 {
            (last, batch)
        } else {
            (batch, last)
        };
        self.require(&inner, rows, || {
            format!("the weights of a `Gemm` have {rows} rows")
        });
        Some(vec![kept, AxisDim::Size(columns)])
    }

    fn convolution(&mut self, node: &OnnxNode) -> Option<Vec<AxisDim>> {
        let axes = self.first(node)?.clone();
        let weights = self.stored_at(node, 1)?.dims.clone();
        let group = u64::try_from(node.int("group")).unwrap_or(1).max(1);
        let (filters, channels) = (*weights.first()?, *weights.get(1)?);
        let channels = channels.saturating_mul(group);
        self.require(axes.get(1)?, channels, || {
            format!("the filters of a `Conv` have {channels} channels")
        });
        let mut made = self.strided(node, &axes, weights.get(2..)?);
        *made.get_mut(1)? = AxisDim::Size(filters);
        Some(made)
    }

    fn pool(&mut self, node: &OnnxNode) -> Option<Vec<AxisDim>> {
        let axes = self.first(node)?.clone();
        let kernel = node.attribute("kernel_shape")?.ints.iter();
        let kernel: Vec<u64> = kernel
            .filter_map(|size| u64::try_from(*size).ok())
            .collect();
        Some(self.strided(node, &axes, &kernel))
    }

    /// Returns the axes after the channels, divided by the node's strides.
    fn strided(&mut self, node: &OnnxNode, axes: &[AxisDim], kernel: &[u64]) -> Vec<AxisDim> {
        let strides = node.attribute("strides").map(|it| it.ints.clone());
        let strides = strides.unwrap_or_default();
        let mut made = axes.to_vec();
        for (place, at) in made.iter_mut().skip(2).enumerate() {
            let stride = strides.get(place).and_then(|it| u64::try_from(*it).ok());
            let stride = stride.unwrap_or(1).max(1);
            match at {
                AxisDim::Open(label, by) => {
                    let extent = kernel
                        .get(place)
                        .copied()
                        .unwrap_or(1)
                        .min(MAX_SUGGESTED_SIZE);
                    *by = by.saturating_mul(stride).min(MAX_SUGGESTED_SIZE);
                    let size = by.saturating_mul(extent.div_ceil(stride).next_power_of_two());
                    let known = self.evidence.divisor.get(label).map_or(1, |it| it.size);
                    if size > known && size <= MAX_SUGGESTED_SIZE {
                        let why = match *by {
                            1 => format!("a filter of {extent} slides over it"),
                            by => format!("filters slide over it and strides divide it by {by}"),
                        };
                        let suggestion = SizeSuggestion { size, why };
                        self.evidence.divisor.insert(label.clone(), suggestion);
                    }
                }
                AxisDim::Size(size) => *size = size.div_ceil(stride),
                other => *other = AxisDim::Unknown,
            }
        }
        made
    }

    fn reshape(&mut self, node: &OnnxNode) -> Option<Vec<AxisDim>> {
        let axes = self.first(node)?.clone();
        let target = self.stored_at(node, 1)?.ints.clone()?;
        let mut fixed = 1_u64;
        let mut left = axes.clone();
        for (place, size) in target.iter().enumerate() {
            match u64::try_from(*size) {
                // 0 keeps the axis.
                Ok(0) => *left.get_mut(place)? = AxisDim::Size(1),
                Ok(size) => fixed = fixed.saturating_mul(size),
                Err(_) => {}
            }
        }
        let shown = target.iter().map(i64::to_string).collect::<Vec<_>>();
        let why = format!("a `Reshape` makes it [{}]", shown.join(", "));
        self.require(&AxisDim::Merged(left), fixed, || why);
        let made = target.iter().enumerate().map(|(place, size)| match size {
            0 => axes.get(place).cloned().unwrap_or(AxisDim::Unknown),
            size => u64::try_from(*size).map_or(AxisDim::Unknown, AxisDim::Size),
        });
        Some(made.collect())
    }

    fn flatten(&mut self, node: &OnnxNode) -> Option<Vec<AxisDim>> {
        let axes = self.first(node)?.clone();
        let place = node.attribute("axis").and_then(|it| it.int).unwrap_or(1);
        let (before, after) = axes.split_at_checked(usize::try_from(place).ok()?)?;
        Some(vec![merged(before), merged(after)])
    }

    fn transpose(&mut self, node: &OnnxNode) -> Option<Vec<AxisDim>> {
        let axes = self.first(node)?;
        let Some(perm) = node.attribute("perm") else {
            return Some(axes.iter().rev().cloned().collect());
        };
        let places = perm.ints.iter().map(|place| usize::try_from(*place).ok());
        places
            .map(|place| axes.get(place?).cloned())
            .collect::<Option<Vec<AxisDim>>>()
    }

    fn unsqueeze(&mut self, node: &OnnxNode) -> Option<Vec<AxisDim>> {
        let mut axes = self.first(node)?.clone();
        let stored = self.stored_at(node, 1).and_then(|it| it.ints.clone());
        let places = stored.or_else(|| node.attribute("axes").map(|it| it.ints.clone()))?;
        for place in places {
            let place = usize::try_from(place).ok().filter(|it| *it <= axes.len())?;
            axes.insert(place, AxisDim::Size(1));
        }
        Some(axes)
    }

    /// Handles elementwise nodes of two tensors, which are aligned at their last axes.
    fn joined(&mut self, node: &OnnxNode) -> Option<Vec<AxisDim>> {
        let sides = node.inputs.iter().filter_map(|name| {
            let sizes = |it: &StoredTensor| it.dims.iter().copied().map(AxisDim::Size).collect();
            let stored = self.stored.get(name).map(sizes);
            self.tensors.get(name).cloned().or(stored)
        });
        let mut sides: Vec<Vec<AxisDim>> = sides.collect();
        sides.sort_by_key(|axes| std::cmp::Reverse(axes.len()));
        let mut sides = sides.into_iter();
        let mut made = sides.next()?;
        for side in sides {
            for (own, other) in made.iter_mut().rev().zip(side.into_iter().rev()) {
                let operator = &node.operator;
                let why = |size| format!("a `{operator}` joins it with a dimension of {size}");
                match (&*own, &other) {
                    (_, AxisDim::Size(1)) => {}
                    (open, AxisDim::Size(size)) => {
                        self.require(&open.clone(), *size, || why(*size));
                    }
                    (AxisDim::Size(size @ 2..), open) => self.require(open, *size, || why(*size)),
                    (AxisDim::Size(_), _) => *own = other,
                    _ => {}
                }
            }
        }
        Some(made)
    }

    fn concat(&mut self, node: &OnnxNode) -> Option<Vec<AxisDim>> {
        let axis = node.attribute("axis").and_then(|it| it.int)?;
        let sides = node.inputs.iter().filter_map(|name| self.tensors.get(name));
        let sides: Vec<Vec<AxisDim>> = sides.cloned().collect();
        let mut made = sides.first()?.clone();
        let rank = i64::try_from(made.len()).ok()?;
        let axis = usize::try_from(if axis < 0 { axis + rank } else { axis }).ok()?;
        for side in sides.iter().filter(|side| side.len() == made.len()) {
            for place in (0..made.len()).filter(|place| *place != axis) {
                for (one, other) in [(&made[place], &side[place]), (&side[place], &made[place])] {
                    if let AxisDim::Size(size) = other {
                        let size = *size;
                        self.require(one, size, || {
                            format!("a `Concat` joins it with a dimension of {size}")
                        });
                    }
                }
            }
        }
        *made.get_mut(axis)? = AxisDim::Unknown;
        Some(made)
    }

    fn recurrent(&mut self, node: &OnnxNode) -> Option<Vec<AxisDim>> {
        let features = self.first(node)?.get(2)?.clone();
        let size = *self.stored_at(node, 1)?.dims.get(2)?;
        let operator = &node.operator;
        self.require(&features, size, || {
            format!("the weights of the `{operator}` take {size} features")
        });
        None
    }

    fn global(&self, node: &OnnxNode) -> Option<Vec<AxisDim>> {
        let mut axes = self.first(node)?.clone();
        axes.iter_mut()
            .skip(2)
            .for_each(|at| *at = AxisDim::Size(1));
        Some(axes)
    }

    fn channels(&mut self, node: &OnnxNode) -> Option<Vec<AxisDim>> {
        let axes = self.first(node)?.clone();
        let size = *self.stored_at(node, 1)?.dims.first()?;
        let operator = &node.operator;
        self.require(axes.get(1)?, size, || {
            format!("a `{operator}` has {size} channels")
        });
        Some(axes)
    }
}

/// Splits `product` among the open dimensions of `axes`, as far as that is possible. The first of
/// several axes is assumed to be a batch of one, and two remaining ones the sides of a square.
fn split_product(axes: &[AxisDim], product: u64) -> Vec<(String, u64)> {
    let mut rest = product;
    let mut open: Vec<(&String, u64)> = Vec::new();
    for at in axes {
        match at {
            AxisDim::Size(size) => {
                let divided = rest.checked_div(*size).filter(|it| it * size == rest);
                let Some(divided) = divided else {
                    return Vec::new();
                };
                rest = divided;
            }
            AxisDim::Open(label, stride) => open.push((label, *stride)),
            AxisDim::Merged(_) | AxisDim::Unknown => return Vec::new(),
        }
    }
    if open.len() > 1 && matches!(axes.first(), Some(AxisDim::Open(_, 1))) {
        open.remove(0);
    }
    let side = match open.len() {
        1 => rest,
        2 if rest.isqrt().pow(2) == rest => rest.isqrt(),
        _ => return Vec::new(),
    };
    let sizes = open.into_iter();
    sizes
        .map(|(label, stride)| (label.clone(), side.saturating_mul(stride)))
        .collect()
}

fn merged(axes: &[AxisDim]) -> AxisDim {
    match axes {
        [one] => one.clone(),
        axes => {
            let sizes = axes.iter().map(|at| match at {
                AxisDim::Size(size) => Some(*size),
                _ => None,
            });
            let product = sizes.collect::<Option<Vec<u64>>>();
            let product = product.and_then(|sizes| {
                let mut sizes = sizes.into_iter();
                sizes.try_fold(1_u64, u64::checked_mul)
            });
            product.map_or_else(|| AxisDim::Merged(axes.to_vec()), AxisDim::Size)
        }
    }
}

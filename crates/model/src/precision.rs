//! Detects the numeric precision of a model's weights and compares it with the precision token of a
//! config.
//!
//! The analysis uses types and counts only. It covers ONNX initializers and the operators that read
//! them, the constants of ExecuTorch programs, and the tensors in delegate payloads. Invariant:
//! weights are never read. If a part of a model cannot be analysed, [`ModelWeights::is_complete`]
//! is false and no contradiction is reported.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::path::Path;

use super::executorch::body::{BodyValue, Instruction, MethodBody, ProgramBody, TensorData};
use super::executorch::{PayloadSummary, QuantizationScheme, WeightStorage, payload_summary};
use super::onnx::each_node;
use super::{ModelInfo, ModelValue, ValueKind};
use pkgtool_base::source::{FileSource, Pages, ReadAt};

/// Minimum number of elements for a verdict; smaller totals are lookup tables and constants.
const MIN_WEIGHTS: u64 = 1000;
/// Maximum number of delegate payloads analysed per program.
const MAX_PAYLOADS: usize = 4096;

/// Precision of stored numbers, ordered from most to least precise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NumberPrecision {
    /// Floats of at least 32 bits.
    Float32,
    /// 16-bit floats with 11 bits of precision.
    Float16,
    /// 16-bit floats with 8 bits of precision.
    Bfloat16,
    /// Integers of five to eight bits that represent floats, and 8-bit floats.
    EightBits,
    /// Values of at most four bits.
    FourBits,
}

/// The claim that a precision token makes about the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrecisionClaim {
    /// Most weights have this precision.
    Most(NumberPrecision),
    /// Some weights are quantised to this precision.
    Some(NumberPrecision),
    /// Some weights are quantised, to an unspecified precision.
    Quantised,
}

/// The weights of one or more model files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelWeights {
    /// Number of elements by precision, without embedding tables.
    pub elements: BTreeMap<NumberPrecision, u64>,
    /// Number of elements in embedding tables, which are often quantised differently or not at all.
    pub tables: BTreeMap<NumberPrecision, u64>,
    /// Precisions of inputs, outputs and operators.
    pub computation_precisions: BTreeSet<NumberPrecision>,
    /// True if every part of the model could be analysed.
    pub is_complete: bool,
}

impl PrecisionClaim {
    /// Returns the claim of a token; `None` for an unknown token.
    ///
    /// `fp32`, `fp16`, `bf16`: most weights are floats of this type. `int8`, `a8w8`, `8da8w`: some
    /// weights have eight bits. `int4`, `4w`, `8da4w`: some have four. `spinquant` and `qat_lora`
    /// are recipes: some weights are quantised.
    pub fn of_token(token: &str) -> Option<Self> {
        Some(match token {
            "fp32" => Self::Most(NumberPrecision::Float32),
            "fp16" => Self::Most(NumberPrecision::Float16),
            "bf16" => Self::Most(NumberPrecision::Bfloat16),
            "int8" | "a8w8" | "8da8w" => Self::Some(NumberPrecision::EightBits),
            "int4" | "4w" | "8da4w" => Self::Some(NumberPrecision::FourBits),
            "spinquant" | "qat_lora" => Self::Quantised,
            _ => return None,
        })
    }
}

impl ModelWeights {
    /// Returns an empty set of weights.
    pub fn none() -> Self {
        Self {
            elements: BTreeMap::new(),
            tables: BTreeMap::new(),
            computation_precisions: BTreeSet::new(),
            is_complete: true,
        }
    }

    /// Analyses the model at `path`, whose header is described by `info`. Opens the file again only
    /// if `info` is not enough.
    pub fn of(path: &Path, info: &ModelInfo) -> Self {
        let mut weights = Self::none();
        let methods = info.methods.iter().filter(|method| !method.constant);
        for value in methods.flat_map(|method| method.inputs.iter().chain(&method.outputs)) {
            if let ValueKind::Tensor { info, .. } = &value.kind {
                weights
                    .computation_precisions
                    .extend(half(info.element.name()));
            }
        }
        match info.format {
            "executorch" => weights.is_complete &= weights.add_program(path).is_some(),
            "onnx" => weights.add_onnx(path, info),
            "coreml" => weights.add_core_ml(info),
            "gguf" => weights.add_gguf(info),
            "tflite" => weights.add_tflite(info),
            "safetensors" => weights.add_safetensors(info),
            _ => weights.is_complete = false,
        }
        weights
    }

    /// Adds the weights of another file of the same variant.
    pub fn add(&mut self, other: &Self) {
        for (counts, others) in [
            (&mut self.elements, &other.elements),
            (&mut self.tables, &other.tables),
        ] {
            for (kind, count) in others {
                put(counts, *kind, *count);
            }
        }
        self.computation_precisions
            .extend(&other.computation_precisions);
        self.is_complete &= other.is_complete;
    }

    /// Returns the number of weights, including embedding tables.
    pub fn count(&self) -> u64 {
        sum(&self.elements).saturating_add(sum(&self.tables))
    }

    /// Returns the matching token; `None` if too little is known.
    pub fn token(&self) -> Option<&'static str> {
        if !self.is_complete || self.count() < MIN_WEIGHTS {
            return None;
        }
        let weights = if sum(&self.elements) >= MIN_WEIGHTS {
            &self.elements
        } else {
            &self.tables
        };
        let (kind, _) = weights.iter().max_by_key(|(_, count)| **count)?;
        Some(match kind {
            NumberPrecision::Float32 => "fp32",
            NumberPrecision::Float16 => "fp16",
            NumberPrecision::Bfloat16 => "bf16",
            NumberPrecision::EightBits => "int8",
            NumberPrecision::FourBits
                if self
                    .computation_precisions
                    .contains(&NumberPrecision::EightBits) =>
            {
                "8da4w"
            }
            NumberPrecision::FourBits => "4w",
        })
    }

    /// Describes how the weights contradict `meaning`, in words that follow the file's name.
    /// Returns `None` if they agree or too little is known.
    pub fn contradiction(&self, meaning: PrecisionClaim) -> Option<String> {
        if !self.is_complete || self.count() < MIN_WEIGHTS {
            return None;
        }
        let holds = |kind: NumberPrecision| {
            let stored = self.elements.contains_key(&kind) || self.tables.contains_key(&kind);
            stored || self.computation_precisions.contains(&kind)
        };
        let quantised = [NumberPrecision::EightBits, NumberPrecision::FourBits];
        let is_otherwise = match meaning {
            PrecisionClaim::Most(kind) => {
                let total = sum(&self.elements);
                let others = match kind {
                    // Floats of another size may be converted to this one at run time.
                    NumberPrecision::Float16 | NumberPrecision::Bfloat16 if holds(kind) => {
                        self.share(&quantised)
                    }
                    NumberPrecision::Float16 | NumberPrecision::Bfloat16 => {
                        return Some(self.description());
                    }
                    _ => total - self.elements.get(&kind).copied().unwrap_or(0),
                };
                total >= MIN_WEIGHTS && others > total / 2
            }
            PrecisionClaim::Some(kind) => !holds(kind),
            PrecisionClaim::Quantised => !quantised.into_iter().any(holds),
        };
        is_otherwise.then(|| self.description())
    }

    fn share(&self, kinds: &[NumberPrecision]) -> u64 {
        let found = kinds.iter().filter_map(|kind| self.elements.get(kind));
        found.fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Formats as `holds float32 weights only` or `holds weights of 8-bit (97 %), float32 (3 %)`.
    fn description(&self) -> String {
        let mut all = self.elements.clone();
        for (kind, count) in &self.tables {
            put(&mut all, *kind, *count);
        }
        let total = sum(&all).max(1);
        let mut all: Vec<(NumberPrecision, u64)> = all.into_iter().collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        if let [(kind, _)] = all[..] {
            return format!("holds {kind} weights only");
        }
        let parts = all.iter().map(|(kind, count)| {
            let percent = u128::from(*count) * 100 / u128::from(total);
            match percent {
                0 => format!("{kind} (under 1 %)"),
                _ => format!("{kind} ({percent} %)"),
            }
        });
        let parts: Vec<String> = parts.collect();
        format!("holds weights of {}", parts.join(", "))
    }

    /// Analyses an ExecuTorch program; returns `None` if it could not be read.
    fn add_program(&mut self, path: &Path) -> Option<()> {
        let source = FileSource::open(path).ok()?;
        let body = ProgramBody::read(&source).ok()?;
        self.add_body(&source, &body);
        Some(())
    }

    /// Adds the constants and payloads of an ExecuTorch program.
    fn add_body(&mut self, source: &dyn ReadAt, body: &ProgramBody) {
        let mut constants: HashSet<&TensorData> = HashSet::new();
        let mut payloads = HashSet::new();
        for method in &body.methods {
            let uses = WeightUses::of(method);
            self.computation_precisions.extend(&uses.computes);
            for (index, value) in method.values.iter().enumerate() {
                let BodyValue::Tensor(tensor) = value else {
                    continue;
                };
                let is_stored = matches!(
                    tensor.data,
                    TensorData::Constant(_) | TensorData::External(_)
                );
                if !is_stored || !constants.insert(&tensor.data) {
                    continue;
                }
                let dims = tensor.sizes.iter();
                let count = dims.fold(1_u64, |product, dim| product.saturating_mul(*dim));
                let element = tensor.element.name();
                let steps = uses.quantised_precision(index);
                let Some(kind) = float(element).or_else(|| steps.filter(|_| is_byte(element)))
                else {
                    continue;
                };
                let codes = if kind == NumberPrecision::FourBits {
                    2
                } else {
                    1
                };
                let is_table = uses.tables.contains(&index);
                self.put(kind, count.saturating_mul(codes), is_table);
            }
            for delegate in &method.delegates {
                let place = delegate
                    .payload
                    .map(|payload| (payload.offset, payload.size));
                if !payloads.insert((&delegate.id, place)) {
                    continue;
                }
                let known = payloads.len() <= MAX_PAYLOADS;
                let content = known
                    .then(|| payload_summary(source, body, delegate))
                    .flatten();
                match content.map(|payload| payload.content) {
                    Some(Ok(content)) if !content.is_opaque => self.add_content(&content),
                    _ => self.is_complete = false,
                }
            }
        }
    }

    fn add_content(&mut self, content: &PayloadSummary) {
        for (stored, count) in &content.weights {
            if let Some(kind) = of_stored(stored) {
                self.put(kind, count.elements, false);
            }
        }
        for name in content.computation_types.keys() {
            let eight = name.contains("int8").then_some(NumberPrecision::EightBits);
            self.computation_precisions.extend(half(name).or(eight));
        }
    }

    fn add_onnx(&mut self, path: &Path, info: &ModelInfo) {
        let operators = info.methods.iter().flat_map(|method| &method.operators);
        let found: BTreeSet<NumberPrecision> = operators
            .filter_map(|(name, _)| of_operator(name))
            .collect();
        let bits = if found.contains(&NumberPrecision::FourBits) {
            let Some(bits) = block_bits(path) else {
                self.is_complete = false;
                return;
            };
            bits
        } else {
            BTreeSet::new()
        };
        let has_blocks = !bits.is_empty();
        let four = bits.iter().any(|bits| *bits <= 4);
        if bits.iter().any(|bits| *bits > 4) || found.contains(&NumberPrecision::EightBits) {
            self.computation_precisions
                .insert(NumberPrecision::EightBits);
        }
        if four {
            self.computation_precisions
                .insert(NumberPrecision::FourBits);
        }
        for (element, count) in &info.weight_types {
            let kind = match element.as_str() {
                name if is_byte(name) && four => Some(NumberPrecision::FourBits),
                name if is_byte(name) && (has_blocks || !found.is_empty()) => {
                    Some(NumberPrecision::EightBits)
                }
                name => float(name).or_else(|| quantised_only(name)),
            };
            if let Some(kind) = kind {
                let codes = if four && is_byte(element) { 2 } else { 1 };
                self.put(kind, count.saturating_mul(codes), false);
            }
        }
    }

    /// Adds the weights of an ML Program. Weights unpacked by `constexpr_` operations count by
    /// their stored type. Bytes that are indices into a lookup table may have fewer bits, so such
    /// models count as not fully analysed.
    fn add_core_ml(&mut self, info: &ModelInfo) {
        let operators = info
            .methods
            .iter()
            .flat_map(|method| method.operators.keys());
        let packed: Vec<&str> = operators
            .map(String::as_str)
            .filter(|name| name.starts_with("constexpr_"))
            .collect();
        let is_unclear = |name: &&str| name.contains("lut") || name.contains("sparse");
        if packed.iter().any(is_unclear) || info.weight_types.is_empty() {
            self.is_complete = false;
        }
        for (element, count) in &info.weight_types {
            let byte = is_byte(element) && !packed.is_empty();
            let kind = float(element).or_else(|| quantised_only(element));
            if let Some(kind) = kind.or(byte.then_some(NumberPrecision::EightBits)) {
                self.put(kind, *count, false);
            }
        }
    }

    /// Adds the weights of a GGUF file. ggml types carry their bits in their names (`q4_k`,
    /// `iq3_xxs`, `tq1_0`).
    fn add_gguf(&mut self, info: &ModelInfo) {
        for (element, count) in &info.weight_types {
            let quantised = element.trim_start_matches(['i', 't']).strip_prefix('q');
            let bits = quantised.and_then(|rest| rest.chars().next()?.to_digit(10));
            let kind = match (element.as_str(), bits) {
                ("mxfp4" | "nvfp4", _) | (_, Some(0..=4)) => Some(NumberPrecision::FourBits),
                (_, Some(_)) => Some(NumberPrecision::EightBits),
                (name, None) if name.starts_with("ggml type") => {
                    self.is_complete = false;
                    None
                }
                (name, None) => float(name),
            };
            if let Some(kind) = kind {
                self.put(kind, *count, false);
            }
        }
    }

    /// Adds the weights of a TensorFlow Lite model, whose stored 8-bit integers are quantised
    /// values.
    fn add_tflite(&mut self, info: &ModelInfo) {
        for (element, count) in &info.weight_types {
            let byte = is_byte(element).then_some(NumberPrecision::EightBits);
            if let Some(kind) = float(element).or_else(|| quantised_only(element)).or(byte) {
                self.put(kind, *count, false);
            }
        }
        let methods = info.methods.iter();
        let tensors = methods.flat_map(|method| method.inputs.iter().chain(&method.outputs));
        let is_steps =
            |value: &ModelValue| value.tensor().is_some_and(|t| is_byte(t.element.name()));
        if tensors.into_iter().any(is_steps) {
            self.computation_precisions
                .insert(NumberPrecision::EightBits);
        }
    }

    /// Adds the weights of a safetensors file. Its integers may pack codes of any width, which the
    /// header does not record.
    fn add_safetensors(&mut self, info: &ModelInfo) {
        for (element, count) in &info.weight_types {
            match float(element).or_else(|| quantised_only(element)) {
                Some(kind) => self.put(kind, *count, false),
                None => self.is_complete &= *count < MIN_WEIGHTS,
            }
        }
    }

    /// Counts the elements of one tensor. A single number is a constant and does not count as a
    /// weight.
    fn put(&mut self, kind: NumberPrecision, count: u64, is_table: bool) {
        if count > 1 {
            let counts = if is_table {
                &mut self.tables
            } else {
                &mut self.elements
            };
            put(counts, kind, count);
        }
    }
}

/// How a method's instructions use its values.
struct WeightUses {
    /// Values that are embedding tables.
    tables: HashSet<usize>,
    /// Values whose bytes hold two 4-bit codes each.
    packed: HashSet<usize>,
    computes: BTreeSet<NumberPrecision>,
}

impl WeightUses {
    fn of(method: &MethodBody) -> Self {
        let mut uses = Self {
            tables: HashSet::new(),
            packed: HashSet::new(),
            computes: BTreeSet::new(),
        };
        for instruction in &method.instructions {
            let Instruction::Kernel { operator, args } = instruction else {
                continue;
            };
            let name = method.operators.get(*operator).map_or("", String::as_str);
            let kind = of_kernel(name);
            uses.computes.extend(kind);
            if name.contains("embedding") {
                uses.tables.extend(args.first());
            }
            if kind == Some(NumberPrecision::FourBits) {
                uses.packed.extend(args);
            }
        }
        uses
    }

    /// Returns the precision of this value's bytes, if the method quantises.
    fn quantised_precision(&self, value: usize) -> Option<NumberPrecision> {
        if self.packed.contains(&value) {
            return Some(NumberPrecision::FourBits);
        }
        self.computes
            .iter()
            .next()
            .map(|_| NumberPrecision::EightBits)
    }
}

/// Returns the precision that a quantised ExecuTorch operator implies
/// (`quantized_decomposed::embedding_4bit.out`, `torchao::_linear_8bit_act_4bit_weight.out`).
fn of_kernel(name: &str) -> Option<NumberPrecision> {
    let is_quantised = name.starts_with("quantized_decomposed::") || name.starts_with("torchao::");
    let few = ["1bit", "2bit", "3bit", "4bit"];
    if few.iter().any(|bits| name.contains(bits)) {
        Some(NumberPrecision::FourBits)
    } else {
        is_quantised.then_some(NumberPrecision::EightBits)
    }
}

/// Returns the precision that an operator of ONNX or ONNX Runtime implies. An operator whose bits
/// depend on an attribute counts as 4-bit.
pub fn of_operator(operator: &str) -> Option<NumberPrecision> {
    let name = operator.rsplit("::").next().unwrap_or(operator);
    if name.ends_with("NBits") || name.ends_with("Bnb4") || name.starts_with("GatherBlockQuantized")
    {
        return Some(NumberPrecision::FourBits);
    }
    let is_quantized = name.contains("uantize")
        || name.contains("Integer")
        || name.starts_with("QLinear")
        || matches!(
            name,
            "QGemm" | "QAttention" | "QOrderedMatMul" | "QEmbedLayerNormalization"
        );
    is_quantized.then_some(NumberPrecision::EightBits)
}

/// Returns the bit widths that block-quantised nodes state in their attributes; `None` if the file
/// cannot be read again.
fn block_bits(path: &Path) -> Option<BTreeSet<i64>> {
    let source = FileSource::open(path).ok()?;
    let mut found = BTreeSet::new();
    each_node(&Pages::new(&source), &mut |node| {
        if of_operator(&node.operator) == Some(NumberPrecision::FourBits) {
            let bits = node.attribute("bits").and_then(|attribute| attribute.int);
            found.insert(bits.unwrap_or(4));
        }
    })
    .ok()?;
    Some(found)
}

fn of_stored(stored: &WeightStorage) -> Option<NumberPrecision> {
    match stored.scheme {
        QuantizationScheme::Plain => {
            float(&stored.element).or_else(|| quantised_only(&stored.element))
        }
        _ if stored.bits <= 4 => Some(NumberPrecision::FourBits),
        _ if stored.bits <= 8 => Some(NumberPrecision::EightBits),
        _ => None,
    }
}

fn float(element: &str) -> Option<NumberPrecision> {
    match element {
        "float32" | "float64" => Some(NumberPrecision::Float32),
        _ => half(element),
    }
}

fn half(element: &str) -> Option<NumberPrecision> {
    match element {
        "float16" => Some(NumberPrecision::Float16),
        "bfloat16" => Some(NumberPrecision::Bfloat16),
        _ => None,
    }
}

/// Returns the precision of types that only quantised weights use.
fn quantised_only(element: &str) -> Option<NumberPrecision> {
    match element {
        "int4" | "uint4" | "int2" | "uint2" | "uint1" | "uint3" | "float4e2m1" => {
            Some(NumberPrecision::FourBits)
        }
        "uint6" => Some(NumberPrecision::EightBits),
        name if name.starts_with("float8") => Some(NumberPrecision::EightBits),
        _ => None,
    }
}

fn is_byte(element: &str) -> bool {
    matches!(element, "int8" | "uint8")
}

fn put(counts: &mut BTreeMap<NumberPrecision, u64>, kind: NumberPrecision, count: u64) {
    let known = counts.entry(kind).or_default();
    *known = known.saturating_add(count);
}

fn sum(counts: &BTreeMap<NumberPrecision, u64>) -> u64 {
    counts
        .values()
        .fold(0, |sum, count| sum.saturating_add(*count))
}

/// Formats as `float32` or `8-bit`.
impl fmt::Display for NumberPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Float32 => "float32",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
            Self::EightBits => "8-bit",
            Self::FourBits => "4-bit",
        })
    }
}

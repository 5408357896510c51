//! How precise a model's weights are, and what a precision's token says of them.
//!
//! Types and counts only: of ONNX initializers and the operators that read them, of a program's constants, of what
//! payloads of delegates say of their tensors. Invariant: weights are never read; where a part of a model cannot be
//! looked into, the answer says so and contradicts nobody.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::path::Path;

use super::executorch::body::{BodyValue, Instruction, MethodBody, ProgramBody, TensorData};
use super::executorch::{Content, Scheme, Stored, content_of};
use super::onnx::each_node;
use super::{ModelInfo, Value, ValueKind};
use crate::source::{FileSource, Pages, ReadAt};

/// Fewest elements of which a share says something: what is smaller is tables and constants.
const FEWEST: u64 = 1000;
/// Most payloads that are looked into.
const MAX_PAYLOADS: usize = 4096;

/// How precise stored numbers are; the least precise last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Floats of 32 bits or more.
    Float32,
    /// Floats of 16 bits, eleven bits of precision.
    Float16,
    /// Floats of 16 bits, eight bits of precision.
    Bfloat16,
    /// Integers of five to eight bits that stand for floats, and floats of eight bits.
    EightBits,
    /// Four bits at most.
    FourBits,
}

/// What a precision's token says of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// Most weights are of this kind.
    Most(Kind),
    /// There are quantised weights of this kind.
    Some(Kind),
    /// Some are quantised, however.
    Quantised,
}

/// The weights of one or more model files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weights {
    /// Elements by kind, tables of embeddings left out.
    pub elements: BTreeMap<Kind, u64>,
    /// Elements of tables of embeddings, which are often quantised otherwise than the rest, or not at all.
    pub tables: BTreeMap<Kind, u64>,
    /// What inputs, outputs and operators are of.
    pub computes: BTreeSet<Kind>,
    /// Whether all of the model could be looked into.
    pub whole: bool,
}

impl Meaning {
    /// What a token says; `None` where that is not known.
    ///
    /// `fp32`, `fp16`, `bf16`: most weights are such floats. `int8`, `a8w8`, `8da8w`: some weights have eight bits.
    /// `int4`, `4w`, `8da4w`: some have four. `spinquant` and `qat_lora` are recipes: some are quantised.
    pub fn of_token(token: &str) -> Option<Self> {
        Some(match token {
            "fp32" => Self::Most(Kind::Float32),
            "fp16" => Self::Most(Kind::Float16),
            "bf16" => Self::Most(Kind::Bfloat16),
            "int8" | "a8w8" | "8da8w" => Self::Some(Kind::EightBits),
            "int4" | "4w" | "8da4w" => Self::Some(Kind::FourBits),
            "spinquant" | "qat_lora" => Self::Quantised,
            _ => return None,
        })
    }
}

impl Weights {
    /// Those of no model.
    pub fn none() -> Self {
        Self {
            elements: BTreeMap::new(),
            tables: BTreeMap::new(),
            computes: BTreeSet::new(),
            whole: true,
        }
    }

    /// Those of the model at `path`, whose header says `info`. The file is opened again only where its header's
    /// description does not tell.
    pub fn of(path: &Path, info: &ModelInfo) -> Self {
        let mut weights = Self::none();
        let methods = info.methods.iter().filter(|method| !method.constant);
        for value in methods.flat_map(|method| method.inputs.iter().chain(&method.outputs)) {
            if let ValueKind::Tensor { info, .. } = &value.kind {
                weights.computes.extend(half(info.element.name()));
            }
        }
        match info.format {
            "executorch" => weights.whole &= weights.add_program(path).is_some(),
            "onnx" => weights.add_onnx(path, info),
            "coreml" => weights.add_core_ml(info),
            "gguf" => weights.add_gguf(info),
            "tflite" => weights.add_tflite(info),
            "safetensors" => weights.add_safetensors(info),
            _ => weights.whole = false,
        }
        weights
    }

    /// Adds those of another file of the same variant.
    pub fn add(&mut self, other: &Self) {
        for (counts, others) in [
            (&mut self.elements, &other.elements),
            (&mut self.tables, &other.tables),
        ] {
            for (kind, count) in others {
                put(counts, *kind, *count);
            }
        }
        self.computes.extend(&other.computes);
        self.whole &= other.whole;
    }

    /// How many weights there are, tables of embeddings included.
    pub fn count(&self) -> u64 {
        sum(&self.elements).saturating_add(sum(&self.tables))
    }

    /// The token that fits; `None` where too little is known.
    pub fn token(&self) -> Option<&'static str> {
        if !self.whole || self.count() < FEWEST {
            return None;
        }
        let weights = if sum(&self.elements) >= FEWEST {
            &self.elements
        } else {
            &self.tables
        };
        let (kind, _) = weights.iter().max_by_key(|(_, count)| **count)?;
        Some(match kind {
            Kind::Float32 => "fp32",
            Kind::Float16 => "fp16",
            Kind::Bfloat16 => "bf16",
            Kind::EightBits => "int8",
            Kind::FourBits if self.computes.contains(&Kind::EightBits) => "8da4w",
            Kind::FourBits => "4w",
        })
    }

    /// What in them says otherwise than `meaning`, in words that go behind the file's name; `None` where nothing
    /// does, or where too little is known.
    pub fn contradiction(&self, meaning: Meaning) -> Option<String> {
        if !self.whole || self.count() < FEWEST {
            return None;
        }
        let holds = |kind: Kind| {
            let stored = self.elements.contains_key(&kind) || self.tables.contains_key(&kind);
            stored || self.computes.contains(&kind)
        };
        let quantised = [Kind::EightBits, Kind::FourBits];
        let is_otherwise = match meaning {
            Meaning::Most(kind) => {
                let total = sum(&self.elements);
                let others = match kind {
                    // Floats of another size may be computed in this one.
                    Kind::Float16 | Kind::Bfloat16 if holds(kind) => self.share(&quantised),
                    Kind::Float16 | Kind::Bfloat16 => return Some(self.told()),
                    _ => total - self.elements.get(&kind).copied().unwrap_or(0),
                };
                total >= FEWEST && others > total / 2
            }
            Meaning::Some(kind) => !holds(kind),
            Meaning::Quantised => !quantised.into_iter().any(holds),
        };
        is_otherwise.then(|| self.told())
    }

    fn share(&self, kinds: &[Kind]) -> u64 {
        let found = kinds.iter().filter_map(|kind| self.elements.get(kind));
        found.fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// `holds float32 weights`, `holds 8-bit weights (97 %) and float32 weights (3 %)`.
    fn told(&self) -> String {
        let mut all = self.elements.clone();
        for (kind, count) in &self.tables {
            put(&mut all, *kind, *count);
        }
        let total = sum(&all).max(1);
        let mut all: Vec<(Kind, u64)> = all.into_iter().collect();
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

    /// `None` if the program could not be read.
    fn add_program(&mut self, path: &Path) -> Option<()> {
        let source = FileSource::open(path).ok()?;
        let body = ProgramBody::read(&source).ok()?;
        self.add_body(&source, &body);
        Some(())
    }

    /// Adds what a program holds.
    fn add_body(&mut self, source: &dyn ReadAt, body: &ProgramBody) {
        let mut constants: HashSet<&TensorData> = HashSet::new();
        let mut payloads = HashSet::new();
        for method in &body.methods {
            let uses = Uses::of(method);
            self.computes.extend(&uses.computes);
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
                let steps = uses.steps(index);
                let Some(kind) = float(element).or_else(|| steps.filter(|_| is_byte(element)))
                else {
                    continue;
                };
                let codes = if kind == Kind::FourBits { 2 } else { 1 };
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
                let content = known.then(|| content_of(source, body, delegate)).flatten();
                match content.map(|payload| payload.content) {
                    Some(Ok(content)) if !content.is_closed => self.add_content(&content),
                    _ => self.whole = false,
                }
            }
        }
    }

    fn add_content(&mut self, content: &Content) {
        for (stored, count) in &content.weights {
            if let Some(kind) = of_stored(stored) {
                self.put(kind, count.elements, false);
            }
        }
        for name in content.computes.keys() {
            let eight = name.contains("int8").then_some(Kind::EightBits);
            self.computes.extend(half(name).or(eight));
        }
    }

    fn add_onnx(&mut self, path: &Path, info: &ModelInfo) {
        let operators = info.methods.iter().flat_map(|method| &method.operators);
        let found: BTreeSet<Kind> = operators
            .filter_map(|(name, _)| of_operator(name))
            .collect();
        let bits = if found.contains(&Kind::FourBits) {
            let Some(bits) = block_bits(path) else {
                self.whole = false;
                return;
            };
            bits
        } else {
            BTreeSet::new()
        };
        let has_blocks = !bits.is_empty();
        let four = bits.iter().any(|bits| *bits <= 4);
        if bits.iter().any(|bits| *bits > 4) || found.contains(&Kind::EightBits) {
            self.computes.insert(Kind::EightBits);
        }
        if four {
            self.computes.insert(Kind::FourBits);
        }
        for (element, count) in &info.weight_types {
            let kind = match element.as_str() {
                name if is_byte(name) && four => Some(Kind::FourBits),
                name if is_byte(name) && (has_blocks || !found.is_empty()) => Some(Kind::EightBits),
                name => float(name).or_else(|| small(name)),
            };
            if let Some(kind) = kind {
                let codes = if four && is_byte(element) { 2 } else { 1 };
                self.put(kind, count.saturating_mul(codes), false);
            }
        }
    }

    /// Weights of an ML Program; those that `constexpr_` operations unpack are told by their stored type, except
    /// where bytes hold places in a table, which may have fewer bits.
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
            self.whole = false;
        }
        for (element, count) in &info.weight_types {
            let byte = is_byte(element) && !packed.is_empty();
            let kind = float(element).or_else(|| small(element));
            if let Some(kind) = kind.or(byte.then_some(Kind::EightBits)) {
                self.put(kind, *count, false);
            }
        }
    }

    /// Types of ggml have their bits in their names (`q4_k`, `iq3_xxs`, `tq1_0`).
    fn add_gguf(&mut self, info: &ModelInfo) {
        for (element, count) in &info.weight_types {
            let quantised = element.trim_start_matches(['i', 't']).strip_prefix('q');
            let bits = quantised.and_then(|rest| rest.chars().next()?.to_digit(10));
            let kind = match (element.as_str(), bits) {
                ("mxfp4" | "nvfp4", _) | (_, Some(0..=4)) => Some(Kind::FourBits),
                (_, Some(_)) => Some(Kind::EightBits),
                (name, None) if name.starts_with("ggml type") => {
                    self.whole = false;
                    None
                }
                (name, None) => float(name),
            };
            if let Some(kind) = kind {
                self.put(kind, *count, false);
            }
        }
    }

    /// Integers of eight bits that a model of TensorFlow Lite stores are steps.
    fn add_tflite(&mut self, info: &ModelInfo) {
        for (element, count) in &info.weight_types {
            let byte = is_byte(element).then_some(Kind::EightBits);
            if let Some(kind) = float(element).or_else(|| small(element)).or(byte) {
                self.put(kind, *count, false);
            }
        }
        let methods = info.methods.iter();
        let tensors = methods.flat_map(|method| method.inputs.iter().chain(&method.outputs));
        let is_steps = |value: &Value| value.tensor().is_some_and(|t| is_byte(t.element.name()));
        if tensors.into_iter().any(is_steps) {
            self.computes.insert(Kind::EightBits);
        }
    }

    /// Integers may hold codes of any number of bits: what they stand for is told by nobody here.
    fn add_safetensors(&mut self, info: &ModelInfo) {
        for (element, count) in &info.weight_types {
            match float(element).or_else(|| small(element)) {
                Some(kind) => self.put(kind, *count, false),
                None => self.whole &= *count < FEWEST,
            }
        }
    }

    /// A single number is a constant, no weight.
    fn put(&mut self, kind: Kind, count: u64, is_table: bool) {
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

/// What a method's instructions say of its values.
struct Uses {
    /// Tables of embeddings.
    tables: HashSet<usize>,
    /// Bytes that hold two codes.
    packed: HashSet<usize>,
    computes: BTreeSet<Kind>,
}

impl Uses {
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
            if kind == Some(Kind::FourBits) {
                uses.packed.extend(args);
            }
        }
        uses
    }

    /// What bytes of this value are, if the method quantises.
    fn steps(&self, value: usize) -> Option<Kind> {
        if self.packed.contains(&value) {
            return Some(Kind::FourBits);
        }
        self.computes.iter().next().map(|_| Kind::EightBits)
    }
}

/// The precision that an operator of a program is for (`quantized_decomposed::embedding_4bit.out`,
/// `torchao::_linear_8bit_act_4bit_weight.out`).
fn of_kernel(name: &str) -> Option<Kind> {
    let is_quantised = name.starts_with("quantized_decomposed::") || name.starts_with("torchao::");
    let few = ["1bit", "2bit", "3bit", "4bit"];
    if few.iter().any(|bits| name.contains(bits)) {
        Some(Kind::FourBits)
    } else {
        is_quantised.then_some(Kind::EightBits)
    }
}

/// The precision that an operator of ONNX or of ONNX Runtime is for; one whose attribute says the bits is told as
/// being for four.
pub fn of_operator(operator: &str) -> Option<Kind> {
    let name = operator.rsplit("::").next().unwrap_or(operator);
    if name.ends_with("NBits") || name.ends_with("Bnb4") || name.starts_with("GatherBlockQuantized")
    {
        return Some(Kind::FourBits);
    }
    let is_quantized = name.contains("uantize")
        || name.contains("Integer")
        || name.starts_with("QLinear")
        || matches!(
            name,
            "QGemm" | "QAttention" | "QOrderedMatMul" | "QEmbedLayerNormalization"
        );
    is_quantized.then_some(Kind::EightBits)
}

/// The bits in which nodes for blocks of codes have their weights; `None` if the file cannot be read again.
fn block_bits(path: &Path) -> Option<BTreeSet<i64>> {
    let source = FileSource::open(path).ok()?;
    let mut found = BTreeSet::new();
    each_node(&Pages::new(&source), &mut |node| {
        if of_operator(&node.operator) == Some(Kind::FourBits) {
            let bits = node.attribute("bits").and_then(|attribute| attribute.int);
            found.insert(bits.unwrap_or(4));
        }
    })
    .ok()?;
    Some(found)
}

fn of_stored(stored: &Stored) -> Option<Kind> {
    match stored.scheme {
        Scheme::Plain => float(&stored.element).or_else(|| small(&stored.element)),
        _ if stored.bits <= 4 => Some(Kind::FourBits),
        _ if stored.bits <= 8 => Some(Kind::EightBits),
        _ => None,
    }
}

fn float(element: &str) -> Option<Kind> {
    match element {
        "float32" | "float64" => Some(Kind::Float32),
        _ => half(element),
    }
}

fn half(element: &str) -> Option<Kind> {
    match element {
        "float16" => Some(Kind::Float16),
        "bfloat16" => Some(Kind::Bfloat16),
        _ => None,
    }
}

/// Types that nothing but quantised weights has.
fn small(element: &str) -> Option<Kind> {
    match element {
        "int4" | "uint4" | "int2" | "uint2" | "uint1" | "uint3" | "float4e2m1" => {
            Some(Kind::FourBits)
        }
        "uint6" => Some(Kind::EightBits),
        name if name.starts_with("float8") => Some(Kind::EightBits),
        _ => None,
    }
}

fn is_byte(element: &str) -> bool {
    matches!(element, "int8" | "uint8")
}

fn put(counts: &mut BTreeMap<Kind, u64>, kind: Kind, count: u64) {
    let known = counts.entry(kind).or_default();
    *known = known.saturating_add(count);
}

fn sum(counts: &BTreeMap<Kind, u64>) -> u64 {
    counts
        .values()
        .fold(0, |sum, count| sum.saturating_add(*count))
}

/// `float32`, `8-bit`.
impl fmt::Display for Kind {
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

//! Prepares the inputs of a run: converts the user's options, files and values to tensors that fit
//! the model.
//!
//! Invariant: [`check`] accepts the tensors of [`assemble`]. Nothing is allocated before dtype,
//! shape and available memory are checked. Engines and packages are handled elsewhere.

mod argument;
mod dims;
mod error;
mod evidence;
mod expression;
mod extent;
mod files;
mod generator;
mod image;
mod indices;
mod joint;
mod json;
mod memory;
mod relation;
mod slot;
mod steps;
mod trial_sizes;

use std::path::Path;

use argument::{ArgumentValue, GivenValue, InputValues};
use dims::{AxisSize, DimSizes};
use memory::MemoryBudget;

use super::limit::MemoryLimit;
use super::{Signature, Tensor, byte_size};
use pkgtool_model::Allowed;

pub use error::{InputError, InputLabel};
pub use evidence::{SizeEvidence, SizeSuggestion};
pub use extent::{Extent, extents};
pub use generator::Generator;
pub use image::{OpenSides, decode_image};
pub use indices::table_rows;
pub use joint::{JointError, JointModel, JointSignature, match_values};
pub use json::{JsonTensorError, array as json_array};
pub use steps::{FEED_HELP, Feed, MAX_STEPS, RunSteps, STEP_INPUT_HELP, StepArgs};
pub use trial_sizes::{TrialSize, trial_sizes};

/// Help text of `--input`.
pub const INPUT_HELP: &str = "\
Value of an input, as [NAME|INDEX=]VALUE; repeatable. VALUE is a file: .npy; .npz or a JSON object with \
all inputs by name (or an .npz with positional arrays, arr_0, arr_1, …); .bin, raw little-endian \
elements; .json, a nested array (or a flat one for a fixed shape); .png or .jpg, an image. Or it is JSON \
itself: [1,2,3], 5, true. Or it is a generator: zeros, ones, arange, random[:SEED] (floats from -1 to 1, \
integers 0 to 9, 8-bit integers of any value), optionally with a shape: ones@2x3. Without a prefix, \
files go to the inputs in order, and a generator goes to all inputs without a value, except for fixed \
numbers";

/// Help text of `--dim`.
pub const DIM_HELP: &str = "\
Size of an open dimension, as NAME|INDEX=N; repeatable. The default is the size in a given file, or the \
size that follows from others (past + new = total), or the model's upper bound, or 1. NAME is a symbol \
(batch=4, wherever it occurs) or an axis of an input (x[0]=4). INDEX counts the distinct open \
dimensions, shown as -1, from 0 in order of appearance";

/// Help text about image inputs.
pub const IMAGE_HELP: &str = "\
Images are rotated upright (EXIF), stretched to the input's height and width (bilinear), converted to \
grey, RGB or RGBA by the number of channels, and scaled: to 0..1 for floats, then (x - mean) / std; \
unsigned integers keep 0..255, int8 has -128..127";

/// Reason to reject `--mean` and `--std`.
const NO_IMAGE: &str = "no input is an image";

/// The user's arguments for inputs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InputArgs {
    /// Texts of `--input`, in order: see [`INPUT_HELP`].
    pub inputs: Vec<String>,
    /// Texts of `--dim`, in order: see [`DIM_HELP`].
    pub dims: Vec<String>,
    /// Subtracted from an image's values of 0 to 1: empty, one number, or one per channel.
    pub mean: Vec<f32>,
    /// Divisor of the difference: empty, one number, or one per channel; never 0.
    pub std: Vec<f32>,
    /// Generator for inputs without a value; `None` makes them an error.
    pub default: Option<Generator>,
    /// Memory limit of all inputs together; `None` allows all free memory.
    pub memory: Option<MemoryLimit>,
    /// Bytes that other inputs already use and that count towards the limit.
    pub held: u64,
    /// Maximum number of pixels of an image that is larger than its input; `None` leaves only the
    /// memory limit.
    pub pixels: Option<u64>,
}

/// A value that an input has before the user's values are applied.
#[derive(Debug, Clone, PartialEq)]
pub struct InitialValue {
    /// The tensor; `None` stands for zeros.
    pub tensor: Option<Tensor>,
    /// Its source, for error messages.
    pub origin: String,
    /// Axes that are empty unless their size is known otherwise.
    pub empty: Vec<usize>,
}

/// Prepares the inputs of a run, in the signature's order.
///
/// Open dimensions get their sizes from `--dim`, then from given files and shapes, then from `.bin`
/// files and images. The rest get defaults: derived sizes, the upper bound, or 1.
pub fn assemble(signature: &Signature, args: &InputArgs) -> Result<Vec<Tensor>, InputError> {
    assemble_around(signature, args, &[])
}

/// Prepares inputs, some of which (by index) already have values. Their sizes apply to the others.
pub fn assemble_around(
    signature: &Signature,
    args: &InputArgs,
    held: &[Option<InitialValue>],
) -> Result<Vec<Tensor>, InputError> {
    let mut assembly = Assembly::new(signature, args, held)?;
    for text in &args.dims {
        assembly.dims.set(text)?;
    }
    assembly.hold()?;
    let has_value = (0..signature.inputs.len()).map(|input| assembly.held(input).is_some());
    let has_value: Vec<bool> = has_value.collect();
    match argument::read(signature, &args.inputs, &has_value)? {
        InputValues::All(given) => {
            assembly.scale.require_none(NO_IMAGE)?;
            match &given.value {
                ArgumentValue::Json(text) => assembly.json_object(text, &given.origin)?,
                ArgumentValue::Npz(path) => files::npz(&mut assembly, path, &given.origin)?,
                _ => {}
            }
            let each = assembly.begun(vec![None; signature.inputs.len()]);
            assembly.each(&each)?;
            assembly.require_all(&given.origin)?;
        }
        InputValues::Each(each) => {
            let is_image = |given: &GivenValue| matches!(given.value, ArgumentValue::Image(_));
            if !each.iter().flatten().any(is_image) {
                assembly.scale.require_none(NO_IMAGE)?;
            }
            let each = assembly.with_default(assembly.begun(each), args.default)?;
            assembly.each(&each)?;
        }
    }
    let tensors: Vec<Tensor> = assembly.tensors.into_iter().flatten().collect();
    check(signature, &tensors)?;
    Ok(tensors)
}

/// Checks the inputs of a run against the signature: their number, dtypes, ranks, fixed and maximum
/// sizes, and that a symbol has the same size wherever it occurs.
pub fn check(signature: &Signature, inputs: &[Tensor]) -> Result<(), InputError> {
    if inputs.len() != signature.inputs.len() {
        return Err(InputError::Count {
            method: signature.method.clone(),
            expected: signature.inputs.len(),
            found: inputs.len(),
        });
    }
    let mut dims = DimSizes::of(signature);
    for (index, tensor) in inputs.iter().enumerate() {
        dims.fit(index, tensor.dtype(), tensor.shape(), "the tensor given")?;
    }
    Ok(())
}

/// Returns the inputs that have the layout of an image.
pub fn picture_inputs(signature: &Signature) -> Vec<usize> {
    let dims = DimSizes::of(signature);
    let inputs = signature.inputs.iter().enumerate();
    inputs
        .filter(|(input, spec)| image::has_image_layout(&dims, *input, spec.dtype))
        .map(|(input, _)| input)
        .collect()
}

/// Returns the sides of the only image input of a method, if both are open.
pub fn open_sides(signature: &Signature) -> Option<OpenSides> {
    let [input] = picture_inputs(signature)[..] else {
        return None;
    };
    image::open_sides(&DimSizes::of(signature), input)
}

/// Converts an image to a tensor for one input, as [`IMAGE_HELP`] describes. `args`
/// holds `mean` and `std`; `origin` names the image in error messages.
pub fn picture(
    signature: &Signature,
    input: usize,
    bytes: &[u8],
    args: &InputArgs,
    origin: &str,
) -> Result<Tensor, InputError> {
    let mut assembly = Assembly::new(signature, args, &[])?;
    let open = || Ok((std::io::Cursor::new(bytes), bytes.len() as u64));
    image::read(&mut assembly, input, open, origin)
}

/// An open dimension of a method's inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenDim {
    /// Its name for `--dim`: its symbol, or `input[axis]`.
    pub label: String,
    /// Its largest size, if the model states one.
    pub bound: Option<u64>,
    /// The model's declarations of its sizes.
    pub allowed: Vec<Allowed>,
}

impl OpenDim {
    /// Returns its largest size, if it is bounded.
    pub fn largest(&self) -> Option<u64> {
        let declared = self.allowed.iter().map(Allowed::largest);
        declared.chain(self.bound).min()
    }

    /// Returns whether it accepts this size.
    pub fn takes(&self, size: u64) -> bool {
        let is_within = self.bound.is_none_or(|bound| size <= bound);
        is_within && self.allowed.iter().all(|allowed| allowed.has(size))
    }
}

/// An axis of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Axis {
    /// A fixed size.
    Fixed(u64),
    /// An open dimension, by its name for `--dim`.
    Open(String),
}

/// Returns the axes of each input; `None` if its rank is unknown.
pub fn axes(signature: &Signature) -> Vec<Option<Vec<Axis>>> {
    let dims = DimSizes::of(signature);
    let inputs = (0..signature.inputs.len()).map(|input| {
        let axes = dims.axes(input)?.iter().map(|axis| match axis {
            AxisSize::Fixed(size) => Axis::Fixed(*size),
            AxisSize::Slot(_) => Axis::Open(dims.label(*axis).to_owned()),
        });
        Some(axes.collect())
    });
    inputs.collect()
}

/// Returns the sizes that a model's graph suggests for its open dimensions; empty unless it is an
/// ONNX model.
pub fn evidence(model: &Path, signature: &Signature) -> SizeEvidence {
    let names = signature.inputs.iter().map(|spec| spec.name.clone());
    let inputs: Vec<_> = names.zip(axes(signature)).collect();
    evidence::of_onnx(model, &inputs)
}

/// Returns the dimensions that `args` leave open; empty if a given value has a shape of its own.
pub fn open_dims(signature: &Signature, args: &InputArgs) -> Result<Vec<OpenDim>, InputError> {
    let mut dims = DimSizes::of(signature);
    for text in &args.dims {
        dims.set(text)?;
    }
    let free = vec![false; signature.inputs.len()];
    let given = match argument::read(signature, &args.inputs, &free)? {
        InputValues::All(_) => return Ok(Vec::new()),
        InputValues::Each(each) => each,
    };
    let has_shape = |given: &GivenValue| !matches!(given.value, ArgumentValue::Generate(_, None));
    if given.iter().flatten().any(has_shape) {
        return Ok(Vec::new());
    }
    Ok(dims.open())
}

/// The inputs while they are being prepared.
struct Assembly<'s> {
    signature: &'s Signature,
    dims: DimSizes<'s>,
    memory: MemoryBudget,
    scale: image::ImageScale,
    /// Maximum number of pixels of an image that is larger than its input.
    pixels: Option<u64>,
    tensors: Vec<Option<Tensor>>,
    /// Values that inputs have from the start.
    held: &'s [Option<InitialValue>],
}

impl<'s> Assembly<'s> {
    fn new(
        signature: &'s Signature,
        args: &InputArgs,
        held: &'s [Option<InitialValue>],
    ) -> Result<Self, InputError> {
        Ok(Self {
            signature,
            dims: DimSizes::of(signature),
            memory: MemoryBudget::measure(args.memory, args.held),
            pixels: args.pixels,
            scale: image::ImageScale::of(args)?,
            tensors: vec![None; signature.inputs.len()],
            held,
        })
    }

    fn held(&self, input: usize) -> Option<&InitialValue> {
        self.held.get(input).and_then(Option::as_ref)
    }

    /// Takes the tensors that inputs have from the start.
    fn hold(&mut self) -> Result<(), InputError> {
        for input in 0..self.tensors.len() {
            let held = self.held.get(input).and_then(Option::as_ref);
            let Some((held, tensor)) = held.and_then(|held| Some((held, held.tensor.as_ref()?)))
            else {
                continue;
            };
            self.keep(input, tensor.clone(), &held.origin)?;
        }
        Ok(())
    }

    /// Adds zeros for held inputs without a tensor or another value, and the fixed number for
    /// inputs that have one.
    fn begun(&self, each: Vec<Option<GivenValue>>) -> Vec<Option<GivenValue>> {
        let each = each.into_iter().enumerate().map(|(input, given)| {
            if given.is_some() || self.tensors[input].is_some() {
                return given;
            }
            if let Some(held) = self.held(input) {
                return Some(GivenValue {
                    origin: held.origin.clone(),
                    value: ArgumentValue::Generate(Generator::Zeros, None),
                });
            }
            let fixed = self.signature.inputs[input].fixed.as_ref()?;
            Some(GivenValue {
                origin: "the number the program was exported for".to_owned(),
                value: ArgumentValue::Json(fixed.clone()),
            })
        });
        each.collect()
    }

    /// Adds the default, or fails with the inputs that have no value.
    fn with_default(
        &self,
        mut each: Vec<Option<GivenValue>>,
        default: Option<Generator>,
    ) -> Result<Vec<Option<GivenValue>>, InputError> {
        let missing = (0..each.len())
            .filter(|input| each[*input].is_none() && self.tensors[*input].is_none());
        let missing: Vec<usize> = missing.collect();
        let signature = self.signature;
        match default {
            None if !missing.is_empty() => {
                let examples: Vec<String> = missing
                    .iter()
                    .take(4)
                    .map(|input| format!("--input {}=random", signature.inputs[*input].name))
                    .collect();
                let places = missing
                    .iter()
                    .map(|input| InputLabel::of(signature, *input));
                return Err(InputError::Missing {
                    places: places.collect(),
                    example: examples.join(" "),
                });
            }
            None => {}
            Some(default) => {
                for input in missing {
                    each[input] = Some(GivenValue {
                        origin: default.to_string(),
                        value: ArgumentValue::Generate(default, None),
                    });
                }
            }
        }
        Ok(each)
    }

    /// Prepares the inputs, beginning with values that have their own shape.
    fn each(&mut self, each: &[Option<GivenValue>]) -> Result<(), InputError> {
        let some = || {
            let each = each.iter().enumerate();
            each.filter_map(|(input, given)| Some((input, given.as_ref()?)))
        };
        for (input, given) in some() {
            let origin = &given.origin;
            match &given.value {
                ArgumentValue::Npy(path) => {
                    self.tensors[input] = Some(files::npy(self, input, path, origin)?);
                }
                ArgumentValue::Json(text) => {
                    let tensor = self.json(input, text, origin)?;
                    self.keep(input, tensor, origin)?;
                }
                ArgumentValue::Generate(_, Some(shape)) => {
                    let dtype = self.signature.inputs[input].dtype;
                    self.dims.fit(input, dtype, shape, origin)?;
                }
                _ => {}
            }
        }
        for (input, given) in some() {
            match &given.value {
                ArgumentValue::Raw(path) => {
                    self.tensors[input] = Some(files::raw(self, input, path, &given.origin)?);
                }
                ArgumentValue::Image(path) => {
                    let open = || files::open(path);
                    self.tensors[input] = Some(image::read(self, input, open, &given.origin)?);
                }
                _ => {}
            }
        }
        for (input, held) in self.held.iter().enumerate() {
            for axis in held.iter().flat_map(|held| &held.empty) {
                self.dims.empty(input, *axis)?;
            }
        }
        let plans = some().filter_map(|(input, given)| match &given.value {
            ArgumentValue::Generate(generator, shape) => {
                Some((input, *generator, shape, &given.origin))
            }
            _ => None,
        });
        self.generate(plans)
    }

    /// Generates tensors after checking that their total size fits the budget.
    fn generate<'g>(
        &mut self,
        given: impl Iterator<Item = (usize, Generator, &'g Option<Vec<u64>>, &'g String)>,
    ) -> Result<(), InputError> {
        let mut plans = Vec::new();
        let mut needed = 0_u64;
        for (input, generator, shape, origin) in given {
            let shape = match shape {
                Some(shape) => shape.clone(),
                None => self.default_shape(input, origin)?,
            };
            let dtype = self.signature.inputs[input].dtype;
            let bytes =
                byte_size(dtype, &shape).map_err(|error| self.value(input, origin, error))?;
            needed = needed.saturating_add(bytes);
            plans.push((input, generator, shape, origin));
        }
        self.memory.take(needed)?;
        for (input, generator, shape, origin) in plans {
            let dtype = self.signature.inputs[input].dtype;
            let tensor = generator.tensor(dtype, shape, input);
            let tensor = tensor.map_err(|error| self.value(input, origin, error))?;
            self.tensors[input] = Some(tensor);
        }
        Ok(())
    }

    fn default_shape(&self, input: usize, origin: &str) -> Result<Vec<u64>, InputError> {
        let Some(axes) = self.dims.axes(input) else {
            let help = format!("give the shape, such as `{origin}@2x3`, or a file");
            let place = InputLabel::of(self.signature, input);
            return Err(place.value(origin, "the model does not state the input's rank", &help));
        };
        Ok(axes
            .iter()
            .map(|axis| self.dims.or_default(*axis))
            .collect())
    }

    /// Parses a tensor from JSON. A flat list takes the input's shape if that is fixed and has as
    /// many elements.
    fn json(&self, input: usize, text: &str, origin: &str) -> Result<Tensor, InputError> {
        let dtype = self.signature.inputs[input].dtype;
        self.memory.require(json::most_bytes(text, dtype))?;
        let tensor = json::array(text, dtype);
        let help = "give nested arrays of numbers, with rows of equal length";
        let tensor = tensor
            .map_err(|fault| InputLabel::of(self.signature, input).value(origin, fault, help))?;
        Ok(self.unflattened(input, tensor))
    }

    fn unflattened(&self, input: usize, tensor: Tensor) -> Tensor {
        let fixed = self.dims.axes(input).and_then(|axes| {
            let sizes = axes.iter().map(|axis| self.dims.fixed(*axis));
            sizes.collect::<Option<Vec<u64>>>()
        });
        match fixed {
            Some(shape)
                if tensor.shape().len() <= 1
                    && byte_size(tensor.dtype(), &shape) == Ok(tensor.bytes().len() as u64) =>
            {
                tensor.reshaped(shape).expect("the shape has the same size")
            }
            _ => tensor,
        }
    }

    fn json_object(&mut self, text: &str, origin: &str) -> Result<(), InputError> {
        let signature = self.signature;
        let dtype = |key: &str| {
            let input = signature.inputs.iter().find(|input| input.name == key);
            input
                .map(|input| input.dtype)
                .ok_or_else(|| format!("unknown input `{key}`; {}", error::names(signature)))
        };
        let largest = signature.inputs.iter().map(|input| input.dtype);
        let largest = largest.max_by_key(|dtype| dtype.size());
        let largest = largest.map_or(0, |dtype| json::most_bytes(text, dtype));
        self.memory.require(largest)?;
        let members = json::object(text, dtype).map_err(|fault| InputError::Source {
            origin: origin.to_owned(),
            reason: fault.to_string(),
            help: "give an object with one array for each input, by name".to_owned(),
        })?;
        for (name, tensor) in members {
            let inputs = 0..signature.inputs.len();
            for input in inputs.filter(|input| signature.inputs[*input].name == name) {
                let tensor = self.unflattened(input, tensor.clone());
                self.keep(input, tensor, origin)?;
            }
        }
        Ok(())
    }

    /// Fails if an archive or an object left an input without a value.
    fn require_all(&self, origin: &str) -> Result<(), InputError> {
        let missing = self.tensors.iter().position(Option::is_none);
        missing.map_or(Ok(()), |input| {
            let place = InputLabel::of(self.signature, input);
            let help = format!(
                "its keys must be the names of all inputs; {}",
                error::names(self.signature)
            );
            Err(place.value(origin, "no array has this name", &help))
        })
    }

    fn keep(&mut self, input: usize, tensor: Tensor, origin: &str) -> Result<(), InputError> {
        self.dims
            .fit(input, tensor.dtype(), tensor.shape(), origin)?;
        self.memory.take(tensor.bytes().len() as u64)?;
        self.tensors[input] = Some(tensor);
        Ok(())
    }

    /// Creates the error of a value that cannot be converted.
    fn value(&self, input: usize, origin: &str, reason: impl std::fmt::Display) -> InputError {
        let help = "give another value, or smaller sizes with `--dim`";
        InputLabel::of(self.signature, input).value(origin, reason, help)
    }
}

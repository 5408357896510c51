//! One ONNX conformance case: reading it from disk and comparing an engine's outputs with the
//! expected ones.
//!
//! The comparison follows the runner of the `onnx` package, with one addition. Errors up to a few
//! units in the last place of the output's largest value count as rounding, for example in sums
//! whose large terms cancel. The runner's absolute tolerance of 1e-7 does not allow that.

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};

use pkgtool_engine::tensor::{DType, Signature, Tensor};
use serde_json::Value;

/// A conformance case whose tensors are not loaded yet.
#[derive(Debug)]
pub(in crate::engine) struct Case {
    /// The name of the case and of its directory.
    pub(in crate::engine) name: String,
    directory: PathBuf,
    description: Value,
}

/// Inputs or outputs, by name.
pub(in crate::engine) type Values = Vec<(String, Tensor)>;

impl Case {
    /// Returns all cases below a directory, sorted by name.
    pub(in crate::engine) fn all(directory: &Path) -> Vec<Self> {
        let entries = fs::read_dir(directory).expect("the cases are there");
        let mut directories: Vec<PathBuf> = entries
            .map(|entry| entry.expect("the directory can be read").path())
            .filter(|path| path.is_dir())
            .collect();
        directories.sort();
        let read = |directory| Self::read(directory, "case.json");
        directories.into_iter().map(read).collect()
    }

    /// Returns the same case with alternative expected outputs, if its directory contains them.
    pub(in crate::engine) fn other(&self) -> Option<Self> {
        let file = "other.json";
        let is_there = self.directory.join(file).is_file();
        is_there.then(|| Self::read(self.directory.clone(), file))
    }

    /// Returns true if this engine is known to answer a generated case wrongly.
    pub(in crate::engine) fn is_known_of(&self, engine: &str) -> bool {
        let engines = self.description["known_of"].as_array();
        engines.is_some_and(|engines| engines.iter().any(|known| known == engine))
    }

    /// Returns the topic of a generated case.
    pub(in crate::engine) fn label(&self) -> &str {
        self.description["label"].as_str().unwrap_or_default()
    }

    fn read(directory: PathBuf, file: &str) -> Self {
        let text = fs::read_to_string(directory.join(file)).expect("a description");
        let name = directory.file_name().and_then(|name| name.to_str());
        Self {
            name: name.expect("names are ASCII").to_owned(),
            description: serde_json::from_str(&text).expect("generate.py writes JSON"),
            directory,
        }
    }

    /// Returns the path of the model file.
    pub(in crate::engine) fn model(&self) -> PathBuf {
        self.directory.join("model.onnx")
    }

    /// Returns the path of the model with a symbolic first dimension, if that dimension may be a
    /// batch.
    #[cfg(all(feature = "serve", unix))]
    pub(super) fn batched_model(&self) -> Option<PathBuf> {
        let path = self.directory.join("batched.onnx");
        path.is_file().then_some(path)
    }

    /// Returns the version of the default operator set, if the model uses it.
    pub(in crate::engine) fn opset(&self) -> Option<u64> {
        self.description["opset"].as_u64()
    }

    /// Returns the first input or output that is not a tensor of numbers or booleans, if there is
    /// one.
    pub(in crate::engine) fn not_tensors(&self) -> Option<&str> {
        self.description["not_tensors"].as_str()
    }

    /// Reads the inputs and outputs of each data set.
    pub(in crate::engine) fn sets(&self) -> Vec<(Values, Values)> {
        let sets = self.description["sets"].as_array().expect("a list");
        let read = |side: &Value| {
            let values = side.as_array().expect("a list");
            values.iter().map(|value| self.value(value)).collect()
        };
        sets.iter()
            .map(|set| (read(&set["inputs"]), read(&set["outputs"])))
            .collect()
    }

    fn value(&self, value: &Value) -> (String, Tensor) {
        let text = |key: &str| value[key].as_str().expect("a string");
        let shape = value["shape"].as_array().expect("a list");
        let shape = shape.iter().map(|size| size.as_u64().expect("a size"));
        let bytes = fs::read(self.directory.join(text("file"))).expect("a file of bytes");
        let dtype = DType::from_name(text("dtype")).expect("a known dtype");
        let tensor = Tensor::new(dtype, shape.collect(), bytes).expect("the data fits the shape");
        (text("name").to_owned(), tensor)
    }

    /// Returns the difference between an engine's answer and the expected one, if there is any. The
    /// engine computes float32 in `precision`.
    pub(in crate::engine) fn fault(
        &self,
        signature: &Signature,
        precision: DType,
        expected: &Values,
        found: &[Tensor],
    ) -> Option<String> {
        if found.len() != expected.len() {
            return Some(format!("{} outputs, not {}", found.len(), expected.len()));
        }
        let tolerance = Tolerance {
            relative: self.number("rtol"),
            absolute: self.number("atol"),
            precision,
            values: self.description["random"] != true,
        };
        let named = signature.outputs.iter().map(|spec| &spec.name).zip(found);
        expected.iter().find_map(|(name, expected)| {
            let Some((_, found)) = named.clone().find(|(other, _)| *other == name) else {
                return Some(format!("no output `{name}`"));
            };
            let fault = tolerance.fault(expected, found)?;
            Some(format!("output `{name}`: {fault}"))
        })
    }

    fn number(&self, key: &str) -> f64 {
        self.description[key].as_f64().expect("a number")
    }
}

/// Allowed difference between actual and expected outputs.
struct Tolerance {
    relative: f64,
    absolute: f64,
    /// The type in which the engine computes float32.
    precision: DType,
    /// False if values are not compared, because they are random.
    values: bool,
}

impl Tolerance {
    fn fault(&self, expected: &Tensor, found: &Tensor) -> Option<String> {
        if expected.dtype() != found.dtype() || expected.shape() != found.shape() {
            return Some(format!("{found:?}, not {expected:?}"));
        }
        if !self.values || expected.bytes() == found.bytes() {
            return None;
        }
        let rounding = self.rounding(expected.dtype());
        let relative = match expected.dtype() {
            DType::Bfloat16 => self.relative.max(rounding),
            _ => self.relative,
        };
        let finite = expected.to_f64().filter(|value| value.is_finite());
        let largest = finite.fold(0.0, |largest: f64, value| largest.max(value.abs()));
        let absolute = self.absolute.max(rounding * largest);
        let pairs = expected.to_f64().zip(found.to_f64()).enumerate();
        let mut far = pairs.filter(|(_, (expected, found))| {
            let same = expected.partial_cmp(found) == Some(Ordering::Equal);
            let equal = same || expected.is_nan() && found.is_nan();
            let margin = absolute + relative * expected.abs();
            // A comparison with `<=` rejects a NaN difference. An infinite value must match
            // exactly.
            let near = expected.is_finite() && (found - expected).abs() <= margin;
            !(equal || near)
        });
        let (index, (expected_value, value)) = far.next()?;
        Some(format!(
            "{} of {} values, the first at {index}: {value}, not {expected_value}",
            far.count() + 1,
            expected.len()
        ))
    }

    /// Returns the allowed rounding error as a part of the largest value.
    ///
    /// It is eight units in the last place, or two for half precisions, whose sums are kept in a
    /// wider type. Types that are not rounded get 0.
    fn rounding(&self, dtype: DType) -> f64 {
        let (units, bits) = match dtype {
            DType::Bfloat16 => (2.0, 7),
            DType::Float16 => (2.0, 10),
            DType::Float32 if self.precision == DType::Float16 => (2.0, 10),
            DType::Float32 => (8.0, 23),
            DType::Float64 => (8.0, 52),
            _ => return 0.0,
        };
        units * 0.5_f64.powi(bits)
    }
}

#[test]
fn answers_are_compared_as_the_runner_of_the_suite_does() {
    let tolerance = Tolerance {
        relative: 1e-3,
        absolute: 1e-7,
        precision: DType::Float32,
        values: true,
    };
    let tensor = |dtype, values: [f64; 2]| {
        Tensor::from_f64(dtype, vec![2], values).expect("the tensor is valid")
    };
    let fault = |dtype, expected, found| {
        tolerance
            .fault(&tensor(dtype, expected), &tensor(dtype, found))
            .is_some()
    };
    let (nan, infinity) = (f64::NAN, f64::INFINITY);
    assert!(!fault(DType::Float32, [1.0, nan], [1.0009, nan]));
    assert!(fault(DType::Float32, [1.0, 2.0], [1.0, 2.003]));
    assert!(fault(DType::Float32, [1.0, nan], [1.0, 0.0]));
    assert!(fault(DType::Float32, [1.0, 0.0], [1.0, nan]));
    assert!(!fault(DType::Float64, [infinity, 0.0], [infinity, -0.0]));
    assert!(fault(DType::Float64, [infinity, 0.0], [1e300, 0.0]));
    assert!(fault(DType::Float64, [1e300, 0.0], [infinity, 0.0]));
    assert!(!fault(DType::Bfloat16, [1.0, 0.0], [1.007_812_5, 0.0]));
    assert!(fault(DType::Uint8, [200.0, 0.0], [201.0, 0.0]));
    assert!(!fault(DType::Float32, [100.0, 0.0], [100.0, 9e-5]));
    assert!(fault(DType::Float32, [100.0, 0.0], [100.0, 1e-4]));
    let other = Tensor::zeros(DType::Float32, vec![1, 2]).expect("the tensor is valid");
    assert!(
        tolerance
            .fault(&tensor(DType::Float32, [0.0, 0.0]), &other)
            .is_some()
    );
    let random = Tolerance {
        values: false,
        ..tolerance
    };
    let (zero, one) = (
        tensor(DType::Bool, [0.0, 0.0]),
        tensor(DType::Bool, [1.0, 1.0]),
    );
    assert_eq!(random.fault(&zero, &one), None);
}

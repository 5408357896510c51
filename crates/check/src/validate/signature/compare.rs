//! Compares one declared method signature with the corresponding method of the model.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Value as Json, json};

use super::{DifferenceKind, Mismatch, may_fix_tensors};
use crate::validate::listing::listed;
use crate::validate::mend::ValueChange;
use pkgtool_base::package::config::{INPUTS, OUTPUTS};
use pkgtool_base::package::{DType, DeclaredTensor, MethodSignature};
use pkgtool_base::source::JsonPath;
use pkgtool_model::{Dim, Dynamism, ElementType, Method, ModelValue, TensorInfo};

/// The inputs or the outputs of a method.
#[derive(Clone, Copy)]
enum MethodSide {
    Input,
    Output,
}

/// A declared tensor: path of its method, side, index among the tensors, and the model file.
struct TensorPlace<'a> {
    method: &'a JsonPath,
    side: MethodSide,
    index: usize,
    file: &'a str,
}

/// Adds the differences between `declared` and `method` of `file` to `out`.
pub(super) fn method(
    declared: &MethodSignature,
    method: &Method,
    file: &str,
    out: &mut Vec<Mismatch>,
) {
    let none = BTreeSet::new();
    let sides = [
        (
            MethodSide::Input,
            &declared.inputs,
            (&*method.inputs, &method.optional),
        ),
        (
            MethodSide::Output,
            &declared.outputs,
            (&*method.outputs, &none),
        ),
    ];
    for (side, specs, values) in sides {
        if let Some(specs) = specs {
            compare_side(side, specs, values, &declared.path, file, out);
        }
    }
}

fn compare_side(
    side: MethodSide,
    specs: &[DeclaredTensor],
    (values, optional): (&[ModelValue], &BTreeSet<usize>),
    method: &JsonPath,
    file: &str,
    out: &mut Vec<Mismatch>,
) {
    let at = || method.key(side.key());
    let tensors = declared_tensors(specs, values, optional);
    let others: Vec<&str> = values
        .iter()
        .filter(|value| value.tensor().is_none())
        .map(|value| value.kind.name())
        .collect();
    if specs.len() != tensors.len() {
        let may_mend = may_fix_tensors(out, tensors.len());
        let mut mismatch = count_mismatch(side, specs.len(), &tensors, &others, &at(), file);
        let list = may_mend
            .then(|| corrected_list(side, specs, &tensors))
            .flatten();
        mismatch.mend = list.map(|list| ValueChange::replace(at(), list));
        out.push(mismatch);
        return;
    }
    if !others.is_empty() {
        out.push(Mismatch {
            kind: DifferenceKind::Inexpressible,
            path: at(),
            message: format!(
                "`{file}` also has {} that {}: {}",
                counted(others.len(), side.noun()),
                if others.len() == 1 {
                    "is not a tensor"
                } else {
                    "are not tensors"
                },
                listed(others)
            ),
            help: Some(
                "a config can describe only tensors; document the others for callers".to_owned(),
            ),
            mend: None,
        });
    }
    for (index, (spec, (value, info))) in specs.iter().zip(tensors).enumerate() {
        let place = TensorPlace {
            method,
            side,
            index,
            file,
        };
        place.compare(spec, value, info, out);
    }
}

/// Returns the model's tensors that the config declares: all, or all but the optional ones that it
/// leaves out.
fn declared_tensors<'v>(
    specs: &[DeclaredTensor],
    values: &'v [ModelValue],
    optional: &BTreeSet<usize>,
) -> Vec<(&'v ModelValue, &'v TensorInfo)> {
    let tensors = |is_meant: &dyn Fn(usize, &ModelValue) -> bool| -> Vec<_> {
        let values = values.iter().enumerate();
        let meant = values.filter(|(at, value)| is_meant(*at, value));
        meant
            .filter_map(|(_, value)| Some((value, value.tensor()?)))
            .collect()
    };
    let all = tensors(&|_, _| true);
    if optional.is_empty() || specs.len() >= all.len() {
        return all;
    }
    let named: HashSet<&str> = specs
        .iter()
        .filter_map(|spec| spec.name.as_deref())
        .collect();
    let is_named = |value: &ModelValue| {
        let name = value.name.as_deref();
        name.is_some_and(|name| named.contains(name))
    };
    let some = tensors(&|at, value| !optional.contains(&at) || is_named(value));
    // An empty list never means "only the required inputs".
    if some.len() == specs.len() && !some.is_empty() {
        some
    } else {
        all
    }
}

fn count_mismatch(
    side: MethodSide,
    declared: usize,
    tensors: &[(&ModelValue, &TensorInfo)],
    others: &[&str],
    at: &JsonPath,
    file: &str,
) -> Mismatch {
    let beside = if others.is_empty() {
        String::new()
    } else {
        format!(
            " (and {} that a config cannot describe: {})",
            others.len(),
            listed(others)
        )
    };
    let noun = format!("{} tensor", side.noun());
    Mismatch {
        kind: DifferenceKind::Count,
        path: at.clone(),
        message: format!(
            "{} declared, but `{file}` has {}{beside}",
            counted(declared, &noun),
            tensors.len()
        ),
        help: Some(format!(
            "the model's {}s: {}",
            noun,
            listed(tensors.iter().map(|(_, info)| info.to_string()))
        )),
        mend: None,
    }
}

/// Returns the list of the model's tensors to write as a fix. Declared names are kept where the
/// tensor fits, in order.
fn corrected_list(
    side: MethodSide,
    specs: &[DeclaredTensor],
    tensors: &[(&ModelValue, &TensorInfo)],
) -> Option<Json> {
    let mut rest = specs;
    let mut list = Vec::with_capacity(tensors.len());
    for (value, info) in tensors {
        let kept = rest.iter().position(|spec| {
            // Only a name is worth keeping, and only if it identifies the tensor.
            let named = spec.name.is_some() && (spec.name == value.name || value.name.is_none());
            named && fits(side, spec, value, info)
        });
        let mut tensor = serde_json::Map::new();
        let mut shape = info.config_shape()?;
        if let Some(at) = kept {
            tensor.insert("name".to_owned(), json!(rest[at].name));
            shape = rest[at].shape.clone().unwrap_or(shape);
            rest = &rest[at + 1..];
        }
        let ElementType::Known(dtype) = &info.element else {
            return None;
        };
        tensor.insert("shape".to_owned(), json!(shape));
        tensor.insert("dtype".to_owned(), json!(dtype.name()));
        list.push(Json::Object(tensor));
    }
    Some(Json::Array(list))
}

/// Returns whether the declared tensor agrees with the model's tensor.
fn fits(side: MethodSide, spec: &DeclaredTensor, value: &ModelValue, info: &TensorInfo) -> bool {
    let mut differences = Vec::new();
    let place = TensorPlace {
        method: &JsonPath::root(),
        side,
        index: 0,
        file: "",
    };
    place.compare(spec, value, info, &mut differences);
    differences.is_empty()
}

impl MethodSide {
    fn key(self) -> &'static str {
        match self {
            Self::Input => INPUTS,
            Self::Output => OUTPUTS,
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
        }
    }
}

impl TensorPlace<'_> {
    /// Returns the path of a field of the tensor.
    fn path(&self, key: &str) -> JsonPath {
        self.method.key(self.side.key()).index(self.index).key(key)
    }

    fn compare(
        &self,
        spec: &DeclaredTensor,
        value: &ModelValue,
        info: &TensorInfo,
        out: &mut Vec<Mismatch>,
    ) {
        self.compare_name(spec, value, out);
        self.compare_dtype(spec, info, out);
        if let (Some(shape), Some(dims)) = (&spec.shape, &info.dims) {
            out.extend(self.compare_shape(shape, info, dims));
        }
    }

    fn compare_name(&self, spec: &DeclaredTensor, value: &ModelValue, out: &mut Vec<Mismatch>) {
        if let (Some(declared), Some(real)) = (&spec.name, &value.name)
            && declared != real
        {
            out.push(self.mismatch(
                DifferenceKind::Name,
                self.path("name"),
                &format!("is named `{declared}`, but the model names it `{real}`"),
                "keep it if the name is a curated one; otherwise leave `name` out".to_owned(),
                None,
            ));
        }
    }

    fn compare_dtype(&self, spec: &DeclaredTensor, info: &TensorInfo, out: &mut Vec<Mismatch>) {
        let Some(declared) = spec.dtype else { return };
        let path = || self.path("dtype");
        match &info.element {
            ElementType::Known(real) if *real == declared => {}
            ElementType::Known(real) => out.push(self.mismatch(
                DifferenceKind::DType,
                path(),
                &format!("is declared as {declared}, but the model has {real}"),
                format!("write \"dtype\": \"{real}\""),
                Some(ValueChange::replace(path(), real.name())),
            )),
            other => out.push(self.mismatch(
                DifferenceKind::Inexpressible,
                path(),
                &format!(
                    "is {} in the model, which a config cannot express",
                    other.name()
                ),
                format!(
                    "the format's dtypes: {}",
                    DType::configurable().map(DType::name).collect::<Vec<_>>().join(", ")
                ),
                None,
            )),
        }
    }

    fn compare_shape(&self, shape: &[i64], info: &TensorInfo, dims: &[Dim]) -> Option<Mismatch> {
        let path = self.path("shape");
        let write = format!("the model has {info}");
        if shape.len() != dims.len() {
            let message = format!(
                "is declared with {}, but the model's tensor has {}",
                counted(shape.len(), "dimension"),
                dims.len()
            );
            let real = info
                .config_shape()
                .map(|real| ValueChange::replace(path.clone(), real));
            return Some(self.mismatch(DifferenceKind::Rank, path, &message, write, real));
        }
        // A size below -1, or one that is out of range, has its own rule.
        let is_size = |size: &i64| (-1..i64::MAX).contains(size);
        if !shape.iter().all(is_size) {
            let wrong = shape
                .iter()
                .zip(dims)
                .enumerate()
                .filter(|(_, (size, _))| !is_size(size));
            let sizes = wrong.map(|(at, (_, dim))| (path.index(at), Json::from(dim.config_size())));
            let mend = Some(ValueChange::Replace(sizes.collect()));
            return Some(self.mismatch(
                DifferenceKind::Dim,
                path,
                "has an invalid size",
                write,
                mend,
            ));
        }
        if info.dynamism == Dynamism::Unbounded {
            return None;
        }
        let wrong: Vec<(usize, DifferenceKind)> = shape
            .iter()
            .zip(dims)
            .enumerate()
            .filter_map(|(i, (size, dim))| Some((i, dim_mismatch(*size, dim)?)))
            .collect();
        let Some(&(first, _)) = wrong.first() else {
            return self.all_fixed(shape, info, path, write);
        };
        let sizes = wrong.iter().any(|(_, kind)| *kind == DifferenceKind::Shape);
        let kind = if sizes {
            DifferenceKind::Shape
        } else {
            DifferenceKind::Dynamic
        };
        let sizes = wrong
            .iter()
            .map(|(at, _)| (path.index(*at), Json::from(dims[*at].config_size())));
        let mend = ValueChange::Replace(sizes.collect());
        let path = if wrong.len() == 1 {
            path.index(first)
        } else {
            path
        };
        let message = match kind {
            DifferenceKind::Shape => {
                format!("is declared as {shape:?}, but the model's sizes differ")
            }
            _ if shape[first] == -1 => {
                format!("is declared as {shape:?}, but dimension {first} is fixed in the model")
            }
            _ => format!("is declared as {shape:?}, but dimension {first} is dynamic in the model"),
        };
        Some(self.mismatch(kind, path, &message, write, Some(mend)))
    }

    /// Requires at least one dynamic dimension in the declaration of a bounded tensor.
    fn all_fixed(
        &self,
        shape: &[i64],
        info: &TensorInfo,
        path: JsonPath,
        write: String,
    ) -> Option<Mismatch> {
        let is_fixed = info.dynamism == Dynamism::Bounded && !shape.contains(&-1);
        is_fixed.then(|| {
            let message = format!(
                "is declared as {shape:?}, but the model's tensor is dynamic: these are its upper bounds"
            );
            // If the file does not record which dimension is dynamic, the author must choose it, so
            // there is no fix.
            let real = info.config_shape().filter(|real| real.contains(&-1));
            let mend = real.map(|real| ValueChange::replace(path.clone(), real));
            self.mismatch(DifferenceKind::Dynamic, path, &message, write, mend)
        })
    }

    fn mismatch(
        &self,
        kind: DifferenceKind,
        path: JsonPath,
        message: &str,
        help: String,
        mend: Option<ValueChange>,
    ) -> Mismatch {
        let Self {
            side, index, file, ..
        } = self;
        Mismatch {
            kind,
            path,
            message: format!("{} {index} of `{file}` {message}", side.noun()),
            help: Some(help),
            mend,
        }
    }
}

/// Returns how a declared size contradicts the model's dimension, if it does.
fn dim_mismatch(size: i64, dim: &Dim) -> Option<DifferenceKind> {
    let equals = |real: u64| u64::try_from(size) == Ok(real);
    match dim {
        Dim::Fixed(real) if equals(*real) => None,
        Dim::Fixed(_) if size == -1 => Some(DifferenceKind::Dynamic),
        Dim::Fixed(_) => Some(DifferenceKind::Shape),
        Dim::Dynamic { .. } => (size != -1).then_some(DifferenceKind::Dynamic),
        Dim::Maybe { bound, .. } => {
            (size != -1 && !equals(*bound)).then_some(DifferenceKind::Shape)
        }
    }
}

fn counted(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

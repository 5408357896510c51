//! Parses `--input` options, and assigns their values to inputs.
//!
//! Invariant: each input gets at most one value. Nothing is guessed: an ambiguous option is an
//! error that says how to write it. Only JSON files are opened here, to see whether they hold
//! values for all inputs.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::error::{InputLabel, names};
use super::files::open;
use super::{Generator, InputError};
use crate::tensor::Signature;
use pkgtool_base::source::suggest::nearest;

/// Maximum size of a JSON file, in bytes.
const MAX_JSON_BYTES: u64 = 256 << 20;

/// Maximum length of an option in an error message, in characters.
const MAX_SHOWN_CHARS: usize = 200;

const INPUT_OPTION: &str = "--input";

/// The possible values, for error messages.
const VALUE_HELP: &str = "a value is a file (.npy .npz .bin .json .png .jpg .jpeg), zeros, ones, \
    random[:SEED] or arange (each with @2x3 for a shape), or JSON such as [1,2,3]";

/// A value for one input or for all inputs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GivenValue {
    /// The value as the user wrote it.
    pub(super) origin: String,
    /// The parsed value.
    pub(super) value: ArgumentValue,
}

/// A parsed value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ArgumentValue {
    /// A NumPy array file.
    Npy(PathBuf),
    /// A NumPy archive with arrays for all inputs.
    Npz(PathBuf),
    /// Raw little-endian elements.
    Raw(PathBuf),
    /// An image file.
    Image(PathBuf),
    /// JSON text; an object has values for all inputs.
    Json(String),
    /// A generator, with the shape if the user gave one.
    Generate(Generator, Option<Vec<u64>>),
}

/// All parsed values.
#[derive(Debug)]
pub(super) enum InputValues {
    /// One value for all inputs.
    All(GivenValue),
    /// A value for each input; `None` for an input without one.
    Each(Vec<Option<GivenValue>>),
}

impl ArgumentValue {
    fn is_for_all(&self) -> bool {
        match self {
            Self::Npz(_) => true,
            Self::Json(text) => text.trim_start().starts_with('{'),
            _ => false,
        }
    }
}

/// Parses the texts of `--input` options. Inputs that are `held` already have a value, so an option
/// applies to them only if it names them.
pub(super) fn read(
    signature: &Signature,
    texts: &[String],
    held: &[bool],
) -> Result<InputValues, InputError> {
    let mut each: Vec<Option<GivenValue>> = vec![None; signature.inputs.len()];
    let (mut files, mut generators, mut all) = (Vec::new(), Vec::new(), None);
    for text in texts {
        let (input, value) = split(signature, text)?;
        let given = GivenValue {
            origin: cut(value),
            value: parse(text, value)?,
        };
        match input {
            Some(_) if given.value.is_for_all() => {
                let reason = "an archive or an object gives all inputs, not one";
                return Err(refused(text, reason, "omit the prefix before `=`"));
            }
            Some(input) => place(signature, &mut each, input, given)?,
            None if given.value.is_for_all() => all = Some(given),
            None if matches!(given.value, ArgumentValue::Generate(..)) => generators.push(given),
            None => files.push(given),
        }
    }
    if let Some(given) = all {
        if texts.len() == 1 {
            return Ok(InputValues::All(given));
        }
        let reason = "an archive or an object gives all inputs, but there are other values";
        return Err(refused(&given.origin, reason, "give it alone"));
    }
    give_in_order(signature, &mut each, files, held)?;
    generate_rest(signature, &mut each, generators, held)?;
    Ok(InputValues::Each(each))
}

/// Returns the input that a text of `--input` names, if any.
pub(super) fn input_of(signature: &Signature, text: &str) -> Result<Option<usize>, InputError> {
    split(signature, text).map(|(input, _)| input)
}

/// Assigns values without a name to the inputs without one, in order. Inputs with a fixed number
/// are skipped, unless there are enough values for them too.
fn give_in_order(
    signature: &Signature,
    each: &mut [Option<GivenValue>],
    files: Vec<GivenValue>,
    held: &[bool],
) -> Result<(), InputError> {
    let free = (0..each.len()).filter(|input| each[*input].is_none() && !held[*input]);
    let free: Vec<usize> = free.collect();
    let is_open = |input: &usize| signature.inputs[*input].fixed.is_none();
    let open: Vec<usize> = free.iter().copied().filter(is_open).collect();
    let places = if files.len() <= open.len() {
        open
    } else {
        free
    };
    let mut places = places.into_iter();
    for given in files {
        let Some(input) = places.next() else {
            let reason = "every input already has a value";
            return Err(refused(&given.origin, reason, &names(signature)));
        };
        place(signature, each, input, given)?;
    }
    Ok(())
}

/// Lets the only generator make every missing value, except for inputs with a fixed number.
fn generate_rest(
    signature: &Signature,
    each: &mut [Option<GivenValue>],
    generators: Vec<GivenValue>,
    held: &[bool],
) -> Result<(), InputError> {
    let mut generators = generators.into_iter();
    let Some(given) = generators.next() else {
        return Ok(());
    };
    let nobody = held.iter().all(|held| !held);
    if nobody && !each.is_empty() && each.iter().all(Option::is_some) {
        let reason = "every input already has a value";
        return Err(refused(&given.origin, reason, &names(signature)));
    }
    if let Some(second) = generators.next() {
        let reason = "two generators are given for all remaining inputs";
        let advice = format!("name the input of one: NAME={}", second.origin);
        return Err(refused(&second.origin, reason, &advice));
    }
    for (input, slot) in each.iter_mut().enumerate() {
        let is_fixed = signature.inputs[input].fixed.is_some();
        if slot.is_none() && !held[input] && !is_fixed {
            *slot = Some(given.clone());
        }
    }
    Ok(())
}

fn place(
    signature: &Signature,
    each: &mut [Option<GivenValue>],
    input: usize,
    given: GivenValue,
) -> Result<(), InputError> {
    if let Some(first) = &each[input] {
        return Err(InputError::Repeated {
            place: InputLabel::of(signature, input).into(),
            first: first.origin.clone(),
            second: given.origin,
        });
    }
    each[input] = Some(given);
    Ok(())
}

/// Splits `NAME=VALUE` or `INDEX=VALUE` at the last `=` that follows an input's name. Without a
/// name, the whole text is the value, if it can be one.
fn split<'t>(signature: &Signature, text: &'t str) -> Result<(Option<usize>, &'t str), InputError> {
    let inputs = &signature.inputs;
    for (at, _) in text.rmatch_indices('=') {
        let prefix = &text[..at];
        let named = inputs.iter().position(|input| input.name == prefix);
        let place = || prefix.parse().ok().filter(|place| *place < inputs.len());
        if let Some(input) = named.or_else(place) {
            return Ok((Some(input), &text[at + 1..]));
        }
    }
    let Some((prefix, _)) = text.split_once('=') else {
        return Ok((None, text));
    };
    let is_json = text.starts_with(['[', '{', '"']);
    if is_json || Path::new(text).exists() {
        return Ok((None, text));
    }
    let meant = nearest(prefix, inputs.iter().map(|input| input.name.as_str()));
    let meant = meant.map_or_else(String::new, |meant| format!(", did you mean `{meant}`?"));
    let reason = format!("unknown input `{prefix}`, and the whole text is not a file{meant}");
    Err(refused(text, &reason, &names(signature)))
}

/// Parses a value: by its extension, or else as a generator, or else as JSON.
fn parse(argument: &str, text: &str) -> Result<ArgumentValue, InputError> {
    let path = PathBuf::from(text);
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    match extension.to_ascii_lowercase().as_str() {
        "npy" => return Ok(ArgumentValue::Npy(path)),
        "npz" => return Ok(ArgumentValue::Npz(path)),
        "bin" => return Ok(ArgumentValue::Raw(path)),
        "png" | "jpg" | "jpeg" => return Ok(ArgumentValue::Image(path)),
        "json" => {
            let text = read_text(&path).map_err(|reason| InputError::Source {
                origin: text.to_owned(),
                reason,
                help: "give a readable JSON file".to_owned(),
            })?;
            return Ok(ArgumentValue::Json(text));
        }
        _ => {}
    }
    let (name, shape) = match text.split_once('@') {
        Some((name, shape)) => (name, Some(shape)),
        None => (text, None),
    };
    let word = name.split(':').next().unwrap_or_default();
    if Generator::NAMES.contains(&word) {
        let generator = name.parse();
        let generator =
            generator.map_err(|reason: String| refused(argument, &reason, VALUE_HELP))?;
        let shape = shape.map(|shape| read_shape(argument, shape)).transpose()?;
        return Ok(ArgumentValue::Generate(generator, shape));
    }
    let is_json = text.starts_with(|c: char| "[{\"-".contains(c) || c.is_ascii_digit());
    if is_json || matches!(text, "true" | "false") {
        return Ok(ArgumentValue::Json(text.to_owned()));
    }
    let reason = if path.exists() {
        format!("`{text}` has an unsupported file extension")
    } else {
        let meant = nearest(word, Generator::NAMES.into_iter());
        let meant = meant.map_or_else(String::new, |meant| format!(", did you mean `{meant}`?"));
        format!("`{text}` is not a valid value{meant}")
    };
    Err(refused(argument, &reason, VALUE_HELP))
}

/// Parses a shape such as `2x3`; an empty text is a scalar.
fn read_shape(argument: &str, text: &str) -> Result<Vec<u64>, InputError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let sizes: Result<Vec<u64>, _> = text.split('x').map(str::parse).collect();
    sizes.map_err(|_| {
        let help = "write the sizes with x between them, such as ones@2x3; ones@ is a scalar";
        refused(argument, &format!("`{text}` is not a valid shape"), help)
    })
}

fn read_text(path: &Path) -> Result<String, String> {
    let (file, _) = open(path)?;
    let mut text = Vec::new();
    let read = file.take(MAX_JSON_BYTES + 1).read_to_end(&mut text);
    if read.map_err(|error| error.to_string())? as u64 > MAX_JSON_BYTES {
        return Err("too large: expected at most 256 MiB of JSON; use .npy".to_owned());
    }
    String::from_utf8(text).map_err(|error| format!("invalid UTF-8: {error}"))
}

/// Cuts a text for error messages.
fn cut(text: &str) -> String {
    if text.chars().count() <= MAX_SHOWN_CHARS {
        return text.to_owned();
    }
    let start: String = text.chars().take(MAX_SHOWN_CHARS).collect();
    format!("{start}…")
}

fn refused(text: &str, reason: &str, help: &str) -> InputError {
    InputError::Argument {
        option: INPUT_OPTION,
        text: cut(text),
        reason: reason.to_owned(),
        help: help.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{DType, TensorSpec};

    fn signature(names: &[&str]) -> Signature {
        let inputs = names.iter().map(|name| TensorSpec {
            name: (*name).to_owned(),
            dtype: DType::Float32,
            dims: Some(Vec::new()),
            fixed: None,
            pixels: None,
        });
        Signature {
            method: "forward".to_owned(),
            inputs: inputs.collect(),
            outputs: Vec::new(),
        }
    }

    /// Returns the origins of the inputs' values, `-` for none.
    fn given(names: &[&str], texts: &[&str]) -> Result<Vec<String>, String> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let held = vec![false; names.len()];
        match read(&signature(names), &texts, &held).map_err(|error| error.to_string())? {
            InputValues::All(given) => Ok(vec![format!("all {}", given.origin)]),
            InputValues::Each(each) => Ok(each
                .into_iter()
                .map(|given| given.map_or_else(|| "-".to_owned(), |given| given.origin))
                .collect()),
        }
    }

    fn is(names: &[&str], texts: &[&str], expected: &[&str]) {
        let found = given(names, texts).expect("the options are fine");
        assert_eq!(found, expected, "{texts:?}");
    }

    #[test]
    fn values_find_their_inputs() {
        is(&["a"], &["x.npy"], &["x.npy"]);
        is(&["a", "b"], &["x.npy", "y.BIN"], &["x.npy", "y.BIN"]);
        is(&["a", "b"], &["a=x.npy", "y.npy"], &["x.npy", "y.npy"]);
        is(&["a", "b"], &["x.npy", "a=y.npy"], &["y.npy", "x.npy"]);
        is(&["a", "b"], &["1=x.png"], &["-", "x.png"]);
        is(&["a", "b"], &["random:3"], &["random:3", "random:3"]);
        is(&["a", "b"], &["zeros", "b=5"], &["zeros", "5"]);
        is(&["a", "b"], &["x.npz"], &["all x.npz"]);
        is(&["a"], &["{\"a=b\": [1]}"], &["all {\"a=b\": [1]}"]);
        is(&["a"], &["ones@2x3"], &["ones@2x3"]);
        is(&[], &[], &[]);
    }

    #[test]
    fn names_may_have_equal_signs_and_slashes() {
        is(&["a", "a=b"], &["a=b=x.npy"], &["-", "x.npy"]);
        is(&["a"], &["a=b=x.npy"], &["b=x.npy"]);
        is(&["m/x:0"], &["m/x:0=../x.npy"], &["../x.npy"]);
        is(&["1", "0"], &["0=x.npy"], &["-", "x.npy"]);
    }

    #[test]
    fn what_is_unclear_is_refused() {
        for (texts, reason) in [
            (
                &["a=x.npy", "0=y.npy"][..],
                "is given twice: by `x.npy` and by `y.npy`",
            ),
            (
                &["x.npy", "y.npy", "z.npy"],
                "every input already has a value",
            ),
            (&["a=1", "b=1", "zeros"], "every input already has a value"),
            (&["zeros", "ones"], "two generators"),
            (&["mask_=x.npy"], "unknown input `mask_`"),
            (&["a=x.npz"], "omit the prefix"),
            (&["a={}"], "omit the prefix"),
            (&["x.npz", "a=1"], "give it alone"),
            (&["zeroes"], "did you mean `zeros`?"),
            (&["random:x"], "a non-negative integer"),
            (&["ones@2y3"], "not a valid shape"),
            (&["x.txt"], "not a valid value"),
            (&["a="], "not a valid value"),
            (&["Cargo.toml"], "unsupported file extension"),
            (&["none.json"], "none.json"),
        ] {
            let error = given(&["a", "b"], texts).expect_err("it is unclear");
            assert!(error.contains(reason), "{texts:?}: {error}");
        }
    }
}

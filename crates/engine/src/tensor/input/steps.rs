//! Inputs of several steps (runs) of one session, where outputs of one step are fed into inputs of
//! the next.
//!
//! Invariant: the inputs of every step fit the signature. A fed input takes the output of the
//! previous step. In the first step it takes the given value, or else zeros, with an empty growing
//! axis. Memory holds the given values of all steps, and no outputs.

use std::collections::BTreeSet;

use super::argument::{self, ArgumentValue, GivenValue, InputValues};
use super::dims::DimSizes;
use super::error::names;
use super::expression::symbol;
use super::memory::MemoryBudget;
use super::{Assembly, InitialValue, InputArgs, InputError, InputLabel, assemble_around, image};
use crate::tensor::limit::MemoryLimit;
use crate::tensor::{Signature, Tensor, TensorSpec};
use pkgtool_model::Dim;

/// Maximum number of steps.
pub const MAX_STEPS: u32 = 100_000;

const STEPS_OPTION: &str = "--steps";
const STEP_INPUT_OPTION: &str = "--step-input";
const FEED_OPTION: &str = "--feed";

/// Help text of `--step-input`.
pub const STEP_INPUT_HELP: &str = "\
Values of an input for all steps, as [NAME|INDEX=]VALUE; repeatable. VALUE is a .npy or .bin file whose \
first dimension is the steps, or a JSON list (or .json file) with a value for each step. Values in a list \
may differ in shape: tokens=[[[5,8,13]],[[21]],[[34]]]";

/// Help text of `--feed`.
pub const FEED_HELP: &str = "\
Feed an output into an input of the next step, as OUTPUT=INPUT; repeatable. The default is to match \
conventional names: present.N.key and past_key_values.N.key, h_out and h_in, new_state and state, …; \
`none` feeds nothing";

/// Conventional names of a model's external state. Each row holds prefix and suffix of the output,
/// and prefix and suffix of the input; the middle is the same.
const CONVENTIONAL_NAMES: [[&str; 4]; 17] = [
    ["present.", "", "past_key_values.", ""],
    ["present_key_values.", "", "past_key_values.", ""],
    ["present.", "", "past.", ""],
    ["present_", "", "past_", ""],
    ["present", "", "past", ""],
    ["", "_out", "", "_in"],
    ["out_", "", "in_", ""],
    ["new_", "", "", ""],
    ["new_", "", "old_", ""],
    ["next_", "", "", ""],
    ["updated_", "", "", ""],
    ["", "N", "", ""],
    ["", "_n", "", "_0"],
    ["h", "n", "h", "0"],
    ["c", "n", "c", "0"],
    ["h", "n", "h", ""],
    ["c", "n", "c", ""],
];

/// The user's arguments for steps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepArgs {
    /// Number of steps.
    pub count: Option<u32>,
    /// Texts of `--step-input`: see [`STEP_INPUT_HELP`].
    pub values: Vec<String>,
    /// Texts of `--feed`: see [`FEED_HELP`].
    pub feeds: Vec<String>,
}

/// An output that is fed into an input of the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feed {
    /// Index of the output.
    pub output: usize,
    /// Index of the input.
    pub input: usize,
}

/// The steps of a method.
#[derive(Debug)]
pub struct RunSteps<'s> {
    signature: &'s Signature,
    /// The arguments of the first step, and those of later ones, without values for fed inputs.
    first: InputArgs,
    later: InputArgs,
    /// Inputs that the arguments name.
    named: BTreeSet<usize>,
    values: Vec<(usize, Vec<Tensor>)>,
    feeds: Vec<Feed>,
    count: usize,
}

impl<'s> RunSteps<'s> {
    /// Parses the arguments.
    pub fn of(
        signature: &'s Signature,
        args: &InputArgs,
        steps: &StepArgs,
    ) -> Result<Self, InputError> {
        let mut values: Vec<(usize, Vec<Tensor>)> = Vec::new();
        let mut budget = StepBudget {
            limit: args.memory,
            held: args.held,
        };
        for text in &steps.values {
            let (input, tensors) = values_of_steps(signature, text, &mut budget)?;
            if values.iter().any(|(known, _)| *known == input) {
                return Err(refused(
                    STEP_INPUT_OPTION,
                    text,
                    "the input already has values",
                    "give them once",
                ));
            }
            values.push((input, tensors));
        }
        let mut named = BTreeSet::new();
        let mut later = args.clone();
        let mut feeds = feeds(signature, &steps.feeds)?;
        feeds.retain(|feed| values.iter().all(|(input, _)| *input != feed.input));
        later.inputs.clear();
        for text in &args.inputs {
            let input = argument::input_of(signature, text)?;
            if let Some(input) = input
                && values.iter().any(|(known, _)| *known == input)
            {
                return Err(InputError::Repeated {
                    place: InputLabel::of(signature, input).into(),
                    first: STEP_INPUT_OPTION.to_owned(),
                    second: text.clone(),
                });
            }
            named.extend(input);
            if input.is_none_or(|input| feeds.iter().all(|feed| feed.input != input)) {
                later.inputs.push(text.clone());
            }
        }
        Ok(Self {
            signature,
            first: args.clone(),
            later,
            named,
            count: count(signature, steps.count, &values)?,
            values,
            feeds,
        })
    }

    /// Returns the number of steps.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the fed outputs and inputs.
    pub fn feeds(&self) -> &[Feed] {
        &self.feeds
    }

    /// Returns the inputs of a step, counted from 0; `before` holds the outputs of the previous
    /// step.
    pub fn inputs(
        &self,
        step: usize,
        before: Option<&[Tensor]>,
    ) -> Result<Vec<Tensor>, InputError> {
        let mut held: Vec<Option<InitialValue>> = vec![None; self.signature.inputs.len()];
        for (input, tensors) in &self.values {
            held[*input] = Some(InitialValue {
                tensor: tensors.get(step).cloned(),
                origin: format!("its value for step {}", step + 1),
                empty: Vec::new(),
            });
        }
        for feed in &self.feeds {
            let name = &self.signature.outputs[feed.output].name;
            held[feed.input] = match before {
                Some(outputs) => Some(InitialValue {
                    tensor: outputs.get(feed.output).cloned(),
                    origin: format!("output `{name}` of the previous step"),
                    empty: Vec::new(),
                }),
                None if self.named.contains(&feed.input) => None,
                None => Some(InitialValue {
                    tensor: None,
                    origin: "the initial value of the fed input".to_owned(),
                    empty: self.growing(*feed),
                }),
            };
        }
        let args = if before.is_some() {
            &self.later
        } else {
            &self.first
        };
        assemble_around(self.signature, args, &held)
    }

    /// Returns the growing axes of a fed input: they are open, no other input shares their size,
    /// and the output's size differs.
    fn growing(&self, feed: Feed) -> Vec<usize> {
        let input = self.signature.inputs[feed.input].dims.iter().flatten();
        let output = self.signature.outputs[feed.output].dims.as_deref();
        let is_fed = |place: usize| self.feeds.iter().any(|feed| feed.input == place);
        let elsewhere = |name: &str| {
            let inputs = self.signature.inputs.iter().enumerate();
            let mut others = inputs.filter(|(place, _)| !is_fed(*place));
            others.any(|(_, spec)| {
                spec.dims
                    .iter()
                    .flatten()
                    .any(|dim| symbol(dim) == Some(name))
            })
        };
        let grows = |axis: usize, dim: &Dim| {
            let own = symbol(dim);
            let other = output.and_then(|dims| dims.get(axis));
            matches!(dim, Dim::Dynamic { bound: None, .. })
                && !matches!(other, Some(Dim::Fixed(_)))
                && own.is_none_or(|own| !elsewhere(own) && other.and_then(symbol) != Some(own))
        };
        let axes = input.enumerate().filter(|(axis, dim)| grows(*axis, dim));
        axes.map(|(axis, _)| axis).collect()
    }
}

/// Determines the number of steps from all arguments.
fn count(
    signature: &Signature,
    wanted: Option<u32>,
    values: &[(usize, Vec<Tensor>)],
) -> Result<usize, InputError> {
    let mut count = wanted.map(|count| (count as usize, format!("{STEPS_OPTION} {count}")));
    for (input, tensors) in values {
        let name = &signature.inputs[*input].name;
        match &count {
            Some((known, by)) if *known != tensors.len() => {
                let reason = format!("there are {} steps, but {by} gives {known}", tensors.len());
                let help = "give each the same number of values, or omit --steps";
                return Err(refused(STEP_INPUT_OPTION, name, &reason, help));
            }
            _ => count = Some((tensors.len(), format!("{STEP_INPUT_OPTION} of `{name}`"))),
        }
    }
    match count {
        Some((0, by)) => Err(refused(
            STEP_INPUT_OPTION,
            &by,
            "the list has no steps",
            "give at least one",
        )),
        Some((count, _)) => Ok(count),
        None => Err(refused(
            FEED_OPTION,
            "",
            "the number of steps is unknown",
            "add --steps N",
        )),
    }
}

/// Determines which outputs are fed into which inputs.
fn feeds(signature: &Signature, texts: &[String]) -> Result<Vec<Feed>, InputError> {
    match texts {
        [] => return Ok(conventional_feeds(signature)),
        [only] if only == "none" => return Ok(Vec::new()),
        _ => {}
    }
    let mut feeds: Vec<Feed> = Vec::new();
    for text in texts {
        let help = || {
            let outputs = signature
                .outputs
                .iter()
                .map(|spec| format!("`{}`", spec.name));
            let outputs: Vec<String> = outputs.collect();
            format!(
                "write OUTPUT=INPUT; the outputs are {}; {}",
                outputs.join(", "),
                names(signature)
            )
        };
        let place = |specs: &[TensorSpec], name: &str| {
            let named = specs.iter().position(|spec| spec.name == name);
            named.or_else(|| name.parse().ok().filter(|place| *place < specs.len()))
        };
        let feed = text.match_indices('=').find_map(|(at, _)| {
            Some(Feed {
                output: place(&signature.outputs, &text[..at])?,
                input: place(&signature.inputs, &text[at + 1..])?,
            })
        });
        let Some(feed) = feed else {
            return Err(refused(
                FEED_OPTION,
                text,
                "unknown output or input",
                &help(),
            ));
        };
        if feeds.iter().any(|known| known.input == feed.input) {
            return Err(refused(
                FEED_OPTION,
                text,
                "the input is already fed",
                "feed it once",
            ));
        }
        let (output, input) = (
            &signature.outputs[feed.output],
            &signature.inputs[feed.input],
        );
        if !may_feed(output, input) {
            let reason = format!("the output is {output}, but the input is {input}");
            return Err(refused(
                FEED_OPTION,
                text,
                &reason,
                "feed an output that fits the input",
            ));
        }
        feeds.push(feed);
    }
    Ok(feeds)
}

/// Finds feeds by conventional names.
fn conventional_feeds(signature: &Signature) -> Vec<Feed> {
    let mut feeds: Vec<Feed> = Vec::new();
    for (output, spec) in signature.outputs.iter().enumerate() {
        let inputs = CONVENTIONAL_NAMES
            .iter()
            .filter_map(|[begin, end, own_begin, own_end]| {
                let middle = spec.name.strip_prefix(begin)?.strip_suffix(end)?;
                let name = format!("{own_begin}{middle}{own_end}");
                let input = signature
                    .inputs
                    .iter()
                    .position(|input| input.name == name)?;
                may_feed(spec, &signature.inputs[input]).then_some(input)
            });
        let is_free = |input: &usize| feeds.iter().all(|feed| feed.input != *input);
        if let Some(input) = { inputs }.find(is_free) {
            feeds.push(Feed { output, input });
        }
    }
    feeds
}

/// Returns whether dtypes and dimensions allow an output to be fed into an input.
fn may_feed(output: &TensorSpec, input: &TensorSpec) -> bool {
    let (Some(from), Some(to)) = (&output.dims, &input.dims) else {
        return output.dtype == input.dtype;
    };
    let differ = |pair: (&Dim, &Dim)| matches!(pair, (Dim::Fixed(a), Dim::Fixed(b)) if a != b);
    output.dtype == input.dtype && from.len() == to.len() && !from.iter().zip(to).any(differ)
}

/// The memory limit for the values of all steps, and the amount used so far.
struct StepBudget {
    limit: Option<MemoryLimit>,
    held: u64,
}

fn values_of_steps(
    signature: &Signature,
    text: &str,
    budget: &mut StepBudget,
) -> Result<(usize, Vec<Tensor>), InputError> {
    let nobody = vec![false; signature.inputs.len()];
    let read = argument::read(signature, &[text.to_owned()], &nobody);
    let values = read.map_err(|error| match error {
        InputError::Argument {
            text, reason, help, ..
        } => InputError::Argument {
            option: STEP_INPUT_OPTION,
            text,
            reason,
            help,
        },
        other => other,
    })?;
    let each = match values {
        InputValues::Each(each) => each,
        InputValues::All(_) => {
            let reason = "an archive or an object holds all inputs";
            return Err(refused(
                STEP_INPUT_OPTION,
                text,
                reason,
                "give the steps of each input separately",
            ));
        }
    };
    let mut given = each.into_iter().enumerate();
    let mut given = { &mut given }.filter_map(|(input, given)| Some((input, given?)));
    let (Some((input, given)), None) = (given.next(), given.next()) else {
        let reason = "it does not name its input";
        return Err(refused(
            STEP_INPUT_OPTION,
            text,
            reason,
            &format!("write NAME=VALUE; {}", names(signature)),
        ));
    };
    let spec = &signature.inputs[input];
    let tensors = match &given.value {
        ArgumentValue::Json(json) => of_json(signature, input, json, &given, budget)?,
        _ => of_array(signature, spec, given, budget)?,
    };
    Ok((input, tensors))
}

fn of_json(
    signature: &Signature,
    input: usize,
    json: &str,
    given: &GivenValue,
    budget: &mut StepBudget,
) -> Result<Vec<Tensor>, InputError> {
    let spec = &signature.inputs[input];
    let Some(elements) = elements(json) else {
        let help = "write a list with a value for each step: [[1, 2], [3]]";
        return Err(InputLabel::of(signature, input).value(
            &given.origin,
            "expected a list of steps",
            help,
        ));
    };
    check_count(elements.len() as u64)?;
    let elements = elements.into_iter().enumerate().map(|(step, element)| {
        let given = GivenValue {
            origin: format!("step {} of {}", step + 1, given.origin),
            value: ArgumentValue::Json(element.to_owned()),
        };
        single_tensor(signature, spec.clone(), given, budget)
    });
    elements.collect()
}

/// Splits a JSON list into its elements; `None` if the text is not a list.
fn elements(json: &str) -> Option<Vec<&str>> {
    let inner = json.trim().strip_prefix('[')?.strip_suffix(']')?;
    let (mut elements, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    let (mut in_string, mut escaped) = (false, false);
    for (at, byte) in inner.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                elements.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if depth > 0 || in_string {
        return None;
    }
    if !(elements.is_empty() && inner[start..].trim().is_empty()) {
        elements.push(&inner[start..]);
    }
    Some(elements)
}

/// Splits an array along its first dimension into steps.
fn of_array(
    signature: &Signature,
    spec: &TensorSpec,
    given: GivenValue,
    budget: &mut StepBudget,
) -> Result<Vec<Tensor>, InputError> {
    let steps = Dim::Dynamic {
        allowed: None,
        bound: Some(u64::from(MAX_STEPS)),
        name: None,
    };
    let mut stepped = spec.clone();
    if let Some(dims) = &mut stepped.dims {
        dims.insert(0, steps);
    }
    let tensor = single_tensor(signature, stepped, given, budget)?;
    let Some((count, shape)) = tensor.shape().split_first() else {
        let reason = "it has no dimension for steps";
        return Err(refused(
            STEP_INPUT_OPTION,
            &spec.name,
            reason,
            "make the steps the first dimension",
        ));
    };
    check_count(*count)?;
    let count = usize::try_from(*count).unwrap_or(0);
    let size = tensor.bytes().len() / count.max(1);
    let rows = (0..count).map(|step| {
        let bytes = tensor.bytes()[step * size..(step + 1) * size].to_vec();
        Tensor::new(spec.dtype, shape.to_vec(), bytes).expect("the slice is a whole row")
    });
    Ok(rows.collect())
}

fn check_count(count: u64) -> Result<(), InputError> {
    if count <= u64::from(MAX_STEPS) {
        return Ok(());
    }
    let reason = format!("too many steps: expected at most {MAX_STEPS}, got {count}");
    Err(refused(STEP_INPUT_OPTION, "", &reason, "give fewer steps"))
}

/// Builds the tensor of one value for one input.
fn single_tensor(
    signature: &Signature,
    spec: TensorSpec,
    given: GivenValue,
    budget: &mut StepBudget,
) -> Result<Tensor, InputError> {
    let alone = Signature {
        method: signature.method.clone(),
        inputs: vec![spec],
        outputs: Vec::new(),
    };
    let mut assembly = Assembly {
        signature: &alone,
        dims: DimSizes::of(&alone),
        memory: MemoryBudget::measure(budget.limit, budget.held),
        pixels: None,
        scale: image::ImageScale::of(&InputArgs::default())?,
        tensors: vec![None],
        held: &[],
    };
    assembly.each(&[Some(given)])?;
    let tensor = assembly.tensors.remove(0);
    let tensor = tensor.expect("one value yields one tensor");
    budget.held = budget.held.saturating_add(tensor.bytes().len() as u64);
    Ok(tensor)
}

fn refused(option: &'static str, text: &str, reason: &str, help: &str) -> InputError {
    InputError::Argument {
        option,
        text: text.chars().take(200).collect(),
        reason: reason.to_owned(),
        help: help.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_split_where_its_elements_end() {
        for (text, expected) in [
            ("[]", Some(&[][..])),
            ("[1]", Some(&["1"])),
            (" [[1,2],[3]] ", Some(&["[1,2]", "[3]"])),
            (r#"["a,]\"",2]"#, Some(&[r#""a,]\"""#, "2"])),
            ("[1,]", Some(&["1", ""])),
            ("[[1]", None),
            ("[]]", None),
            ("5", None),
        ] {
            assert_eq!(elements(text).as_deref(), expected, "{text}");
        }
    }
}

//! Reads a recipe from TOML, and checks it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value as Json;
use toml::Spanned;

use super::faults::{Faults, RecipeError, suits};
use super::pattern::is_name;
use super::repeat::WindowRepeat;
use super::replaced;
use super::step::{RecipeStep, StepArgument};
use super::{Match, Preset, Recipe, TensorPattern};
use crate::kind::MediaKind;
use crate::operators::{self, DataKind, ParameterKind};

/// Maximum size of a recipe, in bytes.
pub(super) const MAX_BYTES: usize = 256 << 10;

/// Maximum number of steps of each side.
const MAX_STEPS: usize = 64;

/// Keys of a step that are not parameters.
const STEP_KEYS: [&str; 3] = ["step", "from", "to"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecipeText {
    name: String,
    summary: String,
    source: String,
    then: Option<String>,
    #[serde(default, rename = "for")]
    only: Vec<String>,
    #[serde(rename = "match")]
    matches: Spanned<MatchText>,
    #[serde(default)]
    values: BTreeMap<String, toml::Value>,
    #[serde(default, rename = "preset")]
    presets: Vec<Spanned<PresetText>>,
    repeat: Option<Spanned<WindowRepeat>>,
    decode: Option<Spanned<DecodeText>>,
    denoise: Option<Spanned<DecodeText>>,
    paint: Option<Spanned<DecodeText>>,
    #[serde(default)]
    between: Vec<Spanned<toml::Table>>,
    prepare: Vec<Spanned<toml::Table>>,
    interpret: Vec<Spanned<toml::Table>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MatchText {
    capability: String,
    component: Option<String>,
    #[serde(default)]
    methods: Vec<String>,
    inputs: Vec<Spanned<String>>,
    outputs: Vec<Spanned<String>>,
    #[serde(default)]
    ascending: Vec<String>,
}

/// A model that an answer needs beside the one of `match`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DecodeText {
    component: Option<String>,
    #[serde(default)]
    methods: Vec<String>,
    inputs: Vec<Spanned<String>>,
    outputs: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PresetText {
    #[serde(rename = "for")]
    names: Vec<String>,
    source: Option<String>,
    values: BTreeMap<String, toml::Value>,
}

impl Recipe {
    /// Reads and checks a recipe; `file` names it in errors. `base` finds the recipe whose values the text replaces,
    /// if it names one.
    pub(super) fn parse_with(
        file: &str,
        text: &str,
        base: impl Fn(&str) -> Option<Self>,
    ) -> Result<Self, RecipeError> {
        let faults = Faults { file, text };
        if text.len() > MAX_BYTES {
            return Err(faults.whole(format!(
                "too large: expected at most {} KiB",
                MAX_BYTES >> 10
            )));
        }
        let table: toml::Table = faults.parsed(toml::from_str(text))?;
        if table.contains_key("base") {
            return replaced::read(&faults, base);
        }
        let read: RecipeText = faults.parsed(toml::from_str(text))?;
        let values = to_json(read.values);
        let at = read.matches.span().start;
        let matches = read.matches.into_inner();
        let matches = Match {
            inputs: faults.tensors(&matches.inputs)?,
            outputs: faults.tensors(&matches.outputs)?,
            capability: matches.capability,
            component: matches.component,
            methods: matches.methods,
            ascending: matches.ascending,
        };
        let decode_at = read.decode.as_ref().map_or(at, |it| it.span().start);
        let decode = read.decode.map(|decode| decoder(&faults, decode, &matches));
        let decode = decode.transpose()?;
        let beside = |text: Option<Spanned<DecodeText>>| {
            let read = text.map(|text| decoder(&faults, text, &matches));
            read.transpose()
        };
        let diffusion = match (beside(read.denoise)?, beside(read.paint)?) {
            (Some(denoise), Some(paint)) => Some([denoise, paint]),
            (None, None) => None,
            _ => {
                let reason = "the tables `denoise` and `paint` need each other";
                return Err(faults.whole(reason));
            }
        };
        let names = matches.inputs.iter().chain(&matches.outputs);
        let mut names: Vec<&str> = names.map(|tensor| tensor.name.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.iter().zip(names.iter().skip(1)).find(|(a, b)| a == b) {
            return Err(faults.at(at, format!("two tensors have the name `{}`", twice.0)));
        }
        let presets = presets(&faults, read.presets, &values)?;
        let check = StepCheck {
            faults,
            values: &values,
            presets: &presets,
        };
        let takes = takes(&read.prepare);
        let (given, kind) = given(takes);
        let start = BTreeMap::from([(given.to_owned(), kind)]);
        let prepare = check.steps(&read.prepare, start, given, "prepare")?;
        let repeat = check.repeat(read.repeat, &matches, takes)?;
        check.has_inputs(&matches.inputs, repeat.as_ref(), &prepare, at)?;
        let synthesizer = decode.as_ref().filter(|_| takes == MediaKind::Text);
        let between = check.between(&read.between, synthesizer, (&matches, &prepare), decode_at)?;
        let (outputs, first) = synthesizer.unwrap_or(&matches).given_outputs();
        let start = outputs.collect();
        let interpret = check.steps(&read.interpret, start, first, "interpret")?;
        let Some(DataKind::Answer(answer)) = interpret.last().map(|step| step.operator.to) else {
            let makers = operators::answering();
            return Err(check.faults.whole(format!(
                "the last step of `interpret` makes no answer: end with one of {makers}"
            )));
        };
        if takes == MediaKind::Sound {
            let checked = decode
                .as_ref()
                .map_or(Ok(()), |it| it.check_decoder(&matches));
            checked.map_err(|reason| check.faults.at(decode_at, reason))?;
        }
        let decodes = decode.is_some() && takes != MediaKind::Text;
        let suited = suits(
            answer,
            (takes, decodes),
            (read.then.is_some(), diffusion.is_some()),
        );
        suited.map_err(|reason| check.faults.whole(reason))?;
        Ok(Self {
            name: read.name,
            summary: read.summary,
            source: read.source,
            then: read.then,
            only: read.only,
            file: file.to_owned(),
            matches,
            presets,
            decode,
            diffusion,
            between,
            takes,
            repeat,
            prepare,
            interpret,
            answer,
            values,
        })
    }
}

/// Reads the decoder for what `encode` gives.
fn decoder(
    faults: &Faults<'_>,
    text: Spanned<DecodeText>,
    encode: &Match,
) -> Result<Match, RecipeError> {
    let text = text.into_inner();
    Ok(Match {
        inputs: faults.tensors(&text.inputs)?,
        outputs: faults.tensors(&text.outputs)?,
        capability: encode.capability.clone(),
        component: text.component,
        methods: text.methods,
        ascending: Vec::new(),
    })
}

/// Name of the picture, which the first step of `prepare` reads.
pub(super) const PICTURE: &str = "picture";

/// Name of the sound, which the first step of `prepare` reads.
pub(super) const SOUND: &str = "sound";

/// Name of the text, which the first step of `prepare` reads.
pub(super) const TEXT: &str = "text";

/// Returns the kind of what the first step reads. A picture, if that step has a fault.
fn takes(prepare: &[Spanned<toml::Table>]) -> MediaKind {
    let mut steps = prepare.iter().filter_map(|step| {
        let operator = operators::find(step.get_ref().get("step")?.as_str()?)?;
        operator.from.first()
    });
    match steps.next() {
        Some(DataKind::Sound) => MediaKind::Sound,
        Some(DataKind::Text) => MediaKind::Text,
        _ => MediaKind::Picture,
    }
}

/// Returns the name of what steps start with, and its kind for them.
fn given(takes: MediaKind) -> (&'static str, DataKind) {
    match takes {
        MediaKind::Picture => (PICTURE, DataKind::Picture),
        MediaKind::Sound => (SOUND, DataKind::Sound),
        MediaKind::Text => (TEXT, DataKind::Text),
    }
}

fn to_json(values: BTreeMap<String, toml::Value>) -> BTreeMap<String, Json> {
    let values = values.into_iter();
    // A date becomes a text, which no parameter accepts.
    values
        .map(|(name, value)| (name, serde_json::to_value(value).unwrap_or_default()))
        .collect()
}

fn presets(
    faults: &Faults<'_>,
    texts: Vec<Spanned<PresetText>>,
    values: &BTreeMap<String, Json>,
) -> Result<Vec<Preset>, RecipeError> {
    let presets = texts.into_iter().map(|text| {
        let at = text.span().start;
        let PresetText {
            names,
            source,
            values: own,
        } = text.into_inner();
        if let Some(unknown) = own.keys().find(|name| !values.contains_key(*name)) {
            return Err(faults.at(at, format!("`{unknown}` is not among `[values]`")));
        }
        let values = to_json(own);
        Ok(Preset {
            names,
            source,
            values,
        })
    });
    presets.collect()
}

impl Match {
    /// Returns the outputs with their kind, and the name of the first one, for the steps that read them.
    fn given_outputs(&self) -> (impl Iterator<Item = (String, DataKind)>, &str) {
        let first = self.outputs.first();
        let outputs = self.outputs.iter();
        let outputs = outputs.map(|tensor| (tensor.name.clone(), DataKind::Values));
        (outputs, first.map_or("", |tensor| tensor.name.as_str()))
    }
}

struct StepCheck<'a> {
    faults: Faults<'a>,
    values: &'a BTreeMap<String, Json>,
    presets: &'a [Preset],
}

impl StepCheck<'_> {
    /// Checks the steps of one side. `known` has the kinds of what exists; `first` is read by the first step.
    fn steps(
        &self,
        tables: &[Spanned<toml::Table>],
        mut known: BTreeMap<String, DataKind>,
        first: &str,
        side: &str,
    ) -> Result<Vec<RecipeStep>, RecipeError> {
        if tables.len() > MAX_STEPS {
            return Err(self.faults.whole(format!(
                "too many steps in `{side}`: expected at most {MAX_STEPS}"
            )));
        }
        let later: Vec<Option<&str>> = tables
            .iter()
            .map(|table| table.get_ref().get("to")?.as_str())
            .collect();
        let mut previous = first.to_owned();
        let mut steps = Vec::new();
        for (place, table) in tables.iter().enumerate() {
            let fault = |reason: String| {
                self.faults
                    .at(table.span().start, format!("step {}: {reason}", place + 1))
            };
            let step = self
                .step(table.get_ref(), &previous, place)
                .map_err(fault)?;
            let kinds = step.operator.from;
            if step.from.len() != kinds.len() {
                let (name, found) = (step.operator.name, step.from.len());
                return Err(fault(format!(
                    "`{name}` reads {} tensors or results, got {found} in `from`",
                    kinds.len()
                )));
            }
            for (name, kind) in step.from.iter().zip(kinds) {
                match known.get(name) {
                    Some(found) if found == kind => {}
                    Some(found) => {
                        return Err(fault(format!(
                            "`{}` reads {kind}, but `{name}` is {found}",
                            step.operator.name
                        )));
                    }
                    None if later[place..].contains(&Some(name.as_str())) => {
                        return Err(fault(format!(
                            "`{name}` is made by this or a later step: steps cannot form a cycle"
                        )));
                    }
                    None => {
                        let names: Vec<&str> = known.keys().map(String::as_str).collect();
                        return Err(fault(format!(
                            "unknown name `{name}` in `from`; known: {}",
                            names.join(", ")
                        )));
                    }
                }
            }
            known.insert(step.to.clone(), step.operator.to);
            previous.clone_from(&step.to);
            steps.push(step);
        }
        Ok(steps)
    }

    fn step(
        &self,
        table: &toml::Table,
        previous: &str,
        place: usize,
    ) -> Result<RecipeStep, String> {
        let word = |key: &str| match table.get(key) {
            Some(value) => value
                .as_str()
                .map(Some)
                .ok_or_else(|| format!("`{key}` must be a text")),
            None => Ok(None),
        };
        let name = word("step")?.ok_or("missing `step`, the name of the operator")?;
        let operator = operators::find(name)
            .ok_or_else(|| format!("unknown step `{name}`; known: {}", operators::names()))?;
        let to = word("to")?.map_or_else(|| format!("step {}", place + 1), str::to_owned);
        if table.contains_key("to") && !is_name(&to) {
            return Err(format!(
                "invalid name `{to}` in `to`: expected letters, digits and `_`"
            ));
        }
        let from = match table.get("from") {
            None if operator.from.is_empty() => Vec::new(),
            None => vec![previous.to_owned()],
            Some(toml::Value::String(name)) => vec![name.clone()],
            Some(toml::Value::Array(names)) => {
                let names = names.iter().map(|name| name.as_str().map(str::to_owned));
                names
                    .collect::<Option<_>>()
                    .ok_or("`from` must be a name or a list of names")?
            }
            Some(_) => return Err("`from` must be a name or a list of names".to_owned()),
        };
        let mut arguments = BTreeMap::new();
        for (key, value) in table
            .iter()
            .filter(|(key, _)| !STEP_KEYS.contains(&key.as_str()))
        {
            let mut parameters = operator.parameters.iter();
            let Some(parameter) = parameters.find(|parameter| parameter.name == key) else {
                let names: Vec<&str> = operator.parameters.iter().map(|it| it.name).collect();
                return Err(format!(
                    "`{name}` has no parameter `{key}`; it has: {}",
                    names.join(", ")
                ));
            };
            let argument = self.argument(key, value, parameter.kind)?;
            arguments.insert(key.clone(), argument);
        }
        let mut parameters = operator.parameters.iter();
        if let Some(missing) =
            parameters.find(|it| it.default.is_none() && !arguments.contains_key(it.name))
        {
            return Err(format!("`{name}` needs `{}`", missing.name));
        }
        Ok(RecipeStep {
            operator,
            from,
            to,
            arguments,
        })
    }

    /// Checks an argument: a value, or `$name` for a value of the recipe.
    fn argument(
        &self,
        key: &str,
        value: &toml::Value,
        kind: ParameterKind,
    ) -> Result<StepArgument, String> {
        let name = value.as_str().and_then(|text| text.strip_prefix('$'));
        // The sign alone is a symbol.
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            let json = serde_json::to_value(value).unwrap_or_default();
            kind.check(&json)
                .map_err(|reason| format!("`{key}`: {reason}"))?;
            return Ok(StepArgument::Value(json));
        };
        let Some(value) = self.values.get(name) else {
            let names: Vec<&str> = self.values.keys().map(String::as_str).collect();
            return Err(format!(
                "`{key}`: `${name}` is not among `[values]`: {}",
                names.join(", ")
            ));
        };
        kind.check(value)
            .map_err(|reason| format!("`{name}` in `[values]`: {reason}"))?;
        for preset in self.presets {
            if let Some(value) = preset.values.get(name) {
                let reason = |reason| {
                    format!(
                        "`{name}` of the preset for {}: {reason}",
                        preset.names.join(", ")
                    )
                };
                kind.check(value).map_err(reason)?;
            }
        }
        Ok(StepArgument::Named(name.to_owned()))
    }

    /// Checks the steps between a model and its synthesizer, which starts at `at`.
    fn between(
        &self,
        tables: &[Spanned<toml::Table>],
        synthesizer: Option<&Match>,
        (matches, prepare): (&Match, &[RecipeStep]),
        at: usize,
    ) -> Result<Vec<RecipeStep>, RecipeError> {
        let Some(synthesizer) = synthesizer else {
            return match tables.first() {
                Some(table) => {
                    let reason =
                        "`between` needs a recipe that reads a text, and the table `decode`";
                    Err(self.faults.at(table.span().start, reason.to_owned()))
                }
                None => Ok(Vec::new()),
            };
        };
        let (outputs, first) = matches.given_outputs();
        let made = prepare
            .iter()
            .map(|step| (step.to.clone(), step.operator.to));
        let steps = self.steps(tables, made.chain(outputs).collect(), first, "between")?;
        match &synthesizer.missing(matches, &[prepare, &steps])[..] {
            [] => Ok(steps),
            names => {
                let names = names.join("`, `");
                let reason = format!("`decode`: no step and no output makes the input `{names}`");
                Err(self.faults.at(at, reason))
            }
        }
    }

    /// Checks how the model runs over a sound.
    fn repeat(
        &self,
        repeat: Option<Spanned<WindowRepeat>>,
        matches: &Match,
        takes: MediaKind,
    ) -> Result<Option<WindowRepeat>, RecipeError> {
        let Some(repeat) = repeat else {
            return Ok(None);
        };
        let at = repeat.span().start;
        let fault = |reason: String| self.faults.at(at, format!("`repeat`: {reason}"));
        let repeat = repeat.into_inner();
        if takes != MediaKind::Sound {
            return Err(fault("only a recipe that reads a sound repeats".to_owned()));
        }
        repeat.check().map_err(fault)?;
        let has =
            |tensors: &[TensorPattern], name: &String| tensors.iter().any(|it| it.name == *name);
        for (input, output) in &repeat.state {
            if !has(&matches.inputs, input) {
                return Err(fault(format!("`state` names no input `{input}`")));
            }
            if !has(&matches.outputs, output) {
                return Err(fault(format!("`state` names no output `{output}`")));
            }
        }
        Ok(Some(repeat))
    }

    /// Checks that `prepare` or the previous run makes every input. The last step makes a single input without
    /// naming it.
    fn has_inputs(
        &self,
        inputs: &[TensorPattern],
        repeat: Option<&WindowRepeat>,
        prepare: &[RecipeStep],
        at: usize,
    ) -> Result<(), RecipeError> {
        let is_state = |name: &String| repeat.is_some_and(|it| it.state.contains_key(name));
        for input in inputs.iter().filter(|input| !is_state(&input.name)) {
            let made = prepare
                .iter()
                .rev()
                .find(|step| step.to == input.name || inputs.len() == 1);
            if made.is_none_or(|step| step.operator.to != DataKind::Values) {
                return Err(self.faults.at(
                    at,
                    format!("no step of `prepare` makes the input `{}`", input.name),
                ));
            }
        }
        Ok(())
    }
}

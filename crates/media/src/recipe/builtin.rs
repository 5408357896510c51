//! The recipes of this crate, one for each contract of published packages.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use pkgtool_engine::tensor::Signature;
use pkgtool_model::{ModelInfo, PixelColours};
use serde_json::{Value as Json, json};

use super::hub::HubFile;
use super::project;
use super::read::MAX_BYTES;
use super::{
    ANY_METHOD, CandidateModel, FittedDecoder, FittedRecipe, FittedSynthesizer, Match,
    ParameterKind, Recipe, RecipeError,
};
use crate::answer::TypedAnswerKind;
use crate::diffusion::{DiffusionShape, SchedulerFile};
use crate::files;
use crate::kind::MediaKind;
use crate::labels::Labels;
use crate::operators::Symbols;
use crate::voice::{SymbolFile, SymbolTable};

/// The files of `recipes/`; for a model that several fit, the first one applies.
const FILES: [(&str, &str); 31] = [
    (
        "classification.toml",
        include_str!("../../recipes/classification.toml"),
    ),
    (
        "image-embedding.toml",
        include_str!("../../recipes/image-embedding.toml"),
    ),
    (
        "semantic-segmentation.toml",
        include_str!("../../recipes/semantic-segmentation.toml"),
    ),
    (
        "style-transfer.toml",
        include_str!("../../recipes/style-transfer.toml"),
    ),
    (
        "detection.toml",
        include_str!("../../recipes/detection.toml"),
    ),
    (
        "detection-rows.toml",
        include_str!("../../recipes/detection-rows.toml"),
    ),
    (
        "detection-yolo.toml",
        include_str!("../../recipes/detection-yolo.toml"),
    ),
    (
        "detection-yolov5.toml",
        include_str!("../../recipes/detection-yolov5.toml"),
    ),
    (
        "detection-picodet.toml",
        include_str!("../../recipes/detection-picodet.toml"),
    ),
    (
        "instance-pairs.toml",
        include_str!("../../recipes/instance-pairs.toml"),
    ),
    ("instance.toml", include_str!("../../recipes/instance.toml")),
    (
        "text-detection.toml",
        include_str!("../../recipes/text-detection.toml"),
    ),
    (
        "text-detection-paddle.toml",
        include_str!("../../recipes/text-detection-paddle.toml"),
    ),
    (
        "text-detection-craft-bgr.toml",
        include_str!("../../recipes/text-detection-craft-bgr.toml"),
    ),
    (
        "text-detection-craft-program.toml",
        include_str!("../../recipes/text-detection-craft-program.toml"),
    ),
    (
        "text-detection-craft.toml",
        include_str!("../../recipes/text-detection-craft.toml"),
    ),
    (
        "text-recognition.toml",
        include_str!("../../recipes/text-recognition.toml"),
    ),
    (
        "text-recognition-paddle.toml",
        include_str!("../../recipes/text-recognition-paddle.toml"),
    ),
    (
        "text-recognition-grey.toml",
        include_str!("../../recipes/text-recognition-grey.toml"),
    ),
    ("vision.toml", include_str!("../../recipes/vision.toml")),
    (
        "voice-activity-silero.toml",
        include_str!("../../recipes/voice-activity-silero.toml"),
    ),
    (
        "voice-activity-fsmn.toml",
        include_str!("../../recipes/voice-activity-fsmn.toml"),
    ),
    (
        "speech-to-text-program.toml",
        include_str!("../../recipes/speech-to-text-program.toml"),
    ),
    (
        "speech-to-text.toml",
        include_str!("../../recipes/speech-to-text.toml"),
    ),
    (
        "speech-to-text-128.toml",
        include_str!("../../recipes/speech-to-text-128.toml"),
    ),
    (
        "text-to-speech-kokoro.toml",
        include_str!("../../recipes/text-to-speech-kokoro.toml"),
    ),
    (
        "text-to-speech-kokoro-program.toml",
        include_str!("../../recipes/text-to-speech-kokoro-program.toml"),
    ),
    (
        "text-to-speech-piper.toml",
        include_str!("../../recipes/text-to-speech-piper.toml"),
    ),
    (
        "image-generation.toml",
        include_str!("../../recipes/image-generation.toml"),
    ),
    (
        "image-generation-mask.toml",
        include_str!("../../recipes/image-generation-mask.toml"),
    ),
    (
        "image-generation-pooled.toml",
        include_str!("../../recipes/image-generation-pooled.toml"),
    ),
];

/// Capabilities with other ways to answers.
const OTHER_WAYS: [(&str, &str); 2] = [
    ("text-embedding", "`pkgtool run --text` embeds texts"),
    ("text-generation", "`pkgtool chat` answers"),
];

static RECIPES: LazyLock<Vec<Recipe>> = LazyLock::new(|| {
    let recipes = FILES.iter();
    let recipes = recipes.map(|(file, text)| Recipe::parse_with(file, text, |_| None));
    recipes
        .map(|recipe| recipe.expect("a test reads every built-in recipe"))
        .collect()
});

/// The place of a model among those of a package, the preferred one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecipeRank {
    /// Place of the recipe.
    recipe: usize,
    /// Place of the method in the recipe.
    method: usize,
}

/// Returns the built-in recipes, the preferred ones first.
pub fn builtin() -> &'static [Recipe] {
    &RECIPES
}

/// Returns a copy of a built-in recipe.
pub(super) fn named(name: &str) -> Option<Recipe> {
    builtin().iter().find(|recipe| recipe.name == name).cloned()
}

impl Recipe {
    /// Reads and checks the recipe of a file.
    pub fn read(path: &Path) -> Result<Self, RecipeError> {
        let file = path.display().to_string();
        let mut text = String::new();
        let most = MAX_BYTES as u64 + 1;
        let read = File::open(path).and_then(|file| file.take(most).read_to_string(&mut text));
        read.map_err(|error| RecipeError {
            file: file.clone(),
            place: None,
            reason: error.to_string(),
        })?;
        Self::parse(&file, &text)
    }

    /// Reads and checks a recipe; `file` names it in errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, RecipeError> {
        Self::parse_with(file, text, named)
    }
}

/// Returns the values for a model that takes pixels of 0 to 255 in an order of its own.
fn pixel_values(pixels: Option<PixelColours>) -> Vec<(&'static str, Json)> {
    let Some(colours) = pixels else {
        return Vec::new();
    };
    let order = match colours {
        PixelColours::Bgr => "bgr",
        PixelColours::Grey | PixelColours::Rgb => "rgb",
    };
    vec![
        ("scale", json!(1.0 / 255.0)),
        ("mean", json!(0.0)),
        ("std", json!(1.0 / 255.0)),
        ("order", json!(order)),
    ]
}

/// The recipe for one model, with the values that apply.
#[derive(Debug, Clone)]
pub struct ModelRecipe {
    recipe: Recipe,
    rank: RecipeRank,
    /// The recipe with its values.
    pub fitted: FittedRecipe,
    /// Ids of phonemes; empty for a model that reads no text.
    pub(super) symbols: Arc<SymbolTable>,
}

impl ModelRecipe {
    /// Finds the recipe for a model: the package's own or a built-in one. Reads the package's recipe and labels.
    pub fn of(path: &Path, info: &ModelInfo, model: &CandidateModel<'_>) -> Result<Self, String> {
        let own = own_recipes(path).map_err(|error| error.to_string())?;
        let (place, recipe, fitted) =
            find(&own, model).map_err(|reason| format!("{}: {reason}", path.display()))?;
        let method = &model.signature.method;
        let mut methods = recipe.matches.methods.iter();
        let mut found = Self {
            rank: RecipeRank {
                recipe: place,
                method: methods
                    .position(|it| it == method || it == ANY_METHOD)
                    .unwrap_or(0),
            },
            recipe: recipe.clone(),
            fitted: fitted.with_labels(Labels::of_package(path, info)?),
            symbols: Arc::default(),
        };
        let is_built_in = place >= own.len();
        if found.fitted.takes == MediaKind::Picture && is_built_in {
            let pixels = model.signature.inputs.iter().find_map(|it| it.pixels);
            found.set_beside(pixel_values(pixels), "the model's picture input")?;
            let file = HubFile::of_package(path)?;
            found.set_beside(file.values, &file.name)?;
        }
        if found.fitted.answer == TypedAnswerKind::Speech {
            let file = SymbolFile::of_package(path)?;
            found.symbols = Arc::new(file.table);
            found.set_beside(file.settings, &file.name)?;
        }
        Ok(found)
    }

    /// Takes the values of a file of the package, as far as the recipe has them.
    fn set_beside<N: AsRef<str>>(
        &mut self,
        settings: impl IntoIterator<Item = (N, Json)>,
        file: &str,
    ) -> Result<(), String> {
        for (name, value) in settings {
            if self.fitted.values.contains_key(name.as_ref()) {
                let set = self.set(name.as_ref(), value, file);
                set.map_err(|reason| format!("{file}: {reason}"))?;
            }
        }
        Ok(())
    }

    /// Returns whether it makes pictures of texts.
    pub fn diffuses(&self) -> bool {
        self.recipe.diffusion.is_some()
    }

    /// Takes the values of the scheduler's file: a component of the package, or beside the model.
    pub fn set_scheduler(&mut self, component: Option<&Path>, model: &Path) -> Result<(), String> {
        let file = SchedulerFile::of_package(component, model)?;
        self.set_beside(file.values, &file.name)
    }

    /// Finds the denoiser and the painter among methods, each given with its component and signature.
    pub fn diffusion<'m, M: Copy>(
        &self,
        methods: &[(M, Option<&'m str>, &'m Signature)],
    ) -> Option<(M, M, DiffusionShape)> {
        let [denoise, paint] = self.recipe.diffusion.as_ref()?;
        let is_of = |part: &Match, component: Option<&str>, signature: &Signature| {
            part.fits(component, signature, &mut Symbols::new())
        };
        let mut denoisers = methods.iter().filter(|it| is_of(denoise, it.1, it.2));
        denoisers.find_map(|(denoiser, _, predicts)| {
            let mut painters = methods.iter().filter(|it| is_of(paint, it.1, it.2));
            painters.find_map(|(painter, _, paints)| {
                let shape = DiffusionShape::of(predicts, paints)?;
                Some((*denoiser, *painter, shape))
            })
        })
    }

    /// Returns the tensors of the denoiser and the painter, for errors.
    pub fn expected_diffusion(&self) -> String {
        let parts = self.recipe.diffusion.as_ref();
        let texts = parts.map(|parts| parts.each_ref().map(Match::expected));
        texts.map_or_else(String::new, |texts| texts.join(" and "))
    }

    /// Returns the values that users may set, each with its kind.
    pub fn settings(&self) -> impl Iterator<Item = (&str, &Json, ParameterKind)> {
        let values = self.fitted.values.iter();
        values.filter_map(|(name, resolved)| {
            let kind = self.recipe.kinds_of(name).next()?;
            Some((name.as_str(), &resolved.value, kind))
        })
    }

    /// Returns whether the model needs a decoder or a synthesizer.
    pub fn needs_decoder(&self) -> bool {
        self.recipe.decode.is_some()
    }

    /// Returns the decoder for its outputs, if a method of this component is one.
    pub fn decoder(&self, component: Option<&str>, signature: &Signature) -> Option<FittedDecoder> {
        let (decode, symbols) = self.second(MediaKind::Sound)?;
        decode.decoder((component, signature), &self.fitted.outputs, symbols)
    }

    /// Returns the synthesizer for its outputs, if a method of this component is one.
    pub fn synthesizer(
        &self,
        component: Option<&str>,
        signature: &Signature,
    ) -> Option<FittedSynthesizer> {
        let (decode, symbols) = self.second(MediaKind::Text)?;
        decode.synthesizer((component, signature), symbols)
    }

    /// Returns the pattern of its second model, with the sizes of the first, in a recipe that reads this kind.
    fn second(&self, takes: MediaKind) -> Option<(&Match, Symbols)> {
        let decode = self.recipe.decode.as_ref();
        let decode = decode.filter(|_| self.fitted.takes == takes)?;
        Some((decode, self.fitted.preparation.symbols().clone()))
    }

    /// Returns the tensors that a decoder or synthesizer has, for errors.
    pub fn expected_decoder(&self) -> String {
        let decode = self.recipe.decode.as_ref();
        decode.map_or_else(String::new, Match::expected)
    }

    /// Returns its place among the models of a package.
    pub fn rank(&self) -> RecipeRank {
        self.rank
    }

    /// Returns whether it reads the lines that the other one finds.
    pub fn reads_for(&self, finder: &Self) -> bool {
        finder.recipe.then.as_deref() == Some(self.recipe.capability())
            && self.fitted.answer == TypedAnswerKind::Text
    }

    /// Overrides a value, after a check against every parameter that uses it. `origin` is for people.
    pub fn set(&mut self, name: &str, value: Json, origin: &str) -> Result<(), String> {
        self.recipe.set(&mut self.fitted, name, value, origin)
    }
}

/// Returns the recipe that a package brings, `recipe.toml` beside the model or in the directory above, and those of its
/// project.
fn own_recipes(model: &Path) -> Result<Vec<Recipe>, RecipeError> {
    let mut own = project::recipes(model)?;
    if let Some(path) = files::beside(model, &[super::FILE_NAME]) {
        own.insert(0, Recipe::read(&path)?);
    }
    Ok(own)
}

/// Returns the recipes that may apply, the preferred ones first.
fn known(own: &[Recipe]) -> impl Iterator<Item = &Recipe> {
    own.iter().chain(builtin())
}

/// Returns the recipe for a model, with its place among the package's own and the built-in ones.
pub fn find<'r>(
    own: &'r [Recipe],
    model: &CandidateModel<'_>,
) -> Result<(usize, &'r Recipe, FittedRecipe), String> {
    let fits = |(place, recipe): (usize, &'r Recipe)| Some((place, recipe, recipe.fit(model)?));
    if let Some(found) = known(own).enumerate().find_map(fits) {
        return Ok(found);
    }
    let meant: Vec<&Recipe> = known(own)
        .filter(|recipe| {
            model
                .capabilities
                .iter()
                .any(|it| it == recipe.capability())
        })
        .collect();
    if meant.is_empty() {
        let has =
            |(capability, _): &&(&str, &str)| model.capabilities.iter().any(|it| it == capability);
        let remedy = OTHER_WAYS
            .iter()
            .find(has)
            .map_or("`--input` takes tensors", |(_, way)| *way);
        return Err(format!(
            "no recipe for the capabilities {}: {remedy}; a package or a project may bring its own recipe, {}",
            model.capabilities.join(", "),
            super::FILE_NAME
        ));
    }
    let side = |specs: &[pkgtool_engine::tensor::TensorSpec]| {
        let texts: Vec<String> = specs.iter().map(ToString::to_string).collect();
        texts.join(", ")
    };
    let signature = model.signature;
    let expected = meant
        .iter()
        .map(|recipe| format!("{} ({})", recipe.name, recipe.expected()));
    Err(format!(
        "no recipe fits method `{}`, {} -> {}: expected one of {}",
        signature.method,
        side(&signature.inputs),
        side(&signature.outputs),
        expected.collect::<Vec<_>>().join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_recipes_are_sound() {
        for (file, text) in FILES {
            let recipe = Recipe::parse(file, text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(format!("{}.toml", recipe.name), file);
            assert!(recipe.source.len() > 10, "{file} states its source");
        }
    }
}

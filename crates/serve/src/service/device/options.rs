//! The options of a predict config: those of embeddings, of trained classifiers and of recipes.

use super::super::media::RecipeOption;
use super::super::{CallError, Refusal, texts};
use super::choice::ConfigChoice;
use super::{Device, classifier};
use pkgtool_media::trained::LabelWish;
use pkgtool_text::embedding::EmbeddingOptions;

/// Options of a predict config besides its choice.
#[derive(Debug, Default)]
pub(super) struct ConfigOptions {
    pub(super) embedding: EmbeddingOptions,
    /// What a trained classifier answers.
    pub(super) labels: LabelWish,
    /// Values for a recipe.
    pub(super) recipe: Vec<RecipeOption>,
}

impl Device {
    /// Parses a predict config into its choice and its other options.
    pub(super) fn read_config(
        &self,
        config: &str,
    ) -> Result<(ConfigChoice, ConfigOptions), Refusal> {
        let mut further = Vec::new();
        if self.description.embeds_texts {
            further.extend(EmbeddingOptions::KEYS);
        }
        if self.takes_labelled_texts() {
            // A head accepts vectors of a single kind of pooling, so other embedding keys are
            // not allowed.
            further.extend(classifier::TEXT_KEYS);
        }
        if self.classifies.is_some() {
            further.extend([classifier::TOP_K_KEY, classifier::THRESHOLD_KEY]);
        }
        let recipe_keys = self.recipe_keys();
        further.extend(recipe_keys.iter().map(String::as_str));
        let (choice, mut others) = ConfigChoice::read(config, &further)?;
        // Recipes may have values of the same names.
        let mut own = |name: &str| {
            let mut places = others.iter();
            let place = places.position(|(key, _)| key == name && self.classifies.is_some());
            place.map(|place| others.remove(place).1)
        };
        let most = own(classifier::TOP_K_KEY).map(classifier::most);
        let threshold = own(classifier::THRESHOLD_KEY).map(classifier::threshold);
        let of_recipe = |(key, _): &mut (String, _)| recipe_keys.contains(key);
        let values = others.extract_if(.., of_recipe);
        let values = values.map(|member| RecipeOption::of_json(member, "$.config"));
        let recipe = values.collect::<Result<_, _>>()?;
        let wishes = ConfigOptions {
            labels: LabelWish {
                most: most.transpose()?.flatten(),
                threshold: threshold.transpose()?.flatten(),
            },
            recipe,
            embedding: texts::options(&others)?,
        };
        Ok((choice, wishes))
    }

    /// Checks a predict config before it is stored. A config for a model that this build cannot run
    /// is valid; requests with it fail.
    pub fn check_config(&self, config: &str) -> Result<(), CallError> {
        let (choice, options) = self.read_config(config)?;
        if options.recipe.is_empty() {
            self.resolve(&choice)?;
        } else {
            self.check_recipe_options(&choice, &options.recipe)?;
        }
        Ok(())
    }
}

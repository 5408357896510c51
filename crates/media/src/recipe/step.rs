//! Steps of a recipe: as written, and with all values.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::operators::{self, Arguments, Operator};

/// A step as the recipe has it.
#[derive(Debug, Clone)]
pub(super) struct RecipeStep {
    pub(super) operator: &'static Operator,
    /// Names of what it reads.
    pub(super) from: Vec<String>,
    /// Name of what it makes.
    pub(super) to: String,
    /// Parameters: values, or names of the recipe's values.
    pub(super) arguments: BTreeMap<String, StepArgument>,
}

/// The value of a parameter.
#[derive(Debug, Clone)]
pub(super) enum StepArgument {
    Value(Json),
    /// A value of the recipe, by its name.
    Named(String),
}

/// A step with all its values.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct BoundStep {
    pub(super) operator: String,
    pub(super) from: Vec<String>,
    pub(super) to: String,
    arguments: BTreeMap<String, Json>,
}

impl RecipeStep {
    /// Binds the step to the values of a recipe, which are checked already.
    pub(super) fn bind(&self, value: &impl Fn(&str) -> Json) -> BoundStep {
        let arguments = self.arguments.iter().map(|(name, argument)| {
            let value = match argument {
                StepArgument::Value(json) => json.clone(),
                StepArgument::Named(name) => value(name),
            };
            (name.clone(), value)
        });
        BoundStep {
            operator: self.operator.name.to_owned(),
            from: self.from.clone(),
            to: self.to.clone(),
            arguments: arguments.collect(),
        }
    }
}

impl BoundStep {
    /// Returns the operator and the checked values of its parameters.
    pub(super) fn resolved(&self) -> Result<(&'static Operator, Arguments), String> {
        let operator = operators::find(&self.operator)
            .ok_or_else(|| format!("unknown step `{}`", self.operator))?;
        let mut arguments = Arguments::default();
        for parameter in operator.parameters {
            let given = self.arguments.get(parameter.name).cloned();
            let value = match (given, parameter.default) {
                (Some(value), _) => value,
                (None, Some(text)) => serde_json::from_str(text).unwrap_or_default(),
                (None, None) => return Err(format!("missing `{}`", parameter.name)),
            };
            let checked = parameter.kind.check(&value);
            checked.map_err(|reason| format!("`{}`: {reason}", parameter.name))?;
            arguments.0.insert(parameter.name, value);
        }
        Ok((operator, arguments))
    }
}

//! `scheduler_config.json` as the diffusers library writes it.

use std::path::Path;

use serde_json::{Value as Json, json};

use crate::files;

/// Names of the file beside a model.
const NAMES: [&str; 2] = ["scheduler_config.json", "scheduler/scheduler_config.json"];

/// Name of the component that is this file.
pub const SCHEDULER_COMPONENT: &str = "scheduler";

/// Maximum size of the file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Classes of schedulers, with the values that they have if the file lacks them: the sampler, and whether they clip and end
/// without noise.
const CLASSES: [(&str, &str, bool, bool); 3] = [
    ("PNDMScheduler", "pndm", false, false),
    ("DDIMScheduler", "ddim", true, true),
    ("EulerDiscreteScheduler", "euler", false, false),
];

/// Keys of the file, with the values of recipes that they are.
const KEYS: [(&str, &str); 9] = [
    ("prediction_type", "prediction"),
    ("beta_schedule", "betas"),
    ("beta_start", "beta_start"),
    ("beta_end", "beta_end"),
    ("num_train_timesteps", "train_steps"),
    ("steps_offset", "offset"),
    ("timestep_spacing", "spacing"),
    ("set_alpha_to_one", "final_one"),
    ("clip_sample", "clip"),
];

/// The values of a scheduler's file.
#[derive(Debug, Default, PartialEq)]
pub struct SchedulerFile {
    /// Values of recipes, by name.
    pub values: Vec<(String, Json)>,
    /// The file's name, for people.
    pub name: String,
}

impl SchedulerFile {
    /// Reads the file: a component of the package, or beside the model. Without a file, there are no values.
    pub fn of_package(component: Option<&Path>, model: &Path) -> Result<Self, String> {
        let found = component.map(Path::to_owned);
        let Some(path) = found.or_else(|| files::beside(model, &NAMES)) else {
            return Ok(Self::default());
        };
        let fault = |reason: &str| format!("{}: {reason}", path.display());
        let file = files::json(&path, MAX_BYTES)?;
        let class = file.get("_class_name").and_then(Json::as_str);
        let class = class.ok_or_else(|| fault("expected the scheduler's `_class_name`"))?;
        let known = CLASSES.iter().find(|(name, ..)| *name == class);
        let (_, sampler, clip, final_one) = known.ok_or_else(|| {
            let names = CLASSES.map(|(name, ..)| name).join(", ");
            fault(&format!(
                "unknown scheduler {class}: expected one of {names}"
            ))
        })?;
        let mut values = vec![
            ("sampler".to_owned(), json!(sampler)),
            ("clip".to_owned(), json!(clip)),
            ("final_one".to_owned(), json!(final_one)),
            ("offset".to_owned(), json!(0)),
        ];
        for (key, name) in KEYS {
            if let Some(value) = file.get(key).filter(|value| !value.is_null()) {
                values.push((name.to_owned(), value.clone()));
            }
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Ok(Self {
            values,
            name: format!("{name} of the package"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_values_and_unknown_classes_a_reason() {
        let directory = tempfile::tempdir().expect("a directory");
        let model = directory.path().join("xnnpack/model.pte");
        std::fs::create_dir_all(directory.path().join("scheduler")).expect("a directory");
        let file = directory.path().join("scheduler/scheduler_config.json");
        assert_eq!(
            SchedulerFile::of_package(None, &model),
            Ok(SchedulerFile::default())
        );
        let text = r#"{"_class_name": "DDIMScheduler", "beta_end": 0.02, "clip_sample": null, "steps_offset": 1}"#;
        std::fs::write(&file, text).expect("written");
        let read = SchedulerFile::of_package(None, &model).expect("valid");
        let expected = [
            ("sampler", json!("ddim")),
            ("clip", json!(true)),
            ("final_one", json!(true)),
            ("offset", json!(0)),
            ("beta_end", json!(0.02)),
            ("offset", json!(1)),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(read.values, expected);
        for (text, part) in [
            (
                r#"{"_class_name": "HeunScheduler"}"#,
                "unknown scheduler HeunScheduler: expected one of PNDMScheduler",
            ),
            ("[]", "expected the scheduler's `_class_name`"),
            ("{", "EOF"),
        ] {
            std::fs::write(&file, text).expect("written");
            let error = SchedulerFile::of_package(Some(&file), &model).expect_err("a fault");
            assert!(error.contains(part), "{error}");
        }
    }
}

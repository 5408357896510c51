//! `preprocessor_config.json` as hubs have it beside models of pictures.
//!
//! Its values replace those of built-in recipes. What it does not say stays as the recipe has it.

use std::path::Path;

use serde_json::{Map, Value as Json, json};

use crate::files;

/// Name of the file.
const NAME: &str = "preprocessor_config.json";

/// Maximum size of the file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Interpolations by their numbers in Pillow.
const INTERPOLATIONS: [(u64, &str); 4] = [
    (0, "nearest"),
    (1, "lanczos"),
    (2, "smooth"),
    (3, "smooth_cubic"),
];

/// Values of recipes from a file beside a model.
#[derive(Debug, Default, PartialEq)]
pub(super) struct HubFile {
    pub(super) values: Vec<(&'static str, Json)>,
    /// The file, for people.
    pub(super) name: String,
}

impl HubFile {
    /// Reads the file beside a model or in the directory above. Without a file, there are no values.
    pub(super) fn of_package(model: &Path) -> Result<Self, String> {
        let Some(path) = files::beside(model, &[NAME]) else {
            return Ok(Self::default());
        };
        let read = files::json(&path, MAX_BYTES)?;
        let fault = |reason: String| format!("{}: {reason}", path.display());
        let file = read.as_object();
        let file = file.ok_or_else(|| fault("expected an object".to_owned()))?;
        // A recording has other values.
        let values = if file.contains_key("image_mean") || file.contains_key("size") {
            values(file).map_err(fault)?
        } else {
            Vec::new()
        };
        Ok(Self {
            values,
            name: format!("{NAME} of the package"),
        })
    }
}

fn values(file: &Map<String, Json>) -> Result<Vec<(&'static str, Json)>, String> {
    let flag = |name: &str, default: bool| match file.get(name) {
        None | Some(Json::Null) => Ok(default),
        Some(value) => value
            .as_bool()
            .ok_or_else(|| format!("`{name}`: expected true or false, got {value}")),
    };
    let number = |name: &str| match file.get(name) {
        None | Some(Json::Null) => Ok::<_, String>(None),
        Some(value) => {
            let number = value.as_f64().filter(|number| *number > 0.0);
            let number =
                number.ok_or_else(|| format!("`{name}`: expected a number, got {value}"))?;
            Ok(Some(number))
        }
    };
    let mut values = Vec::new();
    if flag("do_resize", true)? {
        let part = if flag("do_center_crop", false)? {
            Some(crop_part(file, number("crop_pct")?))
        } else {
            number("crop_pct")?.filter(|part| *part < 1.0)
        };
        match part {
            Some(part) if part <= 1.0 => {
                values.extend([("resize", json!("crop")), ("part", json!(part))]);
            }
            Some(_) => return Err("`crop_size` is larger than `size`".to_owned()),
            None => values.push(("resize", json!("stretch"))),
        }
        if let Some(code) = file.get("resample").filter(|code| !code.is_null()) {
            let known = INTERPOLATIONS
                .iter()
                .find(|(known, _)| code.as_u64() == Some(*known));
            let (_, name) = known.ok_or_else(|| {
                format!("`resample`: expected 0 (nearest) to 3 (cubic), got {code}")
            })?;
            values.push(("interpolation", json!(name)));
        }
    }
    // Mean and deviation are for bytes that were divided by 255.
    values.insert(0, ("scale", json!(1.0 / 255.0)));
    let factor = if flag("do_rescale", true)? {
        number("rescale_factor")?.unwrap_or(1.0 / 255.0) * 255.0
    } else {
        255.0
    };
    let normalizes = flag("do_normalize", true)?;
    for (name, key, usual) in [("mean", "image_mean", 0.0), ("std", "image_std", 1.0)] {
        let given = file.get(key).filter(|value| normalizes && !value.is_null());
        let channels: Option<Vec<f64>> = match given {
            None if !normalizes => Some(vec![usual; 3]),
            None => None,
            Some(Json::Array(list)) if list.len() == 3 => list.iter().map(Json::as_f64).collect(),
            Some(value) => value.as_f64().map(|number| vec![number; 3]),
        };
        if given.is_some() && channels.is_none() {
            return Err(format!("`{key}`: expected a number for each of 3 channels"));
        }
        if let Some(channels) = channels {
            let scaled = channels.iter().map(|channel| channel / factor);
            values.push((name, json!(scaled.collect::<Vec<f64>>())));
        }
    }
    Ok(values)
}

/// Returns the part of the shorter side that a crop keeps.
fn crop_part(file: &Map<String, Json>, percent: Option<f64>) -> f64 {
    let side = |value: &Json, keys: &[&str]| {
        let inner = keys.iter().find_map(|key| value.get(key)?.as_f64());
        inner.or_else(|| value.as_f64()).filter(|side| *side > 0.0)
    };
    let whole = file
        .get("size")
        .and_then(|size| side(size, &["shortest_edge", "height"]));
    let kept = file
        .get("crop_size")
        .and_then(|size| side(size, &["height", "shortest_edge"]));
    let part = whole.zip(kept).map(|(whole, kept)| kept / whole);
    part.or(percent).unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<HubFile, String> {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join(NAME), text).expect("written");
        HubFile::of_package(&directory.path().join("model.onnx"))
    }

    #[test]
    fn values_are_those_of_recipes() {
        for (text, expected) in [
            (
                r#"{"size": {"shortest_edge": 256}, "do_center_crop": true, "crop_size": {"height": 224, "width": 224},
                    "resample": 3, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.2, 0.1]}"#,
                json!([
                    ["resize", "crop"],
                    ["part", 0.875],
                    ["interpolation", "smooth_cubic"],
                    ["mean", [0.5, 0.4, 0.3]],
                    ["std", [0.2, 0.2, 0.1]]
                ]),
            ),
            (
                r#"{"size": 384, "resample": 2, "do_normalize": false}"#,
                json!([
                    ["resize", "stretch"],
                    ["interpolation", "smooth"],
                    ["mean", [0.0, 0.0, 0.0]],
                    ["std", [1.0, 1.0, 1.0]]
                ]),
            ),
            (
                r#"{"size": {"height": 64, "width": 64}, "do_rescale": false, "image_mean": [51, 51, 51], "image_std": 255}"#,
                json!([
                    ["resize", "stretch"],
                    ["mean", [0.2, 0.2, 0.2]],
                    ["std", [1.0, 1.0, 1.0]]
                ]),
            ),
            (
                r#"{"size": {"shortest_edge": 224}, "crop_pct": 0.875, "image_mean": null}"#,
                json!([["resize", "crop"], ["part", 0.875]]),
            ),
            (r#"{"feature_size": 80, "sampling_rate": 16000}"#, json!([])),
        ] {
            let file = read(text).expect("valid");
            let scaled = file.values.strip_prefix(&[("scale", json!(1.0 / 255.0))]);
            let values = scaled.unwrap_or(&file.values);
            assert_eq!(json!(values), expected, "{text}");
        }
    }

    #[test]
    fn faults_name_the_key() {
        for (text, part) in [
            ("[]", "expected an object"),
            ("{", "EOF"),
            (
                r#"{"size": 1, "do_resize": 3}"#,
                "`do_resize`: expected true or false, got 3",
            ),
            (
                r#"{"size": 1, "resample": 5}"#,
                "`resample`: expected 0 (nearest) to 3 (cubic), got 5",
            ),
            (
                r#"{"size": 1, "image_mean": [1, 2]}"#,
                "`image_mean`: expected a number for each of 3",
            ),
            (
                r#"{"size": 1, "rescale_factor": "x"}"#,
                "`rescale_factor`: expected a number",
            ),
            (
                r#"{"size": 8, "do_center_crop": true, "crop_size": 9}"#,
                "`crop_size` is larger than `size`",
            ),
        ] {
            let error = read(text).expect_err("a fault");
            assert!(error.contains(part) && error.contains(NAME), "{error}");
        }
    }
}

//! Tests of `init` on every model file of the fixtures, each as a separate package.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use pkgtool_base::package::Backend;
use pkgtool_check::author::init::{ConfigDraft, Given, InitOptions, plan};
use pkgtool_check::policy::Policy;
use pkgtool_model as model;
use serde_json::Value;

use super::read;
use crate::support::fixture;

/// Programs stored as headers, with their full lengths; a sparse hole replaces the rest.
const HEADERS: [(&str, u64); 3] = [
    ("llama_tiny_kv_xnnpack_fp32", 579_584),
    ("minilm_l2_xnnpack_8da4w", 3_030_016),
    ("mobilenet_v3_small_xnnpack_int8", 2_751_136),
];

struct Package {
    directory: tempfile::TempDir,
    /// Name of the fixture without its extension.
    name: String,
    draft: ConfigDraft,
}

/// Returns the model files of a folder of the fixtures.
fn models(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(fixture(folder)).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut models: Vec<PathBuf> = paths
        .filter(|path| {
            let extension = path.extension().and_then(|it| it.to_str());
            extension
                .is_some_and(|it| ["pte", "bpte", "onnx", "mlpackage", "mlmodel"].contains(&it))
        })
        .collect();
    models.sort();
    models
}

/// Copies a fixture into a package `<name>/<backend>/` under a conventional name, and drafts its
/// config.
fn package(path: &Path, default: Backend) -> Package {
    let file = path
        .file_name()
        .and_then(|name| name.to_str())
        .expect("UTF-8");
    let (stem, extension) = file.rsplit_once('.').expect("an extension");
    let name = stem.strip_suffix(".head").unwrap_or(stem);
    let backend = Backend::ALL
        .into_iter()
        .find(|backend| name.contains(&format!("_{backend}_")));
    let backend_name = backend.unwrap_or(default).name();
    let precision = match name {
        _ if name.contains("int8") => "int8",
        _ if name.contains("int4") => "8da4w",
        _ if name.contains("half") || name.contains("float16") => "fp16",
        _ => "fp32",
    };
    let new = match backend {
        Some(_) => format!("{name}.{extension}"),
        None => format!("{name}_{backend_name}_{precision}.{extension}"),
    };
    let directory = tempfile::tempdir().expect("a directory");
    let home = directory.path().join(name).join(backend_name);
    fs::create_dir_all(&home).expect("directories");
    copy(path, &home.join(new));
    if let Some((_, length)) = HEADERS.iter().find(|(header, _)| *header == name) {
        let whole = fs::read_dir(&home)
            .expect("a directory")
            .next()
            .expect("a file");
        let whole = whole.expect("a file").path();
        let file = File::options()
            .write(true)
            .open(whole)
            .expect("it can be written");
        file.set_len(*length).expect("a hole");
    }
    for data in fs::read_dir(path.parent().expect("a folder"))
        .expect("a folder")
        .flatten()
    {
        let is_data = |it: &str| it == "ptd" || it == "data";
        if data
            .path()
            .extension()
            .and_then(|it| it.to_str())
            .is_some_and(is_data)
        {
            fs::copy(data.path(), home.join(data.file_name())).expect("a copy");
        }
    }
    let options = InitOptions {
        directory: home,
        given: Given {
            family: Some("fixtures".to_owned()),
            capabilities: vec!["vision".to_owned()],
            license: Some("MIT".to_owned()),
            ..Given::default()
        },
        ..InitOptions::default()
    };
    let mut plan =
        plan(&options, &Policy::nearest()).unwrap_or_else(|error| panic!("{file}: {error}"));
    assert_eq!(plan.drafts.len(), 1, "{file}: {:?}", plan.passed_over);
    Package {
        directory,
        name: name.to_owned(),
        draft: plan.drafts.remove(0),
    }
}

fn copy(from: &Path, to: &Path) {
    if !from.is_dir() {
        fs::copy(from, to).expect("a copy");
        return;
    }
    fs::create_dir(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory").flatten() {
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}

impl Package {
    /// Returns the config. Fails the test if validation finds an error that is not the model's own.
    fn config(&self) -> Value {
        let name = &self.name;
        assert!(
            self.draft.missing.is_empty(),
            "{name}: {:?}",
            self.draft.missing
        );
        let text = self
            .draft
            .text
            .as_ref()
            .unwrap_or_else(|| panic!("{name}: no text"));
        let config: Value = serde_json::from_str(text).expect("JSON");
        let variant = &config["variants"][0];
        let file = variant["file"].as_str().expect("a file");
        let path = self.draft.path.with_file_name(file);
        let (info, size) = model::open(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(variant["size_bytes"], size, "{name}");
        let mut allowed = BTreeSet::from(["PKG037"]);
        let backend = Backend::from_name(config["backend"].as_str().expect("a backend"));
        let delegates = info.methods.iter().flat_map(|method| &method.delegates);
        let ids: BTreeSet<&str> = delegates.map(|delegate| delegate.id.as_str()).collect();
        if info.format == "executorch" && !ids.contains(backend.expect("known").delegate_id()) {
            allowed.insert("PKG038");
        }
        if model::declaration::methods(&info).is_err() {
            allowed.insert("PKG013");
        }
        let home = self.draft.path.parent().expect("a directory");
        if info.external.iter().any(|data| data.locate(home).is_err()) {
            allowed.insert("PKG040");
        }
        // Fixtures are named after their purpose, not after their content.
        allowed.extend(["PKG050", "PKG051", "PKG052"]);
        for found in &self.draft.report.diagnostics {
            let code = found.rule.code;
            assert!(allowed.contains(code), "{name}: {code} {}", found.message);
        }
        config
    }
}

#[test]
fn methods_are_those_that_were_read_independently() {
    let expected = read(&fixture("models/expect.json"));
    let mut compared = 0;
    for path in models("models") {
        let package = package(&path, Backend::Xnnpack);
        let config = package.config();
        let Some(methods) = expected.get(&package.name).and_then(Value::as_object) else {
            continue;
        };
        let written = &config["variants"][0]["methods"];
        for (method, says) in methods
            .iter()
            .filter(|(_, it)| it["constant_method"] == false)
        {
            for side in ["inputs", "outputs"] {
                let tensors = says[side].as_array().expect("an array").iter();
                let tensors = tensors.filter(|it| it["config_shape"].is_array());
                let tensors: Vec<(&Value, &Value)> = tensors
                    .map(|it| (&it["config_shape"], &it["dtype"]))
                    .collect();
                let Some(own) = written[method][side].as_array() else {
                    continue;
                };
                let own: Vec<(&Value, &Value)> =
                    own.iter().map(|it| (&it["shape"], &it["dtype"])).collect();
                assert_eq!(own, tensors, "{}: {side} of {method}", package.name);
                compared += 1;
            }
        }
    }
    assert!(compared >= 20, "{compared}");
}

#[test]
fn programs_get_clean_configs_with_the_shapes_that_they_are_called_with() {
    let cases = read(&fixture("programs/cases.json"));
    let cases = cases["programs"].as_array().expect("programs");
    let (mut compared, mut open) = (0, 0);
    for path in models("programs") {
        let package = package(&path, Backend::Xnnpack);
        let config = package.config();
        let file = path
            .file_name()
            .and_then(|name| name.to_str())
            .expect("UTF-8");
        let Some(case) = cases.iter().find(|case| case["file"] == file) else {
            continue;
        };
        let methods = case["methods"].as_object().expect("methods");
        let written = &config["variants"][0]["methods"];
        let Some(own) = written.as_object() else {
            continue;
        };
        let names =
            |keys: &mut dyn Iterator<Item = &String>| keys.cloned().collect::<BTreeSet<_>>();
        assert_eq!(names(&mut own.keys()), names(&mut methods.keys()), "{file}");
        for (method, says) in methods {
            let called = says["cases"][0]["inputs"].as_array().expect("inputs");
            let called = called.iter().filter_map(|input| input["shape"].as_array());
            let called: Vec<&Vec<Value>> = called.collect();
            let inputs = own[method]["inputs"].as_array().expect("inputs");
            assert_eq!(inputs.len(), called.len(), "{file}: inputs of {method}");
            for (input, shape) in inputs.iter().zip(called) {
                let declared = input["shape"].as_array().expect("a shape");
                assert_eq!(declared.len(), shape.len(), "{file}: {method}");
                let fits = |(one, size): (&Value, &Value)| *one == -1 || one == size;
                if declared.iter().zip(shape).all(fits) {
                    compared += 1;
                } else {
                    // The file leaves open which dimension varies, so a remark says so.
                    let remarks = package.draft.remarks.join(" ");
                    let told = remarks.contains("does not record which dimensions are dynamic");
                    assert!(told, "{file}: {input} for {shape:?}");
                    open += 1;
                }
            }
        }
    }
    assert!(compared >= 200 && open <= 10, "{compared} and {open}");
}

#[test]
fn models_of_other_formats_and_backends_get_clean_configs() {
    for (folder, backend, least) in [
        ("payloads", Backend::Xnnpack, 90),
        ("coreml", Backend::CoreMl, 10),
        ("models/onnx", Backend::Xnnpack, 5),
    ] {
        let mut methods = 0;
        let models = models(folder);
        for path in &models {
            let package = package(path, backend);
            let config = package.config();
            methods += usize::from(config["variants"][0]["methods"].is_object());
            assert!(package.directory.path().is_dir());
        }
        assert!(models.len() >= least, "{folder}: {}", models.len());
        assert!(
            methods * 10 >= models.len() * 6,
            "{folder}: {methods} of {}",
            models.len()
        );
    }
}

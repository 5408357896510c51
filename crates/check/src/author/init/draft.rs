//! Writes the text of a config from a [`Sketch`], with the evidence for each field, and validates
//! it.

use std::path::Path;

use serde_json::{Map, Value as Json, json};

use super::arrange;
use super::file::InitModel;
use super::home::{ExistingConfig, ModelDirectory};
use super::kept;
use super::sketch::{Inferred, Sketch};
use super::{ConfigDraft, DraftField, InitOptions, Missing, Need};
use crate::policy::Policy;
use crate::validate::{self, Recheck};
use pkgtool_base::diagnostic::{Diagnostic, Report};
use pkgtool_base::package::roots::depth_below;
use pkgtool_base::package::schema_id::SchemaId;
use pkgtool_base::package::{Discovery, FoundFile, LoadedFile, Roots};
use pkgtool_base::source::pretty::Layout;
use pkgtool_model::{Dim, ModelInfo, declaration};

/// Builds a config and records evidence, missing fields and remarks.
struct DraftWriter<'a> {
    sketch: &'a Sketch,
    options: &'a InitOptions,
    schema: SchemaId,
    fields: Vec<DraftField>,
    missing: Vec<Missing>,
    remarks: Vec<String>,
}

/// Files of one precision that form one variant.
struct Group<'a> {
    precision: &'a Inferred<String>,
    files: Vec<usize>,
}

/// Composes the config of a sketch; if nothing is missing, produces its text and validates it.
pub(super) fn compose(
    sketch: &Sketch,
    options: &InitOptions,
    policy: &Policy,
    roots: &Roots,
) -> ConfigDraft {
    let path = sketch.home.config();
    let settings = policy.settings_for(&path);
    let setting = settings
        .as_ref()
        .and_then(|settings| settings.schema_id.as_deref());
    let mut writer = DraftWriter {
        sketch,
        options,
        schema: schema_of(&sketch.home, setting),
        fields: Vec::new(),
        missing: Vec::new(),
        remarks: Vec::new(),
    };
    let value = writer.config();
    let mut draft = ConfigDraft {
        shown: roots.shown(&roots.absolute(&path)),
        fields: writer.fields,
        missing: writer.missing,
        remarks: writer.remarks,
        text: None,
        report: Report::default(),
        path,
    };
    if draft.missing.is_empty() {
        let text = Layout::default().print(&value, "") + "\n";
        match findings(&draft.path, &text, options, policy) {
            Ok(diagnostics) => {
                draft.report.files.push(draft.shown.clone());
                draft.report.packages = 1;
                draft.report.diagnostics = diagnostics;
                draft.report.sort();
            }
            Err(error) => draft.remarks.push(format!("not validated: {error}")),
        }
        draft.text = Some(text);
    }
    draft
}

/// Returns the `$schema` identifier: that of the replaced config, else that of the configs beside
/// it or the project's.
fn schema_of(home: &ModelDirectory, setting: Option<&str>) -> SchemaId {
    let own = match &home.there {
        ExistingConfig::Something(loaded) => loaded.document.as_ref().ok(),
        ExistingConfig::Nothing | ExistingConfig::Empty => None,
    };
    let own = own.and_then(|document| document.root.get("$schema")?.as_str());
    match own.filter(|id| validate::is_uri(id)) {
        Some(id) => SchemaId {
            id: id.to_owned(),
            evidence: "`$schema` of the replaced config",
            is_mixed: false,
        },
        None => SchemaId::of(
            &home.absolute,
            depth_below(&home.absolute, &home.root),
            setting,
        ),
    }
}

/// Validates a text under the project's settings. Findings that compare several configs are not
/// included.
fn findings(
    path: &Path,
    text: &str,
    options: &InitOptions,
    policy: &Policy,
) -> Result<Vec<Diagnostic>, validate::ValidationError> {
    let checks = validate::ValidationOptions {
        paths: Vec::new(),
        precisions: options.precisions.clone(),
        open_models: true,
        jobs: 1,
    };
    let ruling = policy.ruling(&checks);
    let nothing = Discovery::default();
    let recheck = Recheck::new(&checks, &nothing, &ruling)?;
    let loaded = LoadedFile::from_bytes(text.as_bytes().to_vec());
    let found = recheck.check(&FoundFile::named(path), &loaded);
    Ok(found.unwrap_or_default())
}

impl DraftWriter<'_> {
    fn config(&mut self) -> Json {
        let sketch = self.sketch;
        let mut root = Map::new();
        self.put(
            &mut root,
            "$schema",
            json!(self.schema.id),
            self.schema.evidence,
        );
        if let Some(told) = &sketch.arrangement.model {
            self.put(&mut root, "model", json!(told.token), &told.evidence);
        } else {
            let doubt = sketch.arrangement.doubt.clone();
            let why =
                doubt.unwrap_or_else(|| "neither file names nor directories contain it".to_owned());
            self.record_missing(Need::Model, why, None);
        }
        self.put_inferred(&mut root, "family", Need::Family, sketch.family.as_ref());
        if let Some(told) = &sketch.arrangement.size {
            self.put(&mut root, "size", json!(told.token), &told.evidence);
        }
        let capabilities = sketch.capabilities.as_ref();
        self.put_inferred(&mut root, "capabilities", Need::Capabilities, capabilities);
        let backend = sketch.backend.as_ref().map(|said| Inferred {
            value: said.value.name(),
            evidence: said.evidence.clone(),
            guess: said.guess,
        });
        self.put_inferred(&mut root, "backend", Need::Backend, backend.as_ref());
        self.put_inferred(&mut root, "license", Need::License, sketch.license.as_ref());
        let tokenizers = [
            ("tokenizer", &sketch.tokenizer),
            ("tokenizer_config", &sketch.tokenizer_config),
        ];
        for (key, beside) in tokenizers {
            if let Some(beside) = beside {
                self.put(&mut root, key, json!(beside.reference), beside.evidence);
            }
        }
        let variants = self.variants();
        root.insert("variants".to_owned(), variants);
        Json::Object(root)
    }

    fn variants(&mut self) -> Json {
        let sketch = self.sketch;
        let mut groups: Vec<Group<'_>> = Vec::new();
        let is_pipeline = sketch.arrangement.components.is_some();
        for (index, precision) in sketch.precisions.iter().enumerate() {
            let Some(precision) = self.accepted(index, precision.as_ref()) else {
                continue;
            };
            let same = groups.iter_mut().find(|group| {
                is_pipeline
                    && group.precision.value == precision.value
                    && !self.has_component(group, index)
            });
            match same {
                Some(group) => group.files.push(index),
                None => groups.push(Group {
                    precision,
                    files: vec![index],
                }),
            }
        }
        let list = &sketch.list;
        let plain_first = list.non_quantized.iter().chain(&list.quantized);
        let order: Vec<&String> = plain_first.collect();
        groups.sort_by_key(|group| {
            order
                .iter()
                .position(|token| **token == group.precision.value)
        });
        let groups = groups.iter().enumerate();
        let variants = groups.map(|(at, group)| self.variant(at, group)).collect();
        Json::Array(variants)
    }

    fn has_component(&self, group: &Group<'_>, index: usize) -> bool {
        let components = self.sketch.arrangement.components.as_deref();
        let name = |index: usize| components.and_then(|names| names.get(index));
        group.files.iter().any(|other| name(*other) == name(index))
    }

    /// Returns the precision of a file, unless the author must give it.
    fn accepted<'s>(
        &mut self,
        index: usize,
        precision: Option<&'s Inferred<String>>,
    ) -> Option<&'s Inferred<String>> {
        match precision {
            Some(said) if !said.guess || self.options.accept_guesses => Some(said),
            other => {
                let file = &self.sketch.files[index].name;
                let why = match other {
                    Some(said) => format!("only likely: {}", said.evidence),
                    None => "neither the file's name nor its content shows it".to_owned(),
                };
                let proposal = other.map(|said| said.value.clone());
                self.record_missing(Need::Precision(file.clone()), why, proposal);
                None
            }
        }
    }

    fn variant(&mut self, at: usize, group: &Group<'_>) -> Json {
        let sketch = self.sketch;
        let pointer = format!("/variants/{at}");
        let mut variant = Map::new();
        let said = group.precision;
        variant.insert("precision".to_owned(), json!(said.value));
        self.record_field(
            format!("{pointer}/precision"),
            json!(said.value),
            &said.evidence,
            said.guess,
        );
        let (files, methods) = match &sketch.arrangement.components {
            None => self.single(&pointer, group.files[0], &mut variant),
            Some(names) => self.pipeline(&pointer, group, names, &mut variant),
        };
        match files {
            Some(size) => {
                variant.insert("size_bytes".to_owned(), json!(size));
                let evidence = match sketch.arrangement.components {
                    None => "the file's size",
                    Some(_) => "the sizes of the components together",
                };
                self.record_field(
                    format!("{pointer}/size_bytes"),
                    json!(size),
                    evidence,
                    false,
                );
            }
            None => self.remarks.push(format!(
                "`size_bytes` of the variant {} is left out: the size of a file is unknown",
                said.value
            )),
        }
        if !methods.is_empty() {
            variant.insert("methods".to_owned(), Json::Object(methods));
        }
        Json::Object(variant)
    }

    fn single(
        &mut self,
        pointer: &str,
        index: usize,
        variant: &mut Map<String, Json>,
    ) -> (Option<u64>, Map<String, Json>) {
        let file = &self.sketch.files[index];
        variant.insert("file".to_owned(), json!(file.name));
        self.record_field(
            format!("{pointer}/file"),
            json!(file.name),
            "the model file",
            false,
        );
        let methods = self.methods(format!("{pointer}/methods"), file, None);
        (file.size, methods)
    }

    fn pipeline(
        &mut self,
        pointer: &str,
        group: &Group<'_>,
        names: &[String],
        variant: &mut Map<String, Json>,
    ) -> (Option<u64>, Map<String, Json>) {
        let sketch = self.sketch;
        variant.insert("file".to_owned(), Json::Null);
        let mut models: Vec<(&str, &InitModel)> = group
            .files
            .iter()
            .map(|index| (names[*index].as_str(), &sketch.files[*index]))
            .collect();
        models.sort_by_key(|(name, _)| arrange::rank(name));
        let all: std::collections::BTreeSet<&String> = names.iter().collect();
        if models.len() < all.len() {
            let lacking = all
                .iter()
                .filter(|name| models.iter().all(|(it, _)| it != **name));
            let lacking: Vec<String> = lacking.map(|name| format!("`{name}`")).collect();
            let precision = &group.precision.value;
            self.remarks.push(format!(
                "the variant {precision} has no {}, but other precisions have",
                lacking.join(", ")
            ));
        }
        let (mut components, mut methods) = (Map::new(), Map::new());
        let mut size = Some(0_u64);
        for (name, beside) in &sketch.data {
            components.insert(name.clone(), json!(beside.reference));
            let at = format!("{pointer}/components/{name}");
            self.record_field(at, json!(beside.reference), "the file of that name", false);
            size = size
                .zip(beside.size())
                .and_then(|(sum, size)| sum.checked_add(size));
        }
        for (name, file) in models {
            components.insert(name.to_owned(), json!(file.name));
            let at = format!("{pointer}/components/{name}");
            self.record_field(at, json!(file.name), "the word in the file's name", false);
            size = size
                .zip(file.size)
                .and_then(|(sum, size)| sum.checked_add(size));
            let own = self.methods(format!("{pointer}/methods/{name}"), file, Some(name));
            if !own.is_empty() {
                methods.insert(name.to_owned(), Json::Object(own));
            }
        }
        variant.insert("components".to_owned(), Json::Object(components));
        (size, methods)
    }

    /// Returns the methods of a file; empty with a remark if they cannot be determined.
    fn methods(
        &mut self,
        pointer: String,
        file: &InitModel,
        component: Option<&str>,
    ) -> Map<String, Json> {
        let declared = match &file.info {
            Ok(info) => declaration::methods(info).map_err(|error| error.to_string()),
            Err(reason) => {
                let remark = format!("no `methods`: `{}` {reason}", file.name);
                self.remarks.push(remark);
                return Map::new();
            }
        };
        match declared {
            Ok(mut methods) => {
                let there = &self.sketch.home.there;
                let kept = kept::tensors(there, file, component, &mut methods);
                if !methods.is_empty() {
                    let names: Vec<&String> = methods.keys().collect();
                    let header = format!("the header of {} ({})", file.name, file.format());
                    let evidence = match kept.words() {
                        Some(kept) => format!("{header}; {kept} from the replaced config"),
                        None => header,
                    };
                    self.record_field(pointer, json!(names), &evidence, false);
                    let info = file.model().filter(|_| !kept.has_dims());
                    self.remarks
                        .extend(info.and_then(|info| open_dimensions(info, &file.name)));
                }
                methods
            }
            Err(reason) => {
                self.remarks
                    .push(format!("no `methods` of `{}`: {reason}", file.name));
                Map::new()
            }
        }
    }

    fn put(&mut self, object: &mut Map<String, Json>, key: &str, value: Json, evidence: &str) {
        object.insert(key.to_owned(), value.clone());
        self.record_field(format!("/{key}"), value, evidence, false);
    }

    fn put_inferred<T: serde::Serialize>(
        &mut self,
        object: &mut Map<String, Json>,
        key: &str,
        need: Need,
        said: Option<&Inferred<T>>,
    ) {
        let Some(said) = said else {
            let why = match need {
                Need::License => {
                    "no LICENSE and no model card with `license:` in its front matter was found"
                }
                Need::Capabilities => "the signatures do not show them",
                Need::Backend => "neither the directory nor names nor delegates indicate one",
                _ => "no evidence found",
            };
            self.record_missing(need, why.to_owned(), None);
            return;
        };
        let value = json!(said.value);
        if said.guess && !self.options.accept_guesses {
            let why = match need {
                Need::Family => said.evidence.clone(),
                _ => format!("only likely, by {}", said.evidence),
            };
            self.record_missing(need, why, Some(words(&value)));
            return;
        }
        object.insert(key.to_owned(), value.clone());
        self.record_field(format!("/{key}"), value, &said.evidence, said.guess);
    }

    fn record_field(&mut self, pointer: String, value: Json, evidence: &str, guess: bool) {
        self.fields.push(DraftField {
            pointer,
            value,
            evidence: evidence.to_owned(),
            guess,
        });
    }

    fn record_missing(&mut self, need: Need, why: String, proposal: Option<String>) {
        self.missing.push(Missing {
            need,
            why,
            proposal,
        });
    }
}

/// Describes the tensors whose dynamic dimension the file does not record.
fn open_dimensions(info: &ModelInfo, file: &str) -> Option<String> {
    const MOST: usize = 4;
    let methods = info.methods.iter().filter(|method| !method.constant);
    let open: Vec<String> = methods
        .flat_map(|method| {
            let inputs = method.inputs.iter().map(|value| ("input", value));
            let outputs = method.outputs.iter().map(|value| ("output", value));
            let sides = [inputs.collect::<Vec<_>>(), outputs.collect()];
            sides.into_iter().flat_map(move |values| {
                let tensors = values
                    .into_iter()
                    .filter_map(|(side, value)| Some((side, value.tensor()?)));
                tensors.enumerate().filter_map(move |(at, (side, tensor))| {
                    let dims = tensor.dims.as_deref().unwrap_or_default();
                    let is_open = dims.iter().any(|dim| matches!(dim, Dim::Maybe { .. }));
                    is_open.then(|| format!("{side} {at} of `{}`", method.name))
                })
            })
        })
        .collect();
    let shown = open
        .iter()
        .take(MOST)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    let more = match open.len().saturating_sub(MOST) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!open.is_empty()).then(|| {
        format!("`{file}` does not record which dimensions are dynamic in {shown}{more}: -1 is written at the likeliest one, check it")
    })
}

/// Formats a value as plain text; lists are joined by commas.
fn words(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Array(elements) => elements.iter().map(words).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

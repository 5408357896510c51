//! Lists all methods of all variants of a package in order of preference.
//!
//! Invariant: the entries of a variant are adjacent. Variants have the specification's order of
//! backends; within a backend, unquantized ones come first, then the order of the file applies.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::super::call::strip_directories;
use super::super::engine::{Endpoint, EndpointModel};
use super::super::text::TextEndpoint;
use super::super::{CallError, MethodDescription};
use super::embedding::{EmbedderCell, TextFiles, UNUSABLE_FILES};
use super::takes::MethodTakes;
use pkgtool_base::package::{Backend, Config, PrecisionList, Variant};
use pkgtool_engine::runtime::selection::{self, ModelFile, SelectionError};
use pkgtool_engine::runtime::target;
use pkgtool_engine::tensor::{Signature, input};
use pkgtool_engine::{self as engine, Carrying, PortableReading};
use pkgtool_media::diffusion::SCHEDULER_COMPONENT;
use pkgtool_media::recipe::{CandidateModel, ModelRecipe};
use pkgtool_media::trained::{ENCODER, HEAD};
use pkgtool_model::{ModelInfo, OpenError, folder_size};
use pkgtool_text::decoder::EmbeddedParts;

/// Capability of models that embed pictures.
const PICTURE_EMBEDDING: &str = "image-embedding";

/// Capability of packages that classify.
const CLASSIFICATION: &str = "classification";

/// Component that is a tokenizer.
const TOKENIZER: &str = "tokenizer";

/// One validated config of a package.
#[derive(Debug, Clone)]
pub struct PackageConfig {
    /// Its path.
    pub path: PathBuf,
    /// Its content.
    pub config: Config,
    /// The precision list that applies to it.
    pub precisions: Arc<PrecisionList>,
}

/// The methods of a package.
#[derive(Debug)]
pub(super) struct Variants {
    pub(super) entries: Vec<MethodEntry>,
    /// Total size of each variant's files in bytes, in the order of [`MethodEntry::variant`].
    pub(super) sizes: Vec<u64>,
}

/// One method of one model file.
#[derive(Debug)]
pub(super) struct MethodEntry {
    /// The config that declares it.
    pub(super) package: Arc<PackageConfig>,
    /// Index of its variant.
    pub(super) variant: usize,
    pub(super) backend: Backend,
    pub(super) precision: String,
    pub(super) quantized: bool,
    pub(super) component: Option<String>,
    pub(super) method: String,
    /// Inputs and outputs from the model's header, if they are tensors.
    pub(super) signature: Option<Signature>,
    /// The model that its sessions load, or the reason why this build cannot run it.
    pub(super) model: Result<EndpointModel, String>,
    /// Notes on answers that only an interpretation by this build produces.
    pub(super) reading: Option<PortableReading>,
    /// Created at the first call.
    pub(super) endpoint: OnceLock<Arc<Endpoint>>,
    /// The endpoint of a decoder that keeps keys and values in its sessions.
    pub(super) steps: OnceLock<Arc<Endpoint>>,
    /// Read at the first use.
    pub(super) takes: OnceLock<MethodTakes>,
    /// Found at the first use.
    recipe: OnceLock<Result<Arc<ModelRecipe>, String>>,
    /// The file of a scheduler, if it is a component of the variant.
    scheduler: Option<PathBuf>,
    /// Files for texts, if the package has them.
    pub(super) text: Option<TextFiles>,
    /// Created when texts are first embedded.
    pub(super) embedder: EmbedderCell,
    /// The entry that converts tokens, for a decoder that takes embeddings.
    pub(super) embedding: Option<usize>,
    /// Created when a text is first generated.
    pub(super) generator: OnceLock<Arc<TextEndpoint>>,
}

/// A variant that is not sorted yet.
struct VariantCandidate<'c> {
    package: &'c Arc<PackageConfig>,
    backend: Backend,
    precision: String,
    quantized: Option<bool>,
    variant: &'c Variant,
}

impl Variants {
    /// Reads the headers of all model files in the configs. `service` is the name in logs and
    /// metrics.
    pub(super) fn read(configs: &[PackageConfig], service: &str) -> Result<Self, String> {
        let mut candidates = Vec::new();
        let configs: Vec<Arc<PackageConfig>> = configs.iter().cloned().map(Arc::new).collect();
        for package in &configs {
            candidates.extend(candidates_of(package)?);
        }
        let backend = |backend| Backend::ALL.iter().position(|known| *known == backend);
        // Precisions that the list does not contain rank between unquantized and quantized ones.
        // The sort is stable and otherwise keeps the file's order.
        let rank = |quantized| match quantized {
            Some(false) => 0,
            None => 1,
            Some(true) => 2,
        };
        candidates.sort_by_key(|it| (backend(it.backend), rank(it.quantized)));
        let mut variants = Self {
            entries: Vec::new(),
            sizes: Vec::new(),
        };
        for candidate in &candidates {
            variants.add(candidate, service)?;
        }
        if variants.entries.is_empty() {
            return Err("it does not contain a model in a supported format".to_owned());
        }
        Ok(variants)
    }

    fn add(&mut self, candidate: &VariantCandidate<'_>, service: &str) -> Result<(), String> {
        let VariantCandidate { package, .. } = candidate;
        let number = self.sizes.len();
        let mut size = 0;
        for file in &candidate.variant.files {
            let opened =
                ModelFile::of_variant(&package.path, &package.config, candidate.variant, file);
            let model = match opened {
                Ok(model) => model,
                // A component that is not a model, such as a scheduler's settings or a tokenizer.
                Err(SelectionError::Model {
                    model,
                    error: OpenError::UnknownFormat,
                }) if candidate.variant.has_components => {
                    size += file_size(&model);
                    continue;
                }
                Err(error) => return Err(error.to_string()),
            };
            let external = external_size(model.path(), model.info());
            size += file_size(model.path()) + external;
            for method in model.methods() {
                let component = file.component.clone();
                let entry =
                    MethodEntry::read(candidate, &model, component, method, (service, external));
                self.entries.push(MethodEntry {
                    variant: number,
                    ..entry
                });
            }
        }
        self.sizes.push(size);
        self.join_parts(number);
        Ok(())
    }

    /// Lets only the decoder of a variant generate, if other methods make its inputs.
    fn join_parts(&mut self, variant: usize) {
        let first = self.entries.partition_point(|it| it.variant < variant);
        let entries = &mut self.entries[first..];
        // Encoders of texts for pictures have such methods, too.
        if !entries.iter().any(MethodEntry::generates) {
            return;
        }
        let signatures: Vec<_> = entries.iter().map(|it| it.signature.as_ref()).collect();
        let Some(parts) = EmbeddedParts::find(&signatures) else {
            return;
        };
        for (place, entry) in entries.iter_mut().enumerate() {
            if place == parts.decoder {
                entry.embedding = Some(first + parts.embedding);
            } else if entry.generates() {
                entry.text = None;
            }
        }
    }
}

impl MethodEntry {
    fn read(
        candidate: &VariantCandidate<'_>,
        file: &ModelFile,
        component: Option<String>,
        method: String,
        (service, external): (&str, u64),
    ) -> Self {
        let selection = file.select(Some(&method)).map_err(|error| match error {
            SelectionError::Signature { error, .. } => error.to_string(),
            other => other.to_string(),
        });
        let companion = |name: &str| {
            let path = &candidate.package.path;
            // The registry has reported a reference that leads nowhere.
            selection::variant_component_file(path, candidate.variant, name).ok()?
        };
        let (scheduler, tokenizer) = (companion(SCHEDULER_COMPONENT), companion(TOKENIZER));
        let format = file.info().format;
        let runnable = target::require_method_runnable(file.path(), file.info(), &method)
            .map_err(|error| error.to_string());
        let header = file.info().method(&method);
        let reading = header.and_then(|header| engine::reading_without_library(format, header));
        let signature = selection.as_ref().ok();
        let signature = signature.map(|selection| selection.signature.clone());
        let model = runnable.and(selection).map(|selection| EndpointModel {
            service: service.to_owned(),
            model: selection.model,
            format,
            signature: selection.signature,
            backend: Some(candidate.backend),
            weight_bytes: selection.info.weight_bytes + external,
            carrying: Carrying::default(),
            first: Vec::new(),
        });
        let model = model.map_err(|reason: String| strip_directories(reason, file.path()));
        let package = candidate.package;
        let encodes = is_encoder(&package.config, component.as_deref());
        let owner = (&*package.path, &package.config);
        let text = TextFiles::of(owner, file.path(), tokenizer, encodes);
        Self {
            package: Arc::clone(package),
            variant: 0,
            scheduler,
            text,
            embedder: EmbedderCell::new(),
            embedding: None,
            generator: OnceLock::new(),
            backend: candidate.backend,
            precision: candidate.precision.clone(),
            quantized: candidate.quantized == Some(true),
            component,
            method,
            signature,
            model,
            reading,
            endpoint: OnceLock::new(),
            steps: OnceLock::new(),
            takes: OnceLock::new(),
            recipe: OnceLock::new(),
        }
    }

    /// Returns the reason why requests to it fail, as far as known.
    pub(super) fn failure(&self) -> Option<String> {
        if let Err(reason) = &self.model {
            return Some(reason.clone());
        }
        let failure = match (self.generator.get(), self.embedder.get()) {
            (Some(generator), _) => generator.failure(),
            (None, Some(Err(_))) => return Some(UNUSABLE_FILES.to_owned()),
            _ => self.endpoint.get().and_then(|endpoint| endpoint.failure()),
        };
        failure.map(CallError::reason)
    }

    /// Returns whether requests to it are rejected without a check.
    pub(super) fn is_refused(&self) -> bool {
        match (&self.model, self.generator.get(), self.embedder.get()) {
            (Err(_), ..) | (_, None, Some(Err(_))) => true,
            (_, Some(generator), _) => generator.is_pausing(),
            _ => self.endpoint.get().is_some_and(|it| it.is_pausing()),
        }
    }

    /// Returns whether its package generates texts.
    pub(super) fn generates(&self) -> bool {
        self.text.as_ref().is_some_and(TextFiles::generates)
    }

    /// Returns whether it embeds pictures: its package declares it, and a single picture is its
    /// only input.
    pub(super) fn embeds_pictures(&self) -> bool {
        let config = &self.package.config;
        let says = config.capabilities.iter().any(|it| it == PICTURE_EMBEDDING)
            || is_encoder(config, self.component.as_deref());
        let Some(signature) = self.signature.as_ref().filter(|_| says) else {
            return false;
        };
        signature.inputs.len() == 1 && input::picture_inputs(signature).len() == 1
    }

    /// Returns whether it embeds texts, judged by its signature, even if this build cannot run it.
    pub(super) fn embeds(&self) -> bool {
        let (Some(text), Some(signature)) = (&self.text, &self.signature) else {
            return false;
        };
        text.embeds(signature)
    }

    /// Returns the recipe for this method, or an error if none fits. The first call reads files of the package.
    pub(super) fn recipe(&self) -> Result<&Arc<ModelRecipe>, &str> {
        let found = self.recipe.get_or_init(|| {
            let model = self.model.as_ref().map_err(Clone::clone)?;
            let (info, _) = pkgtool_model::open(&model.model).map_err(|error| error.to_string())?;
            let config = &self.package.config;
            let component = self.component.as_deref();
            let candidate = CandidateModel::of(config, component, &model.signature);
            let recipe = ModelRecipe::of(&model.model, &info, &candidate);
            let with_scheduler = |mut recipe: ModelRecipe| {
                if recipe.diffuses() {
                    recipe.set_scheduler(self.scheduler.as_deref(), &model.model)?;
                }
                Ok(Arc::new(recipe))
            };
            recipe
                .and_then(with_scheduler)
                .map_err(|reason| strip_directories(reason, &model.model))
        });
        found.as_ref().map_err(String::as_str)
    }

    /// Describes it for the registry.
    /// Returns backend, precision, component and method, as one text.
    pub(super) fn full_name(&self) -> String {
        let parts = [self.backend.name(), &self.precision].into_iter();
        let parts: Vec<&str> = parts
            .chain(self.component.as_deref())
            .chain([&*self.method])
            .collect();
        parts.join(" ")
    }

    /// Returns the endpoints created so far.
    pub(super) fn endpoints(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        let generator = self.generator.get().and_then(|it| it.endpoint());
        let own = self.endpoint.get().into_iter().chain(self.steps.get());
        own.chain(generator)
    }

    pub(super) fn describe(&self) -> MethodDescription {
        let signature = self.signature.as_ref();
        MethodDescription {
            backend: self.backend.name().to_owned(),
            precision: self.precision.clone(),
            component: self.component.clone(),
            method: self.method.clone(),
            not_runnable: self.model.as_ref().err().cloned(),
            inputs: signature.map_or_else(Vec::new, |it| it.inputs.clone()),
            outputs: signature.map_or_else(Vec::new, |it| it.outputs.clone()),
        }
    }
}

/// Returns whether the component computes the embeddings of a package that classifies.
pub(super) fn is_encoder(config: &Config, component: Option<&str>) -> bool {
    let classifies = config.capabilities.iter().any(|it| it == CLASSIFICATION);
    let files = || config.variants.iter().flat_map(|variant| &variant.files);
    let has_head = || files().any(|file| file.component.as_deref() == Some(HEAD));
    classifies && component == Some(ENCODER) && has_head()
}

fn candidates_of(package: &Arc<PackageConfig>) -> Result<Vec<VariantCandidate<'_>>, String> {
    let at = || package.path.display();
    let Some(backend) = package.config.backend else {
        return Err(format!("{}: missing backend", at()));
    };
    let variants = package.config.variants.iter();
    variants
        .map(|variant| {
            let Some(precision) = variant.precision.clone() else {
                return Err(format!("{}: missing precision of a variant", at()));
            };
            Ok(VariantCandidate {
                package,
                backend,
                quantized: package.precisions.is_quantized(&precision),
                precision,
                variant,
            })
        })
        .collect()
}

fn file_size(path: &Path) -> u64 {
    if path.is_dir() {
        return folder_size(path);
    }
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Returns the total size of a model's external data files, in bytes.
fn external_size(model: &Path, info: &ModelInfo) -> u64 {
    let files = external_files(model, info);
    files.iter().map(|file| file_size(file)).sum()
}

/// Returns the distinct external data files of a model.
pub(super) fn external_files(model: &Path, info: &ModelInfo) -> Vec<PathBuf> {
    let directory = match model.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut files: Vec<PathBuf> = info
        .external
        .iter()
        .filter_map(|external| external.locate(directory).ok().flatten())
        .collect();
    files.sort();
    files.dedup();
    files
}

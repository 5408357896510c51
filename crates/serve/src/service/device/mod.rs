//! A package's models as a service: resolves predict configs to a variant, decodes requests, runs
//! models and encodes answers.
//!
//! Invariant: a method has at most one endpoint, created at its first call and never after the
//! device was drained. A request never waits for a lock that another request holds while it works.

mod adapted;
mod answered;
mod choice;
mod classifier;
mod decoded;
mod embedding;
mod generation;
mod heard;
mod life;
mod options;
mod sides;
mod spoken;
mod takes;
mod time;
mod trainable;
mod utterance;
mod variants;
mod vectors;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::OnceCell;

use super::away::caller;
use super::call::strip_directories;
use super::engine::{Endpoint, EndpointModel, Engines};
use super::media::MediaRequest;
use super::tensors::{self, Encoding};
use super::text::PreparedText;
use super::{Answer, Attached, CallError, Description, Refusal, Request, ServiceSettings, texts};
use crate::account::AccountId;
use crate::database::Timestamp;
use answered::PreparedAnswer;
use choice::ConfigChoice;
use classifier::{PackageClassifier, PreparedClassification};
use embedding::Tokenizers;
use generation::PreparedGeneration;
use heard::PreparedSound;
use pkgtool_base::package::Backend;
use pkgtool_engine::runtime::process::sandbox::Sandbox;
use pkgtool_engine::tensor::Tensor;
use pkgtool_engine::{ByteSums, PortableReading};
use pkgtool_media::MediaKind;
use pkgtool_media::trained::ENCODER;
use pkgtool_text::embedding::EmbeddingInput;
use spoken::PreparedSpeech;
use utterance::PreparedUtterance;
use variants::{MethodEntry, Variants};
use vectors::PreparedEmbeddings;

pub use embedding::{Embedded, Embedding, TextLimits};
pub use takes::{InputDescription, MethodTakes};
pub use trainable::{ContentKind, EncoderFiles};
pub use variants::PackageConfig;

/// Maximum number of cached predict configs, and the maximum length of one in bytes.
const MAX_CACHED_CONFIGS: usize = 256;
const MAX_CACHED_CONFIG_BYTES: usize = 4096;

/// Size above which outputs are encoded on a blocking thread, in bytes.
const LARGE_ANSWER_BYTES: usize = 1 << 17;

/// A package's models.
#[derive(Debug)]
pub struct Device {
    parts: DeviceParts,
    variants: Variants,
    description: Description,
    /// The entry of requests without a config.
    default: Result<usize, Refusal>,
    /// Cache of resolved configs. Readers never wait.
    remembered: ArcSwap<HashMap<String, usize>>,
    tokenizers: Tokenizers,
    /// Names of the values that recipes have, known at the first use.
    recipe_keys: OnceLock<Vec<String>>,
    /// The classifier, if an encoder and a head form one.
    classifies: Option<PackageClassifier>,
    /// Held while an endpoint is created and while `drained` changes.
    making: Mutex<()>,
    drained: AtomicBool,
    /// The same models for requests that give way to all others.
    in_background: OnceCell<Arc<Self>>,
}

/// A checked request.
#[derive(Debug)]
pub enum PreparedInputs {
    /// Tensors.
    Tensors(PreparedTensors),
    /// A picture that a recipe answers.
    Answered(Box<PreparedAnswer>),
    /// A sound that a recipe answers.
    Heard(Box<PreparedSound>),
    /// A sound whose words are wanted.
    Spoken(Box<PreparedSpeech>),
    /// A text to speak.
    Uttered(Box<PreparedUtterance>),
    /// A text that a picture shows.
    Painted(Box<PreparedGeneration>),
    /// Texts.
    Texts(Embedding),
    /// Texts or a picture to classify.
    Classified(PreparedClassification),
    /// A chat or completion request to a generating model.
    Generated(PreparedText),
    /// An embeddings request of a chat adapter.
    Embedded(PreparedEmbeddings),
}

/// Tensors for a method, with the endpoint that runs it.
#[derive(Debug)]
pub struct PreparedTensors {
    endpoint: Arc<Endpoint>,
    inputs: Vec<Tensor>,
    /// The place of the picture that the inputs came from.
    picture: Option<String>,
    encoding: Encoding,
}

/// Parameters of a device.
#[derive(Debug, Clone)]
pub struct DeviceParts {
    /// The service's owner and name, for logs and metrics.
    pub label: String,
    /// The configs of one package identity, one per backend.
    pub configs: Arc<[PackageConfig]>,
    /// Settings of the service.
    pub settings: ServiceSettings,
    /// Engines that run the models.
    pub engines: Arc<Engines>,
    /// Creation time of the package's oldest file.
    pub created_at: Timestamp,
    /// Time of the last change to a file of the package.
    pub updated_at: Timestamp,
    /// The package's files, with those that its configs refer to.
    pub files: Vec<PathBuf>,
    /// The workers that run its models, if they do not run here.
    pub workers: Option<Arc<Attached>>,
}

impl Device {
    /// Reads the headers of the package's model files without loading models.
    pub fn new(parts: DeviceParts) -> Result<Self, String> {
        let variants = Variants::read(&parts.configs, &parts.label)?;
        let classifies = PackageClassifier::of(&parts.configs, &variants)?;
        let default = resolved(&ConfigChoice::default(), &variants, classifies.as_ref());
        let description = describe(&parts, &variants, classifies.as_ref());
        Ok(Self {
            parts,
            variants,
            description,
            default,
            remembered: ArcSwap::default(),
            tokenizers: Tokenizers::default(),
            recipe_keys: OnceLock::new(),
            classifies,
            making: Mutex::new(()),
            drained: AtomicBool::new(false),
            in_background: OnceCell::new(),
        })
    }

    /// Checks a request.
    pub async fn prepare(&self, request: &Request) -> Result<PreparedInputs, CallError> {
        if let Some(call) = self.adapted(request).await? {
            return self.prepare_adapted(call, request).await;
        }
        let config = request.config.as_deref();
        let decoding = self.parts.engines.decoding();
        let (media_type, takes) = (request.data_type.clone(), self.description.takes);
        let read = move |body: &Bytes| match MediaRequest::read(body, media_type.as_deref(), takes)?
        {
            Some(media) => Ok((Some(media), None)),
            None => texts::decode(body).map(|texts| (None, texts)),
        };
        let (media, texts) = decoding.of(request, read).await??;
        if let Some(media) = media {
            return self.prepare_media(media, request).await;
        }
        if let Some(texts) = texts {
            let given = EmbeddingInput::Texts(texts);
            let caller = caller(request);
            if self.classifies.is_some() {
                let classification = self.prepare_classification(given, config, caller);
                return Ok(PreparedInputs::Classified(classification.await?));
            }
            let embedding = self.prepare_embedding(given, config, caller);
            return Ok(PreparedInputs::Texts(embedding.await?));
        }
        let entry = self.chosen(config)?;
        let model = runnable(entry)?;
        let decoded = self.decoded(request, model).await?;
        let prepared = self.with_endpoint((entry, model), decoded, caller(request));
        let prepared = prepared.await?;
        if prepared.picture.is_some() && self.classifies.is_some() {
            return self.prepare_picture(entry, prepared, config);
        }
        Ok(PreparedInputs::Tensors(prepared))
    }

    /// Checks texts or token ids to embed: their number, their lengths, and whether the service
    /// embeds at all.
    pub async fn prepare_embedding(
        &self,
        given: EmbeddingInput,
        config: Option<&str>,
        caller: AccountId,
    ) -> Result<Embedding, CallError> {
        if !self.description.embeds_texts {
            return Err(texts::not_taken().into());
        }
        let config = config.unwrap_or_default();
        let (embedding, _) = self.encode_texts(given, config, caller).await?;
        Ok(embedding)
    }

    /// Checks texts for a model that embeds, for any use of its vectors. Returns the method too.
    async fn encode_texts(
        &self,
        given: EmbeddingInput,
        config: &str,
        caller: AccountId,
    ) -> Result<(Embedding, &MethodEntry), CallError> {
        let (choice, wishes) = self.read_config(config)?;
        let options = wishes.embedding;
        let index = choice.resolve_among(&self.variants, MethodEntry::embeds)?;
        let entry = &self.variants.entries[index];
        let model = runnable(entry)?;
        let Some(text) = entry
            .text
            .as_ref()
            .filter(|text| text.embeds(&model.signature))
        else {
            return Err(texts::not_taken().into());
        };
        let endpoint = self.endpoint(entry, model)?;
        let client = self.parts.engines.parsers(caller);
        let embedder = text
            .embedder(&entry.embedder, &self.tokenizers, model, &client)
            .await?;
        let embedding = Embedding::new(endpoint, embedder, (given, options), client).await?;
        Ok((embedding, entry))
    }

    /// Resolves a choice to an entry.
    fn resolve(&self, choice: &ConfigChoice) -> Result<usize, Refusal> {
        resolved(choice, &self.variants, self.classifies.as_ref())
    }

    /// Returns the description for the registry.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Removes the directories above the package's files from a text.
    pub(crate) fn relative(&self, text: String) -> String {
        let entries = self.variants.entries.iter();
        entries.fold(text, |text, entry| {
            strip_directories(text, &entry.package.path)
        })
    }

    /// Returns the notes on answers of its models for a backend, if an engine interprets programs
    /// for that backend. After a run, they describe the engine that ran. Before that, they describe
    /// the interpretation, except on Apple systems, where a native backend may run instead.
    pub fn reading(&self, backend: &str) -> Option<PortableReading> {
        let entries = self.variants.entries.iter();
        let mut of_backend = entries.filter(|entry| entry.backend.name() == backend);
        of_backend.find_map(|entry| {
            let endpoint = entry.endpoint.get();
            let is_portable = match endpoint.and_then(|endpoint| endpoint.runs_on()) {
                Some(candidate) => candidate.is_built_in(),
                None => !cfg!(target_vendor = "apple"),
            };
            entry.reading.filter(|_| is_portable && entry.model.is_ok())
        })
    }

    /// Returns how engines sum products of 8-bit numbers in its models for a backend, once they
    /// ran.
    pub fn byte_sums(&self, backend: &str) -> Option<ByteSums> {
        let entries = self.variants.entries.iter();
        let mut of_backend = entries.filter(|entry| entry.backend.name() == backend);
        of_backend.find_map(|entry| entry.endpoint.get()?.byte_sums())
    }

    /// Returns the sandbox of its models for a backend, once they ran.
    pub fn sandbox(&self, backend: &str) -> Option<Sandbox> {
        let entries = self.variants.entries.iter();
        let mut of_backend = entries.filter(|entry| entry.backend.name() == backend);
        of_backend.find_map(|entry| entry.endpoint.get()?.sandbox())
    }

    /// Returns the endpoints created so far.
    pub fn endpoints(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        self.variants
            .entries
            .iter()
            .flat_map(MethodEntry::endpoints)
    }

    /// Returns the endpoints created so far, each with the name of its method: backend, precision,
    /// component and method.
    pub fn methods_in_use(&self) -> impl Iterator<Item = (String, &Arc<Endpoint>)> {
        let entries = self.variants.entries.iter();
        entries.flat_map(|entry| {
            entry
                .endpoints()
                .map(|endpoint| (entry.full_name(), endpoint))
        })
    }

    /// Returns the paths of its configs. Several methods share one.
    pub fn config_paths(&self) -> BTreeSet<&Path> {
        let entries = self.variants.entries.iter();
        entries.map(|entry| &*entry.package.path).collect()
    }

    /// Returns whether its chats may contain pictures.
    pub fn sees_pictures(&self) -> bool {
        self.variants
            .entries
            .iter()
            .any(|entry| entry.embedding.is_some())
    }

    /// Returns the index, among the description's methods, of the method for this config.
    pub fn method_index(&self, config: Option<&str>) -> Result<usize, Refusal> {
        match config {
            None => self.default.clone(),
            Some(config) => self.resolve(&self.read_config(config)?.0),
        }
    }

    /// Returns the inputs that a runnable method takes, by its index among the description's
    /// methods. Reads the model's file at the first call.
    pub fn takes(&self, method: usize) -> Option<&MethodTakes> {
        let entry = self.variants.entries.get(method)?;
        let model = entry.model.as_ref().ok()?;
        Some(
            entry
                .takes
                .get_or_init(|| MethodTakes::of(model, entry.text.as_ref())),
        )
    }

    /// Returns the method for a config.
    fn chosen(&self, config: Option<&str>) -> Result<&MethodEntry, Refusal> {
        let entry = |index: usize| &self.variants.entries[index];
        let Some(config) = config else {
            return self.default.clone().map(entry);
        };
        if let Some(index) = self.remembered.load().get(config) {
            return Ok(entry(*index));
        }
        let index = self.resolve(&self.read_config(config)?.0)?;
        if config.len() <= MAX_CACHED_CONFIG_BYTES {
            self.remembered.rcu(|known| {
                // A client that sends many different configs costs others a lookup, not memory.
                let mut known = if known.len() < MAX_CACHED_CONFIGS {
                    HashMap::clone(known)
                } else {
                    HashMap::new()
                };
                known.insert(config.to_owned(), index);
                known
            });
        }
        Ok(entry(index))
    }

    fn endpoint(
        &self,
        entry: &MethodEntry,
        model: &EndpointModel,
    ) -> Result<Arc<Endpoint>, CallError> {
        self.endpoint_in(&entry.endpoint, model)
    }

    /// Returns the endpoint in this cell. The first call makes it.
    fn endpoint_in(
        &self,
        cell: &OnceLock<Arc<Endpoint>>,
        model: &EndpointModel,
    ) -> Result<Arc<Endpoint>, CallError> {
        let stopped = || self.drained.load(Ordering::Acquire);
        if stopped() {
            return Err(CallError::Stopped);
        }
        if let Some(endpoint) = cell.get() {
            return Ok(Arc::clone(endpoint));
        }
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        // The device may have been drained while this waited; nobody would drain a new endpoint.
        if stopped() {
            return Err(CallError::Stopped);
        }
        let make = || {
            self.parts
                .engines
                .endpoint(model.clone(), &self.parts.settings)
        };
        Ok(Arc::clone(cell.get_or_init(make)))
    }
}

impl PreparedInputs {
    /// Runs the method.
    pub async fn predict(
        self,
        caller: AccountId,
        timeout: Option<Duration>,
    ) -> Result<Answer, CallError> {
        let body = match self {
            Self::Generated(text) => return text.predict(caller, timeout).await,
            Self::Embedded(texts) => return texts.predict(caller, timeout).await,
            Self::Answered(answer) => return answer.predict(caller, timeout).await,
            Self::Heard(sound) => return sound.predict(caller, timeout).await,
            Self::Spoken(sound) => return sound.predict(caller, timeout).await,
            Self::Uttered(text) => return text.predict(caller, timeout).await,
            Self::Painted(text) => return text.predict(caller, timeout).await,
            Self::Classified(classification) => classification.predict(caller, timeout).await?,
            Self::Tensors(tensors) => tensors.predict(caller, timeout).await?,
            Self::Texts(embedding) => {
                let vectors = embedding.run(caller, timeout).await?.vectors;
                let size = vectors.iter().map(|vector| size_of_val(&vector[..])).sum();
                encode_answer(size, move || texts::encode(&vectors)).await?
            }
        };
        Ok(Answer::whole(body, "application/json"))
    }
}

impl PreparedTensors {
    async fn run(
        self,
        caller: AccountId,
        timeout: Option<Duration>,
    ) -> Result<Vec<Tensor>, CallError> {
        let asked = (self.inputs, self.picture.as_deref());
        sides::run(&self.endpoint, caller, asked, timeout).await
    }

    /// Returns the first output as one vector.
    async fn vector(
        self,
        caller: AccountId,
        timeout: Option<Duration>,
    ) -> Result<Vec<f32>, CallError> {
        let outputs = self.run(caller, timeout).await?;
        let vector = outputs.first().map(Tensor::to_f32).unwrap_or_default();
        if vector.is_empty() {
            return Err(CallError::Failed(
                "the model did not return a vector".to_owned(),
            ));
        }
        Ok(vector)
    }

    async fn predict(
        self,
        caller: AccountId,
        timeout: Option<Duration>,
    ) -> Result<Vec<u8>, CallError> {
        let (endpoint, encoding) = (Arc::clone(&self.endpoint), self.encoding);
        let outputs = self.run(caller, timeout).await?;
        let size = outputs.iter().map(|tensor| tensor.bytes().len()).sum();
        let write = move || tensors::encode(endpoint.signature(), &outputs, encoding);
        encode_answer(size, write).await
    }
}

/// Encodes an answer of `size` bytes, on a blocking thread if it is large.
async fn encode_answer(
    size: usize,
    write: impl FnOnce() -> Vec<u8> + Send + 'static,
) -> Result<Vec<u8>, CallError> {
    if size <= LARGE_ANSWER_BYTES {
        return Ok(write());
    }
    let written = tokio::task::spawn_blocking(write).await;
    written.map_err(|_| CallError::Failed("encoding the answer failed".to_owned()))
}

fn runnable(entry: &MethodEntry) -> Result<&EndpointModel, CallError> {
    let model = entry.model.as_ref();
    model.map_err(|reason| CallError::NoInstances(reason.clone()))
}

/// Resolves a choice. In a package that classifies, it means the encoder unless a component is
/// named. Among the methods of a chat with pictures, it means the decoder unless one is named.
fn resolved(
    choice: &ConfigChoice,
    variants: &Variants,
    classifies: Option<&PackageClassifier>,
) -> Result<usize, Refusal> {
    if classifies.is_none() || choice.names_component() {
        let is_decoder = |entry: &MethodEntry| entry.embedding.is_some();
        if !choice.names_part() && variants.entries.iter().any(is_decoder) {
            return choice.resolve_among(variants, is_decoder);
        }
        return choice.resolve(variants);
    }
    let is_encoder = |entry: &MethodEntry| entry.component.as_deref() == Some(ENCODER);
    choice.resolve_among(variants, is_encoder)
}

fn describe(
    parts: &DeviceParts,
    variants: &Variants,
    classifies: Option<&PackageClassifier>,
) -> Description {
    let order = |config: &&PackageConfig| {
        let place = |backend| Backend::ALL.iter().position(|known| *known == backend);
        config.config.backend.and_then(place)
    };
    let first = parts.configs.iter().min_by_key(order);
    let first = first.map(|package| package.config.clone());
    let first = first.unwrap_or_default();
    let entries = &variants.entries;
    let preferred = entries.iter().find(|entry| entry.model.is_ok());
    let preferred = preferred.or(entries.first());
    let mut precisions: Vec<(String, bool)> = Vec::new();
    for entry in entries {
        if precisions
            .iter()
            .all(|(known, _)| *known != entry.precision)
        {
            precisions.push((entry.precision.clone(), entry.quantized));
        }
    }
    let model = first.model.unwrap_or_default();
    let mut capabilities = first.capabilities.iter();
    let takes = capabilities.find_map(|capability| MediaKind::of_capability(capability));
    Description {
        family: first.family.unwrap_or_else(|| model.clone()),
        model,
        size: first.size,
        license: first.license,
        takes: takes.filter(|_| classifies.is_none_or(|it| !it.takes_texts)),
        embeds_texts: classifies.is_none() && entries.iter().any(MethodEntry::embeds),
        labels: classifies.map_or_else(Vec::new, |it| it.labels.names.to_vec()),
        capabilities: first.capabilities,
        backends: each_once(entries, |entry| Some(entry.backend.name())),
        precisions,
        components: each_once(entries, |entry| entry.component.as_deref()),
        methods: each_once(entries, |entry| Some(&entry.method)),
        signatures: entries.iter().map(MethodEntry::describe).collect(),
        default_backend: preferred.map(|entry| entry.backend.name().to_owned()),
        default_precision: preferred.map(|entry| entry.precision.clone()),
        runnable: entries.iter().any(|entry| entry.model.is_ok()),
        size_bytes: preferred.map_or(0, |entry| variants.sizes[entry.variant]),
        created_at: parts.created_at,
        updated_at: parts.updated_at,
    }
}

/// Returns the distinct values of the entries, in their order.
fn each_once<'e>(
    entries: &'e [MethodEntry],
    value: impl Fn(&'e MethodEntry) -> Option<&'e str>,
) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let values = entries.iter().filter_map(value);
    values
        .filter(|value| seen.insert(*value))
        .map(str::to_owned)
        .collect()
}

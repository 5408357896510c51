//! Embedding texts by a method of a package: its tokenizer, its runs, the vectors.
//!
//! Invariant: a tokenizer is loaded once a service, on a thread that may wait, and a failure is remembered;
//! what is wrong with texts is known before the model runs. Vectors keep the order of the texts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;

use super::super::away::{self, NOBODY, parsed};
use super::super::engine::{Endpoint, EndpointModel};
use super::super::{CallError, texts};
use crate::account::AccountId;
use crate::model;
use crate::package::Config;
use crate::runtime::parsers::Client;
use crate::tensor::Signature;
use crate::text::embedding::{
    CAPABILITY, Embedder, EmbeddingError, EmbeddingOptions, EmbeddingSettings, Encoder, Given, Plan,
};
use crate::text::tokenizer::{Tokenizer, TokenizerError, TokenizerFiles};

/// What a client is told of a fault that is not its own.
pub(super) const BROKEN: &str =
    "its package's tokenizer or settings cannot be used; the server's log says why";

/// The capability of packages whose models generate texts.
const GENERATION: &str = "text-generation";

/// A tokenizer, or why there is none.
type Loaded = Arc<OnceCell<Result<Arc<Tokenizer>, String>>>;

/// The tokenizers of a service's packages.
#[derive(Debug, Default)]
pub(super) struct Tokenizers {
    loaded: Mutex<HashMap<TokenizerFiles, Loaded>>,
}

/// Where a method's package has what texts need.
#[derive(Debug, Clone)]
pub(super) struct TextFiles {
    pub(super) tokenizer: TokenizerFiles,
    /// Directories of the package's files.
    pub(super) directories: Vec<PathBuf>,
    /// Whether it has the capability of embedding texts.
    embeds: bool,
    /// Whether it has the capability of generating texts.
    generates: bool,
}

/// What texts a method takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakesTexts {
    /// Most tokens of a text.
    pub tokens: usize,
    /// Most that may be asked for, where there is a bound.
    pub most: Option<usize>,
}

/// A method that embeds, once it was asked for.
pub(super) type EmbedderCell = OnceCell<Result<Arc<Embedder>, String>>;

/// Texts that were checked, and what embeds them.
#[derive(Debug)]
pub struct Embedding {
    endpoint: Arc<Endpoint>,
    plan: Arc<Plan>,
}

/// What became of texts.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedded {
    /// Their vectors, in their order.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens of all of them: those that the tokenizer adds count, padding does not.
    pub tokens: usize,
}

impl Tokenizers {
    /// The tokenizer in these files, loaded when it is first asked for.
    async fn get(&self, files: &TokenizerFiles, client: &Client) -> Result<Arc<Tokenizer>, String> {
        let cell = {
            let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(loaded.entry(files.clone()).or_default())
        };
        let load = || async {
            // Others wait for it, too: who asked first may go.
            let (files, client) = (files.clone(), client.again());
            let loaded = tokio::task::spawn_blocking(move || {
                let tokenizer = Tokenizer::elsewhere(&files, &client)?;
                // It takes a moment for a large vocabulary: here nobody waits for it.
                tokenizer.vocabulary();
                Ok(Arc::new(tokenizer))
            });
            match loaded.await {
                Ok(loaded) => loaded
                    .map_err(|error: crate::text::tokenizer::TokenizerError| error.to_string()),
                Err(error) => Err(error.to_string()),
            }
        };
        cell.get_or_init(load).await.clone()
    }
}

impl TextFiles {
    /// Those of the package whose config is at `path`, if it names a tokenizer. `encodes` is a model that embeds
    /// though its package has another capability.
    pub(super) fn of(path: &Path, package: &Config, model: &Path, encodes: bool) -> Option<Self> {
        let files = TokenizerFiles::of(path, package);
        let tokenizer = match files {
            Ok(files) => files?,
            Err(error) => {
                tracing::warn!(%error, "a tokenizer is not where its package says");
                return None;
            }
        };
        let directories = tokenizer.directories(path, model);
        let capabilities = &package.capabilities;
        Some(Self {
            tokenizer,
            directories,
            embeds: encodes || capabilities.iter().any(|it| it == CAPABILITY),
            generates: capabilities.iter().any(|it| it == GENERATION),
        })
    }

    /// Whether texts can be given to the model, as far as its header tells.
    pub(super) fn embeds(&self, signature: &Signature) -> bool {
        self.embeds && Encoder::of(signature).is_ok()
    }

    /// Whether texts can be generated, as far as the package says.
    pub(super) fn generates(&self) -> bool {
        self.generates
    }

    /// How long texts may be. Reads the package's settings.
    pub(super) fn takes(&self, model: &EndpointModel) -> Option<TakesTexts> {
        let encoder = Encoder::of(&model.signature).ok()?;
        let settings = self.settings(model).ok()?;
        let longest = settings.longest(&encoder, &EmbeddingOptions::default());
        Some(TakesTexts {
            tokens: longest.ok()?.value,
            most: settings.limit(&encoder).map(|limit| limit.value),
        })
    }

    fn settings(&self, model: &EndpointModel) -> Result<EmbeddingSettings, String> {
        let (info, _) = model::open(&model.model).map_err(|error| error.to_string())?;
        let config = self
            .tokenizer
            .read_config()
            .map_err(|error| error.to_string())?;
        let settings = EmbeddingSettings::read(&model.model, &info, &config, &self.directories);
        settings.map_err(|error| error.to_string())
    }

    /// The model with its tokenizer, made when it is first asked for.
    pub(super) async fn embedder(
        &self,
        cell: &EmbedderCell,
        tokenizers: &Tokenizers,
        model: &EndpointModel,
        client: &Client,
    ) -> Result<Arc<Embedder>, CallError> {
        let make = || async {
            let tokenizer = tokenizers.get(&self.tokenizer, client).await?;
            let (files, model) = (self.clone(), model.clone());
            let loading = tokio::task::spawn_blocking(move || {
                let settings = files.settings(&model)?;
                let embedder = Embedder::new(tokenizer, &model.signature, settings);
                embedder.map(Arc::new).map_err(|error| error.to_string())
            });
            loading.await.unwrap_or_else(|error| Err(error.to_string()))
        };
        let known = cell
            .get_or_init(|| async {
                let known = make().await;
                if let Err(reason) = &known {
                    tracing::error!(service = model.service, reason, "texts cannot be embedded");
                }
                known
            })
            .await;
        known
            .clone()
            .map_err(|_| CallError::NoInstances(BROKEN.to_owned()))
    }
}

impl Embedding {
    /// Checks what is to be embedded, and makes the inputs of all runs.
    pub(super) async fn new(
        endpoint: Arc<Endpoint>,
        embedder: Arc<Embedder>,
        (given, options): (Given, EmbeddingOptions),
        client: Client,
    ) -> Result<Self, CallError> {
        let planned = parsed(client, move |client| {
            embedder.on_behalf(client.clone()).plan(&given, &options)
        });
        let planned = planned.await?;
        let plan = planned.map_err(|error| call_error(&error))?;
        Ok(Self {
            endpoint,
            plan: Arc::new(plan),
        })
    }

    /// Tokens of all texts: those that the tokenizer adds count, padding does not.
    pub fn tokens(&self) -> usize {
        self.plan.tokens
    }

    /// Embeds. `timeout` is for all runs together; dropping the future gives them up.
    pub async fn run(
        self,
        caller: AccountId,
        timeout: Option<Duration>,
    ) -> Result<Embedded, CallError> {
        let Self { endpoint, plan } = self;
        let began = Instant::now();
        let mut vectors = vec![Vec::new(); plan.texts];
        for place in 0..plan.runs.len() {
            let left = timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
            let in_all = |error| match (error, timeout) {
                (CallError::Timeout { .. }, Some(after)) => CallError::Timeout { after },
                (error, _) => error,
            };
            let inputs = plan.runs[place].inputs.clone();
            let outputs = endpoint.run(caller, inputs, left).await.map_err(in_all)?;
            let pooled = Arc::clone(&plan);
            let pooled = tokio::task::spawn_blocking(move || {
                pooled.vectors_of(&pooled.runs[place], &outputs)
            });
            let pooled = pooled
                .await
                .map_err(|error| CallError::Failed(error.to_string()))?;
            for (text, vector) in pooled.map_err(|error| call_error(&error))? {
                vectors[text] = vector;
            }
        }
        Ok(Embedded {
            vectors,
            tokens: plan.tokens,
        })
    }
}

/// Embeds a short text, to find out whether the model and its tokenizer go together.
pub(super) async fn try_text(
    endpoint: Arc<Endpoint>,
    embedder: Arc<Embedder>,
    client: Client,
) -> Result<(), CallError> {
    let asked = (
        Given::Texts(vec!["a".to_owned()]),
        EmbeddingOptions::default(),
    );
    let embedding = Embedding::new(endpoint, embedder, asked, client).await?;
    embedding.run(NOBODY, None).await.map(drop)
}

fn call_error(error: &EmbeddingError) -> CallError {
    match (texts::refusal(error), error) {
        (Some(refusal), _) => refusal.into(),
        (None, EmbeddingError::Tokenizer(TokenizerError::Parser(error))) => {
            tracing::warn!(%error, "texts were not encoded");
            away::call_error("the tokenizer did not encode the texts", error)
        }
        (None, EmbeddingError::Output(_) | EmbeddingError::Inputs(_)) => {
            CallError::Failed(error.to_string())
        }
        (None, _) => {
            tracing::error!(%error, "texts cannot be embedded");
            CallError::NoInstances(BROKEN.to_owned())
        }
    }
}

//! Embeds texts with a method of a package: loads its tokenizer, plans the runs and computes the
//! vectors.
//!
//! Invariant: each service loads a tokenizer once, on a blocking thread, and remembers a failure.
//! Faults of texts are reported before the model runs. Vectors have the order of the texts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;

use super::super::away::{self, NO_ACCOUNT, with_parsers};
use super::super::engine::{Endpoint, EndpointModel};
use super::super::{CallError, texts};
use super::time::TimeLeft;
use crate::account::AccountId;
use pkgtool_base::package::Config;
use pkgtool_engine::runtime::parsers::ParserClient;
use pkgtool_engine::tensor::Signature;
use pkgtool_model as model;
use pkgtool_text::embedding::{
    CAPABILITY, Embedder, EmbeddingError, EmbeddingInput, EmbeddingOptions, EmbeddingPlan,
    EmbeddingSettings, Encoder,
};
use pkgtool_text::tokenizer::{Tokenizer, TokenizerError, TokenizerFiles};

/// Message for clients about a faulty package.
pub(super) const UNUSABLE_FILES: &str =
    "its package's tokenizer or settings are unusable; the server's log has the details";

/// Capability of packages whose models generate texts.
const GENERATION: &str = "text-generation";

/// A tokenizer, or the error of loading it.
type TokenizerCell = Arc<OnceCell<Result<Arc<Tokenizer>, String>>>;

/// The tokenizers of a service's packages.
#[derive(Debug, Default)]
pub(super) struct Tokenizers {
    loaded: Mutex<HashMap<TokenizerFiles, TokenizerCell>>,
}

/// Text-related files and capabilities of a method's package.
#[derive(Debug, Clone)]
pub(super) struct TextFiles {
    pub(super) tokenizer: TokenizerFiles,
    /// Directories of the package's files.
    pub(super) directories: Vec<PathBuf>,
    /// True if it has the capability to embed texts.
    embeds: bool,
    /// True if it has the capability to generate texts.
    generates: bool,
}

/// Limits on the texts that a method takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextLimits {
    /// Maximum number of tokens of a text.
    pub tokens: usize,
    /// Upper bound for a requested maximum, if any.
    pub most: Option<usize>,
}

/// The embedder of a method, created at its first use.
pub(super) type EmbedderCell = OnceCell<Result<Arc<Embedder>, String>>;

/// Checked texts, with the model that embeds them.
#[derive(Debug)]
pub struct Embedding {
    endpoint: Arc<Endpoint>,
    plan: Arc<EmbeddingPlan>,
}

/// Result of embedding texts.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedded {
    /// The vectors, in the order of the texts.
    pub vectors: Vec<Vec<f32>>,
    /// Total number of tokens, including special tokens but not padding.
    pub tokens: usize,
}

impl Tokenizers {
    /// Returns the tokenizer of these files, loading it at its first use.
    pub(super) async fn get(
        &self,
        files: &TokenizerFiles,
        client: &ParserClient,
    ) -> Result<Arc<Tokenizer>, String> {
        let cell = {
            let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(loaded.entry(files.clone()).or_default())
        };
        let load = || async {
            // Others wait for the tokenizer too, so the first request's cancellation must not stop
            // the load.
            let (files, client) = (files.clone(), client.new_request());
            let loaded = tokio::task::spawn_blocking(move || {
                let tokenizer = Tokenizer::with_worker(&files, &client)?;
                // This is slow for a large vocabulary and must not delay a request later.
                tokenizer.vocabulary();
                Ok(Arc::new(tokenizer))
            });
            match loaded.await {
                Ok(loaded) => loaded
                    .map_err(|error: pkgtool_text::tokenizer::TokenizerError| error.to_string()),
                Err(error) => Err(error.to_string()),
            }
        };
        cell.get_or_init(load).await.clone()
    }
}

impl TextFiles {
    /// Returns the text files of the package whose config is at `path`, if it names a tokenizer.
    /// `component` is a tokenizer that the variant has as a component. `encodes` is set for a model that embeds although
    /// its package has another capability.
    pub(super) fn of(
        (path, package): (&Path, &Config),
        model: &Path,
        component: Option<PathBuf>,
        encodes: bool,
    ) -> Option<Self> {
        let files = TokenizerFiles::of(path, package);
        let tokenizer = match files {
            Ok(files) => files.or_else(|| component.map(TokenizerFiles::beside))?,
            Err(error) => {
                tracing::warn!(%error, "the tokenizer of a package is missing");
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

    /// Returns whether the model embeds texts, judged by its signature.
    pub(super) fn embeds(&self, signature: &Signature) -> bool {
        self.embeds && Encoder::of(signature).is_ok()
    }

    /// Returns whether the model generates texts, as declared by the package.
    pub(super) fn generates(&self) -> bool {
        self.generates
    }

    /// Returns the limits on texts. Reads the package's settings.
    pub(super) fn takes(&self, model: &EndpointModel) -> Option<TextLimits> {
        let encoder = Encoder::of(&model.signature).ok()?;
        let settings = self.settings(model).ok()?;
        let longest = settings.longest(&encoder, &EmbeddingOptions::default());
        Some(TextLimits {
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

    /// Returns the model with its tokenizer, created at its first use.
    pub(super) async fn embedder(
        &self,
        cell: &EmbedderCell,
        tokenizers: &Tokenizers,
        model: &EndpointModel,
        client: &ParserClient,
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
                    tracing::error!(service = model.service, reason, "cannot embed texts");
                }
                known
            })
            .await;
        known
            .clone()
            .map_err(|_| CallError::NoInstances(UNUSABLE_FILES.to_owned()))
    }
}

impl Embedding {
    /// Checks the texts and prepares the inputs of all runs.
    pub(super) async fn new(
        endpoint: Arc<Endpoint>,
        embedder: Arc<Embedder>,
        (given, options): (EmbeddingInput, EmbeddingOptions),
        client: ParserClient,
    ) -> Result<Self, CallError> {
        let planned = with_parsers(client, move |client| {
            embedder.on_behalf(client.clone()).plan(&given, &options)
        });
        let planned = planned.await?;
        let plan = planned.map_err(|error| call_error(&error))?;
        Ok(Self {
            endpoint,
            plan: Arc::new(plan),
        })
    }

    /// Returns the total number of tokens, including special tokens but not padding.
    pub fn tokens(&self) -> usize {
        self.plan.tokens
    }

    /// Embeds. `timeout` applies to all runs together. Dropping the future cancels them.
    pub async fn run(
        self,
        caller: AccountId,
        timeout: Option<Duration>,
    ) -> Result<Embedded, CallError> {
        let Self { endpoint, plan } = self;
        let time = TimeLeft::of(timeout);
        let mut vectors = vec![Vec::new(); plan.texts];
        for place in 0..plan.runs.len() {
            let inputs = plan.runs[place].inputs.clone();
            let outputs = time.run(&endpoint, caller, inputs).await?;
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

/// Embeds a short text, to check that the model and its tokenizer match.
pub(super) async fn try_text(
    endpoint: Arc<Endpoint>,
    embedder: Arc<Embedder>,
    client: ParserClient,
) -> Result<(), CallError> {
    let asked = (
        EmbeddingInput::Texts(vec!["a".to_owned()]),
        EmbeddingOptions::default(),
    );
    let embedding = Embedding::new(endpoint, embedder, asked, client).await?;
    embedding.run(NO_ACCOUNT, None).await.map(drop)
}

fn call_error(error: &EmbeddingError) -> CallError {
    match (texts::refusal(error), error) {
        (Some(refusal), _) => refusal.into(),
        (None, EmbeddingError::Tokenizer(TokenizerError::Parser(error))) => {
            tracing::warn!(%error, "cannot encode texts");
            away::call_error("the tokenizer failed to encode the texts", error)
        }
        (None, EmbeddingError::Output(_) | EmbeddingError::Inputs(_)) => {
            CallError::Failed(error.to_string())
        }
        (None, _) => {
            tracing::error!(%error, "cannot embed texts");
            CallError::NoInstances(UNUSABLE_FILES.to_owned())
        }
    }
}

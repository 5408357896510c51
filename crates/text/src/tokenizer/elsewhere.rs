//! Encoding texts in a sandboxed worker process: both the request side and the worker side.
//!
//! The normaliser and the patterns of a `tokenizer.json` are programs from a package: they may make
//! a text grow a thousandfold, or take minutes. Invariant: the worker encodes with exactly the
//! bytes that the tokenizer was loaded from.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::config::{self, TokenizerConfig};
use super::{
    EncodedText, SpecialTokens, TokenLimit, Tokenizer, TokenizerError, TokenizerFiles, load, read,
};
use pkgtool_engine::runtime::parsers::{
    ContentCache, ContentId, JobAnswer, JobContent, JobLimits, ParserClient, ParserError,
    ParserJob, ParserTask,
};

/// The name of this kind of job.
pub const JOB_NAME: &str = "tokenizers";

/// Memory limit of an encoding job: bytes per byte of text, and a fixed amount in MiB. A token of
/// four bytes temporarily takes 150 bytes.
const ENCODING_MEMORY: (u64, u64) = (56, 32);

/// Time limit for encoding the texts of one request.
const ENCODING_TIMEOUT: Duration = Duration::from_secs(10);

/// Memory limit of a loaded tokenizer: bytes per byte of its files, and a fixed amount in bytes.
const LOADING_MEMORY: (u64, u64) = (24, 64 << 20);

/// Maximum memory of a loaded tokenizer, in bytes.
const MAX_TOKENIZER_MEMORY: u64 = 2 << 30;

/// Time limit for loading a tokenizer.
const LOADING_TIMEOUT: Duration = Duration::from_mins(1);

/// Maximum number of tokenizers that a worker process keeps.
const MAX_CACHED_TOKENIZERS: usize = 4;

/// The files from which a worker process loads a tokenizer.
#[derive(Debug)]
pub(super) struct TokenizerSource {
    id: ContentId,
    files: TokenizerFiles,
    bytes: u64,
}

/// An encoding request to the worker.
#[derive(Debug, Serialize, Deserialize)]
struct EncodingRequest {
    /// The tokenizer's files, for messages.
    files: TokenizerFiles,
    specials: SpecialTokens,
    bound: Option<TokenLimit>,
    /// Length of each text, in bytes.
    texts: Vec<usize>,
}

/// The worker's reply. The ids of all texts follow as payload.
#[derive(Debug, Serialize, Deserialize)]
struct EncodingReply {
    /// Number of tokens of each text.
    tokens: Vec<usize>,
    /// True if the payload holds type ids after the ids; otherwise all type ids are 0.
    is_typed: bool,
}

impl TokenizerSource {
    /// Reads the files, and returns their identity with their bytes.
    pub(super) fn read(files: &TokenizerFiles) -> Result<(Self, [Vec<u8>; 2]), TokenizerError> {
        let tokenizer = read::bounded(&files.tokenizer, load::MAX_TOKENIZER_BYTES)?;
        let config = match &files.config {
            Some(config) => read::bounded(config, config::MAX_CONFIG_BYTES)?,
            None => Vec::new(),
        };
        let source = Self {
            id: ContentId::of_bytes(&[&tokenizer, &config]),
            files: files.clone(),
            bytes: (tokenizer.len() + config.len()) as u64,
        };
        Ok((source, [tokenizer, config]))
    }

    /// Encodes texts in a worker process.
    pub(super) fn encode(
        &self,
        client: &ParserClient,
        texts: &[&str],
        (specials, bound): (SpecialTokens, Option<TokenLimit>),
    ) -> Result<Vec<EncodedText>, TokenizerError> {
        let asked = EncodingRequest {
            files: self.files.clone(),
            specials,
            bound,
            texts: texts.iter().map(|text| text.len()).collect(),
        };
        let payload = match texts {
            [text] => Cow::Borrowed(*text),
            texts => Cow::Owned(texts.concat()),
        };
        let (factor, beside) = LOADING_MEMORY;
        let content = || self.content();
        let job = ParserJob {
            work: JOB_NAME,
            ask: serde_json::to_vec(&asked).map_err(|error| worker_failure(&error))?,
            payload: payload.as_bytes(),
            content: Some(JobContent {
                id: self.id,
                bytes: &content,
                limits: JobLimits {
                    memory: (self.bytes.saturating_mul(factor) + beside).min(MAX_TOKENIZER_MEMORY),
                    time: LOADING_TIMEOUT,
                },
            }),
            limits: JobLimits {
                memory: (((payload.len() as u64 * ENCODING_MEMORY.0) >> 20) + ENCODING_MEMORY.1)
                    << 20,
                time: ENCODING_TIMEOUT,
            },
        };
        let done = client.ask(&job)?;
        let reply: Result<EncodingReply, TokenizerError> =
            done.head().map_err(|error| worker_failure(&error))?;
        reply?
            .rows(&done.payload)
            .ok_or_else(|| worker_failure(&"its reply has the wrong length"))
    }

    /// Returns the length of the first file, followed by the bytes of both files.
    fn content(&self) -> io::Result<Cow<'static, [u8]>> {
        let read = Self::read(&self.files);
        let (now, [tokenizer, config]) = read.map_err(io::Error::other)?;
        if now.id != self.id {
            let file = self.files.tokenizer.display();
            return Err(io::Error::other(format!(
                "{file} has changed since it was loaded"
            )));
        }
        let length = (tokenizer.len() as u64).to_le_bytes();
        Ok(Cow::Owned([&length[..], &tokenizer, &config].concat()))
    }
}

impl EncodingReply {
    fn rows(&self, payload: &[u8]) -> Option<Vec<EncodedText>> {
        let numbers = payload.chunks_exact(4).map(|bytes| {
            let bytes = bytes.try_into().expect("chunks have four bytes");
            u32::from_le_bytes(bytes)
        });
        let numbers: Vec<u32> = numbers.collect();
        let all: usize = self.tokens.iter().sum();
        let expected = if self.is_typed { all * 2 } else { all };
        if numbers.len() != expected {
            return None;
        }
        let (ids, type_ids) = numbers.split_at(all);
        let mut at = 0;
        let rows = self.tokens.iter().map(|tokens| {
            let range = at..at + tokens;
            at = range.end;
            let type_ids = type_ids.get(range.clone()).map(<[u32]>::to_vec);
            EncodedText {
                ids: ids[range].to_vec(),
                type_ids: type_ids.unwrap_or_else(|| vec![0; *tokens]),
            }
        });
        Some(rows.collect())
    }
}

fn worker_failure(error: &dyn std::fmt::Display) -> TokenizerError {
    ParserError::Died(error.to_string()).into()
}

/// The worker's side: encodes texts and caches the tokenizers that it loaded.
pub struct EncodingWork(ContentCache<Tokenizer>);

impl Default for EncodingWork {
    fn default() -> Self {
        Self(ContentCache::new(MAX_CACHED_TOKENIZERS))
    }
}

impl EncodingWork {
    /// Executes one encoding job.
    pub fn work(&mut self, task: &ParserTask) -> io::Result<JobAnswer> {
        let id = task.id.ok_or(io::ErrorKind::InvalidData)?;
        let asked: EncodingRequest = task.ask()?;
        if self.0.get(id).is_none() {
            let Some(content) = &task.content else {
                return Ok(JobAnswer::Unknown);
            };
            match load_tokenizer(&asked.files, content) {
                Ok(tokenizer) => self.0.put(id, tokenizer),
                Err(error) => return JobAnswer::of(&Err::<EncodingReply, _>(error)),
            }
        }
        let Some(tokenizer) = self.0.get(id) else {
            return Ok(JobAnswer::Unknown);
        };
        let texts = asked.split(&task.payload)?;
        match tokenizer.encode_all(&texts, asked.specials, asked.bound) {
            Ok(rows) => answer(&rows),
            Err(error) => JobAnswer::of(&Err::<EncodingReply, _>(error)),
        }
    }
}

impl EncodingRequest {
    fn split<'p>(&self, payload: &'p [u8]) -> io::Result<Vec<&'p str>> {
        let all = std::str::from_utf8(payload).map_err(io::Error::other)?;
        let mut at = 0;
        let texts = self.texts.iter().map(|length| {
            let text = all.get(at..at + length);
            at += length;
            text.ok_or_else(|| io::ErrorKind::InvalidData.into())
        });
        texts.collect()
    }
}

fn load_tokenizer(files: &TokenizerFiles, content: &[u8]) -> Result<Tokenizer, TokenizerError> {
    let broken = || read::broken_file(&files.tokenizer, "its bytes are incomplete".to_owned());
    let (length, both) = content.split_first_chunk().ok_or_else(broken)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| broken())?;
    let (tokenizer, config) = both.split_at_checked(length).ok_or_else(broken)?;
    let config = match &files.config {
        Some(path) => TokenizerConfig::parse(path, config)?,
        None => TokenizerConfig::default(),
    };
    Tokenizer::parse(&files.tokenizer, tokenizer, config)
}

fn answer(rows: &[EncodedText]) -> io::Result<JobAnswer> {
    let is_typed = rows.iter().flat_map(|row| &row.type_ids).any(|id| *id != 0);
    let ids = rows.iter().flat_map(|row| &row.ids);
    let type_ids = rows.iter().flat_map(|row| &row.type_ids);
    let all = ids.chain(type_ids.filter(|_| is_typed));
    let payload = all.flat_map(|id| id.to_le_bytes()).collect();
    let reply = EncodingReply {
        tokens: rows.iter().map(|row| row.ids.len()).collect(),
        is_typed,
    };
    JobAnswer::with(&Ok::<_, TokenizerError>(reply), payload)
}

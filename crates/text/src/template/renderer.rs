//! The client side of rendering: sends templates to sandboxed worker processes.
//!
//! Invariant: a rendering takes no longer than its time limit.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::WORK;
use super::conversation::Conversation;
use super::error::TemplateError;
use super::find::Template;
use super::protocol::{RenderReply, RenderRequest, TemplateFailure};
use super::takes::{TemplateTakes, probe};
use pkgtool_engine::runtime::parsers::{
    self, JobContent, ParserClient, ParserError, ParserJob, Parsers,
};
use pkgtool_engine::runtime::process::frame::MAX_HEAD_BYTES;

/// Maximum size of a conversation, in bytes of JSON. It fits one frame together with any template.
const MAX_CONVERSATION_BYTES: usize = MAX_HEAD_BYTES / 2;

/// Limits of a rendering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenderLimits {
    /// Memory of a worker process, in bytes.
    pub memory: u64,
    /// Duration of a rendering.
    pub time: Duration,
    /// Number of template steps.
    pub steps: u64,
}

impl Default for RenderLimits {
    /// Returns limits far above the needs of valid templates: some megabytes, and some hundred
    /// steps per message.
    fn default() -> Self {
        Self {
            memory: 128 << 20,
            time: Duration::from_secs(5),
            steps: 10_000_000,
        }
    }
}

/// Renders templates on behalf of one caller. It can be used from any thread.
#[derive(Debug, Clone)]
pub struct Renderer {
    client: ParserClient,
    limits: RenderLimits,
}

impl Renderer {
    /// Creates a renderer with worker processes of this binary.
    pub fn new() -> io::Result<Self> {
        Ok(Self::of(std::env::current_exe()?, RenderLimits::default()))
    }

    /// Creates a renderer with worker processes of `program`, within these limits.
    pub fn of(program: PathBuf, limits: RenderLimits) -> Self {
        Self {
            client: Parsers::new(program).client(0),
            limits,
        }
    }

    /// Creates a renderer with worker processes that are shared with other callers.
    pub fn by(client: ParserClient) -> Self {
        Self {
            client,
            limits: RenderLimits::default(),
        }
    }

    /// Renders a conversation's prompt.
    pub fn render(
        &self,
        template: &Template,
        conversation: &Conversation,
    ) -> Result<String, TemplateError> {
        self.render_at(template, conversation, SystemTime::now())
    }

    /// Renders a conversation's prompt at a moment, which templates may print.
    pub fn render_at(
        &self,
        template: &Template,
        conversation: &Conversation,
        now: SystemTime,
    ) -> Result<String, TemplateError> {
        let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let request = RenderRequest {
            tokens: Cow::Borrowed(template.tokens()),
            conversation: Cow::Borrowed(conversation),
            now: i64::try_from(seconds).unwrap_or(i64::MAX),
            steps: self.limits.steps,
        };
        match self.asked(template, &request)? {
            RenderReply::Rendered(text) => Ok(text),
            RenderReply::Failed {
                failure,
                line,
                message,
            } => Err(self.failed(template, failure, line, message)),
        }
    }

    /// Returns the message forms that a template accepts, tested once per template.
    pub fn accepted_forms(&self, template: &Template) -> Result<TemplateTakes, TemplateError> {
        if let Some(known) = template.takes().get() {
            return Ok(*known);
        }
        let takes = probe(|conversation| self.render(template, conversation))?;
        Ok(*template.takes().get_or_init(|| takes))
    }

    fn asked(
        &self,
        template: &Template,
        request: &RenderRequest,
    ) -> Result<RenderReply, TemplateError> {
        let ask = serde_json::to_vec(request).expect("JSON values can be serialized");
        if ask.len() > MAX_CONVERSATION_BYTES {
            return Err(TemplateError::TooLarge {
                bytes: ask.len(),
                most: MAX_CONVERSATION_BYTES,
            });
        }
        let text = || Ok(Cow::Borrowed(template.text().as_bytes()));
        let job = ParserJob {
            work: WORK,
            ask,
            payload: &[],
            content: Some(JobContent {
                id: template.id(),
                bytes: &text,
                limits: parsers::JobLimits {
                    memory: 0,
                    time: Duration::ZERO,
                },
            }),
            limits: parsers::JobLimits {
                memory: self.limits.memory,
                time: self.limits.time,
            },
        };
        let of_parser = |error| TemplateError::of_parser(template.label(), error);
        let done = self.client.ask(&job).map_err(of_parser)?;
        let reply = done.head();
        reply.map_err(|error| of_parser(ParserError::Died(error.to_string())))
    }

    fn failed(
        &self,
        template: &Template,
        failure: TemplateFailure,
        line: Option<usize>,
        message: String,
    ) -> TemplateError {
        let template = template.label();
        match failure {
            TemplateFailure::Raised => TemplateError::Raised {
                template,
                line,
                message,
            },
            TemplateFailure::Syntax => TemplateError::Syntax {
                template,
                line,
                reason: message,
            },
            TemplateFailure::Other => TemplateError::Failed {
                template,
                line,
                reason: message,
            },
            TemplateFailure::Steps => TemplateError::Limit {
                template,
                limit: format!("the limit of {} steps", self.limits.steps),
            },
            TemplateFailure::Length => TemplateError::Limit {
                template,
                limit: message,
            },
        }
    }
}

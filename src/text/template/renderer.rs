//! Rendering in worker processes, for any number of callers.
//!
//! Invariant: a process that failed is never used again; a rendering takes no longer than the limit for
//! it, and the wait for a process no longer than that.

use std::borrow::Cow;
use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::WORK;
use super::conversation::Conversation;
use super::error::TemplateError;
use super::find::Template;
use super::pool::Pool;
use super::protocol::{Failure, Reply, Request};
use super::takes::{Takes, tried};
use crate::runtime::process::frame::{self, MAX_HEAD};
use crate::runtime::process::{self, Process};
use crate::tensor::limit::{in_units, tells_shortage};

/// Most processes that render.
const MOST: usize = 4;

/// Largest conversation, in bytes of JSON: it fits a frame together with any template.
const MAX_CONVERSATION: usize = MAX_HEAD / 2;

/// What a rendering may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Memory of a process, in bytes.
    pub memory: u64,
    /// Time of a rendering.
    pub time: Duration,
    /// Steps of a template.
    pub steps: u64,
}

impl Default for Limits {
    /// Far from what sound templates need: some megabytes, and some hundred steps a message.
    fn default() -> Self {
        Self {
            memory: 256 << 20,
            time: Duration::from_secs(5),
            steps: 10_000_000,
        }
    }
}

/// Renders templates. One for a process of this program is enough, and any thread may use it.
#[derive(Debug)]
pub struct Renderer {
    program: PathBuf,
    limits: Limits,
    pool: Pool,
}

impl Renderer {
    /// In workers of this very binary.
    pub fn new() -> io::Result<Self> {
        Ok(Self::of(std::env::current_exe()?, Limits::default()))
    }

    /// In workers of this binary, within these limits.
    pub fn of(program: PathBuf, limits: Limits) -> Self {
        let processors = std::thread::available_parallelism();
        let processors = processors.map_or(1, std::num::NonZeroUsize::get);
        Self {
            program,
            limits,
            pool: Pool::new(processors.clamp(2, MOST)),
        }
    }

    /// The prompt of a conversation.
    pub fn render(
        &self,
        template: &Template,
        conversation: &Conversation,
    ) -> Result<String, TemplateError> {
        self.render_at(template, conversation, SystemTime::now())
    }

    /// The prompt of a conversation at a moment, which templates may print.
    pub fn render_at(
        &self,
        template: &Template,
        conversation: &Conversation,
        now: SystemTime,
    ) -> Result<String, TemplateError> {
        let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let request = Request {
            template: template.id(),
            text: None,
            tokens: Cow::Borrowed(template.tokens()),
            conversation: Cow::Borrowed(conversation),
            now: i64::try_from(seconds).unwrap_or(i64::MAX),
            memory: self.limits.memory,
            steps: self.limits.steps,
        };
        match self.asked(template, &request)? {
            Reply::Rendered(text) => Ok(text),
            Reply::Unknown => Err(TemplateError::Died {
                template: template.label(),
                reason: "it did not keep the template that it was given".to_owned(),
            }),
            Reply::Failed {
                failure,
                line,
                message,
            } => Err(self.failed(template, failure, line, message)),
        }
    }

    /// What a template makes of forms that conversations come in: found by trying, once a template.
    pub fn takes(&self, template: &Template) -> Result<Takes, TemplateError> {
        if let Some(known) = template.takes().get() {
            return Ok(*known);
        }
        let takes = tried(|conversation| self.render(template, conversation))?;
        Ok(*template.takes().get_or_init(|| takes))
    }

    fn asked(&self, template: &Template, request: &Request) -> Result<Reply, TemplateError> {
        let bytes = encoded(request);
        if bytes.len() > MAX_CONVERSATION {
            return Err(TemplateError::TooLarge {
                bytes: bytes.len(),
                most: MAX_CONVERSATION,
            });
        }
        let lent = self.pool.lend(self.limits.time);
        let mut lent = lent.ok_or(TemplateError::Busy {
            seconds: self.limits.time.as_secs(),
        })?;
        let start = || Process::start(&mut self.command()).map_err(|error| not_started(&error));
        let mut process = match lent.take() {
            Some(process) => process,
            None => start()?,
        };
        let mut outcome = self.exchange(&mut process, template, request, &bytes);
        if outcome.as_ref().is_err_and(Broken::before_asking) {
            // It had ended while nobody used it.
            process = start()?;
            outcome = self.exchange(&mut process, template, request, &bytes);
        }
        match outcome {
            Ok(reply) => {
                lent.give_back(process);
                Ok(reply)
            }
            Err(broken) => Err(self.ended(&mut process, template, &broken.error)),
        }
    }

    /// Asks without the template's text first: most often the process has it.
    fn exchange(
        &self,
        process: &mut Process,
        template: &Template,
        request: &Request,
        bytes: &[u8],
    ) -> Result<Reply, Broken> {
        match self.send(process, bytes)? {
            Reply::Unknown => {
                let whole = Request {
                    text: Some(template.text().into()),
                    ..request.clone()
                };
                self.send(process, &encoded(&whole))
            }
            reply => Ok(reply),
        }
    }

    fn send(&self, process: &mut Process, bytes: &[u8]) -> Result<Reply, Broken> {
        let broken = |sending| move |error| Broken { sending, error };
        let channel = process.channel(Some(self.limits.time));
        let channel = channel.map_err(broken(false))?;
        let line = channel.get_mut();
        let sent = line.write_all(bytes).and_then(|()| line.flush());
        sent.map_err(broken(true))?;
        frame::receive(channel).map_err(broken(false))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args([process::ARGUMENT, WORK]);
        // With it a failed allocation would try to print a stack, and hide what it says first.
        command.env_remove("RUST_BACKTRACE");
        command
    }

    fn ended(
        &self,
        process: &mut Process,
        template: &Template,
        error: &io::Error,
    ) -> TemplateError {
        let template = template.label();
        let limit = match process.end_after(error) {
            None => format!("the time limit of {} s", self.limits.time.as_secs_f64()),
            Some(reason) if tells_shortage(&reason) => {
                format!("the memory limit of {}", in_units(self.limits.memory))
            }
            Some(reason) => return TemplateError::Died { template, reason },
        };
        TemplateError::Limit { template, limit }
    }

    fn failed(
        &self,
        template: &Template,
        failure: Failure,
        line: Option<usize>,
        message: String,
    ) -> TemplateError {
        let template = template.label();
        match failure {
            Failure::Raised => TemplateError::Raised {
                template,
                line,
                message,
            },
            Failure::Syntax => TemplateError::Syntax {
                template,
                line,
                reason: message,
            },
            Failure::Other => TemplateError::Failed {
                template,
                line,
                reason: message,
            },
            Failure::Steps => TemplateError::Limit {
                template,
                limit: format!("the limit of {} steps", self.limits.steps),
            },
            Failure::Length => TemplateError::Limit {
                template,
                limit: message,
            },
        }
    }
}

/// An exchange that brought no answer.
struct Broken {
    sending: bool,
    error: io::Error,
}

impl Broken {
    /// Whether the process was gone before it could be asked.
    fn before_asking(&self) -> bool {
        let gone = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
        self.sending && gone.contains(&self.error.kind())
    }
}

fn encoded(request: &Request) -> Vec<u8> {
    frame::framed(request).expect("JSON values become JSON")
}

fn not_started(error: &io::Error) -> TemplateError {
    TemplateError::Start {
        reason: error.to_string(),
    }
}

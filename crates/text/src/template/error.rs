//! Errors of finding and rendering chat templates.
//!
//! Invariant: messages show only the name of a template's file. The location of packages on a
//! server is not revealed.

use std::path::{Path, PathBuf};

use pkgtool_engine::runtime::parsers::ParserError;

/// A package without a usable chat template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// The package has no chat template.
    #[error(
        "the package has no chat template: neither `chat_template` in {config} nor \
         chat_template.jinja or chat_template.json beside it; \
         put the model's chat_template.jinja beside its tokenizer.json"
    )]
    Absent {
        /// Name of the tokenizer config that was searched.
        config: String,
    },
    /// The package has several templates, but no default one.
    #[error(
        "{} has the chat templates {}, but none named `default`; rename one of them to `default`",
        name(.file), quoted(.names)
    )]
    NoDefault {
        /// The file or folder of the templates.
        file: PathBuf,
        /// The names of the templates.
        names: Vec<String>,
    },
    /// A file cannot be read.
    #[error("{} cannot be read: {reason}", name(.file))]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A file has invalid content.
    #[error("{}: `{field}`: expected {expected}, found {found}", name(.file))]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The field within the file.
        field: String,
        /// The expected value.
        expected: String,
        /// The value in the file.
        found: String,
    },
}

/// A template that failed to render.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The template itself rejected the conversation. Its message is meant for the client.
    #[error("the chat template ({}) rejects this conversation: {message}", place(.template, *.line))]
    Raised {
        /// The template's label for messages.
        template: String,
        /// Line of the template.
        line: Option<usize>,
        /// The template's message.
        message: String,
    },
    /// The template cannot be parsed: the package is broken.
    #[error("the chat template ({}) cannot be read: {reason}", place(.template, *.line))]
    Syntax {
        /// The template.
        template: String,
        /// Line of the template.
        line: Option<usize>,
        /// The problem.
        reason: String,
    },
    /// The template failed on this conversation.
    #[error("the chat template ({}) failed on this conversation: {reason}", place(.template, *.line))]
    Failed {
        /// The template.
        template: String,
        /// Line of the template.
        line: Option<usize>,
        /// The problem.
        reason: String,
    },
    /// The conversation is too large to be rendered.
    #[error(
        "the conversation is too large: expected at most {most} bytes of JSON, got {bytes}; shorten it"
    )]
    TooLarge {
        /// Its size, in bytes.
        bytes: usize,
        /// The maximum size, in bytes.
        most: usize,
    },
    /// The rendering reached a limit.
    #[error(
        "the chat template ({template}) reached {limit}, which valid templates stay far below: check what it does with this conversation"
    )]
    Limit {
        /// The template.
        template: String,
        /// The limit.
        limit: String,
    },
    /// The worker process crashed.
    #[error("the worker process that rendered the chat template ({template}) crashed: {reason}")]
    Died {
        /// The template.
        template: String,
        /// How the process ended.
        reason: String,
    },
    /// The worker process cannot be started.
    #[error("cannot start a worker process to render the chat template: {reason}")]
    Start {
        /// The reason.
        reason: String,
    },
    /// All worker processes were busy for too long.
    #[error("the chat template was not rendered: {reason}; try again later")]
    Busy {
        /// The busy resource.
        reason: String,
    },
    /// The request was cancelled.
    #[error("the request was cancelled before the chat template was rendered")]
    Cancelled,
}

impl TemplateError {
    /// Converts an error of the worker processes.
    pub(super) fn of_parser(template: String, error: ParserError) -> Self {
        match error {
            ParserError::Busy { reason } => Self::Busy { reason },
            ParserError::Cancelled => Self::Cancelled,
            ParserError::Start(reason) | ParserError::Content(reason) => Self::Start { reason },
            ParserError::Limit(limit) => Self::Limit { template, limit },
            ParserError::Died(reason) => Self::Died { template, reason },
            ParserError::Panicked(message) => Self::Failed {
                template,
                line: None,
                reason: format!("it panicked: {message}"),
            },
        }
    }

    /// Returns whether the template did not run at all, so that a retry may succeed.
    pub(super) fn is_of_machine(&self) -> bool {
        matches!(
            self,
            Self::Start { .. } | Self::Busy { .. } | Self::Cancelled
        )
    }

    /// Returns whether the conversation is at fault, so that the caller can fix the request.
    pub fn is_about_the_conversation(&self) -> bool {
        matches!(
            self,
            Self::Raised { .. } | Self::Failed { .. } | Self::TooLarge { .. }
        )
    }
}

fn place(template: &str, line: Option<usize>) -> String {
    match line {
        Some(line) => format!("{template}, line {line}"),
        None => template.to_owned(),
    }
}

fn name(file: &Path) -> String {
    let name = file.file_name().unwrap_or(file.as_os_str());
    name.to_string_lossy().into_owned()
}

fn quoted(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

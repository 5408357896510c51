//! Why there is no template, and why one gave no text.
//!
//! Invariant: messages name a template's file by its name alone: where packages lie on a server is
//! nobody's matter who asks it.

use std::path::{Path, PathBuf};

use crate::runtime::parsers::ParserError;

/// Why a package has no template to use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// There is none.
    #[error(
        "the package has no chat template: neither `chat_template` in {config} nor \
         chat_template.jinja or chat_template.json beside it; \
         put the model's chat_template.jinja beside its tokenizer.json"
    )]
    Absent {
        /// The name of the tokenizer's config that was looked at.
        config: String,
    },
    /// There are several, and none is for conversations in general.
    #[error(
        "{} has the chat templates {}, and none named `default`; name one of them so",
        name(.file), quoted(.names)
    )]
    NoDefault {
        /// Where they are.
        file: PathBuf,
        /// What they are named.
        names: Vec<String>,
    },
    /// A file cannot be read.
    #[error("{} cannot be read: {reason}", name(.file))]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A file has something else in it than it should.
    #[error("{}: `{field}`: expected {expected}, found {found}", name(.file))]
    Malformed {
        /// The file.
        file: PathBuf,
        /// Where in it.
        field: String,
        /// What belongs there.
        expected: String,
        /// What is there.
        found: String,
    },
}

/// Why a template gave no text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The template itself refused the conversation. Its message is meant for whoever sent it.
    #[error("the chat template ({}) does not take this conversation: {message}", place(.template, *.line))]
    Raised {
        /// The template, as it is called in messages.
        template: String,
        /// Line of the template.
        line: Option<usize>,
        /// What the template says.
        message: String,
    },
    /// The template cannot be read: the package is broken.
    #[error("the chat template ({}) cannot be read: {reason}", place(.template, *.line))]
    Syntax {
        /// The template.
        template: String,
        /// Line of the template.
        line: Option<usize>,
        /// What is wrong.
        reason: String,
    },
    /// The template did something impossible with this conversation.
    #[error("the chat template ({}) failed on this conversation: {reason}", place(.template, *.line))]
    Failed {
        /// The template.
        template: String,
        /// Line of the template.
        line: Option<usize>,
        /// What went wrong.
        reason: String,
    },
    /// The conversation is too large to be rendered at all.
    #[error(
        "the conversation takes {bytes} bytes as JSON, more than the {most} that can be rendered; shorten it"
    )]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// A limit was reached.
    #[error(
        "the chat template ({template}) reached {limit}; a sound one is far from it: see what it does with this conversation"
    )]
    Limit {
        /// The template.
        template: String,
        /// Which.
        limit: String,
    },
    /// The process that rendered ended.
    #[error("the process that rendered the chat template ({template}) died: {reason}")]
    Died {
        /// The template.
        template: String,
        /// How it ended.
        reason: String,
    },
    /// No process can be started to render in.
    #[error("no process can be started to render the chat template in: {reason}")]
    Start {
        /// Why not.
        reason: String,
    },
    /// Every process that renders was busy for too long.
    #[error("the chat template was not rendered: {reason}; try again later")]
    Busy {
        /// What was busy.
        reason: String,
    },
    /// Nobody waits for the text any more.
    #[error("the request was cancelled before the chat template was rendered")]
    Cancelled,
}

impl TemplateError {
    /// An error of the processes that render.
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

    /// Whether the template itself was not tried: another moment may bring another outcome.
    pub(super) fn is_of_machine(&self) -> bool {
        matches!(
            self,
            Self::Start { .. } | Self::Busy { .. } | Self::Cancelled
        )
    }

    /// Whether another conversation would have been rendered: the fault is the caller's to mend.
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

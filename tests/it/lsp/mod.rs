//! The language server, as editors see it.

mod client;
mod completion;
mod findings;
mod hover;
mod protocol;
mod pull;
mod renames;

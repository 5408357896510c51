//! Tests of the language server from an editor's view.

mod client;
mod completion;
mod findings;
mod hover;
mod protocol;
mod pull;
mod renames;

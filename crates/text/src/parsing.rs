//! The worker process that parses untrusted files and renders templates: dispatches each job to its
//! handler.

use std::io;

use super::template::{self, Rendering};
use super::tokenizer::{self, EncodingWork};
use pkgtool_engine::runtime::parsers::{self, JobAnswer, ParserTask};
use pkgtool_engine::runtime::picture;

/// Serves jobs of the parent process, read from standard input, until the input is closed.
pub fn serve() -> io::Result<()> {
    let mut rendering = Rendering::default();
    let mut encoding = EncodingWork::default();
    parsers::serve(move |task: ParserTask| -> io::Result<JobAnswer> {
        match task.work.as_str() {
            template::WORK => rendering.work(&task),
            tokenizer::JOB_NAME => encoding.work(&task),
            picture::IMAGE_WORK => picture::work(&task),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    })
}

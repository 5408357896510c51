//! The worker process that parses untrusted data: pictures, files of tokenizers, templates. It dispatches each
//! job to its handler.

use std::io;

use pkgtool_engine::runtime::parsers::{self, JobAnswer, ParserTask};
use pkgtool_engine::runtime::picture;
use pkgtool_media::worker as recipes;
use pkgtool_text::template::{self, Rendering};
use pkgtool_text::tokenizer::{self, EncodingWork};

/// Serves jobs of the parent process, read from standard input, until the input is closed.
pub(super) fn serve() -> io::Result<()> {
    let mut rendering = Rendering::default();
    let mut encoding = EncodingWork::default();
    parsers::serve(move |task: ParserTask| -> io::Result<JobAnswer> {
        match task.work.as_str() {
            template::WORK => rendering.work(&task),
            tokenizer::JOB_NAME => encoding.work(&task),
            picture::IMAGE_WORK => picture::work(&task),
            recipes::RECIPE_WORK => recipes::work(&task),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    })
}

//! The process that reads bytes of others: which work a job is for.

use std::io;

use super::template::{self, Rendering};
use super::tokenizer::{self, EncodingWork};
use crate::runtime::parsers::{self, Answer, Task};
use crate::runtime::picture;

/// Does jobs for the parent at the other end of standard input until it is gone.
pub fn serve() -> io::Result<()> {
    let mut rendering = Rendering::default();
    let mut encoding = EncodingWork::default();
    parsers::serve(move |task: Task| -> io::Result<Answer> {
        match task.work.as_str() {
            template::WORK => rendering.work(&task),
            tokenizer::WORK => encoding.work(&task),
            picture::WORK => picture::work(&task),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    })
}

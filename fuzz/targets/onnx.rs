//! The ONNX reader on any bytes: an answer or an error after a bounded number of bytes read.
#![no_main]

use std::cell::Cell;
use std::io;

use libfuzzer_sys::fuzz_target;
use pkgtool::model::FORMATS;
use pkgtool::source::ReadAt;

/// Bytes that count how many of them were asked for.
struct Counted<'a> {
    bytes: &'a [u8],
    read: Cell<u64>,
}

impl ReadAt for Counted<'_> {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read.set(self.read.get() + buffer.len() as u64);
        self.bytes.read_exact_at(offset, buffer)
    }
}

fuzz_target!(|bytes: &[u8]| {
    let format = FORMATS.iter().find(|format| format.name() == "onnx");
    let format = format.expect("a format");
    let source = Counted {
        bytes,
        read: Cell::new(0),
    };
    if let Ok(info) = format.inspect(&source) {
        for method in &info.methods {
            let _ = method.to_string();
        }
    }
    let allowed = 64 * 1024 + 32 * bytes.len() as u64;
    assert!(source.read.get() <= allowed, "read {} bytes", source.read.get());
});

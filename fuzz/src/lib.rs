//! Checks that the fuzz targets share.

use std::cell::Cell;
use std::io;
use std::path::Path;

use pkgtool_base::diagnostic::render::{ReportFormat, ReportStyle};
use pkgtool_base::package::Backend;
use pkgtool_base::source::ReadAt;
use pkgtool_check::validate::{ValidationOptions, rule_metas, validate_bytes};
use pkgtool_model::FORMATS;
use pkgtool_model::executorch::body::{ByteRange, DelegateBody, MethodBody, ProgramBody};
use pkgtool_model::executorch::{contents, coreml, mlx, qnn, vulkan};

/// Validates bytes as a file of this name. Spans must lie inside the text, the report must be
/// bounded, and all output formats must succeed.
pub fn check_validation(file_name: &str, bytes: &[u8]) {
    // This directory does not exist, so references fail and no file is opened.
    let path = Path::new("/nonexistent/package/xnnpack").join(file_name);
    let options = ValidationOptions {
        paths: Vec::new(),
        precisions: None,
        open_models: false,
        jobs: 1,
    };
    let outcome = validate_bytes(&path, bytes.to_vec(), &options).expect("a report");
    assert!(outcome.report.diagnostics.len() <= 1001);
    for diagnostic in &outcome.report.diagnostics {
        let span = diagnostic.span;
        assert!(span.start <= span.end && span.end <= diagnostic.source.text.len());
        assert_eq!(
            diagnostic.start().offset,
            span.start,
            "a character's border"
        );
        assert_eq!(diagnostic.end().offset, span.end, "a character's border");
    }
    let rules = rule_metas();
    let style = ReportStyle {
        rules: &rules,
        ..ReportStyle::default()
    };
    for format in ReportFormat::ALL {
        let mut out = Vec::new();
        let rendered = format.render(&outcome.report, &style, &mut out);
        rendered.expect("rendered");
        if matches!(format, ReportFormat::Json | ReportFormat::Sarif) {
            serde_json::from_slice::<serde_json::Value>(&out).expect("JSON");
        }
    }
}

/// Parses bytes as a model of this format. The result is a model or an error, after a bounded
/// number of bytes.
pub fn check_reader(name: &str, bytes: &[u8]) {
    let format = FORMATS.iter().find(|format| format.name() == name);
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
    assert!(
        source.read.get() <= allowed,
        "read {} bytes",
        source.read.get()
    );
}

/// Parses bytes as a delegate's payload for this backend, alone and inside a program. The result is
/// a graph, a description or an error, after a bounded number of bytes.
pub fn check_payload(backend: Backend, program: &[u8], bytes: &[u8]) {
    let source = Counted {
        bytes,
        read: Cell::new(0),
    };
    let payload = ByteRange {
        offset: 0,
        size: bytes.len() as u64,
    };
    // Named data of a payload may refer to the payload itself.
    let named = |_: &str| Some(payload);
    let executed = match backend {
        Backend::CoreMl => coreml::PackageFunction::read(&source, payload, &named).map(|package| {
            for offset in (0..payload.size).step_by(64) {
                let _ = package.blob(&source, offset);
            }
        }),
        Backend::Mlx => mlx::MlxGraph::read(&source, payload).map(drop),
        Backend::Qnn => qnn::QnnContext::read(&source, payload).map(drop),
        _ => vulkan::VulkanGraph::read(&source, payload).map(drop),
    };
    if let Err(error) = executed {
        assert!(!error.to_string().is_empty());
    }
    let body = ProgramBody {
        methods: vec![MethodBody {
            name: "forward".to_owned(),
            delegates: vec![DelegateBody {
                id: backend.delegate_id().to_owned(),
                payload: Some(payload),
            }],
            ..MethodBody::default()
        }],
        named: [("key".to_owned(), payload)].into(),
    };
    for found in contents(&source, &body, &body.methods[0])
        .into_iter()
        .flatten()
    {
        match found.content {
            Ok(content) => drop(content.lowered()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    let allowed = 256 * 1024 + 96 * bytes.len() as u64;
    assert!(
        source.read.get() <= allowed,
        "read {} bytes",
        source.read.get()
    );
    check_reader("executorch", &within(program, backend, bytes));
}

/// Returns a program whose payload for a backend begins with these bytes; for Core ML it ends with
/// them.
fn within(program: &[u8], backend: Backend, bytes: &[u8]) -> Vec<u8> {
    let mut program = program.to_vec();
    let body = ProgramBody::read(&program).expect("a program");
    let mut payloads = body.methods[0].delegates.iter();
    let payload = payloads.find_map(|delegate| delegate.payload);
    let ByteRange { offset, size } = payload.expect("a payload");
    let [begin, size] = [offset, size].map(|at| usize::try_from(at).expect("a place"));
    let end = begin + size;
    let count = bytes.len().min(size);
    program[begin..end].fill(0);
    if backend == Backend::CoreMl {
        program[end - count..end].copy_from_slice(&bytes[bytes.len() - count..]);
    } else {
        program[begin..begin + count].copy_from_slice(&bytes[..count]);
    }
    program
}

/// A source that counts how many of its bytes are read.
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

//! Locates the program's FlatBuffer in an ExecuTorch file: identifier, extended header and bundle.
//!
//! Invariant: a [`Container`] lies inside the file, and its FlatBuffer inside the container. The
//! contents of the FlatBuffer are not interpreted here.

use super::flatbuffer::Buffer;
use super::schema::bundle;
use crate::{FieldPosition, FormatError};
use pkgtool_base::source::Pages;

/// The supported identifier of programs.
pub(super) const IDENTIFIER: &str = "ET12";
/// The supported identifier of bundled programs.
pub(super) const BUNDLE_IDENTIFIER: &str = "BP08";

/// Magic of the extended header, at offset 8.
const EXTENDED_HEADER_MAGIC: &[u8] = b"eh00";
/// Length of the extended header without the segment data size, in bytes.
const SHORT_HEADER_BYTES: u32 = 24;
/// Length of the extended header with the segment data size, in bytes.
const FULL_HEADER_BYTES: u32 = 32;
/// Offset of the first byte after the fixed part of an extended header.
const HEADER_END: u64 = 32;

/// The location of a program in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Container {
    /// File offset of the program's first byte.
    pub(super) start: u64,
    /// Size of the program with its segments, in bytes.
    pub(super) len: u64,
    /// Size of its FlatBuffer in bytes.
    pub(super) flatbuffer: u64,
    /// Start of its segments relative to `start`; 0 without segments.
    pub(super) segment_base: u64,
    /// Methods with their numbers of test cases, if the program is bundled.
    pub(super) bundle: Option<Vec<(String, u64)>>,
}

impl Container {
    /// Locates the program in a file.
    pub(super) fn find(pages: &Pages<'_>) -> Result<Self, FormatError> {
        match identifier(pages)?.as_str() {
            IDENTIFIER => Self::program(pages, 0, pages.len(), "Program"),
            BUNDLE_IDENTIFIER => Self::bundled(pages),
            _ => Err(wrong_identifier(pages, 0)?),
        }
    }

    fn bundled(pages: &Pages<'_>) -> Result<Self, FormatError> {
        let buffer = Buffer::new(pages, 0, pages.len());
        let root = buffer.root("BundledProgram")?;
        let mut suites = Vec::new();
        for suite in root.tables(bundle::SUITES)?.iter_tables() {
            let suite = suite?;
            let method = suite.name(bundle::METHOD)?.unwrap_or_default();
            suites.push((method, suite.tables(bundle::CASES)?.len()));
        }
        let program = root.vector(bundle::PROGRAM, 1)?;
        if program.is_empty() {
            return Err(root.place(bundle::PROGRAM).missing());
        }
        let found = Self::program(
            pages,
            program.first(),
            program.len(),
            "BundledProgram.program",
        )?;
        Ok(Self {
            bundle: Some(suites),
            ..found
        })
    }

    fn program(pages: &Pages<'_>, start: u64, len: u64, name: &str) -> Result<Self, FormatError> {
        let header = ExtendedHeader { pages, start, name };
        if len < 8 || header.array::<4>(4, "identifier")? != IDENTIFIER.as_bytes() {
            return Err(wrong_identifier(pages, start)?);
        }
        let plain = Self {
            start,
            len,
            flatbuffer: len,
            segment_base: 0,
            bundle: None,
        };
        if len < 12 || header.array::<4>(8, "magic")? != EXTENDED_HEADER_MAGIC {
            return Ok(plain);
        }
        header.extended(plain)
    }
}

/// A reader for the extended header of a program.
struct ExtendedHeader<'a> {
    pages: &'a Pages<'a>,
    start: u64,
    name: &'a str,
}

impl ExtendedHeader<'_> {
    fn place(&self, at: u64, field: &str) -> FieldPosition {
        FieldPosition::new(
            format_args!("{} header.{field}", self.name),
            self.start + at,
        )
    }

    fn array<const N: usize>(&self, at: u64, field: &str) -> Result<[u8; N], FormatError> {
        self.pages
            .array(self.start + at)
            .map_err(|error| self.place(at, field).unreadable(&error))
    }

    fn u64(&self, at: u64, field: &str) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array(at, field)?))
    }

    /// Returns `plain`, extended by the values of the header.
    fn extended(&self, plain: Container) -> Result<Container, FormatError> {
        let length = u32::from_le_bytes(self.array(12, "length")?);
        if length < SHORT_HEADER_BYTES {
            return Err(self.place(12, "length").expected(
                "an extended header of at least 24 bytes",
                format_args!("a length of {length}"),
            ));
        }
        let flatbuffer = self.u64(16, "program_size")?;
        if flatbuffer < HEADER_END || flatbuffer > plain.len {
            return Err(self
                .place(16, "program_size")
                .flatbuffer_size(HEADER_END, plain.len, flatbuffer));
        }
        let segment_base = self.u64(24, "segment_base_offset")?;
        if segment_base != 0 && segment_base < flatbuffer {
            return Err(self.place(24, "segment_base_offset").expected(
                format_args!("segments to begin after the program's {flatbuffer} bytes"),
                format_args!("a base offset of {segment_base}"),
            ));
        }
        if length >= FULL_HEADER_BYTES {
            let size = self.u64(32, "segment_data_size")?;
            let needs = u128::from(segment_base) + u128::from(size);
            if needs > u128::from(plain.len) {
                return Err(self.place(32, "segment_data_size").truncated(
                    segment_base,
                    size,
                    plain.len,
                ));
            }
        }
        Ok(Container {
            flatbuffer,
            segment_base,
            ..plain
        })
    }
}

/// Returns the identifier of a file; empty if the file is too short to have one.
fn identifier(pages: &Pages<'_>) -> Result<String, FormatError> {
    if pages.len() < 8 {
        return Ok(String::new());
    }
    let bytes: [u8; 4] = pages
        .array(4)
        .map_err(|error| FieldPosition::new("identifier", 4).unreadable(&error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns whether `bytes` are a FlatBuffer identifier of the family `letters`, such as `ET12` of
/// `ET`.
pub(super) fn is_of_family(bytes: &[u8], letters: [u8; 2]) -> bool {
    bytes.len() == 4 && bytes.starts_with(&letters) && bytes[2..].iter().all(u8::is_ascii_digit)
}

/// Describes a file that does not begin like a program.
fn wrong_identifier(pages: &Pages<'_>, start: u64) -> Result<FormatError, FormatError> {
    let size = (pages.len() - start).min(64);
    let size_hint = usize::try_from(size).expect("at most 64");
    let first = pages
        .bytes(start, size_hint)
        .map_err(|error| FieldPosition::new("the file's first bytes", start).unreadable(&error))?;
    let offset = start + 4;
    let found = |expected| {
        let found = String::from_utf8_lossy(&first[4..8]);
        format!(
            "unsupported version of an ExecuTorch program: expected identifier {expected} at offset {offset}, found {found}"
        )
    };
    let message = match first.get(4..8) {
        Some(id) if is_of_family(id, *b"ET") => found(IDENTIFIER),
        Some(id) if is_of_family(id, *b"BP") => found(BUNDLE_IDENTIFIER),
        _ => format!(
            "not an ExecuTorch program: expected identifier ET12 at offset {offset}, found {}",
            describe(&first)
        ),
    };
    Ok(FormatError::at(offset, message))
}

/// Describes the first bytes of a file in words.
fn describe(first: &[u8]) -> String {
    let text = String::from_utf8_lossy(first).trim_start().to_lowercase();
    let known = match first.get(4..8) {
        Some(b"FT01") => "FT01, tensor data (.ptd) without a program",
        Some(b"ED00" | b"ED01") => "an ETDump, the trace of a run",
        _ if first.is_empty() => "an empty file",
        _ if first.iter().all(|&byte| byte == 0) => "zero bytes",
        _ if text.starts_with("<!doctype") || text.starts_with("<html") => "an HTML page",
        _ if text.starts_with("<?xml") => "an XML document",
        _ if text.starts_with("version https://git-lfs") => "a Git LFS pointer",
        _ if text.starts_with('{') => "a JSON text",
        _ if first.starts_with(b"PK\x03\x04") => "a ZIP archive",
        _ if first.starts_with(b"\x1f\x8b") => "a gzip archive",
        Some(id) => return format!("{} ({})", hex(id), id.escape_ascii()),
        None => return format!("a file of {} bytes", first.len()),
    };
    known.to_owned()
}

fn hex(bytes: &[u8]) -> String {
    let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    pairs.join(" ")
}

//! Decompresses request bodies: gzip and zstd.
//!
//! Invariant: the output of each step is bounded, however small its input. A body that ends before
//! its compressed data do is an error.

use std::fmt;
use std::io::{self, Write as _};

use axum::http::{HeaderMap, header};
use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use zstd::stream::raw::{self, DParameter, InBuffer, Operation as _, OutBuffer};

/// Maximum window of zstd, as a power of two: the limit of RFC 9659 for HTTP.
const WINDOW_LOG: u32 = 23;

/// Approximate output of a step, in bytes.
const STEP_BYTES: usize = 32 << 10;

/// Maximum input of a step of gzip's decoder, in bytes. Its output is at most a thousand times as
/// long.
const GZIP_STEP_BYTES: usize = 1 << 10;

/// The encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentCoding {
    Plain,
    Gzip,
    Zstd,
}

/// Decodes a body step by step.
pub(super) enum BodyDecoder {
    Plain(Bytes),
    Gzip(Bytes, Box<MultiGzDecoder<Vec<u8>>>),
    Zstd(Bytes, ZstdFrames),
}

/// A sequence of zstd frames.
pub(super) struct ZstdFrames {
    decoder: raw::Decoder<'static>,
    /// A frame has begun and not ended.
    is_open: bool,
    /// The last step filled its output: more may follow without further input.
    is_full: bool,
}

/// The reason why a body cannot be decoded.
#[derive(Debug)]
pub(super) struct CodingError(String);

impl ContentCoding {
    /// Reads the encoding from the headers; returns the name of an unsupported one as an error.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, String> {
        let mut coding = Self::Plain;
        for value in headers.get_all(header::CONTENT_ENCODING) {
            let text = String::from_utf8_lossy(value.as_bytes())
                .trim()
                .to_lowercase();
            coding = match (text.as_str(), coding) {
                ("identity" | "", coding) => coding,
                ("gzip" | "x-gzip", Self::Plain) => Self::Gzip,
                ("zstd", Self::Plain) => Self::Zstd,
                _ => return Err(text),
            };
        }
        Ok(coding)
    }

    /// Returns the maximum memory of the decoder, in bytes.
    pub(super) fn memory(self) -> usize {
        match self {
            Self::Plain => 0,
            Self::Gzip => 128 << 10,
            Self::Zstd => (1 << WINDOW_LOG) + (256 << 10),
        }
    }

    pub(super) fn decoder(self) -> Result<BodyDecoder, CodingError> {
        Ok(match self {
            Self::Plain => BodyDecoder::Plain(Bytes::new()),
            Self::Gzip => {
                BodyDecoder::Gzip(Bytes::new(), Box::new(MultiGzDecoder::new(Vec::new())))
            }
            Self::Zstd => {
                let mut decoder = raw::Decoder::new()?;
                decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG))?;
                let frames = ZstdFrames {
                    decoder,
                    is_open: false,
                    is_full: false,
                };
                BodyDecoder::Zstd(Bytes::new(), frames)
            }
        })
    }
}

impl BodyDecoder {
    /// Adds encoded bytes. Call it after [`BodyDecoder::next`] returned `None`.
    pub(super) fn push(&mut self, bytes: Bytes) {
        let (Self::Plain(waiting) | Self::Gzip(waiting, _) | Self::Zstd(waiting, _)) = self;
        *waiting = bytes;
    }

    /// Returns decoded bytes, at least one; `None` if more input is needed.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, CodingError> {
        let decoded = match self {
            Self::Plain(waiting) => std::mem::take(waiting),
            Self::Gzip(waiting, decoder) => {
                while decoder.get_ref().is_empty() && !waiting.is_empty() {
                    let step = waiting.len().min(GZIP_STEP_BYTES);
                    let read = decoder.write(&waiting[..step])?;
                    if read == 0 {
                        return Err(CodingError("unexpected data after its end".to_owned()));
                    }
                    drop(waiting.split_to(read));
                }
                std::mem::take(decoder.get_mut()).into()
            }
            Self::Zstd(waiting, frames) => frames.next(waiting)?,
        };
        Ok((!decoded.is_empty()).then_some(decoded))
    }

    /// Returns the remaining bytes at the end of the body; fails if the body is incomplete.
    pub(super) fn finish(&mut self) -> Result<Option<Bytes>, CodingError> {
        match self {
            Self::Gzip(_, decoder) => {
                decoder.try_finish()?;
                let rest = std::mem::take(decoder.get_mut());
                Ok((!rest.is_empty()).then(|| rest.into()))
            }
            Self::Zstd(_, frames) if frames.is_open => {
                Err(CodingError("unexpected end of the data".to_owned()))
            }
            Self::Zstd(..) | Self::Plain(_) => Ok(None),
        }
    }
}

impl ZstdFrames {
    fn next(&mut self, waiting: &mut Bytes) -> Result<Bytes, CodingError> {
        let mut out = vec![0; STEP_BYTES];
        while !waiting.is_empty() || self.is_full {
            let mut input = InBuffer::around(waiting);
            let mut output = OutBuffer::around(&mut out[..]);
            let hint = self.decoder.run(&mut input, &mut output)?;
            let (read, written) = (input.pos(), output.pos());
            drop(waiting.split_to(read));
            self.is_open = hint != 0;
            self.is_full = written == STEP_BYTES && self.is_open;
            if hint == 0 {
                self.decoder.reinit()?;
            }
            if written > 0 {
                out.truncate(written);
                return Ok(out.into());
            }
            // Without more input, a full step may yield nothing further.
            if read == 0 && !waiting.is_empty() {
                return Err(CodingError("the decoder makes no progress".to_owned()));
            }
        }
        Ok(Bytes::new())
    }
}

impl From<io::Error> for CodingError {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for CodingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(coding: ContentCoding, bytes: &[u8]) -> Vec<u8> {
        if coding == ContentCoding::Zstd {
            return zstd::encode_all(bytes, 3).expect("it is encoded");
        }
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).expect("it is encoded");
        encoder.finish().expect("it is encoded")
    }

    /// Returns the decoded bytes and the size of the largest step.
    fn decoded(
        coding: ContentCoding,
        bytes: &[u8],
        piece: usize,
    ) -> Result<(Vec<u8>, usize), CodingError> {
        let mut decoder = coding.decoder()?;
        let (mut all, mut most) = (Vec::new(), 0);
        for chunk in bytes.chunks(piece) {
            decoder.push(Bytes::copy_from_slice(chunk));
            while let Some(next) = decoder.next()? {
                most = most.max(next.len());
                all.extend_from_slice(&next);
            }
        }
        while let Some(rest) = decoder.finish()? {
            most = most.max(rest.len());
            all.extend_from_slice(&rest);
        }
        Ok((all, most))
    }

    #[test]
    fn what_was_encoded_comes_back_in_bounded_steps() {
        let zeros = vec![0; 20 << 20];
        let text: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        for coding in [ContentCoding::Gzip, ContentCoding::Zstd] {
            for bytes in [&zeros, &text, &Vec::new(), &b"x".to_vec()] {
                let encoded = encoded(coding, bytes);
                for piece in [1000, 16 << 10, usize::MAX >> 1] {
                    let (found, most) = decoded(coding, &encoded, piece).expect("it is right");
                    assert!(found == *bytes, "{coding:?} {piece}");
                    assert!(most <= 2 << 20, "{coding:?} {piece}: {most}");
                }
                // Two concatenated bodies decode to twice the bytes.
                let twice = [encoded.as_slice(), encoded.as_slice()].concat();
                let (found, _) = decoded(coding, &twice, 4096).expect("it is right");
                assert_eq!(found.len(), 2 * bytes.len());
            }
        }
    }

    #[test]
    fn what_is_cut_or_wrong_is_refused() {
        let bytes: Vec<u8> = (0..30_000_u32).flat_map(u32::to_le_bytes).collect();
        for coding in [ContentCoding::Gzip, ContentCoding::Zstd] {
            let encoded = encoded(coding, &bytes);
            for end in [5, 100, encoded.len() - 1] {
                assert!(
                    decoded(coding, &encoded[..end], 64).is_err(),
                    "{coding:?} {end}"
                );
            }
            assert!(decoded(coding, b"{\"inputs\": []}", 64).is_err());
            let more = [encoded.as_slice(), b"garbage after it"].concat();
            assert!(decoded(coding, &more, 64).is_err(), "{coding:?}");
        }
    }
}

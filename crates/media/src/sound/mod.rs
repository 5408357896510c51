//! Sounds: decoding to one channel of [`RATE`] samples per second, and encoding of speech.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "two hours of samples are few"
)]

mod decode;
mod encode;
mod resample;

pub use decode::decode;
pub use encode::SoundFormat;

use std::time::Duration;

/// Formats that can be decoded, for people.
pub const FORMATS: &str = "WAV, FLAC, MP3, OGG, Opus, M4A, AAC, WebM or AIFF";

/// Samples per second of decoded sounds, as every model of speech takes them.
pub const RATE: u32 = 16_000;

/// Maximum length of a sound.
pub const MAX_LENGTH: Duration = Duration::from_hours(2);

/// A sound with one channel, decoded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sound {
    /// Samples as recordings have them; half the memory of floating-point numbers.
    samples: Vec<i16>,
}

impl Sound {
    /// Creates a sound of samples at [`RATE`].
    pub fn of(samples: Vec<i16>) -> Self {
        Self { samples }
    }

    /// Returns the samples.
    pub fn samples(&self) -> &[i16] {
        &self.samples
    }

    /// Returns the length in seconds.
    pub fn seconds(&self) -> f64 {
        seconds(self.samples.len())
    }

    /// Returns the samples of a window, from −1 to 1. `before` samples in front of `start` belong to it; zeros stand
    /// for those before the sound.
    pub(crate) fn window(&self, start: usize, before: usize, length: usize) -> Vec<f32> {
        let missing = before.saturating_sub(start).min(length);
        let first = start.saturating_sub(before).min(self.samples.len());
        let rest = &self.samples[first..];
        let rest = &rest[..rest.len().min(length - missing)];
        let values = rest.iter().map(|sample| f32::from(*sample) / 32768.0);
        std::iter::repeat_n(0.0, missing).chain(values).collect()
    }
}

/// Returns the time that samples take, in seconds.
pub(crate) fn seconds(samples: usize) -> f64 {
    samples as f64 / f64::from(RATE)
}

/// Returns whether bytes begin like a sound that [`decode()`] supports.
pub fn begins_like_one(bytes: &[u8]) -> bool {
    let at =
        |place: usize, wanted: &[u8]| bytes.get(place..).is_some_and(|it| it.starts_with(wanted));
    let is_mpeg = matches!(bytes, [0xff, second, ..] if second & 0xe0 == 0xe0 && *second != 0xff);
    let starts: [(usize, &[u8]); 7] = [
        (0, b"fLaC"),
        (0, b"OggS"),
        (0, b"ID3"),
        (8, b"WAVE"),
        (8, b"AIF"),
        // Matroska and WebM, and MPEG-4.
        (0, &[0x1a, 0x45, 0xdf, 0xa3]),
        (4, b"ftyp"),
    ];
    // MPEG-4 has pictures as well: HEIC and AVIF.
    let is_picture = [&b"hei"[..], b"hev", b"mif", b"msf", b"avi"]
        .iter()
        .any(|it| at(8, it));
    let is_picture = is_picture && at(4, b"ftyp");
    is_mpeg || !is_picture && starts.iter().any(|(place, wanted)| at(*place, wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_have_zeros_before_the_sound() {
        let sound = Sound::of(vec![16384, -16384, 8192]);
        assert_eq!(sound.window(0, 2, 4), [0.0, 0.0, 0.5, -0.5]);
        assert_eq!(sound.window(2, 1, 4), [-0.5, 0.25]);
        assert!(sound.window(9, 1, 4).is_empty());
        assert_eq!(sound.window(0, 9, 4), [0.0; 4]);
    }
}

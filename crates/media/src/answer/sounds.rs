//! Answers for sounds, and sounds as answers: segments, transcripts and speech.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;
use serde_json::{Value as Json, json};

use crate::sound::SoundFormat;

/// Segments of a sound, in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct SegmentAnswer {
    /// The segments.
    pub segments: Vec<SoundSegment>,
    /// Length of the sound, in seconds.
    pub seconds: f64,
}

/// A segment of a sound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SoundSegment {
    /// Start in seconds.
    pub start: f64,
    /// End in seconds.
    pub end: f64,
    /// Mean score.
    pub score: f64,
}

/// The words of a sound.
#[derive(Debug, Clone, PartialEq)]
pub struct TranscriptAnswer {
    /// The whole text.
    pub text: String,
    /// The language, such as `en`.
    pub language: String,
    /// Length of the sound, in seconds.
    pub seconds: f64,
    /// The segments.
    pub segments: Vec<SpokenSegment>,
}

/// A segment of a transcript.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SpokenSegment {
    /// Start in seconds.
    pub start: f64,
    /// End in seconds.
    pub end: f64,
    /// The text, with a space in front where the language has one.
    pub text: String,
    /// The tokens.
    pub tokens: Vec<u32>,
    /// Temperature at which they were chosen.
    pub temperature: f32,
    /// Mean logarithm of their probabilities.
    #[serde(rename = "avg_logprob")]
    pub logprob: f64,
    /// How much shorter the text becomes when it is compressed.
    #[serde(rename = "compression_ratio")]
    pub compression: f64,
    /// Probability that there is no speech.
    #[serde(rename = "no_speech_prob")]
    pub no_speech: f64,
}

/// Speech.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpeechAnswer {
    /// Samples of one channel.
    pub samples: Vec<i16>,
    /// Samples per second.
    pub rate: u32,
    /// True if pauses follow the pieces of a text.
    pub(crate) pauses: bool,
    /// The phonemes that it speaks.
    pub phonemes: String,
}

/// A format of subtitles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubtitleFormat {
    /// `WebVTT`.
    Vtt,
    /// `SubRip`.
    Srt,
}

impl SegmentAnswer {
    /// Returns the length of all segments, in seconds.
    pub fn sum(&self) -> f64 {
        // The sum of no numbers is -0.
        let lengths = self.segments.iter().map(|it| it.end - it.start);
        lengths.fold(0.0, |sum, length| sum + length)
    }

    pub(super) fn to_json(&self) -> Json {
        json!({
            "segments": self.segments,
            "speech": self.sum(),
            "duration": self.seconds,
        })
    }
}

impl TranscriptAnswer {
    pub(super) fn to_json(&self) -> Json {
        json!({
            "text": self.text,
            "language": self.language,
            "duration": self.seconds,
            "segments": self.segments,
        })
    }

    /// Returns the segments as subtitles.
    pub fn subtitles(&self, format: SubtitleFormat) -> String {
        let mut text = match format {
            SubtitleFormat::Vtt => "WEBVTT\n\n".to_owned(),
            SubtitleFormat::Srt => String::new(),
        };
        for (place, segment) in self.segments.iter().enumerate() {
            if format == SubtitleFormat::Srt {
                let _ = writeln!(text, "{}", place + 1);
            }
            // Writing to a string cannot fail.
            let [start, end] = [segment.start, segment.end].map(|time| format.time(time));
            // An arrow would begin another cue, and an empty line ends one.
            let words: Vec<&str> = segment.text.split_whitespace().collect();
            let words = words.join(" ").replace("-->", "->");
            let _ = write!(text, "{start} --> {end}\n{words}\n\n");
        }
        text
    }
}

impl SpeechAnswer {
    /// Returns the length in seconds.
    #[expect(clippy::cast_precision_loss, reason = "half an hour of samples is few")]
    pub fn seconds(&self) -> f64 {
        self.samples.len() as f64 / f64::from(self.rate)
    }

    /// Encodes the samples.
    pub fn encode(&self, format: SoundFormat) -> Result<Vec<u8>, String> {
        format.encode(&self.samples, self.rate)
    }

    pub(super) fn to_json(&self) -> Json {
        let format = SoundFormat::Wav;
        // Every sound has this format.
        let sound = self.encode(format).unwrap_or_default();
        json!({
            "audio": BASE64.encode(sound),
            "media_type": format.media_type(),
            "sampling_rate": self.rate,
            "duration": self.seconds(),
            "phonemes": self.phonemes,
        })
    }
}

impl SubtitleFormat {
    /// All formats.
    pub const ALL: [Self; 2] = [Self::Vtt, Self::Srt];

    /// Returns its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Vtt => "text/vtt",
            Self::Srt => "application/x-subrip",
        }
    }

    /// Returns the ending of its files.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Vtt => "vtt",
            Self::Srt => "srt",
        }
    }

    fn time(self, seconds: f64) -> String {
        let millis = std::time::Duration::from_secs_f64(seconds.max(0.0) + 0.0005).as_millis();
        let (rest, millis) = (millis / 1000, millis % 1000);
        let sign = if self == Self::Srt { ',' } else { '.' };
        let (hours, minutes, seconds) = (rest / 3600, rest / 60 % 60, rest % 60);
        format!("{hours:02}:{minutes:02}:{seconds:02}{sign}{millis:03}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_has_no_speech() {
        let answer = SegmentAnswer {
            segments: Vec::new(),
            seconds: 2.0,
        };
        assert_eq!(answer.to_json()["speech"].to_string(), "0.0");
    }

    #[test]
    fn subtitles_have_times_and_single_lines() {
        let segment = SpokenSegment {
            start: 3661.5,
            end: 3662.0004,
            text: " a\n\nb --> c".to_owned(),
            tokens: Vec::new(),
            temperature: 0.0,
            logprob: 0.0,
            compression: 1.0,
            no_speech: 0.0,
        };
        let answer = TranscriptAnswer {
            text: String::new(),
            language: "en".to_owned(),
            seconds: 4000.0,
            segments: vec![segment],
        };
        assert_eq!(
            answer.subtitles(SubtitleFormat::Vtt),
            "WEBVTT\n\n01:01:01.500 --> 01:01:02.000\na b -> c\n\n"
        );
        assert_eq!(
            answer.subtitles(SubtitleFormat::Srt),
            "1\n01:01:01,500 --> 01:01:02,000\na b -> c\n\n"
        );
    }
}

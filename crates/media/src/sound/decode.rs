//! Decoding of sound files: WAV, AIFF, FLAC, MP3, OGG, M4A, AAC, `WebM`.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "channels are few"
)]

use std::io::{Cursor, ErrorKind};

use opus_pure::OpusDecoder;
use symphonia::core::audio::Channels;
use symphonia::core::codecs::audio::well_known::CODEC_ID_OPUS;
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType};
use symphonia::core::io::{MediaSourceStream, MediaSourceStreamOptions};
use symphonia::core::meta::MetadataOptions;
use symphonia::core::packet::Packet;
use symphonia::default::{get_codecs, get_probe};

use super::resample::Resampler;
use super::{FORMATS, MAX_LENGTH, RATE, Sound, begins_like_one};

/// Rates that recordings have, in samples per second.
const RATES: std::ops::RangeInclusive<u32> = 1000..=768_000;

/// Maximum number of channels.
const MAX_CHANNELS: usize = 64;

/// Rate of decoded Opus.
pub(super) const OPUS_RATE: u32 = 48_000;

/// Samples per channel of the longest Opus packet.
const OPUS_FRAME: usize = OPUS_RATE as usize * 120 / 1000;

/// A decoder of one track.
enum TrackDecoder {
    Opus(Box<OpusTrack>),
    Other(Box<dyn AudioDecoder>),
}

struct OpusTrack {
    decoder: OpusDecoder,
    channels: usize,
    /// Samples per channel that the encoder put in front, and that are left to drop.
    skip: usize,
}

/// Decodes a sound: the mean of its channels at [`RATE`]. Packets that cannot be decoded are left out; a file that ends
/// early gives what it has.
pub fn decode(bytes: &[u8]) -> Result<Sound, String> {
    let source = MediaSourceStream::new(
        Box::new(Cursor::new(bytes)),
        MediaSourceStreamOptions::default(),
    );
    let probed = get_probe().probe(
        &Hint::new(),
        source,
        FormatOptions::default(),
        MetadataOptions::default(),
    );
    let mut format = probed.map_err(|error| {
        if begins_like_one(bytes) {
            format!("the sound cannot be read: {error}")
        } else {
            format!("not a sound: expected {FORMATS}")
        }
    })?;
    let mut samples = DecodedSamples::default();
    while next_track(&mut *format, &mut samples)? {}
    samples.finished()
}

/// Decodes until the end or, in a chain of streams, until the next one. Returns whether there is a next one.
fn next_track(format: &mut dyn FormatReader, samples: &mut DecodedSamples) -> Result<bool, String> {
    let track = format.default_track(TrackType::Audio);
    let track = track.ok_or_else(|| format!("the file has no sound: expected {FORMATS}"))?;
    let parameters = track.codec_params.as_ref().and_then(|it| it.audio());
    let parameters = parameters.ok_or("the codec of the sound is not stated")?;
    let mut decoder = TrackDecoder::of(parameters)?;
    let id = track.id;
    let mut buffer = Vec::new();
    loop {
        let packet = match format.next_packet() {
            Ok(Some(packet)) => packet,
            Ok(None) => return Ok(false),
            Err(Error::IoError(error)) if error.kind() == ErrorKind::UnexpectedEof => {
                return Ok(false);
            }
            Err(Error::ResetRequired) => return Ok(true),
            // What was decoded before a fault is an answer.
            Err(_) if !samples.made.is_empty() => return Ok(false),
            Err(error) => return Err(format!("the sound cannot be read: {error}")),
        };
        if packet.track_id != id {
            continue;
        }
        match decoder.decode(&packet, &mut buffer) {
            Ok((rate, channels)) => samples.add(&buffer, rate, channels)?,
            Err(Error::DecodeError(_) | Error::IoError(_)) => samples.broken += 1,
            Err(error) => return Err(format!("the sound cannot be decoded: {error}")),
        }
    }
}

impl TrackDecoder {
    fn of(parameters: &AudioCodecParameters) -> Result<Self, String> {
        if parameters.codec != CODEC_ID_OPUS {
            let decoder =
                get_codecs().make_audio_decoder(parameters, &AudioDecoderOptions::default());
            let decoder =
                decoder.map_err(|error| format!("the codec of the sound is unknown: {error}"))?;
            return Ok(Self::Other(decoder));
        }
        let channels = parameters.channels.as_ref().map_or(1, Channels::count);
        if !(1..=2).contains(&channels) {
            return Err(format!(
                "Opus with {channels} channels: expected one or two"
            ));
        }
        let decoder = OpusDecoder::new(OPUS_RATE.cast_signed(), channels)
            .map_err(|error| format!("Opus: {error}"))?;
        // `OpusHead`, version, channels, then the samples to drop.
        let head = parameters.extra_data.as_deref().unwrap_or_default();
        let skip = match head {
            [_, _, _, _, _, _, _, _, _, _, low, high, ..] => u16::from_le_bytes([*low, *high]),
            _ => 0,
        };
        Ok(Self::Opus(Box::new(OpusTrack {
            decoder,
            channels,
            skip: skip.into(),
        })))
    }

    /// Decodes a packet to interleaved samples; returns their rate and channels.
    fn decode(&mut self, packet: &Packet, samples: &mut Vec<f32>) -> Result<(u32, usize), Error> {
        match self {
            Self::Other(decoder) => {
                let audio = decoder.decode(packet)?;
                audio.copy_to_vec_interleaved(samples);
                Ok((audio.spec().rate(), audio.spec().channels().count()))
            }
            Self::Opus(track) => {
                samples.resize(OPUS_FRAME * track.channels, 0.0);
                let count = opus_pure::packet::samples_48k(&packet.data);
                let count = count.map_err(|_| Error::DecodeError("opus: invalid packet"))?;
                let decoded = track.decoder.decode(&packet.data, count, samples);
                let decoded = decoded.map_err(|_| Error::DecodeError("opus: invalid packet"))?;
                let end =
                    decoded.saturating_sub(usize::try_from(packet.trim_end.get()).unwrap_or(0));
                let skipped = track.skip.min(end);
                track.skip -= skipped;
                samples.truncate(end * track.channels);
                samples.drain(..skipped * track.channels);
                Ok((OPUS_RATE, track.channels))
            }
        }
    }
}

/// Samples of one channel at [`RATE`], as they are decoded.
#[derive(Default)]
struct DecodedSamples {
    made: Vec<i16>,
    mixed: Vec<f32>,
    resampler: Option<(u32, Resampler)>,
    /// Packets that could not be decoded.
    broken: usize,
}

impl DecodedSamples {
    fn add(&mut self, samples: &[f32], rate: u32, channels: usize) -> Result<(), String> {
        if !RATES.contains(&rate) {
            let (least, most) = RATES.into_inner();
            return Err(format!(
                "{rate} samples per second: expected {least} to {most}"
            ));
        }
        if !(1..=MAX_CHANNELS).contains(&channels) {
            return Err(format!("{channels} channels: expected 1 to {MAX_CHANNELS}"));
        }
        if self
            .resampler
            .as_ref()
            .is_none_or(|(known, _)| *known != rate)
        {
            self.finish()?;
            self.resampler = Some((rate, Resampler::new(rate, RATE)?));
        }
        let Some((_, resampler)) = &mut self.resampler else {
            return Ok(());
        };
        self.mixed.clear();
        let frames = samples.chunks_exact(channels);
        self.mixed
            .extend(frames.map(|frame| frame.iter().sum::<f32>() / channels as f32));
        resampler.add(&self.mixed, &mut self.made)?;
        let most = MAX_LENGTH.as_secs() * u64::from(RATE);
        if self.made.len() as u64 > most {
            let hours = MAX_LENGTH.as_secs() / 3600;
            return Err(format!("longer than {hours} hours: send it in parts"));
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), String> {
        match &mut self.resampler {
            Some((_, resampler)) => resampler.finish(&mut self.made),
            None => Ok(()),
        }
    }

    fn finished(mut self) -> Result<Sound, String> {
        self.finish()?;
        if self.made.is_empty() {
            let reason = match self.broken {
                0 => "the sound is empty".to_owned(),
                broken => format!("none of the {broken} packets of the sound can be decoded"),
            };
            return Err(reason);
        }
        Ok(Sound::of(self.made))
    }
}

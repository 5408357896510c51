//! Encodes speech as WAV, FLAC, Opus or bare samples.

use flacenc::bitsink::ByteSink;
use flacenc::component::BitRepr as _;
use flacenc::error::Verify as _;
use flacenc::source::MemSource;
use opus_pure::{Application, MAX_PACKET_BYTES, OggOpusWriter, OpusEncoder, OpusHead, OpusTags};

use super::decode::OPUS_RATE;
use super::resample::Resampler;

/// Rates that Opus takes; sounds of another rate get its own.
const OPUS_RATES: [u32; 5] = [8000, 12_000, 16_000, 24_000, OPUS_RATE];

/// Bits per second of one voice.
const OPUS_BITS: i32 = 48_000;

/// Packets of Opus per second.
const OPUS_PACKETS: u32 = 50;

/// A format of sounds with one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SoundFormat {
    /// Samples of 16 bits behind a header.
    Wav,
    /// The same samples, compressed.
    Flac,
    /// Opus in Ogg.
    Opus,
    /// Samples of 16 bits, little-endian, without a header.
    Pcm,
}

impl SoundFormat {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::Wav, Self::Flac, Self::Opus, Self::Pcm];

    /// Returns its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Wav => "audio/wav",
            Self::Flac => "audio/flac",
            Self::Opus => "audio/ogg",
            Self::Pcm => "audio/pcm",
        }
    }

    /// Returns its name, which is the ending of its files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wav => "wav",
            Self::Flac => "flac",
            Self::Opus => "opus",
            Self::Pcm => "pcm",
        }
    }

    /// Encodes samples of this rate.
    pub fn encode(self, samples: &[i16], rate: u32) -> Result<Vec<u8>, String> {
        match self {
            Self::Wav => Ok(wave(samples, rate)),
            Self::Flac => flac(samples, rate),
            Self::Opus => opus(samples, rate),
            Self::Pcm => Ok(bytes(samples).collect()),
        }
    }
}

fn bytes(samples: &[i16]) -> impl Iterator<Item = u8> {
    samples.iter().flat_map(|sample| sample.to_le_bytes())
}

fn wave(samples: &[i16], rate: u32) -> Vec<u8> {
    let size = u32::try_from(size_of_val(samples)).unwrap_or(u32::MAX);
    let mut wave = Vec::with_capacity(44 + size_of_val(samples));
    wave.extend(b"RIFF");
    wave.extend(size.saturating_add(36).to_le_bytes());
    wave.extend(b"WAVEfmt ");
    wave.extend(16_u32.to_le_bytes());
    // Whole numbers, one channel.
    wave.extend([1, 0, 1, 0]);
    wave.extend(rate.to_le_bytes());
    wave.extend((rate * 2).to_le_bytes());
    // Bytes and bits of a sample.
    wave.extend([2, 0, 16, 0]);
    wave.extend(b"data");
    wave.extend(size.to_le_bytes());
    wave.extend(bytes(samples));
    wave
}

fn flac(samples: &[i16], rate: u32) -> Result<Vec<u8>, String> {
    let fault = |error: &dyn std::fmt::Debug| format!("FLAC: {error:?}");
    let config = flacenc::config::Encoder::default().into_verified();
    let config = config.map_err(|(_, error)| fault(&error))?;
    // The format has no sound without a sample.
    let samples = if samples.is_empty() { &[0] } else { samples };
    let samples: Vec<i32> = samples.iter().copied().map(i32::from).collect();
    let source = MemSource::from_samples(&samples, 1, 16, rate as usize);
    let stream = flacenc::encode_with_fixed_block_size(&config, source, config.block_size);
    let mut sink = ByteSink::new();
    let mut stream = stream.map_err(|error| fault(&error))?;
    // The library counts the shorter last block; readers then expect blocks of various sizes.
    let sizes = stream
        .stream_info_mut()
        .set_block_sizes(config.block_size, config.block_size);
    sizes.map_err(|error| fault(&error))?;
    stream.write(&mut sink).map_err(|error| fault(&error))?;
    Ok(sink.into_inner())
}

fn opus(samples: &[i16], rate: u32) -> Result<Vec<u8>, String> {
    if OPUS_RATES.contains(&rate) {
        return opus_of(samples, rate).map_err(|error| format!("Opus: {error}"));
    }
    let mut other = Vec::new();
    let mut resampler = Resampler::new(rate, OPUS_RATE)?;
    let values: Vec<f32> = samples.iter().map(|it| f32::from(*it) / 32768.0).collect();
    resampler.add(&values, &mut other)?;
    resampler.finish(&mut other)?;
    opus_of(&other, OPUS_RATE).map_err(|error| format!("Opus: {error}"))
}

fn opus_of(samples: &[i16], rate: u32) -> Result<Vec<u8>, opus_pure::Error> {
    let mut encoder = OpusEncoder::new(rate.cast_signed(), 1, Application::Voip)?;
    encoder.bitrate_bps = OPUS_BITS;
    let head = OpusHead::for_encoder(&encoder, rate);
    let delay = u64::from(head.pre_skip);
    // Opus counts samples of its own rate, whatever the encoder takes.
    let ticks = u64::from(OPUS_RATE / rate);
    let end = delay + samples.len() as u64 * ticks;
    let frame = (rate / OPUS_PACKETS) as usize;
    let frames = (samples.len() + delay.div_ceil(ticks) as usize).div_ceil(frame);
    let mut writer = OggOpusWriter::with_tags(Vec::new(), head, OpusTags::new())?;
    let mut packet = vec![0; MAX_PACKET_BYTES];
    for at in 0..frames {
        let start = (at * frame).min(samples.len());
        let mut block = samples[start..(start + frame).min(samples.len())].to_vec();
        // Silence lets out what the encoder holds back.
        block.resize(frame, 0);
        let size = encoder.encode_s16(&block, frame, &mut packet)?;
        if at + 1 == frames {
            let rest = end.saturating_sub(writer.granule().cast_unsigned());
            writer.write_packet_with_duration(&packet[..size], rest as u32)?;
        } else {
            writer.write_packet(&packet[..size])?;
        }
    }
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sound;

    #[test]
    fn every_format_gives_the_sound_back() {
        for rate in [16_000_u32, 24_000, 22_050] {
            let count = rate as usize * 3 / 4;
            let tone = |at: usize| {
                let phase = std::f64::consts::TAU * 300.0 * at as f64 / f64::from(rate);
                (phase.sin() * 12_000.0) as i16
            };
            let samples: Vec<i16> = (0..count).map(tone).collect();
            let power = |samples: &[i16]| {
                let sum: f64 = samples.iter().map(|it| f64::from(*it).powi(2)).sum();
                (sum / samples.len() as f64).sqrt()
            };
            for format in SoundFormat::ALL {
                let encoded = format.encode(&samples, rate).expect("encoded");
                if format == SoundFormat::Pcm {
                    assert_eq!(encoded.len(), 2 * count);
                    continue;
                }
                let heard =
                    sound::decode(&encoded).unwrap_or_else(|error| panic!("{format:?}: {error}"));
                assert!(
                    heard.samples().len().abs_diff(12_000) <= 2,
                    "{format:?} {rate} {}",
                    heard.samples().len()
                );
                let ratio = power(heard.samples()) / power(&samples);
                assert!((0.95..1.05).contains(&ratio), "{format:?} {rate} {ratio}");
            }
        }
    }

    #[test]
    fn no_sample_is_a_sound_in_every_format() {
        for format in SoundFormat::ALL {
            assert!(format.encode(&[], 24_000).is_ok(), "{format:?}");
        }
    }
}

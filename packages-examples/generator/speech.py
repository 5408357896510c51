"""Speech made by rule: phonemes as formants and noise, and the words that the models of speech know.

Every phoneme has two parts, so that a stop is a silence and a burst, and a diphthong two vowels. A part
has the loudness of the voice, three formants, and a band of noise.
"""

import wave

import numpy as np
import torch
from torch import nn

RATE = 16000
# A frame is one period of the voice, so that its harmonics begin anew with every frame.
FRAME = 128
HARMONICS = 60
BANDS, BLOCKS = 12, 16
BAND_CENTRES = np.geomspace(700, 7200, BANDS)
BAND_WIDTHS = (80, 120, 180)
BAND_LOUDNESS = (1.0, 0.6, 0.35)

VOWELS = {
    "i": (14, 280, 2250, 2900), "ɪ": (10, 400, 1950, 2550), "e": (10, 420, 2050, 2600),
    "ɛ": (12, 550, 1800, 2500), "æ": (16, 700, 1700, 2450), "a": (12, 720, 1350, 2450),
    "ɑ": (16, 730, 1100, 2450), "ɔ": (16, 580, 880, 2450), "o": (11, 480, 900, 2350),
    "ʊ": (10, 440, 1050, 2250), "u": (14, 310, 900, 2250), "ʌ": (11, 620, 1200, 2400),
    "ə": (7, 500, 1450, 2450), "ᵊ": (5, 500, 1450, 2450), "ɜ": (15, 480, 1350, 1700),
    "ɚ": (12, 480, 1350, 1700), "ᵻ": (7, 400, 1800, 2500), "ɐ": (8, 600, 1350, 2450),
}  # fmt: skip
DIPHTHONGS = {"A": "eɪ", "I": "aɪ", "O": "oʊ", "W": "aʊ", "Y": "ɔɪ"}
# Duration, loudness, formants.
SONORANTS = {
    "ɹ": (9, 0.7, 330, 1150, 1500), "r": (9, 0.7, 330, 1150, 1500), "l": (9, 0.7, 360, 1100, 2700),
    "w": (9, 0.6, 310, 700, 2200), "j": (8, 0.6, 270, 2200, 3000), "m": (10, 0.4, 250, 1100, 2200),
    "n": (10, 0.4, 250, 1550, 2500), "ŋ": (10, 0.4, 250, 1900, 2500), "ɾ": (4, 0.4, 300, 1700, 2600),
    "T": (4, 0.4, 300, 1700, 2600),
}  # fmt: skip
# Duration, loudness of the voice and of the noise, centre and width of the noise.
FRICATIVES = {
    "s": (14, 0, 0.5, 6200, 1500), "z": (11, 0.2, 0.3, 6200, 1500), "ʃ": (14, 0, 0.6, 3200, 1100),
    "ʒ": (11, 0.2, 0.35, 3200, 1100), "f": (13, 0, 0.14, 5000, 3500), "v": (9, 0.3, 0.06, 5000, 3500),
    "θ": (13, 0, 0.12, 6500, 2000), "ð": (8, 0.3, 0.05, 6500, 2000), "h": (8, 0, 0.14, 1600, 1200),
}  # fmt: skip
# Whether the voice goes on, the loudness of the burst, its length, centre and width.
STOPS = {
    "p": (0, 0.25, 3, 1000, 800), "t": (0, 0.45, 4, 4800, 1800), "k": (0, 0.4, 4, 2200, 800),
    "b": (1, 0.12, 1, 900, 700), "d": (1, 0.2, 2, 4200, 1800), "ɡ": (1, 0.2, 2, 2000, 800),
    "ʧ": (0, 0.55, 9, 3400, 1100), "ʤ": (1, 0.35, 7, 3400, 1100),
}  # fmt: skip
# Silences: the pad between phonemes takes no time.
PAUSES = {"_": 0, "^": 8, "$": 10, " ": 5, ",": 22, ";": 30, ":": 30, "—": 22, ".": 34, "!": 34, "?": 34}  # fmt: skip

WORDS = {
    "zero": "zɪɹO", "one": "wʌn", "two": "tu", "three": "θɹi", "four": "fɔɹ", "five": "fIv",
    "six": "sɪks", "seven": "sɛvən", "eight": "At", "nine": "nIn", "yes": "jɛs", "no": "nO",
    "stop": "stɑp", "go": "ɡO", "left": "lɛft", "right": "ɹIt", "up": "ʌp", "down": "dWn",
    "open": "Opən", "close": "klOz",
}  # fmt: skip


def parts():
    """Two rows for every phoneme: frames, voice, three formants, noise, its centre and width."""
    rows = {
        symbol: [(length, 0, 500, 1500, 2500, 0, 3000, 1000)] for symbol, length in PAUSES.items()
    }
    for symbol, (length, *formants) in VOWELS.items():
        rows[symbol] = [(length, 1, *formants, 0, 3000, 1000)]
    for symbol, both in DIPHTHONGS.items():
        rows[symbol] = [(9, 1, *VOWELS[vowel][1:], 0, 3000, 1000) for vowel in both]
    for symbol, (length, voice, *formants) in SONORANTS.items():
        rows[symbol] = [(length, voice, *formants, 0, 3000, 1000)]
    for symbol, (length, voice, noise, centre, width) in FRICATIVES.items():
        rows[symbol] = [(length, voice, 300, 1500, 2500, noise, centre, width)]
    for symbol, (voiced, noise, length, centre, width) in STOPS.items():
        closed = (6, 0.15 * voiced, 200, 1500, 2500, 0, centre, width)
        rows[symbol] = [closed, (length, 0.3 * voiced, 300, 1500, 2500, noise, centre, width)]
    empty = (0, *rows["_"][0][1:])
    return {symbol: (found + [empty])[:2] for symbol, found in rows.items()}


def symbol_ids():
    """Ids of the symbols, as the file beside a model has them."""
    return {symbol: [number] for number, symbol in enumerate(parts())}


def spoken_ids(phonemes):
    """Ids of a sentence: a start, an end, and a pad behind every symbol."""
    ids = symbol_ids()
    symbols = ["^", *phonemes, "$"]
    return torch.tensor(
        [[number for symbol in symbols for number in (ids[symbol][0], ids["_"][0])]]
    )


def noise_blocks():
    """A band of noise in blocks of a frame each: [blocks, bands, samples]."""
    chance = np.random.default_rng(21)
    length = BLOCKS * FRAME
    frequencies = np.fft.rfftfreq(length, 1 / RATE)
    bands = []
    for centre in BAND_CENTRES:
        shape = np.exp(-(((frequencies - centre) / (0.22 * centre)) ** 2))
        phases = np.exp(2j * np.pi * chance.random(len(frequencies)))
        band = np.fft.irfft(shape * phases, length)
        bands.append(band / np.sqrt(np.mean(band**2)))
    return np.stack(bands).reshape(BANDS, BLOCKS, FRAME).transpose(1, 0, 2).astype(np.float32)


def harmonics():
    """One period of every harmonic: [harmonics, samples]. Phases that spread keep the peaks low."""
    number = np.arange(1, HARMONICS + 1)[:, None]
    phase = 2 * np.pi * number * np.arange(FRAME) / FRAME - np.pi * number**2 / HARMONICS
    return (np.sin(phase) / number**0.5).astype(np.float32)


class SpeechSynthesizer(nn.Module):
    """Ids of phonemes to samples: formants that glide, over harmonics and noise."""

    def __init__(self):
        super().__init__()
        rows = np.array([part for both in parts().values() for part in both], np.float32)
        # Kilohertz, as the graph computes with.
        rows[:, [2, 3, 4, 6, 7]] /= 1000
        self.register_buffer("frames", torch.from_numpy(rows[:, 0].reshape(-1, 2)))
        self.register_buffer("shapes", torch.from_numpy(rows[:, 1:].reshape(-1, 2, 7)))
        glide = torch.hann_window(9, periodic=False)[1:-1]
        self.register_buffer("glide", (glide / glide.sum()).view(1, 1, 7))
        self.register_buffer("harmonics", torch.from_numpy(harmonics()))
        self.register_buffer("noise", torch.from_numpy(noise_blocks()))
        pitch = RATE / FRAME / 1000
        self.register_buffer("pitches", torch.arange(1, HARMONICS + 1) * pitch)
        self.register_buffer("centres", torch.tensor(BAND_CENTRES / 1000).float())
        self.register_buffer("ramp", torch.arange(FRAME) / FRAME)

    def forward(self, ids, scales):
        lengths = (self.frames[ids[0]].flatten() * scales[1].clamp(min=0.1)).round()
        ends = lengths.cumsum(0)
        frames = torch.arange(int(ends[-1]) + 1)
        part = (frames[:, None] >= ends).sum(1).clamp(max=len(ends) - 1)
        shapes = self.shapes[ids[0]].view(-1, 7)[part]
        shapes = nn.functional.conv1d(shapes.T[:, None], self.glide, padding=3)[:, 0].T
        voice, noise = self.spectra(shapes)
        voiced = voice @ self.harmonics
        blocks = self.noise[frames[:-1] % BLOCKS]
        before = voiced[:-1] + (noise[:-1, None] @ blocks)[:, 0]
        after = voiced[1:] + (noise[1:, None] @ blocks)[:, 0]
        return (before + (after - before) * self.ramp).reshape(1, 1, 1, -1)

    def spectra(self, shapes):
        """Loudness of every harmonic and every band."""
        voice = torch.zeros(len(shapes), HARMONICS)
        for number, (width, loudness) in enumerate(zip(BAND_WIDTHS, BAND_LOUDNESS, strict=True)):
            away = (self.pitches - shapes[:, 1 + number, None]) / (width / 1000)
            voice = voice + loudness / (1 + away * away)
        away = (self.centres - shapes[:, 5, None]) / shapes[:, 6, None]
        return 0.12 * shapes[:, :1] * voice, 0.1 * shapes[:, 4, None] * torch.exp(-away * away)


def write_wav(path, phonemes):
    """Writes speech with silence around it: 16 bits, one channel."""
    samples = SpeechSynthesizer()(spoken_ids(phonemes), torch.tensor([0.667, 1.0, 0.8])).flatten()
    silence = torch.zeros(RATE // 2)
    samples = torch.cat((silence, samples * 2.5, silence)).clamp(-1, 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes((samples * 32767).round().short().numpy().tobytes())

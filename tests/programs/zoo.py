"""The zoo: networks in the shapes of public architectures, with random weights, not committed.

Each is written in floating point as NAME and, where it quantises, as NAME_int8: convolutional networks with
activations of bytes, networks of linear layers with activations that are rounded by row at run time."""

import torch
from harness import forward, large
from networks import Attention, Feed, noise
from quantized import PER_CHANNEL, PER_TOKEN
from torch import nn
from torch.nn import functional as F

IMAGE = (1, 3, 224, 224)


def zoo(quantize=PER_CHANNEL):
    """Registers the programs of a network. The function returns the network and its inputs."""

    def register(make):
        for suffix, way in (("", None), ("_int8", quantize)):
            if suffix and way is None:
                continue

            def build(way=way):
                network, *inputs = make()
                case = tuple(inputs)
                return forward("zoo", settled(network, case), case, quantize=way, options={}, onnx=way is None)

            build.__name__ = make.__name__ + suffix
            large(build)
        return make

    return register


def settled(network, case):
    """The network after it has seen its inputs, so that no layer's values vanish or grow."""
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = None
            module.reset_running_stats()
    network.train()
    with torch.no_grad():
        for _ in range(2):
            network(*(torch.cat([x + 0.1, x]) if x.is_floating_point() and batches(network) else x for x in case))
    return network.eval()


def batches(network):
    """Whether normalizations need more than one input."""
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in network.modules())


def vision(name, **options):
    """One of torchvision's networks."""
    from torchvision import models

    return getattr(models, name)(weights=None, **options)


# ---- Classification ----


@zoo()
def squeezenet():
    return vision("squeezenet1_1"), noise(*IMAGE)


@zoo()
def efficientnet_b0():
    return vision("efficientnet_b0"), noise(*IMAGE)


@zoo()
def shufflenet_v2():
    return vision("shufflenet_v2_x1_0"), noise(*IMAGE)


@zoo()
def mnasnet():
    return vision("mnasnet0_5"), noise(*IMAGE)


@zoo()
def mobilenet_v3_large():
    return vision("mobilenet_v3_large"), noise(*IMAGE)


@zoo()
def densenet121():
    return vision("densenet121"), noise(1, 3, 128, 128)


@zoo()
def regnet_y_400mf():
    return vision("regnet_y_400mf"), noise(*IMAGE)


@zoo(PER_TOKEN)
def convnext_tiny():
    return vision("convnext_tiny"), noise(1, 3, 128, 128)


@zoo(PER_TOKEN)
def swin_tiny():
    return vision("swin_t"), noise(*IMAGE)


class Inverted(nn.Module):
    """A bottleneck of MobileNetV2."""

    def __init__(self, inputs, outputs, stride=1, factor=2, act=nn.ReLU6):
        super().__init__()
        inner = inputs * factor
        self.skip = stride == 1 and inputs == outputs
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            activation(act, inner),
            nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False),
            nn.BatchNorm2d(inner),
            activation(act, inner),
            nn.Conv2d(inner, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x):
        return x + self.layers(x) if self.skip else self.layers(x)


def activation(act, channels):
    """PReLU has a slope for each channel."""
    return act(channels) if act is nn.PReLU else act()


class MobileVitBlock(nn.Module):
    """A convolution, attention over patches of 2 by 2, and a convolution."""

    def __init__(self, channels, width, depth):
        super().__init__()
        self.near = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.SiLU(), nn.Conv2d(channels, width, 1))
        self.layers = nn.Sequential(*(PreNorm(width, 4) for _ in range(depth)))
        self.back, self.join = nn.Conv2d(width, channels, 1), nn.Conv2d(2 * channels, channels, 3, padding=1)

    def forward(self, x):
        y = self.near(x)
        _, width, high, wide = y.shape
        y = y.reshape(width, high // 2, 2, wide // 2, 2).permute(2, 4, 1, 3, 0).reshape(4, high * wide // 4, width)
        y = self.layers(y).reshape(2, 2, high // 2, wide // 2, width).permute(4, 2, 0, 3, 1)
        return self.join(torch.cat([x, self.back(y.reshape(1, width, high, wide))], 1))


class PreNorm(nn.Module):
    """A layer of a transformer whose normalizations come first."""

    def __init__(self, width, heads):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.feed = Attention(width, heads), Feed(width, 2 * width)

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.feed(self.second(x))


# Its convolutions after views cannot be quantised: the exporter wants channels last of tensors of five dimensions.
@zoo(None)
def mobilevit():
    layers = [nn.Conv2d(3, 16, 3, 2, 1), nn.SiLU()]
    for inputs, outputs, stride in ((16, 32, 1), (32, 64, 2), (64, 96, 2)):
        layers.append(Inverted(inputs, outputs, stride, act=nn.SiLU))
    layers += [MobileVitBlock(96, 144, 2), Inverted(96, 128, 2, act=nn.SiLU), MobileVitBlock(128, 192, 2)]

    # Patches of a single picture: batches cannot settle the normalizations.
    return Single(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 1000))), noise(
        1, 3, 192, 192
    )


class Single(nn.Module):
    """A network of one picture at a time."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return torch.cat([self.network(x[i : i + 1]) for i in range(x.shape[0])])


# ---- Faces, poses, detection, segmentation ----


@zoo()
def face_recognition():
    """In the shape of MobileFaceNet."""
    layers = [nn.Conv2d(3, 64, 3, 2, 1, bias=False), nn.BatchNorm2d(64), nn.PReLU(64)]
    for inputs, outputs, stride in (
        (64, 64, 2),
        (64, 64, 1),
        (64, 128, 2),
        (128, 128, 1),
        (128, 128, 1),
        (128, 128, 2),
    ):
        layers.append(Inverted(inputs, outputs, stride, act=nn.PReLU))
    layers += [
        nn.Conv2d(128, 512, 1),
        nn.PReLU(512),
        nn.Conv2d(512, 512, 7, groups=512),
        nn.Flatten(),
        nn.Linear(512, 128),
    ]
    return nn.Sequential(*layers), noise(1, 3, 112, 112)


class BlazeBlock(nn.Module):
    """A depthwise convolution of 5 by 5 and a sum."""

    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.stride, self.more = stride, outputs - inputs
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, inputs, 5, stride, 2, groups=inputs), nn.Conv2d(inputs, outputs, 1)
        )

    def forward(self, x):
        y = self.layers(x)
        if self.stride == 2:
            x = F.max_pool2d(x, 2)
        return F.relu(y + F.pad(x, (0, 0, 0, 0, 0, self.more)))


class Blaze(nn.Module):
    """BlazeFace: a small detector with two scales."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 24, 5, 2, 2), nn.ReLU())
        sizes = ((24, 24, 1), (24, 28, 1), (28, 32, 2), (32, 36, 1), (36, 42, 1), (42, 48, 2), (48, 56, 1), (56, 64, 1))
        self.near = nn.Sequential(*(BlazeBlock(*size) for size in sizes), BlazeBlock(64, 88))
        self.far = nn.Sequential(BlazeBlock(88, 96, 2), *(BlazeBlock(96, 96) for _ in range(4)))
        self.heads = nn.ModuleList(nn.Conv2d(n, m, 1) for n, m in ((88, 34), (96, 102)))

    def forward(self, x):
        near = self.near(self.stem(x))
        parts = (near, self.far(near))
        return torch.cat(
            [head(part).flatten(2).reshape(x.shape[0], -1, 17) for head, part in zip(self.heads, parts)], 1
        )


@zoo()
def face_detection():
    return Blaze(), noise(1, 3, 128, 128)


class Yolo(nn.Module):
    """In the shape of YOLOv8 nano: C2f blocks, pyramid with upsampling, heads of three scales."""

    class Conv(nn.Sequential):
        def __init__(self, inputs, outputs, kernel=1, stride=1):
            super().__init__(
                nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs), nn.SiLU()
            )

    class C2f(nn.Module):
        def __init__(self, inputs, outputs, count=1):
            super().__init__()
            half = outputs // 2
            self.first, self.last = Yolo.Conv(inputs, outputs), Yolo.Conv((2 + count) * half, outputs)
            self.inner = nn.ModuleList(
                nn.Sequential(Yolo.Conv(half, half, 3), Yolo.Conv(half, half, 3)) for _ in range(count)
            )

        def forward(self, x):
            parts = list(self.first(x).chunk(2, 1))
            for layer in self.inner:
                parts.append(parts[-1] + layer(parts[-1]))
            return self.last(torch.cat(parts, 1))

    class Pool(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.first, self.last = Yolo.Conv(width, width // 2), Yolo.Conv(2 * width, width)

        def forward(self, x):
            parts = [self.first(x)]
            for _ in range(3):
                parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
            return self.last(torch.cat(parts, 1))

    def __init__(self):
        super().__init__()
        conv, block = Yolo.Conv, Yolo.C2f
        self.small = nn.Sequential(
            conv(3, 16, 3, 2), conv(16, 32, 3, 2), block(32, 32), conv(32, 64, 3, 2), block(64, 64, 2)
        )
        self.middle = nn.Sequential(conv(64, 128, 3, 2), block(128, 128, 2))
        self.large = nn.Sequential(conv(128, 256, 3, 2), block(256, 256), Yolo.Pool(256))
        self.up = nn.ModuleList([block(384, 128), block(192, 64)])
        self.down = nn.ModuleList(
            [
                nn.ModuleList([conv(64, 64, 3, 2), block(192, 128)]),
                nn.ModuleList([conv(128, 128, 3, 2), block(384, 256)]),
            ]
        )
        self.heads = nn.ModuleList(
            nn.Sequential(conv(n, 80, 3), conv(80, 80, 3), nn.Conv2d(80, 144, 1)) for n in (64, 128, 256)
        )

    def forward(self, x):
        small = self.small(x)
        middle = self.middle(small)
        large = self.large(middle)
        middle = self.up[0](torch.cat([F.interpolate(large, scale_factor=2.0), middle], 1))
        small = self.up[1](torch.cat([F.interpolate(middle, scale_factor=2.0), small], 1))
        middle = self.down[0][1](torch.cat([self.down[0][0](small), middle], 1))
        large = self.down[1][1](torch.cat([self.down[1][0](middle), large], 1))
        return torch.cat([head(part).flatten(2) for head, part in zip(self.heads, (small, middle, large))], 2)


@zoo()
def yolo_nano():
    return Yolo(), noise(1, 3, 256, 256)


class Unet(nn.Module):
    """U-Net with transposed convolutions."""

    def __init__(self, width=16, depth=3, act=nn.ReLU):
        super().__init__()
        sizes = [width * 2**i for i in range(depth + 1)]
        pair = lambda n, m: nn.Sequential(
            nn.Conv2d(n, m, 3, padding=1),
            nn.BatchNorm2d(m),
            act(),
            nn.Conv2d(m, m, 3, padding=1),
            nn.BatchNorm2d(m),
            act(),
        )
        self.down = nn.ModuleList(pair(n, m) for n, m in zip([3, *sizes], sizes))
        self.up = nn.ModuleList(nn.ConvTranspose2d(m, n, 2, 2) for n, m in zip(sizes, sizes[1:]))
        self.join = nn.ModuleList(pair(2 * n, n) for n in sizes[:-1])
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x):
        kept = []
        for i, layer in enumerate(self.down):
            x = layer(F.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for i in reversed(range(len(self.up))):
            x = self.join[i](torch.cat([self.up[i](x), kept[i]], 1))
        return self.last(x)


@zoo()
def unet():
    return Unet(), noise(1, 3, 128, 128)


@zoo()
def unet_leaky():
    """With LeakyReLU, as in separation of sounds."""
    return Unet(12, act=lambda: nn.LeakyReLU(0.2)), noise(1, 3, 128, 128)


class Segmentation(nn.Module):
    """LR-ASPP: MobileNetV3, bilinear resizes, a product by a sigmoid."""

    def __init__(self):
        super().__init__()
        from torchvision.models.segmentation import lraspp_mobilenet_v3_large

        self.network = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None)

    def forward(self, x):
        return self.network(x)["out"]


@zoo()
def segmentation():
    return Segmentation(), noise(1, 3, 160, 160)


class Pose(nn.Module):
    """Heat maps by transposed convolutions, as in SimpleBaseline and MoveNet."""

    def __init__(self):
        super().__init__()
        self.body = vision("mobilenet_v2").features
        layers, width = [], 1280
        for outputs in (128, 96, 64):
            layers += [nn.ConvTranspose2d(width, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
            width = outputs
        self.head = nn.Sequential(*layers, nn.Conv2d(width, 17, 1))

    def forward(self, x):
        return self.head(self.body(x))


@zoo()
def pose():
    return Pose(), noise(1, 3, 192, 192)


# ---- Pictures into pictures ----


@zoo()
def super_resolution():
    """FSRCNN: PReLU and one transposed convolution of 9 by 9."""
    layers = [nn.Conv2d(1, 56, 5, padding=2), nn.PReLU(56), nn.Conv2d(56, 12, 1), nn.PReLU(12)]
    for _ in range(4):
        layers += [nn.Conv2d(12, 12, 3, padding=1), nn.PReLU(12)]
    layers += [nn.Conv2d(12, 56, 1), nn.PReLU(56), nn.ConvTranspose2d(56, 1, 9, 3, 4, 2)]
    return nn.Sequential(*layers), noise(1, 1, 96, 96)


@zoo()
def sub_pixel():
    """ESPCN: tanh and a shuffle of channels into pixels."""
    layers = [nn.Conv2d(1, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh()]
    return nn.Sequential(*layers, nn.Conv2d(32, 9, 3, padding=1), nn.PixelShuffle(3)), noise(1, 1, 96, 96)


class Residual(nn.Module):
    """Two convolutions and a sum."""

    def __init__(self, width, act=nn.ReLU):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), act(), nn.Conv2d(width, width, 3, padding=1))

    def forward(self, x):
        return x + self.layers(x)


@zoo()
def style_transfer():
    """Residual blocks between strides and upsampling; ELU."""
    layers = [
        nn.Conv2d(3, 32, 9, padding=4),
        nn.ELU(),
        nn.Conv2d(32, 64, 3, 2, 1),
        nn.ELU(),
        nn.Conv2d(64, 64, 3, 2, 1),
    ]
    layers += [Residual(64, nn.ELU) for _ in range(3)]
    for inputs, outputs in ((64, 64), (64, 32)):
        layers += [nn.Upsample(scale_factor=2), nn.Conv2d(inputs, outputs, 3, padding=1), nn.ELU()]
    return nn.Sequential(*layers, nn.Conv2d(32, 3, 9, padding=4), nn.Tanh()), noise(1, 3, 128, 128)


class Block(nn.Module):
    """A residual block of a diffusion network."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1))
        self.time = nn.Linear(128, outputs)
        self.second = nn.Sequential(nn.GroupNorm(8, outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, padding=1))
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, time):
        return self.skip(x) + self.second(self.first(x) + self.time(time)[:, :, None, None])


class Diffusion(nn.Module):
    """A denoising U-Net with a time, GroupNorm and attention."""

    def __init__(self, width=32):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(32, 128), nn.SiLU())
        self.stem, self.last = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.down = nn.ModuleList([Block(width, width), Block(width, 2 * width)])
        self.shrink = nn.ModuleList([nn.Conv2d(width, width, 3, 2, 1), nn.Conv2d(2 * width, 2 * width, 3, 2, 1)])
        self.middle, self.norm, self.attention = (
            Block(2 * width, 2 * width),
            nn.LayerNorm(2 * width),
            Attention(2 * width, 4),
        )
        self.up = nn.ModuleList([Block(4 * width, width), Block(2 * width, width)])

    def forward(self, x, time):
        angles = time[:, None] * torch.arange(16) / 16
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        x, kept = self.stem(x), []
        for block, shrink in zip(self.down, self.shrink):
            x = block(x, time)
            kept.append(x)
            x = shrink(x)
        x = self.middle(x, time)
        flat = x.flatten(2).transpose(1, 2)
        x = x + self.attention(self.norm(flat)).transpose(1, 2).reshape(x.shape)
        for block in self.up:
            x = block(torch.cat([F.interpolate(x, scale_factor=2.0), kept.pop()], 1), time)
        return self.last(x)


@zoo()
def diffusion():
    return Diffusion(), noise(1, 4, 32, 32), torch.tensor([0.5])


class VaeBlock(nn.Module):
    """A residual block with GroupNorm."""

    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.GroupNorm(8, width),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.GroupNorm(8, width),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1),
        )

    def forward(self, x):
        return x + self.layers(x)


@zoo()
def vae_decoder():
    layers = [nn.Conv2d(4, 64, 3, padding=1), VaeBlock(64)]
    for inputs, outputs in ((64, 64), (64, 32), (32, 32)):
        layers += [nn.Upsample(scale_factor=2), nn.Conv2d(inputs, outputs, 3, padding=1), VaeBlock(outputs)]
    return nn.Sequential(*layers, nn.GroupNorm(8, 32), nn.SiLU(), nn.Conv2d(32, 3, 3, padding=1)), noise(1, 4, 16, 16)


# ---- Sounds ----


class HifiGan(nn.Module):
    """A vocoder: transposed convolutions of one dimension, dilated residual blocks, LeakyReLU, tanh."""

    def __init__(self, width=128):
        super().__init__()
        self.stem, self.up, self.blocks = nn.Conv1d(80, width, 7, padding=3), nn.ModuleList(), nn.ModuleList()
        for factor, kernel in ((8, 16), (8, 16), (2, 4), (2, 4)):
            self.up.append(nn.ConvTranspose1d(width, width // 2, kernel, factor, (kernel - factor) // 2))
            width //= 2
            dilated = [
                nn.Conv1d(width, width, size, padding=size // 2 * gap, dilation=gap)
                for size in (3, 7)
                for gap in (1, 3)
            ]
            self.blocks.append(nn.ModuleList(dilated))
        self.last = nn.Conv1d(width, 1, 7, padding=3)

    def forward(self, x):
        x = self.stem(x)
        for up, block in zip(self.up, self.blocks):
            x = up(F.leaky_relu(x, 0.1))
            for layer in block:
                x = x + layer(F.leaky_relu(x, 0.1))
        return self.last(F.leaky_relu(x, 0.1)).tanh()


@zoo()
def hifi_gan():
    return HifiGan(), noise(1, 80, 32)


class Vocos(nn.Module):
    """A vocoder of ConvNeXt blocks of one dimension."""

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.near, self.norm = nn.Conv1d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
            self.feed = Feed(width, 3 * width)

        def forward(self, x):
            return x + self.feed(self.norm(self.near(x).transpose(1, 2))).transpose(1, 2)

    def __init__(self, width=192):
        super().__init__()
        self.stem = nn.Conv1d(80, width, 7, padding=3)
        self.layers, self.last = nn.Sequential(*(Vocos.Block(width) for _ in range(6))), nn.Linear(width, 514)

    def forward(self, x):
        return self.last(self.layers(self.stem(x)).transpose(1, 2))


@zoo(PER_TOKEN)
def vocos():
    return Vocos(), noise(1, 80, 100)


@zoo()
def keywords():
    """DS-CNN over a spectrogram."""
    layers = [nn.Conv2d(1, 64, (10, 4), 2, (5, 1)), nn.BatchNorm2d(64), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Conv2d(64, 64, 3, padding=1, groups=64), nn.BatchNorm2d(64), nn.ReLU()]
        layers += [nn.Conv2d(64, 64, 1), nn.BatchNorm2d(64), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12)), noise(1, 1, 49, 10)


@zoo()
def waveform():
    """M5: convolutions of one dimension over samples."""
    layers, width = [], 1
    for outputs, kernel, stride in ((64, 80, 4), (64, 3, 1), (128, 3, 1), (256, 3, 1)):
        layers += [nn.Conv1d(width, outputs, kernel, stride), nn.BatchNorm1d(outputs), nn.ReLU(), nn.MaxPool1d(4)]
        width = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, 35)), noise(1, 1, 8000)


class Whisper(nn.Module):
    """The encoder of a speech recogniser: two convolutions of one dimension, then attention."""

    def __init__(self, width=192):
        super().__init__()
        self.first, self.second = nn.Conv1d(80, width, 3, padding=1), nn.Conv1d(width, width, 3, 2, 1)
        self.places = nn.Parameter(noise(1, 200, width) * 0.1)
        self.layers, self.norm = nn.Sequential(*(PreNorm(width, 4) for _ in range(4))), nn.LayerNorm(width)

    def forward(self, x):
        x = F.gelu(self.second(F.gelu(self.first(x)))).transpose(1, 2)
        return self.norm(self.layers(x + self.places))


@zoo(PER_TOKEN)
def whisper_encoder():
    return Whisper(), noise(1, 80, 400)


class Conformer(nn.Module):
    """Blocks of a conformer: half a feed-forward layer, attention, a gated short convolution."""

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
            self.feeds = nn.ModuleList([Feed(width, 4 * width), Feed(width, 4 * width)])
            self.attention, self.gate = Attention(width, 4), nn.Linear(width, 2 * width)
            self.near = nn.Conv1d(width, width, 15, padding=7, groups=width)
            self.out = nn.Linear(width, width)

        def forward(self, x):
            x = x + 0.5 * self.feeds[0](self.norms[0](x))
            x = x + self.attention(self.norms[1](x))
            y = F.glu(self.gate(self.norms[2](x)), -1)
            x = x + self.out(F.silu(self.near(y.transpose(1, 2))).transpose(1, 2))
            return x + 0.5 * self.feeds[1](self.norms[3](x))

    def __init__(self, width=144):
        super().__init__()
        self.stem = nn.Linear(80, width)
        self.layers = nn.Sequential(*(Conformer.Block(width) for _ in range(3)))

    def forward(self, x):
        return self.layers(self.stem(x))


@zoo(PER_TOKEN)
def conformer():
    return Conformer(), noise(1, 160, 80)


# ---- Text ----


class Recogniser(nn.Module):
    """CRNN: convolutions over a line of text, then a recurrent layer."""

    def __init__(self):
        super().__init__()
        layers, width = [], 1
        for outputs, pool in ((32, (2, 2)), (64, (2, 2)), (128, (2, 1)), (128, (2, 1))):
            layers += [nn.Conv2d(width, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(pool)]
            width = outputs
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(256, 97)
        self.lstm = nn.LSTM(256, 128, bidirectional=True, batch_first=True)

    def forward(self, x):
        x = self.layers(x).permute(0, 3, 1, 2).flatten(2)
        return self.head(self.lstm(x)[0])


@zoo()
def text_recogniser():
    return Recogniser(), noise(1, 1, 32, 128)


class TextDetector(nn.Module):
    """DB: a pyramid with upsampling and transposed convolutions to a map."""

    def __init__(self):
        super().__init__()
        sizes = (16, 24, 48, 96)
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.Hardswish())
        self.stages = nn.ModuleList(Inverted(n, m, 2, 3, nn.Hardswish) for n, m in zip((16, *sizes), sizes))
        self.sides = nn.ModuleList(nn.Conv2d(n, 24, 1) for n in sizes)
        self.head = nn.Sequential(
            nn.Conv2d(96, 24, 3, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(24, 24, 2, 2),
            nn.ReLU(),
            nn.ConvTranspose2d(24, 1, 2, 2),
            nn.Sigmoid(),
        )

    def forward(self, x):
        x, parts = self.stem(x), []
        for stage, side in zip(self.stages, self.sides):
            x = stage(x)
            parts.append(side(x))
        high, wide = parts[0].shape[2:]
        return self.head(torch.cat([F.interpolate(part, (high, wide)) for part in parts], 1))


@zoo()
def text_detector():
    return TextDetector(), noise(1, 3, 256, 256)


class DistilBert(nn.Module):
    """Three layers of DistilBERT's width."""

    def __init__(self, words=8000, width=384):
        super().__init__()
        self.words, self.places, self.norm = nn.Embedding(words, width), nn.Embedding(128, width), nn.LayerNorm(width)
        self.layers, self.head = nn.Sequential(*(PreNorm(width, 6) for _ in range(3))), nn.Linear(width, 2)

    def forward(self, ids):
        x = self.norm(self.words(ids) + self.places(torch.arange(ids.shape[1])))
        return self.head(self.layers(x)[:, 0])


@zoo(PER_TOKEN)
def distilbert():
    return DistilBert(), torch.randint(0, 8000, (1, 64))


class RmsNorm(nn.Module):
    """What ONNX 17 has no operator for."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.weight


class ShortConvolutions(nn.Module):
    """Layers of LFM2: gated short convolutions between attention and gated feed-forward layers."""

    class Layer(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norms = nn.ModuleList(RmsNorm(width) for _ in range(2))
            self.into, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
            self.near = nn.Conv1d(width, width, 3, padding=2, groups=width, bias=False)
            self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
            self.down = nn.Linear(3 * width, width, bias=False)

        def forward(self, x):
            b, c, y = self.into(self.norms[0](x)).transpose(1, 2).chunk(3, 1)
            y = c * self.near(b * y)[..., : x.shape[1]]
            x = x + self.out(y.transpose(1, 2))
            y = self.norms[1](x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

    def __init__(self, words=4000, width=256):
        super().__init__()
        self.words, self.head = nn.Embedding(words, width), nn.Linear(width, words, bias=False)
        self.layers = nn.ModuleList(
            [
                ShortConvolutions.Layer(width),
                ShortConvolutions.Layer(width),
                PreNorm(width, 8),
                ShortConvolutions.Layer(width),
            ]
        )

    def forward(self, ids):
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, -1])


@zoo(PER_TOKEN)
def lfm2():
    return ShortConvolutions(), torch.randint(0, 4000, (1, 64))

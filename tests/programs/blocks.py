"""Parts of networks that several groups of programs use."""

from torch import nn


def depthwise():
    """A convolution of each of 16 channels alone."""
    return nn.Sequential(
        nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU6(),
    )


def squeeze_and_excitation():
    """A factor for each of 16 channels."""
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(1),
        nn.Conv2d(16, 4, 1),
        nn.ReLU(),
        nn.Conv2d(4, 16, 1),
        nn.Hardsigmoid(),
    )

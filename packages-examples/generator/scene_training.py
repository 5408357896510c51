"""Trains the networks of pictures on pictures made by rule, and checks what they learnt."""

import torch
from torch.nn import functional as F

from . import networks, scenes, side_files

# The detector and the pairs know the first shapes only.
FOUND = 4
# What the pairs and the painter know, and how it is put.
CAPTIONS = [(colour, shape) for colour in scenes.COLOURS for shape in scenes.SHAPES[:FOUND]]
FORMS = ("{}", "a {}", "the {}", "a small {}", "this is a {}", "an image with a {}")
# What a decoder's latents are divided by, as Stable Diffusion's are.
SCALING = 0.18215


def batch_of(make, count):
    """A batch of pictures, and what belongs to each."""
    pictures, others = zip(*(make() for _ in range(count)), strict=True)
    return torch.stack(pictures), list(others)


def train(name, network, loss_of, steps, rate=4e-3):
    """Trains a network in place; `loss_of` makes a batch and gives its loss."""
    network.train()
    parameters = [it for it in network.parameters() if it.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    total = 0.0
    for step in range(1, steps + 1):
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 2.0)
        optimizer.step()
        schedule.step()
        total += loss.item()
        if step % (steps // 4) == 0:
            print(f"  {name}: step {step}, loss {total / (steps // 4):.4f}", flush=True)
            total = 0.0
    return network.eval().requires_grad_(False)


def expect(name, value, least):
    """Ends the run if a network did not learn."""
    print(f"  {name}: {value:.3f}", flush=True)
    if value < least:
        raise SystemExit(f"{name}: {value:.3f}, expected at least {least}")


def fresh(seed, build):
    """A network before its training, and chance that depends on the seed alone."""
    torch.manual_seed(seed)
    return build()


def shape_picture():
    """A picture of one of ten shapes, and which."""
    kind = int(torch.randint(0, len(scenes.SHAPES), (1,)))
    return scenes.one_shape(32, kind), kind


def calibration():
    """Pictures for calibration, and noise, which `compare` runs models on."""
    pictures = [shape_picture()[0][None] for _ in range(16)]
    return pictures + [torch.randn(1, 3, 32, 32) for _ in range(4)]


def classifier():
    """Names the shape in a picture."""
    network = fresh(1, networks.Classifier)

    def loss():
        pictures, kinds = batch_of(shape_picture, 48)
        return F.cross_entropy(network(pictures), torch.tensor(kinds))

    train("shapes", network, loss, 2500, 8e-3)
    pictures, kinds = batch_of(shape_picture, 1000)
    right = (network(pictures).argmax(1) == torch.tensor(kinds)).float().mean()
    expect("share of shapes that are right", right, 0.85)
    return network


def detector():
    """Finds four kinds of shapes."""
    size, network = 64, fresh(14, networks.Detector)
    middles = network.middles[0, :, :2]

    def targets(found):
        kinds, boxes = torch.zeros(len(middles), FOUND), torch.zeros(len(middles), 4)
        for kind, x, y, radius in found:
            box = torch.tensor(scenes.extent(kind, x, y, radius))
            middle = (box[:2] + box[2:]) / 2
            away = (middles - middle).abs().amax(1)
            near = away <= max(0.35 * radius, float(away.min()))
            kinds[near] = F.one_hot(torch.tensor(kind), FOUND).float()
            boxes[near] = box
        return kinds, boxes

    def scene():
        return scenes.several_shapes(size, size, FOUND)

    def loss():
        pictures, found = batch_of(scene, 32)
        kinds, boxes = (torch.stack(it) for it in zip(*map(targets, found), strict=True))
        sides, scores = network.cells(pictures)
        scores = torch.sigmoid(scores)
        error = F.binary_cross_entropy(scores, kinds, reduction="none")
        error = (error * (scores - kinds).abs() ** 2).sum()
        here = kinds.amax(2) > 0
        wanted = ((boxes - network.middles) / network.signs).clamp(min=0.05)
        apart = (sides[here].log() - wanted[here].log()).abs().sum()
        return (error + 0.7 * apart) / here.sum()

    train("detector", network, loss, 4500, 8e-3)
    right = all_found = 0
    for _ in range(300):
        picture, found = scene()
        boxes, scores, classes = (it[0] for it in network(picture[None]))
        for kind, x, y, radius in found:
            box = torch.tensor(scenes.extent(kind, x, y, radius))
            fits = (boxes - box).abs().amax(1) < 0.35 * radius
            right += bool((fits & (classes == kind) & (scores > 0.5)).any())
        all_found += len(found)
    expect("share of shapes that are found", right / all_found, 0.8)
    return network


def coast():
    """A landscape as networks trained on ImageNet take it, and its classes."""
    picture, classes = scenes.landscape(32)
    mean, deviation = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, :, None, None]
    return (picture - mean) / deviation, classes


def segmenter():
    """Tells sky, sea, sand, grass and rock apart."""
    network = fresh(13, networks.Segmenter)

    def loss():
        pictures, classes = batch_of(coast, 24)
        return F.cross_entropy(network(pictures), torch.stack(classes))

    train("landscapes", network, loss, 2000, 8e-3)
    pictures, classes = batch_of(coast, 100)
    right = (network(pictures).argmax(1) == torch.stack(classes)).float().mean()
    expect("share of pixels that are right", right, 0.9)
    return network


def any_picture():
    """A picture of any kind."""
    if torch.rand(1) < 0.5:
        return scenes.landscape(32)
    return scenes.several_shapes(32, 32, len(scenes.SHAPES))


def painted(pictures):
    """The style: few tones, paler and warmer, with dark lines at edges."""
    soft = F.avg_pool2d(F.pad(pictures, (1, 1, 1, 1), mode="replicate"), 3, 1)
    grey = soft.mean(1, keepdim=True)
    edge = sum((grey - grey.roll(1, axis)).abs() for axis in (2, 3)).clamp(max=0.3)
    paper = torch.tensor([0.97, 0.92, 0.82])[:, None, None]
    return ((0.3 * paper + 0.7 * soft * paper) * (1 - 2 * edge)).clamp(0, 1)


def stylizer():
    """Paints a picture in water colours."""
    network = fresh(17, networks.Stylizer)

    def loss():
        pictures, _ = batch_of(any_picture, 24)
        return F.mse_loss(network(pictures), painted(pictures))

    train("style", network, loss, 1500, 8e-3)
    pictures, _ = batch_of(any_picture, 100)
    apart = F.mse_loss(network(pictures), painted(pictures)).sqrt()
    expect("likeness of the style", 1 - apart, 0.9)
    return network


def named_shape():
    """A picture of a shape in a colour, and the number of its caption."""
    number = int(torch.randint(0, len(CAPTIONS), (1,)))
    colour, shape = CAPTIONS[number]
    picture = torch.rand(3, 1, 1) * torch.ones(3, 32, 32)
    radius = float(scenes.between(0.3, 0.46, 1)) * 32
    x, y = (scenes.between(-0.06, 0.06, 2) * 32 + 16).tolist()
    shade = torch.tensor(scenes.COLOURS[colour]) + torch.randn(3) * 0.03
    scenes.paint(picture, shape, shade, x, y, radius, float(scenes.between(-0.2, 0.2, 1)))
    return (picture + torch.randn(3, 32, 32) * 0.02).clamp(0, 1), number


def captions(form, length):
    """Ids of every caption in some form."""
    texts = (form.format(" ".join(pair)) for pair in CAPTIONS)
    return torch.tensor([side_files.word_ids(text, length) for text in texts])


def pairs():
    """An encoder of pictures and one of words whose vectors are near where they mean the same."""
    images = fresh(11, networks.ImageEncoder)
    words = fresh(12, lambda: networks.WordBag(side_files.VOCABULARY))
    both = torch.nn.ModuleList((images, words))

    def loss():
        pictures, numbers = batch_of(named_shape, 48)
        form = FORMS[int(torch.randint(0, len(FORMS), (1,)))]
        scores = images(pictures) @ words(captions(form, 16)).T
        return F.cross_entropy(scores * 12, torch.tensor(numbers))

    train("pairs", both, loss, 3000, 8e-3)
    pictures, numbers = batch_of(named_shape, 1000)
    scores = images(pictures) @ words(captions("a {}", 16)).T
    right = scores.argmax(1) == torch.tensor(numbers)
    expect("share of pictures with the right words", right.float().mean(), 0.8)
    return images, words


def painter():
    """Paints a shape in a colour: an encoder of words, a denoiser, and a decoder of latents."""
    reading = fresh(8, lambda: networks.PromptEncoder(side_files.VOCABULARY))
    denoiser, decoder = fresh(9, networks.Denoiser), fresh(10, networks.ImageDecoder)
    encoder = networks.LatentEncoder()

    def drawn():
        number = int(torch.randint(0, len(CAPTIONS), (1,)))
        colour, shape = CAPTIONS[number]
        picture = torch.tensor(scenes.PAPER)[:, None, None] * torch.ones(3, 32, 32)
        radius = float(scenes.between(0.26, 0.42, 1)) * 32
        x, y = (scenes.between(-0.08, 0.08, 2) * 32 + 16).tolist()
        scenes.paint(picture, shape, scenes.COLOURS[colour], x, y, radius)
        return picture, number

    def copy_loss():
        pictures, _ = batch_of(drawn, 32)
        return F.mse_loss(decoder(encoder(pictures) / SCALING), pictures) * 10

    both = torch.nn.ModuleList((encoder, decoder))
    train("latents", both, copy_loss, 1500)
    betas = torch.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2
    kept = (1 - betas).cumprod(0)
    nothing = torch.tensor(side_files.word_ids("", 8))

    def noise_loss():
        pictures, numbers = batch_of(drawn, 48)
        clean = encoder(pictures)
        steps = torch.randint(0, 1000, (len(clean),))
        share = kept[steps].view(-1, 1, 1, 1)
        noisy = share.sqrt() * clean + (1 - share).sqrt() * torch.randn_like(clean)
        form = FORMS[int(torch.randint(0, len(FORMS), (1,)))]
        ids = captions(form, 8)[torch.tensor(numbers)]
        ids[torch.rand(len(ids)) < 0.1] = nothing
        return F.mse_loss(denoiser(noisy, steps[:, None].float(), reading(ids)), clean)

    train("painter", torch.nn.ModuleList((reading, denoiser)), noise_loss, 4000)
    ids = captions("a {}", 8)
    latents = torch.randn(len(ids), 4, 8, 8)
    for step in range(980, -1, -20):
        clean = denoiser(latents, torch.full((len(ids), 1), float(step)), reading(ids))
        share, before = kept[step], kept[max(step - 20, 0)]
        noise = (latents - share.sqrt() * clean) / (1 - share).sqrt()
        latents = before.sqrt() * clean + (1 - before).sqrt() * noise
    pictures = decoder(latents / SCALING)
    colours = torch.tensor([scenes.COLOURS[colour] for colour, _ in CAPTIONS])
    apart = (pictures[:, :, 14:18, 14:18].mean((2, 3)) - colours).abs().mean()
    expect("likeness of the colours", 1 - apart, 0.9)
    return reading, denoiser, decoder


def random_text(least, most):
    """Letters and digits, with spaces and marks within."""
    length = int(torch.randint(least, most + 1, (1,)))
    letters = [scenes.LETTERS[int(it)] for it in torch.randint(1, len(scenes.LETTERS), (length,))]
    for place in torch.randint(1, length, (max(1, length // 5),)) if length > 2 else ():
        letters[int(place)] = " "
    return " ".join("".join(letters).split()) or "a"


def printed(text, height):
    """A line of text of a height, with soft edges: [1, height, width]"""
    mask = scenes.text_line(text, 4)[None, None, :, :-4]
    width = max(4, round(mask.shape[3] * height / mask.shape[2]))
    return F.interpolate(mask, (height, width), mode="bilinear", antialias=True)[0]


def line_picture():
    """A line of text as a crop of a page gives it: 16 rows, and the text."""
    text = random_text(2, 14)
    height = int(torch.randint(9, 16, (1,)))
    mask = printed(text, height)
    top, left = int(torch.randint(0, 17 - height, (1,))), int(torch.randint(0, 8, (1,)))
    canvas = torch.zeros(1, 16, 208)
    canvas[:, top : top + height, left : left + mask.shape[2]] = mask[:, :, : 208 - left]
    canvas = F.avg_pool2d(canvas, 3, 1, 1) * 0.4 + canvas * 0.6 if torch.rand(1) < 0.5 else canvas
    dark, light = float(scenes.between(0, 0.3, 1)), float(scenes.between(0.6, 1, 1))
    ground, ink = (light, dark) if torch.rand(1) < 0.7 else (dark, light)
    line = ground + canvas * (ink - ground) + torch.randn(1, 16, 208) * 0.02
    # The step that pads lines fills the rest with zeros.
    width = min(208, left + mask.shape[2] + int(torch.randint(2, 10, (1,))))
    line[:, :, width:] = 0.5
    return (line.clamp(0, 1) - 0.5) / 0.5, text


def reader():
    """Reads a line of text."""
    network = fresh(16, networks.TextReader)

    def loss():
        lines, texts = batch_of(line_picture, 24)
        scores = network(lines).transpose(0, 1)
        targets = [
            torch.tensor([scenes.LETTERS.index(letter) + 1 for letter in it]) for it in texts
        ]
        lengths = torch.tensor([len(it) for it in texts])
        steps = torch.full((len(texts),), scores.shape[0])
        return F.ctc_loss(scores, torch.cat(targets), steps, lengths)

    train("lines", network, loss, 5000, 6e-3)
    lines, texts = batch_of(line_picture, 300)
    right = sum(spelled(rows) == text for rows, text in zip(network(lines), texts, strict=True))
    expect("share of lines that are right", right / 300, 0.8)
    return network


def spelled(rows):
    """The text of a line's scores."""
    best = rows.argmax(1).tolist()
    kept = [now for now, before in zip(best, [0, *best], strict=False) if now != before and now]
    return "".join(scenes.LETTERS[it - 1] for it in kept)


def page():
    """A picture of some lines of text, and where to look for each: strips within the lines."""
    picture = (torch.rand(1, 1, 1) * 0.3 + 0.7) * torch.ones(3, 256, 256)
    picture += scenes.background(256, 256) * 0.08
    wanted, top = torch.zeros(1, 128, 128), int(torch.randint(8, 60, (1,)))
    while top < 226:
        height = int(torch.randint(12, 30, (1,)))
        mask = printed(random_text(3, 16), height)
        width, left = mask.shape[2], int(torch.randint(6, 60, (1,)))
        if left + width < 250 and top + height < 250:
            ink = torch.rand(3, 1, 1) * 0.35
            area = picture[:, top : top + height, left : left + width]
            area += mask * (ink - area)
            inset = 0.27 * height
            edges = [(top + inset) / 2, (top + height - inset) / 2]
            edges += [(left + inset) / 2, (left + width - inset) / 2]
            up, down, start, end = (round(it) for it in edges)
            wanted[:, up:down, start:end] = 1
        top += height + int(torch.randint(10, 50, (1,)))
    if torch.rand(1) < 0.2:
        picture = 1 - picture
    return ((picture + torch.randn(3, 256, 256) * 0.02).clamp(0, 1) - 0.5) / 0.5, wanted


def finder():
    """Finds lines of text."""
    network = fresh(15, networks.TextFinder)

    def loss():
        pages, wanted = batch_of(page, 6)
        scores, wanted = network(pages), torch.stack(wanted)
        dice = 1 - 2 * (scores * wanted).sum() / (scores.sum() + wanted.sum())
        return dice + F.binary_cross_entropy(scores, wanted, weight=1 + 2 * wanted)

    train("pages", network, loss, 600, 8e-3)
    pages, wanted = batch_of(page, 30)
    found, wanted = network(pages) > 0.4, torch.stack(wanted) > 0
    expect("overlap of lines", ((found & wanted).sum() / (found | wanted).sum()), 0.6)
    return network


def example_page():
    """A picture of three lines, 256 x 256."""
    picture = torch.full((3, 256, 256), 0.93)
    for top, height, text in (
        (40, 18, "a page of text"),
        (104, 16, "read on a phone"),
        (170, 20, "3.14159"),
    ):
        mask = printed(text, height)
        picture[:, top : top + height, 20 : 20 + mask.shape[2]] -= 0.75 * mask
    return picture

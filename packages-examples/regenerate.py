"""Writes every example package anew: networks, model files, shared files, configs.

    python3.11 -m venv venv && . venv/bin/activate
    pip install -r packages-examples/requirements.txt
    python packages-examples/regenerate.py                # all repositories
    python packages-examples/regenerate.py glimpse pebble # some of them

On Linux torch comes with its GPU libraries (5 GB in all): that wheel does not load without them,
so `--no-deps` does not help there. Nothing here uses a GPU. A run takes an hour and a half on one core,
nearly all of which goes into training.
MLX: the executorch wheel lacks the Python classes of the MLX schema but has their generator; the
script runs it once, which writes into the environment's site-packages.

The networks are real in structure and tiny. hush-sentence and pebble have random weights, from fixed
seeds, so their answers mean nothing. The others answer, each of them an input that lies beside it:

- jackdaw and kindred are trained on the lines in `generator/chat_texts.py` and
  `generator/sentence_texts.py`. Their networks are those of `transformers`. What that library and
  `sentence-transformers` say of the same weights is written to `tests/fixtures/text`, in the same run.
- parlor-tts speaks by rule: `generator/speech.py` has the formants of each phoneme. murmur-vad and
  scribe-tiny-en are trained on its voice (`generator/speech_training.py`).
- lookout is trained on questions about shapes in pictures (`generator/picture_chat.py`).
- The others are trained on shapes, landscapes and lines of text that `generator/scenes.py` draws
  (`generator/scene_training.py`).

Training on another kind of processor gives other weights, with the same answers; the run ends with an
error if not. Sizes in names (`1b`) show how names are built, not how large a file is.

| repository       | backends                        | shows |
|------------------|---------------------------------|-------|
| glimpse          | xnnpack coreml vulkan mlx qnn   | classification on every backend; fp32, fp16 and int8 in one config; dynamic batch; QDQ int8 ONNX; a stub `config.json` at the root |
| hush-sentence    | xnnpack mlx                     | fp32 and 8da4w (groups of 32); dynamic length; `get_model_schema`; shared tokenizer; ONNX with two dynamic dimensions |
| murmur-vad       | xnnpack qnn                     | a dynamic number of frames of samples, in a program and in ONNX |
| pebble           | 0_6b/xnnpack 1b/mlx             | a language model with a key/value cache; sizes; 8da4w (a scale a channel), bf16, int4; constant methods; licence slug |
| scribe-tiny-en   | xnnpack mlx                     | two methods in one file; ONNX components with named values |
| pocket-diffusion | xnnpack                         | three models and two components that are no models; a recipe of its own |
| twin-view        | xnnpack                         | components in two precisions |
| mosaic           | nano/vulkan                     | segmentation; a size that is no number |
| spotter          | s/qnn                           | several outputs; float16 inputs and outputs in ONNX; labels |
| readline-ocr     | xnnpack                         | a dynamic width of which the output has a quarter; an alphabet as a component |
| watercolor       | mlx coreml                      | image to image; ONNX meant for mlx |
| parlor-tts       | 82m/xnnpack                     | ONNX with external data; Piper's file of phonemes |
| jackdaw          | xnnpack mlx qnn                 | a chat model that answers: a program with a cache, ONNX with past and present, ONNX without memory; a trained tokenizer, a chat template with tools and thoughts |
| lookout          | xnnpack mlx                     | a chat model that sees: three methods in one file, and three ONNX components |
| kindred          | xnnpack mlx                     | sentences near each other: a program that gives a vector, ONNX that gives a state a token |

`methods` is taken from what was exported. Names of values are left out, as introspecting tools do,
except where they are curated (scribe-tiny-en and watercolor on mlx). `size_bytes` is the size of
the file, or the sum over all files under `components`; data outside an ONNX file does not count.

QNN: exporting a program needs the vendor's SDK, which is not in the wheel; its packages use ONNX.
Core ML: exported on Linux, never run there. Identifiers and the date that the Core ML exporter
would make up are replaced by fixed ones, and its map of debug handles is left out.
"""

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "tests" / "programs"))

from export import fix_chance  # noqa: E402


def main(names):
    """Regenerates the named repositories, or all of them."""
    fix_chance()
    from generator.executorch_files import ensure_mlx_schema

    ensure_mlx_schema()
    from generator.packages import REPOSITORIES

    unknown = [name for name in names if name not in REPOSITORIES]
    if unknown:
        sys.exit(f"no such repository: {', '.join(unknown)}; there are: {', '.join(REPOSITORIES)}")
    for name in names or REPOSITORIES:
        shutil.rmtree(HERE / name, ignore_errors=True)
        REPOSITORIES[name](HERE)
        files = [path for path in (HERE / name).rglob("*") if path.is_file()]
        print(f"{name}: {len(files)} files, {sum(path.stat().st_size for path in files)} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])

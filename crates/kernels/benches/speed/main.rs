//! Speed of the float kernels: GFLOP/s of each layer with each instruction set, beside the machine's peak.
//!
//! `cargo bench -p pkgtool-kernels -- THREADS NAME` times the layers whose names contain a text, with
//! a number of threads. Without arguments, it times all layers with one thread. It prints the best of
//! many runs, since other programs only make a run slower. Peaks are those of one thread.

#![expect(clippy::print_stdout, reason = "the result is a table for people")]
#![expect(
    clippy::cast_precision_loss,
    reason = "counts of operations are below 2^53"
)]

#[expect(
    unsafe_code,
    reason = "the peak is measured with the processor's own instructions"
)]
mod peak;

use std::time::{Duration, Instant};

use pkgtool_kernels::float::{Activation, Channels, FloatConvolution};
use pkgtool_kernels::window::{Window, WindowPositions};
use pkgtool_kernels::{Cpu, Split};

/// How long each layer is timed.
const TIME: Duration = Duration::from_millis(250);

/// A layer.
struct Layer {
    name: &'static str,
    /// Height and width of its output.
    side: [usize; 2],
    /// Height and width of its window.
    kernel: usize,
    stride: usize,
    channels: Channels,
    /// Every weight and bias.
    weight: f32,
}

/// A weight that no 16 bits hold exactly.
const WEIGHT: f32 = 0.01;

/// A product of so many pixels: `[pixels, inner]` by `[inner, outer]`.
const fn product(name: &'static str, side: [usize; 2], input: usize, output: usize) -> Layer {
    let channels = Channels {
        input,
        output,
        groups: 1,
    };
    Layer {
        name,
        side,
        kernel: 1,
        stride: 1,
        channels,
        weight: WEIGHT,
    }
}

/// The layer with weights that 16 bits hold exactly.
const fn of_halves(mut layer: Layer) -> Layer {
    layer.weight = 0.25;
    layer
}

/// A convolution over all channels.
const fn dense(
    name: &'static str,
    side: usize,
    kernel: usize,
    stride: usize,
    input: usize,
    output: usize,
) -> Layer {
    let channels = Channels {
        input,
        output,
        groups: 1,
    };
    Layer {
        name,
        side: [side; 2],
        kernel,
        stride,
        channels,
        weight: WEIGHT,
    }
}

/// A convolution channel by channel.
const fn depthwise(
    name: &'static str,
    side: usize,
    kernel: usize,
    stride: usize,
    channels: usize,
) -> Layer {
    let channels = Channels {
        input: channels,
        output: channels,
        groups: channels,
    };
    Layer {
        name,
        side: [side; 2],
        kernel,
        stride,
        channels,
        weight: WEIGHT,
    }
}

/// Layers of `mobilenet_v2`, `mobilenet_v3_small` and `resnet18`, and products as in decoders.
const LAYERS: [Layer; 34] = [
    product("12544x32x16", [112, 112], 32, 16),
    product("12544x16x96", [112, 112], 16, 96),
    product("3136x96x24", [56, 56], 96, 24),
    product("3136x24x144", [56, 56], 24, 144),
    product("784x192x32", [28, 28], 192, 32),
    product("196x576x96", [14, 14], 576, 96),
    product("196x576x16", [14, 14], 576, 16),
    product("196x576x8", [14, 14], 576, 8),
    product("196x576x24", [14, 14], 576, 24),
    product("49x960x160", [7, 7], 960, 160),
    product("49x320x1280", [7, 7], 320, 1280),
    product("1x1280x1000", [1, 1], 1280, 1000),
    product("1x128x512", [1, 1], 128, 512),
    dense("stem 3x3 s2 3-32", 112, 3, 2, 3, 32),
    dense("stem 7x7 s2 3-64", 112, 7, 2, 3, 64),
    dense("3x3 56 64-64", 56, 3, 1, 64, 64),
    dense("3x3 s2 28 64-128", 28, 3, 2, 64, 128),
    dense("3x3 28 128-128", 28, 3, 1, 128, 128),
    dense("3x3 14 256-256", 14, 3, 1, 256, 256),
    dense("3x3 7 512-512", 7, 3, 1, 512, 512),
    depthwise("depthwise 3x3 112 32", 112, 3, 1, 32),
    depthwise("depthwise 3x3 s2 56 96", 56, 3, 2, 96),
    depthwise("depthwise 3x3 56 144", 56, 3, 1, 144),
    depthwise("depthwise 3x3 14 576", 14, 3, 1, 576),
    depthwise("depthwise 3x3 7 960", 7, 3, 1, 960),
    depthwise("depthwise 5x5 14 240", 14, 5, 1, 240),
    depthwise("depthwise 5x5 s2 14 96", 14, 5, 2, 96),
    depthwise("depthwise 5x5 7 576", 7, 5, 1, 576),
    product("1x4096x4096", [1, 1], 4096, 4096),
    of_halves(product("1x4096x4096 halves", [1, 1], 4096, 4096)),
    product("4x4096x4096", [1, 4], 4096, 4096),
    of_halves(product("4x4096x4096 halves", [1, 4], 4096, 4096)),
    product("64x1024x1024", [1, 64], 1024, 1024),
    of_halves(product("64x1024x1024 halves", [1, 64], 1024, 1024)),
];

impl Layer {
    /// Billions of multiplications and additions in a second, at best.
    fn speed(&self, cpu: Cpu) -> Result<f64, String> {
        let Channels {
            input,
            output,
            groups,
        } = self.channels;
        let window = Window {
            kernel: [self.kernel; 2],
            stride: [self.stride; 2],
            dilation: [1, 1],
        };
        let placed = WindowPositions {
            batch: 1,
            input: self.side.map(|side| side * self.stride),
            output: self.side,
            before: [(self.kernel - 1) / 2; 2],
        };
        let depth = self.kernel * self.kernel * (input / groups);
        let weights = vec![self.weight; depth * output];
        let bias = vec![self.weight; output];
        let limits = Activation::Clamp {
            least: 0.0,
            most: 6.0,
        };
        let convolution =
            FloatConvolution::new(cpu, window, self.channels, &weights, Some(&bias), limits)?;
        let pixels = self.side[0] * self.side[1];
        let image = vec![0.5; pixels * self.stride * self.stride * input];
        let mut result = vec![0.0; pixels * output];
        let mut best = Duration::MAX;
        let start = Instant::now();
        while start.elapsed() < TIME {
            let one = Instant::now();
            convolution.run(&placed, &image, None, &mut result, Split::current())?;
            best = best.min(one.elapsed());
        }
        let operations = 2 * pixels * depth * output;
        Ok(operations as f64 / best.as_secs_f64() / 1e9)
    }
}

/// Returns the arguments, without the one that Cargo adds.
fn arguments() -> impl Iterator<Item = String> {
    std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
}

/// The table.
fn table() -> Result<(), String> {
    let sets: Vec<Cpu> = Cpu::all()
        .filter(|cpu| !cpu.level().name().ends_with("-vnni"))
        .collect();
    print!("{:24}", "GFLOP/s");
    for cpu in &sets {
        print!("{:>10}", cpu.level().name());
    }
    print!("\n{:24}", "peak of one thread");
    for cpu in &sets {
        print!("{:>10.0}", peak::measured(*cpu));
    }
    println!();
    let wanted = arguments().nth(1).unwrap_or_default();
    for layer in LAYERS.iter().filter(|layer| layer.name.contains(&wanted)) {
        print!("{:24}", layer.name);
        for cpu in &sets {
            print!("{:>10.1}", layer.speed(*cpu)?);
        }
        println!();
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let threads = arguments().next().map_or(Ok(1), |text| text.parse())?;
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()?;
    Ok(pool.install(table)?)
}

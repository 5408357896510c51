//! ONNX models of Whisper with the weights of a package: an encoder of a spectrum, a decoder without a memory, and one
//! that takes keys and values of earlier runs, with a branch for the first run, as exports for browsers have it.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::graph::{Attribute, BOOL, FLOAT, Graph, INT64, Size};

/// ONNX element type `float16`, and the number of that type in a `CTranslate2` file.
const HALF: u64 = 10;
const STORED_HALF: u8 = 4;

const LAYERS: usize = 4;
const WIDTH: i64 = 384;
const VOCABULARY: u64 = 51_864;
/// The order of dimensions by heads.
const HEADS: Attribute = Attribute::Ints("perm", &[0, 2, 1, 3]);
const STATES: [Size; 3] = [Size::Of(1), Size::Of(1500), Size::Of(384)];

/// A tensor of float16.
struct Weight {
    dims: Vec<u64>,
    bytes: Vec<u8>,
}

/// The bytes of a file that are left.
struct Reader<'b>(&'b [u8]);

impl Reader<'_> {
    fn take(&mut self, count: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    /// Reads a whole number of this many bytes.
    fn number(&mut self, size: usize) -> usize {
        let taken = self.take(size).iter().rev();
        taken.fold(0, |number, byte| number << 8 | usize::from(*byte))
    }

    fn text(&mut self) -> String {
        let length = self.number(2);
        let text = self.take(length).strip_suffix(b"\0").expect("a final zero");
        String::from_utf8(text.to_vec()).expect("a name")
    }
}

/// Reads the float16 tensors of a `CTranslate2` file, version 6.
fn weights(bytes: &[u8]) -> HashMap<String, Weight> {
    let mut file = Reader(bytes);
    assert_eq!(file.number(4), 6, "the version");
    assert_eq!(file.text(), "WhisperSpec");
    file.take(4);
    let count = file.number(4);
    let mut weights = HashMap::new();
    for _ in 0..count {
        let name = file.text();
        let rank = file.number(1);
        let dims = (0..rank).map(|_| file.number(4) as u64).collect();
        let is_half = file.take(1) == [STORED_HALF];
        let length = file.number(4);
        let bytes = file.take(length).to_vec();
        if is_half {
            weights.insert(name, Weight { dims, bytes });
        }
    }
    weights
}

/// The decoder of a package.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum DecoderKind {
    /// It takes all tokens each time.
    Plain,
    /// It takes what earlier runs computed.
    Merged,
}

/// Builds the encoder and the decoder of the `CTranslate2` model in a folder.
pub(crate) fn models(folder: &Path, kind: DecoderKind) -> [Vec<u8>; 2] {
    let bytes = std::fs::read(folder.join("model.bin")).expect("the weights");
    let weights = weights(&bytes);
    let decoder = match kind {
        DecoderKind::Plain => decoder(&weights),
        DecoderKind::Merged => merged_decoder(&weights),
    };
    [encoder(&weights), decoder]
}

fn encoder(weights: &HashMap<String, Weight>) -> Vec<u8> {
    let mut net = Network::new(weights);
    net.change(|it| it.input("mel", FLOAT, &[Size::Of(1), Size::Of(80), Size::Of(3000)]));
    let x = net.convolution("mel", "encoder/conv1", &[1]);
    let x = net.convolution(&x, "encoder/conv2", &[2]);
    let x = net.node("Transpose", &[&x], &[Attribute::Ints("perm", &[0, 2, 1])]);
    let places = net.weight("encoder/position_encodings/encodings");
    let mut x = net.node("Add", &[&x, &places], &[]);
    for layer in 0..LAYERS {
        let name = format!("encoder/layer_{layer}");
        x = net.self_attention(&x, &name, None);
        x = net.feed_forward(&x, &name);
    }
    let x = net.norm(&x, "encoder/layer_norm");
    net.change(|it| {
        it.node("Identity", &[&x], "states", &[])
            .shaped_output("states", FLOAT, &STATES)
    });
    net.graph.bytes()
}

fn decoder(weights: &HashMap<String, Weight>) -> Vec<u8> {
    let mut net = Network::new(weights);
    net.change(|it| it.input("tokens", INT64, &[Size::Of(1), Size::Open("n")]));
    net.change(|it| it.input("states", FLOAT, &STATES));
    let shape = net.node("Shape", &["tokens"], &[]);
    let (zero, one, two) = (net.whole(0), net.whole(1), net.whole(2));
    let count = net.node("Slice", &[&shape, &one, &two], &[]);
    let places = net.weight("decoder/position_encodings/encodings");
    let places = net.node("Slice", &[&places, &zero, &count, &zero], &[]);
    let embeddings = net.weight("decoder/embeddings/weight");
    let x = net.node("Gather", &[&embeddings, "tokens"], &[]);
    let mut x = net.node("Add", &[&x, &places], &[]);
    // Each token sees those before it.
    let later = (0..448 * 448).map(|at| if at % 448 > at / 448 { -1e9_f32 } else { 0.0 });
    let later: Vec<f32> = later.collect();
    net.change(|it| it.numbers("later", &[448, 448], &later));
    let mask = net.node("Slice", &["later", &zero, &count, &zero], &[]);
    let mask = net.node("Slice", &[&mask, &zero, &count, &one], &[]);
    for layer in 0..LAYERS {
        let name = format!("decoder/layer_{layer}");
        x = net.self_attention(&x, &name, Some(&mask));
        let normal = net.norm(&x, &format!("{name}/attention/layer_norm"));
        let query = net.linear(&normal, &format!("{name}/attention/linear_0"));
        let both = net.linear("states", &format!("{name}/attention/linear_1"));
        let [key, value] = [0, 1].map(|part| net.part(&both, part));
        let seen = net.attention([&query, &key, &value], None);
        let seen = net.linear(&seen, &format!("{name}/attention/linear_2"));
        x = net.node("Add", &[&x, &seen], &[]);
        x = net.feed_forward(&x, &name);
    }
    net.logits(&x)
}

fn merged_decoder(weights: &HashMap<String, Weight>) -> Vec<u8> {
    let heads = |positions| {
        [
            Size::Of(1),
            Size::Of(6),
            Size::Open(positions),
            Size::Of(64),
        ]
    };
    let mut net = Network::new(weights);
    net.change(|it| it.input("tokens", INT64, &[Size::Of(1), Size::Open("n")]));
    net.change(|it| it.input("states", FLOAT, &STATES));
    let parts = [
        "decoder.key",
        "decoder.value",
        "encoder.key",
        "encoder.value",
    ];
    for layer in 0..LAYERS {
        for part in parts {
            let positions = if part.starts_with('d') {
                "past"
            } else {
                "encoded"
            };
            let name = format!("past_key_values.{layer}.{part}");
            net.change(|it| it.input(&name, FLOAT, &heads(positions)));
        }
    }
    net.change(|it| it.input("use_cache_branch", BOOL, &[Size::Of(1)]));
    net.change(|it| it.numbers("nothing", &[0, 6, 1, 64], &[]));
    let (zero, one, two) = (net.whole(0), net.whole(1), net.whole(2));
    let three = net.whole(3);
    let past = net.node("Shape", &["past_key_values.0.decoder.key"], &[]);
    let past = net.node("Slice", &[&past, &two, &three], &[]);
    let count = net.node("Shape", &["tokens"], &[]);
    let count = net.node("Slice", &[&count, &one, &two], &[]);
    let end = net.node("Add", &[&past, &count], &[]);
    let places = net.weight("decoder/position_encodings/encodings");
    let places = net.node("Slice", &[&places, &past, &end, &zero], &[]);
    let embeddings = net.weight("decoder/embeddings/weight");
    let x = net.node("Gather", &[&embeddings, "tokens"], &[]);
    let mut x = net.node("Add", &[&x, &places], &[]);
    let later = (0..448 * 448).map(|at| if at % 448 > at / 448 { -1e9_f32 } else { 0.0 });
    let later: Vec<f32> = later.collect();
    net.change(|it| it.numbers("later", &[448, 448], &later));
    let mask = net.node("Slice", &["later", &past, &end, &zero], &[]);
    let mask = net.node("Slice", &[&mask, &zero, &end, &one], &[]);
    for layer in 0..LAYERS {
        let name = format!("decoder/layer_{layer}");
        let own = format!("{name}/self_attention");
        let normal = net.norm(&x, &format!("{own}/layer_norm"));
        let all = net.linear(&normal, &format!("{own}/linear_0"));
        let [query, key, value] = [0, 1, 2].map(|part| net.part(&all, part));
        let query = net.by_head(&query);
        let joined = [("key", key), ("value", value)].map(|(part, new)| {
            let new = net.by_head(&new);
            let old = format!("past_key_values.{layer}.decoder.{part}");
            let both = net.node("Concat", &[&old, &new], &[Attribute::Int("axis", 2)]);
            net.present(layer, &format!("decoder.{part}"), &both, &heads("all"));
            both
        });
        let seen = net.attention_of([&query, &joined[0], &joined[1]], Some(&mask));
        let seen = net.linear(&seen, &format!("{own}/linear_1"));
        x = net.node("Add", &[&x, &seen], &[]);
        let normal = net.norm(&x, &format!("{name}/attention/layer_norm"));
        let query = net.linear(&normal, &format!("{name}/attention/linear_0"));
        let query = net.by_head(&query);
        let encoded = [0, 1].map(|place| {
            let which = ["key", "value"][place];
            let linear = format!("{name}/attention/linear_1");
            let old = format!("past_key_values.{layer}.encoder.{which}");
            let place = i64::from(place == 1);
            let used = net.branches(&old, (&linear, place));
            let given = net.branches("nothing", (&linear, place));
            net.present(
                layer,
                &format!("encoder.{which}"),
                &given,
                &heads("encoded"),
            );
            used
        });
        let seen = net.attention_of([&query, &encoded[0], &encoded[1]], None);
        let seen = net.linear(&seen, &format!("{name}/attention/linear_2"));
        x = net.node("Add", &[&x, &seen], &[]);
        x = net.feed_forward(&x, &name);
    }
    net.logits(&x)
}

/// A graph in the making.
struct Network<'w> {
    weights: &'w HashMap<String, Weight>,
    graph: Graph,
    count: usize,
    known: HashSet<String>,
    /// What the next run takes.
    presents: Vec<(String, [Size; 4])>,
}

impl<'w> Network<'w> {
    fn new(weights: &'w HashMap<String, Weight>) -> Self {
        let mut net = Self {
            weights,
            graph: Graph::default(),
            count: 0,
            known: HashSet::new(),
            presents: Vec::new(),
        };
        net.change(|it| {
            it.integers("split", &[0, -1, 6, 64])
                .integers("merge", &[0, -1, WIDTH])
        });
        net.change(|it| {
            it.number("eighth", 0.125)
                .number("half", 0.5)
                .number("one", 1.0)
        });
        net.change(|it| it.number("root", std::f32::consts::FRAC_1_SQRT_2));
        net
    }

    fn change(&mut self, change: impl FnOnce(Graph) -> Graph) {
        self.graph = change(std::mem::take(&mut self.graph));
    }

    fn node(&mut self, operator: &str, inputs: &[&str], attributes: &[Attribute]) -> String {
        self.count += 1;
        let name = format!("made_{}", self.count);
        self.change(|it| it.node(operator, inputs, &name, attributes));
        name
    }

    /// Adds a tensor of the file as float32.
    fn weight(&mut self, name: &str) -> String {
        if self.known.insert(name.to_owned()) {
            let weight = self.weights.get(name);
            let Weight { dims, bytes } = weight.unwrap_or_else(|| panic!("no weight {name}"));
            let stored = format!("{name}/half");
            self.change(|it| it.bytes_of(&stored, HALF, dims, bytes));
            self.change(|it| it.node("Cast", &[&stored], name, &[Attribute::Int("to", FLOAT)]));
        }
        name.to_owned()
    }

    /// Adds a vector of one whole number.
    fn whole(&mut self, value: i64) -> String {
        let name = format!("whole_{value}");
        if self.known.insert(name.clone()) {
            self.change(|it| it.integers(&name, &[value]));
        }
        name
    }

    fn linear(&mut self, x: &str, name: &str) -> String {
        let weight = self.weight(&format!("{name}/weight"));
        let bias = self.weight(&format!("{name}/bias"));
        let columns = self.node("Transpose", &[&weight], &[Attribute::Ints("perm", &[1, 0])]);
        let x = self.node("MatMul", &[x, &columns], &[]);
        self.node("Add", &[&x, &bias], &[])
    }

    fn norm(&mut self, x: &str, name: &str) -> String {
        let gamma = self.weight(&format!("{name}/gamma"));
        let beta = self.weight(&format!("{name}/beta"));
        self.node("LayerNormalization", &[x, &gamma, &beta], &[])
    }

    fn gelu(&mut self, x: &str) -> String {
        let scaled = self.node("Mul", &[x, "root"], &[]);
        let erf = self.node("Erf", &[&scaled], &[]);
        let erf = self.node("Add", &[&erf, "one"], &[]);
        let half = self.node("Mul", &[x, "half"], &[]);
        self.node("Mul", &[&half, &erf], &[])
    }

    fn convolution(&mut self, x: &str, name: &str, stride: &'static [u64]) -> String {
        let weight = self.weight(&format!("{name}/weight"));
        let bias = self.weight(&format!("{name}/bias"));
        let attributes = [
            Attribute::Ints("pads", &[1, 1]),
            Attribute::Ints("strides", stride),
        ];
        let x = self.node("Conv", &[x, &weight, &bias], &attributes);
        self.gelu(&x)
    }

    /// Cuts a part of the width of a model out of the last dimension.
    fn part(&mut self, x: &str, place: i64) -> String {
        let (from, to) = (self.whole(place * WIDTH), self.whole((place + 1) * WIDTH));
        let axis = self.whole(2);
        self.node("Slice", &[x, &from, &to, &axis], &[])
    }

    /// Adds the logits of the last layer, and returns the model.
    fn logits(mut self, x: &str) -> Vec<u8> {
        let x = self.norm(x, "decoder/layer_norm");
        let embeddings = self.weight("decoder/embeddings/weight");
        let swap = [Attribute::Ints("perm", &[1, 0])];
        let columns = self.node("Transpose", &[&embeddings], &swap);
        let x = self.node("MatMul", &[&x, &columns], &[]);
        let sizes = [Size::Of(1), Size::Open("n"), Size::Of(VOCABULARY)];
        self.change(|it| {
            it.node("Identity", &[&x], "logits", &[])
                .shaped_output("logits", FLOAT, &sizes)
        });
        let presents = std::mem::take(&mut self.presents);
        for (name, sizes) in presents {
            self.change(|it| it.shaped_output(&name, FLOAT, &sizes));
        }
        self.graph.bytes()
    }

    /// Gives a tensor to the next run.
    fn present(&mut self, layer: usize, part: &str, x: &str, sizes: &[Size; 4]) {
        let name = format!("present.{layer}.{part}");
        self.change(|it| it.node("Identity", &[x], &name, &[]));
        self.presents.push((name, *sizes));
    }

    /// Returns `old` if earlier runs computed it, otherwise a part of a linear map of the encoder's states.
    fn branches(&mut self, old: &str, (linear, place): (&str, i64)) -> String {
        self.count += 1000;
        let mut computed = Network {
            weights: self.weights,
            graph: Graph::default(),
            count: self.count,
            known: HashSet::new(),
            presents: Vec::new(),
        };
        let mut prefix = format!("branch_{}/", self.count);
        let whole = |net: &mut Network<'w>, value: i64| {
            let name = format!("{prefix}whole_{value}");
            net.change(|it| it.integers(&name, &[value]));
            name
        };
        let range = [place * WIDTH, (place + 1) * WIDTH].map(|value| whole(&mut computed, value));
        let axis = format!("{prefix}axis");
        computed.change(|it| it.integers(&axis, &[2]));
        // The weights belong to the graph around the branch.
        let [weight, bias] = ["weight", "bias"].map(|it| self.weight(&format!("{linear}/{it}")));
        let swap = [Attribute::Ints("perm", &[1, 0])];
        let columns = computed.node("Transpose", &[&weight], &swap);
        let x = computed.node("MatMul", &["states", &columns], &[]);
        let x = computed.node("Add", &[&x, &bias], &[]);
        let x = computed.node("Slice", &[&x, &range[0], &range[1], &axis], &[]);
        let x = computed.by_head(&x);
        computed.change(|it| it.output(&x, FLOAT));
        prefix.push_str("old");
        let kept = Graph::default().node("Identity", &[old], &prefix, &[]);
        let kept = kept.output(&prefix, FLOAT).body();
        self.count += 1000;
        let branches = [
            Attribute::Body("then_branch", kept),
            Attribute::Body("else_branch", computed.graph.body()),
        ];
        self.node("If", &["use_cache_branch"], &branches)
    }

    /// Splits the width of a model into heads.
    fn by_head(&mut self, x: &str) -> String {
        let x = self.node("Reshape", &[x, "split"], &[]);
        self.node("Transpose", &[&x], &[HEADS])
    }

    fn attention(&mut self, tensors: [&str; 3], mask: Option<&str>) -> String {
        let [query, key, value] = tensors.map(|x| self.by_head(x));
        self.attention_of([&query, &key, &value], mask)
    }

    /// Attends by heads.
    fn attention_of(&mut self, [query, key, value]: [&str; 3], mask: Option<&str>) -> String {
        let key = self.node(
            "Transpose",
            &[key],
            &[Attribute::Ints("perm", &[0, 1, 3, 2])],
        );
        let scores = self.node("MatMul", &[query, &key], &[]);
        let mut scores = self.node("Mul", &[&scores, "eighth"], &[]);
        if let Some(mask) = mask {
            scores = self.node("Add", &[&scores, mask], &[]);
        }
        let scores = self.node("Softmax", &[&scores], &[]);
        let seen = self.node("MatMul", &[&scores, value], &[]);
        let seen = self.node("Transpose", &[&seen], &[HEADS]);
        self.node("Reshape", &[&seen, "merge"], &[])
    }

    fn self_attention(&mut self, x: &str, layer: &str, mask: Option<&str>) -> String {
        let name = format!("{layer}/self_attention");
        let normal = self.norm(x, &format!("{name}/layer_norm"));
        let all = self.linear(&normal, &format!("{name}/linear_0"));
        let parts = [0, 1, 2].map(|part| self.part(&all, part));
        let seen = self.attention(parts.each_ref().map(String::as_str), mask);
        let seen = self.linear(&seen, &format!("{name}/linear_1"));
        self.node("Add", &[x, &seen], &[])
    }

    fn feed_forward(&mut self, x: &str, layer: &str) -> String {
        let name = format!("{layer}/ffn");
        let normal = self.norm(x, &format!("{name}/layer_norm"));
        let inner = self.linear(&normal, &format!("{name}/linear_0"));
        let inner = self.gelu(&inner);
        let inner = self.linear(&inner, &format!("{name}/linear_1"));
        self.node("Add", &[x, &inner], &[])
    }
}

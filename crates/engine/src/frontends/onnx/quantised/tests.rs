//! Tests of the rewriting of graphs, by the operators in the result.

use tract_onnx::data_resolver::FopenDataResolver;
use tract_onnx::pb::{GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use tract_onnx::tensor::load_tensor;

use super::node;
use super::{fuse, unfold};
use pkgtool_kernels::bytes::Sign;
use pkgtool_kernels::bytes::elementwise::IntegerRange;

const FLOAT: i32 = 1;
const UINT8: i32 = 2;
const INT8: i32 = 3;
const INT32: i32 = 6;

fn stored(name: &str, dims: &[i64], data_type: i32, values: &[i32]) -> TensorProto {
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let floats = values.iter().map(|value| *value as f32 / 4.0);
    let is_float = data_type == FLOAT;
    TensorProto {
        name: name.to_owned(),
        dims: dims.to_vec(),
        data_type,
        float_data: floats.filter(|_| is_float).collect(),
        int32_data: if is_float {
            Vec::new()
        } else {
            values.to_vec()
        },
        ..TensorProto::default()
    }
}

/// A graph whose input is the bytes `q` with the scale `s` and the zero point `z`.
struct Graph(GraphProto);

impl Graph {
    fn new() -> Self {
        let mut graph = Self::of_bytes();
        graph.node("DequantizeLinear", &["q", "s", "z"], "x");
        graph
    }

    /// Like [`Graph::new`], without the dequantised input `x`.
    fn of_bytes() -> Self {
        let scalars = [
            stored("s", &[], FLOAT, &[1]),
            stored("t", &[], FLOAT, &[400]),
            stored("z", &[], UINT8, &[3]),
            stored("i", &[], INT8, &[-7]),
            stored("w", &[2, 3, 1, 1], INT8, &[1, 2, 3, 4, 5, 6]),
            stored("ws", &[2], FLOAT, &[1, 2]),
            stored("wz", &[2], INT8, &[0, 0]),
            stored("b", &[2], INT32, &[9, -9]),
            stored("bs", &[2], FLOAT, &[0, 0]),
            stored("m", &[3, 2], INT8, &[1, 2, 3, 4, 5, 6]),
            stored("least", &[], FLOAT, &[0]),
            stored("most", &[], FLOAT, &[24]),
        ];
        let mut graph = GraphProto {
            initializer: scalars.to_vec(),
            ..GraphProto::default()
        };
        // The scale of a bias is the product of the other scales.
        let of_bias = graph.initializer.iter_mut().find(|it| it.name == "bs");
        of_bias.expect("it is there").float_data = vec![0.0625, 0.125];
        Self(graph)
    }

    fn node(&mut self, operator: &str, inputs: &[&str], output: &str) -> &mut NodeProto {
        self.0
            .node
            .push(node::new(operator, output, inputs, output));
        self.0.node.last_mut().expect("it was just put there")
    }

    /// Quantises `from` to unsigned bytes of the scale `t`.
    fn round(&mut self, from: &str, output: &str) {
        self.node("QuantizeLinear", &[from, "t", "z"], output);
    }

    fn weights(&mut self) {
        let weights = self.node("DequantizeLinear", &["w", "ws", "wz"], "weights");
        node::put_integer(weights, "axis", 0);
        self.node("DequantizeLinear", &["b", "bs"], "bias");
    }

    fn fused(mut self, outputs: &[&str]) -> Vec<NodeProto> {
        self.0.output = outputs
            .iter()
            .map(|name| ValueInfoProto {
                name: (*name).to_owned(),
                ..ValueInfoProto::default()
            })
            .collect();
        let mut model = ModelProto {
            graph: Some(self.0),
            ..ModelProto::default()
        };
        let provider = FopenDataResolver;
        let load = |tensor: &TensorProto| load_tensor(&provider, tensor, None).ok();
        unfold(&mut model, &load);
        fuse(&mut model, &load);
        model.graph.expect("it is still there").node
    }

    /// Returns the operators of the fused graph.
    fn operators(self, outputs: &[&str]) -> Vec<String> {
        let nodes = self.fused(outputs).into_iter();
        nodes.map(|node| node.op_type).collect()
    }
}

#[test]
fn a_convolution_takes_what_is_around_it() {
    let mut graph = Graph::new();
    graph.weights();
    graph.node("Conv", &["x", "weights", "bias"], "sums");
    graph.node("Clip", &["sums", "least", "most"], "held");
    graph.round("held", "y");
    let nodes = graph.fused(&["y"]);
    let [made] = nodes.as_slice() else {
        panic!("{nodes:?}");
    };
    assert_eq!(
        (made.op_type.as_str(), &*made.output),
        (node::CONVOLUTION, &["y".to_owned()][..])
    );
    assert_eq!(made.input, ["q", "w"]);
    let range = node::range(made).expect("a range");
    assert_eq!(
        range,
        IntegerRange { least: 3, most: 3 },
        "6 is below half a step of 100"
    );
    let bias: Option<Vec<i32>> = node::integers(made, "bias").expect("whole numbers");
    assert_eq!(bias, Some(vec![9, -9]));
    let factors = node::floats(made, "factors");
    assert_eq!(factors, [0.000_625, 0.001_25]);
}

#[test]
fn a_real_bias_is_rounded_where_that_is_little() {
    for (to, fuses) in [("t", true), ("s", false)] {
        let mut graph = Graph::new();
        graph.weights();
        graph
            .0
            .initializer
            .push(stored("real", &[2], FLOAT, &[10, 21]));
        graph.node("Conv", &["x", "weights", "real"], "sums");
        graph.node("QuantizeLinear", &["sums", to, "z"], "y");
        let nodes = graph.fused(&["y"]);
        assert_eq!(
            nodes.iter().any(|it| it.op_type == node::CONVOLUTION),
            fuses,
            "{to}"
        );
        if let ([made], true) = (nodes.as_slice(), fuses) {
            let bias: Option<Vec<i32>> = node::integers(made, "bias").expect("whole numbers");
            assert_eq!(bias, Some(vec![40, 42]));
        }
    }
}

#[test]
fn what_others_read_stays() {
    let mut graph = Graph::new();
    graph.weights();
    graph.node("Conv", &["x", "weights", "bias"], "sums");
    graph.round("sums", "y");
    assert_eq!(
        graph.operators(&["y", "sums"]),
        [
            "DequantizeLinear",
            "DequantizeLinear",
            "DequantizeLinear",
            "Conv",
            node::ROUNDED
        ]
    );
    let mut graph = Graph::new();
    graph.weights();
    graph.node("Conv", &["x", "weights", "bias"], "sums");
    graph.round("sums", "y");
    assert_eq!(
        graph.operators(&["y", "x"]),
        ["DequantizeLinear", node::CONVOLUTION]
    );
}

#[test]
fn a_clip_of_bytes_becomes_part_of_what_makes_them() {
    let mut graph = Graph::new();
    graph.weights();
    graph.node("Conv", &["x", "weights", "bias"], "sums");
    graph.node("QuantizeLinear", &["sums", "s", "z"], "first");
    graph.node("DequantizeLinear", &["first", "s", "z"], "again");
    graph.node("Clip", &["again", "least", "most"], "held");
    graph.node("QuantizeLinear", &["held", "s", "z"], "y");
    let nodes = graph.fused(&["y"]);
    let [made, same] = nodes.as_slice() else {
        panic!("{nodes:?}");
    };
    assert_eq!(
        (made.op_type.as_str(), same.op_type.as_str()),
        (node::CONVOLUTION, "Identity")
    );
    let range = node::range(made).expect("a range");
    assert_eq!(range, IntegerRange { least: 3, most: 27 });
}

#[test]
fn operators_on_bytes() {
    let of = |operator: &str, others: &[&str]| {
        let mut graph = Graph::new();
        let inputs: Vec<&str> = std::iter::once("x").chain(others.iter().copied()).collect();
        if others.contains(&"matrix") {
            graph.node("DequantizeLinear", &["m", "s", "i"], "matrix");
        }
        let made = graph.node(operator, &inputs, "made");
        if operator.ends_with("Pool") && !operator.starts_with("Global") {
            node::put_integers(made, "kernel_shape", vec![2, 2]);
        }
        if operator == "ReduceMean" {
            node::put_integers(made, "axes", vec![-1, -2]);
        }
        graph.round("made", "y");
        graph.operators(&["y"])
    };
    assert_eq!(of("Add", &["x"]), [node::PAIR]);
    assert_eq!(of("Sub", &["matrix"]), [node::PAIR]);
    assert_eq!(of("MatMul", &["matrix"]), [node::PRODUCT]);
    assert_eq!(of("Gemm", &["matrix"]), [node::PRODUCT]);
    assert_eq!(of("GlobalAveragePool", &[]), [node::MEAN]);
    assert_eq!(of("ReduceMean", &[]), [node::MEAN]);
    assert_eq!(of("MaxPool", &[]), [node::LARGEST, node::ELEMENTS]);
    assert_eq!(of("Relu", &[]), [node::ELEMENTS]);
    assert_eq!(of("Flatten", &[]), ["Flatten", node::ELEMENTS]);
    assert_eq!(
        of("Concat", &["x"]),
        [node::ELEMENTS, node::ELEMENTS, "Concat"]
    );
    assert_eq!(of("AveragePool", &[]), [node::AVERAGE]);
    let softmax = ["DequantizeLinear", "Softmax", node::ROUNDED];
    assert_eq!(of("Softmax", &[]), softmax);
}

#[test]
fn functions_become_tables() {
    for name in [
        "Elu",
        "Erf",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Mish",
        "Selu",
        "Sigmoid",
        "Softplus",
        "Softsign",
        "Tanh",
    ] {
        let mut graph = Graph::new();
        graph.node(name, &["x"], "made");
        graph.node("QuantizeLinear", &["made", "s", "i"], "y");
        assert_eq!(graph.operators(&["y"]), [node::TABLE], "{name}");
    }
    let mut graph = Graph::new();
    graph.node("Relu", &["x"], "positive");
    graph.node("Sigmoid", &["positive"], "sigmoid");
    graph.node("Clip", &["sigmoid", "least", "most"], "held");
    graph.node("QuantizeLinear", &["held", "s", "i"], "y");
    let nodes = graph.fused(&["y"]);
    let [made] = nodes.as_slice() else {
        panic!("{nodes:?}");
    };
    assert_eq!(made.input, ["q"]);
    assert_eq!(node::sign(made, "x"), Sign::Unsigned);
    assert_eq!(node::sign(made, "y"), Sign::Signed);
    let numbers = node::floats(made, "numbers");
    assert_eq!(numbers.len(), 256);
    // Bytes up to the zero point represent zero or less.
    assert_eq!(numbers[..4], [0.5; 4]);
    assert!(numbers[3] < numbers[4] && numbers[255] <= 1.0);

    let mut graph = Graph::new();
    graph.node("Sigmoid", &["x"], "made");
    graph.round("made", "y");
    let operators = graph.operators(&["y", "made"]);
    let apart = ["DequantizeLinear", "Sigmoid", node::ROUNDED];
    assert_eq!(operators, apart, "others read the numbers");
    let mut graph = Graph::new();
    graph.node("Sigmoid", &["x"], "made").domain = "com.example".to_owned();
    graph.round("made", "y");
    let apart = ["DequantizeLinear", "Sigmoid", node::ROUNDED];
    assert_eq!(graph.operators(&["y"]), apart, "another's operator");
}

#[test]
fn windows_that_no_kernel_takes_stay() {
    let of = |operator: &str, attributes: &[(&str, &[i64])]| {
        let mut graph = Graph::new();
        let made = graph.node(operator, &["x"], "made");
        for (name, integers) in attributes {
            node::put_integers(made, name, integers.to_vec());
        }
        graph.round("made", "y");
        let operators = graph.operators(&["y"]);
        operators.iter().all(|it| it != operator)
    };
    for operator in ["MaxPool", "AveragePool"] {
        let with = |name: &str, integers: &[i64]| {
            of(operator, &[("kernel_shape", &[2, 3]), (name, integers)])
        };
        assert!(of(operator, &[("kernel_shape", &[2])]));
        assert!(with("pads", &[1, 2, 0, 1]));
        assert!(with("strides", &[4, 1]));
        assert!(with("dilations", &[1, 3]));
        for (name, integers) in [
            ("pads", &[2, 0, 0, 0][..]),
            ("pads", &[0, 0, 0, 3]),
            ("pads", &[-1, 0, 0, 0]),
            ("pads", &[1, 1]),
            ("strides", &[0, 1]),
            ("strides", &[i64::MAX, 1]),
            ("strides", &[1]),
            ("dilations", &[1, -1]),
            ("dilations", &[1 << 40, 1]),
        ] {
            assert!(!with(name, integers), "{operator}: {name} {integers:?}");
        }
        assert!(!of(operator, &[]));
        for kernel in [&[2, 2, 2][..], &[0, 1], &[-1], &[1 << 20, 1 << 20], &[]] {
            assert!(!of(operator, &[("kernel_shape", kernel)]), "{kernel:?}");
        }
    }
}

#[test]
fn words_and_sums() {
    let mut graph = Graph::of_bytes();
    let word = ["q", "s", "z", "w", "ws", "wz", "t", "z", "b"];
    graph.node("QLinearConv", &word, "y");
    assert_eq!(graph.operators(&["y"]), [node::CONVOLUTION]);

    let mut graph = Graph::of_bytes();
    let word = ["q", "s", "z", "q", "s", "z", "t", "z"];
    graph.node("QLinearMatMul", &word, "y");
    assert_eq!(
        graph.operators(&["y"]),
        ["QLinearMatMul"],
        "of two that the run gives"
    );

    let mut graph = Graph::of_bytes();
    graph.node("MatMulInteger", &["q", "m", "z", "i"], "y");
    assert_eq!(graph.operators(&["y"]), [node::SUMS]);

    let mut graph = Graph::of_bytes();
    graph.node("MatMulInteger", &["q", "m", "wz"], "y");
    assert_eq!(
        graph.operators(&["y"]),
        ["MatMulInteger"],
        "a zero point for each row"
    );

    for (word, attributes, becomes) in [
        ("QLinearAveragePool", &["kernel_shape"][..], node::AVERAGE),
        ("QLinearLeakyRelu", &[], node::TABLE),
        ("QLinearSigmoid", &[], node::TABLE),
    ] {
        let mut graph = Graph::of_bytes();
        let made = graph.node(word, &["q", "s", "z", "t", "z"], "y");
        made.domain = "com.microsoft".to_owned();
        for name in attributes {
            node::put_integers(made, name, vec![2, 2]);
        }
        assert_eq!(graph.operators(&["y"]), [becomes]);
    }

    let mut graph = Graph::of_bytes();
    let word = ["q", "s", "z", "q", "s", "z", "t", "z"];
    graph.node("QLinearAdd", &word, "y").domain = "com.microsoft".to_owned();
    assert_eq!(graph.operators(&["y"]), [node::PAIR]);
}

#[test]
fn invalid_grids_change_nothing() {
    for (name, tensor) in [
        ("s", stored("s", &[], FLOAT, &[0])),
        ("s", stored("s", &[], FLOAT, &[-4])),
        ("s", stored("s", &[2], FLOAT, &[1, 2])),
        ("z", stored("z", &[], INT32, &[3])),
        ("z", stored("z", &[], 16, &[3])),
        (
            "w",
            stored("w", &[2, 3, 1, 1, 1], INT8, &[1, 2, 3, 4, 5, 6]),
        ),
        ("w", stored("w", &[0, 3, 1, 1], INT8, &[])),
        ("ws", stored("ws", &[3], FLOAT, &[1, 2, 3])),
        ("wz", stored("wz", &[3], INT8, &[1, 2, 3])),
        ("b", stored("b", &[3], INT32, &[1, 2, 3])),
        ("b", stored("b", &[0], INT32, &[])),
        ("bs", stored("bs", &[0], FLOAT, &[])),
        ("ws", stored("ws", &[0], FLOAT, &[])),
        ("wz", stored("wz", &[0], INT8, &[])),
        ("s", stored("s", &[0], FLOAT, &[])),
    ] {
        let mut graph = Graph::of_bytes();
        graph.weights();
        graph.node("Conv", &["x", "weights", "bias"], "sums");
        graph.round("sums", "y");
        graph.0.initializer.retain(|it| it.name != name);
        graph.0.initializer.push(tensor);
        let operators = graph.operators(&["y"]);
        assert!(
            operators.iter().any(|it| it == "Conv"),
            "{name}: {operators:?}"
        );
    }
}

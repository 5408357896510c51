//! Models that the tract engine rejects, and the wording of its errors.

use pkgtool_engine::tensor::DType;

#[cfg(feature = "ort")]
use super::load_on;
use super::{
    Attribute, FLOAT, UINT8, assert_answers, bytes, float, floats, load, node, numbers, tensor,
    value,
};
#[cfg(feature = "ort")]
use crate::support::environment::EnvironmentPiece;

/// Operators that the tract library computes wrongly, and that the engine does not correct, are
/// rejected.
#[test]
fn what_is_not_mended_is_refused() {
    let refused = |node: Vec<u8>, shape: &[i64], element| {
        let graph = [
            value(11, "x", element, Some(shape)),
            value(12, "y", element, None),
            floats("s", &[4], &[1.0, 1.0, 0.5, 0.5]),
            node,
        ];
        let error = load(&graph)
            .err()
            .expect("the model is rejected")
            .to_string();
        assert!(error.contains("wrong"), "{error}");
    };
    let spread = [
        ("auto_pad", Attribute::Text("SAME_UPPER")),
        ("kernel_shape", Attribute::Ints(&[2])),
        ("dilations", Attribute::Ints(&[2])),
    ];
    refused(node("AveragePool", &["x"], "y", &spread), &[1, 1, 6], FLOAT);
}

/// ONNX Runtime scales coordinates by the integer size of the output.
#[cfg(feature = "ort")]
#[test]
fn ort_refuses_corners_aligned_by_fractions() {
    let Some(library) = EnvironmentPiece::Ort.or_skip("aligned corners on ort") else {
        return;
    };
    for (scales, is_right) in [([1.0, 1.0, 2.0, 2.0], true), ([1.0, 1.0, 0.6, 0.6], false)] {
        let attributes = [
            ("mode", Attribute::Text("linear")),
            (
                "coordinate_transformation_mode",
                Attribute::Text("align_corners"),
            ),
        ];
        let graph = [
            value(11, "x", FLOAT, Some(&[1, 1, 4, 4])),
            value(12, "y", FLOAT, None),
            floats("s", &[4], &scales),
            node("Resize", &["x", "", "s"], "y", &attributes),
        ];
        let loaded = load_on("ort", Some(library.clone()), &graph);
        match loaded {
            Ok(mut session) => {
                assert!(is_right, "0.6 is not an integer");
                let image = float(&[1, 1, 4, 4], &[1.0; 16]);
                let answer = session
                    .run(&[image])
                    .unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(answer.outputs[0].shape(), [1, 1, 8, 8]);
            }
            Err(error) => {
                assert!(!is_right, "{error}");
                assert!(error.is_about_the_engine(), "{error}");
                assert!(error.to_string().contains("corners"), "{error}");
            }
        }
    }
}

/// ONNX Runtime also rejects them, or returns an empty result.
#[test]
fn windows_larger_than_what_they_are_put_on_are_refused() {
    let refused = |operator: &str, attributes: &[(&str, Attribute<'_>)]| {
        let takes_weights = operator == "Conv";
        let inputs: &[&str] = if takes_weights { &["x", "w"] } else { &["x"] };
        let graph = [
            value(11, "x", FLOAT, Some(&[1, 1, 4])),
            value(12, "y", FLOAT, None),
            floats("w", &[1, 1, 3], &[1.0; 3]),
            node(operator, inputs, "y", attributes),
        ];
        let error = load(&graph)
            .err()
            .expect("the model is rejected")
            .to_string();
        let what = "a window of 5 elements on 4 (dimension 0 of space, padding included)";
        assert!(error.contains(what), "{error}");
        assert!(error.contains(&format!("`{operator}`")), "{error}");
    };
    for operator in ["AveragePool", "MaxPool", "Conv"] {
        let kernel = ("kernel_shape", Attribute::Ints(&[3]));
        refused(operator, &[kernel, ("dilations", Attribute::Ints(&[2]))]);
    }
    for operator in ["AveragePool", "MaxPool"] {
        refused(operator, &[("kernel_shape", Attribute::Ints(&[5]))]);
    }
}

#[test]
fn a_reflection_of_more_than_there_is_is_refused() {
    for (pad, is_right) in [(4, true), (5, false), (6, false)] {
        let graph = [
            value(11, "x", FLOAT, Some(&[2, 5])),
            value(12, "y", FLOAT, None),
            numbers("pads", &[0, pad, 0, 0]),
            node(
                "Pad",
                &["x", "pads"],
                "y",
                &[("mode", Attribute::Text("reflect"))],
            ),
        ];
        match load(&graph) {
            Ok(_) => assert!(is_right, "a single element is its own reflection"),
            Err(error) => {
                assert!(!is_right, "{error}");
                let told = format!("cannot reflect {pad} elements on a dimension of 5");
                assert!(error.to_string().contains(&told), "{error}");
            }
        }
    }
}

/// Applies to sizes known at load time and to those known only at run time.
#[test]
fn windows_larger_than_bytes_are_refused() {
    for operator in ["AveragePool", "MaxPool"] {
        for (padding, places) in [("VALID", 4), ("NOTSET", 5)] {
            for size in [4, -1] {
                let mut attributes = vec![
                    ("auto_pad", Attribute::Text(padding)),
                    ("kernel_shape", Attribute::Ints(&[4])),
                    ("dilations", Attribute::Ints(&[2])),
                ];
                if padding == "NOTSET" {
                    attributes.push(("pads", Attribute::Ints(&[0, 1])));
                }
                let graph = [
                    value(11, "x", UINT8, Some(&[1, 1, size])),
                    value(12, "y", UINT8, None),
                    floats("s", &[], &[1.0]),
                    bytes("z", UINT8, &[], &[3]),
                    node("DequantizeLinear", &["x", "s", "z"], "d", &[]),
                    node(operator, &["d"], "e", &attributes),
                    node("QuantizeLinear", &["e", "s", "z"], "y", &[]),
                ];
                let input = tensor(DType::Uint8, &[1, 1, 4], &[1.0; 4]);
                let error = match load(&graph) {
                    Ok(mut session) => session.run(&[input]).err(),
                    Err(error) => Some(error),
                };
                let error = error.expect("the model is rejected").to_string();
                let what = format!("a window of 7 elements on {places} (");
                assert!(error.contains(&what), "{error}");
            }
        }
    }
}

#[test]
fn a_window_that_begins_on_its_input_answers() {
    let graph = [
        value(11, "x", FLOAT, Some(&[1, 1, 4])),
        value(12, "y", FLOAT, None),
        node(
            "MaxPool",
            &["x"],
            "y",
            &[
                ("kernel_shape", Attribute::Ints(&[5])),
                ("strides", Attribute::Ints(&[2])),
                ("ceil_mode", Attribute::Int(1)),
            ],
        ),
    ];
    let run = |x: [f64; 4], y: f64| (vec![float(&[1, 1, 4], &x)], vec![1, 1, 1], vec![y]);
    let runs = [
        run([1.0, 5.0, 2.0, 3.0], 5.0),
        run([-1.0, -5.0, -2.0, -3.0], -1.0),
    ];
    assert_answers(&graph, &runs);
}

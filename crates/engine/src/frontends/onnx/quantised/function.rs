//! Elementwise functions, computed for each of the 256 numbers that a byte can represent.
//!
//! If ONNX Runtime uses a few float32 operations, this module uses the same ones, because the last
//! bit decides ties between two bytes. Other functions are computed in float64.

use std::f64::consts::{FRAC_2_SQRT_PI, SQRT_2};

use tract_onnx::pb::NodeProto;

use crate::frontends::onnx::graph::{attribute, text};
use crate::graph::error_function::erf;
use pkgtool_kernels::bytes::elementwise::Grid;
use pkgtool_kernels::{Cpu, Split};

/// An elementwise function.
pub(super) type ElementFunction = Box<dyn Fn(f32) -> f32>;

/// Returns the function of a node of the default domain, if it is elementwise.
pub(super) fn function_of(node: &NodeProto) -> Option<ElementFunction> {
    let number = |name: &str, absent: f32| attribute(node, name).map_or(absent, |found| found.f);
    let alpha = |absent| number("alpha", absent);
    Some(match node.op_type.as_str() {
        "Elu" => {
            let alpha = alpha(1.0);
            in_double(move |x| {
                if x < 0.0 {
                    f64::from(alpha) * x.exp_m1()
                } else {
                    x
                }
            })
        }
        "Erf" => in_double(erf),
        "Gelu" => match text(node, "approximate") {
            b"" | b"none" => in_double(|x| 0.5 * x * (1.0 + erf(x / SQRT_2))),
            b"tanh" => in_double(|x| {
                let inner = FRAC_2_SQRT_PI / SQRT_2 * (x + 0.044_715 * x.powi(3));
                0.5 * x * (1.0 + inner.tanh())
            }),
            _ => return None,
        },
        "HardSigmoid" => {
            let (alpha, beta) = (alpha(0.2), number("beta", 0.5));
            Box::new(move |x| hard_sigmoid(x, alpha, beta))
        }
        "HardSwish" => Box::new(|x| x * hard_sigmoid(x, 1.0 / 6.0, 0.5)),
        "LeakyRelu" => {
            let alpha = alpha(0.01);
            Box::new(move |x| if x < 0.0 { alpha * x } else { x })
        }
        "Mish" => in_double(|x| x * softplus(x).tanh()),
        "Selu" => {
            let alpha = f64::from(alpha(1.673_263_2));
            let gamma = f64::from(number("gamma", 1.050_701));
            in_double(move |x| gamma * if x > 0.0 { x } else { alpha * x.exp_m1() })
        }
        "Sigmoid" => in_double(|x| 1.0 / (1.0 + (-x).exp())),
        "Softplus" => in_double(softplus),
        "Softsign" => Box::new(|x| (1.0 + x.abs()).recip() * x),
        "Tanh" => in_double(f64::tanh),
        _ => return None,
    })
}

/// Returns the numbers that the bytes 0 to 255 represent.
pub(super) fn numbers(grid: Grid) -> Option<Vec<f32>> {
    let bytes: Vec<u8> = (0..=u8::MAX).collect();
    let mut numbers = vec![0.0; bytes.len()];
    let made = grid.dequantize(Cpu::PLAIN, &bytes, &mut numbers, Split::ONE);
    made.ok().map(|()| numbers)
}

#[expect(clippy::cast_possible_truncation, reason = "rounded once, at the end")]
fn in_double(function: impl Fn(f64) -> f64 + 'static) -> ElementFunction {
    Box::new(move |x| function(f64::from(x)) as f32)
}

fn hard_sigmoid(x: f32, alpha: f32, beta: f32) -> f32 {
    (alpha * x + beta).clamp(0.0, 1.0)
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frontends::onnx::quantised::node;
    use pkgtool_kernels::bytes::Sign;

    #[test]
    fn functions_are_those_of_the_standard() {
        let of = |name: &str, x: f32| {
            let made = function_of(&node::new(name, "", &["x"], "y"));
            made.expect("a function")(x)
        };
        for (name, at, expected) in [
            ("Elu", -1.0, -0.632_120_55),
            ("Erf", 0.5, 0.520_499_9),
            ("Gelu", 1.0, 0.841_344_8),
            ("HardSigmoid", 1.0, 0.7),
            ("HardSwish", 1.0, 0.666_666_7),
            ("LeakyRelu", -2.0, -0.02),
            ("Mish", 1.0, 0.865_098_36),
            ("Selu", -1.0, -1.111_330_7),
            ("Sigmoid", -2.0, 0.119_202_92),
            ("Softplus", 1.0, 1.313_261_6),
            ("Softsign", -3.0, -0.75),
            ("Tanh", 0.5, 0.462_117_16),
        ] {
            let found = of(name, at);
            assert!((found - expected).abs() < 2e-7, "{name}: {found}");
        }
        assert!(function_of(&node::new("Softmax", "", &["x"], "y")).is_none());
        let mut unknown = node::new("Gelu", "", &["x"], "y");
        unknown.attribute.push(tract_onnx::pb::AttributeProto {
            name: "approximate".to_owned(),
            s: b"sine".to_vec(),
            ..tract_onnx::pb::AttributeProto::default()
        });
        assert!(function_of(&unknown).is_none());
    }

    /// Uses the reciprocal, like ONNX Runtime. A quotient gives the next float, and another byte
    /// for some scales.
    #[test]
    fn a_last_bit_is_that_of_the_runtime() {
        let softsign = function_of(&node::new("Softsign", "", &["x"], "y")).expect("a function");
        assert_eq!((0.875_f32 / 1.875).to_bits(), 1_055_846_127);
        assert_eq!(softsign(0.875).to_bits(), 1_055_846_128);
    }

    #[test]
    fn numbers_are_in_the_order_of_bytes() {
        let grid = |sign| Grid {
            sign,
            scale: 0.5,
            zero_point: 3,
        };
        let of = |sign| numbers(grid(sign)).expect("a grid");
        let unsigned = of(Sign::Unsigned);
        assert_eq!((unsigned[0], unsigned[255]), (-1.5, 126.0));
        let signed = of(Sign::Signed);
        assert_eq!(
            (signed[0], signed[127], signed[128], signed[255]),
            (-1.5, 62.0, -65.5, -2.0)
        );
    }
}

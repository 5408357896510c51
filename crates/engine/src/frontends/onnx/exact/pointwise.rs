//! Elementwise functions that the library computes inexactly, computed in float64.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::internal::*;

use crate::frontends::onnx::node_operator::{Built, same_shape};
use crate::graph::kernel::Kernel;

/// An elementwise function, computed in float64.
pub(crate) struct MappedFunction {
    /// The operator's name.
    pub(crate) name: &'static str,
    /// Two attributes with their defaults.
    attributes: [(&'static str, f32); 2],
    /// The function of a number and the attributes.
    function: fn(f64, [f64; 2]) -> f64,
}

const NO_ATTRIBUTE: (&str, f32) = ("", 0.0);

/// Functions that the library computes inexactly.
pub(crate) const MAPPED_FUNCTIONS: [MappedFunction; 5] = [
    // The library omits the factor `alpha` and loses NaN.
    MappedFunction {
        name: "Celu",
        attributes: [("alpha", 1.0), NO_ATTRIBUTE],
        function: |value, [alpha, _]| {
            if value > 0.0 || value.is_nan() {
                value
            } else {
                alpha * (value / alpha).exp_m1()
            }
        },
    },
    // The library's logarithm of `1 + e` loses a small `e`. The hyperbolic tangent of that
    // logarithm equals `e (e + 2) / (e (e + 2) + 2)`.
    MappedFunction {
        name: "Mish",
        attributes: [NO_ATTRIBUTE; 2],
        function: |value, _| {
            let exponent = value.min(40.0).exp();
            let product = exponent * (exponent + 2.0);
            value * (product / (product + 2.0))
        },
    },
    // The library computes an exponential minus one, which loses small numbers.
    MappedFunction {
        name: "Selu",
        attributes: [("alpha", 1.673_263_2), ("gamma", 1.050_701)],
        function: |value, [alpha, gamma]| {
            if value > 0.0 || value.is_nan() {
                gamma * value
            } else {
                gamma * alpha * value.exp_m1()
            }
        },
    },
    // The library rounds its bias to the input's dtype.
    MappedFunction {
        name: "Shrink",
        attributes: [("bias", 0.0), ("lambd", 0.5)],
        function: |value, [bias, lambda]| {
            if value < -lambda {
                value + bias
            } else if value > lambda {
                value - bias
            } else {
                0.0
            }
        },
    },
    // The library uses a reciprocal, which the largest numbers lack.
    MappedFunction {
        name: "Softsign",
        attributes: [NO_ATTRIBUTE; 2],
        function: |value, _| value / (1.0 + value.abs()),
    },
];

/// Builds one of [`MAPPED_FUNCTIONS`].
pub(crate) fn mapped(_: &ParsingContext<'_>, node: &NodeProto) -> Built {
    let mut rows = MAPPED_FUNCTIONS.iter();
    let row = rows.find(|row| row.name == node.op_type);
    let MappedFunction {
        name,
        attributes,
        function,
    } = row.with_context(|| format!("{} is not a known function", node.op_type))?;
    let mut parameters = [0.0; 2];
    for (parameter, (attribute, default)) in parameters.iter_mut().zip(attributes) {
        *parameter = node.get_attr_opt(attribute)?.unwrap_or(*default).into();
    }
    same_shape(*name, 1, [None; 2], move |prefix, model, inputs| {
        let fact = model.outlet_fact(inputs[0])?.without_value();
        let dtype = fact.datum_type;
        let kernel = Kernel::new(name, tvec!(fact), move |inputs| {
            let mut values = inputs[0].cast_to::<f64>()?.into_owned();
            values
                .try_as_plain_ram_mut()?
                .as_slice_mut::<f64>()?
                .iter_mut()
                .for_each(|value| *value = function(*value, parameters));
            Ok(tvec!(values.cast_to_dt(dtype)?.into_owned()))
        });
        model.wire_node(prefix, kernel, inputs)
    })
}

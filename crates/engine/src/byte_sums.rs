//! How an engine adds up products of 8-bit numbers, and which models have such products.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Operators that multiply 8-bit numbers.
const PRODUCTS: &[&str] = &[
    "ConvInteger",
    "MatMulInteger",
    "QLinearConv",
    "QLinearMatMul",
    "com.microsoft::DynamicQuantizeLSTM",
    "com.microsoft::DynamicQuantizeMatMul",
    "com.microsoft::MatMulIntegerToFloat",
    "com.microsoft::QAttention",
    "com.microsoft::QGemm",
    "com.microsoft::QLinearConv",
];

/// Operators that multiply 8-bit numbers if both of their operands are converted from 8-bit
/// numbers.
pub(super) const CONVERTED_PRODUCTS: &[&str] = &["Conv", "Gemm", "MatMul"];

/// How an engine adds up products of 8-bit numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ByteSums {
    /// In 32 bits, without loss.
    Exact,
    /// In 32 bits, after signed weights were rewritten as unsigned ones.
    UnsignedWeights,
    /// In float32: operators between conversions are not computed on bytes.
    Float32,
    /// In pairs that saturate at 16 bits.
    Saturating,
}

impl ByteSums {
    /// The name in JSON documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::UnsignedWeights => "unsigned-weights",
            Self::Float32 => "float32",
            Self::Saturating => "saturating",
        }
    }

    /// Returns `true` unless sums can saturate.
    pub fn is_exact(self) -> bool {
        self != Self::Saturating
    }

    /// Returns `true` if a model with these ONNX operators multiplies 8-bit numbers.
    pub(super) fn are_in<'a>(operators: &(impl Iterator<Item = &'a str> + Clone)) -> bool {
        let has = |names: &[&str]| operators.clone().any(|name| names.contains(&name));
        has(PRODUCTS)
            || (has(&["DequantizeLinear"]) && has(&["QuantizeLinear"]) && has(CONVERTED_PRODUCTS))
    }
}

impl fmt::Display for ByteSums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exact => "sums of 8-bit products are exact",
            Self::UnsignedWeights => {
                "sums of 8-bit products are exact: session.x64quantprecision=1, because VNNI is missing"
            }
            Self::Float32 => "sums of 8-bit products are computed in float32, because VNNI is missing",
            Self::Saturating => {
                "sums of 8-bit products saturate at 16 bits: VNNI is missing, and \
                 session.x64quantprecision is off"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_with_8_bit_products_are_recognised() {
        let has = |names: &[&str]| ByteSums::are_in(&names.iter().copied());
        assert!(has(&["Relu", "QLinearConv"]));
        assert!(has(&["QuantizeLinear", "DequantizeLinear", "MatMul"]));
        // Only weights are stored as 8-bit numbers.
        assert!(!has(&["DequantizeLinear", "MatMul"]));
        assert!(!has(&["QuantizeLinear", "DequantizeLinear", "Relu"]));
        assert!(!has(&["MatMul"]));
    }
}

//! Converts ONNX Runtime's errors to [`EngineError`].
//!
//! Its error codes are too coarse. A kernel returns `INVALID_ARGUMENT`, `RUNTIME_EXCEPTION` or just
//! a failure both for unsupported and for invalid inputs. This module therefore matches message
//! texts; each pattern quotes a message that was observed. Other messages are passed on unchanged.

use ort::ErrorCode;

use super::NAME;
use crate::EngineError;
use crate::refusal::reports_unsupported;

/// Converts the error of a failed load.
pub(super) fn of_loading<R>(error: &ort::Error<R>) -> EngineError {
    loading(error.code(), error.message())
}

/// Converts the error of a failed run.
pub(super) fn of_running(error: &ort::Error) -> EngineError {
    running(error.code(), error.message())
}

fn loading(code: ErrorCode, message: &str) -> EngineError {
    let reason = trimmed(message);
    let operators = missing_operators(&reason);
    let beyond = code == ErrorCode::NotImplemented
        || exceeds_library(&reason)
        || reports_unsupported(&reason);
    if operators.is_empty() && !beyond {
        return EngineError::Load {
            engine: NAME.to_owned(),
            reason,
        };
    }
    EngineError::Unsupported {
        engine: NAME.to_owned(),
        operators,
        reason,
    }
}

fn running(code: ErrorCode, message: &str) -> EngineError {
    let reason = trimmed(message);
    let told = place(&reason).map_or(reason.as_str(), |(_, _, rest)| rest);
    let beyond = code == ErrorCode::NotImplemented || reports_unsupported(told);
    let index = is_about_an_index(told);
    let (operator, reason) = match place(&reason) {
        Some((operator, node, rest)) => {
            let rest = trimmed(rest);
            let reason = match node {
                "" => rest,
                _ => format!("node `{node}`: {rest}"),
            };
            (Some(operator.to_owned()), reason)
        }
        None => (None, reason),
    };
    if index {
        return EngineError::Input {
            engine: NAME.to_owned(),
            operator,
            reason,
        };
    }
    if beyond {
        return EngineError::Unsupported {
            engine: NAME.to_owned(),
            operators: operator.into_iter().collect(),
            reason,
        };
    }
    EngineError::Run {
        engine: NAME.to_owned(),
        operator,
        reason,
    }
}

/// Returns `true` if a message reports an index out of range: messages of the kernels of `Gather`,
/// `GatherElements`, `ScatterElements`, `GatherND`, `ScatterND`, and of embeddings.
fn is_about_an_index(message: &str) -> bool {
    [
        "indices element out of data bounds, idx=",
        "invalid index found, index = ",
        "input index out of range",
    ]
    .iter()
    .any(|text| message.contains(text))
}

/// Returns the unsupported operators in messages such as `Could not find an implementation for
/// BitShift(11) node with name ''`, `No Op registered for Foo with domain_version of 17`, `Fatal
/// error: my.dom:Foo(-1) is not a registered function/op`.
fn missing_operators(reason: &str) -> Vec<String> {
    let name = after(reason, "Could not find an implementation for ")
        .or_else(|| after(reason, "No Op registered for "))
        .or_else(|| {
            let end = reason.find(" is not a registered function/op")?;
            reason[..end].rsplit([' ', '\n']).next()
        });
    let name = name.and_then(|name| name.split(['(', ' ', '\n']).next());
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Vec::new();
    };
    let name = match name.split_once(':') {
        Some(("" | "ai.onnx", operator)) => operator.to_owned(),
        Some((domain, operator)) => format!("{domain}::{operator}"),
        None => name.to_owned(),
    };
    vec![name]
}

/// Returns `true` if the model may be valid but exceeds this library or provider.
fn exceeds_library(reason: &str) -> bool {
    [
        "Unsupported model IR version",
        "is under development and support for this is limited",
        "fallback to CPU EP has been explicitly disabled",
        // In strict mode: a node that copies to the CPU has no provider.
        "IsNodeCompatibleWithProvider",
        "Unrecognized attribute",
    ]
    .iter()
    .any(|text| reason.contains(text))
}

/// Returns operator, node and message of `Non-zero status code returned while running MatMul node.
/// Name:'mm' Status Message: …`.
fn place(reason: &str) -> Option<(&str, &str, &str)> {
    let rest = after(reason, "Non-zero status code returned while running ")?;
    let (operator, rest) = rest.split_once(" node. Name:'")?;
    let (node, message) = rest.split_once("' Status Message: ")?;
    Some((operator, node, message))
}

fn after<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    text.split_once(start).map(|(_, rest)| rest)
}

/// Returns the message without the model's path and without the location in ONNX Runtime's source:
/// `/path/model.cc:256 onnxruntime::Model::Model(…, const …&) what happened`.
pub(super) fn trimmed(message: &str) -> String {
    let message = match message.split_once(" failed:") {
        Some((start, rest)) if start.starts_with("Load model from ") => rest,
        _ => message,
    };
    let message = ["Fatal error: ", "Exception during initialization: "]
        .iter()
        .find_map(|start| message.strip_prefix(start))
        .unwrap_or(message);
    without_source(message.trim())
        .unwrap_or(message)
        .trim()
        .to_owned()
}

fn without_source(message: &str) -> Option<&str> {
    let (place, rest) = message.split_once(' ')?;
    let (file, line) = place.rsplit_once(':')?;
    let is_place = [".cc", ".h", ".cpp"].iter().any(|end| file.ends_with(end))
        && line.bytes().all(|digit| digit.is_ascii_digit());
    if !is_place {
        return None;
    }
    // A function with its parameters may follow, and the failed condition.
    let rest = without_function(rest).unwrap_or(rest);
    let told = after(rest, " was false. ").filter(|told| !told.trim().is_empty());
    Some(told.unwrap_or(rest))
}

/// Returns the text after `void onnxruntime::Name(…, const …&) const [with T = …]`. The name may
/// continue after a parenthesis: `Outer(…)::<lambda(…)>`.
fn without_function(text: &str) -> Option<&str> {
    let open = text.find('(')?;
    if !text[..open].contains("::") {
        return None;
    }
    let mut rest = after_parenthesis(&text[open..])?;
    loop {
        rest = rest.strip_prefix('>').unwrap_or(rest);
        let Some(more) = rest.strip_prefix("::") else {
            break;
        };
        rest = after_parenthesis(&more[more.find('(')?..])?;
    }
    let rest = rest.trim_start();
    let rest = rest.strip_prefix("const ").unwrap_or(rest);
    let arguments = rest
        .strip_prefix("[with ")
        .and_then(|it| it.split_once("] "));
    Some(arguments.map_or(rest, |(_, rest)| rest))
}

/// Returns the text after the parenthesised part at the start of `text`.
fn after_parenthesis(text: &str) -> Option<&str> {
    let mut depth = 0_usize;
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return Some(&text[at + 1..]);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn unsupported(message: &str, expected: &[&str]) {
        match loading(ErrorCode::GenericFailure, message) {
            EngineError::Unsupported { operators, .. } => assert_eq!(operators, expected),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn operators_without_code_are_named() {
        unsupported(
            "Could not find an implementation for BitShift(11) node with name ''",
            &["BitShift"],
        );
        unsupported(
            "Load model from /tmp/bad.onnx failed:This is an invalid model. In Node, (\"\", Foo, \
             \"\", -1) : (\"x\": tensor(float),) -> (\"y\": tensor(float),) , Error No Op \
             registered for Foo with domain_version of 17",
            &["Foo"],
        );
        unsupported(
            "Load model from /tmp/bad.onnx failed:Fatal error: my.dom:Foo(-1) is not a registered \
             function/op",
            &["my.dom::Foo"],
        );
    }

    #[test]
    fn the_source_of_onnx_runtime_is_left_out() {
        let error = loading(
            ErrorCode::GenericFailure,
            "Load model from /tmp/bad.onnx failed:/onnxruntime_src/onnxruntime/core/graph/model.cc\
             :256 onnxruntime::Model::Model(onnx::ModelProto&&, const onnxruntime::PathString&) \
             Unsupported model IR version: 99, max supported IR version: 13\n",
        );
        assert_eq!(
            error.to_string(),
            "the ort engine cannot run the model: Unsupported model IR version: 99, max supported \
             IR version: 13"
        );
    }

    #[test]
    fn a_failed_run_names_operator_and_node() {
        let error = running(
            ErrorCode::GenericFailure,
            "Non-zero status code returned while running MatMul node. Name:'mm' Status Message: \
             matmul_helper.h:59 Compute MatMul dimension mismatch",
        );
        assert_eq!(
            error.to_string(),
            "the ort engine failed at `MatMul`: node `mm`: Compute MatMul dimension mismatch"
        );
    }

    #[test]
    fn an_index_outside_its_table_is_the_inputs_fault() {
        for (operator, told) in [
            (
                "Gather",
                "indices element out of data bounds, idx=100000 must be within the inclusive range \
                 [-64,63]",
            ),
            ("ScatterND", "invalid index found, index = 9"),
        ] {
            let message = format!(
                "Non-zero status code returned while running {operator} node. Name:'' Status \
                 Message: {told}"
            );
            let error = running(ErrorCode::InvalidArgument, &message);
            let expected = EngineError::Input {
                engine: NAME.to_owned(),
                operator: Some(operator.to_owned()),
                reason: told.to_owned(),
            };
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn rejecting_kernels_are_unsupported() {
        for (code, message, operator) in [
            (
                ErrorCode::GenericFailure,
                "Non-zero status code returned while running ConvInteger node. Name:'c' Status \
                 Message: /onnxruntime_src/onnxruntime/core/providers/cpu/quantization/\
                 conv_integer.cc:52 virtual onnxruntime::common::Status onnxruntime::ConvInteger::\
                 Compute(onnxruntime::OpKernelContext*) const \
                 IsScalarOr1ElementVector(W_Zero_Point) was false. Non per-tensor quantization is \
                 not supported now.",
                "ConvInteger",
            ),
            (
                ErrorCode::InvalidArgument,
                "Non-zero status code returned while running MaxPool node. Name:'' Status Message: \
                 Unsupported pooling size.",
                "MaxPool",
            ),
        ] {
            match running(code, message) {
                EngineError::Unsupported { operators, .. } => assert_eq!(operators, [operator]),
                other => panic!("{other}"),
            }
        }
        // A node's name comes from the model, not from the library.
        let error = running(
            ErrorCode::InvalidArgument,
            "Non-zero status code returned while running Gather node. Name:'unsupported' Status \
             Message: indices element out of data bounds, idx=5",
        );
        assert!(matches!(error, EngineError::Input { .. }), "{error}");
    }

    #[test]
    fn conditions_of_its_own_are_left_out() {
        let text = "/onnxruntime_src/onnxruntime/core/providers/webgpu/webgpu_context.cc:65 \
                    onnxruntime::webgpu::WebGpuContext::Initialize(const \
                    onnxruntime::webgpu::WebGpuContextConfig&)::<lambda()>::<lambda(wgpu::Adapter, \
                    wgpu::Adapter*)> status == wgpu::RequestAdapterStatus::Success was false. \
                    Failed to get a WebGPU adapter: No supported adapters\n";
        assert_eq!(
            trimmed(text),
            "Failed to get a WebGPU adapter: No supported adapters"
        );
    }

    #[test]
    fn other_texts_are_kept() {
        for text in ["", "what: x.cc", "x.cc:1 ", "Load model from", "a::b(c"] {
            assert_eq!(trimmed(text), text.trim());
        }
    }
}

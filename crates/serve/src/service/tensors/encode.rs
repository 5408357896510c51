//! Encodes output tensors as JSON text, written directly into one buffer.
//!
//! Invariant: decoding the text gives the same elements, bit for bit except for the payload of a
//! NaN.

use base64::Engine as _;
use half::{bf16, f16};
use serde::Serialize;

use super::Encoding;
use pkgtool_engine::tensor::{DType, Signature, Tensor};
use pkgtool_text::chat::BASE64;

/// Writes `{"outputs": [{"name", "shape", "dtype", "data"}]}`. `data` is a flat array in row-major
/// order. With [`Encoding::Base64`] it is a string, and `"encoding": "base64"` is added.
pub fn encode(signature: &Signature, outputs: &[Tensor], encoding: Encoding) -> Vec<u8> {
    let mut text = Vec::with_capacity(capacity(outputs, encoding));
    text.extend(br#"{"outputs":["#);
    for (index, tensor) in outputs.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        text.extend(br#"{"name":"#);
        match signature.outputs.get(index) {
            Some(output) => write(&mut text, &output.name),
            None => write(&mut text, &format!("output_{index}")),
        }
        text.extend(br#","shape":"#);
        write(&mut text, tensor.shape());
        text.extend(br#","dtype":"#);
        write(&mut text, tensor.dtype().name());
        match encoding {
            Encoding::Json => {
                text.extend(br#","data":["#);
                elements(&mut text, tensor);
                text.push(b']');
            }
            Encoding::Base64 => {
                text.extend(br#","encoding":"base64","data":""#);
                base64(&mut text, tensor.bytes());
                text.push(b'"');
            }
        }
        text.push(b'}');
    }
    text.extend(b"]}");
    text
}

/// Estimates the length of the text. A larger buffer would waste memory; a smaller one is copied
/// when it grows.
fn capacity(outputs: &[Tensor], encoding: Encoding) -> usize {
    let sizes = outputs.iter().map(|tensor| match encoding {
        Encoding::Json => tensor.len() * 8,
        Encoding::Base64 => tensor.bytes().len() / 3 * 4,
    });
    sizes.sum::<usize>() + 128 * (outputs.len() + 1)
}

fn write<T: Serialize + ?Sized>(text: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(text, value).expect("strings and numbers serialize into memory");
}

/// Encodes pieces of whole groups, which avoids a second buffer of the full size.
fn base64(text: &mut Vec<u8>, bytes: &[u8]) {
    const PIECE: usize = 3 << 12;
    let mut buffer = String::with_capacity(PIECE / 3 * 4 + 4);
    for piece in bytes.chunks(PIECE) {
        buffer.clear();
        BASE64.encode_string(piece, &mut buffer);
        text.extend(buffer.as_bytes());
    }
}

fn elements(text: &mut Vec<u8>, tensor: &Tensor) {
    let bytes = tensor.bytes();
    macro_rules! each {
        ($type:ty, $write:expr) => {{
            let (chunks, _) = bytes.as_chunks::<{ size_of::<$type>() }>();
            for (index, chunk) in chunks.iter().enumerate() {
                if index > 0 {
                    text.push(b',');
                }
                $write(text, &<$type>::from_le_bytes(*chunk));
            }
        }};
    }
    match tensor.dtype() {
        DType::Bool => each!(u8, |text, value: &u8| write(text, &(*value != 0))),
        DType::Int8 => each!(i8, write),
        DType::Int16 => each!(i16, write),
        DType::Int32 => each!(i32, write),
        DType::Int64 => each!(i64, write),
        DType::Uint8 => each!(u8, write),
        DType::Uint16 => each!(u16, write),
        DType::Uint32 => each!(u32, write),
        DType::Uint64 => each!(u64, write),
        DType::Float16 => each!(f16, |text, value: &f16| float32(text, value.to_f32())),
        DType::Bfloat16 => each!(bf16, |text, value: &bf16| float32(text, value.to_f32())),
        DType::Float32 => each!(f32, |text, value: &f32| float32(text, *value)),
        DType::Float64 => each!(f64, |text: &mut Vec<u8>, value: &f64| {
            if value.is_finite() {
                write(text, value);
            } else {
                special(text, value.is_nan(), *value > 0.0);
            }
        }),
    }
}

fn float32(text: &mut Vec<u8>, value: f32) {
    if value.is_finite() {
        write(text, &value);
    } else {
        special(text, value.is_nan(), value > 0.0);
    }
}

fn special(text: &mut Vec<u8>, is_nan: bool, is_positive: bool) {
    let written: &[u8] = match (is_nan, is_positive) {
        (true, _) => b"\"NaN\"",
        (false, true) => b"\"Infinity\"",
        (false, false) => b"\"-Infinity\"",
    };
    text.extend(written);
}

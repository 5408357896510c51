//! Dimensions inferred from Core ML packages in ExecuTorch payloads, and broken packages.

use pkgtool_base::source::ReadAt;
use pkgtool_model::FormatError;
use pkgtool_model::executorch::body::{ByteRange, DelegateBody, MethodBody, ProgramBody};
use pkgtool_model::executorch::{PayloadSummary, contents};

use super::delegates::{caller_of, forward};
use super::package::{
    immediate, inside, message, model, named, operation, payload, ranges, shapes, text, ty,
};
use super::{inspect, read};
use crate::counted::Counted;

/// Returns the signature of a program whose payload is a Core ML package with the bounds `[4, 8]`
/// for `x` and `y`.
///
/// `x` are the sizes that the package's program declares for its input. The first size of `y` is
/// unknown.
fn signature(array: Option<Vec<u8>>, x: &[Option<u64>]) -> String {
    let y = [None, x[1]];
    let relu = operation("relu", &[("x", "x")], named("y", ty(&y)));
    let payload = payload(&model(array, ty(x), vec![relu]));
    let sizes: [&[i32]; 2] = [&[4, 8], &[4, 8]];
    forward(&read(&caller_of("CoreMLBackend", payload, sizes, 1)))
}

#[test]
fn a_package_proves_what_its_description_and_types_say() {
    let both = |side: &str| format!("(float32[{side}]) → (float32[{side}])");
    let open = [None, Some(8)];
    for (name, array, x, expected) in [
        (
            "a range",
            Some(ranges(&[(2, 4), (8, 8)])),
            &open,
            "-1 (2 to 4), 8",
        ),
        (
            "no limit",
            Some(ranges(&[(2, u64::MAX), (8, 8)])),
            &open,
            "-1 (2 to 4), 8",
        ),
        (
            "shapes",
            Some(shapes(&[&[4, 8], &[3, 8]])),
            &open,
            "-1 (3 to 4), 8",
        ),
        // The other dimension is fixed, so this one is dynamic.
        ("nothing said", None, &open, "-1 (up to 4), 8"),
        (
            "another rank",
            Some(ranges(&[(2, 4)])),
            &open,
            "-1 (up to 4), 8",
        ),
        (
            "shapes of two ranks",
            Some(shapes(&[&[4, 8], &[3][..]])),
            &open,
            "-1 (up to 4), 8",
        ),
        // A range whose end is below its beginning is ignored.
        (
            "no range",
            Some(ranges(&[(4, 2), (8, 8)])),
            &open,
            "-1 (up to 4), 8",
        ),
        // Either dimension may be static.
        ("all unknown", None, &[None, None], "4 or -1, 8 or -1"),
        // A range in the description is ignored where the package's program fixes the size.
        (
            "contradiction",
            Some(ranges(&[(2, 4), (8, 8)])),
            &[Some(4), Some(8)],
            "-1 (up to 4), 8",
        ),
        // Sizes that differ from those of the ExecuTorch program do not link dimensions.
        (
            "other bound",
            Some(ranges(&[(2, 5), (8, 8)])),
            &open,
            "4 or -1, 8 or -1",
        ),
        (
            "other size",
            Some(ranges(&[(2, 4), (9, 9)])),
            &[None, Some(9)],
            "4 or -1, 8 or -1",
        ),
    ] {
        let found = signature(array, x);
        let expected = match name {
            // The maximum size of the result is unknown. It is linked to `x` and takes its size.
            "other bound" => format!("(float32[{expected}]) → (float32[-1 (2 to 4), 8])"),
            _ => both(expected),
        };
        assert_eq!(found, expected, "{name}");
    }
}

/// Reads the summary of a payload. The payload also serves as its own named data.
fn content(source: &dyn ReadAt) -> Result<PayloadSummary, FormatError> {
    let payload = ByteRange {
        offset: 0,
        size: source.len(),
    };
    let body = ProgramBody {
        methods: vec![MethodBody {
            name: "forward".to_owned(),
            delegates: vec![DelegateBody {
                id: "CoreMLBackend".to_owned(),
                payload: Some(payload),
            }],
            ..MethodBody::default()
        }],
        named: [("key".to_owned(), payload)].into(),
    };
    let mut found = contents(source, &body, &body.methods[0]);
    found.remove(0).expect("a payload").content
}

fn relu(dims: &[Option<u64>]) -> Vec<u8> {
    operation("relu", &[("x", "x")], named("y", ty(dims)))
}

#[test]
fn weights_that_stand_in_the_program_are_stepped_over() {
    let dims = [Some(1 << 11), Some(1 << 10)];
    let weights = immediate("w", &dims, vec![0; 8 << 20]);
    let model = model(None, ty(&dims), vec![weights, relu(&dims)]);
    let bytes = payload(&model);
    let source = Counted::new(&bytes);
    let content = content(&source).expect("a package");
    let weights: Vec<String> = content.weights.keys().map(ToString::to_string).collect();
    assert_eq!(weights, ["float32"]);
    assert_eq!(content.operators.len(), 1);
    assert!(source.read() < 128 << 10, "{} bytes", source.read());
    // Inferring dimensions reads only the program part of the package.
    let sizes: [&[i32]; 2] = [&[4, 8], &[4, 8]];
    let program = caller_of("CoreMLBackend", bytes, sizes, 1);
    let source = Counted::new(&program);
    inspect(&source).expect("a program");
    assert!(source.read() < 256 << 10, "{} bytes", source.read());
}

#[test]
fn a_package_that_is_wrong_is_told_with_its_place() {
    let fine = [Some(4), Some(8)];
    let whole = payload(&model(None, ty(&fine), vec![relu(&fine)]));
    assert!(content(&whole).is_ok());
    let replaced = |from: &str, to: &str| -> Vec<u8> {
        assert_eq!(from.len(), to.len());
        let from: Vec<u8> = from.bytes().rev().collect();
        let mut bytes = whole.clone();
        let at = bytes
            .windows(from.len())
            .position(|part| part == from)
            .expect("the bytes occur");
        let to: Vec<u8> = to.bytes().rev().collect();
        bytes[at..at + to.len()].copy_from_slice(&to);
        bytes
    };
    let mut deep = relu(&fine);
    for _ in 0..100 {
        let block = message(vec![inside(3, deep)]);
        deep = message(vec![text(1, "while_loop"), inside(4, block)]);
    }
    let open = "{\"nodes\":[{\"name\":\""
        .bytes()
        .chain(std::iter::repeat_n(b'a', 200_000));
    let nested = "[".repeat(200_000);
    let cut = model(None, ty(&fine), vec![relu(&fine)]);
    for (name, bytes, expected) in [
        (
            "a listing that never closes",
            open.collect::<Vec<u8>>().into_iter().rev().collect(),
            "Core ML payload listing at offset 0: expected a file system with an ML Program, found EOF",
        ),
        (
            "a listing that opens only",
            nested.into_bytes(),
            "Core ML payload listing at offset",
        ),
        (
            "a circle",
            replaced("{\"Data\":3}", "{\"Data\":5}"),
            "node 4 with node 5 in it",
        ),
        (
            "a file in another",
            replaced("\"offset\":0,", "\"offset\":9,"),
            "node 0 over node 1",
        ),
        (
            "a file past the end",
            br#"{"nodes":[{"name":"a","dataRegion":{"offset":18446744073709551615,"size":2}}]}"#
                .iter()
                .rev()
                .copied()
                .collect(),
            "node 0 beyond the payload's end",
        ),
        (
            "blocks in blocks",
            payload(&model(None, ty(&fine), vec![deep])),
            "Core ML operation at offset",
        ),
        (
            "a cut message",
            payload(&cut[..cut.len() - 3]),
            "Core ML model at offset",
        ),
        (
            "a name without end",
            payload(&model(
                None,
                ty(&fine),
                vec![operation(&"a".repeat(70_000), &[], named("y", ty(&fine)))],
            )),
            "Core ML operation at offset",
        ),
        (
            "a payload that names itself",
            br#"CMJR{"key":"key","functionName":"main"}"#.to_vec(),
            "Core ML payload listing at offset 0",
        ),
        (
            "a payload that names nothing",
            br#"CMJR{"key":"other","functionName":"main"}"#.to_vec(),
            "Core ML payload at offset 0: expected a file system with an ML Program, found `other`",
        ),
    ] {
        let error = content(&bytes).expect_err(name).to_string();
        assert!(error.contains(expected), "{name}: {error}");
        assert!(error.contains("at offset"), "{name}: {error}");
    }
}

#[test]
fn huge_shapes_are_no_weights() {
    let huge = [Some(u64::MAX), Some(u64::MAX), None];
    let constant = immediate("w", &huge, vec![0; 4]);
    let model = model(None, ty(&huge), vec![constant, relu(&huge)]);
    let content = content(&payload(&model)).expect("a package");
    assert!(content.weights.is_empty());
}

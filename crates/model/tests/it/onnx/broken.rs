//! ONNX files broken by hand: each error names its place and offset.

use pkgtool_base::source::Pages;
use pkgtool_model::onnx;

use super::{bytes, inspect};
use pkgtool_testing::onnx::{external, head, int, model, part, typed, value, varint};

#[track_caller]
fn refuses(bytes: &[u8], message: &str, offset: Option<u64>) {
    let error = inspect(bytes).expect_err("broken");
    assert_eq!(error.to_string(), message);
    assert_eq!(error.offset(), offset);
}

#[test]
fn no_graph() {
    refuses(&[], "ModelProto.graph is missing", None);
    refuses(&int(1, 10), "ModelProto.graph is missing", None);
}

#[test]
fn other_files() {
    refuses(
        b"hello, this is no model",
        "ModelProto.field 13 at offset 2: unsupported wire type 4",
        Some(2),
    );
    refuses(
        b"version https://git-lfs.github.com/spec/v1\n",
        "ModelProto.metadata_props[0] at offset 0: unsupported wire type 6",
        Some(0),
    );
    refuses(
        &[0; 100],
        "ModelProto at offset 0: expected a field number from 1 to 536870911, found 0",
        Some(0),
    );
}

#[test]
fn lengths_past_the_end() {
    let input = [part(1, &[b"x"]), head(2, 50)].concat();
    refuses(
        &model(&[&value(11, "a"), &part(11, &[&input])]),
        "ModelProto.graph.input[1].type at offset 16: needs 50 bytes, but the enclosing message \
         has 0 left",
        Some(16),
    );
    refuses(
        &head(7, u64::MAX),
        "ModelProto.graph at offset 11: needs 18446744073709551615 bytes, but the enclosing message \
         has 0 left",
        Some(11),
    );
}

#[test]
fn truncated_files() {
    let whole = bytes("mlp");
    for size in 0..whole.len() {
        // A truncated file usually lacks a part of the graph or of the fields after it. A cut
        // between the last fields leaves a valid model with fewer properties.
        if let Err(error) = inspect(&whole[..size]) {
            assert!(error.to_string().starts_with("ModelProto"), "{error}");
        }
    }
    refuses(
        &whole[..300],
        "ModelProto.graph at offset 58: needs 367 bytes, but the enclosing message has 242 left",
        Some(58),
    );
}

#[test]
fn bad_varints() {
    refuses(
        &[vec![0x08], vec![0xff; 11]].concat(),
        "ModelProto.ir_version at offset 1: expected a varint, found one longer than 64 bits",
        Some(1),
    );
    refuses(
        &[&[0x08][..], &[0xff; 9], &[0x02]].concat(),
        "ModelProto.ir_version at offset 1: expected a varint, found one longer than 64 bits",
        Some(1),
    );
    refuses(
        &[0x08, 0xff, 0xff],
        "ModelProto.ir_version at offset 1: expected a varint, found the end of the message after \
         2 bytes",
        Some(1),
    );
    refuses(
        &[0x08, 0x0a, 0x25, 1, 2],
        "ModelProto.domain at offset 3: expected 4 bytes, found the end of the message after 2 \
         bytes",
        Some(3),
    );
}

#[test]
fn wrong_wire_types() {
    refuses(
        &[int(1, 10), int(7, 3)].concat(),
        "ModelProto.graph at offset 2: expected a length-delimited value, found a varint",
        Some(2),
    );
    refuses(
        &model(&[&part(5, &[&part(2, &[b"no"])])]),
        "ModelProto.graph.initializer[0].data_type at offset 6: expected a varint, found a \
         length-delimited value",
        Some(6),
    );
    refuses(
        &[int(1, 10), varint(7 << 3 | 3)].concat(),
        "ModelProto.graph at offset 2: unsupported wire type 3",
        Some(2),
    );
}

#[test]
fn repeated_messages() {
    let twice = [part(7, &[]), part(7, &[])].concat();
    refuses(
        &twice,
        "ModelProto.graph at offset 2: expected the field once, found it a second time",
        Some(2),
    );
}

#[test]
fn bad_names() {
    refuses(
        &model(&[&part(11, &[&part(1, &[b"ab\xff"])])]),
        "ModelProto.graph.input[0].name at offset 10: expected UTF-8 text, found byte 0xff",
        Some(10),
    );
    refuses(
        &model(&[&value(11, &"x".repeat(70_000))]),
        "ModelProto.graph.input[0].name at offset 14: expected at most 65536 bytes of text, found \
         70000",
        Some(14),
    );
    refuses(
        &model(&[&part(1, &[&part(2, &[b"y"])])]),
        "ModelProto.graph.node[0].op_type is missing",
        Some(4),
    );
}

#[test]
fn outputs_that_nothing_makes() {
    let operator = [part(4, &[b"Made"]), part(7, &[b"com.microsoft"])].concat();
    let node = part(1, &[&part(2, &[b"y"]), &part(2, &[]), &operator]);
    inspect(&model(&[&value(12, "y"), &node])).expect("made by a node");
    inspect(&model(&[&value(12, "x"), &typed(11, "x")])).expect("an input");
    let stored = part(5, &[&part(8, &[b"w"]), &int(2, 8)]);
    inspect(&model(&[&value(12, "w"), &stored])).expect("an initializer");
    refuses(
        &model(&[&node, &value(12, "y"), &value(12, "z")]),
        "ModelProto.graph.output[1] at offset 37: nothing in the graph defines the output \"z\"",
        Some(37),
    );
    let error = inspect(&model(&[&node, &value(12, "")])).expect_err("an empty name");
    assert!(error.to_string().ends_with("defines the output \"\""));
}

#[test]
fn bad_external_data() {
    refuses(
        &model(&[&external(&[("offset", "0")])]),
        "ModelProto.graph.initializer[0].external_data.location is missing",
        Some(4),
    );
    refuses(
        &model(&[&external(&[("location", "w"), ("offset", "-4")])]),
        "ModelProto.graph.initializer[0].external_data[1] at offset 23: expected a number of bytes \
         as \"offset\", found \"-4\"",
        Some(23),
    );
    let huge = [
        ("location", "w"),
        ("offset", "2"),
        ("length", "18446744073709551615"),
    ];
    refuses(
        &model(&[&external(&huge)]),
        "ModelProto.graph.initializer[0] at offset 4: the end of its external data does not fit 64 \
         bits",
        Some(4),
    );
    let many: Vec<u8> = (0..5000)
        .flat_map(|i| external(&[("location", &i.to_string())]))
        .collect();
    let error = inspect(&model(&[&many])).expect_err("too many");
    assert!(
        error
            .to_string()
            .ends_with("tensors in more than 4096 external files"),
        "{error}"
    );
}

/// `levels` nodes, each in a graph attribute of the previous one. Built from the inside out and
/// back to front, so that it takes linear time.
fn nested(levels: usize) -> Vec<u8> {
    let operator = [part(4, &[b"If"]), part(7, &[b"com.microsoft"])].concat();
    let mut reversed = Vec::new();
    let mut wrap = |number, extra: &[u8]| {
        reversed.extend(extra.iter().rev());
        let head = head(number, reversed.len() as u64);
        reversed.extend(head.iter().rev());
    };
    for _ in 0..levels {
        wrap(6, &[]);
        wrap(5, &[]);
        wrap(1, &operator);
    }
    wrap(7, &[]);
    reversed.reverse();
    [reversed, int(1, 10), part(8, &[&int(2, 18)])].concat()
}

#[test]
fn deep_nesting() {
    let error = inspect(&nested(10_000)).expect_err("too deep").to_string();
    assert!(
        error.starts_with("ModelProto.graph.node[0].attribute[0].g.node[0].…"),
        "{error}"
    );
    assert!(error.ends_with("more than 32 nested graphs"), "{error}");
    let info = inspect(&nested(31)).expect("deep enough");
    assert_eq!(info.methods[0].operators["com.microsoft::If"], 31);
    inspect(&nested(32)).expect_err("one too deep");
}

#[test]
fn too_many_reads() {
    let fields = int(99, 1).repeat(500_001);
    let pages = Pages::with_budget(&fields, 1_000_000);
    let error = onnx::read(&pages).expect_err("out of budget");
    assert!(
        error
            .to_string()
            .starts_with("ModelProto: the header is too large: more than 1000000 reads at offset"),
        "{error}"
    );
}

#[test]
fn ten_million_unknown_fields() {
    let fields = [0x78, 1].repeat(10_000_000);
    let error = inspect(&fields).expect_err("out of budget");
    assert!(
        error.to_string().contains("more than 20000000 reads"),
        "{error}"
    );
}

#[test]
fn too_much_to_keep() {
    let name = "n".repeat(60_000);
    let inputs = value(11, &name).repeat(600);
    let error = inspect(&model(&[&inputs])).expect_err("too much");
    assert!(
        error
            .to_string()
            .ends_with("names, shapes and properties take more than 33554432 bytes"),
        "{error}"
    );
    assert!(error.offset().is_some());
}

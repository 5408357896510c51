//! Broken ExecuTorch programs: each violated invariant yields an error that names the place, the
//! expected and the actual value.

use pkgtool_model::executorch::ExecuTorchFormat;
use pkgtool_model::{ElementType, ModelFormat, TensorInfo, ValueKind};
use std::path::Path;

use super::{bytes_of, error, read};
use pkgtool_testing::program::{
    OffsetTarget, ProgramField, ProgramPlan, byte, constant, file, int, integer, ints, long,
    program,
};
use pkgtool_testing::program::{method, tables, tensor, text, value};

/// Returns the error message of a program with this single method.
fn message(plan: &ProgramPlan) -> String {
    error(&file(&program(vec![plan.node()]))).to_string()
}

/// Asserts the beginning of a message, without its offset.
#[track_caller]
fn starts(message: &str, path: &str, rest: &str) {
    let (found, tail) = message.split_once(" at offset ").expect("an offset");
    assert_eq!(found, path);
    let (_, tail) = tail.split_once(": ").expect("an expectation");
    assert_eq!(tail, rest);
}

fn patched(name: &str, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = bytes_of(name);
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

#[test]
fn other_files_are_named_for_what_they_are() {
    let other = "not an ExecuTorch program: expected identifier ET12 at offset 4, found ";
    for (bytes, found) in [
        (&b""[..], "an empty file"),
        (b"abc", "a file of 3 bytes"),
        (&[0; 40], "zero bytes"),
        (b"<!DOCTYPE html><html>", "an HTML page"),
        (b"PK\x03\x04\x14\0\0\0\x08\0", "a ZIP archive"),
        (
            b"\x20\0\0\0FT01\0\0\0\0",
            "FT01, tensor data (.ptd) without a program",
        ),
        (
            b"version https://git-lfs.github.com/spec/v1",
            "a Git LFS pointer",
        ),
        (b"{\"version\": 1}", "a JSON text"),
        (b"\x08\x07\x12\x07pytorch:", "70 79 74 6f (pyto)"),
    ] {
        let broken = error(bytes);
        assert_eq!(broken.to_string(), format!("{other}{found}"));
        assert_eq!(broken.offset(), Some(4));
    }
    let version = "unsupported version of an ExecuTorch program: expected identifier ";
    let newer = error(b"\x20\0\0\0ET13\0\0\0\0").to_string();
    assert_eq!(newer, format!("{version}ET12 at offset 4, found ET13"));
    let bundle = error(b"\x20\0\0\0BP09\0\0\0\0").to_string();
    assert_eq!(bundle, format!("{version}BP08 at offset 4, found BP09"));
}

#[test]
fn a_format_is_matched_by_name_or_magic() {
    let matches = |path: &str, first: &[u8]| ExecuTorchFormat.matches(Path::new(path), first);
    assert!(matches("model.pte", b""));
    assert!(matches("model.BPTE", b"junk"));
    assert!(matches("model", b"\0\0\0\0ET99"));
    assert!(matches("model", b"\0\0\0\0BP08 and more"));
    assert!(!matches("model.onnx", b"\0\0\0\0ETxx"));
    assert!(!matches("pte", b"ET12"));
}

#[test]
fn a_lying_header_is_caught() {
    let name = "add_linear_xnnpack_fp32.pte";
    let cases: [(usize, &[u8], &str); 5] = [
        (
            12,
            &[23],
            "Program header.length at offset 12: expected an extended header of at least 24 bytes, \
             found a length of 23",
        ),
        (
            16,
            &[0xff; 8],
            "Program header.program_size at offset 16: expected a FlatBuffer of 32 to 2576 bytes, \
             found a program size of 18446744073709551615",
        ),
        (
            24,
            &[64, 0],
            "Program header.segment_base_offset at offset 24: expected segments to begin after the \
             program's 1344 bytes, found a base offset of 64",
        ),
        (
            32,
            &[0xff; 8],
            "the file is truncated: Program header.segment_data_size at offset 32 declares segment \
             data of 18446744073709551615 bytes from 1408, so expected at least \
             18446744073709553023 bytes, found 2576",
        ),
        (
            0,
            &[0xff; 4],
            "Program at offset 0: expected an offset to a place inside the FlatBuffer, which ends at \
             1344; found 4294967295",
        ),
    ];
    for (at, bytes, message) in cases {
        let broken = error(&patched(name, at, bytes));
        assert_eq!(broken.to_string(), message);
        assert_eq!(broken.offset(), Some(at as u64));
    }
}

#[test]
fn a_truncated_file_is_called_so() {
    let mut bytes = bytes_of("add_linear_xnnpack_fp32.pte");
    bytes.pop();
    let message = error(&bytes).to_string();
    assert!(message.starts_with("the file is truncated: "), "{message}");
    assert!(
        message.ends_with("expected at least 2576 bytes, found 2575"),
        "{message}"
    );
    // An older header does not declare the size of the data; the segments still do.
    bytes[12] = 24;
    starts(
        &error(&bytes).to_string(),
        "Program.segments[3]",
        "expected the segment to end inside the program's 2575 bytes, found 16 bytes at 1152 from \
         base 1408",
    );
    // A complete file with an older header is valid.
    let older = patched("add_linear_xnnpack_fp32.pte", 12, &[24]);
    assert_eq!(read(&older).methods.len(), 1);
}

#[test]
fn a_bundle_holds_a_program() {
    let name = "bundled_program.bpte";
    let broken = error(&patched(name, 0x44, b"FT01"));
    let message = "not an ExecuTorch program: expected identifier ET12 at offset 68, found FT01, \
                   tensor data (.ptd) without a program";
    assert_eq!(broken.to_string(), message);
    assert_eq!(broken.offset(), Some(68));
    let message = error(&patched(name, 0x58, &[0xff; 4])).to_string();
    let place = "BundledProgram.program header.segment_data_size at offset 96";
    assert!(message.contains(place), "{message}");
}

#[test]
fn the_sizes_of_an_unbounded_tensor_mean_nothing() {
    let plan = ProgramPlan {
        name: "forward",
        values: vec![tensor(&[i32::MAX; 2], 2)],
        inputs: vec![0],
        ..ProgramPlan::default()
    };
    let info = read(&file(&program(vec![plan.node()])));
    let shape = info.methods[0].inputs[0]
        .tensor()
        .and_then(TensorInfo::config_shape);
    assert_eq!(shape, Some(vec![-1; 2]));
}

#[test]
fn vtables_are_checked() {
    let name = "add_linear_portable.pte";
    let at = 60;
    let message = error(&patched(name, at, &i32::MIN.to_le_bytes())).to_string();
    assert_eq!(
        message,
        "Program at offset 60: expected a vtable inside the FlatBuffer, found a distance of \
         -2147483648"
    );
    let bytes = bytes_of(name);
    let distance = i32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let vtable = at - usize::try_from(distance).expect("an exporter writes vtables first");
    let message = error(&patched(name, vtable, &[3, 0])).to_string();
    let rest = "expected a vtable of an even size and a table, of at least 4 bytes each, inside the \
                FlatBuffer; found 3 and ";
    assert!(
        message.starts_with(&format!("Program at offset 60: {rest}")),
        "{message}"
    );
    let message = error(&patched(name, vtable + 6, &[0xf0, 0xff])).to_string();
    assert!(
        message.starts_with("Program.execution_plan at offset "),
        "{message}"
    );
    assert!(
        message.contains("expected a field of 4 bytes inside a table of "),
        "{message}"
    );
    assert!(message.ends_with("found it at 65520"), "{message}");
}

#[test]
fn vectors_and_strings_cannot_lie() {
    let root = OffsetTarget::Table(vec![(1, ProgramField::To(OffsetTarget::Lie(u32::MAX)))]);
    let message = error(&file(&root)).to_string();
    let rest = "expected a vector of at most 0 elements, found a length of 4294967295";
    starts(&message, "Program.execution_plan", rest);

    let lie = |length| OffsetTarget::Table(vec![(0, ProgramField::To(OffsetTarget::Lie(length)))]);
    let message = error(&file(&program(vec![lie(9)]))).to_string();
    let rest = "expected a string of at most 0 bytes, found a length of 9";
    starts(&message, "Program.execution_plan[0].name", rest);

    let bytes = OffsetTarget::Bytes(vec![b'f', 0xff]);
    let named = OffsetTarget::Table(vec![(0, ProgramField::To(bytes))]);
    let message = error(&file(&program(vec![named]))).to_string();
    let rest = "expected UTF-8 text, found an invalid byte after 1 bytes";
    starts(&message, "Program.execution_plan[0].name", rest);
    let message = error(&file(&program(vec![OffsetTarget::Table(Vec::new())]))).to_string();
    let rest = "expected the field to be present, found none";
    starts(&message, "Program.execution_plan[0].name", rest);
}

#[test]
fn values_are_checked_whether_used_or_not() {
    let path = "Program.execution_plan[0].values[0]";
    let with = |value: OffsetTarget| ProgramPlan {
        name: "forward",
        values: vec![value],
        ..ProgramPlan::default()
    };
    let unknown = message(&with(value(12, Vec::new())));
    starts(
        &unknown,
        &format!("{path}.val_type"),
        "expected a union type of 1 to 11, found 12",
    );
    let negative = message(&with(tensor(&[2, -3], 0)));
    starts(
        &negative,
        &format!("{path}.val.sizes[1]"),
        "expected a size of at least 0, found -3",
    );
    let deep = message(&with(tensor(&[1; 65], 0)));
    starts(
        &deep,
        &format!("{path}.val.sizes"),
        "expected at most 64 dimensions, found 65",
    );
    let large = message(&with(tensor(&[i32::MAX; 3], 0)));
    let rest =
        "expected a tensor whose size fits 64 bits, found [2147483647, 2147483647, 2147483647]";
    starts(&large, &format!("{path}.val.sizes"), rest);
    let dynamism = message(&with(tensor(&[1], 3)));
    starts(
        &dynamism,
        &format!("{path}.val.shape_dynamism"),
        "expected a value of 0 to 2, found 3",
    );
    let homeless = message(&with(value(5, vec![(5, int(7))])));
    let rest = "expected an index below 0 (constants), found 7";
    starts(&homeless, &format!("{path}.val.data_buffer_idx"), rest);
}

#[test]
fn element_types_without_a_dtype_are_named_and_unknown_ones_refused() {
    let plan = |code| {
        let table = vec![(0, byte(code)), (2, ints(&[2]))];
        constant("get", value(5, table))
    };
    for (code, name) in [(27, "uint16"), (12, "qint8")] {
        let info = read(&file(&program(vec![plan(code)])));
        let found = info.methods[0].outputs[0].tensor().expect("a tensor");
        assert_eq!(found.element, ElementType::Other(name.to_owned()));
    }
    starts(
        &error(&file(&program(vec![plan(42)]))).to_string(),
        "Program.execution_plan[0].values[0].val.scalar_type",
        "expected a value of 0 to 29, found 42",
    );
}

#[test]
fn every_index_is_checked() {
    let plan = |inputs: &[i32], calls: Vec<(u32, Vec<i32>)>| ProgramPlan {
        name: "forward",
        values: vec![integer(1)],
        inputs: inputs.to_vec(),
        operators: vec!["aten::add.out"],
        calls,
        ..ProgramPlan::default()
    };
    let path = "Program.execution_plan[0]";
    let call = format!("{path}.chains[0].instructions[0].instr_args");
    let input = message(&plan(&[0, -1], Vec::new()));
    let rest = "expected an index below 1 (values), found -1";
    starts(&input, &format!("{path}.inputs[1]"), rest);
    let operator = message(&plan(&[], vec![(1, Vec::new())]));
    let rest = "expected an index below 1 (operators), found 1";
    starts(&operator, &format!("{call}.op_index"), rest);
    let argument = message(&plan(&[], vec![(0, vec![0, 5])]));
    let rest = "expected an index below 1 (values), found 5";
    starts(&argument, &format!("{call}.args[1]"), rest);
}

#[test]
fn segments_lie_in_order_inside_the_file() {
    let segment = |offset, size| OffsetTarget::Table(vec![(0, long(offset)), (1, long(size))]);
    let root = |segments| OffsetTarget::Table(vec![(4, tables(segments))]);
    let message = error(&file(&root(vec![segment(0, 9)]))).to_string();
    assert!(
        message.starts_with("Program.segments[0] at offset "),
        "{message}"
    );
    assert!(
        message.ends_with("found 9 bytes at 0 from base 0"),
        "{message}"
    );
    let message = error(&file(&root(vec![segment(8, 0), segment(4, 0)]))).to_string();
    let rest = "expected segments sorted by offset, found 4 after 8";
    starts(&message, "Program.segments[1].offset", rest);

    let named = OffsetTarget::Table(vec![(0, text("key")), (1, int(3))]);
    let root = OffsetTarget::Table(vec![(7, tables(vec![named]))]);
    let message = error(&file(&root)).to_string();
    let rest = "expected an index below 0 (segments), found 3";
    starts(&message, "Program.named_data[0].segment_index", rest);
}

#[test]
fn delegates_refer_to_payloads_that_exist() {
    let delegate = |location, index| {
        let data = OffsetTarget::Table(vec![(0, byte(location)), (1, int(index))]);
        let specs = (2, tables(Vec::new()));
        let delegate = vec![
            (0, text("XnnpackBackend")),
            (1, ProgramField::To(data)),
            specs,
        ];
        let delegates = tables(vec![OffsetTarget::Table(delegate)]);
        method(vec![(0, text("forward")), (7, delegates)])
    };
    let path = "Program.execution_plan[0].delegates[0].processed";
    let segment = error(&file(&program(vec![delegate(1, 2)]))).to_string();
    let rest = "expected an index below 0 (segments), found 2";
    starts(&segment, &format!("{path}.index"), rest);
    let location = error(&file(&program(vec![delegate(2, 0)]))).to_string();
    starts(
        &location,
        &format!("{path}.location"),
        "expected a value of 0 to 1, found 2",
    );

    let payload = OffsetTarget::Table(vec![(
        0,
        ProgramField::To(OffsetTarget::Bytes(vec![7; 33])),
    )]);
    let root = OffsetTarget::Table(vec![
        (1, tables(vec![delegate(0, 0)])),
        (3, tables(vec![payload])),
    ]);
    let info = read(&file(&root));
    assert_eq!(info.methods[0].delegates[0].payload_bytes, Some(33));
}

#[test]
fn method_names_are_unique() {
    let method = || constant("get", integer(1));
    let broken = error(&file(&program(vec![method(), method()])));
    let rest = "expected a unique method name, found \"get\" again";
    starts(&broken.to_string(), "Program.execution_plan[1].name", rest);
}

#[test]
fn long_texts_are_cut_between_characters() {
    let long = format!("a{}", "é".repeat(40_000));
    let method = constant("get", value(6, vec![(0, text(&long))]));
    let info = read(&file(&program(vec![method])));
    let ValueKind::String(found) = &info.methods[0].outputs[0].kind else {
        panic!("a string");
    };
    assert_eq!(found.len(), 64 * 1024 - 1);
    assert!(long.starts_with(found));
}

#[test]
fn lists_and_absent_values_are_named_by_kind() {
    let values = vec![
        value(1, Vec::new()),
        value(
            7,
            vec![(0, ProgramField::To(OffsetTarget::Longs(Vec::new())))],
        ),
        value(
            8,
            vec![(0, ProgramField::To(OffsetTarget::Longs(Vec::new())))],
        ),
        value(
            9,
            vec![(0, ProgramField::To(OffsetTarget::Bytes(Vec::new())))],
        ),
        value(10, vec![(0, ints(&[]))]),
        value(11, vec![(0, ints(&[]))]),
    ];
    let plan = ProgramPlan {
        name: "forward",
        values,
        inputs: (0..6).collect(),
        ..ProgramPlan::default()
    };
    let info = read(&file(&program(vec![plan.node()])));
    let kinds = info.methods[0]
        .inputs
        .iter()
        .map(|value| match &value.kind {
            ValueKind::None => "none",
            ValueKind::Other(kind) => kind.as_str(),
            _ => "unexpected",
        });
    let expected = [
        "none",
        "int_list",
        "double_list",
        "bool_list",
        "tensor_list",
        "optional_tensor_list",
    ];
    assert!(kinds.eq(expected));
    assert!(!info.methods[0].constant);
}

#[test]
fn what_a_device_refuses_is_refused() {
    let path = "Program.execution_plan[0].values[0].val";
    let refused = |fields: Vec<(u16, ProgramField)>, memory: i64, place: &str, rest: &str| {
        let plan = method(vec![
            (0, text("forward")),
            (2, tables(vec![value(5, fields)])),
            (8, ProgramField::To(OffsetTarget::Longs(vec![0, memory]))),
        ]);
        starts(&error(&file(&program(vec![plan]))).to_string(), place, rest);
    };
    let sized = |more: Vec<(u16, ProgramField)>| {
        let mut fields = vec![(0, byte(6)), (2, ints(&[2, 3]))];
        fields.extend(more);
        fields
    };
    let order = |order: &[u8]| (3, ProgramField::To(OffsetTarget::Bytes(order.to_vec())));
    let layout = "expected a storage offset of 0 and a dimension order that names each dimension once, \
                  found an offset of ";
    let place = format!("{path}.dim_order");
    refused(
        sized(vec![order(&[0, 0])]),
        64,
        &place,
        &format!("{layout}0"),
    );
    refused(sized(vec![order(&[0])]), 64, &place, &format!("{layout}0"));
    refused(
        sized(vec![order(&[1, 2])]),
        64,
        &place,
        &format!("{layout}0"),
    );
    refused(sized(vec![(1, int(4))]), 64, &place, &format!("{layout}4"));
    let at = |memory, low| {
        let fields = vec![(0, int(memory)), (1, int(low))];
        sized(vec![(6, ProgramField::To(OffsetTarget::Table(fields)))])
    };
    let place = format!("{path}.allocation_info");
    let rest = "expected 24 bytes at 48 inside planned memory 1, found 64 bytes in it";
    refused(at(1, 48), 64, &place, rest);
    let rest = "expected 24 bytes at 0 inside planned memory 2, found no such memory";
    refused(at(2, 0), 64, &place, rest);
    let rest = "expected a size of at least 0, found -64";
    let place = "Program.execution_plan[0].non_const_buffer_sizes[1]";
    refused(at(1, 0), -64, place, rest);
    let plan = method(vec![
        (0, text("forward")),
        (2, tables(vec![value(5, at(1, 40))])),
        (8, ProgramField::To(OffsetTarget::Longs(vec![0, 64]))),
    ]);
    assert_eq!(read(&file(&program(vec![plan]))).methods.len(), 1);
}

#[test]
fn a_flatbuffer_is_verified_as_a_device_does() {
    let bytes = bytes_of("add_linear_portable.pte");
    let name = b"aten::add\0";
    let at = bytes.windows(name.len()).position(|it| it == name);
    let end = at.expect("the name occurs") + name.len() - 1;
    let message = error(&patched("add_linear_portable.pte", end, b"x")).to_string();
    let (place, rest) = message.split_once(" at offset ").expect("an offset");
    assert!(
        place.contains(".operators[") && place.split('.').next_back() == Some("name"),
        "{place}"
    );
    let rest = rest.split_once(": ").map(|(_, rest)| rest);
    assert_eq!(
        rest,
        Some("expected a zero byte after the string, found another byte")
    );

    // A version at an unaligned offset. The reader never reads it here.
    let field = ProgramField::Scalar(vec![7]);
    let shifted = OffsetTarget::Table(vec![(9, field), (1, tables(Vec::new()))]);
    let mut bytes = file(&shifted);
    let root = usize::from(bytes[0]);
    let vtable = root - usize::from(bytes[root]);
    bytes[vtable + 4..vtable + 6].copy_from_slice(&[5, 0]);
    let message = error(&bytes).to_string();
    let rest = "expected a multiple of 4 from the FlatBuffer's beginning, found ";
    assert!(
        message.starts_with("Program.version at offset "),
        "{message}"
    );
    assert!(message.contains(rest), "{message}");
}

//! Core ML models broken by hand: each yields an error that names the problem and its place.

use std::fs;

use pkgtool_model::{self as model, OpenError};

use super::inspect;
use pkgtool_testing::coreml::{Folder, MODEL, WEIGHTS};
use pkgtool_testing::onnx::{head, int, part};

/// Returns the error of opening a folder.
fn said(folder: &Folder) -> String {
    let opened = model::open(&folder.root());
    opened.expect_err("the file is broken").to_string()
}

/// Returns the error of reading a file.
fn said_of(bytes: impl Into<Vec<u8>>) -> String {
    inspect(&bytes.into())
        .expect_err("the file is broken")
        .to_string()
}

/// A model with an empty description and a program of one function with these operations.
fn program(operations: &[&[u8]]) -> Vec<u8> {
    let operations: Vec<Vec<u8>> = operations.iter().map(|one| part(3, &[one])).collect();
    let block = part(2, &[&operations.concat()]);
    let function = [
        part(2, &[b"CoreML5"]),
        part(3, &[&part(1, &[b"CoreML5"]), &block]),
    ]
    .concat();
    let entry = part(2, &[&part(1, &[b"main"]), &part(2, &[&function])]);
    [int(1, 7), part(2, &[]), part(502, &[&entry])].concat()
}

#[test]
fn manifests_are_held_to_what_they_should_say() {
    let folder = Folder::of("mlp_fp32");
    fs::remove_file(folder.path("Manifest.json")).expect("the file exists");
    assert!(said(&folder).contains("`Manifest.json`: expected a JSON object, found No such file"));

    folder.write("Manifest.json", "{\"itemInfoEntries\": [");
    assert!(said(&folder).contains("`Manifest.json`: expected a JSON object, found "));

    folder.write("Manifest.json", vec![b' '; (1 << 20) + 1]);
    assert!(said(&folder).contains("found more than 1048576 bytes"));

    let folder = Folder::of("mlp_fp32");
    folder.change_manifest("rootModelIdentifier\": \"0", "rootModelIdentifier\": \"1");
    assert!(said(&folder).contains("expected an entry for its rootModelIdentifier"));

    for (to, expected) in [
        ("../../m.mlmodel", "which leaves the package root"),
        ("/etc/passwd", "which is an absolute path"),
        ("file:///etc/passwd", "which is a URL"),
        ("", "which is empty"),
        ("com.apple.CoreML/none.mlmodel", "which does not exist"),
    ] {
        let folder = Folder::of("mlp_fp32");
        folder.change_manifest("com.apple.CoreML/model.mlmodel", to);
        let said = said(&folder);
        assert!(
            said.contains(&format!("`Manifest.json` names `{to}`, {expected}")),
            "{said}"
        );
    }

    let folder = Folder::of("mlp_fp32");
    folder.change_manifest("com.apple.CoreML/weights", "../outside");
    let said = said(&folder);
    assert!(
        said.contains("names `../outside`, which leaves the package root"),
        "{said}"
    );
}

#[test]
fn weights_are_held_against_the_program() {
    let folder = Folder::of("mlp_fp32");
    let whole = folder.bytes(WEIGHTS);

    // The last element is missing.
    folder.write(WEIGHTS, &whole[..whole.len() - 64]);
    let text = said(&folder);
    assert!(text.contains(&format!("`{WEIGHTS}`: ")), "{text}");

    // A record's offset lies beyond the file.
    let mut far = whole.clone();
    far[64 + 16..64 + 24].copy_from_slice(&u64::MAX.to_le_bytes());
    folder.write(WEIGHTS, &far);
    let text = said(&folder);
    assert!(
        text.contains("Core ML weight record at offset 64"),
        "{text}"
    );

    // A record with fewer bytes than the program reads.
    let mut short = whole.clone();
    short[64 + 8..64 + 16].copy_from_slice(&4_u64.to_le_bytes());
    folder.write(WEIGHTS, &short);
    let text = said(&folder);
    assert!(
        text.contains("weight record at offset 64: expected") && text.contains("found 4"),
        "{text}"
    );

    // A record of another type.
    let mut other = whole.clone();
    other[64 + 4] = 1;
    folder.write(WEIGHTS, &other);
    let text = said(&folder);
    assert!(text.contains("expected float32, found float16"), "{text}");

    // No record at all: only zeros.
    folder.write(WEIGHTS, vec![0; whole.len()]);
    let text = said(&folder);
    assert!(text.contains("0xDEADBEEF"), "{text}");

    fs::remove_file(folder.path(WEIGHTS)).expect("the file exists");
    let text = said(&folder);
    assert!(
        text.contains("`model` names `@model_path/weights/weight.bin`, which does not exist"),
        "{text}"
    );
}

#[test]
#[cfg(unix)]
fn links_out_of_the_folder_are_refused() {
    let folder = Folder::of("mlp_fp32");
    let outside = folder.root().with_file_name("weight.bin");
    fs::rename(folder.path(WEIGHTS), &outside).expect("a file");
    std::os::unix::fs::symlink(&outside, folder.path(WEIGHTS)).expect("a link");
    let text = said(&folder);
    assert!(
        text.contains("`weights/weight.bin` is a link out of the package"),
        "{text}"
    );

    // A download cache contains links for all files; the targets lie in one directory.
    fs::write(folder.root().with_file_name(".gitattributes"), "").expect("a download's root");
    let model = folder.root().with_file_name("model.mlmodel");
    fs::rename(folder.path(MODEL), &model).expect("a file");
    std::os::unix::fs::symlink(&model, folder.path(MODEL)).expect("a link");
    let (info, size) = model::open(&folder.root()).expect("all of it is there");
    assert_eq!(info.weight_bytes, 832);
    assert_eq!(size, 3317, "links must count as their files");
}

#[test]
fn what_only_stands_for_a_model_is_told() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 23518936\n";
    let folder = Folder::of("mlp_fp32");
    for file in [WEIGHTS, MODEL, "Manifest.json"] {
        folder.write(file, pointer);
        let text = said(&folder);
        let expected =
            format!("`{file}` is a Git LFS pointer to 23518936 bytes; run `git lfs pull`");
        assert!(text.contains(&expected), "{text}");
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("m.mlpackage");
    fs::write(&path, b"PK\x03\x04rest").expect("a file");
    let text = model::open(&path).expect_err("an archive").to_string();
    assert!(
        text.contains("is a zip archive: expected a folder; unpack"),
        "{text}"
    );
    fs::write(&path, b"text").expect("a file");
    let text = model::open(&path).expect_err("a file").to_string();
    assert!(text.contains("is a file: expected a folder with"), "{text}");
    let compiled = directory.path().join("m.mlmodelc");
    fs::create_dir(&compiled).expect("a folder");
    assert!(matches!(model::open(&compiled), Err(OpenError::Compiled)));
}

#[test]
fn lying_lengths_are_told_with_their_place() {
    let sound = [int(1, 7), part(2, &[])].concat();
    let text = said_of([&sound[..], &head(502, 1 << 40)].concat());
    assert_eq!(
        text,
        "Core ML model at offset 4: expected a field of the protobuf wire format, found other bytes"
    );
    let text = said_of([&sound[..], &head(502, u64::MAX)].concat());
    assert!(text.contains("Core ML model at offset 4"), "{text}");
    // Inside the program.
    let text = said_of([&sound[..], &part(502, &[&head(2, 99)])].concat());
    assert!(text.contains("Core ML program at offset"), "{text}");
    // Inside a layer of a network.
    let text = said_of([&sound[..], &part(500, &[&part(1, &[&head(100, 99)])])].concat());
    assert!(text.contains("Core ML layer at offset"), "{text}");
    assert!(said_of(sound).contains("expected a kind of model"));
    assert!(said_of(part(502, &[])).contains("expected a description"));
    assert!(said_of(Vec::new()).contains("expected a description"));
}

#[test]
fn endless_nesting_ends() {
    // Blocks and operations, nested.
    let mut operation = part(1, &[b"cond"]);
    for _ in 0..200 {
        operation = [part(1, &[b"cond"]), part(4, &[&part(3, &[&operation])])].concat();
    }
    let text = said_of(program(&[&operation]));
    assert!(text.contains("Core ML"), "{text}");
    // State types, nested.
    let mut ty = part(1, &[]);
    for _ in 0..200 {
        ty = part(5, &[&part(1, &[&ty])]);
    }
    let value = part(2, &[&part(2, &[&ty]), &part(5, &[&int(2, 64)])]);
    let attribute = part(5, &[&part(1, &[b"val"]), &value]);
    let text = said_of(program(&[&[part(1, &[b"const"]), attribute].concat()]));
    assert!(text.contains("Core ML"), "{text}");
}

#[test]
fn more_than_any_model_has_is_refused() {
    let input = part(1, &[]);
    let bytes = [
        int(1, 7),
        part(2, &[&input.repeat(1 << 15)]),
        part(900, &[]),
    ]
    .concat();
    assert!(
        said_of(bytes).contains("expected at most 16384 functions, inputs, outputs and states")
    );
    let sizes = part(1, &[&[1; 65]]);
    let array = part(5, &[&sizes]);
    let input = part(1, &[&part(3, &[&array])]);
    let bytes = [part(2, &[&input]), part(900, &[])].concat();
    assert!(said_of(bytes).contains("expected at most 64 dimensions of an array"));
    let operations: Vec<Vec<u8>> = (0..5000)
        .map(|number: u32| part(1, &[format!("op{number}").as_bytes()]))
        .collect();
    let operations: Vec<&[u8]> = operations.iter().map(Vec::as_slice).collect();
    assert!(said_of(program(&operations)).contains("expected at most 4096 types of operations"));
    let entries = part(100, &[&part(100, &[]).repeat(1025)]);
    let bytes = [part(2, &[&entries]), part(900, &[])].concat();
    assert!(said_of(bytes).contains("expected at most 1024 entries of metadata"));
    let huge = [head(2, 5 << 20), vec![0; 5 << 20], part(900, &[])].concat();
    assert!(said_of(huge).contains("Core ML description at offset"));
}

#[test]
fn weights_outside_the_folder_are_no_weights() {
    let blob = part(5, &[&part(1, &[b"@model_path/../../secret"]), &int(2, 64)]);
    let value = part(2, &[&blob]);
    let attribute = part(5, &[&part(1, &[b"val"]), &value]);
    let folder = Folder::of("mlp_fp32");
    folder.write(
        MODEL,
        program(&[&[part(1, &[b"const"]), attribute].concat()]),
    );
    let text = said(&folder);
    assert!(
        text.contains("names `../../secret`, which leaves the package root"),
        "{text}"
    );
}

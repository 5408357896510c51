//! ExecuTorch data files (`.ptd`): reading them, rejecting broken ones, and finding the data that a
//! program needs.

use std::fs;
use std::path::PathBuf;

use pkgtool_model::executorch::FlatTensor;
use pkgtool_model::{self as model, ExternalDataError, ModelFormat, NamedData};
use proptest::prelude::*;

fn folder() -> PathBuf {
    pkgtool_testing::files::root().join("tests/fixtures/executorch")
}

fn bytes() -> Vec<u8> {
    fs::read(folder().join("external_portable.ptd")).expect("a fixture")
}

fn message(bytes: &[u8]) -> String {
    let error = FlatTensor.inspect(&bytes.to_vec()).expect_err("broken");
    assert!(error.offset().is_some(), "{error}");
    error.to_string()
}

/// Copies these data files to a directory and looks up the external tensors of a program in them.
fn beside(files: &[(&str, &[u8])]) -> Result<(), ExternalDataError> {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, bytes) in files {
        fs::write(directory.path().join(name), bytes).expect("a file");
    }
    let (info, _) = model::open(&folder().join("external_portable.pte")).expect("a program");
    let [external] = info.external.as_slice() else {
        panic!("expected one external data reference");
    };
    external.locate(directory.path()).map(|_| ())
}

#[test]
fn a_data_file_tells_what_it_holds() {
    let (info, size) =
        model::open(&folder().join("external_portable.ptd")).expect("the model is valid");
    assert_eq!(
        (info.format, info.format_version.as_str()),
        ("flat_tensor", "FT01")
    );
    assert!(info.methods.is_empty() && info.weight_bytes > 0);
    let last = info.segments.last().expect("segments");
    assert!(last.offset + last.size <= size);
    let (program, _) = model::open(&folder().join("external_portable.pte")).expect("a program");
    let needed: &[NamedData] = &program.external[0].named;
    assert!(!needed.is_empty());
    for needed in needed {
        assert!(
            info.named.contains(needed),
            "{needed:?} of {:?}",
            info.named
        );
    }
}

#[test]
fn broken_data_files_are_refused_with_their_place() {
    let good = bytes();
    let patched = |at: usize, bytes: &[u8]| {
        let mut file = good.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        message(&file)
    };
    for (text, reason) in [
        (
            message(b"FT01"),
            "expected identifier FT01 at offset 4, found a file of 4 bytes",
        ),
        (
            patched(4, b"ET12"),
            "expected identifier FT01 at offset 4, found ET12",
        ),
        (patched(8, b"XXXX"), "expected an extended header FH01"),
        (
            patched(12, &[39, 0, 0, 0]),
            "an extended header of at least 40 bytes, found 39",
        ),
        (
            patched(24, &[0xff; 8]),
            "found a program size of 18446744073709551615",
        ),
        (
            patched(40, &[0xff; 8]),
            "the file is truncated: FlatTensor header.segment_data_size",
        ),
        (message(&good[..good.len() - 1]), "the file is truncated"),
    ] {
        assert!(text.contains(reason), "{text}");
    }
}

#[test]
fn what_a_program_needs_is_held_against_the_data_files() {
    let good = bytes();
    assert_eq!(beside(&[("a.ptd", &good)]), Ok(()));
    assert!(matches!(
        beside(&[]),
        Err(ExternalDataError::MissingDataFile { .. })
    ));
    let broken = beside(&[("a.ptd", &good), ("b.ptd", b"nothing")]);
    match broken {
        Err(ExternalDataError::BrokenDataFile { file, reason }) => {
            assert_eq!(file, "b.ptd");
            assert!(reason.contains("expected identifier FT01"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    let (info, _) = model::open(&folder().join("external_portable.pte")).expect("a program");
    let name = &info.external[0].named[0].name;
    let at = good
        .windows(name.len())
        .position(|it| it == name.as_bytes());
    let mut other = good.clone();
    other[at.expect("the name is there")] ^= 1;
    match beside(&[("a.ptd", &other)]) {
        Err(ExternalDataError::MissingTensor { name: missing }) => assert_eq!(missing, *name),
        found => panic!("{found:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn changed_data_files_do_no_harm(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        end in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let mut file = bytes();
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if cut {
            file.truncate(end.index(file.len()));
        }
        if let Ok(info) = FlatTensor.inspect(&file) {
            for segment in &info.segments {
                prop_assert!(segment.offset + segment.size <= file.len() as u64);
            }
        }
    }
}

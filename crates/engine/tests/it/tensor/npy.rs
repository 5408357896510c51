//! The `.npy` reader and writer, with files written by NumPy and with hostile files.

use std::fs;

use pkgtool_engine::tensor::npy::{self, NpyError, NpyHeader};
use pkgtool_engine::tensor::{DType, Tensor};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use pkgtool_testing::fixture;

fn bytes(name: &str) -> Vec<u8> {
    fs::read(fixture(&format!("npy/{name}.npy"))).expect("the fixture is there")
}

fn read(bytes: &[u8]) -> Result<Tensor, NpyError> {
    npy::read(&mut &bytes[..])
}

fn written(tensor: &Tensor) -> Vec<u8> {
    let mut bytes = Vec::new();
    npy::write(&mut bytes, tensor).expect("writing to memory succeeds");
    bytes
}

fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.to_f64().collect()
}

/// Returns the values that the generating script wrote to the file of this type.
fn expected(dtype: DType) -> Vec<f64> {
    let count = (0..6).map(f64::from);
    match dtype {
        DType::Bool => count.map(|value| value % 2.0).collect(),
        dtype if dtype.is_float() => count.map(|value| value / 2.0 - 1.0).collect(),
        DType::Int8 | DType::Int16 | DType::Int32 | DType::Int64 => {
            count.map(|value| value - 2.0).collect()
        }
        _ => count.collect(),
    }
}

#[test]
fn numpys_own_files_are_read_and_written_byte_for_byte() {
    for dtype in DType::ALL {
        let file = bytes(dtype.name());
        let tensor = read(&file).expect("NumPy wrote it");
        assert_eq!(tensor.dtype(), dtype);
        assert_eq!(tensor.shape(), [2, 3]);
        assert_eq!(values(&tensor), expected(dtype), "{dtype}");
        if dtype != DType::Bfloat16 {
            assert_eq!(written(&tensor), file, "{dtype}");
        }
    }
    for name in ["scalar", "vector", "empty"] {
        let file = bytes(name);
        assert_eq!(written(&read(&file).expect(name)), file, "{name}");
    }
}

#[test]
fn bfloat16_is_written_as_its_raw_bits() {
    let tensor = read(&bytes("bfloat16")).expect("two raw bytes an element");
    let file = written(&tensor);
    let raw = read(&file).expect("the header was just written");
    assert_eq!(raw.dtype(), DType::Uint16);
    assert_eq!(raw.bytes(), tensor.bytes());
    let mut reader = &file[..];
    let header = NpyHeader::read(&mut reader).expect("the header was just written");
    assert_eq!(
        header.read_data(&mut reader, DType::Bfloat16, 0),
        Ok(tensor)
    );
    let mut reader = &file[..];
    let header = NpyHeader::read(&mut reader).expect("the header was just written");
    let error = header.read_data(&mut reader, DType::Float16, 0);
    assert!(matches!(error, Err(NpyError::DType { .. })), "{error:?}");
}

#[test]
fn other_byte_and_axis_orders_become_ours() {
    for (name, same) in [
        ("big_float32", "float32"),
        ("big_int64", "int64"),
        ("fortran_float32", "float32"),
        ("version2", "float32"),
        ("version3", "float32"),
    ] {
        assert_eq!(read(&bytes(name)), read(&bytes(same)), "{name}");
    }
    let cube = read(&bytes("fortran_int16_3d")).expect("the file is an array");
    assert_eq!(cube.shape(), [2, 3, 4]);
    let count: Vec<f64> = (0..24).map(f64::from).collect();
    assert_eq!(values(&cube), count);
}

#[test]
fn what_is_no_tensor_is_refused_by_name() {
    for (name, words) in [
        ("objects", "pickled Python objects"),
        ("text", "text"),
        ("complex", "complex numbers"),
        ("records", "records of several fields"),
    ] {
        let error = read(&bytes(name)).expect_err(name).to_string();
        assert!(error.contains(words), "{name}: {error}");
    }
}

#[test]
fn a_file_has_to_end_where_its_header_says() {
    let mut file = bytes("float32");
    for length in 0..file.len() {
        assert!(read(&file[..length]).is_err(), "{length} bytes");
    }
    file.push(0);
    assert_eq!(read(&file), Err(NpyError::Trailing { expected: 24 }));
}

fn with_header(version: [u8; 2], length: &[u8], text: &str) -> Vec<u8> {
    [b"\x93NUMPY", &version[..], length, text.as_bytes()].concat()
}

#[test]
fn claims_are_not_believed() {
    let claimed = with_header([2, 0], &u32::MAX.to_le_bytes(), "{}");
    let error = read(&claimed).expect_err("4 GiB of header");
    assert_eq!(
        error,
        NpyError::HeaderSize {
            claimed: 0xffff_ffff
        }
    );
    assert!(matches!(
        read(&with_header([4, 0], &[], "")),
        Err(NpyError::Version { .. })
    ));
    for shape in [
        "(18446744073709551615, 18446744073709551615)",
        "(4294967296, 4294967296)",
        "(1099511627776,)",
        "(3000000000,)",
    ] {
        let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n");
        let length = u16::try_from(text.len())
            .expect("the number fits")
            .to_le_bytes();
        let file = with_header([1, 0], &length, &text);
        // The last shape is below the size limit. The reader must not allocate it, because there is
        // no data.
        assert!(read(&file).is_err(), "{shape}");
    }
    let shape = "1, ".repeat(65);
    let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape}), }}\n");
    let length = u16::try_from(text.len())
        .expect("the number fits")
        .to_le_bytes();
    let error = read(&with_header([1, 0], &length, &text)).expect_err("65 dimensions");
    assert!(
        error.to_string().contains("expected at most 64 dimensions"),
        "{error}"
    );
    // An empty tensor, whatever its other sizes are.
    let text = "{'descr': '<f4', 'fortran_order': True, 'shape': (0, 18446744073709551615), }\n";
    let length = u16::try_from(text.len())
        .expect("the number fits")
        .to_le_bytes();
    let empty = read(&with_header([1, 0], &length, text)).expect("the tensor is empty");
    assert_eq!(written(&empty).len() % 64, 0);
    assert_eq!(read(&written(&empty)), Ok(empty));
}

fn tensor() -> impl Strategy<Value = Tensor> {
    let shape = vec(0..4_u64, 0..5);
    (select(&DType::ALL[..]), shape, vec(any::<u8>(), 2048)).prop_map(
        |(dtype, shape, mut bytes)| {
            let size = shape.iter().product::<u64>() * dtype.size();
            bytes.truncate(usize::try_from(size).expect("the number fits"));
            if dtype == DType::Bool {
                bytes.fill(1);
            }
            Tensor::new(dtype, shape, bytes).expect("the data fits the shape")
        },
    )
}

proptest! {
    #[test]
    fn every_tensor_survives(tensor in tensor()) {
        let file = written(&tensor);
        let mut reader = &file[..];
        let header = NpyHeader::read(&mut reader).expect("the header was just written");
        prop_assert_eq!(header.size % 64, 0);
        let back = header.read_data(&mut reader, tensor.dtype(), 0);
        prop_assert_eq!(back, Ok(tensor));
    }

    #[test]
    fn arbitrary_bytes_never_panic(noise in vec(any::<u8>(), 0..300)) {
        let _ = read(&noise);
        let _ = read(&[&b"\x93NUMPY\x01\x00\x30\x00"[..], &noise].concat());
    }

    #[test]
    fn changed_files_never_panic(
        name in select(&["float32", "fortran_int16_3d", "records", "version2", "bool"][..]),
        changes in vec((any::<Index>(), any::<u8>()), 1..6),
    ) {
        let mut file = bytes(name);
        for (index, byte) in changes {
            let at = index.index(file.len());
            file[at] = byte;
        }
        if let Ok(tensor) = read(&file) {
            prop_assert!(tensor.bytes().len() <= file.len());
        }
    }

    #[test]
    fn changed_dictionaries_never_panic(
        text in "\\{('descr': '[<>|=][a-zA-Z?][0-9]{0,2}'|'shape': \\([0-9L, ]{0,30}\\)|'fortran_order': (True|False)|[ ,:'\"({\\[]){0,6}\\}[ \n]?",
    ) {
        let length = u16::try_from(text.len()).expect("the number fits").to_le_bytes();
        let _ = read(&with_header([1, 0], &length, &text));
    }
}

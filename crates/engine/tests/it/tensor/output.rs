//! Writing outputs to files.

use std::fs;

use pkgtool_engine::tensor::{DType, Tensor, TensorSpec, npy, write_outputs};

fn output(name: &str, dtype: DType) -> TensorSpec {
    TensorSpec {
        name: name.to_owned(),
        dtype,
        dims: None,
        fixed: None,
        pixels: None,
    }
}

#[test]
fn each_output_is_one_whole_file() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let below = directory.path().join("new/deep");
    let outputs = [
        output("logits", DType::Float32),
        output("../../logits", DType::Bfloat16),
    ];
    let tensors = [
        Tensor::from_f64(DType::Float32, vec![2], [1.5, -2.0]).expect("the tensor is valid"),
        Tensor::from_f64(DType::Bfloat16, vec![1], [1.0]).expect("the tensor is valid"),
    ];
    // The second round replaces the files.
    for _ in 0..2 {
        let paths = write_outputs(&below, &outputs, &tensors).expect("the file is written");
        let names = ["logits.npy", "_.._logits.npy"];
        assert_eq!(paths, names.map(|name| below.join(name)));
        let file = fs::read(&paths[0]).expect("the file was written");
        assert_eq!(npy::read(&mut &file[..]).as_ref(), Ok(&tensors[0]));
        let raw = fs::read(&paths[1]).expect("the file was written");
        let raw = npy::read(&mut &raw[..]).expect("the file is an array");
        assert_eq!(raw.dtype(), DType::Uint16);
    }
    let entries = fs::read_dir(&below).expect("the directory is readable");
    assert_eq!(entries.count(), 2, "temporary files are left");
}

#[test]
fn what_stands_in_the_way_is_named() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::create_dir(directory.path().join("y.npy")).expect("the path is new");
    let tensor = Tensor::zeros(DType::Int8, vec![1]).expect("the tensor is valid");
    let outputs = [output("y", DType::Int8)];
    let error = write_outputs(directory.path(), &outputs, std::slice::from_ref(&tensor));
    let error = error.expect_err("a directory has the name").to_string();
    assert!(error.contains("y.npy"), "{error}");
    let entries = fs::read_dir(directory.path()).expect("the directory is readable");
    assert_eq!(entries.count(), 1, "temporary files are left");
    let file = directory.path().join("file");
    fs::write(&file, "").expect("the path is new");
    let error = write_outputs(&file, &outputs, &[tensor]).expect_err("a file");
    assert!(error.to_string().contains("file"), "{error}");
}

//! Conversion of input arguments to tensors: every kind of value, and every error.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use pkgtool_engine::tensor::input::{Generator, InputArgs, InputError, assemble, check};
use pkgtool_engine::tensor::{DType, Signature, Tensor, TensorSpec, npy};
use pkgtool_model::Dim;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::args;
use pkgtool_testing::fixture;

pub(super) fn fixed(sizes: &[u64]) -> Vec<Dim> {
    sizes.iter().map(|size| Dim::Fixed(*size)).collect()
}

fn symbol(name: &str) -> Dim {
    Dim::Dynamic {
        bound: None,
        name: Some(name.to_owned()),
        allowed: None,
    }
}

fn bounded(bound: u64) -> Dim {
    Dim::Dynamic {
        bound: Some(bound),
        name: None,
        allowed: None,
    }
}

fn maybe(bound: u64, likely_dynamic: bool) -> Dim {
    Dim::Maybe {
        bound,
        likely_dynamic,
    }
}

pub(super) fn signature(inputs: &[(&str, DType, Option<Vec<Dim>>)]) -> Signature {
    let inputs = inputs.iter().map(|(name, dtype, dims)| TensorSpec {
        name: (*name).to_owned(),
        dtype: *dtype,
        dims: dims.clone(),
        fixed: None,
        pixels: None,
    });
    Signature {
        method: "forward".to_owned(),
        inputs: inputs.collect(),
        outputs: Vec::new(),
    }
}

fn give(signature: &Signature, inputs: &[&str], dims: &[&str]) -> Result<Vec<Tensor>, InputError> {
    assemble(signature, &args(inputs, dims))
}

fn shapes(signature: &Signature, inputs: &[&str], dims: &[&str]) -> Vec<Vec<u64>> {
    let tensors = give(signature, inputs, dims).expect("the inputs fit");
    tensors
        .iter()
        .map(|tensor| tensor.shape().to_vec())
        .collect()
}

fn fault(signature: &Signature, inputs: &[&str], dims: &[&str]) -> String {
    let found = give(signature, inputs, dims);
    found.expect_err("the inputs do not fit").to_string()
}

/// The pair of inputs that the fixture archives contain.
fn pair() -> Signature {
    signature(&[
        ("a", DType::Float32, Some(vec![symbol("n"), Dim::Fixed(3)])),
        ("b", DType::Int64, Some(vec![symbol("n"), Dim::Fixed(3)])),
    ])
}

fn path(name: &str) -> String {
    fixture(name).display().to_string()
}

fn save(path: &Path, tensor: &Tensor) -> String {
    let mut file = File::create(path).expect("the file is created");
    npy::write(&mut file, tensor).expect("the file is written");
    path.display().to_string()
}

/// Writes an archive with these members and returns its path.
fn archive(path: &Path, members: &[(&str, &[u8])]) -> String {
    let mut archive = ZipWriter::new(File::create(path).expect("the file is created"));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    for (name, bytes) in members {
        archive.start_file(*name, options).expect("a new member");
        archive.write_all(bytes).expect("the file is written");
    }
    archive.finish().expect("the file is written");
    path.display().to_string()
}

#[test]
fn generators_fill_what_is_open() {
    let signature = signature(&[
        (
            "x",
            DType::Float32,
            Some(vec![symbol("batch"), Dim::Fixed(2)]),
        ),
        (
            "y",
            DType::Int32,
            Some(vec![symbol("batch"), bounded(5), maybe(4, false)]),
        ),
        ("s", DType::Bool, Some(vec![])),
    ]);
    let default = [vec![1, 2], vec![1, 5, 4], vec![]];
    assert_eq!(shapes(&signature, &["random"], &[]), default);
    let given = [vec![3, 2], vec![3, 2, 1], vec![]];
    let dims = ["batch=3", "y[1]=2", "1[2]=1"];
    assert_eq!(shapes(&signature, &["zeros"], &dims), given);
    // A given shape determines the linked sizes of other inputs.
    assert_eq!(
        shapes(&signature, &["ones", "x=arange@4x2"], &[])[1],
        [4, 5, 4]
    );
    let tensors = give(&signature, &["arange"], &["0=2"]).expect("the inputs fit");
    let values: Vec<f64> = tensors[0].to_f64().collect();
    assert_eq!(values, [0.0, 1.0, 2.0, 3.0]);
    assert_eq!(
        give(&signature, &["random:9"], &[]),
        give(&signature, &["random:9"], &[])
    );
    assert_ne!(
        give(&signature, &["random:9"], &[]),
        give(&signature, &["random:8"], &[])
    );
}

#[test]
fn inputs_without_a_value_are_listed_or_get_the_default() {
    let signature = pair();
    assert_eq!(
        fault(&signature, &["a=zeros"], &[]),
        "no value for input 1 `b` (expects int64[-1 (n), 3]); give one to each, \
         for example `--input b=random`"
    );
    let mut args = args(&["a=ones@2x3"], &[]);
    args.default = Some(Generator::Random { seed: 0 });
    let tensors = assemble(&signature, &args).expect("the default applies");
    assert_eq!(tensors[1].shape(), [2, 3]);
}

#[test]
fn an_unknown_rank_needs_a_shape() {
    let signature = signature(&[("x", DType::Float32, None)]);
    let error = fault(&signature, &["random"], &[]);
    assert!(
        error.contains("rank") && error.contains("random@2x3"),
        "{error}"
    );
    assert_eq!(shapes(&signature, &["random@2x3"], &[]), [[2, 3]]);
    assert_eq!(shapes(&signature, &["[[1, 2]]"], &[]), [[1, 2]]);
    assert_eq!(shapes(&signature, &["5"], &[]), [vec![0_u64; 0]]);
}

#[test]
fn memory_is_counted_before_it_is_taken() {
    let signature = signature(&[
        ("x", DType::Float32, Some(vec![symbol("n"), symbol("m")])),
        ("y", DType::Float32, Some(vec![symbol("n")])),
    ]);
    for dims in [
        ["n=70000", "m=70000"],
        ["n=3999999999", "m=1"],
        ["n=18446744073709551615", "m=9"],
    ] {
        let error = fault(&signature, &["random"], &dims);
        assert!(error.contains("GiB"), "{error}");
    }
    assert_eq!(
        shapes(&signature, &["random"], &["n=0", "m=9"]),
        [vec![0, 9], vec![0]]
    );
}

#[test]
fn json_gives_arrays_and_whole_inputs() {
    let signature = signature(&[
        ("x", DType::Uint8, Some(fixed(&[2, 2]))),
        ("y", DType::Float32, Some(vec![symbol("n")])),
    ]);
    let tensors =
        give(&signature, &["[[1,2],[3,4]]", "[0.5,\"NaN\"]"], &[]).expect("the inputs fit");
    assert_eq!(tensors[0].bytes(), [1, 2, 3, 4]);
    assert_eq!(tensors[1].shape(), [2]);
    // A flat list for a fixed shape.
    assert_eq!(
        shapes(&signature, &["x=[1,2,3,4]", "y=[]"], &[]),
        [vec![2, 2], vec![0]]
    );
    let all =
        give(&signature, &["{\"y\": [1], \"x\": [[1,2],[3,4]]}"], &[]).expect("the inputs fit");
    assert_eq!(all[0], tensors[0]);
    for (inputs, reason) in [
        (
            &["x=[[1,2],[3,300]]", "y=[1]"][..],
            "at [1][1]: 300 is out of range for uint8",
        ),
        (
            &["x=[[1,2],[3]]", "y=[1]"],
            "at [1]: rows differ: expected 2 elements",
        ),
        (&["x=[1,2,3]", "y=[1]"], "1 dimensions instead of 2"),
        (&["x=[[1,2,3,4]]", "y=[1]"], "dimension 0 is 1 instead of 2"),
        (
            &["{\"x\": [1,2,3,4]}"],
            "input 1 `y` (expects float32[-1 (n)])",
        ),
        (
            &["{\"x\": [1], \"z\": 1}"],
            "unknown input `z`; the inputs are 0 `x`, 1 `y`",
        ),
    ] {
        let error = fault(&signature, inputs, &[]);
        assert!(error.contains(reason), "{inputs:?}: {error}");
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("all.JSON");
    fs::write(&file, " {\"y\": [1], \"x\": [4,3,2,1]}").expect("the file is written");
    let file = file.display().to_string();
    assert_eq!(shapes(&signature, &[&file], &[]), [vec![2, 2], vec![1]]);
}

#[test]
fn npy_files_fix_the_symbols() {
    let signature = pair();
    let a = path("npy/float32.npy");
    let b = path("npy/big_int64.npy");
    let both = [a.as_str(), b.as_str()];
    assert_eq!(shapes(&signature, &both, &[]), [[2, 3], [2, 3]]);
    assert_eq!(
        shapes(&signature, &[&a, "zeros"], &["n=2"]),
        [[2, 3], [2, 3]]
    );
    let error = fault(&signature, &both, &["n=4"]);
    assert!(
        error.contains("`n` is 4 by --dim n=4 and 2 by input 0 `a`"),
        "{error}"
    );
    let error = fault(&signature, &[&a, "[[1,2,3]]"], &[]);
    assert!(
        error.contains("`n` is 2 by input 0 `a`") && error.contains("1 by input 1 `b`"),
        "{error}"
    );
    let error = fault(&signature, &[&path("npy/int32.npy"), "ones"], &[]);
    assert!(
        error.contains("input 0 `a` (expects float32[-1 (n), 3])"),
        "{error}"
    );
    assert!(
        error.contains("has dtype int32") && error.contains("astype(\"float32\")"),
        "{error}"
    );
    let error = fault(&signature, &[&path("npy/vector.npy"), "ones"], &[]);
    assert!(
        error.contains("shape [3]: 1 dimensions instead of 2"),
        "{error}"
    );
    for (file, reason) in [
        ("npy/objects.npy", "pickled"),
        ("npy/generate.py.npy", "No such file"),
    ] {
        let error = fault(&signature, &[&path(file), "ones"], &[]);
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn bfloat16_takes_raw_bits_and_nothing_else() {
    let signature = signature(&[("x", DType::Bfloat16, Some(fixed(&[2, 3])))]);
    let raw = give(&signature, &[&path("npy/bfloat16.npy")], &[]).expect("raw bits");
    assert_eq!(raw[0].to_f64().next(), Some(-1.0));
    assert!(give(&signature, &[&path("npy/uint16.npy")], &[]).is_ok());
    let error = fault(&signature, &[&path("npy/float32.npy")], &[]);
    assert!(error.contains("raw 16 bits as uint16"), "{error}");
    assert!(give(&signature, &["[1, 2, 3, 4, 5, 6]"], &[]).is_ok());
}

#[test]
fn archives_have_exactly_the_inputs() {
    let signature = pair();
    for name in ["npy/pair.npz", "npy/pair_compressed.npz"] {
        let tensors = give(&signature, &[&path(name)], &[]).expect("the archive contains both");
        assert_eq!(tensors[1].to_f64().next(), Some(-2.0));
        let error = fault(&signature, &[&path(name), "a=ones"], &[]);
        assert!(error.contains("give it alone"), "{error}");
    }
    let error = fault(&signature, &[&path("npy/pair.npz")], &["n=3"]);
    assert!(error.contains("`n` is 3"), "{error}");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("x.npz");
    let a = fs::read(fixture("npy/float32.npy")).expect("the fixture is there");
    let b = fs::read(fixture("npy/int64.npy")).expect("the fixture is there");
    for (members, reason) in [
        (&[("a.npy", &a[..])][..], "input 1 `b`"),
        (
            &[("a.npy", &a), ("b.npy", &b), ("c.npy", &b)],
            "member `c.npy` matches no input",
        ),
        (
            &[("arr_0.npy", &a)],
            "it has 1 arrays, but there are 2 inputs",
        ),
        (&[("a.npy", &a), ("b", &b)], "member `b` matches no input"),
        (&[("a.npy", &a), ("b.npy", &a)], "input 1 `b`"),
        (
            &[("a.npy", &a[..140]), ("b.npy", &b)],
            "the data ends after 12 of 24 bytes",
        ),
    ] {
        let archive = archive(&file, members);
        let error = fault(&signature, &[&archive], &[]);
        assert!(error.contains(reason), "{error}");
    }
    fs::write(&file, "no archive").expect("the file is written");
    let error = fault(&signature, &[&file.display().to_string()], &[]);
    assert!(error.contains("not a .npz archive"), "{error}");
}

/// Changes an archive of two members so that both have the name of the first.
#[test]
fn archives_with_a_repeated_name_are_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("x.npz");
    let a = fs::read(fixture("npy/float32.npy")).expect("the fixture is there");
    let archive = archive(&file, &[("a.npy", &a), ("b.npy", &a)]);
    let mut bytes = fs::read(&file).expect("the file was written");
    for at in 0..bytes.len() - 5 {
        if bytes[at..].starts_with(b"b.npy") {
            bytes[at] = b'a';
        }
    }
    fs::write(&file, bytes).expect("the file is written");
    let error = fault(&pair(), &[&archive], &[]);
    assert!(error.contains("the same name"), "{error}");
}

/// Returns the header of an npy file with `count` elements of type uint8.
fn npy_header(count: u64) -> Vec<u8> {
    let text = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({count},), }}\n");
    let length = u16::try_from(text.len()).expect("the number fits");
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend(length.to_le_bytes());
    header.extend(text.as_bytes());
    header
}

#[test]
fn archives_are_not_inflated_on_their_word() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("bomb.npz");
    let signature = signature(&[("x", DType::Uint8, Some(vec![symbol("n")]))]);
    // 64 MiB of zeros after a header that declares 3 elements; only the file size reveals it.
    let small = Tensor::zeros(DType::Uint8, vec![3]).expect("the tensor is valid");
    let mut bytes = Vec::new();
    npy::write(&mut bytes, &small).expect("writing to memory succeeds");
    bytes.resize(64 << 20, 0);
    let bomb = archive(&file, &[("x.npy", &bytes)]);
    assert!(fs::metadata(&file).expect("the file was written").len() < 1 << 20);
    let error = fault(&signature, &[&bomb], &[]);
    assert!(error.contains("more bytes follow"), "{error}");
    // A header that declares 100 GiB, and one that declares 8 GiB without any data.
    for count in [107_374_182_400, 8_589_934_592] {
        let claim = archive(&file, &[("x.npy", &npy_header(count))]);
        let error = fault(&signature, &[&claim], &[]);
        assert!(error.contains("input 0 `x`"), "{error}");
    }
}

#[test]
fn archives_that_lie_about_a_size_end_where_they_end() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("lie.npz");
    let signature = signature(&[("x", DType::Uint8, Some(vec![symbol("n")]))]);
    let claimed = 4_000_000_000_u32;
    let member = npy_header(u64::from(claimed));
    let size = u32::try_from(member.len()).expect("the number fits");
    let lie = archive(&file, &[("x.npy", &member)]);
    let mut bytes = fs::read(&file).expect("the file was written");
    // The uncompressed size of the member, in its header and in the central directory.
    let (old, new) = (size.to_le_bytes(), (size + claimed).to_le_bytes());
    let places: Vec<usize> = (0..bytes.len() - 4)
        .filter(|at| bytes[*at..*at + 4] == old)
        .collect();
    assert_eq!(places.len(), 2);
    for at in places {
        bytes[at..at + 4].copy_from_slice(&new);
    }
    fs::write(&file, bytes).expect("the file is written");
    let error = fault(&signature, &[&lie], &[]);
    assert!(
        error.contains("the data ends after 0 of 4000000000 bytes"),
        "{error}"
    );
}

#[test]
fn raw_files_tell_one_open_size() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("x.bin");
    let raw = |bytes: usize| {
        fs::write(&file, vec![1; bytes]).expect("the file is written");
        file.display().to_string()
    };
    let input = |dims: Vec<Dim>| signature(&[("x", DType::Int16, Some(dims))]);
    let one = input(vec![symbol("n"), Dim::Fixed(3)]);
    assert_eq!(shapes(&one, &[&raw(24)], &[]), [[4, 3]]);
    assert_eq!(shapes(&one, &[&raw(0)], &[]), [[0, 3]]);
    assert!(fault(&one, &[&raw(25)], &[]).contains("not a multiple of 6"));
    assert!(fault(&one, &[&raw(24)], &["n=5"]).contains("int16[5, 3] needs 30"));
    let two = input(vec![symbol("n"), symbol("m")]);
    assert!(fault(&two, &[&raw(24)], &[]).contains("`n`, `m`: give them with `--dim`"));
    assert_eq!(shapes(&two, &[&raw(24)], &["n=2"]), [[2, 6]]);
    assert_eq!(shapes(&two, &[&raw(2)], &[]), [[1, 1]]);
    let bounds = input(vec![maybe(4, true), maybe(2, true), maybe(3, false)]);
    assert_eq!(shapes(&bounds, &[&raw(48)], &[]), [[4, 2, 3]]);
    assert!(fault(&bounds, &[&raw(24)], &[]).contains("`x[0]`, `x[1]`"));
    let bound = input(vec![bounded(4)]);
    assert_eq!(shapes(&bound, &[&raw(6)], &[]), [[3]]);
    assert!(fault(&bound, &[&raw(10)], &[]).contains("bound of 4"));
    let all_fixed = input(vec![Dim::Fixed(3)]);
    assert!(fault(&all_fixed, &[&raw(8)], &[]).contains("8 bytes, but int16[3] needs 6"));
    let error = fault(
        &all_fixed,
        &[&directory.path().join("none.bin").display().to_string()],
        &[],
    );
    assert!(error.contains("No such file"), "{error}");
    // The shapes of the other inputs follow from this one.
    let pair = signature(&[
        ("x", DType::Int16, Some(vec![symbol("n")])),
        ("y", DType::Bool, Some(vec![symbol("n")])),
    ]);
    assert_eq!(shapes(&pair, &[&raw(8), "y=ones"], &[]), [[4], [4]]);
}

#[test]
fn tensors_are_checked_before_a_run() {
    let signature = pair();
    let tensor =
        |dtype, shape: &[u64]| Tensor::zeros(dtype, shape.to_vec()).expect("the tensor is valid");
    let good = [
        tensor(DType::Float32, &[2, 3]),
        tensor(DType::Int64, &[2, 3]),
    ];
    assert_eq!(check(&signature, &good), Ok(()));
    assert!(matches!(
        check(&signature, &good[..1]),
        Err(InputError::Count { .. })
    ));
    let swapped = [good[1].clone(), good[0].clone()];
    assert!(matches!(
        check(&signature, &swapped),
        Err(InputError::DType { .. })
    ));
    let uneven = [good[0].clone(), tensor(DType::Int64, &[1, 3])];
    assert!(matches!(
        check(&signature, &uneven),
        Err(InputError::Conflict { .. })
    ));
    let wide = [good[0].clone(), tensor(DType::Int64, &[2, 4])];
    assert!(matches!(
        check(&signature, &wide),
        Err(InputError::Shape { .. })
    ));
}

#[test]
fn a_file_of_another_dtype_is_refused_before_it_is_read() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let tensor = Tensor::zeros(DType::Float64, vec![2, 3]).expect("the tensor is valid");
    let file = save(&directory.path().join("a=b.npy"), &tensor);
    // The path contains an equal sign, but no input has the name before it, and the file exists.
    let error = fault(&pair(), &[&file, "ones"], &[]);
    assert!(error.contains("has dtype float64"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn texts_never_panic(
        inputs in vec("\\PC{0,12}|[ab01=@:x{}\\[\\],\".0-9truezonsdam-]{0,16}", 0..4),
        dims in vec("[abn01=\\[\\]x-]{0,8}", 0..3),
    ) {
        // Shapes larger than any memory are rejected anyway; large shapes below that only slow the
        // test down.
        let is_large = |text: &String| text.bytes().filter(u8::is_ascii_digit).count() > 4;
        prop_assume!(!inputs.iter().chain(&dims).any(is_large));
        let args = InputArgs { inputs, dims, ..InputArgs::default() };
        if let Ok(tensors) = assemble(&pair(), &args) {
            prop_assert_eq!(check(&pair(), &tensors), Ok(()));
        }
    }

    #[test]
    fn changed_archives_never_panic(
        name in prop::sample::select(&["npy/pair.npz", "npy/pair_compressed.npz"][..]),
        changes in vec((any::<Index>(), any::<u8>()), 1..5),
        end in any::<Index>(),
        cut in prop::bool::weighted(0.1),
    ) {
        let mut bytes = fs::read(fixture(name)).expect("the fixture is there");
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        if cut {
            bytes.truncate(end.index(bytes.len()));
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("x.npz");
        fs::write(&file, bytes).expect("the file is written");
        let _ = give(&pair(), &[&file.display().to_string()], &[]);
    }

    #[test]
    fn json_never_panics(text in "[\\[\\]{},:\"a0-9.eE+\\\\ -]{0,40}") {
        let signature = signature(&[("a", DType::Float32, None)]);
        let _ = give(&signature, &[&format!("a={text}")], &[]);
        let _ = give(&signature, &[&text], &[]);
    }
}

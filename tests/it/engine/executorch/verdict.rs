//! Compares the header reader's verdict on changed programs with that of the ExecuTorch runtime.
//!
//! The runtime must load every program that the reader accepts, except for reasons that the header
//! does not show.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pkgtool_engine::EngineError;
use pkgtool_engine::tensor::limit::MemoryLimit;
use pkgtool_model as model;

use super::{fixtures, is_there, launcher, request};
use pkgtool_testing::numbers::Numbers;

/// Several programs of every kind.
const SEEDS: [&str; 14] = [
    "../models/add_linear_portable.pte",
    "../models/add_linear_xnnpack_fp32.pte",
    "../models/dtypes_portable.pte",
    "../models/dyn_batch_xnnpack_fp32.pte",
    "../models/lstm_xnnpack_fp32.pte",
    "../models/multi_method_xnnpack_fp32.pte",
    "../models/nontensor_io_portable.pte",
    "../models/state_counter_portable.pte",
    "aliases_portable.pte",
    "bundled_xnnpack_fp32.bpte",
    "cache_xnnpack_fp32.pte",
    "external_portable.pte",
    "optional_portable.pte",
    "unplanned_xnnpack_fp32.pte",
];

/// Number of changed programs; `PKGTOOL_TEST_MUTATIONS` raises it.
const CHANGES: usize = 400;

/// Reasons for which the runtime rejects programs that the header reader rightly accepts.
const EXPLAINED: [(&str, &str); 9] = [
    // Kernels and backends belong to the library, not to the program.
    ("for the operators", "an operator is unsupported"),
    ("for the operators", "has no kernel for this"),
    ("parts of the program", "they need ExecuTorch built with it"),
    // Only the backend can judge the contents of a delegate's payload.
    ("a delegate", "rejected its payload"),
    (
        "Failed to define tensor",
        "XNNCompiler::compileModel failed",
    ),
    ("Failed to create", "XNNCompiler::compileModel failed"),
    (
        "XNN Runtime creation failed",
        "XNNCompiler::compileModel failed",
    ),
    // Tensor sizes for which some machines have enough memory.
    ("out of memory", "of memory for its tensors"),
    // A program may target a device and may contain unbounded tensors.
    ("not supported", ""),
];

/// Changes some bytes, more often those of the FlatBuffer, and describes the changes.
fn change(bytes: &mut [u8], numbers: &mut Numbers) -> String {
    const EXTREMES: [u32; 8] = [0, 1, 2, 0x40, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];
    let header = bytes.len().min(4096);
    let mut what = String::new();
    for _ in 0..=numbers.below(3) {
        let end = if numbers.below(4) == 0 {
            bytes.len()
        } else {
            header
        };
        if numbers.below(3) == 0 {
            let at = numbers.below(end / 4) * 4;
            let value = EXTREMES[numbers.below(EXTREMES.len())];
            let _ = write!(what, " [{at}..] = {value:#x}");
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        } else {
            let at = numbers.below(end);
            let byte = u8::try_from(numbers.below(256)).expect("a byte");
            let _ = write!(what, " [{at}] = {byte}");
            bytes[at] = byte;
        }
    }
    what
}

fn path_names_xnnpack(path: &Path) -> bool {
    path.to_string_lossy().contains("xnnpack")
}

/// Returns the runtime's error for a program that the reader accepts; `None` if they agree.
fn difference(path: &Path, counts: &mut [usize; 3]) -> Option<String> {
    let Ok((info, _)) = model::open(path) else {
        counts[0] += 1;
        return None;
    };
    // A changed tensor name is missing from all data files; `validate` reports that.
    let folder = path.parent().expect("a folder");
    if info
        .external
        .iter()
        .any(|data| data.locate(folder).is_err())
    {
        counts[0] += 1;
        return None;
    }
    let mut launcher = launcher();
    launcher.timeout = Some(Duration::from_secs(20));
    launcher.memory_limit = Some(MemoryLimit::Option(8 << 30));
    for method in &info.methods {
        let Err(error) = launcher.load("executorch", &request(path, &method.name)) else {
            continue;
        };
        let text = error.to_string();
        let known = |(one, other): &(&str, &str)| text.contains(one) && text.contains(other);
        let ours = text.contains("of its inputs is a string or a list")
            || text.contains("of its outputs is a string or a list");
        // XNNPACK's payload parser follows invalid offsets and crashes.
        let payload = matches!(error, EngineError::Died { .. }) && path_names_xnnpack(path);
        if matches!(error, EngineError::Unsupported { .. })
            || payload
            || EXPLAINED.iter().any(known)
            || ours
        {
            counts[1] += 1;
            continue;
        }
        return Some(format!("{}: {text}", method.name));
    }
    counts[2] += 1;
    None
}

#[test]
fn the_runtime_loads_what_the_reader_accepts() {
    if !is_there("the_runtime_loads_what_the_reader_accepts") {
        return;
    }
    let changes = std::env::var("PKGTOOL_TEST_MUTATIONS").ok();
    let changes = changes.map_or(CHANGES, |text| text.parse().expect("a number"));
    let folder = tempfile::tempdir().expect("a directory");
    let data = folder.path().join("external_portable.ptd");
    fs::copy(fixtures().join("external_portable.ptd"), data).expect("a copy");
    let mut numbers = Numbers(2026);
    let mut counts = [0; 3];
    let mut differences = Vec::new();
    for _ in 0..changes {
        let seed = SEEDS[numbers.below(SEEDS.len())];
        let mut bytes = fs::read(fixtures().join(seed)).expect("a fixture");
        let what = change(&mut bytes, &mut numbers);
        let path: PathBuf = folder
            .path()
            .join(Path::new(seed).file_name().expect("a name"));
        fs::write(&path, bytes).expect("a file");
        if let Some(difference) = difference(&path, &mut counts) {
            differences.push(format!("{seed}{what}\n    {difference}"));
        }
        fs::remove_file(&path).expect("the file exists");
    }
    assert!(
        differences.is_empty(),
        "{}\n{counts:?}",
        differences.join("\n")
    );
    let [unreadable, refused, loaded] = counts;
    assert!(
        unreadable > 50 && loaded > 50,
        "{unreadable}, {refused}, {loaded}"
    );
}

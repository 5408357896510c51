//! Fuzzing of the format readers with random and mutated files: a result or an error, never a
//! panic.

use proptest::prelude::*;
use proptest::sample::Index;

use super::{FIXTURES, bytes, inspect};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn arbitrary_bytes_do_not_panic(
        format in prop::sample::select(vec!["safetensors", "gguf", "tflite"]),
        bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let _ = inspect(format, &bytes);
        let _ = inspect("gguf", &[&b"GGUF\x03\0\0\0"[..], &bytes].concat());
        let _ = inspect("tflite", &[&b"\x10\0\0\0TFL3"[..], &bytes].concat());
        let header = [&b"{"[..], &bytes].concat();
        let length = (header.len() as u64).to_le_bytes();
        let _ = inspect("safetensors", &[&length[..], &header].concat());
    }

    #[test]
    fn mutated_files_do_not_panic(
        (format, name) in prop::sample::select(&FIXTURES[..]),
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..6),
        words in prop::collection::vec((any::<Index>(), prop::sample::select(vec![0, 1, u32::MAX, 1 << 31, 0x7fff_ffff])), 0..2),
        cut in prop::option::of(any::<Index>()),
    ) {
        let mut bytes = bytes(name);
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        for (index, word) in words {
            let at = index.index(bytes.len() - 4);
            bytes[at..at + 4].copy_from_slice(&u32::to_le_bytes(word));
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(info) = inspect(format, &bytes) {
            for method in &info.methods {
                prop_assert!(!method.to_string().is_empty());
            }
        }
    }
}

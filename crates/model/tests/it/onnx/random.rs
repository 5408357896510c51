//! Fuzzing of the ONNX reader with random bytes and mutated models: a result or an error, never a
//! panic.

use proptest::prelude::*;
use proptest::sample::Index;

use super::{FIXTURES, bytes, inspect};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = inspect(&bytes);
    }

    #[test]
    fn mutated_models_do_not_panic(
        name in prop::sample::select(&FIXTURES[..]),
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<Index>()),
    ) {
        let mut bytes = bytes(name);
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Err(error) = inspect(&bytes) {
            prop_assert!(error.to_string().starts_with("ModelProto"));
            if let Some(offset) = error.offset() {
                prop_assert!(offset <= bytes.len() as u64);
            }
        }
    }
}

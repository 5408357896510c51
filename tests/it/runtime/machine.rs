//! The machine that the tests run on.

use pkgtool::runtime::machine::Machine;

use crate::support::environment::say;

/// Answers depend on the processor's instructions: this line says which ones the tests were run with.
#[test]
fn the_processor_is_named_with_its_instruction_sets() {
    let machine = Machine::this();
    let sets = &machine.instruction_sets;
    let listed = if sets.is_empty() {
        "none that engines have code for".to_owned()
    } else {
        sets.join(", ")
    };
    say(&format!(
        "processor: {}; instruction sets: {listed}",
        machine.cpu
    ));
    #[cfg(target_arch = "x86_64")]
    {
        let has_avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        assert_eq!(sets.contains(&"AVX2"), has_avx2, "{sets:?}");
        let has_vnni =
            is_x86_feature_detected!("avx512vnni") || is_x86_feature_detected!("avxvnni");
        let says_vnni = sets.iter().any(|set| set.contains("VNNI"));
        assert!(!says_vnni || has_vnni, "{sets:?}");
    }
}

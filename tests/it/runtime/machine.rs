//! A test that prints the properties of the machine on which the tests run.

use pkgtool_engine::runtime::machine::Machine;

use crate::support::environment::say;

/// Results depend on the processor's instruction sets, so this line records the ones in use.
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
        assert_eq!(sets.iter().any(|set| set == "AVX2"), has_avx2, "{sets:?}");
        let wide = is_x86_feature_detected!("avx512vnni");
        let narrow = is_x86_feature_detected!("avxvnni");
        let says_vnni = sets.iter().any(|set| set.contains("VNNI"));
        assert!(!says_vnni || wide || narrow, "{sets:?}");
    }
}

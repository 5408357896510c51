//! The processor instructions that engines compute with: listing them, and limiting this process to
//! a named set.

use super::EngineError;
use pkgtool_kernels::Cpu;
use pkgtool_kernels::cpu::{LEVELS, Level};

/// The environment variable that names the instruction set if no option does.
const CPU_FEATURES_VARIABLE: &str = "PKGTOOL_CPU_FEATURES";

/// Returns the names of the instruction sets that engines can be limited to, including those that
/// this processor lacks.
pub fn cpu_features() -> [&'static str; LEVELS.len()] {
    LEVELS.map(Level::name)
}

/// Returns the extensions of this processor that engines have code for, as a list for people.
pub fn instruction_sets() -> Vec<&'static str> {
    let mut sets: Vec<&'static str> = Vec::new();
    for set in Cpu::all().flat_map(|cpu| cpu.level().extensions().iter().copied()) {
        if !sets.contains(&set) {
            sets.push(set);
        }
    }
    sets
}

/// Makes this process compute with the named instruction set, or with the one in the environment
/// variable.
pub(super) fn choose(named: Option<&str>) -> Result<(), EngineError> {
    let variable = std::env::var(CPU_FEATURES_VARIABLE)
        .ok()
        .filter(|it| !it.is_empty());
    let Some(named) = named.or(variable.as_deref()) else {
        return Ok(());
    };
    let chosen = named.parse().and_then(Cpu::with);
    let chosen = chosen.map_err(|reason| EngineError::Unavailable {
        what: format!("the instruction set `{named}`"),
        reason,
        help: format!("remove --cpu-features and {CPU_FEATURES_VARIABLE}, or name another set"),
    })?;
    chosen.choose();
    Ok(())
}

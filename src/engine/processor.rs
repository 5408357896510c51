//! The instructions of the processor that engines compute with.

use super::EngineError;
use crate::kernels::Cpu;
use crate::kernels::cpu::{LEVELS, Level};

/// The variable that names the instructions where no option does.
const VARIABLE: &str = "PKGTOOL_CPU_FEATURES";

/// Returns the names of the sets of instructions that engines can be told to compute with, whichever of
/// them this processor has.
pub fn cpu_features() -> [&'static str; LEVELS.len()] {
    LEVELS.map(Level::name)
}

/// Returns the extensions of this processor that engines have code for, for people.
pub fn instruction_sets() -> Vec<&'static str> {
    let mut sets: Vec<&'static str> = Vec::new();
    for set in Cpu::all().flat_map(|cpu| cpu.level().extensions().iter().copied()) {
        if !sets.contains(&set) {
            sets.push(set);
        }
    }
    sets
}

/// Makes this process compute with the named instructions, or with those that the variable names.
pub(super) fn choose(named: Option<&str>) -> Result<(), EngineError> {
    let variable = std::env::var(VARIABLE).ok().filter(|it| !it.is_empty());
    let Some(named) = named.or(variable.as_deref()) else {
        return Ok(());
    };
    let chosen = named.parse().and_then(Cpu::with);
    let chosen = chosen.map_err(|reason| EngineError::Unavailable {
        what: format!("the instruction set `{named}`"),
        reason,
        help: format!("leave out --cpu-features and {VARIABLE}, or name others"),
    })?;
    chosen.choose();
    Ok(())
}

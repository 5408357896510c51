//! Checks lengths of slices against their expected sizes.

/// Fails unless a length equals the product of its expected sizes.
pub(crate) fn check_length(what: &str, found: usize, factors: &[usize]) -> Result<(), String> {
    let expected = factors
        .iter()
        .try_fold(1_usize, |all, factor| all.checked_mul(*factor));
    match expected {
        Some(expected) if expected == found => Ok(()),
        Some(expected) => Err(format!("{what}: {found} elements, expected {expected}")),
        None => Err(format!("{what}: sizes {factors:?} are too large")),
    }
}

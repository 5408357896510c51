//! Lengths of slices against the sizes they are to hold.

/// What is wrong with a length, if anything is.
pub(in crate::kernels) fn check_length(
    what: &str,
    found: usize,
    factors: &[usize],
) -> Result<(), String> {
    let expected = factors
        .iter()
        .try_fold(1_usize, |all, factor| all.checked_mul(*factor));
    match expected {
        Some(expected) if expected == found => Ok(()),
        Some(expected) => Err(format!("{what}: {found} elements, expected {expected}")),
        None => Err(format!("{what}: sizes {factors:?} are too large")),
    }
}

//! The error function in float64, which the Rust standard library lacks.

/// Computes the error function to float64's precision, by a series and a continued fraction. They
/// are shorter than W. J. Cody's rational approximations.
pub(crate) fn erf(x: f64) -> f64 {
    let size = x.abs();
    if size > 6.0 {
        return 1.0_f64.copysign(x);
    }
    if size < 2.5 {
        let (mut term, mut sum, mut n) = (x, x, 0.0);
        while term.abs() > 1e-17 * sum.abs() && n < 200.0 {
            n += 1.0;
            term *= -x * x / n;
            sum += term / (2.0 * n + 1.0);
        }
        return sum * std::f64::consts::FRAC_2_SQRT_PI;
    }
    let mut fraction = 0.0;
    for n in (1..80).rev() {
        fraction = f64::from(n) / 2.0 / (size + fraction);
    }
    let complement = (-size * size).exp() / (size + fraction) / std::f64::consts::PI.sqrt();
    (1.0 - complement).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::erf;

    #[test]
    fn known_values() {
        for (x, expected) in [
            (0.0, 0.0),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (-2.5, -0.999_593_047_982_555),
            (4.0, 0.999_999_984_582_742_1),
            (1e9, 1.0),
        ] {
            assert!((erf(x) - expected).abs() < 1e-15, "{x}: {}", erf(x));
        }
        assert!(erf(f64::NAN).is_nan());
    }
}

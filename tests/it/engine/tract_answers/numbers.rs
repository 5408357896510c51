//! Unary and binary functions on tract, at the ends of their ranges.
//!
//! Each test computes its answers three times in one session, with other inputs in between.

use pkgtool_engine::tensor::DType;

use super::{
    Attribute, DOUBLE, FLOAT, FLOAT16, INT32, INT64, assert_answers, float, floats, load, node,
    tensor, value,
};

#[test]
fn a_remainder_broadcasts_either_operand() {
    let graph = |fmod| {
        [
            value(11, "a", INT64, Some(&[1, 2])),
            value(11, "b", INT64, Some(&[3, 1])),
            value(12, "y", INT64, None),
            node("Mod", &["a", "b"], "y", &[("fmod", Attribute::Int(fmod))]),
        ]
    };
    let run = |a: [f64; 2], b: [f64; 3], y: [f64; 6]| {
        let inputs = vec![
            tensor(DType::Int64, &[1, 2], &a),
            tensor(DType::Int64, &[3, 1], &b),
        ];
        (inputs, vec![3, 2], y.to_vec())
    };
    let (a, b) = ([7.0, -7.0], [3.0, -3.0, 4.0]);
    assert_answers(
        &graph(0),
        &[
            run(a, b, [1.0, 2.0, -2.0, -1.0, 3.0, 1.0]),
            run([1.0, 5.0], [2.0, 5.0, 7.0], [1.0, 1.0, 1.0, 0.0, 1.0, 5.0]),
        ],
    );
    assert_answers(&graph(1), &[run(a, b, [1.0, -1.0, 1.0, -1.0, 3.0, -3.0])]);
}

#[test]
fn a_remainder_of_fractions_broadcasts_its_first_operand() {
    let graph = [
        value(11, "a", FLOAT, Some(&[])),
        value(11, "b", FLOAT, Some(&[2])),
        value(12, "y", FLOAT, None),
        node("Mod", &["a", "b"], "y", &[("fmod", Attribute::Int(1))]),
    ];
    let run = |a: f64, b: [f64; 2], y: [f64; 2]| {
        (vec![float(&[], &[a]), float(&[2], &b)], vec![2], y.to_vec())
    };
    assert_answers(
        &graph,
        &[
            run(5.5, [2.0, -3.0], [1.5, 2.5]),
            run(-5.5, [2.0, 4.0], [-1.5, -1.5]),
        ],
    );
}

#[test]
#[expect(clippy::cast_possible_truncation, reason = "the test is about float32")]
fn half_way_between_two_steps_is_rounded_to_the_even_one() {
    let graph = [
        value(11, "x", FLOAT, Some(&[4])),
        value(11, "s", FLOAT, Some(&[])),
        value(12, "y", FLOAT, None),
        node("Div", &["x", "s"], "d", &[]),
        node("Round", &["d"], "y", &[]),
    ];
    // For values such as 0.3 / 0.6, the product with the reciprocal differs from the quotient.
    let scale = 0.015_686_275;
    let x = [0.5, 1.5, 63.5, 127.5].map(|steps: f64| f64::from((steps * scale) as f32));
    let y = x
        .map(|x| (x as f32 / scale as f32).round_ties_even())
        .map(f64::from);
    let run = |x: [f64; 4], s: f64, y: [f64; 4]| {
        (vec![float(&[4], &x), float(&[], &[s])], vec![4], y.to_vec())
    };
    assert_answers(
        &graph,
        &[
            run(x, scale, y),
            run([0.5, 1.5, 2.5, -3.5], 1.0, [0.0, 2.0, 2.0, -4.0]),
        ],
    );
}

#[test]
fn activations_have_no_floor_and_keep_what_is_no_number() {
    let graph = |operator: &str| {
        [
            value(11, "x", FLOAT, Some(&[-1])),
            value(12, "y", FLOAT, None),
            node(operator, &["x"], "y", &[]),
        ]
    };
    let run = |x: &[f64], y: &[f64]| {
        (
            vec![float(&[x.len() as u64], x)],
            vec![y.len() as u64],
            y.to_vec(),
        )
    };
    let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
    let low: [f64; 3] = [-20.0, -40.0, -80.0];
    let nan = f64::NAN;
    assert_answers(
        &graph("Sigmoid"),
        &[run(&low, &low.map(logistic)), run(&[0.0, nan], &[0.5, nan])],
    );
    for operator in ["Tanh", "Erf", "Relu"] {
        let end = if operator == "Relu" {
            f64::INFINITY
        } else {
            1.0
        };
        assert_answers(
            &graph(operator),
            &[
                run(&[0.0, nan, f64::INFINITY], &[0.0, nan, end]),
                run(&[0.0], &[0.0]),
            ],
        );
    }
    let silu = [
        value(11, "x", FLOAT, Some(&[-1])),
        value(12, "y", FLOAT, None),
        node("Sigmoid", &["x"], "s", &[]),
        node("Mul", &["x", "s"], "y", &[]),
    ];
    assert_answers(&silu, &[run(&low, &low.map(|x| x * logistic(x)))]);
}

#[test]
fn comparisons_keep_what_is_no_number() {
    let nan = f64::NAN;
    for (operator, other) in [("Max", 5.0), ("Min", 1.0)] {
        let graph = [
            value(11, "a", FLOAT, Some(&[-1])),
            value(11, "b", FLOAT, Some(&[-1])),
            value(12, "y", FLOAT, None),
            node(operator, &["a", "b"], "y", &[]),
        ];
        let run = |a: [f64; 3], b: [f64; 3], y: [f64; 3]| {
            (vec![float(&[3], &a), float(&[3], &b)], vec![3], y.to_vec())
        };
        assert_answers(
            &graph,
            &[
                run([1.0, nan, 5.0], [5.0, 1.0, nan], [other, nan, nan]),
                run([1.0; 3], [5.0; 3], [other; 3]),
            ],
        );
    }
}

/// Tract fuses these operators to one chain. NaN from the arithmetic must pass through the
/// operators that follow.
#[test]
fn what_arithmetic_makes_no_number_stays_none() {
    const SIZE: u32 = 40;
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    for (element, dtype) in [
        (FLOAT, DType::Float32),
        (FLOAT16, DType::Float16),
        (DOUBLE, DType::Float64),
    ] {
        let row = |value: f64| tensor(dtype, &[1, SIZE.into()], &[value; SIZE as usize]);
        let graph = |operator: &str, last: &[&str]| {
            let shape = Some(&[1, SIZE.into()][..]);
            let values = ["a", "b", "c"].map(|name| value(11, name, element, shape));
            let mut graph = values.to_vec();
            graph.push(value(12, "y", element, None));
            graph.push(node(operator, &["a", "b"], "s", &[]));
            graph.push(node(last[0], &["s"], "r", &[]));
            graph.push(node(last[1], &["r", "c"], "y", &[]));
            graph
        };
        let run = |[a, b, c]: [f64; 3], y: f64| {
            (
                vec![row(a), row(b), row(c)],
                vec![1, SIZE.into()],
                vec![y; SIZE as usize],
            )
        };
        assert_answers(
            &graph("Add", &["Relu", "Min"]),
            &[
                run([1.0, nan, 2.0], nan),
                run([inf, -inf, 2.0], nan),
                run([nan, 1.0, 2.0], nan),
                run([1.0, 4.0, 2.0], 2.0),
                run([1.0, -4.0, nan], nan),
                run([1.0, -4.0, 2.0], 0.0),
            ],
        );
        assert_answers(
            &graph("Mul", &["Relu", "Add"]),
            &[
                run([0.0, inf, 2.0], nan),
                run([-1.0, 4.0, 2.0], 2.0),
                run([1.0, inf, -inf], nan),
            ],
        );
    }
}

#[test]
fn nothing_times_what_is_no_number_is_none() {
    let graph = [
        value(11, "x", FLOAT, Some(&[3])),
        value(12, "y", FLOAT, None),
        floats("zero", &[], &[0.0]),
        node("Mul", &["x", "zero"], "y", &[]),
    ];
    let nan = f64::NAN;
    let run = |x: [f64; 3], y: [f64; 3]| (vec![float(&[3], &x)], vec![3], y.to_vec());
    assert_answers(
        &graph,
        &[
            run([nan, f64::INFINITY, 1.0], [nan, nan, 0.0]),
            run([1.0, 2.0, 3.0], [0.0; 3]),
        ],
    );
}

#[test]
fn a_whole_number_by_zero_is_told() {
    let graph = [
        value(11, "a", INT32, Some(&[2])),
        value(11, "b", INT32, Some(&[2])),
        value(12, "y", INT32, None),
        node("Div", &["a", "b"], "y", &[]),
    ];
    let mut session = load(&graph).expect("the model loads");
    let run = |b: [f64; 2]| [[6.0, 6.0], b].map(|values| tensor(DType::Int32, &[2], &values));
    for _ in 0..3 {
        let error = session.run(&run([1.0, 0.0])).expect_err("the run fails");
        let error = error.to_string();
        assert!(error.contains("an integer is divided by zero"), "{error}");
        let answer = session.run(&run([1.0, 3.0])).expect("the run succeeds");
        assert_eq!(answer.outputs[0].to_f64().collect::<Vec<_>>(), [6.0, 2.0]);
    }
}

#[test]
fn a_norm_over_all_places_sums() {
    let graph = [
        value(11, "x", FLOAT, Some(&[1, 2, -1])),
        value(12, "y", FLOAT, None),
        node("GlobalLpPool", &["x"], "y", &[("p", Attribute::Int(1))]),
    ];
    let run = |x: &[f64], y: [f64; 2]| {
        (
            vec![float(&[1, 2, x.len() as u64 / 2], x)],
            vec![1, 2, 1],
            y.to_vec(),
        )
    };
    assert_answers(
        &graph,
        &[
            run(&[1.0, -2.0, 3.0, 4.0], [3.0, 7.0]),
            run(&[-5.0, 1.0], [5.0, 1.0]),
        ],
    );
}

#[test]
fn functions_of_very_large_and_very_small_numbers_are_right() {
    type Case<'a> = (&'a str, &'a [f64], fn(f64) -> f64);
    let cases: [Case<'_>; 6] = [
        ("Selu", &[-2.2e-6, -1e-3, 0.0], |x| {
            f64::from(1.673_263_2_f32) * f64::from(1.050_701_f32) * x.exp_m1()
        }),
        ("HardSwish", &[3e38, 2.0, -3e38], |x| {
            x * (x / 6.0 + 0.5).clamp(0.0, 1.0)
        }),
        ("Asinh", &[3.4e38, -3.4e38, 0.5], f64::asinh),
        ("Acosh", &[3.4e38, 1.5, 2.0], f64::acosh),
        ("Erf", &[4e-7, -1e-3, 0.0], |x| {
            x * std::f64::consts::FRAC_2_SQRT_PI * (1.0 - x * x / 3.0)
        }),
        ("Mish", &[-14.729_721_069_335_938, -90.0, 2.0], |x| {
            x * x.exp().ln_1p().tanh()
        }),
    ];
    for (operator, x, function) in cases {
        let graph = [
            value(11, "x", FLOAT, Some(&[-1])),
            value(12, "y", FLOAT, None),
            node(operator, &["x"], "y", &[]),
        ];
        let run = |x: &[f64]| {
            // Computes the expected value from the input after rounding to single precision.
            #[expect(
                clippy::cast_possible_truncation,
                reason = "rounding to float32 is intended"
            )]
            let y = x.iter().map(|x| function(f64::from(*x as f32)));
            let size = x.len() as u64;
            (vec![float(&[size], x)], vec![size], y.collect())
        };
        let mut session = load(&graph).expect("the model loads");
        for x in [x, &x[1..], x] {
            let (inputs, shape, expected): (_, Vec<u64>, Vec<f64>) = run(x);
            let answer = session.run(&inputs).expect("the run succeeds");
            assert_eq!(answer.outputs[0].shape(), shape);
            let found = answer.outputs[0].to_f64();
            for (found, expected) in found.zip(expected) {
                let off = (found - expected).abs();
                assert!(
                    off <= expected.abs() * 1e-4,
                    "{operator}: {found}, not {expected}"
                );
            }
        }
    }
}

#[test]
fn numbers_beyond_32_bits_are_cast_whole() {
    for (element, dtype, number) in [
        (FLOAT, DType::Float32, 8_589_934_592.0),
        (INT64, DType::Int64, -1_099_511_627_776.0),
    ] {
        let graph = [
            value(11, "x", element, Some(&[-1])),
            value(12, "y", INT64, None),
            node("Cast", &["x"], "y", &[("to", Attribute::Int(7))]),
        ];
        let run = |x: &[f64]| {
            let size = x.len() as u64;
            (vec![tensor(dtype, &[size], x)], vec![size], x.to_vec())
        };
        assert_answers(&graph, &[run(&[number, 1.0]), run(&[2.0, 3.0, number])]);
    }
}

#[test]
fn a_quotient_has_no_reciprocal_in_between() {
    let stored = [
        value(11, "x", FLOAT, Some(&[-1])),
        value(12, "y", FLOAT, None),
        floats("d", &[1], &[2e38]),
        node("Div", &["x", "d"], "y", &[]),
    ];
    let run = |x: f64, y: f64| (vec![float(&[1], &[x])], vec![1], vec![y]);
    assert_answers(
        &stored,
        &[run(2f32.powi(120).into(), f64::from(2f32.powi(120) / 2e38))],
    );
    let given = [
        value(11, "x", FLOAT, Some(&[1])),
        value(11, "d", FLOAT, Some(&[1])),
        value(12, "y", FLOAT, None),
        node("Div", &["x", "d"], "y", &[]),
    ];
    let mut session = load(&given).expect("the model loads");
    for _ in 0..3 {
        let both = |number: f64| [float(&[1], &[number]), float(&[1], &[number])];
        let answer = session.run(&both(3.0)).expect("the run succeeds");
        assert_eq!(answer.outputs[0].to_f64().collect::<Vec<_>>(), [1.0]);
        match session.run(&both(2e-39)) {
            Ok(answer) => assert_eq!(answer.outputs[0].to_f64().collect::<Vec<_>>(), [1.0]),
            Err(error) => assert!(error.to_string().contains("reciprocal"), "{error}"),
        }
    }
}

#[test]
fn the_largest_doubles_have_an_inverse_of_a_hyperbolic_sine() {
    for (operator, negative) in [("Asinh", true), ("Acosh", false)] {
        let graph = [
            value(11, "x", DOUBLE, Some(&[2])),
            value(12, "y", DOUBLE, None),
            node(operator, &["x"], "y", &[]),
        ];
        let run = |x: f64, y: f64| {
            (
                vec![tensor(DType::Float64, &[2], &[x; 2])],
                vec![2],
                vec![y; 2],
            )
        };
        let most = f64::MAX.ln() + std::f64::consts::LN_2;
        let mut runs = vec![
            run(f64::MAX, most),
            run(1e20, 1e20_f64.ln() + std::f64::consts::LN_2),
        ];
        if negative {
            runs.push(run(-f64::MAX, -most));
        }
        assert_answers(&graph, &runs);
    }
}

#[test]
fn a_gaussian_unit_by_a_tangent_comes_to_an_end() {
    let graph = [
        value(11, "x", FLOAT, Some(&[2])),
        value(12, "y", FLOAT, None),
        node(
            "Gelu",
            &["x"],
            "y",
            &[("approximate", Attribute::Text("tanh"))],
        ),
    ];
    let run = |x: f64| {
        let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
        let y = x / (1.0 + (-2.0 * inner).exp());
        (vec![float(&[2], &[x; 2])], vec![2], vec![y; 2])
    };
    assert_answers(&graph, &[run(-4.0), run(-5.5), run(1.0), run(9.0)]);
}

#[test]
fn a_power_has_the_dtype_of_its_base() {
    let graph = [
        value(11, "a", INT32, Some(&[2])),
        value(11, "b", INT64, Some(&[2])),
        value(12, "y", INT32, None),
        node("Pow", &["a", "b"], "y", &[]),
    ];
    let run = |a: [f64; 2], b: [f64; 2], y: [f64; 2]| {
        let inputs = vec![
            tensor(DType::Int32, &[2], &a),
            tensor(DType::Int64, &[2], &b),
        ];
        (inputs, vec![2], y.to_vec())
    };
    let runs = [
        run([2.0, -3.0], [10.0, 3.0], [1024.0, -27.0]),
        run([7.0, 5.0], [0.0, 1.0], [1.0, 5.0]),
    ];
    assert_answers(&graph, &runs);
}

#[test]
fn the_softsign_of_the_largest_number_is_one() {
    let graph = [
        value(11, "x", DOUBLE, Some(&[2])),
        value(12, "y", DOUBLE, None),
        node("Softsign", &["x"], "y", &[]),
    ];
    let run = |x: f64, y: f64| {
        (
            vec![tensor(DType::Float64, &[2], &[x; 2])],
            vec![2],
            vec![y; 2],
        )
    };
    assert_answers(&graph, &[run(f64::MAX, 1.0), run(-1.0, -0.5)]);
}

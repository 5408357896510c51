//! Scalar operands given as tensors of shape `[1]`, as exporters write them; `TopK` with a computed
//! count.

use pkgtool_engine::tensor::DType;

use super::{
    Attribute, FLOAT, INT64, assert_answers, float, load, node, numbers, tensor, value, whole_node,
};

#[test]
fn a_range_takes_numbers_of_shape_one() {
    let run = |start: f64, limit: f64, step: f64, expected: &[f64]| {
        let inputs = [start, limit, step].map(|it| tensor(DType::Int64, &[1], &[it]));
        (
            inputs.to_vec(),
            vec![expected.len() as u64],
            expected.to_vec(),
        )
    };
    for size in [1, -1] {
        let mut graph = vec![
            value(12, "y", INT64, None),
            node("Range", &["start", "limit", "step"], "y", &[]),
        ];
        graph.extend(["start", "limit", "step"].map(|name| value(11, name, INT64, Some(&[size]))));
        let runs = [
            run(1.0, 9.0, 3.0, &[1.0, 4.0, 7.0]),
            run(5.0, 2.0, -2.0, &[5.0, 3.0]),
            run(5.0, 2.0, 1.0, &[]),
        ];
        assert_answers(&graph, &runs);
    }
}

/// Positions of a decoder: a range from the length of the past to the total length.
#[test]
fn a_range_of_sizes_is_as_long_as_they_say() {
    let graph = [
        value(11, "past", FLOAT, Some(&[1, -1])),
        value(11, "x", FLOAT, Some(&[-1, 1])),
        value(12, "y", INT64, None),
        numbers("zero", &[0]),
        numbers("one", &[1]),
        node("Shape", &["past"], "p", &[]),
        node("Shape", &["x"], "n", &[]),
        node("Gather", &["p", "one"], "p.size", &[]),
        node("Gather", &["n", "zero"], "n.size", &[]),
        node("Add", &["p.size", "n.size"], "all", &[]),
        node("Range", &["p.size", "all", "one"], "y", &[]),
    ];
    let run = |past: u64, new: u64| {
        let zeros = |count: u64| vec![0.0; usize::try_from(count).expect("the number fits")];
        let inputs = vec![
            float(&[1, past], &zeros(past)),
            float(&[new, 1], &zeros(new)),
        ];
        let expected: Vec<f64> = (past..past + new)
            .map(|at| f64::from(u32::try_from(at).expect("the number fits")))
            .collect();
        (inputs, vec![new], expected)
    };
    assert_answers(
        &graph,
        &[run(0, 3), run(3, 1), run(4, 1), run(2, 5), run(7, 2)],
    );
}

#[test]
fn an_axis_and_a_diagonal_may_have_a_dimension() {
    let x = [1.0, 2.0, 3.0, 4.0];
    for (operator, number, expected) in [
        ("CumSum", 1, [1.0, 3.0, 3.0, 7.0]),
        ("CumSum", -2, [1.0, 2.0, 4.0, 6.0]),
        ("Trilu", 1, [0.0, 2.0, 0.0, 0.0]),
        ("Trilu", -1, [1.0, 2.0, 3.0, 4.0]),
    ] {
        let stored = vec![
            value(11, "x", FLOAT, Some(&[2, -1])),
            value(12, "y", FLOAT, None),
            numbers("k", &[number]),
            node(operator, &["x", "k"], "y", &[]),
        ];
        let run = (vec![float(&[2, 2], &x)], vec![2, 2], expected.to_vec());
        assert_answers(&stored, std::slice::from_ref(&run));
        let mut given = stored;
        given[2] = value(11, "k", INT64, Some(&[1]));
        #[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
        let k = tensor(DType::Int64, &[1], &[number as f64]);
        let (mut inputs, shape, expected) = run;
        inputs.push(k);
        assert_answers(&given, &[(inputs, shape, expected)]);
    }
}

fn top(count: &[Vec<u8>], largest: i64) -> Vec<Vec<u8>> {
    let largest = [("largest", Attribute::Int(largest))];
    let mut graph = vec![
        value(11, "x", FLOAT, Some(&[1, -1])),
        value(12, "y", FLOAT, None),
        whole_node("", "TopK", &["x", "k"], &["y", "places"], &largest),
    ];
    graph.extend(count.iter().cloned());
    graph
}

#[test]
fn the_largest_are_found_for_a_number_that_is_computed() {
    // The count is the size of the dimension, but at most two.
    let sizes = [
        node("Shape", &["x"], "shape", &[]),
        numbers("last", &[1]),
        numbers("two", &[2]),
        node("Gather", &["shape", "last"], "size", &[]),
        node("Min", &["size", "two"], "k", &[]),
    ];
    let run = |x: &[f64], y: &[f64]| {
        (
            vec![float(&[1, x.len() as u64], x)],
            vec![1, y.len() as u64],
            y.to_vec(),
        )
    };
    let runs = [
        run(&[1.0, 5.0, 3.0], &[5.0, 3.0]),
        run(&[4.0], &[4.0]),
        run(&[2.0, 2.0, 9.0, 7.0], &[9.0, 7.0]),
    ];
    assert_answers(&top(&sizes, 1), &runs);
    // The count comes from a float32 input, so it is not a known size.
    let given = [
        value(11, "count", FLOAT, Some(&[1])),
        node("Cast", &["count"], "k", &[("to", Attribute::Int(7))]),
    ];
    let run = |count: f64, y: &[f64]| {
        let x = float(&[1, 4], &[4.0, 1.0, 3.0, 2.0]);
        (
            vec![x, float(&[1], &[count])],
            vec![1, y.len() as u64],
            y.to_vec(),
        )
    };
    let runs = [run(1.0, &[1.0]), run(3.0, &[1.0, 2.0, 3.0]), run(0.0, &[])];
    assert_answers(&top(&given, 0), &runs);
}

#[test]
fn more_than_there_are_is_an_error_and_no_number_is_the_largest() {
    let nan = f64::NAN;
    let stored = [numbers("k", &[3])];
    let x = float(&[1, 5], &[1.0, nan, -2.0, nan, 4.0]);
    let run = (vec![x.clone()], vec![1, 3], vec![nan, nan, 4.0]);
    assert_answers(&top(&stored, 1), &[run]);
    let run = (vec![x], vec![1, 3], vec![-2.0, 1.0, 4.0]);
    assert_answers(&top(&stored, 0), &[run]);
    let mut session = load(&top(&stored, 1)).expect("the model loads");
    let error = session.run(&[float(&[1, 2], &[1.0, 2.0])]).err();
    let error = error.expect("the count exceeds the dimension").to_string();
    assert!(error.contains("3 largest or smallest of 2"), "{error}");
}

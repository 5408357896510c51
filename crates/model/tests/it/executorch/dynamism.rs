//! Detection of dynamic dimensions in ExecuTorch programs, by each kind of evidence.

use pkgtool_model::{Allowed, Dim, Dynamism, Method, ModelValue, ValueKind};

use super::{bytes_of, read};
use pkgtool_testing::program::{
    OffsetTarget, ProgramField, ProgramPlan, byte, constant, file, integer, ints, program, tables,
};
use pkgtool_testing::program::{tensor, text, value};

fn dynamic(bound: u64) -> Dim {
    Dim::Dynamic {
        bound: Some(bound),
        name: None,
        allowed: None,
    }
}

fn declared(bound: u64, allowed: Allowed) -> Dim {
    Dim::Dynamic {
        bound: Some(bound),
        name: None,
        allowed: Some(allowed),
    }
}

/// A dynamic dimension from 1 to `most`.
fn any_up_to(most: u64) -> Dim {
    let (least, step) = (1, 1);
    declared(most, Allowed::Range { least, most, step })
}

fn maybe(bound: u64, likely_dynamic: bool) -> Dim {
    Dim::Maybe {
        bound,
        likely_dynamic,
    }
}

fn dims(method: &Method) -> Vec<Vec<Dim>> {
    let values = method.inputs.iter().chain(&method.outputs);
    let tensors = values.filter_map(ModelValue::tensor);
    tensors
        .map(|info| info.dims.clone().expect("a rank"))
        .collect()
}

/// Returns the dimensions of the inputs, then of the outputs, of `forward` in a program with these
/// methods.
fn forward(plan: &ProgramPlan, others: Vec<OffsetTarget>) -> Vec<Vec<Dim>> {
    let mut plans = vec![plan.node()];
    plans.extend(others);
    let info = read(&file(&program(plans)));
    dims(info.method("forward").expect("the method exists"))
}

/// A method without instructions whose inputs are tensors with these bounds.
fn takes(bounds: &[&[i32]]) -> ProgramPlan {
    ProgramPlan {
        name: "forward",
        values: bounds.iter().map(|sizes| tensor(sizes, 1)).collect(),
        inputs: (0..).take(bounds.len()).collect(),
        ..ProgramPlan::default()
    }
}

#[test]
fn a_dynamic_batch_shows_on_both_sides() {
    let info = read(&bytes_of("dyn_batch_xnnpack_fp32.pte"));
    let found = dims(info.method("forward").expect("the method exists"));
    let input = vec![
        dynamic(16),
        Dim::Fixed(3),
        maybe(32, false),
        maybe(32, false),
    ];
    assert_eq!(found, [input, vec![dynamic(16), Dim::Fixed(4)]]);
}

#[test]
fn without_evidence_the_first_large_dimension_is_the_guess() {
    let found = forward(&takes(&[&[1, 3, 8]]), Vec::new());
    assert_eq!(
        found,
        [vec![maybe(1, false), maybe(3, true), maybe(8, false)]]
    );
    let found = forward(&takes(&[&[1, 1]]), Vec::new());
    assert_eq!(found, [vec![maybe(1, true), maybe(1, false)]]);
    assert_eq!(forward(&takes(&[&[]]), Vec::new()), [Vec::new()]);
}

#[test]
fn an_only_candidate_is_certain_and_its_bound_guides_the_others() {
    let found = forward(&takes(&[&[1, 128], &[64, 128]]), Vec::new());
    let first = vec![maybe(1, false), dynamic(128)];
    assert_eq!(found, [first, vec![maybe(64, false), maybe(128, true)]]);
}

#[test]
fn unbounded_tensors_have_no_bounds() {
    let plan = ProgramPlan {
        name: "forward",
        values: vec![tensor(&[4, 0], 2), tensor(&[4, 1], 0)],
        inputs: vec![0, 1],
        ..ProgramPlan::default()
    };
    let info = read(&file(&program(vec![plan.node()])));
    let method = info.method("forward").expect("the method exists");
    let open = Dim::ANY;
    let fixed = vec![Dim::Fixed(4), Dim::Fixed(1)];
    assert_eq!(dims(method), [vec![open.clone(), open], fixed]);
    let unbounded = method.inputs[0].tensor().map(|info| info.dynamism);
    assert_eq!(unbounded, Some(Dynamism::Unbounded));
}

#[test]
fn sym_size_proves_a_dimension_dynamic() {
    for (argument, expected) in [
        (1, vec![maybe(7, false), dynamic(9)]),
        (-2, vec![dynamic(7), maybe(9, false)]),
        (5, vec![maybe(7, true), maybe(9, false)]),
    ] {
        let plan = ProgramPlan {
            values: vec![tensor(&[7, 9], 1), integer(argument), integer(0)],
            inputs: vec![0],
            operators: vec!["aten::sym_size.int"],
            calls: vec![(0, vec![0, 1, 2])],
            ..takes(&[])
        };
        assert_eq!(forward(&plan, Vec::new()), [expected]);
    }
}

#[test]
fn a_view_tells_computed_sizes_from_literals() {
    let sizes = vec![4, 5, 6];
    let list = value(7, vec![(0, ProgramField::To(OffsetTarget::Longs(sizes)))]);
    let values = vec![
        tensor(&[16, 4], 1),
        integer(0),
        integer(0),
        tensor(&[16, 2, 2], 1),
        integer(0),
        integer(2),
        integer(3),
        list,
    ];
    let plan = ProgramPlan {
        name: "forward",
        values,
        inputs: vec![0],
        outputs: vec![3],
        operators: vec!["aten::sym_size.int", "executorch_prim::et_view.default"],
        calls: vec![(0, vec![0, 1, 4]), (1, vec![0, 7, 3])],
    };
    // The last literal contradicts the bound, so it is ignored.
    let output = vec![dynamic(16), Dim::Fixed(2), maybe(2, false)];
    let input = vec![dynamic(16), maybe(4, false)];
    assert_eq!(forward(&plan, Vec::new()), [input, output]);
}

#[test]
fn a_model_schema_is_believed_where_it_agrees() {
    let schema = r#"{"forward": {"inputs": [
        {"kind": "Int"},
        {"kind": "Tensor", "dtype": "float32", "shape": [
            {"kind": "constant", "value": 3},
            {"kind": "range", "range": {"min": 1, "max": 8, "step": 1}},
            {"kind": "enum", "choices": [2, 4]},
            {"kind": "enum", "choices": [4]},
            {"kind": "constant", "value": 5}]}],
        "outputs": [], "runtimeConstraints": []}}"#;
    let declared = || constant("get_model_schema", value(6, vec![(0, text(schema))]));
    let found = forward(&takes(&[&[3, 8, 4, 4, 6]]), vec![declared()]);
    let expected = vec![
        Dim::Fixed(3),
        any_up_to(8),
        self::declared(4, Allowed::Choices(vec![2, 4])),
        Dim::Fixed(4),
        maybe(6, false),
    ];
    assert_eq!(found, [expected]);
    // A schema with another rank is ignored.
    let found = forward(&takes(&[&[3, 8]]), vec![declared()]);
    assert_eq!(found, [vec![maybe(3, true), maybe(8, false)]]);
}

/// Returns the dimension names of the inputs of `forward`.
fn names(found: &[Vec<Dim>]) -> Vec<Vec<Option<String>>> {
    let name = |dim: &Dim| match dim {
        Dim::Dynamic { name, .. } => name.clone(),
        _ => None,
    };
    found
        .iter()
        .map(|dims| dims.iter().map(name).collect())
        .collect()
}

#[test]
fn declared_constraints_name_the_dimensions() {
    let schema = |constraints: &str| {
        let range = r#"{"kind": "range", "range": {"min": 1, "max": 8, "step": 1}}"#;
        let one = r#"{"kind": "constant", "value": 3}"#;
        let tensor = format!(
            r#"{{"kind": "Tensor", "dtype": "float32", "shape": [{range}, {one}, {range}]}}"#
        );
        format!(
            r#"{{"forward": {{"inputs": [{tensor}, {{"kind": "Int"}}, {tensor}, {tensor}], "outputs": [],
            "runtimeConstraints": [{constraints}]}}}}"#
        )
    };
    let at = |tensor: u32, dim: u32| {
        format!(r#"{{"paramSide": "input", "tensorIdx": {tensor}, "dimIdx": {dim}}}"#)
    };
    let equality =
        |dims: &[String]| format!(r#"{{"kind": "equality", "dims": [{}]}}"#, dims.join(", "));
    let linear = |a: &str, b: &str, coefficients: &str| {
        format!(
            r#"{{"kind": "linear", "dimLhs": {a}, "dimRhs": {b}, "coefficients": {coefficients}}}"#
        )
    };
    let found = |constraints: &[String]| {
        let text_of = schema(&constraints.join(", "));
        let declared = constant("get_model_schema", value(6, vec![(0, text(&text_of))]));
        let bounds: &[&[i32]] = &[&[8, 3, 8], &[8, 3, 8], &[8, 3, 8]];
        names(&forward(&takes(bounds), vec![declared]))
    };
    let some = |name: &str| Some(name.to_owned());
    assert_eq!(found(&[]), vec![vec![None; 3]; 3]);
    assert_eq!(
        found(&[
            equality(&[at(0, 0), at(1, 0)]),
            linear(&at(2, 2), &at(0, 0), "[2, -1]")
        ]),
        [
            vec![some("s0"), None, None],
            vec![some("s0"), None, None],
            vec![None, None, some("2*s0 - 1")],
        ]
    );
    // Constraints that are not dimensions, have a single size, or have unknown keys are ignored.
    for constraint in [
        equality(&[at(0, 0), at(7, 0)]),
        equality(&[at(0, 0), at(1, 1)]),
        equality(&[at(0, 0)]),
        linear(&at(0, 0), &at(0, 0), "[2, 1]"),
        linear(&at(0, 0), &at(1, 0), "[2]"),
        r#"{"kind": "equality"}"#.to_owned(),
        r#"{"kind": "other", "dims": []}"#.to_owned(),
        "7".to_owned(),
    ] {
        assert_eq!(
            found(std::slice::from_ref(&constraint)),
            vec![vec![None; 3]; 3],
            "{constraint}"
        );
    }
    let chained = [
        equality(&[at(0, 0), at(1, 0)]),
        equality(&[at(1, 0), at(2, 0), at(2, 2)]),
    ];
    let chained = found(&chained);
    assert_eq!(chained[2], [some("s0"), None, some("s0")]);
}

#[test]
fn a_schema_that_leaves_nothing_dynamic_is_not_believed() {
    let schema = r#"{"forward": {"inputs": [{"kind": "Tensor", "shape": [
        {"kind": "constant", "value": 3}, {"kind": "constant", "value": 8}]}]}}"#;
    let declared = constant("get_model_schema", value(6, vec![(0, text(schema))]));
    let found = forward(&takes(&[&[3, 8]]), vec![declared]);
    assert_eq!(found, [vec![maybe(3, true), maybe(8, false)]]);
}

#[test]
fn dynamic_dims_are_rows_over_all_inputs() {
    let rows: [i64; 12] = [1, 1, 1, 1, 128, 1, 2, 2, 1, 1, 64, 1];
    let raw = rows
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    let table = vec![
        (0, byte(4)),
        (2, ints(&[4, 3])),
        (5, ProgramField::Scalar(1u32.to_le_bytes().to_vec())),
    ];
    let mut plan = takes(&[&[1, 128], &[2, 64]]);
    plan.values.push(tensor(&[2, 64], 1));
    plan.outputs = vec![2];
    let plans = vec![plan.node(), constant("get_dynamic_dims", value(5, table))];
    let stored = |bytes: Vec<u8>| {
        OffsetTarget::Table(vec![(0, ProgramField::To(OffsetTarget::Bytes(bytes)))])
    };
    let root = OffsetTarget::Table(vec![
        (1, tables(plans)),
        (2, tables(vec![stored(Vec::new()), stored(raw)])),
    ]);
    let info = read(&file(&root));
    assert_eq!(info.weight_bytes, 96);
    let found = dims(info.method("forward").expect("the method exists"));
    let expected = [
        vec![Dim::Fixed(1), any_up_to(128)],
        vec![Dim::Fixed(2), any_up_to(64)],
        vec![maybe(2, false), maybe(64, true)],
    ];
    assert_eq!(found, expected);
    let ValueKind::Tensor { data, .. } = &info.methods[1].outputs[0].kind else {
        panic!("a tensor");
    };
    assert_eq!(data.as_ref().map(Vec::len), Some(12));
}

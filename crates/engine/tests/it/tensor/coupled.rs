//! Linked dimensions, initial values of inputs, and joint signatures of several models.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use pkgtool_engine::tensor::input::{
    Generator, InitialValue, InputArgs, JointModel, JointSignature, RunSteps, StepArgs, assemble,
    assemble_around, match_values,
};
use pkgtool_engine::tensor::{DType, Signature, Tensor, TensorSpec};
use pkgtool_model::Dim;
use proptest::prelude::*;
use zip::write::SimpleFileOptions;

use super::args;
use super::input::signature;
use pkgtool_testing::fixture;

fn symbol(name: &str) -> Dim {
    Dim::Dynamic {
        allowed: None,
        bound: None,
        name: Some(name.to_owned()),
    }
}

fn up_to(bound: u64) -> Dim {
    Dim::Dynamic {
        allowed: None,
        bound: Some(bound),
        name: None,
    }
}

fn shapes(tensors: &[Tensor]) -> Vec<Vec<u64>> {
    tensors
        .iter()
        .map(|tensor| tensor.shape().to_vec())
        .collect()
}

/// A decoder with new tokens, a mask over past and new tokens, and the past.
fn decoder() -> Signature {
    signature(&[
        (
            "ids",
            DType::Int64,
            Some(vec![symbol("batch"), symbol("sequence_length")]),
        ),
        (
            "mask",
            DType::Int64,
            Some(vec![symbol("batch"), symbol("total_sequence_length")]),
        ),
        (
            "past",
            DType::Float32,
            Some(vec![
                symbol("batch"),
                symbol("past_sequence_length"),
                Dim::Fixed(2),
            ]),
        ),
    ])
}

#[test]
fn the_whole_is_the_past_and_the_new() {
    for (inputs, dims, expected) in [
        (&["ones"][..], &[][..], [1, 2, 1]),
        (&["ones"], &["sequence_length=3"], [3, 4, 1]),
        (&["ones"], &["total_sequence_length=9"], [1, 9, 8]),
        (
            &["ones"],
            &["total_sequence_length=9", "past_sequence_length=5"],
            [4, 9, 5],
        ),
        (
            &["ids=[[1,2,3]]", "ones"],
            &["past_sequence_length=0"],
            [3, 3, 0],
        ),
        (
            &["mask=ones@1x7", "ids=[[1,2]]", "past=zeros"],
            &[],
            [2, 7, 5],
        ),
    ] {
        let tensors = assemble(&decoder(), &args(inputs, dims)).expect("the inputs fit");
        let found: Vec<u64> = tensors.iter().map(|tensor| tensor.shape()[1]).collect();
        assert_eq!(found, expected, "{inputs:?} {dims:?}");
    }
}

/// Without symbols, a dimension takes the size given for the same axis with the same bound.
#[test]
fn bounds_of_one_axis_go_together_unless_given() {
    let signature = signature(&[
        (
            "x",
            DType::Float32,
            Some(vec![Dim::Fixed(1), up_to(8), up_to(4)]),
        ),
        ("mask", DType::Float32, Some(vec![Dim::Fixed(1), up_to(8)])),
        ("other", DType::Float32, Some(vec![up_to(8), up_to(7)])),
    ]);
    for (inputs, dims, expected) in [
        (&["ones"][..], &[][..], [8, 8, 7]),
        (&["x=ones@1x3x2", "ones"], &[], [3, 3, 7]),
        (&["ones"], &["mask[1]=5"], [5, 5, 7]),
        (&["ones"], &["mask[1]=5", "x[1]=2"], [2, 5, 7]),
    ] {
        let tensors = assemble(&signature, &args(inputs, dims)).expect("the inputs fit");
        let found: Vec<u64> = tensors.iter().map(|tensor| tensor.shape()[1]).collect();
        assert_eq!(found, expected, "{inputs:?} {dims:?}");
    }
}

#[test]
fn what_is_held_binds_the_rest() {
    let held = |tensor: Option<Tensor>| InitialValue {
        tensor,
        origin: "before".to_owned(),
        empty: vec![1],
    };
    let past = Tensor::zeros(DType::Float32, vec![3, 4, 2]).expect("the tensor is valid");
    let around = |held: InitialValue, inputs: &[&str]| {
        assemble_around(&decoder(), &args(inputs, &[]), &[None, None, Some(held)])
    };
    let tensors = around(held(Some(past.clone())), &["ones"]).expect("the inputs fit");
    assert_eq!(shapes(&tensors), [vec![3, 1], vec![3, 5], vec![3, 4, 2]]);
    // Unnamed values skip inputs that have an initial value.
    let tensors =
        around(held(Some(past)), &["[[1,2],[3,4],[5,6]]", "ones"]).expect("the inputs fit");
    assert_eq!(shapes(&tensors)[..2], [vec![3, 2], vec![3, 6]]);
    let tensors = around(held(None), &["ones"]).expect("the inputs fit");
    assert_eq!(shapes(&tensors), [vec![1, 1], vec![1, 1], vec![1, 0, 2]]);
    assert_eq!(tensors[2].len(), 0);
    let wrong = Tensor::zeros(DType::Float32, vec![1, 4, 5]).expect("the tensor is valid");
    let error = around(held(Some(wrong)), &["ones"])
        .expect_err("the inputs do not fit")
        .to_string();
    assert!(
        error.contains("before") && error.contains("dimension 2 is 5"),
        "{error}"
    );
}

#[test]
fn numbers_that_the_model_fixes_stay() {
    let mut signature = signature(&[
        ("x", DType::Float32, Some(vec![Dim::Fixed(2)])),
        ("factor", DType::Int64, Some(Vec::new())),
        ("y", DType::Float32, Some(vec![Dim::Fixed(2)])),
    ]);
    signature.inputs[1].fixed = Some("7".to_owned());
    let values = |inputs: &[&str]| -> Result<Vec<Vec<f64>>, String> {
        let tensors =
            assemble(&signature, &args(inputs, &[])).map_err(|error| error.to_string())?;
        Ok(tensors
            .iter()
            .map(|tensor| tensor.to_f64().collect())
            .collect())
    };
    for generator in ["ones", "zeros", "arange", "random:3"] {
        assert_eq!(
            values(&[generator]).expect("the inputs fit")[1],
            [7.0],
            "{generator}"
        );
    }
    // Unnamed values go to inputs without an initial value, or to all inputs if there are as many
    // values as inputs.
    let found = values(&["[1,2]", "[3,4]"]).expect("the inputs fit");
    assert_eq!(found, [vec![1.0, 2.0], vec![7.0], vec![3.0, 4.0]]);
    assert_eq!(
        values(&["[1,2]", "8", "[3,4]"]).expect("the inputs fit")[1],
        [8.0]
    );
    assert_eq!(
        values(&[r#"{"x": [1,2], "y": [3,4]}"#]).expect("the inputs fit")[1],
        [7.0]
    );
    assert_eq!(
        values(&["factor=ones", "zeros"]).expect("the inputs fit")[1],
        [1.0],
        "a named input gets its value"
    );
    assert!(
        values(&["x=[1,2]"])
            .expect_err("y has none")
            .contains("no value for input 2 `y`")
    );
}

fn archive(path: &Path, members: &[(&str, &[u8])]) -> String {
    let mut archive = zip::ZipWriter::new(File::create(path).expect("the file is written"));
    for (name, bytes) in members {
        archive
            .start_file(*name, SimpleFileOptions::default())
            .expect("a member");
        archive.write_all(bytes).expect("a member");
    }
    archive.finish().expect("an archive");
    path.display().to_string()
}

/// `numpy.savez(file, a, b)` numbers the arrays. From ten on, their numeric order differs from that
/// of their names.
#[test]
fn positional_arrays_go_by_their_order() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("x.npz");
    let float = fs::read(fixture("npy/float32.npy")).expect("the fixture is there");
    let names: Vec<String> = (0..12).map(|place| format!("input {place}")).collect();
    let inputs: Vec<_> = names
        .iter()
        .map(|name| {
            (
                name.as_str(),
                DType::Float32,
                Some(vec![Dim::Fixed(2), Dim::Fixed(3)]),
            )
        })
        .collect();
    let twelve = signature(&inputs);
    let mut members: Vec<(String, Vec<u8>)> = Vec::new();
    for place in (0..12_u8).rev() {
        let mut bytes = float.clone();
        let at = bytes.len() - 24;
        bytes[at..at + 4].copy_from_slice(&f32::from(place).to_le_bytes());
        members.push((format!("arr_{place}.npy"), bytes));
    }
    let members: Vec<(&str, &[u8])> = members
        .iter()
        .map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
        .collect();
    let path = archive(&file, &members);
    let tensors = assemble(&twelve, &args(&[&path], &[])).expect("the inputs fit");
    let first: Vec<f64> = tensors
        .iter()
        .filter_map(|tensor| tensor.to_f64().next())
        .collect();
    assert_eq!(first, (0..12).map(f64::from).collect::<Vec<_>>());
    for (members, reason) in [
        (&members[..11], "matches no input"),
        (&members[1..], "it has 11 arrays, but there are 12 inputs"),
        (&[("arr_00.npy", &float[..])], "matches no input"),
        (
            &[("arr_0.npy", &float[..]), ("x.npy", &float)],
            "matches no input",
        ),
    ] {
        let path = archive(&file, members);
        let error = assemble(&twelve, &args(&[&path], &[])).expect_err("the inputs do not fit");
        assert!(error.to_string().contains(reason), "{error}");
    }
    // An input with such a name takes the array of the same name.
    let telling = signature(&[
        ("arr_1", DType::Float32, None),
        ("arr_0", DType::Float32, None),
    ]);
    let path = archive(
        &file,
        &[("arr_0.npy", members[11].1), ("arr_1.npy", members[10].1)],
    );
    let tensors = assemble(&telling, &args(&[&path], &[])).expect("the inputs fit");
    assert_eq!(tensors[0].to_f64().next(), Some(1.0));
}

#[test]
fn steps_are_fed_by_the_usual_names() {
    let specs = |names: &[&str]| -> Vec<TensorSpec> {
        let inputs: Vec<_> = names
            .iter()
            .map(|name| (*name, DType::Float32, Some(vec![Dim::Fixed(2)])))
            .collect();
        signature(&inputs).inputs
    };
    for (outputs, inputs, expected) in [
        (
            &["logits", "present.0.key", "present.0.value"][..],
            &["past_key_values.0.key", "past_key_values.0.value"][..],
            &[(1, 0), (2, 1)][..],
        ),
        (
            &["present_key_values.1.value"],
            &["x", "past_key_values.1.value"],
            &[(0, 1)],
        ),
        (
            &["present_key_0", "present0"],
            &["past0", "past_key_0"],
            &[(0, 1), (1, 0)],
        ),
        (&["output", "stateN"], &["input", "state"], &[(1, 1)]),
        (
            &["output", "hn", "cn"],
            &["input", "h", "c"],
            &[(1, 1), (2, 2)],
        ),
        (&["hn", "cn"], &["h0", "c0"], &[(0, 0), (1, 1)]),
        (
            &["cache_out", "new_hidden"],
            &["cache_in", "hidden"],
            &[(0, 0), (1, 1)],
        ),
        // Names that share only a number do not form a state.
        (&["output_0", "output"], &["input_0", "input"], &[]),
        (&["x"], &["y"], &[]),
    ] {
        let signature = Signature {
            method: "forward".to_owned(),
            inputs: specs(inputs),
            outputs: specs(outputs),
        };
        let wanted = StepArgs {
            count: Some(2),
            ..StepArgs::default()
        };
        let steps = RunSteps::of(&signature, &InputArgs::default(), &wanted).expect("two steps");
        let feeds = steps.feeds().iter();
        let feeds: Vec<(usize, usize)> = feeds.map(|feed| (feed.output, feed.input)).collect();
        assert_eq!(feeds, expected, "{outputs:?} {inputs:?}");
    }
}

fn joint(signatures: &[&Signature]) -> Result<JointSignature, String> {
    let parties = signatures
        .iter()
        .enumerate()
        .map(|(place, signature)| JointModel {
            label: ["A", "B", "C"][place].to_owned(),
            signature: (*signature).clone(),
        });
    JointSignature::of(parties.collect()).map_err(|error| error.to_string())
}

fn dims(joint: &JointSignature) -> Vec<String> {
    joint
        .signature()
        .inputs
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn what_any_side_fixes_or_ties_holds_for_all() {
    let float = |names: [&str; 2], x: Vec<Dim>, z: Vec<Dim>| {
        signature(&[
            (names[0], DType::Float32, Some(x)),
            (names[1], DType::Float32, Some(z)),
        ])
    };
    let open = float(["x", "z"], vec![up_to(8), up_to(9)], vec![symbol("n")]);
    let fixed = float(
        ["z", "x"],
        vec![Dim::Fixed(3)],
        vec![Dim::Fixed(1), up_to(4)],
    );
    let both = joint(&[&open, &fixed]).expect("a joint signature exists");
    assert_eq!(dims(&both), ["float32[1, -1 (up to 4)]", "float32[3]"]);
    // One side links two dimensions, the other side fixes one of them.
    let tied = float(
        ["x", "z"],
        vec![symbol("n"), symbol("m")],
        vec![symbol("n")],
    );
    let sized = float(
        ["x", "z"],
        vec![symbol("a"), symbol("b")],
        vec![Dim::Fixed(5)],
    );
    let both = joint(&[&tied, &sized]).expect("a joint signature exists");
    assert_eq!(dims(&both), ["float32[5, -1 (m)]", "float32[5]"]);
    // Equal symbols of different sides do not link dimensions.
    let other = float(
        ["x", "z"],
        vec![symbol("m"), symbol("n")],
        vec![symbol("k")],
    );
    let both = joint(&[&tied, &other]).expect("a joint signature exists");
    assert_eq!(dims(&both), ["float32[-1 (n), -1 (m)]", "float32[-1 (n)]"]);
    // Derived sizes: with one new token, the mask has the length of the past plus one.
    let one = signature(&[
        (
            "ids",
            DType::Int64,
            Some(vec![Dim::Fixed(1), Dim::Fixed(1)]),
        ),
        ("mask", DType::Int64, Some(vec![symbol("b"), symbol("t")])),
        (
            "past",
            DType::Float16,
            Some(vec![symbol("b"), symbol("p"), Dim::Fixed(2)]),
        ),
    ]);
    let both = joint(&[&decoder(), &one]).expect("a joint signature exists");
    let inputs = assemble(
        both.signature(),
        &args(&["ones"], &["past_sequence_length=6"]),
    )
    .expect("the inputs fit");
    assert_eq!(shapes(&inputs), [vec![1, 1], vec![1, 7], vec![1, 6, 2]]);
    let own = both.inputs_of(1, &inputs).expect("the inputs fit");
    assert_eq!(own[2].dtype(), DType::Float16);
    // In reverse: with a mask of eight, one token is new.
    let eight = signature(&[
        (
            "ids",
            DType::Int64,
            Some(vec![Dim::Fixed(1), Dim::Fixed(1)]),
        ),
        ("mask", DType::Int64, Some(vec![symbol("b"), Dim::Fixed(8)])),
        (
            "past",
            DType::Float32,
            Some(vec![symbol("b"), symbol("p"), Dim::Fixed(2)]),
        ),
    ]);
    let both = joint(&[&eight, &decoder()]).expect("a joint signature exists");
    assert_eq!(dims(&both)[2], "float32[1, 7, 2]");
    for (a, b, reason) in [
        (
            &open,
            &decoder(),
            "take different numbers of inputs, 2 and 3",
        ),
        (
            &float(["x", "z"], vec![Dim::Fixed(9), up_to(9)], vec![symbol("n")]),
            &open,
            "dimension 0 of `x` is 9 in A, but dimension 0 of `x` is at most 8 in B",
        ),
    ] {
        let error = joint(&[a, b]).expect_err("no joint signature exists");
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn values_are_matched_by_name_then_by_order() {
    let specs = |names: &[&str]| -> Vec<TensorSpec> {
        let inputs: Vec<_> = names
            .iter()
            .map(|name| (*name, DType::Float32, None))
            .collect();
        signature(&inputs).inputs
    };
    for (a, b, expected) in [
        (&["a", "b"][..], &["a", "b"][..], Some(vec![0, 1])),
        (&["a", "b"], &["b", "a"], Some(vec![1, 0])),
        (&["a", "b", "c"], &["b", "x", "y"], Some(vec![1, 0, 2])),
        (&["a"], &["a", "b"], None),
        (&[], &[], Some(vec![])),
    ] {
        assert_eq!(match_values(&specs(a), &specs(b)), expected, "{a:?} {b:?}");
    }
}

fn any_dim() -> impl Strategy<Value = Dim> {
    prop_oneof![
        (1_u64..4).prop_map(Dim::Fixed),
        prop::sample::select(vec!["n", "m", "n + m", "past_n", "total_n", "?"]).prop_map(symbol),
        (1_u64..5).prop_map(up_to),
        (1_u64..5, any::<bool>()).prop_map(|(bound, likely_dynamic)| Dim::Maybe {
            bound,
            likely_dynamic
        }),
    ]
}

fn any_signature() -> impl Strategy<Value = Signature> {
    let names = Just(["a", "b", "c"]).prop_shuffle();
    let dims = prop::collection::vec(prop::collection::vec(any_dim(), 2), 3);
    (names, dims).prop_map(|(names, dims)| {
        let inputs: Vec<_> = names.into_iter().zip(dims).collect();
        let inputs: Vec<_> = inputs
            .into_iter()
            .map(|(name, dims)| (name, DType::Float32, Some(dims)))
            .collect();
        signature(&inputs)
    })
}

proptest! {
    /// Inputs of the joint signature fit every side. Without a joint signature, no tensors fit all
    /// sides.
    #[test]
    fn common_inputs_fit_every_side(a in any_signature(), b in any_signature(), c in any_signature()) {
        let given = InputArgs {
            default: Some(Generator::Ones),
            ..InputArgs::default()
        };
        if let Ok(joint) = joint(&[&a, &b, &c]) {
            let inputs = assemble(joint.signature(), &given).expect("defaults fit");
            for (place, side) in [&a, &b, &c].into_iter().enumerate() {
                let own = joint.inputs_of(place, &inputs).expect("the inputs are convertible");
                pkgtool_engine::tensor::input::check(side, &own).expect("the inputs fit");
            }
        } else if let Ok(inputs) = assemble(&a, &given) {
            let all_fit = [&a, &b, &c].into_iter().all(|side| {
                let own: Vec<Tensor> = side.inputs.iter().map(|spec| {
                    let place = a.inputs.iter().position(|one| one.name == spec.name).expect("the same names");
                    inputs[place].clone()
                }).collect();
                pkgtool_engine::tensor::input::check(side, &own).is_ok()
            });
            prop_assert!(!all_fit);
        }
    }
}

//! Checks of operator calls: the arguments that the ExecuTorch runtime and its kernels accept.

use std::fs;
use std::path::Path;

use super::{error, read};
use pkgtool_testing::environment::EnvironmentPiece;
use pkgtool_testing::program::{
    OffsetTarget, ProgramField, ProgramPlan, file, integer, program, tensor, value,
};

/// The table of operators.
const TABLE: &str = include_str!("../../../src/executorch/load/operators.txt");

/// A program with one call. Values 0 and 1 are tensors, 2 and 3 are ints, 4 is a list of value
/// `item`, and 5 is `None`.
fn calling(operator: &'static str, arguments: &[i32], item: i64) -> Vec<u8> {
    let items = ProgramField::To(OffsetTarget::Longs(vec![item]));
    let plan = ProgramPlan {
        name: "forward",
        values: vec![
            tensor(&[2], 0),
            tensor(&[2], 0),
            integer(1),
            integer(0),
            value(7, vec![(0, items)]),
            value(1, Vec::new()),
        ],
        inputs: vec![0],
        outputs: vec![1],
        operators: vec![operator],
        calls: vec![(0, arguments.to_vec())],
    };
    file(&program(vec![plan.node()]))
}

fn refused(operator: &'static str, arguments: &[i32], item: i64, expected: &str) {
    let text = error(&calling(operator, arguments, item)).to_string();
    assert!(text.contains(expected), "{text}");
}

#[test]
fn operators_exist_in_namespaces_that_are_known() {
    read(&calling("aten::relu.out", &[0, 1, 1], 2));
    for own in ["mine::relu.out", "relu.out", "et_vk::prepack"] {
        read(&calling(own, &[0], 2));
    }
    // PyTorch defines this operator, so an application may register a kernel for it.
    read(&calling("aten::erfinv.out", &[0], 2));
    refused(
        "aten::relux.out",
        &[0, 1, 1],
        2,
        "operators[0].name at offset",
    );
    refused(
        "aten::relux.out",
        &[0],
        2,
        "unknown operator `aten::relux.out`",
    );
    refused(
        "aten::relu.Out",
        &[0],
        2,
        "expected one of `aten::relu`, `aten::relu.out`",
    );
}

#[test]
fn operators_that_nothing_calls_may_be_anything() {
    let plan = ProgramPlan {
        name: "forward",
        operators: vec!["aten::relux.out"],
        ..ProgramPlan::default()
    };
    read(&file(&program(vec![plan.node()])));
}

#[test]
fn arguments_are_as_many_as_kernels_take() {
    refused(
        "aten::add.out",
        &[0, 0, 2, 1],
        2,
        "expected 5 arguments, as `aten::add.out` takes with its result, found 4",
    );
}

#[test]
fn arguments_are_of_the_kinds_that_kernels_take() {
    read(&calling("aten::add.out", &[0, 0, 2, 1, 1], 2));
    refused("aten::add.out", &[0, 2, 2, 1, 1], 2, "args[1] at offset");
    refused(
        "aten::add.out",
        &[0, 2, 2, 1, 1],
        2,
        "expected a tensor for argument 1 of `aten::add.out`, found value 2 (an int)",
    );
    refused(
        "aten::add.out",
        &[0, 0, 5, 1, 1],
        2,
        "expected an int or a bool or a double for argument 2",
    );
    // An optional argument may be `None`.
    read(&calling(
        "dim_order_ops::_empty_dim_order.out",
        &[4, 5, 1, 1],
        2,
    ));
    refused(
        "dim_order_ops::_empty_dim_order.out",
        &[5, 5, 1, 1],
        2,
        "expected a list of ints",
    );
    refused(
        "dim_order_ops::_empty_dim_order.out",
        &[4, 5, 1, 1],
        0,
        "(a list of ints with items that are not ints)",
    );
}

#[test]
fn what_an_instruction_replaces_may_be_of_any_kind() {
    // The size that the kernel returns replaces the tensor.
    read(&calling("aten::sym_size.int", &[0, 3, 1], 2));
    refused("aten::sym_size.int", &[3, 3, 2], 2, "expected a tensor");
}

#[test]
fn the_table_has_what_the_package_lists() {
    let Some(package) = EnvironmentPiece::ExecuTorch.or_skip("the table of ExecuTorch's operators")
    else {
        return;
    };
    let package = Path::new(&package).join("kernels");
    let mut count = 0;
    for name in [
        "portable/functions.yaml",
        "portable/custom_ops.yaml",
        "quantized/quantized.yaml",
    ] {
        let text = fs::read_to_string(package.join(name)).expect("a list");
        for line in text.lines() {
            let entry = ["- op: ", "- func: "]
                .into_iter()
                .find_map(|it| line.strip_prefix(it));
            let Some(entry) = entry.and_then(|entry| entry.split('(').next()) else {
                continue;
            };
            count += 1;
            assert!(
                has_kernel(entry.trim()),
                "{entry}: regenerate the table with tests/operators/kernels.py"
            );
        }
    }
    assert!(count > 200, "{count}");
}

/// Returns true if the table contains a kernel with this name.
fn has_kernel(name: &str) -> bool {
    let (namespace, name) = name.split_once("::").unwrap_or(("aten", name));
    let (base, overload) = name.split_once('.').unwrap_or((name, "-"));
    let section = TABLE
        .split("namespace ")
        .find(|it| it.starts_with(&format!("{namespace}\n")));
    let line = section.and_then(|it| it.lines().find(|it| it.split(' ').next() == Some(base)));
    line.is_some_and(|line| {
        let mut words = line.split(' ').skip(1);
        words.any(|word| {
            word.split_once(':')
                .is_some_and(|(known, _)| known == overload)
        })
    })
}

//! Indices given as inputs: on tract, each operator accepts the same indices as the ExecuTorch
//! runtime.
//!
//! It rejects others with an error that names the operator, the index and the valid range.

use std::path::{Path, PathBuf};

use pkgtool_engine::tensor::{DType, Tensor};
use pkgtool_engine::{EngineError, engine};

use super::{is_there, load, request};
use pkgtool_testing::program::{
    OffsetTarget, ProgramField, byte, file, int, integer, ints, method, tables, text, value,
};

/// Sizes of the indexed dimension and of the other one.
const ROWS: i32 = 5;
const COLUMNS: i32 = 3;
/// Indices around the bounds of the dimension, from both ends.
const INDICES: [i64; 8] = [-6, -5, -4, -1, 0, 4, 5, 1000];

/// A program with one operator over `float32[5, 3]`, indices and `float32` values.
struct Case {
    operator: &'static str,
    indices: &'static [i32],
    values: Option<&'static [i32]>,
    output: &'static [i32],
    /// Further values; their numbers begin at 4.
    more: Vec<OffsetTarget>,
    /// The operator's arguments: data is 0, indices 1, values 2, the output 3.
    args: &'static [i32],
}

/// A tensor at an offset in planned memory.
fn planned(dtype: u8, sizes: &[i32], offset: u32) -> OffsetTarget {
    let place = OffsetTarget::Table(vec![(0, int(1)), (1, int(offset))]);
    let fields = vec![
        (0, byte(dtype)),
        (2, ints(sizes)),
        (6, ProgramField::To(place)),
    ];
    value(5, fields)
}

fn truth(yes: bool) -> OffsetTarget {
    value(3, vec![(0, byte(u8::from(yes)))])
}

/// A list that contains only the tensor of indices.
fn list() -> OffsetTarget {
    value(11, vec![(0, ints(&[1]))])
}

fn cases() -> Vec<Case> {
    let whole: &[i32] = &[ROWS, COLUMNS];
    let case = |operator, indices, values, output, more, args| Case {
        operator,
        indices,
        values,
        output,
        more,
        args,
    };
    let scatter = |operator| {
        case(
            operator,
            &[2, COLUMNS],
            Some(&[2, COLUMNS]),
            whole,
            vec![integer(0)],
            &[0, 4, 1, 2, 3, 3],
        )
    };
    vec![
        case(
            "aten::embedding.out",
            &[2],
            None,
            &[2, COLUMNS],
            vec![integer(-1), truth(false), truth(false)],
            &[0, 1, 4, 5, 6, 3, 3],
        ),
        case(
            "aten::index_select.out",
            &[2],
            None,
            &[2, COLUMNS],
            vec![integer(0)],
            &[0, 4, 1, 3, 3],
        ),
        case(
            "aten::gather.out",
            &[2, COLUMNS],
            None,
            &[2, COLUMNS],
            vec![integer(0), truth(false)],
            &[0, 4, 1, 5, 3, 3],
        ),
        scatter("aten::scatter.src_out"),
        scatter("aten::scatter_add.out"),
        case(
            "aten::index.Tensor_out",
            &[2],
            None,
            &[2, COLUMNS],
            vec![list()],
            &[0, 4, 3, 3],
        ),
        case(
            "aten::index_put.out",
            &[2],
            Some(&[2, COLUMNS]),
            whole,
            vec![list(), truth(false)],
            &[0, 4, 2, 5, 3, 3],
        ),
    ]
}

impl Case {
    fn write(&self, folder: &Path) -> PathBuf {
        let mut values = vec![
            planned(6, &[ROWS, COLUMNS], 0),
            planned(4, self.indices, 256),
            planned(6, self.values.unwrap_or(&[1]), 512),
            planned(6, self.output, 768),
        ];
        values.extend(self.more.iter().cloned());
        let inputs: &[i32] = if self.values.is_some() {
            &[0, 1, 2]
        } else {
            &[0, 1]
        };
        let (name, overload) = self.operator.split_once('.').expect("a full name");
        let operator = OffsetTarget::Table(vec![(0, text(name)), (1, text(overload))]);
        let call = OffsetTarget::Table(vec![(0, int(0)), (1, ints(self.args))]);
        let call = OffsetTarget::Table(vec![(0, byte(1)), (1, ProgramField::To(call))]);
        let chain = OffsetTarget::Table(vec![(2, tables(vec![call]))]);
        let plan = method(vec![
            (0, text("forward")),
            (2, tables(values)),
            (3, ints(inputs)),
            (4, ints(&[3])),
            (5, tables(vec![chain])),
            (6, tables(vec![operator])),
            (8, ProgramField::To(OffsetTarget::Longs(vec![0, 1024]))),
        ]);
        let path = folder.join("m.pte");
        // An empty constant segment: the program has no constants.
        let none = OffsetTarget::Table(vec![
            (0, int(0)),
            (1, ProgramField::To(OffsetTarget::Longs(vec![0]))),
        ]);
        let root = OffsetTarget::Table(vec![(1, tables(vec![plan])), (5, ProgramField::To(none))]);
        std::fs::write(&path, file(&root)).expect("a file");
        path
    }

    /// Returns inputs whose last index is `index`.
    fn inputs(&self, index: i64) -> Vec<Tensor> {
        let counted = |sizes: &[i32]| {
            let shape: Vec<u64> = sizes
                .iter()
                .map(|size| u64::from(size.unsigned_abs()))
                .collect();
            let count = u32::try_from(shape.iter().product::<u64>()).expect("the number fits");
            Tensor::from_f64(
                DType::Float32,
                shape,
                (0..count).map(|x| f64::from(x) + 0.5),
            )
            .expect("the tensor is valid")
        };
        let shape: Vec<u64> = self
            .indices
            .iter()
            .map(|size| u64::from(size.unsigned_abs()))
            .collect();
        let count = usize::try_from(shape.iter().product::<u64>()).expect("the number fits");
        let mut indices = vec![2_i64; count];
        // The other indices alternate, so that accumulating operators see different ones.
        for (at, index) in indices.iter_mut().enumerate() {
            *index = i64::try_from(at).expect("the number fits") / i64::from(COLUMNS) % 2 + 1;
        }
        indices[count - 1] = index;
        let bytes = indices
            .iter()
            .flat_map(|index| index.to_le_bytes())
            .collect();
        let mut inputs = vec![
            counted(&[ROWS, COLUMNS]),
            Tensor::new(DType::Int64, shape, bytes).expect("the tensor is valid"),
        ];
        inputs.extend(self.values.map(counted));
        inputs
    }
}

#[test]
fn tract_takes_the_indices_that_the_runtime_takes() {
    if !is_there("tract_takes_the_indices_that_the_runtime_takes") {
        return;
    }
    let folder = tempfile::tempdir().expect("a directory");
    for case in cases() {
        let operator = case.operator;
        let path = case.write(folder.path());
        let request = request(&path, "forward");
        let mut native = load(&request).expect("the runtime loads it");
        let tract = engine("tract").expect("the engine is part of this build");
        let mut ours = tract.load(&request).expect("tract loads it");
        for index in INDICES {
            let inputs = case.inputs(index);
            let expected = native.run(&inputs);
            let found = ours.run(&inputs);
            let what = format!("{operator} at {index}: {expected:?} and {found:?}");
            match (expected, found) {
                (Ok(expected), Ok(found)) => {
                    assert_eq!(expected.outputs, found.outputs, "{what}");
                }
                (
                    Err(native),
                    Err(EngineError::Input {
                        operator: at,
                        reason,
                        ..
                    }),
                ) => {
                    assert_eq!(at.as_deref(), Some(operator), "{what}");
                    assert!(
                        reason.starts_with(&format!("index {index} of a dimension of 5; ")),
                        "{what}"
                    );
                    assert!(reason.ends_with("to 4 are valid"), "{what}");
                    assert!(matches!(native, EngineError::Input { .. }), "{what}");
                }
                _ => panic!("{what}"),
            }
        }
    }
}

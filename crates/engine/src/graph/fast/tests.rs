//! Tests of fused attentions in graphs, as models contain them.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::array::Slice;
use tract_onnx::tract_core::ops::binary::TypedBinOp;
use tract_onnx::tract_core::ops::einsum::EinSum;
use tract_onnx::tract_core::ops::math::{Add, Mul};
use tract_onnx::tract_core::ops::nn::{Softmax, SoftmaxKind};

use super::{attention, replace};
use pkgtool_kernels::Cpu;

/// An attention: the axes of both products, and the shapes of queries, keys, values and of a mask.
struct AttentionCase {
    scores: &'static str,
    output: &'static str,
    shapes: [&'static [usize]; 3],
    mask: Option<&'static [usize]>,
    scale: Option<f32>,
    swapped: bool,
}

const CASE: AttentionCase = AttentionCase {
    scores: "bhmk,bhnk->bhmn",
    output: "bhmn,bhnv->bhmv",
    shapes: [&[2, 3, 5, 4], &[2, 3, 7, 4], &[2, 3, 7, 6]],
    mask: None,
    scale: None,
    swapped: false,
};

fn numbers(shape: &[usize], seed: usize) -> TractResult<TValue> {
    let count: usize = shape.iter().product();
    let number =
        |at: usize| f32::from(u8::try_from((at * 37 + seed * 11) % 251).unwrap_or(0)) / 64.0 - 2.0;
    let numbers: Vec<f32> = (0..count).map(number).collect();
    Ok(Tensor::from_shape(shape, &numbers)?.into_tvalue())
}

impl AttentionCase {
    fn model(&self) -> TractResult<TypedModel> {
        let mut model = TypedModel::default();
        let mut inputs = Vec::new();
        for (at, shape) in self.shapes.iter().chain(&self.mask).enumerate() {
            inputs.push(model.add_source(format!("input{at}"), f32::fact(*shape))?);
        }
        let product = |formula: &str| {
            let axes: AxesMapping = formula.parse()?;
            TractResult::Ok(EinSum::new(axes, DatumType::F32))
        };
        let mut scores = model.wire_node("scores", product(self.scores)?, &inputs[..2])?[0];
        let rank = model.outlet_fact(scores)?.rank();
        if let Some(scale) = self.scale {
            let one = Tensor::from_shape(&vec![1; rank], &[scale])?;
            let one = model.add_const("scale", one)?;
            let op = TypedBinOp(Box::new(Mul), None);
            scores = model.wire_node("scaled", op, &[one, scores])?[0];
        }
        if self.mask.is_some() {
            let op = TypedBinOp(Box::new(Add), None);
            scores = model.wire_node("masked", op, &[scores, inputs[3]])?[0];
        }
        let softmax = Softmax {
            axes: tvec!(rank - 1),
            quant_output_dt: None,
            kind: SoftmaxKind::Softmax,
        };
        let weights = model.wire_node("weights", softmax, &[scores])?[0];
        let operands = if self.swapped {
            [inputs[2], weights]
        } else {
            [weights, inputs[2]]
        };
        let output = model.wire_node("output", product(self.output)?, &operands)?;
        model.select_output_outlets(&output)?;
        Ok(model)
    }

    fn results(&self, model: TypedModel) -> TractResult<Tensor> {
        let shapes = self.shapes.iter().chain(&self.mask).enumerate();
        let inputs = shapes.map(|(at, shape)| numbers(shape, at));
        let inputs: TVec<TValue> = inputs.collect::<TractResult<_>>()?;
        let output = model.into_runnable()?.run(inputs)?.remove(0);
        Ok(output.into_tensor())
    }

    /// Runs it both ways and returns `true` if it was fused.
    fn check(&self) -> TractResult<bool> {
        let wanted = self.results(self.model()?)?;
        let mut model = self.model()?;
        replace(&mut model, Cpu::chosen(), &[attention::replaced])?;
        let found = model.nodes().iter().any(|node| node.op.name() == "Attend");
        assert_eq!(
            model.nodes().len(),
            if found {
                4
            } else {
                self.model()?.nodes().len()
            } + usize::from(found && self.mask.is_some())
        );
        let given = self.results(model)?;
        assert_eq!(given.shape(), wanted.shape());
        let [given, wanted] = [&given, &wanted].map(Tensor::try_as_plain_ram);
        let (given, wanted) = (given?, wanted?);
        let pairs = given
            .as_slice::<f32>()?
            .iter()
            .zip(wanted.as_slice::<f32>()?);
        for (given, wanted) in pairs {
            assert!((given - wanted).abs() < 1e-5, "{given} and not {wanted}");
        }
        Ok(found)
    }
}

#[test]
fn attentions_are_found_however_their_axes_stand() -> TractResult<()> {
    let cases = [
        CASE,
        AttentionCase {
            scale: Some(0.5),
            ..CASE
        },
        AttentionCase {
            mask: Some(&[2, 3, 5, 7]),
            ..CASE
        },
        AttentionCase {
            mask: Some(&[1, 1, 1, 7]),
            scale: Some(0.5),
            ..CASE
        },
        AttentionCase {
            mask: Some(&[2, 1, 5, 7]),
            ..CASE
        },
        AttentionCase {
            mask: Some(&[1, 3, 1, 7]),
            ..CASE
        },
        // Heads that are adjacent within a row.
        AttentionCase {
            scores: "bmhk,bnhk->bhmn",
            output: "bhmn,bnhv->bmhv",
            shapes: [&[2, 5, 3, 4], &[2, 7, 3, 4], &[2, 7, 3, 6]],
            ..CASE
        },
        AttentionCase {
            scores: "bnhk,bmhk->bhmn",
            output: "bnhv,bhmn->hbmv",
            shapes: [&[2, 7, 3, 4], &[2, 5, 3, 4], &[2, 7, 3, 6]],
            swapped: true,
            ..CASE
        },
        // Keys and values shared by all heads, and axes of size 1 in only one operand.
        AttentionCase {
            scores: "bhmk,bnk->bhmn",
            output: "bhmn,bnv->bhmv",
            shapes: [&[2, 3, 5, 4], &[2, 7, 4], &[2, 7, 6]],
            ..CASE
        },
        AttentionCase {
            scores: "cmak,dnak->bamn",
            output: "bamn,enav->famv",
            shapes: [&[1, 5, 3, 4], &[1, 7, 3, 4], &[1, 7, 3, 6]],
            ..CASE
        },
        AttentionCase {
            scores: "mk,nk->mn",
            output: "mn,nv->mv",
            shapes: [&[5, 4], &[7, 4], &[7, 6]],
            mask: Some(&[1, 7]),
            ..CASE
        },
    ];
    for case in cases {
        assert!(case.check()?, "{} {}", case.scores, case.output);
    }
    Ok(())
}

#[test]
fn what_is_no_attention_stays() -> TractResult<()> {
    let cases = [
        // Sums that do not go along the last axis, or not along the keys.
        AttentionCase {
            scores: "bhkm,bhkn->bhmn",
            shapes: [&[2, 3, 4, 5], &[2, 3, 4, 7], &[2, 3, 7, 6]],
            ..CASE
        },
        AttentionCase {
            output: "bhnm,bhnv->bhmv",
            shapes: [&[2, 3, 5, 4], &[2, 3, 7, 4], &[2, 3, 5, 6]],
            ..CASE
        },
        AttentionCase {
            output: "bhmn,bhvn->bhmv",
            shapes: [&[2, 3, 5, 4], &[2, 3, 7, 4], &[2, 3, 6, 7]],
            ..CASE
        },
        AttentionCase {
            output: "bhmn,bhnv->bhvm",
            ..CASE
        },
        // A mask per query, not per key.
        AttentionCase {
            mask: Some(&[1, 1, 5, 1]),
            ..CASE
        },
        // A sum over heads.
        AttentionCase {
            output: "bhmn,bhnv->bmv",
            ..CASE
        },
    ];
    for case in cases {
        assert!(!case.check()?, "{} {}", case.scores, case.output);
    }
    Ok(())
}

/// Weights that another operator reads are computed.
#[test]
fn weights_that_are_read_stay() -> TractResult<()> {
    let mut model = CASE.model()?;
    let weights = model.node_by_name("weights")?.id;
    let slice = Slice::new(3, 0, 2);
    let other = model.wire_node("other", slice, &[OutletId::new(weights, 0)])?[0];
    let output = model.output_outlets()?[0];
    model.select_output_outlets(&[output, other])?;
    replace(&mut model, Cpu::chosen(), &[attention::replaced])?;
    assert!(!model.nodes().iter().any(|node| node.op.name() == "Attend"));
    Ok(())
}

//! `GatherBlockQuantized`: rows of a table of two, four or eight bits, which stays packed in
//! memory.
//!
//! The library rounds scales of blocks of 32 to float16. It still handles computed tables, other
//! axes, and 4-bit element types.

use std::sync::Arc;

use tract_onnx::model::{ParsingContext, optional_inputs};
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::ops::cast::cast;
use tract_onnx::tract_hir::internal::*;

use super::super::graph::integer;
use super::super::library::{library_expansion, library_operator};
use super::indices::checked_index;
use super::packed::StoredBits;
use crate::frontends::onnx::node_operator::{Built, NodeOperator, Tensors, Wired, operator};
use crate::graph::kernel::Kernel;

/// The operator's name.
pub(super) const NAME: &str = "GatherBlockQuantized";

/// Builds a `GatherBlockQuantized`.
pub(super) fn build(context: &ParsingContext, node: &NodeProto) -> Built {
    let Some(form) = TableForm::of(node) else {
        return library_operator(context, node);
    };
    let rows = TableRows {
        form,
        // The library reports errors of nodes that are not of these forms.
        library: library_expansion(context, node).ok(),
    };
    operator(NAME, None, rows)
}

/// The storage form of a table.
#[derive(Debug, Clone)]
struct TableForm {
    stored: StoredBits,
    block: usize,
    zeros: Option<usize>,
}

impl TableForm {
    fn of(node: &NodeProto) -> Option<Self> {
        let block = usize::try_from(integer(node, "block_size", 128)).ok()?;
        let is_by_rows = integer(node, "gather_axis", 0) == 0
            && matches!(integer(node, "quantize_axis", 1), 1 | -1);
        let given: Vec<Option<usize>> = optional_inputs(node).take(4).collect();
        (is_by_rows && block > 0).then_some(())?;
        Some(Self {
            stored: StoredBits::of(node)?,
            block,
            zeros: given[3],
        })
    }
}

#[derive(Debug, Clone)]
struct TableRows {
    form: TableForm,
    library: Option<Box<dyn Expansion>>,
}

/// The data that a run reads.
struct LookupData {
    stored: StoredBits,
    block: usize,
    columns: usize,
    rows: usize,
    data: Arc<Tensor>,
    scales: Vec<f32>,
    zeros: Option<Arc<Tensor>>,
}

impl LookupData {
    /// Creates the table of these stored tensors, if they are consistent.
    fn new(
        form: &TableForm,
        data: Arc<Tensor>,
        scales: &Tensor,
        zeros: Option<Arc<Tensor>>,
    ) -> TractResult<Self> {
        let &[rows, bytes] = data.shape() else {
            bail!("expected a table of rows, got the shape {:?}", data.shape());
        };
        let columns = bytes * form.stored.per_byte();
        let blocks = columns.div_ceil(form.block);
        ensure!(
            scales.shape() == [rows, blocks],
            "scales of the shape {:?} for {rows} rows of {blocks} blocks",
            scales.shape()
        );
        let row = form.stored.bytes_of(blocks);
        if let Some(zeros) = &zeros {
            ensure!(
                zeros.datum_type() == DatumType::U8 && zeros.len() == rows * row,
                "zero points of the shape {:?} for {rows} rows of {blocks} blocks",
                zeros.shape()
            );
        }
        let scales = scales.cast_to::<f32>()?;
        let scales = scales.try_as_plain_ram()?.as_slice::<f32>()?.to_vec();
        Ok(Self {
            stored: form.stored,
            block: form.block,
            columns,
            rows,
            data,
            scales,
            zeros,
        })
    }

    fn bytes(&self) -> usize {
        let zeros = self.zeros.as_ref().map_or(0, |zeros| zeros.len());
        self.data.len() + zeros + size_of_val(self.scales.as_slice())
    }

    /// Returns the rows at these positions, one after the other.
    fn gather(&self, places: &Tensor) -> TractResult<Tensor> {
        let indices = places.try_as_plain_ram()?;
        let indices = indices.as_slice::<i64>()?;
        let mut shape: TVec<usize> = places.shape().into();
        shape.push(self.columns);
        let mut rows = Tensor::zero_dt(f32::datum_type(), &shape)?;
        if self.columns == 0 {
            return Ok(rows);
        }
        let data = self.data.try_as_plain_ram()?;
        let data = data.as_slice::<u8>()?;
        let zeros = self.zeros.as_deref().map(Tensor::try_as_plain_ram);
        let zeros = zeros.transpose()?;
        let zeros = zeros.as_ref().map(PlainView::as_slice::<u8>);
        let zeros = zeros.transpose()?;
        let blocks = self.columns.div_ceil(self.block);
        let [of_data, of_zeros] = [self.columns, blocks].map(|count| self.stored.bytes_of(count));
        {
            let mut plain = rows.try_as_plain_ram_mut()?;
            let to = plain.as_slice_mut::<f32>()?;
            for (index, to) in indices.iter().zip(to.chunks_exact_mut(self.columns)) {
                let row = checked_index(*index, self.rows)?;
                let from = &data[row * of_data..(row + 1) * of_data];
                for (block, to) in to.chunks_mut(self.block).enumerate() {
                    let scale = self.scales[row * blocks + block];
                    let zero = zeros.map_or(self.stored.middle(), |zeros| {
                        let zeros = &zeros[row * of_zeros..(row + 1) * of_zeros];
                        self.stored.part(zeros, block)
                    });
                    for (at, to) in to.iter_mut().enumerate() {
                        let value = self.stored.part(from, block * self.block + at);
                        *to = (f32::from(value) - f32::from(zero)) * scale;
                    }
                }
            }
        }
        Ok(rows)
    }
}

impl NodeOperator for TableRows {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        s.equals(&outputs[0].datum_type, &inputs[2].datum_type)?;
        s.equals(&inputs[0].rank, 2)?;
        let each = self.form.stored.per_byte();
        s.given_2(
            &inputs[0].shape,
            &inputs[1].shape,
            move |s, table, mut shape| {
                shape.push(table[1].clone() * each);
                s.equals(&outputs[0].shape, ShapeFactoid::from(shape))
            },
        )
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let stored = |at: usize| TractResult::Ok(model.outlet_fact(inputs[at])?.konst.clone());
        let zeros = self.form.zeros.map(stored).transpose()?;
        let (data, scales) = (stored(0)?, stored(2)?);
        let (Some(data), Some(scales), false) = (data, scales, zeros == Some(None)) else {
            let library = self.library.as_ref();
            let library = library.context("computed tables are not supported in this form")?;
            return library.wire(prefix, model, inputs);
        };
        ensure!(
            data.datum_type() == DatumType::U8,
            "a table of {:?} is not supported: expected bytes of several numbers",
            data.datum_type()
        );
        let dtype = scales.datum_type();
        let table = LookupData::new(&self.form, data, &scales, zeros.flatten())?;
        let mut shape = model.outlet_fact(inputs[1])?.shape.to_tvec();
        shape.push(table.columns.to_dim());
        let name = format!("{prefix}.places");
        let places = model.wire_node(name, cast(i64::datum_type()), &inputs[1..2])?;
        let bytes = table.bytes();
        let facts = tvec!(f32::fact(shape));
        let kernel = Kernel::new("PackedRows", facts, move |inputs: &[TValue]| {
            Ok(tvec!(table.gather(&inputs[0])?))
        });
        let rows = model.wire_node(
            format!("{prefix}.rows"),
            kernel.with_weight_bytes(bytes),
            &places,
        )?;
        model.wire_node(prefix, cast(dtype), &rows)
    }
}

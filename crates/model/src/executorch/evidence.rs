//! Derives the dynamism of single dimensions from a method's instructions.
//!
//! Two operators give evidence. `aten::sym_size.int(x, d)` is emitted only for a dynamic dimension.
//! `executorch_prim::et_view.default(x, sizes)` takes a literal for a fixed size and a computed
//! integer for a dynamic one. The bounds of certainly dynamic dimensions are recorded as well: the
//! same bound elsewhere in the method is a good guess.

use std::collections::{BTreeMap, BTreeSet};

use super::flatbuffer::{Table, Vector};
use super::schema::value;
use super::storage::Storage;
use super::value::{Evalue, INT, INT_LIST, ProgramTensor, TENSOR};
use crate::{Dynamism, FormatError};

/// Approximate memory per fact, in bytes.
const FACT_COST: u64 = 64;

/// A certain fact about a dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DimFact {
    /// Its size varies.
    Dynamic,
    /// Its size always equals its bound.
    Fixed,
}

/// An operator whose calls give evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EvidenceOperator {
    /// `aten::sym_size.int`
    SymSize,
    /// `executorch_prim::et_view.default`
    View,
}

/// Certain facts about the dimensions of a method's values.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// Facts by value and dimension.
    dims: BTreeMap<(u64, usize), DimFact>,
    /// Bounds of certainly dynamic dimensions.
    pub(super) bounds: BTreeSet<u64>,
}

/// The uses of values by instructions, collected before they are evaluated.
pub(super) struct ValueUses<'a> {
    values: Vector<'a>,
    /// Values written by a kernel or a move.
    computed: BTreeSet<u64>,
    /// Values passed to a delegate, as input or output.
    delegated: BTreeSet<u64>,
    /// Calls of [`EvidenceOperator`] operators: first, second and last argument.
    calls: Vec<(EvidenceOperator, [u64; 3])>,
}

impl EvidenceOperator {
    /// Returns the operator of this full name, if it gives evidence.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name {
            "aten::sym_size.int" => Some(Self::SymSize),
            "executorch_prim::et_view.default" => Some(Self::View),
            _ => None,
        }
    }
}

impl Evidence {
    /// Returns the certain fact about a dimension of a value, if any.
    pub(super) fn of(&self, value: u64, dim: usize) -> Option<DimFact> {
        self.dims.get(&(value, dim)).copied()
    }

    fn add(&mut self, value: u64, dim: usize, bound: u64, certain: DimFact) {
        let known = self.dims.entry((value, dim)).or_insert(certain);
        if certain == DimFact::Dynamic {
            *known = certain;
            self.bounds.insert(bound);
        }
    }
}

impl<'a> ValueUses<'a> {
    /// Starts with no uses for a method with these values.
    pub(super) fn new(values: Vector<'a>) -> Self {
        Self {
            values,
            computed: BTreeSet::new(),
            delegated: BTreeSet::new(),
            calls: Vec::new(),
        }
    }

    /// Records that an instruction writes this value.
    pub(super) fn computes(&mut self, value: u64) {
        self.computed.insert(value);
    }

    /// Records that a delegate reads or writes this value.
    pub(super) fn delegates(&mut self, value: u64) {
        self.delegated.insert(value);
    }

    /// Records a call of an operator that gives evidence.
    pub(super) fn calls(&mut self, operator: EvidenceOperator, args: [u64; 3]) {
        self.calls.push((operator, args));
    }

    /// Evaluates the collected uses. `inputs` are the values that a caller sets.
    pub(super) fn evaluate(
        &self,
        inputs: &[u64],
        storage: &Storage<'_>,
        evidence: &mut Evidence,
    ) -> Result<(), FormatError> {
        for &(operator, [first, second, last]) in &self.calls {
            match operator {
                EvidenceOperator::SymSize => self.sym_size(first, second, storage, evidence)?,
                EvidenceOperator::View => self.view(inputs, second, last, storage, evidence)?,
            }
        }
        Ok(())
    }

    fn sym_size(
        &self,
        value: u64,
        dim: u64,
        storage: &Storage<'_>,
        evidence: &mut Evidence,
    ) -> Result<(), FormatError> {
        let Some(tensor) = self.bounded(value, storage)? else {
            return Ok(());
        };
        let Some(dim) = self.int(dim)? else {
            return Ok(());
        };
        let rank = i64::try_from(tensor.sizes.len()).expect("a rank is small");
        let dim = if dim < 0 {
            dim.saturating_add(rank)
        } else {
            dim
        };
        let found = usize::try_from(dim)
            .ok()
            .and_then(|dim| tensor.sizes.get(dim).map(|&bound| (dim, bound)));
        if let Some((dim, bound)) = found.filter(|(_, bound)| *bound > 1) {
            self.keep(value)?;
            evidence.add(value, dim, bound, DimFact::Dynamic);
        }
        Ok(())
    }

    fn view(
        &self,
        inputs: &[u64],
        list: u64,
        value: u64,
        storage: &Storage<'_>,
        evidence: &mut Evidence,
    ) -> Result<(), FormatError> {
        let Some(tensor) = self.bounded(value, storage)? else {
            return Ok(());
        };
        let list = Evalue::read(self.values.table(list)?)?;
        if list.tag != INT_LIST {
            return Ok(());
        }
        // The list holds indices of values, not integers.
        let items = list.table()?.vector(value::ITEMS, 8)?;
        if items.len() != tensor.sizes.len() as u64 {
            return Ok(());
        }
        for (dim, &bound) in tensor.sizes.iter().enumerate() {
            let item = self.item(&items, dim as u64)?;
            let Some(size) = self.int(item)? else {
                continue;
            };
            let certain = if self.computed.contains(&item) {
                (bound > 1).then_some(DimFact::Dynamic)
            } else if self.delegated.contains(&item) || inputs.contains(&item) {
                None
            } else {
                (u64::try_from(size) == Ok(bound)).then_some(DimFact::Fixed)
            };
            if let Some(certain) = certain {
                self.keep(value)?;
                evidence.add(value, dim, bound, certain);
            }
        }
        Ok(())
    }

    fn item(&self, items: &Vector<'_>, index: u64) -> Result<u64, FormatError> {
        let found = items.i64(index)?;
        let count = self.values.len();
        u64::try_from(found)
            .ok()
            .filter(|&value| value < count)
            .ok_or_else(|| items.place(index).index("values", count, found))
    }

    /// Returns the tensor of a value, if it is one with bounded dynamism.
    fn bounded(
        &self,
        value: u64,
        storage: &Storage<'_>,
    ) -> Result<Option<ProgramTensor>, FormatError> {
        let value = Evalue::read(self.values.table(value)?)?;
        if value.tag != TENSOR {
            return Ok(None);
        }
        let tensor = ProgramTensor::read(value.table()?, storage)?;
        Ok(Some(tensor).filter(|tensor| tensor.dynamism == Dynamism::Bounded))
    }

    /// Returns the stored integer of a value, even if it is computed later.
    fn int(&self, value: u64) -> Result<Option<i64>, FormatError> {
        let value = Evalue::read(self.values.table(value)?)?;
        if value.tag != INT {
            return Ok(None);
        }
        value.table()?.i64(value::INT).map(Some)
    }

    fn keep(&self, value: u64) -> Result<(), FormatError> {
        let table: Table<'_> = self.values.table(value)?;
        table.buffer().keep(FACT_COST, || table.here())
    }
}

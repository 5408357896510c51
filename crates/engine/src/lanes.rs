//! Lanes of a session: separate carried states, such as one KV cache per conversation, and runs of
//! several lanes at once.
//!
//! A run has one row per lane. Past states are packed into one buffer, and shorter rows are padded
//! with zeros at the end to the longest. The mask hides the padding, and `keep` removes it from the
//! states that the run leaves.
//!
//! Invariant: a lane keeps only the positions that count. Knows no engine.

use std::collections::BTreeMap;

use super::carrying::{Carrying, Lanes, RunStart};
use crate::tensor::{DType, Tensor};

/// Error if a state without positions is to be cut.
const NO_POSITIONS: &str = "the kept state has no positions that could be cut";

/// The lane of runs that name no lanes.
const DEFAULT_LANE: u32 = 0;

/// The part of its lane's state from which a row starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowStart {
    /// Nothing.
    Nothing,
    /// All that its lane keeps.
    All,
    /// The first positions of the lane.
    First(u64),
}

/// A row of the next run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NextRow {
    pub(super) lane: u32,
    pub(super) from: RowStart,
}

/// The rows of the next run.
#[derive(Debug)]
pub(super) struct NextRun(Vec<NextRow>);

impl NextRun {
    /// The rows of a session's first run.
    pub(super) fn first() -> Self {
        Self(vec![NextRow {
            lane: DEFAULT_LANE,
            from: RowStart::All,
        }])
    }

    /// Sets the rows of the next run. Returns the lanes to forget before it: all of them, or some.
    pub(super) fn begin(&mut self, begins: &RunStart) -> ForgottenLanes {
        let only = |from| {
            vec![NextRow {
                lane: DEFAULT_LANE,
                from,
            }]
        };
        let (rows, forgotten) = match begins {
            RunStart::Anew => (only(RowStart::Nothing), ForgottenLanes::All),
            RunStart::AsLeft => (only(RowStart::All), ForgottenLanes::Some(Vec::new())),
            RunStart::Cut(length) => (
                only(RowStart::First(*length)),
                ForgottenLanes::Some(Vec::new()),
            ),
            RunStart::Lanes(lanes) => (rows(lanes), forgotten_lanes(lanes)),
        };
        self.0 = rows;
        forgotten
    }

    /// The rows.
    pub(super) fn rows(&self) -> &[NextRow] {
        &self.0
    }

    /// Records a successful run: by default the next run continues after it.
    pub(super) fn ran(&mut self) {
        for row in &mut self.0 {
            row.from = RowStart::All;
        }
    }
}

/// Lanes to forget.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ForgottenLanes {
    All,
    Some(Vec<u32>),
}

impl ForgottenLanes {
    /// Returns `true` if this lane is among them.
    pub(super) fn has(&self, lane: u32) -> bool {
        match self {
            Self::All => true,
            Self::Some(lanes) => lanes.contains(&lane),
        }
    }
}

fn rows(lanes: &Lanes) -> Vec<NextRow> {
    let rows = lanes.rows.iter().map(|row| NextRow {
        lane: row.lane,
        from: match row.held {
            0 => RowStart::Nothing,
            held => RowStart::First(held),
        },
    });
    rows.collect()
}

fn forgotten_lanes(lanes: &Lanes) -> ForgottenLanes {
    if lanes.anew {
        ForgottenLanes::All
    } else {
        ForgottenLanes::Some(lanes.gone.clone())
    }
}

/// The states of all lanes, as tensors of one row each.
#[derive(Debug, Default)]
pub(super) struct LaneStates(BTreeMap<u32, Vec<Tensor>>);

/// The states of a run's rows, packed into one tensor per state.
#[derive(Debug)]
pub(super) struct PackedStates {
    /// The packed states, in the order of [`Carrying::states`].
    pub(super) states: Vec<Tensor>,
    /// The number of positions of each row that count.
    held: Vec<u64>,
}

impl LaneStates {
    /// Forgets lanes.
    pub(super) fn forget(&mut self, forgotten: &ForgottenLanes) {
        self.0.retain(|lane, _| !forgotten.has(*lane));
    }

    /// Stores the states of a lane.
    pub(super) fn put(&mut self, lane: u32, states: Vec<Tensor>) {
        self.0.insert(lane, states);
    }

    /// Packs the states from which the rows start. `begun` is the initial state, for rows without a
    /// kept one.
    pub(super) fn pack(
        &self,
        carrying: &Carrying,
        rows: &[NextRow],
        begun: &[Tensor],
    ) -> Result<PackedStates, String> {
        let of_rows: Result<Vec<Vec<Tensor>>, String> = rows
            .iter()
            .map(|row| self.of_row(carrying, *row, begun))
            .collect();
        let mut of_rows = of_rows?;
        if let [only] = of_rows.as_mut_slice() {
            return Ok(PackedStates {
                states: std::mem::take(only),
                held: Vec::new(),
            });
        }
        let mut packed = PackedStates {
            states: Vec::with_capacity(carrying.states.len()),
            held: Vec::new(),
        };
        for (place, state) in carrying.states.iter().enumerate() {
            let axis = state.axis.ok_or_else(|| NO_POSITIONS.to_owned())?;
            let of_rows = of_rows.iter().map(|states| states[place].clone());
            let of_rows: Vec<Tensor> = of_rows.collect();
            packed.held = of_rows.iter().map(|state| state.shape()[axis]).collect();
            packed.states.push(concat_padded(of_rows, axis)?);
        }
        Ok(packed)
    }

    fn of_row(
        &self,
        carrying: &Carrying,
        row: NextRow,
        begun: &[Tensor],
    ) -> Result<Vec<Tensor>, String> {
        let kept = self.0.get(&row.lane).map_or(begun, Vec::as_slice);
        let length = match row.from {
            RowStart::Nothing => return Ok(begun.to_vec()),
            RowStart::All => return Ok(kept.to_vec()),
            RowStart::First(length) => length,
        };
        let states = carrying.states.iter().zip(kept);
        states
            .map(|(state, tensor)| {
                let axis = state.axis.ok_or_else(|| NO_POSITIONS.to_owned())?;
                let part = tensor.clone().part(axis, 0..length);
                part.map_err(|error| error.to_string())
            })
            .collect()
    }

    /// Stores the states that a run leaves. `states` are the outputs of that run.
    pub(super) fn keep(
        &mut self,
        carrying: &Carrying,
        rows: &[NextRow],
        packed: &PackedStates,
        states: Vec<Tensor>,
    ) -> Result<(), String> {
        if let [only] = rows {
            let states = states.into_iter().zip(&packed.states);
            let states = carrying.states.iter().zip(states);
            let kept = states.map(|(carried, (state, before))| {
                if carried.is_left_out(state.is_empty()) {
                    before.clone()
                } else {
                    state
                }
            });
            self.put(only.lane, kept.collect());
            return Ok(());
        }
        let longest = packed.longest();
        let mut of_rows: Vec<Vec<Tensor>> = rows.iter().map(|_| Vec::new()).collect();
        for (carried, state) in carrying.states.iter().zip(&states) {
            let axis = carried.axis.ok_or_else(|| NO_POSITIONS.to_owned())?;
            for (place, kept) in of_rows.iter_mut().enumerate() {
                let row = place as u64;
                let row = state.clone().part(0, row..row + 1);
                let row = row.map_err(|error| error.to_string())?;
                kept.push(without_range(&row, axis, packed.held[place]..longest)?);
            }
        }
        for (row, states) in rows.iter().zip(of_rows) {
            self.put(row.lane, states);
        }
        Ok(())
    }
}

/// All lanes.
impl IntoIterator for LaneStates {
    type Item = (u32, Vec<Tensor>);
    type IntoIter = std::collections::btree_map::IntoIter<u32, Vec<Tensor>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl PackedStates {
    /// Returns the mask of a run of these rows. `given` has, for each row, ones for its kept and
    /// added positions and zeros after them. In the result the added positions follow the longest
    /// row.
    pub(super) fn mask(&self, given: &Tensor) -> Result<Tensor, String> {
        let [rows, length] = given.shape() else {
            return Err(format!("invalid mask {given:?}: expected two dimensions"));
        };
        if self.held.is_empty() {
            return Ok(given.clone());
        }
        let added = length.checked_sub(self.longest());
        let added = added.filter(|_| *rows == self.held.len() as u64);
        let added =
            added.ok_or_else(|| format!("invalid mask {given:?}: it does not match the rows"))?;
        let mut bytes = Vec::with_capacity(given.bytes().len());
        let size = usize::try_from(given.dtype().size()).unwrap_or(1);
        let one = one(given.dtype())
            .ok_or_else(|| format!("invalid mask {given:?}: unsupported dtype"))?;
        for held in &self.held {
            for position in 0..*length {
                let counts = position < *held || position >= length - added;
                let element: &[u8] = if counts { &one } else { &[0; 8][..size] };
                bytes.extend_from_slice(element);
            }
        }
        let mask = Tensor::new(given.dtype(), given.shape().to_vec(), bytes);
        mask.map_err(|error| error.to_string())
    }

    fn longest(&self) -> u64 {
        self.held.iter().copied().max().unwrap_or(0)
    }
}

/// Returns the bytes of the number 1.
fn one(dtype: DType) -> Option<Vec<u8>> {
    let one = Tensor::from_f64(dtype, vec![1], [1.0]).ok()?;
    Some(one.bytes().to_vec())
}

/// Concatenates rows and pads each with zeros at the end to the longest.
fn concat_padded(rows: Vec<Tensor>, axis: usize) -> Result<Tensor, String> {
    let longest = rows.iter().map(|row| row.shape()[axis]).max().unwrap_or(0);
    let rows: Result<Vec<Tensor>, String> = rows
        .into_iter()
        .map(|row| {
            let mut shape = row.shape().to_vec();
            shape[axis] = longest - shape[axis];
            let zeros = Tensor::zeros(row.dtype(), shape).map_err(|error| error.to_string())?;
            concat(&[row, zeros], axis)
        })
        .collect();
    concat(&rows?, 0)
}

/// Returns a tensor without the positions in `hole`.
fn without_range(
    tensor: &Tensor,
    axis: usize,
    hole: std::ops::Range<u64>,
) -> Result<Tensor, String> {
    let size = tensor.shape().get(axis).copied().unwrap_or(0);
    let part = |range| {
        let part = tensor.clone().part(axis, range);
        part.map_err(|error| error.to_string())
    };
    concat(&[part(0..hole.start)?, part(hole.end..size)?], axis)
}

fn concat(tensors: &[Tensor], axis: usize) -> Result<Tensor, String> {
    Tensor::joined(tensors, axis).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrying::{CarriedTensor, StateRow};

    fn carrying() -> Carrying {
        Carrying {
            states: vec![CarriedTensor {
                input: 1,
                output: 0,
                axis: Some(1),
                begin: vec![1, 0, 1],
            }],
            ..Carrying::default()
        }
    }

    fn tensor(shape: &[u64], values: &[f64]) -> Tensor {
        let values = values.iter().copied();
        Tensor::from_f64(DType::Float32, shape.to_vec(), values).expect("it is small")
    }

    fn begun() -> Vec<Tensor> {
        vec![tensor(&[1, 0, 1], &[])]
    }

    fn lanes(next: &mut NextRun, rows: &[(u32, u64)], anew: bool, gone: &[u32]) -> ForgottenLanes {
        let rows = rows.iter().map(|(lane, held)| StateRow {
            lane: *lane,
            held: *held,
        });
        next.begin(&RunStart::Lanes(Lanes {
            rows: rows.collect(),
            anew,
            gone: gone.to_vec(),
        }))
    }

    #[test]
    fn rows_of_many_lengths_share_a_run() {
        let (carrying, mut kept, mut next) = (carrying(), LaneStates::default(), NextRun::first());
        for (lane, values) in [(3, &[1.0, 2.0, 3.0][..]), (5, &[7.0])] {
            lanes(&mut next, &[(lane, 0)], false, &[]);
            let packed = kept.pack(&carrying, next.rows(), &begun());
            let packed = packed.expect("it begins");
            let left = tensor(&[1, values.len() as u64, 1], values);
            kept.keep(&carrying, next.rows(), &packed, vec![left])
                .expect("it fits");
        }
        lanes(&mut next, &[(3, 2), (5, 1), (9, 0)], false, &[]);
        let packed = kept.pack(&carrying, next.rows(), &begun());
        let packed = packed.expect("they are kept");
        let states = tensor(&[3, 2, 1], &[1.0, 2.0, 7.0, 0.0, 0.0, 0.0]);
        assert_eq!(packed.states, [states]);
        let given = tensor(&[3, 3], &[1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
        let mask = packed.mask(&given).expect("it fits");
        let expected = [1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0];
        assert_eq!(mask.to_f64().collect::<Vec<f64>>(), expected);
        let left = [1.0, 2.0, 30.0, 7.0, 0.0, 50.0, 0.0, 0.0, 90.0];
        let left = vec![tensor(&[3, 3, 1], &left)];
        kept.keep(&carrying, next.rows(), &packed, left)
            .expect("it fits");
        let of = |lane| kept.0[&lane][0].to_f64().collect::<Vec<f64>>();
        assert_eq!(of(3), [1.0, 2.0, 30.0]);
        assert_eq!(of(5), [7.0, 50.0]);
        assert_eq!(of(9), [90.0]);
    }

    #[test]
    fn requested_lanes_are_forgotten() {
        let (carrying, mut kept, mut next) = (carrying(), LaneStates::default(), NextRun::first());
        for lane in [0, 1, 2] {
            kept.0.insert(lane, vec![tensor(&[1, 1, 1], &[1.0])]);
        }
        kept.forget(&lanes(&mut next, &[(1, 1)], false, &[2]));
        assert_eq!(kept.0.keys().copied().collect::<Vec<_>>(), [0, 1]);
        lanes(&mut next, &[(2, 1)], false, &[]);
        let error = kept.pack(&carrying, next.rows(), &begun());
        assert!(error.is_err(), "it was forgotten");
        kept.forget(&lanes(&mut next, &[(1, 0)], true, &[]));
        assert!(kept.0.is_empty());
        kept.0.insert(4, begun());
        kept.forget(&next.begin(&RunStart::Anew));
        assert!(kept.0.is_empty());
    }
}

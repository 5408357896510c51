//! Packs low-bit weights in the order in which kernels read them.
//!
//! A panel is 32 outputs; missing outputs have weights of 0. Weights are stored unsigned, with 8 or
//! 128 added, since dot products of bytes take one unsigned and one signed operand. A [`PanelStep`] has
//! 32 bits of each output. These are either two inputs in a byte (input `i` in the lower half, `i +
//! 4` in the higher), or one.

/// Number of outputs in a panel.
pub(super) const PANEL: usize = 32;

/// One number for each output of a panel.
pub(super) type PanelLanes<T> = [T; PANEL];

/// The unit of a panel's weights that is read at once.
#[derive(Debug, Clone)]
#[repr(align(64))]
pub(super) struct PanelStep(pub(super) [u8; 4 * PANEL]);

/// Width of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bits {
    /// From -8 to 7.
    Four,
    /// From -128 to 127.
    Eight,
}

impl Bits {
    /// Returns the offset added to a weight.
    pub(super) const fn offset(self) -> i32 {
        match self {
            Self::Four => 8,
            Self::Eight => 128,
        }
    }
}

/// Sizes of a weight matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatrixSizes {
    /// Number of inputs of each output.
    pub inputs: usize,
    /// Number of outputs.
    pub outputs: usize,
    /// Number of inputs that share a scale; divides the inputs.
    pub group: usize,
}

/// Maximum number of inputs in a group. Sums of their products stay below 2³¹.
const MAX_GROUP_INPUTS: usize = 1 << 16;

impl MatrixSizes {
    /// Returns the number of groups of each output.
    pub(super) const fn groups(self) -> usize {
        self.inputs / self.group
    }

    /// Returns the number of units of eight inputs in a group.
    pub(super) const fn octets(self) -> usize {
        self.group.div_ceil(8)
    }

    /// Returns the number of panels.
    pub(super) const fn panels(self) -> usize {
        self.outputs.div_ceil(PANEL)
    }

    /// Checks the sizes against the limits of the kernels.
    pub(super) fn check(self, scales: usize) -> Result<(), String> {
        let Self {
            inputs,
            outputs,
            group,
        } = self;
        if inputs == 0 || outputs == 0 {
            return Err(format!(
                "invalid matrix of {outputs} outputs and {inputs} inputs"
            ));
        }
        if group == 0 || !inputs.is_multiple_of(group) {
            return Err(format!(
                "rows of {inputs} inputs are not divisible into groups of {group}"
            ));
        }
        if group > MAX_GROUP_INPUTS {
            return Err(format!(
                "groups of {group} inputs are too large: at most {MAX_GROUP_INPUTS} are supported"
            ));
        }
        if outputs.checked_mul(self.groups()) != Some(scales) {
            return Err(format!(
                "wrong number of scales: got {scales} for {outputs} outputs of {} groups",
                self.groups()
            ));
        }
        Ok(())
    }
}

/// Packed weights with their scales, sums and biases.
pub(super) struct RowPanels {
    /// For each panel and each group of its inputs: one step for every eight 4-bit inputs, or two
    /// for 8-bit inputs.
    pub(super) steps: Vec<PanelStep>,
    /// Scales for each panel and group.
    pub(super) scales: Vec<PanelLanes<f32>>,
    /// Sums of the weights for each panel, if there is a single group.
    pub(super) sums: Vec<PanelLanes<i32>>,
    /// Sums of the weights times their scales for each panel, if there are several groups.
    pub(super) weighted: Vec<PanelLanes<f32>>,
    /// Biases for each panel.
    pub(super) bias: Vec<PanelLanes<f32>>,
}

impl RowPanels {
    /// Packs weights; `weight` returns the weight of an output and an input. Sizes must be checked
    /// before.
    #[expect(clippy::cast_precision_loss, reason = "as XNNPACK rounds")]
    pub(super) fn pack(
        bits: Bits,
        sizes: MatrixSizes,
        weight: impl Fn(usize, usize) -> i8,
        scales: &[f32],
        biases: Option<&[f32]>,
    ) -> Self {
        let groups = sizes.groups();
        let per_group = sizes.octets() * if bits == Bits::Four { 1 } else { 2 };
        let nothing = match bits {
            Bits::Four => PanelStep([0x88; 4 * PANEL]),
            Bits::Eight => PanelStep([0x80; 4 * PANEL]),
        };
        let panels = sizes.panels();
        let whole = if groups == 1 { panels } else { 0 };
        let mut packed = Self {
            steps: vec![nothing; panels * groups * per_group],
            scales: vec![[0.0; PANEL]; panels * groups],
            sums: vec![[0; PANEL]; whole],
            weighted: vec![[0.0; PANEL]; panels - whole],
            bias: vec![[0.0; PANEL]; panels],
        };
        for output in 0..sizes.outputs {
            let (panel, lane) = (output / PANEL, output % PANEL);
            for group in 0..groups {
                let at = panel * groups + group;
                let scale = scales[output * groups + group];
                packed.scales[at][lane] = scale;
                let steps = &mut packed.steps[at * per_group..(at + 1) * per_group];
                let mut sum = 0;
                for (octet, first) in (0..sizes.group).step_by(8).enumerate() {
                    let mut weights = [0; 8];
                    let count = (sizes.group - first).min(8);
                    for (input, to) in weights[..count].iter_mut().enumerate() {
                        *to = weight(output, group * sizes.group + first + input);
                    }
                    sum += weights.iter().map(|weight| i32::from(*weight)).sum::<i32>();
                    write_octet(bits, steps, [lane, octet], weights);
                }
                if groups == 1 {
                    packed.sums[panel][lane] = sum;
                } else {
                    packed.weighted[panel][lane] += sum as f32 * scale;
                }
            }
            if let Some(biases) = biases {
                packed.bias[panel][lane] = biases[output];
            }
        }
        packed
    }

    /// Returns the memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.steps.as_slice())
            + size_of_val(self.scales.as_slice())
            + size_of_val(self.sums.as_slice())
            + size_of_val(self.weighted.as_slice())
            + size_of_val(self.bias.as_slice())
    }
}

/// Writes eight weights of a group.
fn write_octet(bits: Bits, steps: &mut [PanelStep], [lane, octet]: [usize; 2], weights: [i8; 8]) {
    match bits {
        Bits::Four => {
            let weights = weights.map(|weight| (weight.clamp(-8, 7) + 8).cast_unsigned());
            let (low, high) = weights.split_at(4);
            let bytes = steps[octet].0[4 * lane..][..4].iter_mut();
            for (byte, (low, high)) in bytes.zip(low.iter().zip(high)) {
                *byte = low | high << 4;
            }
        }
        Bits::Eight => {
            for (step, weights) in steps[2 * octet..]
                .iter_mut()
                .zip(weights.as_chunks::<4>().0)
            {
                step.0[4 * lane..][..4]
                    .copy_from_slice(&weights.map(|weight| weight.cast_unsigned() ^ 0x80));
            }
        }
    }
}

//! Compares one dimension of a tensor in two versions.

use std::fmt;

use super::ChangeKind;
use super::kinds::{
    DIM_DYNAMIC, DIM_FIXED, DIM_NARROWED, DIM_SIZE, DIM_WIDENED, OUTPUT_DYNAMIC, OUTPUT_RANGE,
};
use super::side::SignatureSide;
use pkgtool_model::{Allowed, Dim};

/// The known facts about a dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DimensionSize {
    /// Fixed at this size.
    Fixed(u64),
    /// Dynamic.
    Dynamic(DynamicRange),
    /// Fixed at this size or dynamic up to it; the file does not record which. `likely_dynamic` is
    /// the best guess.
    Open { bound: u64, likely_dynamic: bool },
}

/// The sizes that a dynamic dimension accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DynamicRange {
    /// Unknown.
    Unknown,
    /// Any size.
    Any,
    /// Only these sizes.
    Among(Allowed),
}

impl DimensionSize {
    /// Converts a size declared in a config; `None` for an invalid size.
    pub(super) fn declared(size: i64) -> Option<Self> {
        match size {
            -1 => Some(Self::Dynamic(DynamicRange::Unknown)),
            size => u64::try_from(size).ok().map(Self::Fixed),
        }
    }

    /// Converts a dimension of a model file.
    pub(super) fn of_model(dim: &Dim) -> Self {
        match dim {
            Dim::Fixed(size) => Self::Fixed(*size),
            Dim::Dynamic {
                allowed: Some(allowed),
                ..
            } => Self::Dynamic(DynamicRange::Among(allowed.clone())),
            Dim::Dynamic {
                bound: Some(bound), ..
            } => Self::Dynamic(DynamicRange::Among(up_to(*bound))),
            Dim::Dynamic { .. } => Self::Dynamic(DynamicRange::Any),
            Dim::Maybe {
                bound,
                likely_dynamic,
            } => Self::Open {
                bound: *bound,
                likely_dynamic: *likely_dynamic,
            },
        }
    }

    pub(super) fn is_dynamic(&self) -> bool {
        matches!(
            self,
            Self::Dynamic(_)
                | Self::Open {
                    likely_dynamic: true,
                    ..
                }
        )
    }

    /// Returns the change from one to the other, if it is certain. `explained`: a dimension of an
    /// input became dynamic, so one of an output may become dynamic too.
    pub(super) fn change(
        &self,
        new: &Self,
        side: SignatureSide,
        explained: bool,
    ) -> Option<&'static ChangeKind> {
        match (self, new) {
            (Self::Fixed(a) | Self::Open { bound: a, .. }, Self::Fixed(b)) => {
                (a != b).then_some(&DIM_SIZE)
            }
            (Self::Fixed(was), Self::Dynamic(reach)) => {
                Some(became_dynamic(*was, reach, side, explained))
            }
            (Self::Dynamic(_), Self::Fixed(_)) => Some(&DIM_FIXED),
            (Self::Dynamic(a), Self::Dynamic(b)) => a.change(b, side),
            (
                Self::Fixed(a) | Self::Open { bound: a, .. },
                Self::Open {
                    bound: b,
                    likely_dynamic,
                },
            ) => match (a == b, *likely_dynamic && a < b) {
                (true, _) => None,
                (_, true) if matches!(side, SignatureSide::Input) => Some(&DIM_WIDENED),
                (_, true) => Some(&OUTPUT_RANGE),
                _ => Some(&DIM_SIZE),
            },
            // It is unknown whether the dimension was dynamic, but losing its largest size is a
            // change in any case.
            (Self::Open { bound, .. }, Self::Dynamic(reach)) => {
                let narrower = side == SignatureSide::Input && !reach.has(*bound);
                narrower.then_some(&DIM_NARROWED)
            }
            (Self::Dynamic(reach), Self::Open { bound, .. }) => match reach {
                DynamicRange::Among(allowed) if allowed.largest() > *bound => Some(match side {
                    SignatureSide::Input => &DIM_NARROWED,
                    SignatureSide::Output => &OUTPUT_RANGE,
                }),
                _ => None,
            },
        }
    }
}

fn became_dynamic(
    was: u64,
    reach: &DynamicRange,
    side: SignatureSide,
    explained: bool,
) -> &'static ChangeKind {
    match side {
        SignatureSide::Input if reach.has(was) => &DIM_DYNAMIC,
        SignatureSide::Input => &DIM_SIZE,
        SignatureSide::Output if explained => &DIM_DYNAMIC,
        SignatureSide::Output => &OUTPUT_DYNAMIC,
    }
}

impl DynamicRange {
    fn has(&self, size: u64) -> bool {
        match self {
            Self::Unknown | Self::Any => true,
            Self::Among(allowed) => allowed.has(size),
        }
    }

    fn change(&self, new: &Self, side: SignatureSide) -> Option<&'static ChangeKind> {
        let (kept, equal) = match (self, new) {
            (Self::Unknown, _) | (_, Self::Unknown) | (Self::Any, Self::Any) => return None,
            (Self::Any, Self::Among(_)) => (false, false),
            (Self::Among(_), Self::Any) => (true, false),
            (Self::Among(a), Self::Among(b)) => {
                let kept = is_within(a, b);
                (kept, kept && is_within(b, a))
            }
        };
        match (side, kept) {
            _ if equal => None,
            (SignatureSide::Output, _) => Some(&OUTPUT_RANGE),
            (SignatureSide::Input, true) => Some(&DIM_WIDENED),
            (SignatureSide::Input, false) => Some(&DIM_NARROWED),
        }
    }
}

fn up_to(bound: u64) -> Allowed {
    Allowed::Range {
        least: bound.min(1),
        most: bound,
        step: 1,
    }
}

/// Returns whether every size of `inner`, except 0, is one of `outer`.
fn is_within(inner: &Allowed, outer: &Allowed) -> bool {
    match (inner, outer) {
        (Allowed::Choices(sizes), _) => sizes.iter().all(|size| *size == 0 || outer.has(*size)),
        (Allowed::Range { least, step, .. }, _) => {
            let most = inner.largest();
            // A minimum of 0 or 1 makes no difference, because callers never pass empty tensors.
            let least = if *least == 0 {
                (*step).min(most)
            } else {
                *least
            };
            if least == most {
                return outer.has(most);
            }
            match outer {
                Allowed::Range {
                    least: from,
                    step: other,
                    ..
                } => {
                    let fits = step.is_multiple_of(*other);
                    fits && *from <= least && outer.has(least) && most <= outer.largest()
                }
                Allowed::Choices(sizes) => {
                    let count = (most - least) / step;
                    let mut inside = (0..=count).map(|nth| least + nth * step);
                    count < sizes.len() as u64 && inside.all(|size| outer.has(size))
                }
            }
        }
    }
}

/// Formats like `4`, `-1`, `-1 (up to 16)`.
impl fmt::Display for DimensionSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => write!(f, "{size}"),
            Self::Dynamic(DynamicRange::Unknown | DynamicRange::Any) => write!(f, "-1"),
            Self::Dynamic(DynamicRange::Among(allowed)) if allowed.is_upper_bound_only() => {
                write!(f, "-1 (up to {})", allowed.largest())
            }
            Self::Dynamic(DynamicRange::Among(allowed)) => write!(f, "-1 ({allowed})"),
            Self::Open { bound, .. } => write!(f, "{bound} or -1"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Allowed, is_within, up_to};

    fn range(least: u64, most: u64, step: u64) -> Allowed {
        Allowed::Range { least, most, step }
    }

    #[test]
    fn what_lies_within_what() {
        for (inner, outer, is) in [
            (up_to(8), up_to(16), true),
            (up_to(16), up_to(8), false),
            (range(0, 8, 1), up_to(8), true),
            (range(2, 8, 2), up_to(8), true),
            (up_to(8), range(2, 8, 2), false),
            (range(4, 16, 4), range(2, 16, 2), true),
            (range(4, 16, 4), range(2, 15, 2), false),
            (range(3, 9, 2), range(2, 16, 2), false),
            (Allowed::Choices(vec![2, 4]), range(2, 16, 2), true),
            (range(2, 4, 2), Allowed::Choices(vec![2, 4, 8]), true),
            (range(1, u64::MAX, 1), Allowed::Choices(vec![2]), false),
        ] {
            assert_eq!(is_within(&inner, &outer), is, "{inner:?} in {outer:?}");
        }
    }
}

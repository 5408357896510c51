//! Aligns two lists of different length, to find the elements that correspond.

/// Maximum number of compared pairs; longer lists are not aligned.
const MAX_PAIRS: usize = 1_000_000;

/// An element of one list or of both, by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AlignedPair {
    /// In both.
    Both(usize, usize),
    /// In the first only.
    Old(usize),
    /// In the second only.
    New(usize),
}

/// Aligns two lists by a longest common subsequence of elements that are the `same`. Elements in
/// between are paired in order. Returns `None` if the lists are too long.
pub(super) fn align<T>(
    old: &[T],
    new: &[T],
    same: impl Fn(&T, &T) -> bool,
) -> Option<Vec<AlignedPair>> {
    if old.len() == new.len() {
        return Some((0..old.len()).map(|at| AlignedPair::Both(at, at)).collect());
    }
    let width = new.len() + 1;
    if (old.len() + 1).checked_mul(width)? > MAX_PAIRS {
        return None;
    }
    // longest[i * width + j]: length for old[i..] and new[j..].
    let mut longest = vec![0_u32; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            longest[i * width + j] = if same(&old[i], &new[j]) {
                longest[(i + 1) * width + j + 1] + 1
            } else {
                longest[(i + 1) * width + j].max(longest[i * width + j + 1])
            };
        }
    }
    let (mut pairs, mut gap) = (Vec::new(), (Vec::new(), Vec::new()));
    let (mut i, mut j) = (0, 0);
    while i < old.len() && j < new.len() {
        if same(&old[i], &new[j]) {
            close(&mut gap, &mut pairs);
            pairs.push(AlignedPair::Both(i, j));
            (i, j) = (i + 1, j + 1);
        } else if longest[(i + 1) * width + j] >= longest[i * width + j + 1] {
            gap.0.push(i);
            i += 1;
        } else {
            gap.1.push(j);
            j += 1;
        }
    }
    gap.0.extend(i..old.len());
    gap.1.extend(j..new.len());
    close(&mut gap, &mut pairs);
    Some(pairs)
}

fn close(gap: &mut (Vec<usize>, Vec<usize>), pairs: &mut Vec<AlignedPair>) {
    let (old, new) = (std::mem::take(&mut gap.0), std::mem::take(&mut gap.1));
    let both = old.len().min(new.len());
    pairs.extend(old.iter().zip(&new).map(|(i, j)| AlignedPair::Both(*i, *j)));
    pairs.extend(old[both..].iter().map(|i| AlignedPair::Old(*i)));
    pairs.extend(new[both..].iter().map(|j| AlignedPair::New(*j)));
}

#[cfg(test)]
mod tests {
    use super::{AlignedPair, align};

    #[test]
    fn what_is_new_is_told_from_what_changed() {
        let pairs = |old: &[char], new: &[char]| align(old, new, |a, b| a == b);
        assert_eq!(
            pairs(&['a', 'b'], &['x', 'b', 'c']),
            Some(vec![
                AlignedPair::Both(0, 0),
                AlignedPair::Both(1, 1),
                AlignedPair::New(2)
            ])
        );
        assert_eq!(
            pairs(&['a', 'b', 'c'], &['a', 'c']),
            Some(vec![
                AlignedPair::Both(0, 0),
                AlignedPair::Old(1),
                AlignedPair::Both(2, 1)
            ])
        );
        assert_eq!(pairs(&[], &['a']), Some(vec![AlignedPair::New(0)]));
        assert_eq!(align(&vec![0; 2000], &vec![0; 2001], |a, b| a == b), None);
    }
}

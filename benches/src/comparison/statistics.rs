//! Medians and how sure they are.

/// How often the sample is drawn again.
const RESAMPLES: usize = 10_000;

/// A median with the bounds between which it lies with a confidence of 95 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Interval {
    pub(super) median: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    /// From how many values.
    pub(super) count: usize,
}

/// The value in the middle; `None` of nothing.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    middle(&sorted)
}

/// The median and its bootstrap interval (percentiles); the same values give the same bounds.
pub(super) fn interval(values: &[f64]) -> Option<Interval> {
    let median = median(values)?;
    let mut random = Random(0x5eed);
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| {
            let mut drawn: Vec<f64> =
                values.iter().filter_map(|_| values.get(random.below(values.len())).copied()).collect();
            drawn.sort_by(f64::total_cmp);
            middle(&drawn)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let bound = |thousandths: usize| medians.get((medians.len() - 1) * thousandths / 1000).copied();
    Some(Interval { median, low: bound(25)?, high: bound(975)?, count: values.len() })
}

fn middle(sorted: &[f64]) -> Option<f64> {
    let half = sorted.len() / 2;
    let upper = sorted.get(half)?;
    Some(if sorted.len() % 2 == 1 { *upper } else { f64::midpoint(*sorted.get(half - 1)?, *upper) })
}

/// splitmix64: any sequence without a pattern will do.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let high = u128::from(mixed ^ (mixed >> 31)) * (bound as u128);
        usize::try_from(high >> 64).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn the_interval_holds_the_median_and_repeats() {
        let values: Vec<f64> = (0..15).map(|n| 1.0 + f64::from(n * 7 % 15) / 100.0).collect();
        let found = interval(&values).unwrap();
        assert_eq!(Some(found), interval(&values));
        assert!(found.low < found.median && found.median < found.high, "{found:?}");
        // The distribution of the median of 15 is known: it lies between the 4th and the 12th of them in 96 % of cases.
        assert!((1.03..=1.04).contains(&found.low) && (1.10..=1.11).contains(&found.high), "{found:?}");
        assert_eq!(interval(&[2.0]).map(|found| (found.low, found.high)), Some((2.0, 2.0)));
    }
}

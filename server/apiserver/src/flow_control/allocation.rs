//! Divides the server's seats among priority levels: initially by shares, then by demand.
//!
//! Upstream: k8s.io/apiserver `pkg/util/flowcontrol/{apf_controller,conc_alloc}.go`.

use super::demand::DemandStats;

/// Decay of past demand per period of ten seconds: half in five minutes.
const SMOOTHING: f64 = 0.977;
/// Smaller targets are raised to this.
const MIN_TARGET: f64 = 0.001;

/// Seat limits of a level by its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeatBounds {
    /// Its share of the server's seats (nominal concurrency limit).
    pub nominal: u32,
    /// Seats that it never lends.
    pub lower: u32,
    /// Seats that it has at most, with borrowing.
    pub upper: u32,
}

impl SeatBounds {
    /// The limits of a level with `shares` of `all_shares`, in a server with `seats`.
    pub(crate) fn new(
        seats: u32,
        shares: u32,
        all_shares: u32,
        lendable_percent: u32,
        borrowing_percent: Option<u32>,
    ) -> SeatBounds {
        let of_all = f64::from(seats) * f64::from(shares) / f64::from(all_shares.max(1));
        let nominal = of_all.ceil() as u32;
        let percent = |p: u32| (f64::from(nominal) * f64::from(p) / 100.0).round() as u32;
        let borrows = borrowing_percent.map_or(seats, percent);
        let lower = nominal.saturating_sub(percent(lendable_percent));
        SeatBounds { nominal, lower, upper: nominal.saturating_add(borrows) }
    }

    /// Initial seats of a level without demand statistics.
    pub(crate) fn initial(&self) -> u32 {
        self.nominal - (self.nominal - self.lower) / 2
    }
}

/// The seats that a level needed, smoothed over time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SeatDemand {
    /// High watermark of the last period.
    pub peak: u32,
    /// Average of the last period.
    pub average: f64,
    /// Standard deviation of the last period.
    pub deviation: f64,
    /// Envelope of average and deviation; decays slowly.
    pub smoothed: f64,
}

impl SeatDemand {
    /// Updates with the statistics of a period.
    pub(crate) fn update(&mut self, observed: DemandStats) {
        let envelope = observed.average + observed.deviation;
        self.peak = observed.peak;
        self.average = observed.average;
        self.deviation = observed.deviation;
        self.smoothed = envelope.max(SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * envelope);
    }
}

/// Input of the allocation for one level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LevelAllocation {
    /// Limits by configuration.
    pub bounds: SeatBounds,
    /// Seats that its requests took or waited for.
    pub demand: SeatDemand,
    /// Whether its requests are exempt from limits.
    pub exempt: bool,
}

impl LevelAllocation {
    /// Minimum seats of the level.
    fn needs(&self) -> u32 {
        match self.exempt {
            true => self.bounds.lower.max(self.demand.peak),
            false => self.bounds.lower.max(self.bounds.nominal.min(self.demand.peak)),
        }
    }

    /// Desired seats.
    pub(crate) fn target(&self) -> f64 {
        f64::from(self.needs()).max(self.demand.smoothed)
    }
}

/// Divides the sum of the nominal limits among levels. Returns the new limits, and the fraction of the target
/// that levels within their limits receive.
pub(super) fn divide(levels: &[LevelAllocation]) -> (Vec<u32>, f64) {
    let seats: u32 = levels.iter().map(|c| c.bounds.nominal).fold(0, u32::saturating_add);
    let exempt: u32 =
        levels.iter().filter(|c| c.exempt).map(LevelAllocation::needs).fold(0, u32::saturating_add);
    let limited = || levels.iter().filter(|c| !c.exempt);
    let sum = |of: fn(&LevelAllocation) -> u32| limited().map(of).fold(0u32, u32::saturating_add);
    let (lower, needs) = (sum(|c| c.bounds.lower), sum(LevelAllocation::needs));
    let remaining = seats.saturating_sub(exempt);
    if remaining <= lower {
        return (levels.iter().map(|c| if c.exempt { c.needs() } else { c.bounds.lower }).collect(), 0.0);
    }
    if remaining <= needs {
        // The minimums exceed the remaining seats: what is above the lower limits is divided in proportion.
        let part = f64::from(remaining - lower) / f64::from((needs - lower).max(1));
        let limit = |c: &LevelAllocation| match c.exempt {
            true => c.needs(),
            false => {
                let over = f64::from(c.needs() - c.bounds.lower) * part;
                c.bounds.lower + over.round() as u32
            }
        };
        return (levels.iter().map(limit).collect(), 0.0);
    }
    let fraction = fair_fraction(f64::from(seats), limited());
    let limit = |c: &LevelAllocation| match c.exempt {
        true => c.needs(),
        false => allocate(c, fraction).round() as u32,
    };
    (levels.iter().map(limit).collect(), fraction)
}

/// The seats of a level for a fraction of its target, within its limits.
fn allocate(allocation: &LevelAllocation, fraction: f64) -> f64 {
    let target = allocation.target().max(MIN_TARGET);
    (fraction * target)
        .clamp(f64::from(allocation.needs()), f64::from(allocation.bounds.upper.max(allocation.needs())))
}

/// The fraction for which the allocations add up to `seats`. Their sum grows with the fraction, so it is
/// found by bisection; if no fraction is exact, the nearest one.
fn fair_fraction<'a>(seats: f64, levels: impl Iterator<Item = &'a LevelAllocation>) -> f64 {
    let levels: Vec<&LevelAllocation> = levels.collect();
    let total = |fraction: f64| levels.iter().map(|c| allocate(c, fraction)).sum::<f64>();
    let (mut low, mut high) = (0.0f64, 1.0f64);
    while total(high) < seats && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        match total(middle) < seats {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares, lendable percent, high watermark, smoothed demand.
    type Row = (u32, u32, u32, f64);

    fn levels(rows: &[Row]) -> Vec<LevelAllocation> {
        let all: u32 = rows.iter().map(|r| r.0).sum();
        rows.iter()
            .map(|(shares, lendable, most, smoothed)| LevelAllocation {
                bounds: SeatBounds::new(600, *shares, all, *lendable, None),
                demand: SeatDemand { peak: *most, smoothed: *smoothed, ..SeatDemand::default() },
                exempt: false,
            })
            .collect()
    }

    /// Upstream's suggested levels, in a server of 600 seats.
    #[test]
    fn shares_of_the_suggested_levels_are_upstreams() {
        // Name, shares, lendable percent, nominal and lower limit: from the metrics of a kube-apiserver with
        // default settings.
        let rows = [
            ("system", 30, 33, 74, 50),
            ("node-high", 40, 25, 98, 73),
            ("leader-election", 10, 0, 25, 25),
            ("workload-high", 40, 50, 98, 49),
            ("workload-low", 100, 90, 245, 24),
            ("global-default", 20, 50, 49, 24),
            ("catch-all", 5, 0, 13, 13),
            ("exempt", 0, 0, 0, 0),
        ];
        for (name, shares, lendable, nominal, lower) in rows {
            let bounds = SeatBounds::new(600, shares, 245, lendable, None);
            assert_eq!(
                (bounds.nominal, bounds.lower, bounds.upper),
                (nominal, lower, nominal + 600),
                "{name}"
            );
        }
    }

    #[test]
    fn idle_levels_lend_and_busy_ones_borrow() {
        // One busy level, one that lends most of its seats, one that lends none.
        let levels = levels(&[(10, 0, 500, 500.0), (80, 90, 0, 0.0), (10, 0, 0, 0.0)]);
        let (limits, _) = divide(&levels);
        assert_eq!(limits.iter().sum::<u32>(), 600);
        assert_eq!(limits[1..], [48, 60], "each keeps what it does not lend");
        assert_eq!(limits[0], 492);
    }

    #[test]
    fn equal_wants_get_equal_parts() {
        let (limits, fraction) =
            divide(&levels(&[(10, 50, 100, 100.0), (10, 50, 100, 100.0), (10, 50, 100, 100.0)]));
        assert_eq!(limits, [200, 200, 200]);
        assert!((fraction - 2.0).abs() < 1e-6);
    }

    #[test]
    fn nobody_leaves_its_bounds() {
        let rows = [(10, 100, 600, 600.0), (20, 50, 600, 900.0), (30, 10, 3, 1.0), (40, 0, 0, 0.0)];
        let levels = levels(&rows);
        let (limits, _) = divide(&levels);
        for (allocation, limit) in levels.iter().zip(&limits) {
            assert!(
                (allocation.bounds.lower..=allocation.bounds.upper).contains(limit),
                "{allocation:?} {limit}"
            );
        }
        let sum: u32 = limits.iter().sum();
        assert!((598..=602).contains(&sum), "{limits:?}");
    }

    #[test]
    fn an_exempt_level_takes_what_it_used() {
        let mut levels = levels(&[(10, 50, 10, 10.0), (10, 50, 10, 10.0)]);
        levels.push(LevelAllocation {
            bounds: SeatBounds { nominal: 0, lower: 0, upper: 0 },
            demand: SeatDemand { peak: 7, ..SeatDemand::default() },
            exempt: true,
        });
        assert_eq!(divide(&levels).0[2], 7);
    }

    #[test]
    fn demand_that_has_gone_is_forgotten_slowly() {
        let mut demand = SeatDemand::default();
        demand.update(DemandStats { average: 90.0, deviation: 10.0, peak: 150 });
        assert_eq!((demand.smoothed, demand.peak), (100.0, 150));
        for _ in 0..30 {
            demand.update(DemandStats::default());
        }
        assert!((49.0..51.0).contains(&demand.smoothed), "half after five minutes: {}", demand.smoothed);
    }
}

//! How a server's seats are divided among priority levels: by shares at first, then by what each one wants.
//!
//! Upstream: k8s.io/apiserver `pkg/util/flowcontrol/{apf_controller,conc_alloc}.go`.

use super::demand::Observed;

/// Demand that has gone is forgotten with this factor each period of ten seconds: half of it in five minutes.
const SMOOTHING: f64 = 0.977;
/// Targets below are taken for this one.
const LEAST_TARGET: f64 = 0.001;

/// The seats of a level as its configuration divides them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Its share of the server's seats.
    pub nominal: u32,
    /// What it keeps when others borrow.
    pub least: u32,
    /// What it has when it borrows all it may.
    pub most: u32,
}

impl Bounds {
    /// The bounds of a level with `shares` of `all_shares`, in a server with so many `seats`.
    pub fn new(
        seats: u32,
        shares: u32,
        all_shares: u32,
        lendable_percent: u32,
        borrowing_percent: Option<u32>,
    ) -> Bounds {
        let of_all = f64::from(seats) * f64::from(shares) / f64::from(all_shares.max(1));
        let nominal = of_all.ceil() as u32;
        let percent = |p: u32| (f64::from(nominal) * f64::from(p) / 100.0).round() as u32;
        let borrows = borrowing_percent.map_or(seats, percent);
        let least = nominal.saturating_sub(percent(lendable_percent));
        Bounds { nominal, least, most: nominal.saturating_add(borrows) }
    }

    /// The seats of a level about which nothing is known yet.
    pub fn at_first(&self) -> u32 {
        self.nominal - (self.nominal - self.least) / 2
    }
}

/// The seats that a level wanted, smoothed over time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// The most at once in the last period.
    pub most: u32,
    /// Average of the last period.
    pub average: f64,
    /// Standard deviation of the last period.
    pub deviation: f64,
    /// Average and deviation together; falls slowly.
    pub smoothed: f64,
}

impl Wanted {
    /// Takes in one more period.
    pub fn take_in(&mut self, observed: Observed) {
        let envelope = observed.average + observed.deviation;
        self.most = observed.most;
        self.average = observed.average;
        self.deviation = observed.deviation;
        self.smoothed = envelope.max(SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * envelope);
    }
}

/// A level that takes part in the division.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// What its configuration grants.
    pub bounds: Bounds,
    /// What it wanted.
    pub wanted: Wanted,
    /// Whether its requests are limited at all.
    pub exempt: bool,
}

impl Claim {
    /// What the level cannot go without.
    fn needs(&self) -> u32 {
        match self.exempt {
            true => self.bounds.least.max(self.wanted.most),
            false => self.bounds.least.max(self.bounds.nominal.min(self.wanted.most)),
        }
    }

    /// What would suit it.
    pub fn target(&self) -> f64 {
        f64::from(self.needs()).max(self.wanted.smoothed)
    }
}

/// Divides the sum of the nominal limits among levels: the limits from now on, and the fraction of its target that
/// every level got which is at none of its bounds.
pub fn divide(claims: &[Claim]) -> (Vec<u32>, f64) {
    let seats: u32 = claims.iter().map(|c| c.bounds.nominal).fold(0, u32::saturating_add);
    let exempt: u32 = claims.iter().filter(|c| c.exempt).map(Claim::needs).fold(0, u32::saturating_add);
    let limited = || claims.iter().filter(|c| !c.exempt);
    let sum = |of: fn(&Claim) -> u32| limited().map(of).fold(0u32, u32::saturating_add);
    let (least, needs) = (sum(|c| c.bounds.least), sum(Claim::needs));
    let remaining = seats.saturating_sub(exempt);
    if remaining <= least {
        return (claims.iter().map(|c| if c.exempt { c.needs() } else { c.bounds.least }).collect(), 0.0);
    }
    if remaining <= needs {
        // Not even what all need is there: what is over the guaranteed part is divided in proportion.
        let part = f64::from(remaining - least) / f64::from((needs - least).max(1));
        let limit = |c: &Claim| match c.exempt {
            true => c.needs(),
            false => {
                let over = f64::from(c.needs() - c.bounds.least) * part;
                c.bounds.least + over.round() as u32
            }
        };
        return (claims.iter().map(limit).collect(), 0.0);
    }
    let fraction = fair_fraction(f64::from(seats), limited());
    let limit = |c: &Claim| match c.exempt {
        true => c.needs(),
        false => allot(c, fraction).round() as u32,
    };
    (claims.iter().map(limit).collect(), fraction)
}

/// A level's part when every level gets that fraction of its target, within its bounds.
fn allot(claim: &Claim, fraction: f64) -> f64 {
    let target = claim.target().max(LEAST_TARGET);
    (fraction * target).clamp(f64::from(claim.needs()), f64::from(claim.bounds.most.max(claim.needs())))
}

/// The fraction at which the parts add up to `seats`. The sum of the parts grows with the fraction, so it is found
/// by halving; bounds that no fraction can satisfy give the nearest one.
fn fair_fraction<'a>(seats: f64, claims: impl Iterator<Item = &'a Claim>) -> f64 {
    let claims: Vec<&Claim> = claims.collect();
    let total = |fraction: f64| claims.iter().map(|c| allot(c, fraction)).sum::<f64>();
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

    /// Shares, lendable percent, most wanted at once, smoothed demand.
    type Row = (u32, u32, u32, f64);

    fn claims(rows: &[Row]) -> Vec<Claim> {
        let all: u32 = rows.iter().map(|r| r.0).sum();
        rows.iter()
            .map(|(shares, lendable, most, smoothed)| Claim {
                bounds: Bounds::new(600, *shares, all, *lendable, None),
                wanted: Wanted { most: *most, smoothed: *smoothed, ..Wanted::default() },
                exempt: false,
            })
            .collect()
    }

    /// The levels that upstream suggests, in a server of 600 seats.
    #[test]
    fn shares_of_the_suggested_levels_are_upstreams() {
        // Name, shares, lendable percent, nominal, least: as a kube-apiserver of default settings shows in its metrics.
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
        for (name, shares, lendable, nominal, least) in rows {
            let bounds = Bounds::new(600, shares, 245, lendable, None);
            assert_eq!(
                (bounds.nominal, bounds.least, bounds.most),
                (nominal, least, nominal + 600),
                "{name}"
            );
        }
    }

    #[test]
    fn idle_levels_lend_and_busy_ones_borrow() {
        // One busy level, one that lends most of its seats, one that lends none.
        let claims = claims(&[(10, 0, 500, 500.0), (80, 90, 0, 0.0), (10, 0, 0, 0.0)]);
        let (limits, _) = divide(&claims);
        assert_eq!(limits.iter().sum::<u32>(), 600);
        assert_eq!(limits[1..], [48, 60], "each keeps what it does not lend");
        assert_eq!(limits[0], 492);
    }

    #[test]
    fn equal_wants_get_equal_parts() {
        let (limits, fraction) =
            divide(&claims(&[(10, 50, 100, 100.0), (10, 50, 100, 100.0), (10, 50, 100, 100.0)]));
        assert_eq!(limits, [200, 200, 200]);
        assert!((fraction - 2.0).abs() < 1e-6);
    }

    #[test]
    fn nobody_leaves_its_bounds() {
        let rows = [(10, 100, 600, 600.0), (20, 50, 600, 900.0), (30, 10, 3, 1.0), (40, 0, 0, 0.0)];
        let claims = claims(&rows);
        let (limits, _) = divide(&claims);
        for (claim, limit) in claims.iter().zip(&limits) {
            assert!((claim.bounds.least..=claim.bounds.most).contains(limit), "{claim:?} {limit}");
        }
        let sum: u32 = limits.iter().sum();
        assert!((598..=602).contains(&sum), "{limits:?}");
    }

    #[test]
    fn an_exempt_level_takes_what_it_used() {
        let mut claims = claims(&[(10, 50, 10, 10.0), (10, 50, 10, 10.0)]);
        claims.push(Claim {
            bounds: Bounds { nominal: 0, least: 0, most: 0 },
            wanted: Wanted { most: 7, ..Wanted::default() },
            exempt: true,
        });
        assert_eq!(divide(&claims).0[2], 7);
    }

    #[test]
    fn demand_that_has_gone_is_forgotten_slowly() {
        let mut wanted = Wanted::default();
        wanted.take_in(Observed { average: 90.0, deviation: 10.0, most: 150 });
        assert_eq!((wanted.smoothed, wanted.most), (100.0, 150));
        for _ in 0..30 {
            wanted.take_in(Observed::default());
        }
        assert!((49.0..51.0).contains(&wanted.smoothed), "half after five minutes: {}", wanted.smoothed);
    }
}

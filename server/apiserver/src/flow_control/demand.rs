//! Demand for seats over a period: the input of borrowing.
//!
//! Upstream: k8s.io/apiserver `pkg/util/flowcontrol/fairqueuing/integrator.go`.

/// Nanoseconds on the owner's clock.
pub(crate) type Nanos = u64;

/// Integrates the number of requested seats over time.
#[derive(Debug)]
pub(crate) struct Demand {
    seats: u32,
    since: Nanos,
    /// Nanoseconds since the last reset.
    time: f64,
    /// Integral of the seats, and of their squares.
    sum: f64,
    squares: f64,
    peak: u32,
}

/// Demand of a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct DemandStats {
    /// Average over time.
    pub average: f64,
    /// Standard deviation over time.
    pub deviation: f64,
    /// High watermark.
    pub peak: u32,
}

impl Demand {
    /// No demand yet.
    pub(super) fn new(now: Nanos) -> Demand {
        Demand { seats: 0, since: now, time: 0.0, sum: 0.0, squares: 0.0, peak: 0 }
    }

    /// Sets the number of seats requested from now on.
    pub(super) fn set(&mut self, seats: u32, now: Nanos) {
        self.integrate(now);
        self.seats = seats;
        self.peak = self.peak.max(seats);
    }

    /// The demand since the last reset; starts a new period with the current value.
    pub(super) fn reset(&mut self, now: Nanos) -> DemandStats {
        self.integrate(now);
        let observed = match self.time > 0.0 {
            true => {
                let average = self.sum / self.time;
                let variance = (self.squares / self.time - average * average).max(0.0);
                DemandStats { average, deviation: variance.sqrt(), peak: self.peak }
            }
            false => DemandStats { average: 0.0, deviation: 0.0, peak: self.peak },
        };
        (self.time, self.sum, self.squares, self.peak) = (0.0, 0.0, 0.0, self.seats);
        observed
    }

    fn integrate(&mut self, now: Nanos) {
        let passed = now.saturating_sub(self.since) as f64;
        self.since = self.since.max(now);
        let seats = f64::from(self.seats);
        self.time += passed;
        self.sum += seats * passed;
        self.squares += seats * seats * passed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_are_weighed_with_their_time() {
        let mut demand = Demand::new(0);
        demand.set(10, 100);
        demand.set(0, 200);
        let observed = demand.reset(400);
        assert_eq!((observed.average, observed.peak), (2.5, 10));
        assert!((observed.deviation - 18.75f64.sqrt()).abs() < 1e-9);
        assert_eq!(demand.reset(500), DemandStats::default());
        demand.set(3, 600);
        demand.reset(700);
        assert_eq!(demand.reset(800).peak, 3, "what is still wanted is the start of the next period");
    }
}

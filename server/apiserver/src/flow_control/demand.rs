//! How many seats a level wanted over a period: the input of borrowing.
//!
//! Upstream: k8s.io/apiserver `pkg/util/flowcontrol/fairqueuing/integrator.go`.

use super::queues::Nanos;

/// Weighs how many seats were wanted with the time for which they were.
#[derive(Debug)]
pub struct Demand {
    seats: u32,
    since: Nanos,
    /// Nanoseconds since the last reset.
    time: f64,
    /// Integral of the seats, and of their squares.
    sum: f64,
    squares: f64,
    most: u32,
}

/// What was wanted in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observed {
    /// Average over time.
    pub average: f64,
    /// Standard deviation over time.
    pub deviation: f64,
    /// The most at once.
    pub most: u32,
}

impl Demand {
    /// Nothing wanted so far.
    pub fn new(now: Nanos) -> Demand {
        Demand { seats: 0, since: now, time: 0.0, sum: 0.0, squares: 0.0, most: 0 }
    }

    /// From now on so many seats are wanted.
    pub fn set(&mut self, seats: u32, now: Nanos) {
        self.integrate(now);
        self.seats = seats;
        self.most = self.most.max(seats);
    }

    /// What was wanted since the last reset; starts again with what is wanted now.
    pub fn reset(&mut self, now: Nanos) -> Observed {
        self.integrate(now);
        let observed = match self.time > 0.0 {
            true => {
                let average = self.sum / self.time;
                let variance = (self.squares / self.time - average * average).max(0.0);
                Observed { average, deviation: variance.sqrt(), most: self.most }
            }
            false => Observed { average: 0.0, deviation: 0.0, most: self.most },
        };
        (self.time, self.sum, self.squares, self.most) = (0.0, 0.0, 0.0, self.seats);
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
        assert_eq!((observed.average, observed.most), (2.5, 10));
        assert!((observed.deviation - 18.75f64.sqrt()).abs() < 1e-9);
        assert_eq!(demand.reset(500), Observed::default());
        demand.set(3, 600);
        demand.reset(700);
        assert_eq!(demand.reset(800).most, 3, "what is still wanted is the start of the next period");
    }
}

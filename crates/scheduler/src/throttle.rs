//! The start throttle of JOB_START_COUNT and JOB_START_DELAY: bursts of so many, then a delay.
//!
//! Every start on a fresh claim goes through it, also when machines become idle at a fast rate; a claim's next job does
//! not. There is one timer. It is armed when a job could start and the timer is not set, and right after a start when
//! more could start; the counter then tells whether this one waits. Idle time gives no credit: a lone job that comes
//! when a burst is used up waits the whole delay.

/// What an administrator sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    /// JOB_START_COUNT, at least 1.
    pub count: u32,
    /// JOB_START_DELAY in milliseconds; 0 for no throttle.
    pub delay_ms: u64,
}

impl Default for Burst {
    fn default() -> Self {
        Self { count: 1, delay_ms: 0 }
    }
}

/// The throttle.
#[derive(Debug, Clone)]
pub(crate) struct Throttle {
    burst: Burst,
    counter: i64,
    due_ms: Option<u64>,
}

impl Default for Throttle {
    fn default() -> Self {
        Self::new(Burst::default())
    }
}

impl Throttle {
    pub(crate) fn new(burst: Burst) -> Self {
        Self { burst, counter: -1, due_ms: None }
    }

    /// May a job start now? A yes is used up by asking.
    pub(crate) fn may_start(&mut self, now_ms: u64) -> bool {
        if self.burst.delay_ms == 0 {
            return true;
        }
        let due = match self.due_ms {
            Some(due) => due,
            None => now_ms + self.arm(),
        };
        let now = due <= now_ms;
        self.due_ms = if now { None } else { Some(due) };
        now
    }

    fn arm(&mut self) -> u64 {
        self.counter += 1;
        if self.counter < i64::from(self.burst.count.max(1)) {
            return 0;
        }
        self.counter = 0;
        self.burst.delay_ms
    }

    /// When a start that was put off may happen.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }

    /// The time has come and nobody used it.
    pub(crate) fn expire(&mut self, now_ms: u64) {
        if self.due_ms.is_some_and(|due| due <= now_ms) {
            self.due_ms = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When each of these jobs starts, given when each could.
    fn starts(count: u32, delay: u64, mut ready: Vec<u64>) -> Vec<u64> {
        let mut throttle = Throttle::new(Burst { count, delay_ms: delay * 1000 });
        let mut started = Vec::new();
        for now in 0..200 {
            while ready.first().is_some_and(|at| *at <= now) && throttle.may_start(now * 1000) {
                started.push(now);
                ready.remove(0);
            }
        }
        started
    }

    #[test]
    fn the_tables_of_the_reference_hold() {
        assert_eq!(starts(1, 2, vec![0; 7]), [0, 2, 4, 6, 8, 10, 12]);
        assert_eq!(starts(3, 2, vec![0; 7]), [0, 0, 0, 2, 2, 2, 4]);
        assert_eq!(starts(1, 0, vec![0; 7]), [0; 7]);
        assert_eq!(starts(2, 5, (0..7).collect()), [0, 1, 7, 7, 12, 12, 17]);
        assert_eq!(starts(1, 2, vec![0, 100]), [0, 102]);
        let ten = [vec![0; 10], vec![1; 10], vec![2; 5]].concat();
        assert_eq!(starts(10, 1, vec![0; 25]), ten);
        assert_eq!(starts(0, 2, vec![0; 3]), [0, 2, 4], "less than one is one");
        // Seen on 25.13, rounded to seconds.
        assert_eq!(starts(2, 5, vec![0, 2, 2, 5, 5, 6, 6]), [0, 2, 7, 7, 12, 12, 17]);
    }

    #[test]
    fn fractions_of_a_second_count_and_an_unused_turn_is_gone() {
        let mut throttle = Throttle::new(Burst { count: 1, delay_ms: 250 });
        assert!(throttle.may_start(0));
        assert!(!throttle.may_start(0));
        assert_eq!(throttle.due_ms(), Some(250));
        assert!(!throttle.may_start(249) && throttle.may_start(250));
        assert!(!throttle.may_start(250));
        throttle.expire(600);
        assert!(!throttle.may_start(600), "the timer is armed anew");
    }
}

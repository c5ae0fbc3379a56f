//! The clock of ages (D44): time since the machine started, suspends included, and the wall clock only to
//! notice that the machine stood still without knowing.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// An instant on this machine's boot clock. Means nothing on another machine, or after a restart of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

/// What both clocks say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// `CLOCK_BOOTTIME`: goes on while the machine is suspended, and never back.
    pub boot: Instant,
    /// Time since 1970; may be set at will.
    pub wall: Duration,
}

/// Where readings come from. Clones share the source.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Reading + Send + Sync>);

/// A change of wall minus boot clock by more than this means that the boot clock cannot be believed: the
/// virtual machine was paused or moved.
pub(crate) const JUMP: Duration = Duration::from_secs(5);

impl Instant {
    /// An instant so long after the start of the machine.
    pub fn after_boot(time: Duration) -> Self {
        Self(time)
    }

    /// Time since an earlier instant; zero if that is a later one.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The instant so much earlier; the start of the machine if that is less long ago.
    #[must_use]
    pub fn before(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(time))
    }
}

impl Reading {
    /// How far wall and boot clock have moved against each other since an earlier reading.
    pub(crate) fn drift(self, earlier: Self) -> Duration {
        let offset = |reading: Self| reading.wall.as_nanos() as i128 - reading.boot.0.as_nanos() as i128;
        let drift = (offset(self) - offset(earlier)).unsigned_abs();
        Duration::from_nanos(u64::try_from(drift).unwrap_or(u64::MAX))
    }
}

impl Clock {
    /// The machine's own clocks.
    pub fn system() -> Self {
        Self::new(|| Reading { boot: boot(), wall: wall() })
    }

    /// Clocks that say what `read` returns: for tests and simulations.
    pub fn new(read: impl Fn() -> Reading + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// Reads both.
    pub fn read(&self) -> Reading {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({:?})", self.read())
    }
}

fn boot() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Instant(Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0)))
}

#[expect(
    clippy::disallowed_methods,
    reason = "compared with itself only, to notice that the machine stood still"
)]
fn wall() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(boot: u64, wall: u64) -> Reading {
        Reading { boot: Instant(Duration::from_secs(boot)), wall: Duration::from_secs(wall) }
    }

    #[test]
    fn d44_only_what_moves_the_clocks_apart_is_drift() {
        let began = reading(100, 1_000);
        assert_eq!(reading(160, 1_060).drift(began), Duration::ZERO, "a minute for both");
        assert_eq!(reading(101, 4_601).drift(began), Duration::from_hours(1), "paused for an hour");
        assert_eq!(reading(101, 991).drift(began), Duration::from_secs(10), "the wall clock was set back");
    }

    #[test]
    fn the_machine_s_clocks_go_forward() {
        let clock = Clock::system();
        let (first, second) = (clock.read(), clock.read());
        assert!(second.boot >= first.boot);
        assert!(first.boot > Instant::default() && first.wall > Duration::ZERO);
        assert_eq!(first.boot.since(second.boot.before(Duration::ZERO)), Duration::ZERO);
    }
}

//! A timer for waits that are shorter than the runtime's timers tell apart.

#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;
use std::time::Duration;

#[cfg(target_os = "linux")]
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until};

/// Wakes one task at a moment. The runtime's own timers are rounded up to a whole millisecond, which is many times
/// the pause between two probes.
#[derive(Debug)]
pub(crate) struct Alarm {
    #[cfg(target_os = "linux")]
    precise: Option<AsyncFd<OwnedFd>>,
}

/// From here on the runtime's timers are good enough.
#[cfg(target_os = "linux")]
const COARSE: Duration = Duration::from_millis(3);

// === impl Alarm ===

impl Alarm {
    /// A precise one, where the system offers that.
    pub(crate) fn new() -> Self {
        #[cfg(target_os = "linux")]
        return Self { precise: precise().ok() };
        #[cfg(not(target_os = "linux"))]
        return Self {};
    }

    /// One that follows the runtime's clock, paused or not.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn coarse() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            precise: None,
        }
    }

    /// Returns at `deadline`. Cancel-safe.
    pub(crate) async fn until(&mut self, deadline: Instant) {
        #[cfg(target_os = "linux")]
        if let Some(precise) = &self.precise {
            loop {
                let rest = deadline.saturating_duration_since(Instant::now());
                if rest.is_zero() {
                    return;
                }
                if rest >= COARSE || ring(precise, rest).await.is_err() {
                    break;
                }
            }
        }
        if deadline > Instant::now() {
            sleep_until(deadline).await;
        }
    }
}

#[cfg(target_os = "linux")]
#[allow(
    deprecated,
    reason = "its successor is unsafe, for owners that may swap their descriptor; an OwnedFd cannot"
)]
fn precise() -> std::io::Result<AsyncFd<OwnedFd>> {
    use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
    use tokio::io::Interest;
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    AsyncFd::with_interest(timerfd_create(TimerfdClockId::Monotonic, flags)?, Interest::READABLE)
}

/// Waits once. It may return early, for an alarm that was set before: setting another does not take back what the
/// runtime was told already.
#[cfg(target_os = "linux")]
async fn ring(timer: &AsyncFd<OwnedFd>, rest: Duration) -> std::io::Result<()> {
    use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
    let at = Timespec {
        tv_sec: i64::try_from(rest.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: rest.subsec_nanos().max(1).into(),
    };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &once)?;
    timer.readable().await?.clear_ready();
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn waits_shorter_than_a_millisecond() {
        let mut alarm = Alarm::new();
        let mut least = Duration::MAX;
        for _ in 0..50 {
            let begun = Instant::now();
            alarm.until(begun + Duration::from_micros(200)).await;
            assert!(begun.elapsed() >= Duration::from_micros(200));
            least = least.min(begun.elapsed());
        }
        assert!(least < Duration::from_micros(900), "the runtime's own timers take a millisecond: {least:?}");
    }

    #[tokio::test]
    async fn an_alarm_given_up_does_not_cut_the_next_one_short() {
        let mut alarm = Alarm::new();
        let given_up = alarm.until(Instant::now() + Duration::from_micros(300));
        assert!(given_up.now_or_never().is_none());
        tokio::time::sleep(Duration::from_millis(2)).await;
        let deadline = Instant::now() + Duration::from_millis(2);
        alarm.until(deadline).await;
        assert!(Instant::now() >= deadline);
    }

    #[tokio::test(start_paused = true)]
    async fn the_coarse_one_follows_a_paused_clock() {
        let begun = Instant::now();
        Alarm::coarse().until(begun + Duration::from_hours(1)).await;
        assert!(begun.elapsed() >= Duration::from_hours(1));
    }
}

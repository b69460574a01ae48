//! One timer for each loop, exact to microseconds.
//!
//! The runtime's timers are exact to a millisecond, which is as much as a whole commit may take beyond its round trip.
//! On Linux a `timerfd` wakes the loop on time, like a socket; elsewhere the runtime's timer is used.
//!
//! It uses the same clock as the loop, so after a suspension of the machine it fires at once if its time has come.
//!
//! The timer may fire early, and costs nothing while it is set.

use crate::clock::SystemClock;
use shoal_types::Time;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

/// Fires once, at the earliest time that it was set to.
pub(crate) struct LoopTimer {
    clock: SystemClock,
    /// When it will fire.
    set: Option<Time>,
    timer: Timer,
}

impl LoopTimer {
    /// REQUIRES: called within the runtime that polls it.
    pub fn new(clock: SystemClock) -> io::Result<LoopTimer> {
        Ok(LoopTimer { clock, set: None, timer: Timer::new()? })
    }

    /// Fires at `at`, or earlier if it was set to an earlier time.
    pub fn set(&mut self, at: Time) -> io::Result<()> {
        if self.set.is_none_or(|set| at < set) {
            self.set = Some(at);
            self.timer.start(at - self.clock.now())?;
        }
        Ok(())
    }

    /// Ready when it has fired, once for each time. Otherwise wakes the task when it does.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let gone = self.timer.poll(cx);
        if gone.is_ready() {
            self.set = None;
        }
        gone
    }
}

#[cfg(target_os = "linux")]
mod timer {
    use super::{Context, Duration, Poll, io};
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use std::os::fd::OwnedFd;
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    pub struct Timer(AsyncFd<OwnedFd>);

    impl Timer {
        #[expect(
            deprecated,
            reason = "what replaces it is for files that may be closed elsewhere; this one is owned"
        )]
        pub fn new() -> io::Result<Timer> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let file = timerfd_create(TimerfdClockId::Boottime, flags)?;
            Ok(Timer(AsyncFd::with_interest(file, Interest::READABLE)?))
        }

        pub fn start(&self, span: Duration) -> io::Result<()> {
            // Zero would disarm it.
            let span = span.max(Duration::from_nanos(1));
            let seconds = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
            let it_value = Timespec { tv_sec: seconds, tv_nsec: span.subsec_nanos().into() };
            let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
            let value = Itimerspec { it_interval, it_value };
            timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &value)?;
            Ok(())
        }

        pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            loop {
                let mut guard = std::task::ready!(self.0.poll_read_ready(cx))?;
                let read = |file: &AsyncFd<OwnedFd>| {
                    let mut times = [0; 8];
                    Ok(rustix::io::read(file.get_ref(), &mut times)?)
                };
                // Setting it again cancels that it fired: then there is nothing to read.
                match guard.try_io(read) {
                    Ok(done) => return Poll::Ready(done.map(drop)),
                    Err(_would_block) => {}
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod timer {
    use super::{Context, Duration, Poll, io};
    use std::future::Future;
    use std::pin::Pin;

    #[derive(Default)]
    pub struct Timer(Option<Pin<Box<tokio::time::Sleep>>>);

    impl Timer {
        pub fn new() -> io::Result<Timer> {
            Ok(Timer::default())
        }

        pub fn start(&mut self, span: Duration) -> io::Result<()> {
            self.0 = Some(Box::pin(tokio::time::sleep(span)));
            Ok(())
        }

        pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            let Some(sleep) = &mut self.0 else { return Poll::Pending };
            std::task::ready!(sleep.as_mut().poll(cx));
            self.0 = None;
            Poll::Ready(Ok(()))
        }
    }
}

use timer::Timer;

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[tokio::test(flavor = "current_thread")]
    async fn fires_once_at_the_earliest_time_set() {
        let clock = SystemClock::new();
        let mut loop_timer = LoopTimer::new(clock).expect("a timer");
        let soon = clock.now() + Duration::from_millis(3);
        loop_timer.set(soon + Duration::from_secs(60)).expect("set");
        loop_timer.set(soon).expect("set");
        loop_timer.set(soon + Duration::from_secs(30)).expect("set");
        poll_fn(|cx| loop_timer.poll(cx)).await.expect("goes off");
        assert!(clock.now() >= soon);
        assert_eq!(loop_timer.set, None);
        // For a time that has passed it fires at once.
        loop_timer.set(Time::ZERO).expect("set");
        poll_fn(|cx| loop_timer.poll(cx)).await.expect("goes off");
    }
}

//! Ctrl-C and SIGTERM.

use crate::ask;
use std::io;
use std::thread;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Whether the command is to end. Signals are awaited on a thread of their own, so that one is noticed also while the
/// command does something that does not end.
#[derive(Debug, Clone)]
pub struct Interrupts(watch::Receiver<bool>);

impl Interrupts {
    /// Begins to listen. The first signal asks the command to end. If there is a second one, or the command still runs
    /// after `patience`, `force` is called.
    ///
    /// # Errors
    /// If the system has no thread for it, or reports no signals.
    pub fn listen(
        patience: Duration,
        force: impl FnOnce() + Send + 'static,
    ) -> io::Result<Interrupts> {
        let runtime = ask::runtime()?;
        let (mut interrupt, mut terminate) = {
            let _here = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        let (asked, received) = watch::channel(false);
        let listens = async move {
            next(&mut interrupt, &mut terminate).await;
            asked.send_replace(true);
            let _ = tokio::time::timeout(patience, next(&mut interrupt, &mut terminate)).await;
            force();
        };
        thread::Builder::new()
            .name("interrupts".to_owned())
            .spawn(move || runtime.block_on(listens))?;
        Ok(Interrupts(received))
    }

    /// Waits until the command is asked to end; returns at once if it was.
    pub async fn received(&mut self) {
        // The sender is gone only if this process ends.
        let _ = self.0.wait_for(|asked| *asked).await;
    }

    /// What `future` returns; `None` if the command is asked to end before that.
    pub async fn before<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.received() => None,
            done = future => Some(done),
        }
    }
}

async fn next(interrupt: &mut Signal, terminate: &mut Signal) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal, getpid, kill_process};
    use std::sync::mpsc::channel;

    #[test]
    fn the_first_signal_asks_and_the_second_forces() {
        let (forced, was_forced) = channel();
        let far = Duration::from_secs(3600);
        let interrupts = Interrupts::listen(far, move || forced.send(()).expect("awaited"));
        let mut interrupts = interrupts.expect("signals");
        let runtime = ask::runtime().expect("a runtime");
        let idle = runtime.block_on(interrupts.before(std::future::ready(7)));
        assert_eq!(idle, Some(7), "no signal was sent");
        // Nothing waits for signals at this time, as while nodes are looked after.
        kill_process(getpid(), Signal::INT).expect("sent");
        runtime.block_on(interrupts.received());
        assert_eq!(runtime.block_on(interrupts.before(std::future::pending::<()>())), None);
        assert!(was_forced.try_recv().is_err(), "a first signal forces nothing");
        kill_process(getpid(), Signal::TERM).expect("sent");
        was_forced.recv_timeout(Duration::from_secs(60)).expect("forced");
    }
}

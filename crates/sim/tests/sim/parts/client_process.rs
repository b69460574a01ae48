//! The process of a client outside: the order of its tasks, its timers, and dials that are answered too late.

use shoal_client::environment::ClientEnvironment as _;
use shoal_sim::clients::process::{
    ClientProcess, HANDSHAKE_MAX, ProcessEnvironment, ProcessOutput,
};
use shoal_types::{Cause, NodeId, Time, WorkerId, WorkerPlace};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Log = Arc<Mutex<Vec<(u64, Time)>>>;

fn note(log: &Log, environment: &ProcessEnvironment, what: u64) {
    log.lock().unwrap().push((what, environment.now()));
}

async fn count(environment: ProcessEnvironment, log: Log, what: u64, spans: [u64; 3]) {
    for span in spans {
        environment.sleep(Duration::from_nanos(span)).await;
        note(&log, &environment, what);
    }
}

#[test]
fn tasks_run_when_their_time_has_come_and_in_their_order() {
    let (environment, log) = (ProcessEnvironment::new(), Log::default());
    for task in [1, 2] {
        environment.spawn(Box::pin(count(
            environment.clone(),
            Arc::clone(&log),
            task,
            [10, 20, 30],
        )));
    }
    let main = count(environment.clone(), Arc::clone(&log), 0, [30, 5, 0]);
    let mut process = ClientProcess::new(environment, Box::pin(main));
    process.run(Time(0));
    let mut wakes = Vec::new();
    while process.wake_at() < Time::MAX {
        wakes.push(process.wake_at().0);
        process.run(process.wake_at());
    }
    assert_eq!(wakes, [10, 30, 35, 60]);
    let seen: Vec<(u64, u64)> =
        log.lock().unwrap().iter().map(|(task, at)| (*task, at.0)).collect();
    let expected =
        [(1, 10), (2, 10), (0, 30), (1, 30), (2, 30), (0, 35), (0, 35), (1, 60), (2, 60)];
    assert_eq!(seen, expected);
}

#[test]
fn a_timer_that_is_not_waited_for_any_more_wakes_no_task() {
    let environment = ProcessEnvironment::new();
    let waits = environment.clone();
    let main = async move {
        tokio::select! {
            biased;
            () = waits.sleep(Duration::from_nanos(10)) => {}
            () = waits.sleep(Duration::from_nanos(20)) => {}
        }
    };
    let mut process = ClientProcess::new(environment, Box::pin(main));
    process.run(Time(0));
    assert_eq!(process.wake_at(), Time(10));
    process.run(Time(10));
    assert_eq!(process.wake_at(), Time::MAX);
}

#[test]
fn a_node_that_answers_too_late_is_not_connected_to() {
    let environment = ProcessEnvironment::new();
    let place = WorkerPlace { node: NodeId(0), worker: WorkerId(0) };
    let connecting = environment.connect(place, None, None);
    let main = async move {
        let unreached = connecting.await.expect_err("it was too late");
        assert_eq!(unreached.cause, Cause::Silent);
    };
    let mut process = ClientProcess::new(environment, Box::pin(main));
    process.run(Time(0));
    assert!(matches!(process.wanted(), Some(ProcessOutput::Dial(1, _))));
    let late = process.wake_at();
    assert_eq!(late, Time::ZERO + HANDSHAKE_MAX);
    process.run(late);
    process.dialed(1, Ok(place));
    assert!(matches!(process.wanted(), Some(ProcessOutput::Close(1))));
}

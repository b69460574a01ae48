//! The price of a step.

use shoal_sim::cpu::{Cpu, StepWork, charge};

#[test]
fn a_step_pays_for_all_it_did_and_once() {
    let cpu = Cpu::MEASURED.with_bytes().with_keys().slower(2);
    let work = |messages, operations, bytes| StepWork { messages, operations, bytes, keys: 0 };
    assert_eq!(cpu.cost_ns(StepWork { keys: 3, ..work(0, 0, 0) }, 100), 1000 + 3 * 1000);
    assert_eq!(cpu.cost_ns(work(2, 4, 0), 100), 1000 + 2 * 2000 + 4 * 500);
    assert_eq!(cpu.cost_ns(work(0, 0, 7), 100), 1000 + 7 * 2);
    charge(1);
    charge(2);
    assert_eq!(cpu.cost_ns(work(0, 1, 0), 1000), 10 * (1000 + 4 * 500));
    assert_eq!(cpu.cost_ns(work(0, 0, 0), 100), 1000);
    assert_eq!(Cpu::FREE.cost_ns(work(5, 5, 5), 1000), 0);
}

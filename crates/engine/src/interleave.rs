//! Points within a step at which another worker of the node may act, for a simulator that runs a step as a whole.
//!
//! Workers of a node run on threads of their own and share stores, clocks and epochs: between two instructions of one
//! worker another one may take whole steps. A simulator on one thread sets what is to happen at the next such
//! point, and thereby runs those steps in the midst of the step that is under way. Points lie where a rule depends on the
//! order of what is shared: no lock of this crate is held there, and no cell is borrowed.
//!
//! Without the feature `points`, which the simulator asks for, a point is nothing.

use std::any::Any;

/// Acts for another worker, and adds what that lets be seen to what the step has let be seen: the observations of a
/// [`StepOutput`](crate::events::StepOutput) of the engine that both run.
pub type Act = Box<dyn FnOnce(&mut dyn Any)>;

#[cfg(feature = "points")]
thread_local! {
    static NEXT: std::cell::RefCell<Option<Act>> = const { std::cell::RefCell::new(None) };
}

/// At the next point of this thread, this happens.
#[cfg(feature = "points")]
pub fn at_next_point(act: Act) {
    NEXT.with_borrow_mut(|next| *next = Some(act));
}

/// Takes back what was to happen, if no point was reached.
#[cfg(feature = "points")]
pub fn take_back() -> Option<Act> {
    NEXT.take()
}

/// A point at which another worker may act, while a step has let these observations be seen.
#[inline(always)]
pub fn point<O: 'static>(observations: &mut Option<Vec<O>>) {
    #[cfg(feature = "points")]
    if let Some(act) = NEXT.take() {
        act(observations);
    }
    #[cfg(not(feature = "points"))]
    let _ = observations;
}

//! The message and place of a panic. Assertions of the cores are rules too: a run that violates one has
//! failed, and the message belongs in its report instead of on the terminal.

use std::cell::{Cell, RefCell};
use std::panic;
use std::sync::Once;

thread_local! {
    static NOTING: Cell<bool> = const { Cell::new(false) };
    static NOTED: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs `body`; returns its result and the message of the first panic on this thread meanwhile, which is not
/// printed.
pub fn note<T>(body: impl FnOnce() -> T) -> (T, String) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            if !NOTING.get() {
                return before(panicked);
            }
            NOTED.with_borrow_mut(|noted| {
                if noted.is_empty() {
                    *noted = words(panicked);
                }
            });
        }));
    });
    NOTED.take();
    let was_noting = NOTING.replace(true);
    let value = body();
    NOTING.set(was_noting);
    (value, NOTED.take())
}

fn words(panicked: &panic::PanicHookInfo<'_>) -> String {
    let payload = panicked.payload();
    let message = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(message), _) => message,
        (None, Some(message)) => message.as_str(),
        (None, None) => "a panic without a message",
    };
    match panicked.location() {
        Some(at) => format!("{message} ({}:{})", at.file(), at.line()),
        None => message.to_owned(),
    }
}

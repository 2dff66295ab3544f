//! What must be put back, in reverse order, even when an assertion fails.

use stallscope::clock;
use stallscope::sample::time::MonoNs;

/// Undo steps; they run last first when this is dropped. A step must not panic: it runs
/// while a failed assertion unwinds.
#[derive(Default)]
pub struct Undo {
    steps: Vec<Box<dyn FnOnce() + Send>>,
}

impl Undo {
    /// Adds a step that runs before all earlier ones.
    pub fn then(&mut self, step: impl FnOnce() + Send + 'static) {
        self.steps.push(Box::new(step));
    }
    /// Adds a command whose failure is only reported.
    pub fn command(&mut self, argv: &[&str]) {
        let argv: Vec<String> = argv.iter().map(ToString::to_string).collect();
        self.then(move || {
            let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
            retry(|| super::sh::attempt(&argv).map(|_| ()));
        });
    }
}

/// Tries for two seconds, then reports: references drop a moment after their holder died.
pub fn retry(mut step: impl FnMut() -> Result<(), String>) {
    for _ in 0..40 {
        if step().is_ok() {
            return;
        }
        clock::sleep_until(MonoNs(clock::mono().0 + 50_000_000));
    }
    if let Err(e) = step() {
        eprintln!("lab: clean-up: {e}");
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        while let Some(step) = self.steps.pop() {
            step();
        }
    }
}

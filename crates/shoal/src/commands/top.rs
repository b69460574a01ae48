//! `shoal top`: a cluster while it runs, on the whole terminal.

use super::target::Target;
use super::{CommandError, CommandOutcome, print, print_json};
use crate::top::{Figures, History, TopSample, draw, text};
use crate::{ask, duration, terminal};
use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use shoal_net::client::Access;
use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;
use tokio::time::sleep;

/// How often the terminal is asked for keys.
const KEYS_EVERY: Duration = Duration::from_millis(50);

/// Show throughput, latency, conflicts, leaders, lags, memory and hot keys of a cluster while it runs
///
/// Rates are of the time between two looks at all workers. Latencies come from histograms whose buckets double, and are
/// exact to the bucket. Keys are sampled: those that are read, written or in conflict most in the last half to whole minute,
/// with about how often. q or Ctrl-C ends it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal top
  shoal top --connect 10.0.0.1:7000 --every 5s
  shoal top --once --json

Exit codes: 0 done, 1 the cluster does not answer any more, 2 there is no cluster")]
pub struct Top {
    #[command(flatten)]
    target: Target,
    /// The time between two looks
    #[arg(long, value_name = "TIME", value_parser = duration::parse_positive, default_value = "1s")]
    every: Duration,
    /// Look twice, print what happened in between, and end
    #[arg(long)]
    once: bool,
    /// Print it as JSON
    #[arg(long, requires = "once")]
    json: bool,
}

impl Top {
    pub(super) fn run(&self) -> Result<CommandOutcome, CommandError> {
        let (addresses, access) = (self.target.addresses()?, self.target.access()?);
        if self.once {
            return self.print_once(&addresses, &access);
        }
        if !io::stdout().is_terminal() {
            let missing = "standard output is no terminal: --once prints what there is to show";
            return Err(CommandError::Usage(missing.to_owned()));
        }
        // That there is a cluster is known before the terminal is taken.
        let runtime = ask::runtime().map_err(|error| CommandError::Usage(error.to_string()))?;
        runtime.block_on(TopSample::take(&addresses, &access)).map_err(CommandError::Usage)?;
        let (samples, taken) = channel();
        let every = self.every;
        thread::spawn(move || runtime.block_on(sample(&addresses, &access, every, &samples)));
        let terminal = ratatui::init();
        let ended = show(terminal, &taken);
        ratatui::restore();
        ended
    }

    fn print_once(
        &self,
        addresses: &[String],
        access: &Access,
    ) -> Result<CommandOutcome, CommandError> {
        let runtime = ask::runtime().map_err(|error| CommandError::Usage(error.to_string()))?;
        let looks = async {
            let before = TopSample::take(addresses, access).await.map_err(CommandError::Usage)?;
            sleep(self.every).await;
            let now = TopSample::take(addresses, access).await.map_err(CommandError::Database)?;
            Ok::<_, CommandError>(Figures::between(&before, &now))
        };
        let figures = runtime.block_on(looks)?;
        if self.json {
            print_json(&figures)?;
        } else {
            let mut history = History::default();
            history.add(&figures);
            let columns = terminal::columns().unwrap_or(terminal::COLUMNS_MAX as u16);
            print(&text(&figures, &history, columns))?;
        }
        Ok(CommandOutcome::Holds)
    }
}

/// Looks again and again, until the other end does not listen any more.
async fn sample(
    addresses: &[String],
    access: &Access,
    every: Duration,
    samples: &Sender<Result<TopSample, String>>,
) {
    while samples.send(TopSample::take(addresses, access).await).is_ok() {
        sleep(every).await;
    }
}

/// Shows samples as they come, until a key ends that, or the cluster does not answer.
fn show(
    mut terminal: ratatui::DefaultTerminal,
    taken: &Receiver<Result<TopSample, String>>,
) -> Result<CommandOutcome, CommandError> {
    let broken =
        |error: io::Error| CommandError::Usage(format!("cannot use the terminal: {error}"));
    let (mut last, mut figures) = (None::<TopSample>, Figures::default());
    let mut history = History::default();
    loop {
        match taken.try_recv() {
            Ok(Ok(sample)) => {
                if let Some(before) = &last {
                    figures = Figures::between(before, &sample);
                    history.add(&figures);
                }
                last = Some(sample);
            }
            Ok(Err(error)) => return Err(CommandError::Database(error)),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                return Err(CommandError::Database("the cluster is not looked at any more".into()));
            }
        }
        let frame = |frame: &mut ratatui::Frame<'_>| {
            let area = frame.area();
            draw(&figures, &history, area, frame.buffer_mut());
        };
        terminal.draw(frame).map_err(broken)?;
        if event::poll(KEYS_EVERY).map_err(broken)? && ends(&event::read().map_err(broken)?) {
            return Ok(CommandOutcome::Holds);
        }
    }
}

/// Does this key end it? A terminal in raw mode sends Ctrl-C as one.
fn ends(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let is_interrupt =
        key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press
        && (is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes in a terminal, refreshed.

use super::sample::{Sample, Sampler};
use super::table::{self, PEER_TITLES, TITLES};
use crate::error::user_error;
use anyhow::{Context, Result};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::widgets::{Block, Cell, Row, Table, TableState};
use ratatui::{DefaultTerminal, Frame};
use std::io::{IsTerminal, stdout};
use std::time::{Duration, Instant};

/// Shows the processes until a key ends it, with a new sample every `interval`.
pub(super) fn show(sampler: &mut Sampler, interval: Duration) -> Result<()> {
    if !stdout().is_terminal() {
        user_error!("standard output is no terminal: use `portolan top --once` or `--json`");
    }
    let mut terminal = ratatui::try_init().context("preparing the terminal")?;
    let shown = refresh(&mut terminal, sampler, interval);
    ratatui::restore();
    shown
}

fn refresh(
    terminal: &mut DefaultTerminal,
    sampler: &mut Sampler,
    interval: Duration,
) -> Result<()> {
    let mut selected = TableState::default().with_selected(0);
    loop {
        let samples = sampler.take();
        let until = Instant::now() + interval;
        loop {
            terminal
                .draw(|frame| draw(frame, &samples, &mut selected))
                .context("drawing in the terminal")?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !event::poll(left).context("reading keys")? {
                break;
            }
            if handle(&event::read().context("reading keys")?, &mut selected) {
                return Ok(());
            }
        }
    }
}

/// Handles a key. Returns true if it ends the display.
fn handle(event: &Event, selected: &mut TableState) -> bool {
    let Event::Key(key) = event else { return false };
    if key.kind != KeyEventKind::Press {
        return false;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return true,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
        KeyCode::Down => selected.select_next(),
        KeyCode::Up => selected.select_previous(),
        _ => {}
    }
    false
}

fn draw(frame: &mut Frame<'_>, samples: &[Sample], selected: &mut TableState) {
    let halves = Layout::vertical([Constraint::Percentage(60), Constraint::Percentage(40)]);
    let [upper, lower] = halves.areas(frame.area());
    let rows: Vec<[String; 10]> = samples.iter().map(table::row).collect();
    let title = format!(" {} processes; up, down: select, q: end ", samples.len());
    let processes = filled(&TITLES, &rows, title);
    frame.render_stateful_widget(processes, upper, selected);
    let of = selected.selected().and_then(|index| samples.get(index));
    let (rows, title) = match of {
        Some(sample) => {
            let title = format!(
                " process {}: {} of {} peers; {} ",
                sample.pid,
                sample.status.peers.len(),
                sample.status.peer_count,
                table::links(sample)
            );
            (table::peer_rows(sample), title)
        }
        None => (Vec::new(), " no process ".to_owned()),
    };
    frame.render_widget(filled(&PEER_TITLES, &rows, title), lower);
}

/// Returns a table in which the last column takes the remaining width.
fn filled<const N: usize>(
    titles: &[&str; N],
    rows: &[[String; N]],
    title: String,
) -> Table<'static> {
    let widths = table::widths(titles, rows);
    let constraints = widths.iter().enumerate().map(|(column, width)| {
        let width = u16::try_from(*width).unwrap_or(u16::MAX);
        match column + 1 == N {
            true => Constraint::Min(width.min(20)),
            false => Constraint::Length(width),
        }
    });
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let header: Vec<Cell<'static>> = titles
        .iter()
        .map(|title| Cell::new((*title).to_owned()))
        .collect();
    let body = rows.iter().map(|row| Row::new(row.to_vec()));
    Table::new(body.collect::<Vec<_>>(), constraints.collect::<Vec<_>>())
        .header(Row::new(header).style(bold))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .block(Block::bordered().title(title))
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan::status::{PathState, PeerState, Status};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    #[test]
    fn selected_process_shows_its_peers() {
        let with_peer = |pid, host: &str| Sample {
            pid,
            program: "heat".to_owned(),
            rank: Some(pid),
            answered: true,
            rates: None,
            status: Status {
                peer_count: 1,
                peers: vec![PeerState {
                    host: host.to_owned(),
                    paths: vec![PathState {
                        link: "shm".to_owned(),
                        ..PathState::default()
                    }],
                    ..PeerState::default()
                }],
                ..Status::default()
            },
        };
        let samples = [with_peer(11, "host-of-11"), with_peer(12, "host-of-12")];
        let mut terminal = Terminal::new(TestBackend::new(120, 20)).unwrap();
        let mut selected = TableState::default().with_selected(0);
        let mut shown = |selected: &mut TableState| {
            terminal
                .draw(|frame| draw(frame, &samples, selected))
                .unwrap();
            terminal.backend().to_string()
        };
        let first = shown(&mut selected);
        assert!(
            first.contains("host-of-11") && !first.contains("host-of-12"),
            "{first}"
        );
        assert!(
            first.contains("2 processes") && first.contains("heat"),
            "{first}"
        );
        assert!(!handle(&Event::Key(KeyCode::Down.into()), &mut selected));
        assert!(shown(&mut selected).contains("host-of-12"));
        assert!(handle(
            &Event::Key(KeyCode::Char('q').into()),
            &mut selected
        ));
    }
}

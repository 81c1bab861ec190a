// SPDX-License-Identifier: MIT OR Apache-2.0
//! Section of the page about programs profiled by `portolan profile`.

use crate::npb::exact;
use crate::page::{bound, chart};
use crate::profiles;
use crate::units;
use maud::{Markup, html};
use portolan_profile::{Profile, SizeClass, Tally, World};
use std::path::Path;

const MICROS: f64 = 1e6;

/// Returns the section of `profile`: messages sent and time spent.
pub(crate) fn section(profile: &Profile) -> Markup {
    html! {
        section {
            h2 { "Messages of the program" }
            @for world in &profile.worlds {
                p.answer { (bound(&sentence(world))) }
                (sizes(world))
            }
            @for figure in profiles::figures(profile) { (chart(&figure)) }
            @for note in &profile.notes { p.facts { "Note: " (note) } }
            @if !profile.command.is_empty() { pre { (profile.command.join(" ")) } }
        }
    }
}

/// Describes the program in a sentence.
#[allow(clippy::cast_precision_loss, reason = "two digits are shown")]
fn sentence(world: &World) -> String {
    let name = Path::new(&world.program).file_name();
    let name = name.map_or(world.program.as_str().into(), |name| name.to_string_lossy());
    let all = kinds(world).map(|(_, classes)| sum(classes));
    let total = all.iter().fold(Tally::default(), |mut total, tally| {
        total.add(*tally);
        total
    });
    let average = match total.count {
        0 => String::new(),
        count => format!(
            ", of {} on average",
            units::bytes(total.bytes as f64 / count as f64)
        ),
    };
    format!(
        "{name}, {} processes, {}: {} messages{average}.",
        world.process_count,
        units::time(world.seconds * MICROS),
        exact(total.count)
    )
}

fn kinds(world: &World) -> [(&'static str, &[SizeClass]); 3] {
    let sizes = &world.sizes;
    [
        ("between two processes", &sizes.messages),
        ("one-sided", &sizes.one_sided),
        ("of collective operations", &sizes.of_collectives),
    ]
}

fn sum(classes: &[SizeClass]) -> Tally {
    let mut sum = Tally::default();
    for class in classes {
        sum.add(class.tally);
    }
    sum
}

/// Returns the table of messages by size, with one row per kind.
fn sizes(world: &World) -> Markup {
    let used = kinds(world)
        .into_iter()
        .filter(|(_, classes)| sum(classes).count > 0);
    let used: Vec<(&str, &[SizeClass])> = used.collect();
    html! {
        @if let Some((_, classes)) = used.first() {
            div.scroll {
                table {
                    thead { tr {
                        th { "messages" }
                        @for class in *classes { th { (range(class)) } }
                    } }
                    tbody {
                        @for (kind, classes) in &used {
                            tr {
                                td { (kind) }
                                @for class in *classes { td { (exact(class.tally.count)) } }
                            }
                        }
                    }
                }
            }
            p.facts { "By size in bytes; collective operations are counted as the messages of a simple algorithm." }
        }
    }
}

fn range(class: &SizeClass) -> String {
    match class.to {
        Some(to) => format!("{}–{}", exact(class.from), exact(to)),
        None => format!("{} and more", exact(class.from)),
    }
}

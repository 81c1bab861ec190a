// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page: one self-contained file without scripts or network access.

use crate::answers::{answers, float};
use crate::casts;
use crate::chart::Place;
use crate::data::{Comparison, Data};
use crate::figures::{Figure, of_bench};
use crate::npb::{self, Npb};
use crate::papers::{self, Table};
use crate::programs;
use crate::units;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use portolan_bench::{Metric, Report, SiteKind};
use portolan_profile::Profile;
use serde_json::Value;

/// Charts in the first part, beside the answer. The other charts follow it.
const FIRST: [&str; 2] = ["latency", "advantage"];

/// Contents of a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Material {
    /// Reports written by `portolan bench`.
    pub reports: Vec<Report>,
    /// Measurements written by `portolan report npb`.
    pub npbs: Vec<Npb>,
    /// Profiles written by `portolan profile`.
    pub profiles: Vec<Profile>,
    /// Casts written by `scripts/cast-figures.sh`.
    pub casts: Vec<Value>,
}

impl Material {
    /// Returns true if there is nothing to show.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.reports.is_empty()
            && self.npbs.is_empty()
            && self.profiles.is_empty()
            && self.casts.is_empty()
    }
}

/// Returns a page about `material`. Measurements of the same machine and MTU are combined.
#[must_use]
pub fn page(material: &Material) -> String {
    let networks = material.npbs.iter().filter_map(|npb| npb.networks.as_ref());
    let reports: Vec<Report> = material.reports.iter().chain(networks).cloned().collect();
    let runs = labelled(joined(&reports));
    let title = "Portolan, measured";
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(include_str!("page.css"))) }
            }
            body {
                header {
                    h1 { (title) }
                    @for (label, run) in &runs { p.lead-in { (summary(run)) (label) } }
                }
                main {
                    @for npb in &material.npbs { (npb::section(npb)) }
                    @for profile in &material.profiles { (programs::section(profile)) }
                    @for casts in &material.casts { (distribution(casts)) }
                    @for (label, run) in &runs { (first(run, label)) }
                    @for (label, run) in &runs { (further(run, label)) }
                    @for (label, run) in &runs { (then_and_now(run, label)) }
                    @for (label, run) in &runs { (machine(run, label)) }
                }
                footer.facts {
                    p { "Made by " code { "portolan report" } " of Portolan " (env!("CARGO_PKG_VERSION")) "." }
                }
            }
        }
    };
    page.into_string()
}

/// Returns the section of a measurement of casts.
fn distribution(json: &Value) -> Markup {
    let figures = casts::of_casts(json).unwrap_or_default();
    html! {
        section {
            h2 { "One source, many hosts" }
            @for figure in &figures { (chart(figure)) }
            @if let Some(table) = casts::chain(json) { (then(&table)) }
        }
    }
}

/// Combines runs on the same machine, or between the same two, with the same MTU.
fn joined(reports: &[Report]) -> Vec<Report> {
    let mut runs: Vec<Report> = Vec::new();
    for report in reports {
        let (of, now) = (&report.machine, report);
        let same = |run: &&mut Report| {
            let known = &run.machine;
            (
                &known.cpu,
                &known.kernel,
                known.mtu,
                known.site,
                &known.server,
            ) == (&of.cpu, &of.kernel, of.mtu, of.site, &of.server)
        };
        match runs.iter_mut().find(same) {
            Some(run) => {
                run.results.extend(now.results.iter().cloned());
                run.slower_variants
                    .extend(now.slower_variants.iter().cloned());
                run.half_power.extend(now.half_power.iter().cloned());
                run.long_gaps.extend(now.long_gaps.iter().cloned());
                run.notes.extend(now.notes.iter().cloned());
                let command = &mut run.machine.environment.command;
                command.push("\n".into());
                command.extend(of.environment.command.iter().cloned());
            }
            None => runs.push(report.clone()),
        }
    }
    runs
}

fn summary(run: &Report) -> String {
    let machine = &run.machine;
    let site = match (machine.site, &machine.server) {
        (SiteKind::Lab, _) => "two network namespaces joined by a veth pair".into(),
        (SiteKind::Loopback, _) => "this host's loopback interface".into(),
        (SiteKind::Hosts, Some(server)) => {
            format!(
                "this host and {} ({}, Linux {})",
                server.name, server.cpu, server.kernel
            )
        }
        (SiteKind::Hosts, None) => String::from("two hosts"),
    };
    let date = machine.date.split('T').next().unwrap_or_default();
    let virtual_machine = match machine.hypervisor.as_str() {
        "none" => String::new(),
        "virtual machine" => ", a virtual machine".into(),
        vendor => format!(", a virtual machine ({vendor})"),
    };
    format!(
        "{date}. {}, {} cores{virtual_machine}, Linux {}. Between hosts: {site}, MTU {}. Medians of \
         {} rounds in alternation.",
        machine.cpu, machine.cores, machine.kernel, machine.mtu, machine.rounds
    )
}

/// Adds a label such as ` (run 2, MTU 9000)` if there are several runs.
fn labelled(runs: Vec<Report>) -> Vec<(String, Report)> {
    let several = runs.len() > 1;
    let label = |(index, run): (usize, Report)| {
        let label = match several {
            true => format!(" (run {}, MTU {})", index + 1, run.machine.mtu),
            false => String::new(),
        };
        (label, run)
    };
    runs.into_iter().enumerate().map(label).collect()
}

fn first(run: &Report, label: &str) -> Markup {
    let data = Data { report: run };
    let answers = answers(&data);
    let figures = of_bench(run);
    let shown = figures.iter().filter(|figure| FIRST.contains(&figure.name));
    html! {
        section {
            h2 { "Is it faster for my sizes?" (label) }
            @if let Some((answer, rest)) = answers.split_first() {
                p.answer { (bound(answer)) }
                @if !rest.is_empty() {
                    ul.answers { @for answer in rest { li { (bound(answer)) } } }
                }
            } @else {
                p { "This run has no ping-pong or stream of both Portolan and TCP: " code { "portolan report --run" } " measures both." }
            }
            @for (index, figure) in shown.enumerate() {
                (chart(figure))
                @if index == 0 { (sizes(&data)) }
            }
        }
    }
}

/// Returns the comparison of Portolan with TCP, by size.
fn sizes(data: &Data<'_>) -> Markup {
    let places = [("Between two hosts", false), ("Within a host", true)];
    let of = |within| data.pairs(Metric::Pingpong, within);
    if places.iter().all(|(_, within)| of(*within).is_empty()) {
        return html! {};
    }
    html! {
        div.scroll {
            table.sizes {
                thead { tr {
                    th { "message" } th { "Portolan" } th { "TCP" } th { "times faster" } th { (bound("Portolan, 99.9 %")) } th { (bound("TCP, 99.9 %")) }
                } }
                @for (name, within) in places {
                    @let pairs = of(within);
                    @if !pairs.is_empty() {
                        tbody {
                            tr { th.era colspan="6" { (name) } }
                            @for pair in &pairs {
                                tr {
                                    td { (bound(&units::bytes(float(pair.size)))) }
                                    td { (bound(&units::time(pair.portolan.p50_us))) }
                                    td { (bound(&units::time(pair.tcp.p50_us))) }
                                    td { (match pair.comparison() {
                                        Comparison::Alike => "alike".to_owned(),
                                        _ => units::ratio(pair.advantage()),
                                    }) }
                                    td { (bound(&tail(pair.portolan.tail.p99_9_us))) }
                                    td { (bound(&tail(pair.tcp.tail.p99_9_us))) }
                                }
                            }
                        }
                    }
                }
            }
        }
        p.facts { "Half round trips: medians and 99.9th percentiles. Below 1, TCP is faster. “Alike” means not distinguishable: the interquartile ranges of the two systems' rounds overlap." }
    }
}

/// Joins figures and their units with non-breaking spaces.
pub(crate) fn bound(text: &str) -> String {
    const NO_BREAK: char = '\u{a0}';
    let mut bound = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    let mut before = ' ';
    while let Some(letter) = letters.next() {
        let unit = letters
            .peek()
            .is_some_and(|next| "nµmKMGBs%×".contains(*next));
        let joins = letter == ' ' && before.is_ascii_digit() && unit;
        bound.push(if joins { NO_BREAK } else { letter });
        before = letter;
    }
    bound
}

fn tail(us: f64) -> String {
    if us > 0.0 {
        units::time(us)
    } else {
        "–".into()
    }
}

fn further(run: &Report, label: &str) -> Markup {
    let figures = of_bench(run);
    let rest: Vec<&Figure> = figures
        .iter()
        .filter(|figure| !FIRST.contains(&figure.name))
        .collect();
    html! {
        @if !rest.is_empty() {
            section {
                h2 { "Throughput, rate, loss, load" (label) }
                @for figure in rest { (chart(figure)) }
            }
        }
    }
}

/// Returns a chart in two widths: for a page and for a phone.
pub(crate) fn chart(figure: &Figure) -> Markup {
    let drawn = |place| figure.chart.svg(place).unwrap_or_default();
    html! {
        figure id=(figure.name) {
            h3 { (figure.chart.title()) }
            div.screen { (PreEscaped(drawn(Place::Page))) }
            div.phone { (PreEscaped(drawn(Place::Phone))) }
            figcaption { (bound(&figure.caption)) }
        }
    }
}

fn then_and_now(run: &Report, label: &str) -> Markup {
    let data = Data { report: run };
    let tables = papers::tables(&data);
    let curves = papers::curves(&of_bench(run));
    let missing = papers::missing(&data);
    html! {
        section {
            h2 { "Then and now" (label) }
            p { "Figures printed in five papers on fast messages, above those of this run. The papers measured two machines joined by a wire; the commands of this page do so only between two hosts. Compare ratios within a block." }
            @if !curves.is_empty() {
                h3 { "Curves of the papers, and the corresponding charts" }
                div.scroll {
                    table.words {
                        thead { tr { th { "figure" } th { "then" } th { "now" } } }
                        tbody { @for curve in &curves {
                            tr { td { (curve.source) } td { (bound(curve.then)) } td { a href=(format!("#{}", curve.chart)) { (curve.label) } } }
                        } }
                    }
                }
            }
            @for table in &tables { (then(table)) }
            @if !missing.is_empty() {
                p.facts { "Not in this run:" }
                ul.facts { @for what in missing { li { (what) } } }
            }
        }
    }
}

pub(crate) fn then(table: &Table) -> Markup {
    let block = |rows: &[Vec<String>]| {
        html! { @for row in rows { tr { @for cell in row { td { (bound(cell)) } } } } }
    };
    html! {
        h3 { (table.title) }
        div.scroll {
            table {
                thead { tr { @for head in &table.head { th { (head) } } } }
                tbody {
                    tr { th.era colspan=(table.head.len()) { "then" } }
                    (block(&table.then))
                }
                tbody.now {
                    tr { th.era colspan=(table.head.len()) { "now" } }
                    (block(&table.now))
                }
            }
        }
        p.facts { (table.caption) " Then: " (table.source) "." }
    }
}

fn machine(run: &Report, label: &str) -> Markup {
    let machine = &run.machine;
    let around = &machine.environment;
    let mut facts = vec![
        (
            "processor",
            format!("{}, {} cores", machine.cpu, machine.cores),
        ),
        ("hypervisor", machine.hypervisor.clone()),
        ("kernel", machine.kernel.clone()),
        ("date", machine.date.clone()),
        ("Portolan", machine.portolan.clone()),
        ("MTU", machine.mtu.to_string()),
        ("clock", machine.clock.clone()),
        ("governor", around.governor.clone()),
        ("idle states", around.idle_states.join(", ")),
        ("interface", around.offloads.join(", ")),
    ];
    if let Some(mhz) = around.frequency_mhz {
        facts.push(("clock rate", format!("{mhz:.0} MHz")));
    }
    if let Some(steal) = around.steal_percent {
        facts.push(("steal time", format!("{steal:.1} %")));
    }
    let mitigations = around.mitigations.iter();
    let mitigations: Vec<String> = mitigations
        .map(|(attack, state)| format!("{attack}: {state}"))
        .collect();
    facts.push(("mitigations", mitigations.join("; ")));
    let command = around.command.join(" ").replace(" \n ", "\n");
    html! {
        section {
            h2 { "Machine and command" (label) }
            dl {
                @for (name, fact) in facts.iter().filter(|(_, fact)| !fact.is_empty()) {
                    dt { (name) } dd { (fact) }
                }
            }
            @if !command.is_empty() { pre { (command) } }
            @for note in &run.notes { p.facts { "Note: " (note) } }
        }
    }
}
